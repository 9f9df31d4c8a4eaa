//! [`Chat`] → [`Estimate`]: what the prompt costs, and what the answers may cost at most.
//!
//! Text is counted exactly; message framing, tools and pictures by the published formulas
//! (docs/adr/0009-counting-a-request.md); everything is settled later to what the provider reports.
//! Counting stops at a ceiling, so that no prompt holds a worker for longer than its budget allows.

pub mod bytes;
pub mod learned;
pub mod memo;

mod image;
mod json;
mod text;

use tollgate_budget::{Caching, Tokens, Toll};

use crate::chat::{Answering, Chat, Context, Framing, OutputCap, Piece};
use crate::config::{HoldRules, ModelRule, Tokenizer};
use image::ImageRule;
use learned::Correction;
use memo::ScopedMemo;
use text::TextCount;

/// What a request is expected to cost, before the call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Estimate {
    pub prompt: Tokens,
    /// The most that all answers together may cost.
    pub output: Tokens,
    pub basis: Basis,
    /// Of the prompt, what its text was counted at, and what that was then corrected by.
    pub text: Tokens,
    pub correction: Correction,
    pub doubt: Doubt,
    pub caching: Caching,
}

impl Estimate {
    /// What is set aside.
    pub const fn toll(&self) -> Toll {
        Toll::held(self.prompt, self.output, self.caching)
    }

    /// The prompt as the tokenizer alone has it.
    pub fn uncorrected(&self) -> Tokens {
        self.beside_text().saturating_add(self.text)
    }

    /// What the provider counted for the text that we counted; `None` where that cannot be told, or says
    /// nothing of our count.
    pub fn reported_text(&self, reported: Tokens) -> Option<Tokens> {
        match (self.basis, self.doubt) {
            (Basis::Factor | Basis::Characters, Doubt::Text) => {
                Some(reported.saturating_sub(self.beside_text()))
            }
            (Basis::Factor | Basis::Characters, Doubt::More) | (Basis::Exact | Basis::Size, _) => None,
        }
    }

    fn beside_text(&self) -> Tokens {
        self.prompt.saturating_sub(self.correction.of(self.text))
    }
}

/// What of a prompt may be more or less than was counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Doubt {
    /// Its text alone, so that a report tells how good the tokenizer is.
    Text,
    /// Flat figures too: media, what the provider keeps, what only it can read. A wrong one would be laid to
    /// the tokenizer's charge.
    More,
}

/// How the prompt's text was counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Basis {
    /// With the model's own vocabulary.
    Exact,
    /// With another one, times a factor.
    Factor,
    Characters,
    /// By the body's size alone.
    Size,
}

impl Basis {
    const fn of(tokenizer: Tokenizer) -> Self {
        match tokenizer {
            Tokenizer::Exact(_) => Self::Exact,
            Tokenizer::Like { .. } => Self::Factor,
            Tokenizer::Characters { .. } => Self::Characters,
        }
    }
}

/// The prompt alone costs more than the ceiling; how much more was not counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OverCeiling {
    pub more_than: Tokens,
}

/// Every message: the marks around it.
const MESSAGE: u64 = 3;
/// A message whose speaker has a name.
const NAME: u64 = 1;
/// The opening of the answer, once.
const PRIMING: u64 = 3;
/// An earlier call: between one and three, by those who measured; the most is taken.
const CALL: u64 = 3;
/// A tool on offer, beside its JSON: a guess upwards, since providers say only that it is more.
const TOOL: u64 = 12;

/// `correction`: what was learned of the model; of no effect where its own tokenizer counts. `ceiling`: the
/// smallest amount in which the request could ever fit, where one refuses.
pub fn estimate(
    chat: &Chat<'_>,
    model: &ModelRule,
    hold: &HoldRules,
    correction: Correction,
    ceiling: Option<Tokens>,
    memo: ScopedMemo<'_>,
) -> Result<Estimate, OverCeiling> {
    let framing = framing(chat, hold).saturating_add(media(chat, model));
    let over = || OverCeiling { more_than: ceiling.unwrap_or(Tokens::MAX) };
    let left = match ceiling {
        Some(ceiling) if framing > ceiling => return Err(over()),
        Some(ceiling) => Some(ceiling.saturating_sub(framing)),
        None => None,
    };
    let basis = Basis::of(model.tokenizer);
    let correction = match basis {
        Basis::Factor | Basis::Characters => correction,
        Basis::Exact | Basis::Size => Correction::NONE,
    };
    let left = left.map(|left| correction.undone(left));
    let text = TextCount::of(chat, model.tokenizer, left, memo).ok_or_else(over)?;
    Ok(Estimate {
        prompt: framing.saturating_add(correction.of(text)),
        output: output(chat, model, hold),
        basis,
        text,
        correction,
        doubt: doubt(chat),
        caching: chat.caching,
    })
}

fn doubt(chat: &Chat<'_>) -> Doubt {
    let is_medium = |piece: &Piece<'_>| match piece {
        Piece::Image(_) | Piece::Audio | Piece::File => true,
        Piece::Role(_)
        | Piece::Name(_)
        | Piece::Text(_)
        | Piece::Suffix(_)
        | Piece::Call
        | Piece::Tool(_)
        | Piece::Schema(_) => false,
    };
    match chat.context {
        Context::Whole if chat.given_tokens == 0 && !chat.pieces.iter().any(is_medium) => Doubt::Text,
        Context::Whole | Context::Continued => Doubt::More,
    }
}

/// The most that the answers may cost: the cap (or the model's default) for each, within what the model
/// can do, and the whole within what one hold may be.
pub fn output(chat: &Chat<'_>, model: &ModelRule, hold: &HoldRules) -> Tokens {
    // What is fetched later is settled by nobody, so nothing corrects a hold that was too small.
    let uncapped = match chat.answering {
        Answering::Now => model.default_output,
        Answering::Later => model.max_output,
    };
    let each = match chat.output_cap {
        OutputCap::Absent | OutputCap::NotACap => uncapped,
        OutputCap::AtMost(cap) => Tokens::new(cap),
        OutputCap::AtMostOrNone(cap) => Tokens::new(cap).max(uncapped),
        OutputCap::NoOutput => Tokens::ZERO,
    };
    each.min(model.max_output).saturating_mul(chat.choices).min(hold.max_output)
}

/// What the structure costs, whatever is in it.
fn framing(chat: &Chat<'_>, hold: &HoldRules) -> Tokens {
    let pieces = chat.pieces.iter().map(|piece| match piece {
        Piece::Name(_) => NAME,
        Piece::Call => CALL,
        Piece::Tool(_) => TOOL,
        Piece::Role(_)
        | Piece::Text(_)
        | Piece::Suffix(_)
        | Piece::Schema(_)
        | Piece::Image(_)
        | Piece::Audio
        | Piece::File => 0,
    });
    let priming = match chat.framing {
        Framing::Turns => PRIMING,
        Framing::Bare => 0,
    };
    let marks = pieces.fold(priming.saturating_add(chat.given_tokens), u64::saturating_add);
    let kept = match chat.context {
        Context::Whole => Tokens::ZERO,
        Context::Continued => hold.previous_response,
    };
    Tokens::new(chat.messages).saturating_mul(MESSAGE).saturating_add(Tokens::new(marks)).saturating_add(kept)
}

/// What pictures, sounds and files cost.
fn media(chat: &Chat<'_>, model: &ModelRule) -> Tokens {
    let name = model.alias.as_deref().or(chat.model.as_deref()).unwrap_or_default();
    let rule = ImageRule::of(name);
    let pieces = chat.pieces.iter().map(|piece| match piece {
        Piece::Image(image) => image::tokens(image, rule, model.media.image),
        Piece::Audio => model.media.audio,
        Piece::File => model.media.file,
        Piece::Role(_)
        | Piece::Name(_)
        | Piece::Text(_)
        | Piece::Suffix(_)
        | Piece::Call
        | Piece::Tool(_)
        | Piece::Schema(_) => Tokens::ZERO,
    });
    pieces.fold(Tokens::ZERO, Tokens::saturating_add)
}

#[cfg(test)]
mod tests {
    use tollgate_budget::{OnLeaseEnd, Span};

    use super::learned::Learned;
    use super::memo::TextMemo;
    use super::*;
    use crate::chat::{Dialect, parse};
    use crate::config::{Media, Vocabulary, Weights};

    fn model(tokenizer: Tokenizer) -> ModelRule {
        ModelRule {
            pattern: "*".into(),
            alias: None,
            tokenizer,
            default_output: Tokens::new(1024),
            max_output: Tokens::new(16_384),
            media: Media { image: Tokens::new(1000), audio: Tokens::new(2000), file: Tokens::new(3000) },
            weights: Weights::NONE,
            price: None,
        }
    }

    const HOLD: HoldRules = HoldRules {
        max_output: Tokens::new(65_536),
        previous_response: Tokens::new(2000),
        max_share_milli: 1000,
        lease: Span::from_secs(600),
        on_lease_end: OnLeaseEnd::Charge,
    };
    const O200K: Tokenizer = Tokenizer::Exact(Vocabulary::O200kBase);

    fn found(body: &str, tokenizer: Tokenizer, ceiling: Option<u64>) -> Result<Estimate, OverCeiling> {
        let chat = parse(Dialect::OpenAiChat, body.as_bytes()).unwrap();
        let mut memo = TextMemo::new([1; 16]);
        estimate(&chat, &model(tokenizer), &HOLD, Correction::NONE, ceiling.map(Tokens::new), memo.within(0))
    }

    #[test]
    fn framing_is_added_as_published() {
        for (body, framing, text) in [
            (r#"{}"#, 3, 0),
            (r#"{"messages":[{"role":"user"}]}"#, 6, 1),
            (r#"{"messages":[{"role":"user","name":"user"}]}"#, 7, 2),
            (r#"{"messages":[{"role":"user"},{"role":"user"}]}"#, 9, 2),
            (r#"{"messages":[{"tool_calls":[{"function":{"name":"user","arguments":"user"}}]}]}"#, 9, 2),
            (r#"{"messages":[{"function_call":{"name":"user","arguments":"user"}}]}"#, 9, 2),
            (r#"{"tools":[7,7]}"#, 27, 2),
            (r#"{"functions":[7]}"#, 15, 1),
            (r#"{"response_format":{"json_schema":7}}"#, 3, 1),
            (
                r#"{"messages":[{"content":[{"image_url":"https://e"},{"input_audio":{}},{"file":{}}]}]}"#,
                6006,
                0,
            ),
        ] {
            let Estimate { prompt, output, basis, .. } = found(body, O200K, None).unwrap();
            assert_eq!(
                (prompt.count(), output.count(), basis),
                (framing + text, 1024, Basis::Exact),
                "{body}"
            );
        }
    }

    #[test]
    fn each_api_is_framed_as_its_models_read_it() {
        for (dialect, body, framing, text) in [
            (Dialect::OpenAiCompletions, r#"{"prompt":"user"}"#, 0, 1),
            (Dialect::OpenAiCompletions, r#"{"prompt":["user",[7,8,9]]}"#, 3, 1),
            (Dialect::OpenAiCompletions, r#"{"prompt":["user","user","user"],"suffix":"user"}"#, 0, 6),
            (Dialect::OpenAiEmbeddings, r#"{"input":["user",[7]]}"#, 1, 1),
            (Dialect::OpenAiResponses, r#"{"input":"user"}"#, 6, 2),
            (Dialect::OpenAiResponses, r#"{"input":"user","instructions":"user"}"#, 9, 4),
            (Dialect::OpenAiResponses, r#"{"input":"user","previous_response_id":"user"}"#, 2006, 3),
            (Dialect::OpenAiResponses, r#"{"input":[{"id":"a"},{"id":"b"}],"conversation":"user"}"#, 2009, 1),
            (Dialect::OpenAiResponses, r#"{"input":[{"name":"user","arguments":"user"}]}"#, 9, 2),
            (Dialect::OpenAiResponses, r#"{"input":[{"encrypted_content":"AAAAAA"}]}"#, 8, 0),
            (Dialect::AnthropicMessages, r#"{"system":"user","messages":[{"content":"user"}]}"#, 9, 3),
            (
                Dialect::AnthropicMessages,
                r#"{"messages":[{"content":[{"type":"tool_use","name":"user","input":{"user":"user"}}]}],"tools":[7]}"#,
                21,
                4,
            ),
            (
                Dialect::AnthropicMessages,
                r#"{"messages":[{"content":[{"type":"document","source":{"type":"url","url":"https://e"}}]}]}"#,
                3006,
                0,
            ),
        ] {
            let chat = parse(dialect, body.as_bytes()).unwrap();
            let found = |ceiling| {
                estimate(
                    &chat,
                    &model(O200K),
                    &HOLD,
                    Correction::NONE,
                    ceiling,
                    TextMemo::new([1; 16]).within(0),
                )
            };
            let whole = found(None).unwrap();
            assert_eq!(whole.prompt, Tokens::new(framing + text), "{body}");
            assert_eq!(found(Some(whole.prompt)), Ok(whole), "{body}");
            assert!(found(Some(Tokens::new(framing + text - 1))).is_err(), "{body}");
        }
    }

    #[test]
    fn embeddings_hold_no_output_and_a_batch_holds_for_each_of_its_prompts() {
        for (dialect, body, output) in [
            (Dialect::OpenAiEmbeddings, r#"{"input":["a","b"],"max_tokens":7}"#, 0),
            (Dialect::OpenAiCompletions, r#"{"prompt":["a","b"],"max_tokens":7}"#, 14),
            (Dialect::OpenAiCompletions, r#"{"prompt":["a","b"],"max_tokens":7,"n":3,"best_of":5}"#, 70),
            (Dialect::OpenAiCompletions, r#"{"prompt":[[],[],[]]}"#, 3072),
        ] {
            let chat = parse(dialect, body.as_bytes()).unwrap();
            assert_eq!(output_of(&chat), output, "{body}");
        }
    }

    fn output_of(chat: &Chat<'_>) -> u64 {
        output(chat, &model(O200K), &HOLD).count()
    }

    #[test]
    fn the_factor_is_for_text_and_rounded_up_once() {
        let like = Tokenizer::Like { vocabulary: Vocabulary::O200kBase, factor_milli: 1100 };
        let one = r#"{"messages":[{"role":"user"}]}"#;
        let two = r#"{"messages":[{"role":"user"},{"role":"user"}]}"#;
        assert_eq!(found(one, like, None).unwrap().prompt, Tokens::new(6 + 2));
        assert_eq!(found(two, like, None).unwrap().prompt, Tokens::new(9 + 3));
        assert_eq!(found(two, like, None).unwrap().basis, Basis::Factor);
    }

    #[test]
    fn characters_are_letters_not_bytes() {
        let four = Tokenizer::Characters { per_token_milli: 4000 };
        let body = r#"{"messages":[{"content":"äöüß\u4e2d"}]}"#;
        let found = found(body, four, None).unwrap();
        assert_eq!((found.prompt, found.basis), (Tokens::new(6 + 2), Basis::Characters));
    }

    #[test]
    fn output_is_bounded_per_answer_by_the_model_and_together_by_the_hold() {
        for (members, output) in [
            ("", 1024),
            (r#","n":3"#, 3072),
            (r#","max_tokens":100,"n":5"#, 500),
            (r#","max_tokens":100000"#, 16_384),
            (r#","max_tokens":100000,"n":2"#, 32_768),
            (r#","max_tokens":100000,"n":1e30"#, 65_536),
            (r#","max_tokens":0"#, 1024),
            (r#","max_tokens":0,"max_completion_tokens":10"#, 1024),
            (r#","max_tokens":0,"max_completion_tokens":2000"#, 2000),
        ] {
            let body = format!(r#"{{"model":"m"{members}}}"#);
            assert_eq!(found(&body, O200K, None).unwrap().output, Tokens::new(output), "{members}");
        }
    }

    #[test]
    fn a_ceiling_is_met_to_the_token_and_what_is_over_it_is_not_told() {
        let text = "The keeper climbed the stairs. ".repeat(40);
        let body = format!(
            r#"{{"messages":[{{"role":"user","content":"{text}"}},{{"role":"user","content":"{text}"}}],"tools":[{{"a":"{text}"}}]}}"#
        );
        for tokenizer in [
            O200K,
            Tokenizer::Like { vocabulary: Vocabulary::Cl100kBase, factor_milli: 1250 },
            Tokenizer::Characters { per_token_milli: 3500 },
        ] {
            let whole = found(&body, tokenizer, None).unwrap();
            let prompt = whole.prompt.count();
            assert_eq!(found(&body, tokenizer, Some(prompt)), Ok(whole));
            for ceiling in [0, 2, 8, 9, 20, 100, prompt / 2, prompt - 1] {
                let over = OverCeiling { more_than: Tokens::new(ceiling) };
                assert_eq!(found(&body, tokenizer, Some(ceiling)), Err(over));
            }
        }
    }

    #[test]
    fn a_correction_is_of_foreign_text_alone_and_met_to_the_token_by_a_ceiling() {
        let lesson = Learned::from_answer(Tokens::new(1000), Tokens::new(1300));
        let by = (0..20).fold(Learned::NOTHING, |sum, _| sum.merged(lesson)).correction();
        let text = "The keeper climbed the stairs. ".repeat(40);
        let body = format!(
            r#"{{"messages":[{{"role":"user","content":"{text}"}},{{"content":[{{"image_url":"https://e"}}]}}]}}"#
        );
        let chat = parse(Dialect::OpenAiChat, body.as_bytes()).unwrap();
        let found = |tokenizer, by, ceiling: Option<Tokens>| {
            estimate(&chat, &model(tokenizer), &HOLD, by, ceiling, TextMemo::new([1; 16]).within(0))
        };
        for tokenizer in [
            Tokenizer::Like { vocabulary: Vocabulary::Cl100kBase, factor_milli: 1250 },
            Tokenizer::Characters { per_token_milli: 3500 },
        ] {
            let plain = found(tokenizer, Correction::NONE, None).unwrap();
            let whole = found(tokenizer, by, None).unwrap();
            assert_eq!(whole.prompt.saturating_sub(by.of(plain.text)), Tokens::new(1009));
            assert_eq!((whole.uncorrected(), whole.text), (plain.prompt, plain.text));
            assert_eq!(found(tokenizer, by, Some(whole.prompt)), Ok(whole));
            assert!(found(tokenizer, by, Some(whole.prompt.saturating_sub(Tokens::new(1)))).is_err());
        }
        assert_eq!(found(O200K, by, None), found(O200K, Correction::NONE, None));
    }

    #[test]
    fn a_report_tells_of_the_text_only_where_all_else_is_known() {
        let like = Tokenizer::Like { vocabulary: Vocabulary::O200kBase, factor_milli: 1000 };
        let told = |dialect, body: &str, tokenizer| {
            let chat = parse(dialect, body.as_bytes()).unwrap();
            let mut memo = TextMemo::new([1; 16]);
            let found = estimate(&chat, &model(tokenizer), &HOLD, Correction::NONE, None, memo.within(0));
            found.unwrap().reported_text(Tokens::new(100)).map(Tokens::count)
        };
        let user = r#"{"messages":[{"role":"user"}]}"#;
        assert_eq!(told(Dialect::OpenAiChat, user, like), Some(94));
        assert_eq!(told(Dialect::OpenAiChat, r#"{"tools":[7]}"#, like), Some(85));
        assert_eq!(told(Dialect::OpenAiChat, user, O200K), None);
        for (dialect, body) in [
            (Dialect::OpenAiChat, r#"{"messages":[{"content":[{"image_url":"https://e"}]}]}"#),
            (Dialect::OpenAiChat, r#"{"messages":[{"content":[{"input_audio":{}}]}]}"#),
            (Dialect::OpenAiChat, r#"{"messages":[{"content":[{"file":{}}]}]}"#),
            (Dialect::OpenAiEmbeddings, r#"{"input":["user",[7]]}"#),
            (Dialect::OpenAiResponses, r#"{"input":"user","previous_response_id":"user"}"#),
            (Dialect::OpenAiResponses, r#"{"input":[{"encrypted_content":"AAAAAA"}]}"#),
        ] {
            assert_eq!(told(dialect, body, like), None, "{body}");
        }
    }

    #[test]
    fn a_picture_costs_by_the_model_that_the_policy_says_it_is() {
        let body = r#"{"model":"my-deployment","messages":[{"content":[{"image_url":{"url":"https://e","detail":"low"}}]}]}"#;
        let chat = parse(Dialect::OpenAiChat, body.as_bytes()).unwrap();
        let alias = |alias: Option<&str>| ModelRule { alias: alias.map(str::to_owned), ..model(O200K) };
        let mut memo = TextMemo::new([1; 16]);
        for (alias, tokens) in [(alias(None), 1000), (alias(Some("gpt-4o")), 85), (alias(Some("gpt-5")), 70)]
        {
            let found = estimate(&chat, &alias, &HOLD, Correction::NONE, None, memo.within(0)).unwrap();
            assert_eq!(found.prompt, Tokens::new(6 + tokens));
        }
    }
}

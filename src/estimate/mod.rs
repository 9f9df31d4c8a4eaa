//! [`Chat`] → [`Estimate`]: what the prompt costs, and what the answers may cost at most.
//!
//! Text is counted exactly; message framing, tools and pictures by the published formulas
//! (docs/adr/0009-counting-a-request.md); everything is settled later to what the provider reports.
//! Counting stops at a ceiling, so that no prompt holds a worker for longer than its budget allows.

pub mod bytes;
pub mod memo;

mod image;
mod json;
mod text;

use tollgate_budget::Tokens;

use crate::chat::{Chat, OutputCap, Piece};
use crate::config::{HoldRules, ModelRule, Tokenizer};
use image::ImageRule;
use memo::ScopedMemo;
use text::TextCount;

/// What a request is expected to cost, before the call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Estimate {
    pub prompt: Tokens,
    /// The most that all answers together may cost.
    pub output: Tokens,
    pub basis: Basis,
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

/// `ceiling`: the smallest amount in which the request could ever fit, where one refuses.
pub fn estimate(
    chat: &Chat<'_>,
    model: &ModelRule,
    hold: &HoldRules,
    ceiling: Option<Tokens>,
    memo: ScopedMemo<'_>,
) -> Result<Estimate, OverCeiling> {
    let framing = framing(chat).saturating_add(media(chat, model));
    let over = || OverCeiling { more_than: ceiling.unwrap_or(Tokens::MAX) };
    let left = match ceiling {
        Some(ceiling) if framing > ceiling => return Err(over()),
        Some(ceiling) => Some(ceiling.saturating_sub(framing)),
        None => None,
    };
    let text = TextCount::of(chat, model.tokenizer, left, memo).ok_or_else(over)?;
    Ok(Estimate {
        prompt: framing.saturating_add(text),
        output: output(chat, model, hold),
        basis: Basis::of(model.tokenizer),
    })
}

/// The most that the answers may cost: the cap (or the model's default) for each, within what the model
/// can do, and the whole within what one hold may be.
pub fn output(chat: &Chat<'_>, model: &ModelRule, hold: &HoldRules) -> Tokens {
    let each = match chat.output_cap {
        OutputCap::Absent | OutputCap::NotACap => model.default_output,
        OutputCap::AtMost(cap) => Tokens::new(cap),
        OutputCap::AtMostOrNone(cap) => Tokens::new(cap).max(model.default_output),
    };
    each.min(model.max_output).saturating_mul(chat.choices).min(hold.max_output)
}

/// What the structure costs, whatever is in it.
fn framing(chat: &Chat<'_>) -> Tokens {
    let pieces = chat.pieces.iter().map(|piece| match piece {
        Piece::Name(_) => NAME,
        Piece::Call => CALL,
        Piece::Tool(_) => TOOL,
        Piece::Role(_) | Piece::Text(_) | Piece::Schema(_) | Piece::Image(_) | Piece::Audio | Piece::File => {
            0
        }
    });
    let marks = pieces.fold(PRIMING, u64::saturating_add);
    Tokens::new(chat.messages).saturating_mul(MESSAGE).saturating_add(Tokens::new(marks))
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
        | Piece::Call
        | Piece::Tool(_)
        | Piece::Schema(_) => Tokens::ZERO,
    });
    pieces.fold(Tokens::ZERO, Tokens::saturating_add)
}

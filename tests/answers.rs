//! Every answer of the fixtures and cases, cut in every way: the same report, the same charge, and the
//! client sees the provider's bytes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code outside test functions: a fault in a table must stop the test"
)]

mod common;

use common::answers::{self, Answer, Counts};
use common::cuts;
use tollgate::config::{Tokenizer, Vocabulary};
use tollgate::usage::{
    Cost, Dialect, Ending, Finish, HideUsage, Outcome, Passed, Report, UsageMeter, charge,
};
use tollgate_budget::{Caching, Tokens, Toll, Usage};

/// Longer answers are not cut at every byte but in steps, which have no factor in common with anything in them.
const SHORT: usize = 16 * 1024;
const STEP: usize = 100_003;

/// The bound of product.md on what may be kept of one answer.
const MOST_KEPT: usize = 1 << 20;

const TOKENIZERS: [Tokenizer; 3] = [
    Tokenizer::Exact(Vocabulary::O200kBase),
    Tokenizer::Like { vocabulary: Vocabulary::Cl100kBase, factor_milli: 1150 },
    Tokenizer::Characters { per_token_milli: 4000 },
];

#[test]
fn every_answer_reads_as_expected() {
    let all = answers::all();
    for (dialect, least) in [(Dialect::OpenAi, 50), (Dialect::Responses, 6), (Dialect::Anthropic, 14)] {
        let found = all.iter().filter(|answer| answer.reader() == Some(dialect)).count();
        assert!(found >= least, "{found} of {dialect:?}: the tables are found");
    }
    for answer in &all {
        for tokenizer in TOKENIZERS {
            let (report, _) = run(answer, tokenizer, HideUsage::Keep, &[&answer.bytes]);
            let id = &answer.id;
            assert_eq!(report.usage.map(counts), answer.usage, "{id}: {}", answer.why);
            assert_eq!(report.finish.map(word), answer.finish.as_deref(), "{id}: {}", answer.why);
            check_charge(answer, &report);
        }
    }
}

#[test]
fn no_cut_changes_the_report_or_the_bytes() {
    for answer in answers::all() {
        for hide in [HideUsage::Keep, HideUsage::Hide] {
            let tokenizer = Tokenizer::Exact(Vocabulary::O200kBase);
            let whole = run(&answer, tokenizer, hide, &[&answer.bytes]);
            assert_eq!(whole.1, shown(&answer, hide), "{}: what the client sees", answer.id);
            for pieces in cuttings(&answer, hide) {
                let cut = run(&answer, tokenizer, hide, &pieces);
                assert!(cut == whole, "{} in {} pieces: {:?} {:?}", answer.id, pieces.len(), cut.0, whole.0);
            }
        }
    }
}

#[test]
fn only_the_usage_chunk_itself_is_ever_held_back() {
    for answer in answers::openai().iter().filter(|answer| answer.wire == "sse") {
        let hidden = usage_chunk(&answer.bytes);
        for cut in (0..=answer.bytes.len()).step_by(step(answer)) {
            let mut meter = UsageMeter::new(Dialect::OpenAi, TOKENIZERS[2], HideUsage::Hide);
            let mut out = Vec::new();
            pass(&mut meter, &answer.bytes[..cut], &mut out);
            let due: Vec<u8> = match &hidden {
                Some(range) if cut > range.start => {
                    [&answer.bytes[..range.start], &answer.bytes[range.end.min(cut)..cut]].concat()
                }
                _ => answer.bytes[..cut].to_vec(),
            };
            let held = due.len() - out.len();
            assert_eq!(out, due[..out.len()], "{} at {cut}", answer.id);
            // What is missing must be the begin of an event whose choices have not been reached.
            let missing = &due[out.len()..];
            assert!(held <= 400, "{} at {cut}: {held} bytes held", answer.id);
            assert!(!contains(missing, b"\"choices\":[{"), "{} at {cut}", answer.id);
            assert!(!contains(missing, b"\n\n") && !missing.starts_with(b":"), "{} at {cut}", answer.id);
        }
    }
}

#[test]
fn a_stream_cut_off_anywhere_is_charged_for_no_less_than_what_was_seen_and_no_more_than_its_hold_or_report() {
    for answer in answers::all().iter().filter(|answer| answer.wire == "sse" && answer.status == 200) {
        let mut before = Tokens::ZERO;
        for cut in (0..answer.bytes.len()).step_by(step(answer)) {
            let (report, _) = run(answer, TOKENIZERS[2], HideUsage::Keep, &[&answer.bytes[..cut]]);
            assert!(report.seen >= before, "{} at {cut}: what was seen stays seen", answer.id);
            before = report.seen;
            let cost = charge(&report, held(answer));
            let most = u64::max(answer.held.0 + answer.held.1, answer.charge.1 + report.seen.count());
            assert!(total(&cost) <= most, "{} at {cut}: {cost:?}", answer.id);
            assert!(
                cost.toll.output >= report.seen || report.usage.is_some(),
                "{} at {cut}: {cost:?}",
                answer.id
            );
        }
    }
}

#[test]
fn the_text_of_openai_is_seen_in_the_tokens_that_it_bills_but_for_the_one_that_ends_it() {
    for answer in answers::openai().iter().filter(|answer| answer.id.starts_with("openai-chat#")) {
        let (report, _) = run(answer, TOKENIZERS[0], HideUsage::Hide, &[&answer.bytes]);
        let billed = report.usage.and_then(|usage| usage.output).unwrap();
        assert_eq!(report.seen.saturating_add(Tokens::new(1)), billed, "{}", answer.id);
    }
}

/// The meter of the answer's dialect fed with `pieces`: its report, and what the client saw.
fn run(answer: &Answer, tokenizer: Tokenizer, hide: HideUsage, pieces: &[&[u8]]) -> (Report, Vec<u8>) {
    let mut meter = UsageMeter::new(answer.reader().unwrap(), tokenizer, hide);
    let mut out = Vec::new();
    for piece in pieces {
        pass(&mut meter, piece, &mut out);
        assert!(meter.kept() <= MOST_KEPT);
    }
    out.extend(meter.finish());
    assert_eq!(meter.kept(), 0, "everything is let go at the end");
    (meter.report(), out)
}

fn pass(meter: &mut UsageMeter, piece: &[u8], out: &mut Vec<u8>) {
    match meter.chunk(piece) {
        Passed::AsIs => out.extend_from_slice(piece),
        Passed::Instead(bytes) => out.extend(bytes),
    }
}

fn cuttings(answer: &Answer, hide: HideUsage) -> Vec<Vec<&[u8]>> {
    let bytes = &answer.bytes[..];
    let mut all = vec![cuts::at(bytes, &answer.split), bytes.chunks(1).collect()];
    // Where nothing can be hidden there is one path less to go wrong in.
    let step = match hide {
        HideUsage::Hide => step(answer),
        HideUsage::Keep => step(answer) * 7,
    };
    all.extend((0..=bytes.len()).step_by(step).map(|cut| cuts::at(bytes, &[cut])));
    let (longest, rounds) =
        if bytes.len() > SHORT { ([300, 5000, 70_000, 900_000], 1) } else { ([2, 7, 60, 400], 10) };
    for longest in longest {
        all.extend((0..rounds).map(|seed| cuts::random(bytes, longest, seed)));
    }
    all
}

fn step(answer: &Answer) -> usize {
    if answer.bytes.len() > SHORT { STEP } else { 1 }
}

fn check_charge(answer: &Answer, report: &Report) {
    let id = &answer.id;
    // An error status is settled at zero without a look at the body, which must agree where it can be read.
    let cost = charge(report, held(answer));
    let (least, most) = answer.charge;
    assert!((least..=most).contains(&total(&cost)), "{id}: {cost:?}, {}", answer.why);
    if let Some(outcome) = &answer.outcome {
        let named = match cost.outcome {
            Outcome::ProviderUsage => "provider_usage",
            Outcome::PartialUsage => "partial_usage",
            Outcome::Estimate => "estimate",
            Outcome::NoCharge => "no_charge",
        };
        assert_eq!(named, outcome, "{id}: {}", answer.why);
    } else {
        assert_eq!(report.ending, Ending::Whole, "{id}");
    }
}

fn total(cost: &Cost) -> u64 {
    cost.toll.input.saturating_add(cost.toll.output).count()
}

fn held(answer: &Answer) -> Toll {
    Toll::held(Tokens::new(answer.held.0), Tokens::new(answer.held.1), Caching::Unmarked)
}

fn counts(usage: Usage) -> Counts {
    Counts {
        input: usage.input.map(Tokens::count),
        output: usage.output.map(Tokens::count),
        cached_input: usage.cached_input.count(),
        cache_write: usage.cache_write.count(),
        reasoning: usage.reasoning.count(),
        provider_total: usage.provider_total.map(Tokens::count),
    }
}

fn word(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
        Finish::ToolCalls => "tool_calls",
        Finish::ContentFilter => "content_filter",
        Finish::Error => "error",
    }
}

/// What the client is to see: all, or all but the usage chunk.
fn shown(answer: &Answer, hide: HideUsage) -> Vec<u8> {
    let bytes = &answer.bytes;
    match (hide, usage_chunk(bytes)) {
        (HideUsage::Hide, Some(hidden))
            if answer.wire == "sse" && answer.reader() == Some(Dialect::OpenAi) =>
        {
            [&bytes[..hidden.start], &bytes[hidden.end..]].concat()
        }
        (HideUsage::Hide | HideUsage::Keep, _) => bytes.clone(),
    }
}

/// The chunk without choices that carries usage, found the slow and obvious way.
fn usage_chunk(bytes: &[u8]) -> Option<std::ops::Range<usize>> {
    let mut start = 0;
    while start < bytes.len() {
        let rest = &bytes[start..];
        let blank = |mark: &[u8]| rest.windows(mark.len()).position(|w| w == mark).map(|at| at + mark.len());
        let length = [blank(b"\n\n"), blank(b"\r\n\r\n")].into_iter().flatten().min().unwrap_or(rest.len());
        let event = &rest[..length];
        let data = event.strip_prefix(b"data:").unwrap_or_default();
        if let Ok(json) = serde_json::from_slice::<serde_json::Value>(data)
            && json["usage"].is_object()
            && json["choices"].as_array().is_none_or(Vec::is_empty)
        {
            return Some(start..start + length);
        }
        start += length;
    }
    None
}

fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}

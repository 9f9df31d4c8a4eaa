//! An answer, of any dialect and in any cuts: one report, one output.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::config::Tokenizer;
use tollgate::usage::{Dialect, HideUsage, Passed, Report, UsageMeter, charge};
use tollgate_budget::{Caching, Tariff, Tokens, Toll};

/// Behind the answer, so that any provider's answer is a seed as it is.
const TAIL: usize = 5;

const TOKENIZER: Tokenizer = Tokenizer::Characters { per_token_milli: 4000 };
const HELD: Toll = Toll::held(Tokens::new(40), Tokens::new(400), Caching::Unmarked);

fuzz_target!(|data: &[u8]| {
    let Some((answer, [hide, cuts @ ..])) = data.split_last_chunk::<TAIL>() else { return };
    let hide = if hide % 2 == 0 { HideUsage::Hide } else { HideUsage::Keep };
    for dialect in Dialect::ALL {
        let (report, out) = read(dialect, hide, std::iter::once(answer));
        assert_eq!(read(dialect, hide, pieces(answer, cuts)), (report, out.clone()));
        let mut rest = answer.iter();
        assert!(out.iter().all(|byte| rest.any(|other| other == byte)), "nothing is added or moved");
        if hide == HideUsage::Keep {
            assert_eq!(out, answer);
        }
        let cost = charge(&report, HELD);
        assert!(Tariff::RAW_TOKENS.cost(cost.toll) >= Tariff::INPUT_TOKENS.cost(cost.toll));
    }
});

fn read<'a>(
    dialect: Dialect,
    hide: HideUsage,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> (Report, Vec<u8>) {
    let mut meter = UsageMeter::new(dialect, TOKENIZER, hide);
    let mut out = Vec::new();
    for piece in pieces {
        match meter.chunk(piece) {
            Passed::AsIs => out.extend_from_slice(piece),
            Passed::Instead(bytes) => out.extend(bytes),
        }
    }
    out.extend(meter.finish());
    (meter.report(), out)
}

/// Pieces as long as the cuts say, which come round again.
fn pieces<'a>(answer: &'a [u8], cuts: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = answer;
    let mut cuts = cuts.iter().cycle();
    std::iter::from_fn(move || {
        let (piece, later) = rest.split_at(rest.len().min(usize::from(*cuts.next()?) + 1));
        rest = later;
        (!piece.is_empty()).then_some(piece)
    })
}

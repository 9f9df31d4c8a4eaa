//! Bytes that nobody expects: whatever comes, however it is cut, the meter says the same and passes the same.
#![allow(clippy::unwrap_used, reason = "test code outside test functions")]

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tollgate::config::Tokenizer;
use tollgate::usage::{Dialect, HideUsage, Passed, Report, UsageMeter, charge};
use tollgate_budget::{Caching, Tokens, Toll};

const TOKENIZER: Tokenizer = Tokenizer::Characters { per_token_milli: 4000 };

/// The seed is fixed: a run that fails once fails again.
fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 2000,
        rng_seed: RngSeed::Fixed(20_260_314),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Pieces of streams and bodies, whole and broken, that make events when they happen to meet.
const FRAGMENTS: &[&str] = &[
    "data: ",
    "data:",
    "data",
    "dat",
    "event: x\n",
    "id",
    ": comment\n",
    ":\r",
    "\n",
    "\r",
    "\r\n",
    "\n\n",
    "\r\n\r\n",
    "\u{FEFF}",
    "{\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":7}}",
    "{\"choices\":[],\"usage\":null}",
    "{\"usage\":{\"completion_tokens\":\"9\"},\"choices\":[",
    "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hello \\ud83e\\udd80 \\u00e9 🦀 \"}}]}",
    "{\"choices\":[{\"delta\":{\"content\":[{\"text\":\"part\"}]},\"index\":1,\"finish_reason\":\"stop\"}]",
    "{\"choices\":[{\"index\":70,\"text\":\"",
    "{\"error\":{\"message\":\"no\"}}",
    "{\"error\":null,",
    "\"x_groq\":{\"usage\":{\"prompt_tokens\":1.0,\"completion_tokens\":2e0}}",
    "\"usage\":{\"prompt_tokens\":-1}",
    "{\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":7,\"output_tokens\":1}}}",
    "{\"type\":\"content_block_delta\",\"delta\":{\"text\":\"hello \\u00e9\"}}",
    "{\"type\":\"message_delta\",\"usage\":{\"output_tokens\":9,\"cache_read_input_tokens\":3}}",
    "{\"type\":\"message_stop\"}",
    "{\"type\":\"response.output_text.delta\",\"delta\":\"hello\"}",
    "{\"type\":\"response.audio.delta\",\"delta\":\"AAAA\"}",
    "{\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"usage\":{\"input_tokens\":4,\"output_tokens\":2}}}",
    "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}",
    "[DONE]",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    "\\ud800",
    ",",
    ":",
    "null",
    "12.5",
    "潮",
    " ",
];

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let fragment = prop_oneof![
        8 => prop::sample::select(FRAGMENTS).prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..6),
    ];
    prop::collection::vec(fragment, 0..40).prop_map(|fragments| fragments.concat())
}

fn dialect() -> impl Strategy<Value = Dialect> {
    prop::sample::select(&Dialect::ALL[..])
}

fn hide() -> impl Strategy<Value = HideUsage> {
    prop_oneof![Just(HideUsage::Hide), Just(HideUsage::Keep)]
}

fn run<'a>(dialect: Dialect, hide: HideUsage, pieces: impl Iterator<Item = &'a [u8]>) -> (Report, Vec<u8>) {
    let mut meter = UsageMeter::new(dialect, TOKENIZER, hide);
    let mut out = Vec::new();
    for piece in pieces {
        match meter.chunk(piece) {
            Passed::AsIs => out.extend_from_slice(piece),
            Passed::Instead(bytes) => {
                assert_eq!(hide, HideUsage::Hide, "nothing is replaced unless something may be hidden");
                out.extend(bytes);
            }
        }
    }
    out.extend(meter.finish());
    (meter.report(), out)
}

fn is_part_of(part: &[u8], whole: &[u8]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|byte| rest.any(|other| other == byte))
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_bytes_and_no_cuts_make_a_difference(
        bytes in bytes(),
        dialect in dialect(),
        hide in hide(),
        lengths in prop::collection::vec(1usize..40, 1..20),
    ) {
        let whole = run(dialect, hide, std::iter::once(&bytes[..]));
        prop_assert_eq!(&run(dialect, hide, bytes.chunks(1)), &whole);
        let mut lengths = lengths.iter().cycle();
        let mut rest = &bytes[..];
        let pieces = std::iter::from_fn(|| {
            let (piece, later) = rest.split_at(rest.len().min(*lengths.next()?));
            rest = later;
            (!piece.is_empty()).then_some(piece)
        });
        prop_assert_eq!(&run(dialect, hide, pieces), &whole);
        match hide {
            HideUsage::Keep => prop_assert_eq!(&whole.1, &bytes),
            HideUsage::Hide => prop_assert!(is_part_of(&whole.1, &bytes)),
        }
    }

    #[test]
    fn whatever_a_provider_sends_hiding_does_not_change_what_is_charged(
        bytes in bytes(),
        dialect in dialect(),
    ) {
        let held = Toll::held(Tokens::new(40), Tokens::new(400), Caching::Unmarked);
        let [hidden, kept] = [HideUsage::Hide, HideUsage::Keep].map(|hide| run(dialect, hide, std::iter::once(&bytes[..])).0);
        prop_assert_eq!(charge(&hidden, held), charge(&kept, held));
        prop_assert_eq!(hidden, kept);
    }
}

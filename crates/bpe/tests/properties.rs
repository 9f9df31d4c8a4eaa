//! What holds for any text at all, with texts that shrink.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tollgate_bpe::{Counter, Encoding};

fn encodings() -> impl Strategy<Value = Encoding> {
    prop_oneof![Just(Encoding::O200kBase), Just(Encoding::Cl100kBase)]
}

/// Few characters, of every class, so that they meet.
fn texts() -> impl Strategy<Value = String> {
    "[ab'srelAǅ漢\u{301}1²! \t\n\r\u{a0}/ſİ\\PC]{0,60}"
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, rng_seed: RngSeed::Fixed(2026), ..ProptestConfig::default() })]

    #[test]
    fn any_text_counts_as_by_the_oracle(encoding in encodings(), text in texts()) {
        let oracle = match encoding {
            Encoding::O200kBase => tiktoken_rs::o200k_base_singleton(),
            Encoding::Cl100kBase => tiktoken_rs::cl100k_base_singleton(),
        };
        prop_assert_eq!(encoding.count(&text), oracle.encode_ordinary(&text).len());
    }

    #[test]
    fn any_parts_count_as_the_whole(encoding in encodings(), parts in prop::collection::vec(texts(), 0..8)) {
        let mut counter = Counter::new(encoding);
        for part in &parts {
            counter.push(part);
        }
        prop_assert_eq!(counter.total(), encoding.count(&parts.concat()));
    }

    #[test]
    fn a_count_is_none_exactly_above_its_limit(encoding in encodings(), text in texts(), limit in 0_usize..80) {
        let tokens = encoding.count(&text);
        prop_assert_eq!(encoding.count_till_limit(&text, limit), (tokens <= limit).then_some(tokens));
    }
}

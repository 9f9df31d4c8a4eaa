//! A request's body, of any dialect: read or refused, never a panic, and what is added to it is only that.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::chat::{self, BodyError, Dialect, UsageAsk, rewrite};
use tollgate::config::FilterConfig;
use tollgate::estimate::{self, learned::Correction, memo::TextMemo};

const POLICY: &[u8] = br#"{"version": 1, "limits": [
    {"name": "all", "per": [], "unit": "tokens", "window": {"fixed": "60s"}, "amount": 1000000}]}"#;

fuzz_target!(|body: &[u8]| {
    let config = FilterConfig::from_slice(POLICY).expect("a policy that checks");
    for dialect in Dialect::ALL {
        let Ok(chat) = chat::parse(dialect, body) else { continue };
        assert!(chat.choices >= 1);
        let rule = config.model_rule(config.model_index(chat.model.as_deref().unwrap_or_default()));
        let mut memo = TextMemo::new([0; 16]);
        let whole = estimate::estimate(&chat, rule, &config.hold, Correction::NONE, None, memo.within(0));
        let again = estimate::estimate(&chat, rule, &config.hold, Correction::NONE, None, memo.within(0));
        assert_eq!(whole, again, "what was counted before is counted the same");
        if let Some(with) = rewrite::include_usage(body, &chat) {
            match chat::parse(dialect, &with) {
                Ok(asked) => assert_eq!(
                    (&asked.pieces, asked.output_cap, asked.choices, asked.usage),
                    (&chat.pieces, chat.output_cap, chat.choices, UsageAsk::Asked)
                ),
                // The client's own stand there too, under a name in another case: few servers would read those.
                Err(error) => assert!(
                    matches!(
                        error,
                        BodyError::Duplicate { field: "stream_options" | "stream_options.include_usage" }
                    ),
                    "{error:?}"
                ),
            }
        }
    }
});

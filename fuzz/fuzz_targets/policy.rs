//! A policy: checked or refused with reasons, never a panic; and one that checks can be served.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::config::FilterConfig;
use tollgate::exchange::Gate;

fuzz_target!(|document: &[u8]| {
    match FilterConfig::from_slice(document) {
        Ok(config) => {
            let model = config.model_index("gpt-4o");
            let _rule = config.model_rule(model);
            let _gate = Gate::new(config, [0; 16]);
        }
        Err(errors) => assert!(!errors.is_empty(), "refused without a reason"),
    }
});

//! Whatever comes to the door of a policy, the answer is a policy or its problems.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed"
)]

use std::fs;
use std::path::Path;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::{Map, Value, json};
use tollgate::config::{FilterConfig, RequestPath, Target};
use tollgate::identity::{Caller, identify, key};

fn replayable(cases: u32, seed: u64) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(replayable(1000, 0x5eed_0001))]

    #[test]
    fn any_bytes_are_answered(bytes in vec(any::<u8>(), 0..200)) {
        answered(&bytes);
    }

    #[test]
    fn any_document_is_answered(document in document()) {
        answered(document.to_string().as_bytes());
    }

    #[test]
    fn a_good_policy_with_anything_in_it_is_answered(
        policy in prop::sample::select(good()),
        spoils in vec((any::<prop::sample::Index>(), spoil()), 1..4),
    ) {
        let mut policy = policy;
        for (place, spoil) in spoils {
            spoil.apply(&mut policy, place);
        }
        answered(policy.to_string().as_bytes());
    }
}

/// Problems have words; a policy that was taken answers every question without a trap.
fn answered(bytes: &[u8]) {
    match FilterConfig::from_slice(bytes) {
        Ok(config) => questioned(&config),
        Err(problems) => {
            assert!(!problems.is_empty());
            assert!(problems.iter().all(|problem| !problem.problem.is_empty()));
            assert!(problems.iter().map(|problem| problem.to_string().len()).sum::<usize>() < 200_000);
        }
    }
}

fn questioned(config: &FilterConfig) {
    let path = RequestPath::new("/v1/chat/completions");
    let Ok(subject) = identify(Caller { headers: &[(b"x-tenant-id", b"acme")], metadata: &[] }, config)
    else {
        return;
    };
    let tier = subject.tier(config);
    for model in ["", "gpt-4o", "*"] {
        for limit in &config.limits {
            if let Some(api) = config.route(&path) {
                let target = Target { path: &path, api, model, tier: config.tier_name(tier) };
                config.applies(limit, &target);
            }
            key(config, limit, &subject, config.family(model)).account();
            assert!(limit.limit(tier).window.span().as_millis() > 0);
        }
        assert!(config.model(model).default_output <= config.model(model).max_output);
    }
}

fn good() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/config/good");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap()).collect()
}

/// A tree of anything, with the policy's own words more often than chance would have them.
fn document() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(5, 64, 8, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::Array),
            btree_map(word(), inner, 0..8).prop_map(|map| Value::Object(Map::from_iter(map))),
        ]
    })
}

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word().prop_map(Value::String),
        any::<String>().prop_map(Value::String),
        "[0-9]{0,30}(\\.[0-9]{0,9})?(e-?[0-9]{1,6}|ms|s|d)?".prop_map(Value::String),
    ]
}

fn word() -> impl Strategy<Value = String> {
    let known = "version namespace subject tenant tier from header default required routes path api models match alias \
        tokenizer like factor characters hold lease max_share body max limits name per unit window sliding bucket burst \
        amount when tiers pressure store local shards response headers free tokens requests openai_chat gpt-4o * -";
    let known: Vec<String> = known.split_whitespace().map(str::to_owned).collect();
    prop_oneof![4 => prop::sample::select(known), 1 => any::<String>()]
}

#[derive(Clone, Debug)]
enum Spoil {
    Replace(Value),
    Add(String, Value),
    Remove,
}

fn spoil() -> impl Strategy<Value = Spoil> {
    prop_oneof![
        document().prop_map(Spoil::Replace),
        (word(), document()).prop_map(|(key, value)| Spoil::Add(key, value)),
        Just(Spoil::Remove),
    ]
}

impl Spoil {
    fn apply(self, policy: &mut Value, place: prop::sample::Index) {
        let places = places(policy);
        let Some(value) = policy.pointer_mut(&places[place.index(places.len())]) else { return };
        match (self, value) {
            (Self::Replace(with), value) => *value = with,
            (Self::Add(key, with), Value::Object(entries)) => drop(entries.insert(key, with)),
            (Self::Add(_, with), Value::Array(items)) => items.push(with),
            (Self::Add(_, with), value) => *value = json!([value.take(), with]),
            (Self::Remove, Value::Object(entries)) => {
                drop(entries.keys().next().cloned().map(|key| entries.remove(&key)))
            }
            (Self::Remove, Value::Array(items)) => drop(items.pop()),
            (Self::Remove, value) => *value = Value::Null,
        }
    }
}

/// JSON pointers of everything in a document.
fn places(value: &Value) -> Vec<String> {
    let below =
        |key: String, value: &Value| places(value).into_iter().map(move |rest| format!("/{key}{rest}"));
    let inside: Vec<String> = match value {
        Value::Object(entries) => entries
            .iter()
            .flat_map(|(key, value)| below(key.replace('~', "~0").replace('/', "~1"), value))
            .collect(),
        Value::Array(items) => {
            items.iter().enumerate().flat_map(|(i, item)| below(i.to_string(), item)).collect()
        }
        _ => Vec::new(),
    };
    [String::new()].into_iter().chain(inside).collect()
}

//! Plays the sequence cases (tests/cases, README "Sequences") against any keeper of budgets.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde_json::Value;
use tollgate_budget::{
    Amount, BudgetKey, Charge, Decision, Entry, HoldId, Limit, Mode, OnLeaseEnd, Outcome, Quota, Reason,
    Refusal, Reservation, Settled, Settlement, Span, Standing, Timestamp, Tokens, Unit, Window,
};

/// `case_config` of the manifest.
const DEFAULT_OUTPUT: u64 = 1000;
const MAX_OUTPUT: u64 = 32_000;
/// Where a case does not say: the policy's default lease.
const DEFAULT_LEASE: Span = Span::from_secs(600);
const ALGORITHMS: [&str; 3] = ["fixed_window", "sliding_window", "token_bucket"];

pub(crate) trait Keeper {
    fn reserve(&mut self, keys: &[BudgetKey], reservation: Reservation, now: Timestamp) -> Decision;
    fn settle(&mut self, keys: &[BudgetKey], settlement: Settlement, now: Timestamp) -> Settled;
    fn standing(&mut self, key: &BudgetKey, limit: &Limit, now: Timestamp) -> Standing;
    /// The next `times` writes find that somebody else was faster.
    fn host_conflicts(&mut self, times: u64);
}

/// Every case on every algorithm it is meant for, each on a fresh keeper.
pub(crate) fn play_all<K: Keeper>(cases: &Path, fresh: impl Fn() -> K) {
    let mut played = 0;
    for entry in fs::read_dir(cases).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !name.starts_with("seq-") {
            continue;
        }
        let case: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let listed: Option<Vec<&str>> =
            case["algorithms"].as_array().map(|all| all.iter().map(text).collect());
        for algorithm in listed.unwrap_or_else(|| ALGORITHMS.to_vec()) {
            Player::new(&case, algorithm, format!("{name} on {algorithm}"), fresh()).play(&case);
            played += 1;
        }
    }
    assert!(played >= 60, "only {played} plays: are the cases there?");
}

struct Player<K> {
    what: String,
    keeper: K,
    limits: Vec<(String, Limit, bool)>,
    sliding: bool,
    default_output: u64,
    max_output: u64,
    lease: Span,
    /// By request id: what was asked.
    asked: HashMap<String, Asked>,
    charged: HashMap<BudgetKey, u64>,
}

struct Asked {
    id: HoldId,
    keys: Vec<BudgetKey>,
    input: u64,
}

impl<K: Keeper> Player<K> {
    fn new(case: &Value, algorithm: &str, what: String, keeper: K) -> Self {
        let limits = case["limits"].as_object().unwrap().iter().map(|(name, limit)| {
            let span = Span::from_millis(limit["window_ms"].as_u64().unwrap());
            let window = match algorithm {
                "fixed_window" => Window::Fixed(span),
                "sliding_window" => Window::Sliding(span),
                "token_bucket" => Window::Bucket { period: span, burst: None },
                other => panic!("no such algorithm: {other}"),
            };
            let quota = Quota::of(tokens(limit["tokens"].as_u64().unwrap()));
            (name.clone(), Limit { window, quota }, limit["per"] == "all")
        });
        Self {
            limits: limits.collect(),
            sliding: algorithm == "sliding_window",
            default_output: case["default_output"].as_u64().unwrap_or(DEFAULT_OUTPUT),
            max_output: case["max_output"].as_u64().unwrap_or(MAX_OUTPUT),
            lease: case["hold_ttl_ms"].as_u64().map_or(DEFAULT_LEASE, Span::from_millis),
            asked: HashMap::new(),
            charged: HashMap::new(),
            what,
            keeper,
        }
    }

    fn play(mut self, case: &Value) {
        for (index, step) in case["steps"].as_array().unwrap().iter().enumerate() {
            let what = format!("{}, step {index}", self.what);
            let now = Timestamp::from_millis(step["t"].as_u64().unwrap());
            match text(&step["op"]) {
                "request" => self.request(step, now, &what),
                "response" | "disconnect" | "upstream_failed" => self.settle(step, now),
                "expect" => self.expect(step, now, &what),
                "host_conflict" => self.keeper.host_conflicts(step["times"].as_u64().unwrap()),
                "own_reply" | "note" => {}
                other => panic!("{what}: no such step: {other}"),
            }
        }
    }

    fn request(&mut self, step: &Value, now: Timestamp, what: &str) {
        let input = step["input"].as_u64().unwrap();
        let output = step["output_cap"].as_u64().unwrap_or(self.default_output).min(self.max_output);
        let name = text(&step["id"]).to_owned();
        let id = HoldId::from_bits(self.asked.len() as u128 + 1);
        let keys: Vec<BudgetKey> = self.limits.iter().map(|limit| key(limit, &step["tenant"])).collect();
        let charges = self.limits.iter().zip(&keys).map(|((_, limit, _), key)| Charge {
            account: key.account(),
            limit: *limit,
            cost: tokens(input + output),
            largest: Amount::MAX,
            mode: Mode::Enforce,
        });
        let reservation = Reservation {
            id,
            charges: charges.collect(),
            lease: self.lease,
            on_lease_end: OnLeaseEnd::Charge,
        };
        let decision = self.keeper.reserve(&keys, reservation, now);
        let word = match &decision {
            Decision::Granted(_) => "admit",
            Decision::Refused(Refusal { reason: Reason::NotYet { .. }, .. }) => "reject",
            Decision::Refused(Refusal { reason: Reason::Never { .. } | Reason::Suspended, .. }) => "never",
            Decision::AlreadySettled => "settled",
        };
        assert_eq!(word, text(&step["expect"]["decision"]), "{what}: {decision:?}");
        if let (Decision::Refused(Refusal { reason: Reason::NotYet { retry_after }, .. }), Some(most)) =
            (&decision, step["expect"]["retry_after_max_ms"].as_u64())
        {
            // An honest wait under a sliding window may reach two windows.
            let most = if self.sliding { 2 * most } else { most };
            assert!(retry_after.as_millis() <= most, "{what}: {retry_after}");
        }
        if word == "admit" {
            self.asked.insert(name, Asked { id, keys, input });
        }
    }

    fn settle(&mut self, step: &Value, now: Timestamp) {
        let Some(Asked { id, keys, input }) = self.asked.get(text(&step["id"])) else { return };
        let seen = *input + step["observed_output"].as_u64().unwrap_or(0);
        let failed = step["op"] == "upstream_failed" || step["status"].as_u64().is_some_and(|s| s >= 400);
        // A count that is no count is the reader's to reject; what remains is what was seen.
        let reported = ["input", "output"].map(|part| step["usage"][part].as_u64());
        let spent = match reported {
            _ if failed => 0,
            [Some(input), Some(output)] => input + output,
            [_, _] => seen,
        };
        let entries = self.limits.iter().zip(keys).map(|((_, limit, _), key)| Entry {
            account: key.account(),
            limit: *limit,
            spent: tokens(spent),
        });
        let settlement = Settlement { id: *id, entries: entries.collect() };
        let settled = self.keeper.settle(keys, settlement, now);
        match settled.outcome {
            Outcome::Closed | Outcome::CorrectedAfterLease | Outcome::Unknown => {
                for key in keys {
                    *self.charged.entry(key.clone()).or_default() += spent;
                }
            }
            Outcome::Duplicate => {}
        }
    }

    fn expect(&mut self, step: &Value, now: Timestamp, what: &str) {
        let named = step["limit"].as_str();
        let limit = self.limits.iter().find(|(name, _, _)| named.is_none_or(|named| named == name)).unwrap();
        let key = key(limit, &step["tenant"]);
        let standing = self.keeper.standing(&key, &limit.1, now);
        let whole = |amount: Amount| i64::try_from(Unit::Tokens.whole_ceil(amount)).unwrap();
        let charged = i64::try_from(self.charged.get(&key).copied().unwrap_or(0)).unwrap();
        for (name, found) in [
            ("held", whole(standing.held)),
            ("charged", charged),
            ("available", whole(standing.capacity) - whole(standing.used())),
        ] {
            let expected = &step[name];
            if expected.is_null() {
                continue;
            }
            let [min, max] = ["min", "max"].map(|end| {
                let end = if expected.is_object() { &expected[end] } else { expected };
                end.as_i64().unwrap()
            });
            assert!((min..=max).contains(&found), "{what}: {name} is {found}, expected {expected}");
        }
    }
}

fn key((name, _, for_all): &(String, Limit, bool), tenant: &Value) -> BudgetKey {
    let part = |name: &str, value: &Value| (name.to_owned(), text(value).as_bytes().to_vec());
    let subject = if *for_all {
        Vec::new()
    } else if let Some(parts) = tenant.as_object() {
        parts.iter().map(|(name, value)| part(name, value)).collect()
    } else {
        vec![("tenant".to_owned(), tenant.as_str().unwrap_or("one").as_bytes().to_vec())]
    };
    BudgetKey { namespace: "cases".to_owned(), limit: name.clone(), subject }
}

fn tokens(count: u64) -> Amount {
    Unit::Tokens.amount(Tokens::new(count))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

//! What the filter promises for one exchange, as claims that hold natively and through the compiled module:
//! `flow.rs` and `module.rs` both run them, each over its own [`crate::ProxyUnderTest`].

mod answer;
mod bad_input;
mod cases;
mod counter;
mod headers;
mod holding;
mod learned;
mod ledger;
mod privacy;
mod refusal;
mod stream;
mod subjects;
mod weights;

use serde_json::{Value, json};

use crate::ProxyUnderTest;
use crate::common::proxy::{Proxy, Setup};
use crate::common::requests::{self, Standing};

/// The policy of a claim that says nothing else: these limits, a tenant by its header.
pub(crate) fn policy(limits: Value) -> Value {
    json!({
        "version": 1,
        "subject": {
            "tenant": {"from": [{"header": "x-tenant-id"}], "default": "anonymous"},
            "tier": {"from": [{"header": "x-tenant-tier"}], "default": "free"},
        },
        "store": {"local": {"shards": 4}},
        "limits": limits,
    })
}

/// One limit on tokens: by tenant, in whole minutes.
pub(crate) fn tokens(amount: u64) -> Value {
    policy(json!([limit("tokens", "tokens", amount)]))
}

pub(crate) fn limit(name: &str, unit: &str, amount: u64) -> Value {
    json!({"name": name, "per": ["tenant"], "unit": unit, "window": {"fixed": "60s"}, "amount": amount})
}

/// The same with other members.
pub(crate) fn merged(mut value: Value, changes: Value) -> Value {
    for (key, change) in changes.as_object().unwrap() {
        value[key] = change.clone();
    }
    value
}

pub(crate) fn launch(policy: &Value) -> ProxyUnderTest {
    ProxyUnderTest::launch(&Setup::new(policy))
}

/// The account of the nameless tenant.
pub(crate) fn account(proxy: &ProxyUnderTest, limit: &str) -> Standing {
    requests::standing(proxy, limit, "")
}

pub(crate) fn spent(spent: u64) -> Standing {
    Standing { spent, held: 0 }
}

pub(crate) fn held(held: u64) -> Standing {
    Standing { spent: 0, held }
}

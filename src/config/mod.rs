//! Bytes → [`FilterConfig`], or every problem at once. The only door.
//!
//! Hosts mangle what they carry: numbers arrive as text, lists as maps, `off` as `false`. What can be
//! understood without guessing is; everything else is refused with its path. A key that is not built yet is
//! refused by name, never ignored: an ignored limit is one that is not enforced.
//!
//! Modules in the order bytes travel: [`document`] → [`read`] into [`raw`] → [`compile`] → [`types`].

mod builtin;
mod compile;
mod document;
mod error;
mod lookup;
mod number;
pub mod pattern;
mod problems;
mod raw;
mod read;
mod types;

pub use error::ConfigError;
pub use pattern::{Glob, PathPattern, RequestPath, Segment};
pub use types::{
    Absent, Amounts, Api, Attribute, BodyRules, CounterRules, FilterConfig, Form, HeaderFamily, HeaderHold,
    HoldRules, LimitRule, Media, ModelRule, OnOutage, Per, ResponseRules, Route, Source, StoreRules, Target,
    Tier, TierStanding, Tiers, Tokenizer, Unreadable, Upgrades, UsageOption, Vocabulary, Weights, When,
};

use problems::{Place, Problems};
use read::Read;

impl FilterConfig {
    /// From JSON text, as every host delivers it.
    ///
    /// # Errors
    /// All problems of the policy, each with its path.
    pub fn from_slice(bytes: &[u8]) -> Result<Self, Vec<ConfigError>> {
        let document =
            document::parse(bytes).map_err(|problem| vec![ConfigError { path: String::new(), problem }])?;
        let mut problems = Problems::default();
        let policy = raw::Policy::read(&document, Place::Document, &mut problems);
        let config = policy.map(|policy| FilterConfig {
            fingerprint: document::fingerprint(&document),
            ..compile::compile(&policy, &mut problems)
        });
        problems.into_result(config)
    }
}

/// JSON Schema of the policy, from the same declarations that read it.
pub fn schema() -> serde_json::Value {
    let mut schema = raw::Policy::schema();
    if let serde_json::Value::Object(root) = &mut schema {
        root.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
        root.insert("title".into(), "Tollgate policy".into());
        root.insert("required".into(), serde_json::json!(["version"]));
    }
    schema
}

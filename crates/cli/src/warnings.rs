//! What is allowed, and seldom meant.

use tollgate::config::{
    Attribute, ConfigError, FilterConfig, Form, LimitRule, ModelRule, Source, Tier, TierStanding,
};
use tollgate_budget::{Amount, Quota, Toll, Unit};

/// Attributes that decide who pays and how much they get.
const WORTH_FORGING: [&str; 3] = ["tenant", "tier", "priority"];

pub(crate) fn all(config: &FilterConfig) -> Vec<ConfigError> {
    [
        nothing_enforced(config),
        forgeable(config),
        swallowed(config),
        unknown_aliases(config),
        too_small(config),
    ]
    .concat()
}

fn nothing_enforced(config: &FilterConfig) -> Vec<ConfigError> {
    let mut found = Vec::new();
    if config.limits.is_empty() {
        found.push(warning("limits", "empty: nothing is enforced"));
    }
    if config.routes.is_empty() {
        found.push(warning("routes", "empty: every request passes untouched"));
    }
    found
}

fn forgeable(config: &FilterConfig) -> Vec<ConfigError> {
    let worth = |attribute: &&Attribute| WORTH_FORGING.contains(&attribute.name.as_str());
    let sources = config.subject.iter().filter(worth).flat_map(|attribute| {
        let untrusted = |(i, source): (usize, &Source)| match source {
            Source::Header { name, form: Form::AsIs, trusted: false, .. } => {
                Some((attribute.name.clone(), i, name.clone()))
            }
            // Nobody can guess the secret of another, and metadata is what filters write.
            Source::Header { .. } | Source::Bearer | Source::Metadata { .. } => None,
        };
        attribute.sources.iter().enumerate().filter_map(untrusted)
    });
    let told = |(attribute, i, header): (String, usize, String)| {
        let problem = format!(
            "a client can set `{header}` as it likes; where a filter in front sets or clears it, say `trusted: true`"
        );
        warning(format!("subject.{attribute}.from[{i}]"), problem)
    };
    sources.map(told).collect()
}

/// A rule that an earlier one leaves nothing for. The `*` of a name is an ordinary character to a pattern,
/// so a pattern that matches another one's text matches all that the other does.
fn swallowed(config: &FilterConfig) -> Vec<ConfigError> {
    let earlier =
        |i: usize, pattern: &str| config.models.iter().take(i).position(|rule| rule.matches(pattern));
    let told = |(i, rule): (usize, &ModelRule)| {
        let first = earlier(i, rule.pattern.as_str())?;
        let problem = format!("`{}` never decides: models[{first}] matches all that it does", rule.pattern);
        Some(warning(format!("models[{i}].match"), problem))
    };
    config.models.iter().enumerate().filter_map(told).collect()
}

fn unknown_aliases(config: &FilterConfig) -> Vec<ConfigError> {
    let told = |(i, rule): (usize, &ModelRule)| {
        let alias = rule.alias.as_ref().filter(|alias| config.family(alias) == "*")?;
        let problem =
            format!("no rule but `*` knows `{alias}`; give it one, or its tokens are only estimated");
        Some(warning(format!("models[{i}].alias"), problem))
    };
    config.models.iter().enumerate().filter_map(told).collect()
}

/// A limit in which the plainest request never fits: to the model whose answers count for most there.
fn too_small(config: &FilterConfig) -> Vec<ConfigError> {
    let mut found = Vec::new();
    for (i, limit) in config.limits.iter().enumerate().filter(|(_, limit)| counts_output(limit.unit)) {
        for (path, tier) in tiers_of(config, limit) {
            let rule = limit.limit(tier);
            let largest = share(rule.capacity(), config.hold.max_share_milli);
            let held = |model: &ModelRule| {
                let output = model.default_output.min(config.hold.max_output);
                let cost = model.tariff(limit.unit).cost(Toll { output, ..Toll::NO_TOKENS });
                (cost, model.pattern.clone())
            };
            let dearest = config.models_met(limit).map(held).max_by_key(|(cost, _)| *cost);
            if let Some((cost, model)) = dearest.filter(|(cost, _)| *cost > largest)
                && rule.quota != Quota::Suspended
            {
                let problem = format!(
                    "one request may hold {} {}, and an answer of `{model}` without a cap needs {}: it never fits",
                    limit.unit.floor(largest),
                    limit.unit,
                    limit.unit.ceil(cost)
                );
                found.push(warning(format!("limits[{i}].amount{path}"), problem));
            }
        }
    }
    found
}

/// The most of an account that one request may hold.
pub(crate) fn share(capacity: Amount, milli: u64) -> Amount {
    let units = capacity.units();
    Amount::saturating(units / 1000 * milli + units % 1000 * milli / 1000)
}

pub(crate) const fn counts_output(unit: Unit) -> bool {
    match unit {
        Unit::Tokens | Unit::RawTokens | Unit::OutputTokens | Unit::Usd => true,
        Unit::InputTokens | Unit::Requests => false,
    }
}

/// Each amount of a limit: how its path goes on, and a tier that it is for.
pub(crate) fn tiers_of(config: &FilterConfig, limit: &LimitRule) -> Vec<(String, Tier)> {
    let known = |index| Tier { index, standing: TierStanding::Known };
    match (&limit.amount, &config.tiers) {
        (tollgate::config::Amounts::PerTier(_), Some(tiers)) => {
            tiers.names.iter().enumerate().map(|(i, name)| (format!(".{name}"), known(i))).collect()
        }
        (tollgate::config::Amounts::PerTier(_) | tollgate::config::Amounts::Same(_), _) => {
            vec![(String::new(), known(0))]
        }
    }
}

fn warning(path: impl Into<String>, problem: impl Into<String>) -> ConfigError {
    ConfigError { path: path.into(), problem: problem.into() }
}

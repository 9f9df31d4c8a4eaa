//! Headers that tell a caller how its accounts stand, in the families that clients know how to read.
//!
//! Three of the four are the same three numbers of one account under other names; the IETF's are lists.

use tollgate_budget::{Span, Standing, Timestamp, Unit, Window};

use super::date::rfc3339;
use crate::config::{HeaderFamily, LimitRule};

/// Names the limit whose overflow account paid, since its shard had no room for the caller's own.
pub const OVERFLOW_NAME: &str = "x-tollgate-overflow";

/// Says how a request was decided that the counter service had no word in.
pub const OUTAGE_NAME: &str = "x-tollgate-outage";

/// A limit that a request stands under, and how the caller's account of it stands.
pub type Told<'a> = (&'a LimitRule, Standing);

/// Limit, remaining and reset of the account with the least share left.
#[derive(Clone, Copy)]
struct Triple {
    names: [&'static str; 3],
    of: Of,
    reset: Reset,
}

/// Of which accounts.
#[derive(Clone, Copy)]
enum Of {
    /// Of every unit of tokens.
    Tokens,
    InputTokens,
    OutputTokens,
    Requests,
    Usd,
}

/// How a family writes the time until the account would be full again.
#[derive(Clone, Copy)]
enum Reset {
    Seconds,
    /// As OpenAI does.
    Duration,
    /// The moment itself, in RFC 3339.
    Date,
}

const TOKEN_LIMIT: [Triple; 1] = [Triple {
    names: ["x-tokenlimit-limit", "x-tokenlimit-remaining", "x-tokenlimit-reset"],
    of: Of::Tokens,
    reset: Reset::Seconds,
}];

const OPENAI: [Triple; 2] = [
    Triple {
        names: ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"],
        of: Of::Tokens,
        reset: Reset::Duration,
    },
    Triple {
        names: ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"],
        of: Of::Requests,
        reset: Reset::Duration,
    },
];

const ANTHROPIC: [Triple; 4] = [
    Triple {
        names: [
            "anthropic-ratelimit-requests-limit",
            "anthropic-ratelimit-requests-remaining",
            "anthropic-ratelimit-requests-reset",
        ],
        of: Of::Requests,
        reset: Reset::Date,
    },
    Triple {
        names: [
            "anthropic-ratelimit-tokens-limit",
            "anthropic-ratelimit-tokens-remaining",
            "anthropic-ratelimit-tokens-reset",
        ],
        of: Of::Tokens,
        reset: Reset::Date,
    },
    Triple {
        names: [
            "anthropic-ratelimit-input-tokens-limit",
            "anthropic-ratelimit-input-tokens-remaining",
            "anthropic-ratelimit-input-tokens-reset",
        ],
        of: Of::InputTokens,
        reset: Reset::Date,
    },
    Triple {
        names: [
            "anthropic-ratelimit-output-tokens-limit",
            "anthropic-ratelimit-output-tokens-remaining",
            "anthropic-ratelimit-output-tokens-reset",
        ],
        of: Of::OutputTokens,
        reset: Reset::Date,
    },
];

/// What a limit allows, and how it stands: structured fields of draft-ietf-httpapi-ratelimit-headers-10.
const IETF: [&str; 2] = ["ratelimit-policy", "ratelimit"];

/// What a structured field holds as an integer: fifteen digits. Amounts of requests can have sixteen.
const MOST: u64 = 999_999_999_999_999;

const fn parts(family: HeaderFamily) -> (&'static [Triple], &'static [&'static str]) {
    match family {
        HeaderFamily::TokenLimit => (&TOKEN_LIMIT, &[]),
        HeaderFamily::OpenAi => (&OPENAI, &[]),
        HeaderFamily::Anthropic => (&ANTHROPIC, &[]),
        HeaderFamily::Ietf => (&[], &IETF),
    }
}

/// All names that a family writes: an upstream's own headers of these names are replaced.
pub fn names(family: HeaderFamily) -> impl Iterator<Item = &'static str> {
    let (triples, lists) = parts(family);
    triples.iter().flat_map(|triple| triple.names).chain(lists.iter().copied())
}

/// The headers of the chosen families, from how each account stands after the hold.
pub fn headers(
    families: &[HeaderFamily],
    accounts: &[Told<'_>],
    now: Timestamp,
) -> Vec<(&'static str, String)> {
    let mut headers = Vec::new();
    for family in families {
        let (triples, lists) = parts(*family);
        for triple in triples {
            if let Some((rule, standing)) = tightest(accounts, triple.of) {
                headers.extend(triple.names.into_iter().zip([
                    rule.unit.whole_floor(standing.capacity).to_string(),
                    rule.unit.whole_floor(standing.remaining()).to_string(),
                    reset(triple.reset, standing.reset, now),
                ]));
            }
        }
        if !lists.is_empty() && !accounts.is_empty() {
            headers.extend(lists.iter().copied().zip([policies(accounts), states(accounts)]));
        }
    }
    headers
}

fn reset(how: Reset, span: Span, now: Timestamp) -> String {
    match how {
        Reset::Seconds => span.as_secs_ceil().to_string(),
        Reset::Duration => duration(span),
        Reset::Date => rfc3339(now.after(span)),
    }
}

/// Every limit that the request stands under, so that the list stays the same from answer to answer.
fn policies(accounts: &[Told<'_>]) -> String {
    let policy = |(rule, standing): &Told<'_>| {
        let (name, (unit, part)) = (&rule.name, quota_unit(rule.unit));
        let quota = (standing.capacity.units() / part).min(MOST);
        match pace(rule.window) {
            Some(seconds) => format!("\"{name}\";q={quota};qu=\"{unit}\";w={seconds}"),
            None => format!("\"{name}\";q={quota};qu=\"{unit}\""),
        }
    };
    accounts.iter().map(policy).collect::<Vec<_>>().join(", ")
}

/// In what a quota is told, and how many account units that is: integers, in which whole dollars would say little of
/// what is left of one.
const fn quota_unit(unit: Unit) -> (&'static str, u64) {
    match unit {
        Unit::Tokens | Unit::RawTokens | Unit::InputTokens | Unit::OutputTokens | Unit::Requests => {
            (unit.name(), unit.scale())
        }
        Unit::Usd => ("micro-usd", unit.scale() / 1_000_000),
    }
}

/// In how many seconds the whole quota comes back. Parts of a second cannot be told, and a bucket with a size
/// of its own takes as long as it takes.
const fn pace(window: Window) -> Option<u64> {
    match window {
        Window::Sliding(span) | Window::Fixed(span) | Window::Bucket { period: span, burst: None } => {
            let millis = span.as_millis();
            if millis.is_multiple_of(1000) { Some(millis / 1000) } else { None }
        }
        Window::Bucket { period: _, burst: Some(_) } => None,
    }
}

/// The tightest account of tokens, that of requests, and that of dollars. One that nothing is missing from has no reset, and
/// neither has a suspended one.
fn states(accounts: &[Told<'_>]) -> String {
    let state = |of| {
        let (rule, standing) = tightest(accounts, of)?;
        let (name, (_, part)) = (&rule.name, quota_unit(rule.unit));
        let left = (standing.remaining().units() / part).min(MOST);
        Some(match standing.reset.as_secs_ceil() {
            0 => format!("\"{name}\";r={left}"),
            seconds => format!("\"{name}\";r={left};t={seconds}"),
        })
    };
    [Of::Tokens, Of::Requests, Of::Usd].into_iter().filter_map(state).collect::<Vec<_>>().join(", ")
}

impl Of {
    const fn counts(self, unit: Unit) -> bool {
        match (self, unit) {
            (Self::Tokens, Unit::Tokens | Unit::RawTokens | Unit::InputTokens | Unit::OutputTokens)
            | (Self::InputTokens, Unit::InputTokens)
            | (Self::OutputTokens, Unit::OutputTokens)
            | (Self::Requests, Unit::Requests)
            | (Self::Usd, Unit::Usd) => true,
            (Self::Tokens | Self::InputTokens | Self::OutputTokens, Unit::Requests | Unit::Usd)
            | (Self::InputTokens, Unit::Tokens | Unit::RawTokens | Unit::OutputTokens)
            | (Self::OutputTokens, Unit::Tokens | Unit::RawTokens | Unit::InputTokens)
            | (
                Self::Requests | Self::Usd,
                Unit::Tokens | Unit::RawTokens | Unit::InputTokens | Unit::OutputTokens,
            )
            | (Self::Requests, Unit::Usd)
            | (Self::Usd, Unit::Requests) => false,
        }
    }
}

/// The account with the least share left. A suspended one has none.
fn tightest<'a>(accounts: &'a [Told<'a>], of: Of) -> Option<&'a Told<'a>> {
    accounts
        .iter()
        .filter(|(rule, _)| of.counts(rule.unit))
        .min_by(|(_, a), (_, b)| share_left(a).cmp(&share_left(b)))
}

/// In millionths, which tells any two accounts apart that a caller could.
fn share_left(standing: &Standing) -> u128 {
    u128::from(standing.remaining().units()) * 1_000_000 / u128::from(standing.capacity.units().max(1))
}

/// As OpenAI writes durations: `6m0s`, `1.5s`, `12ms`.
pub fn duration(span: Span) -> String {
    let millis = span.as_millis();
    let (hours, minutes, rest) = (millis / 3_600_000, millis / 60_000 % 60, millis % 60_000);
    let seconds = match rest % 1000 {
        0 => format!("{}s", rest / 1000),
        part => format!("{}.{part:03}s", rest / 1000),
    };
    match (hours, minutes) {
        (0, 0) if millis > 0 && millis < 1000 => format!("{millis}ms"),
        (0, 0) => seconds,
        (0, _) => format!("{minutes}m{seconds}"),
        (_, _) => format!("{hours}h{minutes}m{seconds}"),
    }
}

#[cfg(test)]
mod tests {
    use tollgate_budget::Amount;

    use super::*;
    use crate::config::FilterConfig;

    fn rules(limits: &[&str]) -> Vec<LimitRule> {
        let limits: Vec<_> =
            limits.iter().map(|limit| format!(r#"{{"per": [], "amount": 1000, {limit}}}"#)).collect();
        let policy = format!(r#"{{"version": 1, "limits": [{}]}}"#, limits.join(", "));
        FilterConfig::from_slice(policy.as_bytes()).unwrap().limits
    }

    fn standing(unit: Unit, capacity: u64, used: u64) -> Standing {
        let amount = |count: u64| Amount::saturating(count * unit.scale());
        Standing {
            capacity: amount(capacity),
            held: amount(used),
            spent: Amount::ZERO,
            reset: Span::from_millis(if capacity == 0 { 0 } else { 1500 }),
        }
    }

    fn told(
        families: &[HeaderFamily],
        limits: &[&str],
        use_of: &[(u64, u64)],
    ) -> Vec<(&'static str, String)> {
        let rules = rules(limits);
        let accounts: Vec<_> = rules
            .iter()
            .zip(use_of)
            .map(|(rule, (capacity, used))| (rule, standing(rule.unit, *capacity, *used)))
            .collect();
        headers(families, &accounts, Timestamp::from_millis(1_767_225_600_000))
    }

    fn value<'a>(headers: &'a [(&str, String)], name: &str) -> Option<&'a str> {
        headers.iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_str())
    }

    const LIMITS: [&str; 3] = [
        r#""name": "a", "unit": "tokens", "window": {"fixed": "60s"}"#,
        r#""name": "b", "unit": "raw_tokens", "window": {"bucket": "60s"}"#,
        r#""name": "c", "unit": "requests", "window": {"sliding": "1s"}"#,
    ];
    const USE: [(u64, u64); 3] = [(1000, 100), (9000, 8500), (10, 1)];

    #[test]
    fn the_tightest_account_of_a_unit_speaks() {
        let headers = told(&[HeaderFamily::TokenLimit, HeaderFamily::OpenAi], &LIMITS, &USE);
        assert_eq!(value(&headers, "x-tokenlimit-limit"), Some("9000"));
        assert_eq!(value(&headers, "x-tokenlimit-remaining"), Some("500"));
        assert_eq!(value(&headers, "x-tokenlimit-reset"), Some("2"));
        assert_eq!(value(&headers, "x-ratelimit-reset-tokens"), Some("1.500s"));
        assert_eq!(value(&headers, "x-ratelimit-remaining-requests"), Some("9"));
    }

    #[test]
    fn anthropics_family_tells_input_and_output_apart_and_resets_by_date() {
        let limits = [
            r#""name": "a", "unit": "tokens", "window": {"fixed": "60s"}"#,
            r#""name": "i", "unit": "input_tokens", "window": {"fixed": "60s"}"#,
            r#""name": "o", "unit": "output_tokens", "window": {"fixed": "60s"}"#,
        ];
        let headers = told(&[HeaderFamily::Anthropic], &limits, &[(1000, 500), (900, 800), (80, 8)]);
        let expected = [
            ("tokens-limit", "900"),
            ("tokens-remaining", "100"),
            ("tokens-reset", "2026-01-01T00:00:02Z"),
            ("input-tokens-limit", "900"),
            ("input-tokens-remaining", "100"),
            ("input-tokens-reset", "2026-01-01T00:00:02Z"),
            ("output-tokens-limit", "80"),
            ("output-tokens-remaining", "72"),
            ("output-tokens-reset", "2026-01-01T00:00:02Z"),
        ];
        assert_eq!(headers.len(), expected.len(), "{headers:?}");
        for ((name, value), (ours, expected)) in headers.iter().zip(expected) {
            assert_eq!((*name, value.as_str()), (format!("anthropic-ratelimit-{ours}").as_str(), expected));
        }
    }

    #[test]
    fn the_ietfs_fields_list_every_policy_and_the_tightest_states() {
        let headers = told(&[HeaderFamily::Ietf], &LIMITS, &USE);
        let policies =
            r#""a";q=1000;qu="tokens";w=60, "b";q=9000;qu="raw_tokens";w=60, "c";q=10;qu="requests";w=1"#;
        assert_eq!(value(&headers, "ratelimit-policy"), Some(policies));
        assert_eq!(value(&headers, "ratelimit"), Some(r#""b";r=500;t=2, "c";r=9;t=2"#));
    }

    #[test]
    fn the_ietfs_fields_leave_out_what_would_not_be_true() {
        let limits = [
            r#""name": "burst", "unit": "tokens", "window": {"bucket": "60s", "burst": 5000}"#,
            r#""name": "short", "unit": "requests", "window": {"fixed": "500ms"}"#,
        ];
        let of = |capacity| told(&[HeaderFamily::Ietf], &limits, &[(capacity, 0), (MOST + 9, 0)]);
        let policies = r#""burst";q=5000;qu="tokens", "short";q=999999999999999;qu="requests""#;
        assert_eq!(value(&of(5000), "ratelimit-policy"), Some(policies));
        let suspended = of(0);
        assert!(value(&suspended, "ratelimit").unwrap().starts_with(r#""burst";r=0, "short";r=9"#));
        assert_eq!(told(&[HeaderFamily::Ietf], &[], &[]), []);
    }

    #[test]
    fn a_family_writes_no_name_but_its_own() {
        for family in
            [HeaderFamily::TokenLimit, HeaderFamily::OpenAi, HeaderFamily::Anthropic, HeaderFamily::Ietf]
        {
            let written = told(&[family], &LIMITS, &USE);
            assert!(
                !written.is_empty() && written.iter().all(|(name, _)| names(family).any(|own| own == *name))
            );
        }
    }

    #[test]
    fn an_account_in_debt_has_nothing_left_rather_than_less() {
        let headers = told(&[HeaderFamily::TokenLimit], &LIMITS[..1], &[(100, 250)]);
        assert!(headers.contains(&("x-tokenlimit-remaining", "0".to_owned())));
    }

    #[test]
    fn durations_read_as_openai_writes_them() {
        let table = [(0, "0s"), (12, "12ms"), (1000, "1s"), (1500, "1.500s"), (360_000, "6m0s")];
        for (millis, text) in table {
            assert_eq!(duration(Span::from_millis(millis)), text);
        }
        assert_eq!(duration(Span::from_millis(3_723_004)), "1h2m3.004s");
    }
}

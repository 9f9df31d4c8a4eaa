//! Headers that tell a caller how its accounts stand.

use tollgate_budget::{Span, Standing, Unit};

use crate::config::HeaderFamily;

/// All names that the families write: an upstream's own headers of these names are replaced.
pub const TOKEN_LIMIT_NAMES: [&str; 3] =
    ["x-tokenlimit-limit", "x-tokenlimit-remaining", "x-tokenlimit-reset"];
pub const OPENAI_NAMES: [&str; 6] = [
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
];

/// Names the limit whose overflow account paid, since its shard had no room for the caller's own.
pub const OVERFLOW_NAME: &str = "x-tollgate-overflow";

/// The headers of the chosen families, from how each account stands after the hold.
pub fn headers(families: &[HeaderFamily], accounts: &[(Unit, Standing)]) -> Vec<(&'static str, String)> {
    let tokens = tightest(accounts, |unit| match unit {
        Unit::Tokens | Unit::RawTokens | Unit::InputTokens | Unit::OutputTokens => true,
        Unit::Requests => false,
    });
    let requests = tightest(accounts, |unit| match unit {
        Unit::Requests => true,
        Unit::Tokens | Unit::RawTokens | Unit::InputTokens | Unit::OutputTokens => false,
    });
    let mut headers = Vec::new();
    for family in families {
        match family {
            HeaderFamily::TokenLimit => {
                if let Some((unit, standing)) = tokens {
                    headers.extend(
                        TOKEN_LIMIT_NAMES
                            .into_iter()
                            .zip(values(unit, standing, standing.reset.as_secs_ceil().to_string())),
                    );
                }
            }
            HeaderFamily::OpenAi => {
                let (of_tokens, of_requests) = OPENAI_NAMES.split_at(3);
                for (names, account) in [(of_tokens, tokens), (of_requests, requests)] {
                    if let Some((unit, standing)) = account {
                        headers.extend(
                            names.iter().copied().zip(values(unit, standing, duration(standing.reset))),
                        );
                    }
                }
            }
        }
    }
    headers
}

fn values(unit: Unit, standing: &Standing, reset: String) -> [String; 3] {
    [
        unit.whole_floor(standing.capacity).to_string(),
        unit.whole_floor(standing.remaining()).to_string(),
        reset,
    ]
}

/// The account with the least share left. A suspended one has none.
fn tightest(
    accounts: &[(Unit, Standing)],
    counts: impl Fn(Unit) -> bool,
) -> Option<(Unit, &Standing)> {
    accounts
        .iter()
        .filter(|(unit, _)| counts(*unit))
        .min_by(|(_, a), (_, b)| share_left(a).cmp(&share_left(b)))
        .map(|(unit, standing)| (*unit, standing))
}

/// In millionths, which tells any two accounts apart that a caller could.
fn share_left(standing: &Standing) -> u128 {
    u128::from(standing.remaining().units()) * 1_000_000
        / u128::from(standing.capacity.units().max(1))
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

    fn account(unit: Unit, capacity: u64, used: u64) -> (Unit, Standing) {
        let amount = |count: u64| Amount::saturating(count * unit.scale());
        (
            unit,
            Standing {
                capacity: amount(capacity),
                held: amount(used),
                spent: Amount::ZERO,
                reset: Span::from_millis(1500),
            },
        )
    }

    #[test]
    fn the_tightest_account_of_a_unit_speaks() {
        let accounts = [
            account(Unit::Tokens, 1000, 100),
            account(Unit::RawTokens, 9000, 8500),
            account(Unit::Requests, 10, 1),
        ];
        let headers = headers(&[HeaderFamily::TokenLimit, HeaderFamily::OpenAi], &accounts);
        let value = |name: &str| headers.iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_str());
        assert_eq!(value("x-tokenlimit-limit"), Some("9000"));
        assert_eq!(value("x-tokenlimit-remaining"), Some("500"));
        assert_eq!(value("x-tokenlimit-reset"), Some("2"));
        assert_eq!(value("x-ratelimit-reset-tokens"), Some("1.500s"));
        assert_eq!(value("x-ratelimit-remaining-requests"), Some("9"));
    }

    #[test]
    fn an_account_in_debt_has_nothing_left_rather_than_less() {
        let headers = headers(&[HeaderFamily::TokenLimit], &[account(Unit::Tokens, 100, 250)]);
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

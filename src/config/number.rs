//! Numbers and durations as hosts deliver them: `90000`, `90000.0`, `"90000"`, `9e4` are one number.
//!
//! They are read as decimals, never as binary fractions: `1.1` is 1,100 thousandths exactly.

use std::fmt;

use serde_json::{Value, json};
use tollgate_budget::Span;

use super::problems::{Place, Problems};
use super::read::Read;

/// More digits than any amount has, and few enough to stay inside `u128`.
const MAX_DIGITS: usize = 24;

/// Longer than a year: beyond it a window is a calendar's, and milliseconds stay far below 2^53.
const MAX_DAYS: u64 = 400;
const MAX_SPAN: Span = Span::from_secs(MAX_DAYS * 24 * 60 * 60);

/// A whole number, zero included.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Count(pub(super) u64);

impl Read for Count {
    fn read(value: &Value, at: Place<'_>, problems: &mut Problems) -> Option<Self> {
        let Some(decimal) = Decimal::of(value) else {
            problems.unexpected(at, value, WHOLE);
            return None;
        };
        match decimal.scaled(0) {
            Some(Scaled { floor, exact: true }) if !decimal.negative || floor == 0 => {
                // Whatever it counts, this is more than its bound; the check of that bound says so.
                Some(Self(u64::try_from(floor).unwrap_or(u64::MAX)))
            }
            _ => {
                problems.unexpected(at, value, WHOLE);
                None
            }
        }
    }

    fn schema() -> Value {
        json!({"anyOf": [
            {"type": "integer", "minimum": 0},
            {"type": "string", "pattern": r"^[0-9]+(\.0*)?$"}
        ]})
    }
}

/// A number in thousandths, the rest cut off.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Ratio {
    pub(super) milli_floor: u64,
    pub(super) milli_ceil: u64,
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:03}", self.milli_floor / 1000, self.milli_floor % 1000);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl Read for Ratio {
    fn read(value: &Value, at: Place<'_>, problems: &mut Problems) -> Option<Self> {
        let positive = Decimal::of(value).filter(|decimal| !decimal.negative && decimal.digits > 0);
        let Some(Scaled { floor, exact }) = positive.and_then(|decimal| decimal.scaled(3)) else {
            problems.unexpected(at, value, "a number above zero");
            return None;
        };
        let floor = u64::try_from(floor).unwrap_or(u64::MAX);
        Some(Self { milli_floor: floor, milli_ceil: floor.saturating_add(u64::from(!exact)) })
    }

    fn schema() -> Value {
        json!({"anyOf": [
            {"type": "number", "exclusiveMinimum": 0},
            {"type": "string", "pattern": r"^[0-9]*\.?[0-9]+$"}
        ]})
    }
}

/// How much of a unit: whole tokens and requests, dollars with nine decimals. Which of them only the unit tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantity(Decimal);

impl Quantity {
    pub(super) const fn is_zero(self) -> bool {
        self.0.digits == 0
    }

    /// The same as a whole number; the problem is reported where it is none.
    pub(super) fn whole(self, at: Place<'_>, problems: &mut Problems) -> Option<u64> {
        match self.0.scaled(0) {
            Some(Scaled { floor, exact: true }) => Some(u64::try_from(floor).unwrap_or(u64::MAX)),
            Some(_) | None => {
                problems.add(at, format!("found the number {}, expected {WHOLE}", self.0));
                None
            }
        }
    }

    /// In billionths; the problem is reported where these are not fine enough.
    pub(super) fn billionths(self, at: Place<'_>, problems: &mut Problems) -> Option<u64> {
        decimals(self.0, 9, at, problems)
    }
}

const WHOLE: &str = "a whole number, zero or more";
const NUMBER: &str = "a number, zero or more";

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Read for Quantity {
    fn read(value: &Value, at: Place<'_>, problems: &mut Problems) -> Option<Self> {
        let read = Decimal::of(value).filter(Decimal::is_possible);
        if read.is_none() {
            problems.unexpected(at, value, NUMBER);
        }
        read.map(Self)
    }

    fn schema() -> Value {
        Millionths::schema()
    }
}

/// A number with six decimals at most, zero included, in millionths.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Millionths(pub(super) u64);

impl Read for Millionths {
    fn read(value: &Value, at: Place<'_>, problems: &mut Problems) -> Option<Self> {
        match Decimal::of(value).filter(Decimal::is_possible) {
            Some(decimal) => decimals(decimal, 6, at, problems).map(Self),
            None => {
                problems.unexpected(at, value, NUMBER);
                None
            }
        }
    }

    fn schema() -> Value {
        json!({"anyOf": [
            {"type": "number", "minimum": 0},
            {"type": "string", "pattern": r"^[0-9]*\.?[0-9]+$"}
        ]})
    }
}

impl fmt::Display for Millionths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// Exactly: what is rounded here would be wrong in every sum.
fn decimals(decimal: Decimal, places: i32, at: Place<'_>, problems: &mut Problems) -> Option<u64> {
    match decimal.scaled(places) {
        // More than `u64` is more than any bound; the check of that bound says so.
        Some(Scaled { floor, exact: true }) => Some(u64::try_from(floor).unwrap_or(u64::MAX)),
        Some(Scaled { exact: false, .. }) => {
            problems.add(at, format!("found the number {decimal}, expected {places} decimals at most"));
            None
        }
        None => Some(u64::MAX),
    }
}

/// `digits × 10^exponent`.
#[derive(Clone, Copy, Debug)]
struct Decimal {
    negative: bool,
    digits: u128,
    exponent: i32,
}

struct Scaled {
    floor: u128,
    exact: bool,
}

impl Decimal {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Number(number) => Self::parse(&number.to_string()),
            Value::String(text) => Self::parse(text.trim()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i16>().ok()?),
            None => (text, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = [whole, fraction].concat();
        let numeric =
            !all.is_empty() && all.len() <= MAX_DIGITS && all.bytes().all(|byte| byte.is_ascii_digit());
        if !numeric {
            return None;
        }
        let places = i32::try_from(fraction.len()).ok()?;
        Some(Self { negative, digits: all.parse().ok()?, exponent: i32::from(exponent) - places })
    }

    /// Zero or more.
    const fn is_possible(&self) -> bool {
        !self.negative || self.digits == 0
    }

    /// Times `10^places`; `None` when that is astronomical.
    fn scaled(self, places: i32) -> Option<Scaled> {
        let shift = self.exponent + places;
        if self.digits == 0 {
            return Some(Scaled { floor: 0, exact: true });
        }
        let power = 10_u128.checked_pow(shift.unsigned_abs());
        if shift >= 0 {
            return Some(Scaled { floor: self.digits.checked_mul(power?)?, exact: true });
        }
        match power {
            Some(power) => {
                Some(Scaled { floor: self.digits / power, exact: self.digits.is_multiple_of(power) })
            }
            None => Some(Scaled { floor: 0, exact: false }),
        }
    }
}

/// As a person would write it, whatever form it came in.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.digits.to_string();
        match usize::try_from(-i64::from(self.exponent)) {
            Ok(0) => f.write_str(&digits),
            Ok(places @ 1..=MAX_DIGITS) => {
                let padded = format!("{digits:0>width$}", width = places + 1);
                let (whole, fraction) =
                    padded.split_at_checked(padded.len() - places).unwrap_or((&padded, ""));
                write!(f, "{whole}.{fraction}")
            }
            Ok(_) | Err(_) => write!(f, "{digits}e{}", self.exponent),
        }
    }
}

impl Read for Span {
    fn read(value: &Value, at: Place<'_>, problems: &mut Problems) -> Option<Self> {
        let text = match value {
            Value::String(text) => text.trim(),
            Value::Number(number) => {
                problems.add(
                    at,
                    format!("found the number {number} without a unit; for seconds write `{number}s`"),
                );
                return None;
            }
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                problems.unexpected(at, value, DURATION);
                return None;
            }
        };
        let negative = text.starts_with('-');
        match parse_millis(text.trim_start_matches('-')) {
            None => problems.unexpected(at, value, DURATION),
            Some(_) if negative => {
                problems.add(at, format!("`{text}` is negative; a duration must be longer than zero"))
            }
            Some(0) => {
                problems.add(at, format!("`{text}` is no time at all; a duration must be longer than zero"))
            }
            Some(millis) if millis > MAX_SPAN.as_millis() => {
                problems.add(at, format!("`{text}` is longer than {MAX_DAYS}d, the longest there is"));
            }
            Some(millis) => return Some(Self::from_millis(millis)),
        }
        None
    }

    fn schema() -> Value {
        json!({"type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$"})
    }
}

const DURATION: &str = "a duration such as `500ms`, `60s`, `10m`, `1h` or `1d`";

fn parse_millis(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at_checked(text.find(|c: char| !c.is_ascii_digit())?)?;
    let millis: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        "d" => 24 * 60 * 60 * 1000,
        _ => return None,
    };
    if number.is_empty() || number.len() > MAX_DIGITS {
        return None;
    }
    // More than `u64` is more than any bound.
    Some(number.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: Read>(value: Value) -> Result<T, String> {
        let mut problems = Problems::default();
        let read = T::read(&value, Place::Document, &mut problems);
        let was_read = read.is_some();
        let result = problems.into_result(read);
        assert_eq!(was_read, result.is_ok(), "{value}: a value and a problem, or neither");
        result.map_err(|problems| problems[0].problem.clone())
    }

    #[test]
    fn every_form_in_which_a_host_delivers_a_number_is_the_same_number() {
        for form in
            [json!(90000), json!(90000.0), json!("90000"), json!(" 90000 "), json!("9e4"), json!("90000.000")]
        {
            assert_eq!(read(form.clone()), Ok(Count(90_000)), "{form}");
        }
        assert_eq!(read(json!(4e15)), Ok(Count(4_000_000_000_000_000)));
        assert_eq!(read(json!("4000000000000000")), Ok(Count(4_000_000_000_000_000)));
        assert_eq!(read(json!("0")), Ok(Count(0)));
        assert_eq!(read(json!(-0.0)), Ok(Count(0)));
    }

    #[test]
    fn what_is_no_whole_number_is_refused() {
        let bad = [
            json!(1.5),
            json!("1.5"),
            json!(-1),
            json!("-1"),
            json!(""),
            json!("."),
            json!("1_000"),
            json!("0x10"),
            json!("NaN"),
            json!("inf"),
            json!("1e"),
            json!("١"),
            json!(true),
            json!(null),
            json!([]),
            json!({}),
            json!("1".repeat(1000)),
            json!("1e-1"),
            json!("1e99999999999"),
        ];
        for form in bad {
            assert!(read::<Count>(form.clone()).is_err(), "{form}");
        }
    }

    #[test]
    fn thousandths_are_decimal_and_round_as_asked() {
        let ratio = |milli_floor, milli_ceil| Ok(Ratio { milli_floor, milli_ceil });
        assert_eq!(read(json!(1.1)), ratio(1100, 1100));
        assert_eq!(read(json!("0.80")), ratio(800, 800));
        assert_eq!(read(json!(1.2345)), ratio(1234, 1235));
        assert_eq!(read(json!(1e-30)), ratio(0, 1));
        for bad in [json!(0), json!("0.0"), json!(-1), json!(false), json!("x")] {
            assert!(read::<Ratio>(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_carry_their_unit() {
        for (text, millis) in
            [("500ms", 500), ("60s", 60_000), ("10m", 600_000), ("1h", 3_600_000), ("1d", 86_400_000)]
        {
            assert_eq!(read(json!(text)), Ok(Span::from_millis(millis)), "{text}");
        }
        for (bad, hint) in [
            (json!(60), "`60s`"),
            (json!("60"), "expected a duration"),
            (json!("0s"), "longer than zero"),
            (json!("-5s"), "negative"),
            (json!("401d"), "longer than"),
            (json!("99999999999999999999d"), "longer than"),
            (json!("1 fortnight"), "expected a duration"),
            (json!("s"), "expected a duration"),
            (json!("1.5s"), "expected a duration"),
            (json!(false), "`off`"),
        ] {
            let problem = read::<Span>(bad.clone()).unwrap_err();
            assert!(problem.contains(hint), "{bad}: {problem}");
        }
    }
}

//! Amounts as people and their programs read them.

use std::fmt;

use crate::{Amount, Unit};

/// Whole tokens or requests, or dollars to the nano-dollar. Made by [`Unit::ceil`] and [`Unit::floor`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Figure {
    unit: Unit,
    amount: Amount,
}

impl Figure {
    pub(crate) const fn new(unit: Unit, amount: Amount) -> Self {
        Self { unit, amount }
    }
}

/// `1200`; dollars with their cents and no idle digit beyond: `100.00`, `0.0125`.
impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) =
            (self.amount.units() / self.unit.scale(), self.amount.units() % self.unit.scale());
        match self.unit {
            Unit::Tokens | Unit::RawTokens | Unit::InputTokens | Unit::OutputTokens | Unit::Requests => {
                whole.fmt(f)
            }
            Unit::Usd => {
                let digits = format!("{rest:09}");
                let (cents, beyond) = digits.split_at_checked(2).unwrap_or((&digits, ""));
                write!(f, "{whole}.{cents}{}", beyond.trim_end_matches('0'))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_whole_and_dollars_have_their_cents() {
        for (unit, units, floor, ceil) in [
            (Unit::Tokens, 1_500, "1", "2"),
            (Unit::Requests, 7, "7", "7"),
            (Unit::Usd, 100_000_000_000, "100.00", "100.00"),
            (Unit::Usd, 12_500_000, "0.0125", "0.0125"),
            (Unit::Usd, 1, "0.000000001", "0.000000001"),
            (Unit::Usd, 4_000_000_000_000_000, "4000000.00", "4000000.00"),
        ] {
            let amount = Amount::saturating(units);
            assert_eq!(
                (unit.floor(amount).to_string(), unit.ceil(amount).to_string()),
                (floor.into(), ceil.into())
            );
        }
    }
}

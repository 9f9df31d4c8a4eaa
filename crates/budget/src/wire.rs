//! What a gateway and the counter service say to each other, as types; docs/protocol.md tells the rest.
//!
//! Every message is JSON under a path that begins with its version. A request with an unknown field is
//! refused: a field that a service passed over could be the one that says "only count, do not refuse". A
//! reply may gain fields within a version, so that a service can be newer than its gateways.
//!
//! Amounts are whole units (thousandths of a token, requests), never above [`Amount::MAX`]; times are spans
//! in milliseconds. No message carries a point in time: the clock is the store's.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    AccountKey, Amount, Decision, Found, HoldId, Limit, Mode, OnLeaseEnd, Quota, Span, Standing, Window,
};

/// `POST`: [`Hold`] → [`HoldReply`].
pub const HOLDS: &str = "/v1/holds";
/// `POST`: [`Settlements`] → [`SettlementsReply`].
pub const SETTLEMENTS: &str = "/v1/settlements";
/// `POST`: [`Renewals`] → [`RenewalsReply`].
pub const RENEWALS: &str = "/v1/renewals";
/// `POST`: [`Standings`] → [`StandingsReply`].
pub const STANDINGS: &str = "/v1/standings";

/// Bytes of a request: more is refused unread.
pub const BODY_MOST: usize = 1 << 20;
/// Accounts in one hold, settlement or renewal: twice what a policy may name limits, for what a limit may
/// come to charge beside its own account.
pub const ACCOUNTS_MOST: usize = 64;
/// Settlements or renewals in one batch, so that no batch keeps others waiting for long.
pub const BATCH_MOST: usize = 256;

/// One request's charges, all of which are granted, or none.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// Minted by the gateway. The same id once more takes nothing more.
    pub id: HoldId,
    #[serde(default, skip_serializing_if = "Purpose::is_take")]
    pub purpose: Purpose,
    /// Tells policies apart, so that the smaller amount counts while gateways disagree; zero says nothing.
    #[serde(default)]
    pub policy: u32,
    #[serde(rename = "lease_ms")]
    pub lease: Span,
    pub on_lease_end: OnLeaseEnd,
    pub charges: Vec<Charge>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    #[default]
    Take,
    /// Decide, and take nothing: neither id nor lease mean anything then.
    Check,
}

impl Purpose {
    const fn is_take(&self) -> bool {
        match self {
            Self::Take => true,
            Self::Check => false,
        }
    }
}

/// What one request takes from one account.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Charge {
    pub account: AccountKey,
    pub window: Window,
    /// How much in the window; zero suspends.
    pub amount: Amount,
    pub cost: Amount,
    /// The most that one request may hold.
    pub largest: Amount,
    pub mode: Mode,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct HoldReply {
    pub decision: Decision,
}

/// A batch, each of which succeeds or fails by itself.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Settlements {
    pub settlements: Vec<Settlement>,
}

/// The end of one hold.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Settlement {
    pub id: HoldId,
    #[serde(default, skip_serializing_if = "Close::is_settle")]
    pub close: Close,
    /// Every account that the hold names, granted or not: they also tell where the hold is kept.
    pub entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Close {
    /// Replace the hold by its true cost; a hold that the store does not know is charged plainly.
    #[default]
    Settle,
    /// Undo the hold, or the one still to come, as if it had never been asked for: what `spent` says is
    /// not looked at.
    Withdraw,
}

impl Close {
    const fn is_settle(&self) -> bool {
        match self {
            Self::Settle => true,
            Self::Withdraw => false,
        }
    }
}

/// What one account is to be charged in the end.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub account: AccountKey,
    pub window: Window,
    pub amount: Amount,
    pub spent: Amount,
}

/// In the order of the batch.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SettlementsReply {
    pub outcomes: Vec<Outcome>,
}

/// What became of one settlement. All but `Failed` are final: it must not be sent again, and does no harm
/// if it is.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Settled before: nothing was changed.
    Duplicate,
    /// The hold was open.
    Closed,
    /// The hold's lease had ended; what that charged or gave back is now the true cost.
    CorrectedAfterLease,
    /// No such hold: all of the cost was charged, or the withdrawal is remembered.
    Unknown,
    /// The store could not do it, or not in all places: send it again under the same id.
    Failed,
}

impl From<crate::Outcome> for Outcome {
    fn from(outcome: crate::Outcome) -> Self {
        match outcome {
            crate::Outcome::Closed => Self::Closed,
            crate::Outcome::CorrectedAfterLease => Self::CorrectedAfterLease,
            crate::Outcome::Unknown => Self::Unknown,
            crate::Outcome::Duplicate => Self::Duplicate,
        }
    }
}

/// A batch, each of which succeeds or fails by itself.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Renewals {
    pub renewals: Vec<Renewal>,
}

/// A stream still runs: its lease begins anew, and its hold grows with it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Renewal {
    pub id: HoldId,
    #[serde(rename = "lease_ms")]
    pub lease: Span,
    /// Every account that the hold was granted.
    pub stakes: Vec<Stake>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Stake {
    pub account: AccountKey,
    /// All that the hold is to have set aside by now, whatever the limit says. A total, not a difference: said
    /// twice, or late, it changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Amount>,
}

/// In the order of the batch.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct RenewalsReply {
    pub outcomes: Vec<Renewed>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Renewed {
    Open,
    /// Never granted, settled, or past its lease. The settlement will charge what is missing.
    NotOpen,
    /// The store could not do it: send it again.
    Failed,
}

impl From<Found> for Renewed {
    fn from(found: Found) -> Self {
        match found {
            Found::Open => Self::Open,
            Found::NotOpen => Self::NotOpen,
        }
    }
}

/// How do these accounts stand under these limits?
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Standings {
    pub accounts: Vec<Account>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Account {
    pub account: AccountKey,
    pub window: Window,
    pub amount: Amount,
}

/// In the order asked for.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct StandingsReply {
    pub standings: Vec<Standing>,
}

impl Charge {
    pub const fn limit(&self) -> Limit {
        Limit { window: self.window, quota: Quota::of(self.amount) }
    }
}

impl Entry {
    pub const fn limit(&self) -> Limit {
        Limit { window: self.window, quota: Quota::of(self.amount) }
    }
}

impl Account {
    pub const fn limit(&self) -> Limit {
        Limit { window: self.window, quota: Quota::of(self.amount) }
    }
}

/// 32 digits: JSON's numbers do not hold 128 bits.
impl Serialize for HoldId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HoldId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(|_| D::Error::custom("a hold's id is 32 lower-case hexadecimal digits"))
    }
}

impl Serialize for AccountKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for AccountKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;
    use crate::{Grant, Reason, Refusal};

    /// What is written today must be read for as long as there is a version 1.
    fn same<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(message: T, text: Value) {
        assert_eq!(serde_json::to_value(&message).unwrap(), text);
        assert_eq!(serde_json::from_value::<T>(text).unwrap(), message);
    }

    fn account() -> AccountKey {
        "default/tokens/tenant=acme".parse().unwrap()
    }

    fn minute() -> Window {
        Window::Sliding(Span::from_secs(60))
    }

    fn units(units: u64) -> Amount {
        Amount::saturating(units)
    }

    fn standing(held: u64) -> Standing {
        Standing { capacity: units(90), held: units(held), spent: units(2), reset: Span::from_millis(7) }
    }

    const ID: &str = "000102030405060708090a0b0c0d0e0f";

    fn id() -> HoldId {
        ID.parse().unwrap()
    }

    fn hold() -> (Hold, Value) {
        let charge = Charge {
            account: account(),
            window: minute(),
            amount: units(90),
            cost: units(5),
            largest: units(45),
            mode: Mode::Enforce,
        };
        let bucket = Window::Bucket { period: Span::from_millis(1), burst: Some(units(3)) };
        let plain = Window::Bucket { period: Span::from_millis(1), burst: None };
        let message = Hold {
            id: id(),
            purpose: Purpose::Take,
            policy: 7,
            lease: Span::from_secs(600),
            on_lease_end: OnLeaseEnd::Release,
            charges: vec![
                charge.clone(),
                Charge { window: bucket, mode: Mode::Shadow, ..charge.clone() },
                Charge { window: plain, ..charge.clone() },
                Charge { window: Window::Fixed(Span::from_millis(9)), ..charge },
            ],
        };
        let charge = |window: Value, mode: &str| {
            json!({"account": "default/tokens/tenant=acme", "window": window, "amount": 90, "cost": 5,
                "largest": 45, "mode": mode})
        };
        let text = json!({"id": ID, "policy": 7, "lease_ms": 600_000, "on_lease_end": "release", "charges": [
            charge(json!({"sliding": 60_000}), "enforce"),
            charge(json!({"bucket": {"period_ms": 1, "burst": 3}}), "shadow"),
            charge(json!({"bucket": {"period_ms": 1}}), "enforce"),
            charge(json!({"fixed": 9}), "enforce"),
        ]});
        (message, text)
    }

    #[test]
    fn a_hold_is_written_as_the_protocol_says() {
        let (message, mut text) = hold();
        same(message.clone(), text.clone());
        text["purpose"] = json!("check");
        same(Hold { purpose: Purpose::Check, ..message }, text);
    }

    #[test]
    fn decisions_are_written_as_the_protocol_says() {
        let reply = |decision| HoldReply { decision };
        let grant = Grant { standings: vec![standing(1), standing(2)], shadow_over: vec![1] };
        let told = |held: u64| json!({"capacity": 90, "held": held, "spent": 2, "reset_ms": 7});
        same(
            reply(Decision::Granted(grant)),
            json!({"decision": {"granted": {"standings": [told(1), told(2)], "shadow_over": [1]}}}),
        );
        for (reason, text) in [
            (
                Reason::NotYet { retry_after: Span::from_millis(12) },
                json!({"not_yet": {"retry_after_ms": 12}}),
            ),
            (Reason::Never { largest: units(9) }, json!({"never": {"largest": 9}})),
            (Reason::Suspended, json!("suspended")),
        ] {
            same(
                reply(Decision::Refused(Refusal { charge: 2, reason, standing: standing(1) })),
                json!({"decision": {"refused": {"charge": 2, "reason": text, "standing": told(1)}}}),
            );
        }
        same(reply(Decision::AlreadySettled), json!({"decision": "already_settled"}));
    }

    #[test]
    fn batches_are_written_as_the_protocol_says() {
        let entry = Entry { account: account(), window: minute(), amount: units(90), spent: units(4) };
        let settlement = Settlement { id: id(), close: Close::Settle, entries: vec![entry] };
        let withdrawal = Settlement { close: Close::Withdraw, ..settlement.clone() };
        let entries = json!([{"account": "default/tokens/tenant=acme", "window": {"sliding": 60_000},
            "amount": 90, "spent": 4}]);
        same(
            Settlements { settlements: vec![settlement, withdrawal] },
            json!({"settlements": [{"id": ID, "entries": entries},
                {"id": ID, "close": "withdraw", "entries": entries}]}),
        );
        use Outcome::{Closed, CorrectedAfterLease, Duplicate, Failed, Unknown};
        same(
            SettlementsReply { outcomes: vec![Closed, CorrectedAfterLease, Unknown, Duplicate, Failed] },
            json!({"outcomes": ["closed", "corrected_after_lease", "unknown", "duplicate", "failed"]}),
        );
        let stakes = vec![
            Stake { account: account(), total: Some(units(8)) },
            Stake { account: account(), total: None },
        ];
        same(
            Renewals { renewals: vec![Renewal { id: id(), lease: Span::from_millis(5), stakes }] },
            json!({"renewals": [{"id": ID, "lease_ms": 5, "stakes": [
                {"account": "default/tokens/tenant=acme", "total": 8},
                {"account": "default/tokens/tenant=acme"}]}]}),
        );
        same(
            RenewalsReply { outcomes: vec![Renewed::Open, Renewed::NotOpen, Renewed::Failed] },
            json!({"outcomes": ["open", "not_open", "failed"]}),
        );
        same(
            Standings { accounts: vec![Account { account: account(), window: minute(), amount: units(90) }] },
            json!({"accounts": [{"account": "default/tokens/tenant=acme", "window": {"sliding": 60_000},
                "amount": 90}]}),
        );
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let (_, good) = hold();
        let changed = |place: &str, value: Value| {
            let mut text = good.clone();
            *text.pointer_mut(place).unwrap() = value;
            text
        };
        let added = |place: &str| {
            let mut text = good.clone();
            text.pointer_mut(place).unwrap()["more"] = json!(1);
            text
        };
        for bad in [
            added(""),
            added("/charges/0"),
            added("/charges/1/window/bucket"),
            changed("/id", json!("0001")),
            changed("/id", json!("000102030405060708090A0B0C0D0E0F")),
            changed("/id", json!("+00102030405060708090a0b0c0d0e0f")),
            changed("/id", json!(1)),
            changed("/policy", json!(u64::MAX)),
            changed("/lease_ms", json!(-1)),
            changed("/on_lease_end", json!("forget")),
            changed("/charges/0/account", json!("default/tokens/tenant=a b")),
            changed("/charges/0/amount", json!(Amount::MAX.units() + 1)),
            changed("/charges/0/cost", json!(1.5)),
            changed("/charges/0/mode", json!("maybe")),
            changed("/charges/0/window", json!({"sliding": 1, "fixed": 1})),
            changed("/charges/0/window", json!({"lunar": 1})),
        ] {
            assert!(serde_json::from_value::<Hold>(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_reply_may_say_more_than_is_known() {
        let text = json!({"decision": "already_settled", "more": 1});
        assert!(serde_json::from_value::<HoldReply>(text).is_ok());
        let text = json!({"decision": {"granted": {"standings": [], "shadow_over": [], "more": 1}}});
        assert!(serde_json::from_value::<HoldReply>(text).is_ok());
    }
}

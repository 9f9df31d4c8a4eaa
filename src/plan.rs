//! Subject × estimate × limits → what to hold where, and what to charge in the end.
//!
//! Made once, when the request is read, and carried to the end: the accounts of a request and what they
//! were asked for do not change while it runs, whatever becomes of the policy meanwhile.

use tollgate_budget::{
    AccountId, Amount, BudgetKey, Charge, HoldId, Limit, LimitHash, Mode, SubjectHash, Tokens, Unit,
};

use crate::config::{Api, FilterConfig, HoldRules, LimitRule, Per, RequestPath, Target, Tier};
use crate::identity::{self, Subject};
use crate::local::{LocalCharge, LocalReservation, Overflow, Place, Spent};

/// A policy's limits, with what can be worked out ahead of any request.
#[derive(Debug)]
pub struct Limits {
    prepared: Vec<Prepared>,
}

/// What one limit's accounts have in common.
#[derive(Clone, Copy, Debug)]
struct Prepared {
    name: LimitHash,
    overflow: Overflow,
}

/// What the limits' conditions look at, and whose accounts they keep.
#[derive(Clone, Copy, Debug)]
pub struct Payer<'a> {
    pub subject: &'a Subject,
    pub tier: Tier,
    pub target: Target<'a>,
}

impl Limits {
    pub fn of(config: &FilterConfig) -> Self {
        let prepared =
            |rule: &LimitRule| Prepared { name: LimitHash::of(&rule.name), overflow: overflow(config, rule) };
        Self { prepared: config.limits.iter().map(prepared).collect() }
    }

    /// Every account that the payer's request stands under, in the order of the policy.
    pub fn accounts(
        &self,
        config: &FilterConfig,
        payer: &Payer<'_>,
        counts: impl Fn(&LimitRule) -> bool,
    ) -> Vec<Account> {
        self.of_rules(config, payer, |rule| counts(rule) && config.applies(rule, &payer.target))
    }

    /// The accounts that a subject may ask for: those of every limit its tier is under, whatever the request.
    pub fn own(&self, config: &FilterConfig, subject: &Subject, tier: Tier) -> Vec<Account> {
        let path = RequestPath::new("");
        let payer = Payer { subject, tier, target: config.target(&path, Api::OpenAiChat, "", tier) };
        self.of_rules(config, &payer, |rule| !rule.depends_on_model() && config.is_under(rule, tier))
    }

    fn of_rules(
        &self,
        config: &FilterConfig,
        payer: &Payer<'_>,
        wanted: impl Fn(&LimitRule) -> bool,
    ) -> Vec<Account> {
        let mut accounts = Vec::with_capacity(config.limits.len());
        // Limits kept by the same attributes, as most are, need the subject hashed once.
        let mut last: Option<(&[Per], SubjectHash)> = None;
        for (index, (rule, prepared)) in config.limits.iter().zip(&self.prepared).enumerate() {
            if wanted(rule) {
                let hash = match last {
                    Some((per, hash)) if per == rule.per => hash,
                    Some(_) | None => subject_hash(config, payer, rule),
                };
                last = Some((&rule.per, hash));
                accounts.push(account(config, payer, index, rule, hash, prepared));
            }
        }
        accounts
    }
}

fn subject_hash(config: &FilterConfig, payer: &Payer<'_>, rule: &LimitRule) -> SubjectHash {
    let family = if rule.per.contains(&Per::Model) { config.family(payer.target.model) } else { "" };
    let part = |per| identity::part(config, payer.subject, family, per);
    SubjectHash::of(&config.namespace, rule.per.iter().map(part))
}

/// The account that stands in for all subjects of a limit that its shard has no room for. No attribute of
/// a policy has an empty name, so no subject can be it.
fn overflow(config: &FilterConfig, rule: &LimitRule) -> Overflow {
    let key = BudgetKey {
        namespace: config.namespace.clone(),
        limit: rule.name.clone(),
        subject: vec![(String::new(), b"overflow".to_vec())],
    };
    Overflow { account: key.account(), limit: rule.limit(config.default_tier()) }
}

fn account(
    config: &FilterConfig,
    payer: &Payer<'_>,
    index: usize,
    rule: &LimitRule,
    subject: SubjectHash,
    prepared: &Prepared,
) -> Account {
    let limit = rule.limit(payer.tier);
    Account {
        rule: index,
        unit: rule.unit,
        mode: rule.mode,
        limit,
        largest: share(limit.capacity(), &config.hold),
        id: subject.account(prepared.name),
        tag: subject.tag(),
        overflow: prepared.overflow,
    }
}

/// The most that one request may hold of an account; never nothing, or the share would be a ban.
fn share(capacity: Amount, hold: &HoldRules) -> Amount {
    let units = capacity.units();
    let part = units / 1000 * hold.max_share_milli + units % 1000 * hold.max_share_milli / 1000;
    Amount::saturating(part.max(1))
}

/// The account that one limit keeps for a payer.
#[derive(Clone, Debug)]
pub struct Account {
    /// Index into the policy's limits.
    pub rule: usize,
    pub unit: Unit,
    pub mode: Mode,
    pub limit: Limit,
    /// The most that one request may hold.
    pub largest: Amount,
    id: AccountId,
    tag: u64,
    overflow: Overflow,
}

impl Account {
    /// What the toll takes from the account.
    pub fn charge(&self, toll: Toll) -> LocalCharge {
        LocalCharge {
            charge: Charge {
                account: self.id,
                limit: self.limit,
                cost: toll.of(self.unit),
                largest: self.largest,
                mode: self.mode,
            },
            tag: self.tag,
            overflow: self.overflow,
        }
    }
}

/// Where counting a prompt may stop: beyond it some limit can never grant the request, whatever is left
/// in it. Limits in shadow mode refuse nothing, so they stop nothing.
pub fn ceiling(accounts: &[Account], output: Tokens) -> Option<Tokens> {
    let room = |account: &Account| {
        let most = Tokens::new(account.unit.whole_floor(account.largest.min(account.limit.capacity())));
        match account.unit {
            Unit::Tokens | Unit::RawTokens => Some(most.saturating_sub(output)),
            Unit::InputTokens => Some(most),
            Unit::OutputTokens | Unit::Requests => None,
        }
    };
    accounts.iter().filter(|account| account.mode == Mode::Enforce).filter_map(room).min()
}

/// What one request takes, or took, by the kinds that limits count.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Toll {
    pub input: Tokens,
    pub output: Tokens,
}

impl Toll {
    /// A request that cost no token was a request all the same.
    pub const NO_TOKENS: Self = Self { input: Tokens::ZERO, output: Tokens::ZERO };

    pub const fn of(self, unit: Unit) -> Amount {
        match unit {
            Unit::Tokens | Unit::RawTokens => unit.amount(self.input.saturating_add(self.output)),
            Unit::InputTokens => unit.amount(self.input),
            Unit::OutputTokens => unit.amount(self.output),
            Unit::Requests => unit.amount(Tokens::new(1)),
        }
    }
}

/// Which accounts one request pays into, under which hold.
#[derive(Clone, Debug)]
pub struct Plan {
    pub id: HoldId,
    pub accounts: Vec<Account>,
}

impl Plan {
    pub fn reservation(&self, toll: Toll, hold: &HoldRules) -> LocalReservation {
        LocalReservation {
            id: self.id,
            charges: self.accounts.iter().map(|account| account.charge(toll)).collect(),
            lease: hold.lease,
            on_lease_end: hold.on_lease_end,
        }
    }

    /// The hold, as the store took it.
    pub fn granted(self, places: Vec<Place>) -> Granted {
        let units = self.accounts.iter().map(|account| account.unit);
        Granted { id: self.id, places: places.into_iter().zip(units).collect() }
    }
}

/// A hold that is to be settled.
#[derive(Clone, Debug)]
pub struct Granted {
    pub id: HoldId,
    places: Vec<(Place, Unit)>,
}

impl Granted {
    /// What the request really cost, account by account.
    pub fn spent(&self, toll: Toll) -> Vec<Spent> {
        let spent = |(place, unit): &(Place, Unit)| Spent { place: *place, amount: toll.of(*unit) };
        self.places.iter().map(spent).collect()
    }

    /// What more output takes, beyond the hold.
    pub fn growth(&self, output: Tokens) -> Vec<Spent> {
        let counts = |unit: Unit| match unit {
            Unit::Tokens | Unit::RawTokens | Unit::OutputTokens => true,
            Unit::InputTokens | Unit::Requests => false,
        };
        let toll = Toll { input: Tokens::ZERO, output };
        let spent = |(place, unit): &(Place, Unit)| Spent { place: *place, amount: toll.of(*unit) };
        self.places.iter().filter(|(_, unit)| counts(*unit)).map(spent).collect()
    }

    pub fn places(&self) -> Vec<Place> {
        self.places.iter().map(|(place, _)| *place).collect()
    }
}

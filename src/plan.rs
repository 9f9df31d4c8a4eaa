//! Subject × estimate × limits → what to hold where, and what to charge in the end.
//!
//! Made once, when the request is read, and carried to the end: the accounts of a request and what they
//! were asked for do not change while it runs, whatever becomes of the policy meanwhile.

use tollgate_budget::wire;
use tollgate_budget::{
    AccountId, AccountKey, Amount, BudgetKey, Caching, Charge, HoldId, Limit, LimitHash, Mode, Quota, Span,
    SubjectHash, Tariff, Tokens, Toll, Unit, Window,
};

use crate::config::{Api, FilterConfig, HoldRules, LimitRule, ModelRule, Per, RequestPath, Target, Tier};
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
        let model = config.model(payer.target.model);
        // Limits kept by the same attributes, as most are, need the subject hashed once.
        let mut last: Option<(&[Per], SubjectHash)> = None;
        for (index, (rule, prepared)) in config.limits.iter().zip(&self.prepared).enumerate() {
            if wanted(rule) {
                let hash = match last {
                    Some((per, hash)) if per == rule.per => hash,
                    Some(_) | None => subject_hash(config, payer, rule),
                };
                last = Some((&rule.per, hash));
                accounts.push(account(config, payer, model, (index, rule), hash, prepared));
            }
        }
        accounts
    }
}

fn subject_hash(config: &FilterConfig, payer: &Payer<'_>, rule: &LimitRule) -> SubjectHash {
    let family = family(config, payer, rule);
    let part = |per| identity::part(config, payer.subject, family, per);
    SubjectHash::of(&config.namespace, rule.per.iter().map(part))
}

/// Of the model, where the limit looks at it.
fn family<'a>(config: &'a FilterConfig, payer: &Payer<'a>, rule: &LimitRule) -> &'a str {
    if rule.per.contains(&Per::Model) { config.family(payer.target.model) } else { "" }
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
    model: &ModelRule,
    (index, rule): (usize, &LimitRule),
    subject: SubjectHash,
    prepared: &Prepared,
) -> Account {
    let limit = rule.limit(payer.tier);
    Account {
        rule: index,
        unit: rule.unit,
        tariff: model.tariff(rule.unit),
        mode: rule.mode,
        limit,
        largest: share(limit.capacity(), &config.hold),
        id: subject.account(prepared.name),
        tag: subject.tag(),
        overflow: prepared.overflow,
        key: config.store.counter.as_ref().map(|_| {
            AccountKey::from(&identity::key(config, rule, payer.subject, family(config, payer, rule)))
        }),
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
    /// What the request's tokens take from it, by its model.
    pub tariff: Tariff,
    pub mode: Mode,
    pub limit: Limit,
    /// The most that one request may hold.
    pub largest: Amount,
    id: AccountId,
    tag: u64,
    overflow: Overflow,
    /// Its name at the counter service, where there is one.
    key: Option<AccountKey>,
}

impl Account {
    /// One part in `gateways` of the account, which this gateway gives out while it hears nothing of the others.
    #[must_use]
    pub fn shared_by(&self, gateways: u64) -> Self {
        let part = |amount: Amount| Amount::saturating((amount.units() / gateways.max(1)).max(1));
        let of = |limit: Limit| Limit {
            quota: match limit.quota {
                Quota::Suspended => Quota::Suspended,
                Quota::Of(amount) => Quota::Of(part(amount)),
            },
            window: match limit.window {
                Window::Bucket { period, burst } => Window::Bucket { period, burst: burst.map(part) },
                window @ (Window::Sliding(_) | Window::Fixed(_)) => window,
            },
        };
        let Overflow { account, limit } = self.overflow;
        Self {
            limit: of(self.limit),
            largest: part(self.largest),
            overflow: Overflow { account, limit: of(limit) },
            ..self.clone()
        }
    }

    fn remote(&self) -> Option<Remote> {
        let Limit { window, quota } = self.limit;
        Some(Remote { account: self.key.clone()?, window, amount: quota.amount(), tariff: self.tariff })
    }

    /// What the toll takes from the account.
    pub fn charge(&self, toll: Toll) -> LocalCharge {
        LocalCharge {
            charge: Charge {
                account: self.id,
                limit: self.limit,
                cost: self.tariff.cost(toll),
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
pub fn ceiling(accounts: &[Account], output: Tokens, caching: Caching) -> Option<Tokens> {
    let room = |account: &Account| {
        let most = account.largest.min(account.limit.capacity());
        account.tariff.most_input(most, output, caching)
    };
    accounts.iter().filter(|account| account.mode == Mode::Enforce).filter_map(room).min()
}

/// Which accounts one request pays into, under which hold.
#[derive(Clone, Debug)]
pub struct Plan {
    pub id: HoldId,
    pub accounts: Vec<Account>,
}

impl Plan {
    pub fn reservation(&self, toll: Toll, hold: &HoldRules) -> LocalReservation {
        reservation(self.id, &self.accounts, toll, hold)
    }

    /// While the counter service is away, from this gateway's share of each account.
    pub fn reservation_of_share(&self, toll: Toll, hold: &HoldRules, gateways: u64) -> LocalReservation {
        let shares: Vec<Account> = self.accounts.iter().map(|account| account.shared_by(gateways)).collect();
        reservation(self.id, &shares, toll, hold)
    }

    /// As the counter service is asked.
    pub fn hold(&self, purpose: wire::Purpose, toll: Toll, config: &FilterConfig) -> wire::Hold {
        let charge = |account: &Account| {
            let Remote { account: key, window, amount, tariff } = account.remote()?;
            let (cost, largest, mode) = (tariff.cost(toll), account.largest, account.mode);
            Some(wire::Charge { account: key, window, amount, cost, largest, mode })
        };
        wire::Hold {
            id: self.id,
            purpose,
            policy: config.fingerprint,
            lease: config.hold.lease,
            on_lease_end: config.hold.on_lease_end,
            charges: self.accounts.iter().filter_map(charge).collect(),
        }
    }

    /// Tells the counter service that the request went nowhere.
    pub fn withdrawal(&self) -> wire::Settlement {
        let remote = self.accounts.iter().filter_map(Account::remote);
        let entries = remote.map(|remote| remote.entry(Toll::NO_TOKENS)).collect();
        wire::Settlement { id: self.id, close: wire::Close::Withdraw, entries }
    }

    /// The hold, as the proxy's memory took it. The counter service, where there is one, was away and is told of
    /// the cost in the end.
    pub fn granted(self, places: Vec<Place>) -> Granted {
        let tariffs = self.accounts.iter().map(|account| account.tariff);
        let local = places.into_iter().zip(tariffs).collect();
        Granted { id: self.id, local, remote: self.remote(), heard: Heard::No }
    }

    /// The hold, as the counter service took it, or would have taken it.
    pub fn granted_remotely(self, heard: Heard) -> Granted {
        Granted { id: self.id, local: Vec::new(), remote: self.remote(), heard }
    }

    fn remote(&self) -> Vec<Remote> {
        self.accounts.iter().filter_map(Account::remote).collect()
    }
}

fn reservation(id: HoldId, accounts: &[Account], toll: Toll, hold: &HoldRules) -> LocalReservation {
    LocalReservation {
        id,
        charges: accounts.iter().map(|account| account.charge(toll)).collect(),
        lease: hold.lease,
        on_lease_end: hold.on_lease_end,
    }
}

/// As the counter service is asked how accounts stand.
pub fn standings(accounts: &[Account]) -> Vec<wire::Account> {
    let account = |remote: Remote| {
        let Remote { account, window, amount, tariff: _ } = remote;
        wire::Account { account, window, amount }
    };
    accounts.iter().filter_map(Account::remote).map(account).collect()
}

/// An account as the counter service knows it.
#[derive(Clone, Debug)]
struct Remote {
    account: AccountKey,
    window: Window,
    amount: Amount,
    tariff: Tariff,
}

impl Remote {
    fn entry(self, toll: Toll) -> wire::Entry {
        let Self { account, window, amount, tariff } = self;
        wire::Entry { account, window, amount, spent: tariff.cost(toll) }
    }
}

/// A hold that is to be settled.
#[derive(Clone, Debug)]
pub struct Granted {
    pub id: HoldId,
    local: Vec<(Place, Tariff)>,
    remote: Vec<Remote>,
    heard: Heard,
}

/// Whether the counter service is known to have taken a hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Heard {
    Yes,
    No,
}

impl Granted {
    /// Whether the proxy's memory holds something.
    pub fn is_local(&self) -> bool {
        !self.local.is_empty()
    }

    /// What the request really cost, account by account.
    pub fn spent(&self, toll: Toll) -> Vec<Spent> {
        let spent = |(place, tariff): &(Place, Tariff)| Spent { place: *place, amount: tariff.cost(toll) };
        self.local.iter().map(spent).collect()
    }

    /// What it takes more than before, where it does. Of the two costs, so that steps of a fraction each do not add up
    /// to more than the whole.
    pub fn growth(&self, before: Toll, after: Toll) -> Vec<Spent> {
        let grown = |(place, tariff): &(Place, Tariff)| {
            let amount = tariff.cost(after).saturating_sub(tariff.cost(before));
            (amount > Amount::ZERO).then_some(Spent { place: *place, amount })
        };
        self.local.iter().filter_map(grown).collect()
    }

    pub fn places(&self) -> Vec<Place> {
        self.local.iter().map(|(place, _)| *place).collect()
    }

    /// Whether the hold would end with its lease at the counter service if nothing more were said of it.
    pub fn is_kept_remotely(&self) -> bool {
        self.heard == Heard::Yes
    }

    /// What the counter service is told of the end.
    pub fn settlement(&self, toll: Toll) -> Option<wire::Settlement> {
        let entries: Vec<_> = self.remote.iter().cloned().map(|remote| remote.entry(toll)).collect();
        let settlement = || wire::Settlement { id: self.id, close: wire::Close::Settle, entries };
        (!self.remote.is_empty()).then(settlement)
    }

    /// What the counter service is told while the stream runs: `toll` is what it covers by now.
    pub fn renewal(&self, toll: Toll, lease: Span) -> Option<wire::Renewal> {
        let stake = |remote: &Remote| wire::Stake {
            account: remote.account.clone(),
            total: Some(remote.tariff.cost(toll)),
        };
        let stakes: Vec<_> = self.remote.iter().map(stake).collect();
        let renewal = || wire::Renewal { id: self.id, lease, stakes };
        (!self.remote.is_empty()).then(renewal)
    }
}

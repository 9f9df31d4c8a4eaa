//! What is counted, and under which names. No label carries anything that a caller chose.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tollgate_budget::wire::{Outcome, Renewed};

use crate::store::StoreError;

/// Seconds. From what Redis takes on a quiet machine to what no gateway waits for.
const BUCKETS: [f64; 12] =
    [0.0001, 0.000_25, 0.0005, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0];

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Route {
    Holds,
    Settlements,
    Renewals,
    Standings,
    Accounts,
    Amounts,
    Balances,
    Health,
    Ready,
    Metrics,
    Unknown,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Decided {
    Granted,
    Repeated,
    NotYet,
    Never,
    Suspended,
    AlreadySettled,
    Checked,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum StoreFault {
    Away,
    Slow,
    Unwilling,
    Nonsense,
    Full,
}

/// Gives each variant the word that stands for it in a label.
macro_rules! label {
    ($type:ty { $($variant:pat => $word:literal),+ $(,)? }) => {
        impl $type {
            pub const fn word(self) -> &'static str {
                match self { $($variant => $word),+ }
            }
        }
    };
}

label!(Route {
    Self::Holds => "holds",
    Self::Settlements => "settlements",
    Self::Renewals => "renewals",
    Self::Standings => "standings",
    Self::Accounts => "accounts",
    Self::Amounts => "amounts",
    Self::Balances => "balances",
    Self::Health => "healthz",
    Self::Ready => "readyz",
    Self::Metrics => "metrics",
    Self::Unknown => "unknown",
});
label!(Decided {
    Self::Granted => "granted",
    Self::Repeated => "repeated",
    Self::NotYet => "not_yet",
    Self::Never => "never",
    Self::Suspended => "suspended",
    Self::AlreadySettled => "already_settled",
    Self::Checked => "checked",
});
label!(StoreFault {
    Self::Away => "away",
    Self::Slow => "slow",
    Self::Unwilling => "unwilling",
    Self::Nonsense => "nonsense",
    Self::Full => "full",
});

#[derive(Clone, Debug, Eq, EncodeLabelSet, Hash, PartialEq)]
struct Answered {
    route: &'static str,
    status: u16,
}

type Label = [(&'static str, &'static str); 1];

const fn outcome(word: &'static str) -> Label {
    [("outcome", word)]
}

/// One service's numbers.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<Answered, Counter>,
    latency: Family<Label, Histogram>,
    store_latency: Histogram,
    store_faults: Family<Label, Counter>,
    decisions: Family<Label, Counter>,
    settlements: Family<Label, Counter>,
    renewals: Family<Label, Counter>,
    give_backs_lost: Counter,
    leases_ended: Counter,
    debt: Counter,
    open_holds: Gauge,
    slots: Gauge,
    sweeps_failed: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let histogram = || Histogram::new(BUCKETS);
        let mut metrics = Self {
            registry: Registry::with_prefix("tollgate_counter"),
            requests: Family::default(),
            latency: Family::new_with_constructor(histogram),
            store_latency: histogram(),
            store_faults: Family::default(),
            decisions: Family::default(),
            settlements: Family::default(),
            renewals: Family::default(),
            give_backs_lost: Counter::default(),
            leases_ended: Counter::default(),
            debt: Counter::default(),
            open_holds: Gauge::default(),
            slots: Gauge::default(),
            sweeps_failed: Counter::default(),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        let to = &mut self.registry;
        to.register("requests", "Requests answered", self.requests.clone());
        to.register_with_unit(
            "request_duration",
            "From the head of a request to its answer",
            Unit::Seconds,
            self.latency.clone(),
        );
        to.register_with_unit(
            "store_duration",
            "One step of the store, as the service waits for it",
            Unit::Seconds,
            self.store_latency.clone(),
        );
        to.register("store_faults", "Steps that the store did not do", self.store_faults.clone());
        to.register("decisions", "Holds asked for", self.decisions.clone());
        to.register("settlements", "Settlements and withdrawals", self.settlements.clone());
        to.register("renewals", "Renewals of running streams", self.renewals.clone());
        to.register(
            "give_backs_lost",
            "Holds of a refused request that could not be given back and end with their lease",
            self.give_backs_lost.clone(),
        );
        to.register("leases_ended", "Holds that nobody settled in time", self.leases_ended.clone());
        to.register("debt_units", "Charged beyond what was held, in account units", self.debt.clone());
        to.register(
            "open_holds",
            "Open holds in slots, as the sweeper last met them",
            self.open_holds.clone(),
        );
        to.register("slots", "Subjects in the store, as the sweeper last met them", self.slots.clone());
        to.register("sweeps_failed", "Rounds of the sweeper that broke off", self.sweeps_failed.clone());
    }

    pub fn answered(&self, route: Route, status: u16, took: Duration) {
        self.requests.get_or_create(&Answered { route: route.word(), status }).inc();
        self.latency.get_or_create(&[("route", route.word())]).observe(took.as_secs_f64());
    }

    pub fn store_answered(&self, took: Duration) {
        self.store_latency.observe(took.as_secs_f64());
    }

    pub fn store_failed(&self, error: &StoreError) {
        let fault = match error {
            StoreError::Away => StoreFault::Away,
            StoreError::Slow => StoreFault::Slow,
            StoreError::Unwilling(_) => StoreFault::Unwilling,
            StoreError::Nonsense => StoreFault::Nonsense,
            StoreError::Full(_) | StoreError::Slots => StoreFault::Full,
            // The caller's mistake.
            StoreError::Cursor => return,
        };
        self.store_faults.get_or_create(&outcome(fault.word())).inc();
    }

    pub fn decided(&self, decided: Decided) {
        self.decisions.get_or_create(&outcome(decided.word())).inc();
    }

    pub fn settled(&self, settled: Outcome) {
        let word = match settled {
            Outcome::Closed => "closed",
            Outcome::CorrectedAfterLease => "corrected_after_lease",
            Outcome::Unknown => "unknown",
            Outcome::Duplicate => "duplicate",
            Outcome::Failed => "failed",
        };
        self.settlements.get_or_create(&outcome(word)).inc();
    }

    pub fn renewed(&self, renewed: Renewed) {
        let word = match renewed {
            Renewed::Open => "open",
            Renewed::NotOpen => "not_open",
            Renewed::Failed => "failed",
        };
        self.renewals.get_or_create(&outcome(word)).inc();
    }

    pub fn give_back_lost(&self) {
        self.give_backs_lost.inc();
    }

    pub fn leases_ended(&self, leases: u64) {
        self.leases_ended.inc_by(leases);
    }

    pub fn owed(&self, units: u64) {
        self.debt.inc_by(units);
    }

    pub fn swept(&self, slots: u64, open_holds: u64) {
        self.slots.set(i64::try_from(slots).unwrap_or(i64::MAX));
        self.open_holds.set(i64::try_from(open_holds).unwrap_or(i64::MAX));
    }

    pub fn sweep_failed(&self) {
        self.sweeps_failed.inc();
    }

    /// In the OpenMetrics text format, which Prometheus reads.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

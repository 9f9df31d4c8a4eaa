//! One input's worth of work: what it may look at, and the effects it gathers.

use serde_json::json;
use tollgate_budget::{HoldId, Reason, Standing, Timestamp};

use super::record::{Record, Status};
use super::state::State;
use super::{Effect, Gate};
use crate::metrics::{self, BodyReason, CallOutcome, Metric, Outcome, SettledAs, StoreErrorKind};
use crate::plan::Account;
use crate::remote::{Letter, Outage};
use crate::reply::{Problem, Refused, Reply, Requested, Shape, limits, number};

pub(super) struct Step<'a> {
    pub(super) gate: &'a Gate,
    pub(super) id: HoldId,
    pub(super) record: &'a mut Record,
    /// In which errors are told; known once the route is.
    pub(super) shape: &'a mut Shape,
    pub(super) now: Timestamp,
    pub(super) effects: Vec<Effect>,
}

impl<'a> Step<'a> {
    pub(super) fn new(
        gate: &'a Gate,
        id: HoldId,
        record: &'a mut Record,
        shape: &'a mut Shape,
        now: Timestamp,
    ) -> Self {
        Self { gate, id, record, shape, now, effects: Vec::new() }
    }

    pub(super) fn into_effects(self) -> Vec<Effect> {
        self.effects
    }

    /// A host takes an increment of nothing for a mistake.
    pub(super) fn count(&mut self, metric: Metric, by: u64) {
        if by > 0 {
            self.effects.push(Effect::Count(metric, by));
        }
    }

    /// One value of a histogram, which may be zero.
    pub(super) fn observe(&mut self, metric: Metric, value: u64) {
        self.effects.push(Effect::Count(metric, value));
    }

    pub(super) fn decide(&mut self, outcome: Outcome, limit: Option<usize>) {
        self.record.decision = Some(outcome);
        self.record.limit =
            limit.and_then(|index| self.gate.config.limits.get(index)).map(|rule| rule.name.clone());
        self.count(Metric::Decisions { outcome, limit }, 1);
    }

    pub(super) fn reply(&mut self, problem: &Problem<'_>) -> State {
        self.reply_with(problem.reply(*self.shape))
    }

    pub(super) fn reply_with(&mut self, reply: Reply) -> State {
        self.record.status = Status::Refused;
        self.effects.push(Effect::Reply(reply));
        State::Replied
    }

    /// A limit says no.
    pub(super) fn refuse(
        &mut self,
        account: &Account,
        reason: Reason,
        standing: Standing,
        requested: Requested,
    ) -> State {
        let outcome = match reason {
            Reason::NotYet { .. } => Outcome::OverLimit,
            Reason::Never { .. } => Outcome::NeverFits,
            Reason::Suspended => Outcome::Suspended,
        };
        self.decide(outcome, Some(account.rule));
        let config = &self.gate.config;
        // The index came from this very list.
        let Some(limit) = config.limits.get(account.rule) else {
            return self.reply(&Problem::StoreUnavailable);
        };
        let refused = Refused { limit, reason, standing, requested };
        let mut reply = Problem::Refused(refused).reply(*self.shape);
        reply.headers.extend(limits::headers(&config.response.headers, &[(limit, standing)], self.now));
        self.reply_with(reply)
    }

    /// The budgets cannot be asked, so nothing is let through.
    pub(super) fn unavailable(&mut self, kind: StoreErrorKind) -> State {
        self.count(Metric::StoreErrors { kind }, 1);
        self.decide(Outcome::StoreUnavailable, None);
        self.reply(&Problem::StoreUnavailable)
    }

    /// A call to the counter service has ended so.
    pub(super) fn hear<T>(&mut self, call: metrics::Call, word: Result<T, Outage>) -> Result<T, Outage> {
        if let Some(service) = &self.gate.service {
            service.learn(&word, self.now);
        }
        let outcome = word.as_ref().map_or_else(|outage| outage.outcome(), |_| Some(CallOutcome::Answered));
        if let Some(outcome) = outcome {
            self.count(Metric::CounterCalls { call, outcome }, 1);
        }
        word
    }

    /// To be told to the counter service, where there is one.
    pub(super) fn post(&mut self, letter: Letter) {
        if let Some(service) = &self.gate.service {
            let lost = service.post(letter);
            self.count(Metric::Settlements { outcome: SettledAs::Lost }, lost);
            self.effects.push(Effect::Wake);
        }
    }

    pub(super) fn limit_name(&self, rule: usize) -> String {
        self.gate.config.limits.get(rule).map(|rule| rule.name.clone()).unwrap_or_default()
    }

    pub(super) fn unidentified(&mut self, attribute: &str) -> State {
        self.decide(Outcome::Unidentified, None);
        self.reply(&Problem::Unidentified { attribute })
    }

    pub(super) fn refuse_body(&mut self, reason: BodyReason, hint: String) -> State {
        self.count(Metric::BodiesRefused { reason }, 1);
        self.decide(Outcome::BadRequest, None);
        self.reply(&Problem::Body { reason, hint })
    }

    /// The caller's own accounts, in whole tokens and requests, and in dollars.
    pub(super) fn tell(&mut self, accounts: &[Account], standings: &[Option<Standing>]) -> State {
        let account = |(account, standing): (&Account, &Option<Standing>)| {
            let (unit, standing) = (account.unit, standing.as_ref()?);
            Some(json!({
                "limit": self.gate.config.limits.get(account.rule)?.name,
                "unit": unit.name(),
                "amount": number(unit.floor(standing.capacity)),
                "spent": number(unit.ceil(standing.spent)),
                "held": number(unit.ceil(standing.held)),
                "remaining": number(unit.floor(standing.remaining())),
                "reset_ms": standing.reset.as_millis(),
            }))
        };
        let accounts: Vec<_> = accounts.iter().zip(standings).filter_map(account).collect();
        self.reply_with(Reply {
            status: 200,
            headers: vec![
                ("content-type", "application/json".to_owned()),
                ("cache-control", "no-store".to_owned()),
            ],
            body: json!({ "accounts": accounts }).to_string(),
            details: "tollgate_budget",
        })
    }

    /// Tells the access log how it went, where there is something to tell.
    pub(super) fn close_record(&mut self) {
        if let Some(line) = self.record.line(self.id) {
            self.effects.push(Effect::Record(line));
        }
    }
}

//! From the question put to the store to the upstream, or to a refusal.
//!
//! This proxy's memory answers at once. The counter service answers in a callback of its own, or not at all:
//! then the policy says how requests go on, and whatever the service may have done with the question is put
//! right by the settlement of the same id.

use tollgate_budget::wire::Purpose;
use tollgate_budget::{Decision, Grant, Reason, Refusal, Span, Standing, Tokens, Toll};

use super::admit::kind;
use super::answer::bytes_of;
use super::state::{Answer, Asking, Call, Open, Refusing, Rewrite, State};
use super::{Effect, Step};
use crate::config::OnOutage;
use crate::local::{Place, Reserved, StoreError};
use crate::metrics::{self, Metric, Outcome, StoreErrorKind};
use crate::plan::{Account, Granted, Heard};
use crate::remote::{self, Letter, Outage, Question, Said};
use crate::reply::{Requested, limits};
use crate::usage::HideUsage;

/// The host ends a call at the policy's time-out. One that it does not end is given up this much later.
const HOST_GRACE: Span = Span::from_secs(1);

/// Of a request that passes without the service's word.
const NOTHING_KNOWN: Grant = Grant { standings: Vec::new(), shadow_over: Vec::new() };

impl Asking {
    pub(super) fn ask(self, step: &mut Step<'_>) -> State {
        step.record.estimate = Some(self.estimate);
        let config = &step.gate.config;
        match &step.gate.service {
            None => {
                step.effects.push(Effect::Reserve(self.plan.reservation(self.estimate.toll(), &config.hold)));
                State::Asking(Box::new(self))
            }
            Some(_) if self.plan.accounts.is_empty() => self.forward(&NOTHING_KNOWN, By::Counter, step),
            Some(service) if service.is_asked(step.now) => {
                let hold = self.plan.hold(Purpose::Take, self.estimate.toll(), config);
                step.effects.push(Effect::Ask(Question::hold(&hold)));
                State::Asking(Box::new(self))
            }
            Some(_) => self.without_counter(step),
        }
    }

    pub(super) fn asked(self, step: &Step<'_>) -> State {
        State::Asking(Box::new(Self { call: Call::Waiting { since: step.now }, ..self }))
    }

    pub(super) fn tick(self, step: &mut Step<'_>) -> State {
        let patience = step.gate.config.store.counter.as_ref().map(|counter| counter.timeout);
        match (self.call, patience) {
            (Call::Waiting { since }, Some(timeout))
                if step.now.since(since) > timeout.saturating_add(HOST_GRACE) =>
            {
                self.answered(Ok(None), step)
            }
            (Call::Waiting { .. } | Call::None | Call::Unanswered, _) => State::Asking(Box::new(self)),
        }
    }

    pub(super) fn answered(mut self, said: Said<'_>, step: &mut Step<'_>) -> State {
        if let Call::Waiting { since } = self.call {
            step.observe(
                Metric::CounterCallMillis { call: metrics::Call::Holds },
                step.now.since(since).as_millis(),
            );
        }
        let charges = self.plan.accounts.len();
        match step.hear(metrics::Call::Holds, remote::decision(said, charges)) {
            Ok(Decision::Granted(grant)) => self.forward(&grant, By::Counter, step),
            Ok(Decision::Refused(refusal)) => {
                refuse(&self.plan.accounts, &refusal, self.estimate.toll(), step)
            }
            // An id of ours that was settled before it was asked for: not ours after all.
            Ok(Decision::AlreadySettled) => step.unavailable(StoreErrorKind::Unreadable),
            // Asked again it may have room. That this subject's account is not kept is no outage of others'.
            Err(Outage::Full) => {
                self.take_back(step);
                step.unavailable(StoreErrorKind::Full)
            }
            Err(_) => {
                self.call = match self.call {
                    Call::None => Call::None,
                    Call::Waiting { .. } | Call::Unanswered => Call::Unanswered,
                };
                self.without_counter(step)
            }
        }
    }

    fn without_counter(self, step: &mut Step<'_>) -> State {
        let Some(counter) = &step.gate.config.store.counter else {
            return step.unavailable(StoreErrorKind::Unreadable);
        };
        step.count(Metric::OutageRequests { verdict: counter.on_outage }, 1);
        match counter.on_outage {
            OnOutage::Local => {
                let hold = &step.gate.config.hold;
                let share = self.plan.reservation_of_share(self.estimate.toll(), hold, counter.gateways);
                step.effects.push(Effect::Reserve(share));
                State::Asking(Box::new(self))
            }
            OnOutage::Allow => self.forward(&NOTHING_KNOWN, By::Nobody, step),
            OnOutage::Deny => {
                self.take_back(step);
                step.unavailable(StoreErrorKind::Away)
            }
        }
    }

    pub(super) fn decided(self, answer: Result<Reserved, StoreError>, step: &mut Step<'_>) -> State {
        let decision = match answer {
            Ok(Reserved { decision: Decision::Granted(grant), places }) => {
                return self.forward(&grant, By::Memory(places), step);
            }
            Ok(Reserved { decision, .. }) => Ok(decision),
            Err(error) => Err(error),
        };
        self.take_back(step);
        match decision {
            // What is too much for a share need not be too much for the whole.
            Ok(Decision::Refused(Refusal { reason: Reason::Never { .. }, .. }))
                if step.gate.service.is_some() =>
            {
                step.unavailable(StoreErrorKind::Away)
            }
            Ok(Decision::Refused(refusal)) => {
                refuse(&self.plan.accounts, &refusal, self.estimate.toll(), step)
            }
            // As above.
            Ok(Decision::Granted(_) | Decision::AlreadySettled) => {
                step.unavailable(StoreErrorKind::Unreadable)
            }
            Err(error) => step.unavailable(kind(&error)),
        }
    }

    fn forward(self, grant: &Grant, by: By, step: &mut Step<'_>) -> State {
        let shadowed = grant.shadow_over.first().and_then(|index| self.plan.accounts.get(*index));
        match shadowed {
            Some(account) => step.decide(Outcome::Shadowed, Some(account.rule)),
            None => step.decide(Outcome::Granted, None),
        }
        let mut announce = announcement(&self.plan.accounts, &grant.standings, step);
        announce.extend(by.way_around(step));
        for (account, place) in self.plan.accounts.iter().zip(by.places()) {
            if place.is_overflow() {
                step.count(Metric::OverflowCharges { limit: account.rule }, 1);
                announce.push((limits::OVERFLOW_NAME, step.limit_name(account.rule)));
            }
        }
        let hide = match self.rewrite {
            Rewrite::Nothing => HideUsage::Keep,
            Rewrite::AskForUsage { replaced, with } => {
                step.effects.push(Effect::ReplaceRequestBody { replaced, with });
                HideUsage::Hide
            }
        };
        match self.call {
            Call::None => {}
            Call::Waiting { .. } | Call::Unanswered => step.effects.push(Effect::ResumeRequest),
        }
        let hold: Granted = match by {
            By::Memory(places) => self.plan.granted(places),
            By::Counter => self.plan.granted_remotely(Heard::Yes),
            By::Nobody => self.plan.granted_remotely(Heard::No),
        };
        State::Open(Box::new(Open {
            covered: self.estimate.output,
            ask_at: bytes_of(self.estimate.output),
            hold,
            estimate: self.estimate,
            reading: self.reading,
            hide,
            announce,
            renewed: step.now,
            answer: Answer::Awaited,
        }))
    }

    /// The stream ended before the store answered.
    pub(super) fn abandon(&self, step: &mut Step<'_>) -> State {
        match &step.gate.service {
            None => {
                let reservation = self.plan.reservation(self.estimate.toll(), &step.gate.config.hold);
                step.effects.push(Effect::Withdraw(reservation));
            }
            Some(_) => self.take_back(step),
        }
        step.close_record();
        State::Ended
    }

    /// The request goes nowhere, whatever the counter service made of the question.
    fn take_back(&self, step: &mut Step<'_>) {
        match self.call {
            Call::None => {}
            Call::Waiting { .. } | Call::Unanswered => {
                step.post(Letter::Settlement(self.plan.withdrawal()));
            }
        }
    }
}

/// Who let a request pass.
enum By {
    /// This proxy's memory, in these places.
    Memory(Vec<Place>),
    Counter,
    /// The policy, while the counter service is away.
    Nobody,
}

impl By {
    fn places(&self) -> &[Place] {
        match self {
            Self::Memory(places) => places,
            Self::Counter | Self::Nobody => &[],
        }
    }

    /// Says that the counter service, where there is one, had no word in it.
    fn way_around(&self, step: &Step<'_>) -> Option<(&'static str, String)> {
        step.gate.service.as_ref()?;
        let word = match self {
            Self::Memory(_) => "local",
            Self::Nobody => "allow",
            Self::Counter => return None,
        };
        Some((limits::OUTAGE_NAME, word.to_owned()))
    }
}

fn announcement(
    accounts: &[Account],
    standings: &[Standing],
    step: &Step<'_>,
) -> Vec<(&'static str, String)> {
    let config = &step.gate.config;
    let told = accounts.iter().zip(standings);
    let told: Vec<_> =
        told.filter_map(|(account, standing)| Some((config.limits.get(account.rule)?, *standing))).collect();
    limits::headers(&config.response.headers, &told, step.now)
}

impl Refusing {
    /// Asks with the least that it can cost, which is too much for the account that set the ceiling.
    pub(super) fn ask(self, step: &mut Step<'_>) -> State {
        let config = &step.gate.config;
        match &step.gate.service {
            None => {
                step.effects.push(Effect::Check(self.plan.reservation(self.least(), &config.hold)));
                State::Refusing(self)
            }
            Some(service) if service.is_asked(step.now) => {
                let hold = self.plan.hold(Purpose::Check, self.least(), config);
                step.effects.push(Effect::Ask(Question::hold(&hold)));
                State::Refusing(self)
            }
            Some(_) => self.by_the_policy_alone(step),
        }
    }

    fn least(&self) -> Toll {
        Toll::held(self.more_than.saturating_add(Tokens::new(1)), self.output, self.caching)
    }

    pub(super) fn checked(self, answer: Result<Decision, StoreError>, step: &mut Step<'_>) -> State {
        match answer {
            Ok(decision) => self.said(&decision, step),
            Err(error) => step.unavailable(kind(&error)),
        }
    }

    pub(super) fn answered(self, said: Said<'_>, step: &mut Step<'_>) -> State {
        let charges = self.plan.accounts.len();
        match step.hear(metrics::Call::Holds, remote::decision(said, charges)) {
            Ok(decision) => self.said(&decision, step),
            Err(_) => self.by_the_policy_alone(step),
        }
    }

    fn said(&self, decision: &Decision, step: &mut Step<'_>) -> State {
        match decision {
            Decision::Refused(refusal) => self.refuse(*refusal, step),
            // A store that takes what its own limit can never grant is not to be believed.
            Decision::Granted(_) | Decision::AlreadySettled => step.unavailable(StoreErrorKind::Unreadable),
        }
    }

    /// What never fits needs no store to say so; only how the account stands is not known.
    fn by_the_policy_alone(&self, step: &mut Step<'_>) -> State {
        let least = self.least();
        let never = self.plan.accounts.iter().enumerate().find_map(|(charge, account)| {
            let largest = account.largest.min(account.limit.capacity());
            let standing = Standing::empty(&account.limit);
            (account.tariff.cost(least) > largest).then_some(Refusal {
                charge,
                reason: Reason::Never { largest },
                standing,
            })
        });
        match never {
            Some(refusal) => self.refuse(refusal, step),
            None => step.unavailable(StoreErrorKind::Away),
        }
    }

    fn refuse(&self, refusal: Refusal, step: &mut Step<'_>) -> State {
        let Some(account) = self.plan.accounts.get(refusal.charge) else {
            return step.unavailable(StoreErrorKind::Unreadable);
        };
        let cost = account.tariff.cost(Toll::held(self.more_than, self.output, self.caching));
        let requested = match account.tariff.rate().written {
            // The prompt does not count there.
            0 => Requested::Exactly(cost),
            _ => Requested::MoreThan(cost),
        };
        step.refuse(account, refusal.reason, refusal.standing, requested)
    }
}

pub(super) fn refuse(accounts: &[Account], refusal: &Refusal, toll: Toll, step: &mut Step<'_>) -> State {
    let Some(account) = accounts.get(refusal.charge) else {
        return step.unavailable(StoreErrorKind::Unreadable);
    };
    let requested = Requested::Exactly(account.tariff.cost(toll));
    step.refuse(account, refusal.reason, refusal.standing, requested)
}

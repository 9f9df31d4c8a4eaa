//! From a whole body to a decision, and from the decision to the upstream or to a refusal.

use tollgate_budget::{Decision, Reason, Refusal, Tokens, Unit};

use super::record;
use super::state::{Answer, Asking, Gathering, HeaderHold, Open, Request, State};
use super::{Effect, Step};
use crate::chat::{self, Chat, Delivery, Dialect, UsageAsk, rewrite};
use crate::config::{Target, Unreadable, UsageOption};
use crate::estimate::{self, Basis, Estimate, OverCeiling, bytes};
use crate::local::{Granted, StoreError};
use crate::metrics::{BodyReason, Metric, Outcome, StoreErrorKind};
use crate::plan::{self, Account, Plan, Toll};
use crate::reply::{Problem, Refused, Requested, limits};
use crate::usage::HideUsage;

/// A route that is charged by the request: its body is nobody's business.
pub(super) fn by_request(request: &Request, step: &mut Step<'_>) -> State {
    let plan = plan::counting_requests(step.gate, request, step.id);
    let nothing = Estimate { prompt: Tokens::ZERO, output: Tokens::ZERO, basis: Basis::Exact };
    Asking { plan, estimate: nothing, model: None, rewrite: Rewrite::Nothing }.ask(step)
}

impl Gathering {
    /// The accounts that count requests have been asked whether it is worth reading further.
    pub(super) fn checked(self, answer: Result<Decision, StoreError>, step: &mut Step<'_>) -> State {
        match answer {
            Ok(Decision::Granted(_)) => {
                step.effects.push(Effect::ReadBody { size: self.waiting });
                State::Gathering(self)
            }
            Ok(Decision::Refused(refusal)) => {
                let plan = plan::counting_requests(step.gate, &self.request, step.id);
                refuse(&plan.accounts, &refusal, |_| Requested::Exactly(1), step)
            }
            Err(error) => unavailable(error, step),
        }
    }

    pub(super) fn body(self, body: Option<&[u8]>, step: &mut Step<'_>) -> State {
        match body {
            Some(bytes) if bytes.len() >= self.waiting => self.read(bytes, step),
            Some(_) | None => self.unreadable(step),
        }
    }

    fn read(self, bytes: &[u8], step: &mut Step<'_>) -> State {
        let Some(dialect) = Dialect::of(self.request.api) else { return State::Passing };
        let chat = match chat::parse(dialect, bytes) {
            Ok(chat) => chat,
            Err(error) => return step.refuse_body(reason(error), error.to_string()),
        };
        let gate = step.gate;
        let name = chat.model.as_deref().unwrap_or_default();
        step.record.model = Some(record::name(name.as_bytes()));
        let model = gate.config.model_index(name);
        let accounts = plan::accounts(gate, &self.request, name);
        let rule = gate.config.model_rule(model);
        let ceiling = plan::ceiling(&accounts, estimate::output(&chat, rule, &gate.config.hold));
        let mut memo = gate.memo.borrow_mut();
        let estimate = estimate::estimate(
            &chat,
            rule,
            &gate.config.hold,
            ceiling.map(|(tokens, _)| tokens),
            memo.within(self.request.subject.scope()),
        );
        match (estimate, ceiling) {
            (Ok(estimate), _) => {
                let plan = Plan { id: step.id, accounts };
                let rewrite = self.rewrite(bytes, &chat, step);
                Asking { plan, estimate, model: Some(model), rewrite }.ask(step)
            }
            (Err(over), Some((_, account))) => never(account, over, step),
            // Without a ceiling nothing is over it.
            (Err(_), None) => self.unreadable(step),
        }
    }

    fn rewrite(&self, bytes: &[u8], chat: &Chat<'_>, step: &Step<'_>) -> Rewrite {
        let asked = match (step.gate.config.response.usage, chat.delivery, chat.usage) {
            (UsageOption::Inject, Delivery::Streamed, UsageAsk::Absent | UsageAsk::Refused) => false,
            (UsageOption::Inject | UsageOption::Leave, _, _) => true,
        };
        match self.headers {
            HeaderHold::Held { .. } if !asked => rewrite::include_usage(bytes, chat)
                .map_or(Rewrite::Nothing, |with| Rewrite::Body { replaced: self.waiting, with }),
            // Once the headers are gone, so is the length that they announce.
            HeaderHold::Held { .. } | HeaderHold::JustReleased | HeaderHold::Released => Rewrite::Nothing,
        }
    }

    fn unreadable(self, step: &mut Step<'_>) -> State {
        let gate = step.gate;
        match gate.config.body.unreadable {
            Unreadable::Refuse => step.refuse_body(
                BodyReason::Unreadable,
                "The request body is too large to be read here.".to_owned(),
            ),
            Unreadable::Estimate => {
                let model = gate.config.model_index("");
                let rule = gate.config.model_rule(model);
                let estimate = bytes::from_size(self.waiting as u64, rule, &gate.config.hold);
                let plan = Plan { id: step.id, accounts: plan::accounts(gate, &self.request, "") };
                Asking { plan, estimate, model: Some(model), rewrite: Rewrite::Nothing }.ask(step)
            }
        }
    }
}

/// What becomes of the body when the request is let through.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Rewrite {
    Nothing,
    /// The body that asks for usage, and the length of the one that does not.
    Body { replaced: usize, with: Vec<u8> },
}

impl Asking {
    fn ask(self, step: &mut Step<'_>) -> State {
        step.record.estimate = Some(self.estimate);
        let toll = Toll { input: self.estimate.prompt, output: self.estimate.output };
        step.effects.push(Effect::Reserve(self.plan.reservation(toll, &step.gate.config.hold)));
        State::Asking(Box::new(self))
    }

    pub(super) fn decided(self, answer: Result<Granted, StoreError>, step: &mut Step<'_>) -> State {
        match answer {
            Ok(granted) => match granted.decision {
                Decision::Granted(ref standings) => {
                    let standings = standings.clone();
                    self.forward(&granted, &standings, step)
                }
                Decision::Refused(refusal) => {
                    let toll = Toll { input: self.estimate.prompt, output: self.estimate.output };
                    let requested = |unit: Unit| Requested::Exactly(unit.whole_ceil(toll.of(unit)));
                    refuse(&self.plan.accounts, &refusal, requested, step)
                }
            },
            Err(error) => unavailable(error, step),
        }
    }
}

//! From a whole body to the question that it puts to the store.

use std::borrow::Cow;

use tollgate_budget::{Caching, Decision, Tokens, Toll, Unit};

use super::ask::refuse;
use super::record;
use super::state::{Asking, Call, Gathering, HeaderHold, Reading, Refusing, Request, Rewrite, State};
use super::{Effect, Step};
use crate::chat::{self, Answering, BodyError, Chat, Delivery, Dialect, UsageAsk, rewrite};
use crate::config::{LimitRule, Unreadable, UsageOption};
use crate::estimate::learned::Correction;
use crate::estimate::{self, Basis, Doubt, Estimate, OverCeiling, bytes};
use crate::local::StoreError;
use crate::metrics::{BodyReason, StoreErrorKind};
use crate::plan::{self, Payer, Plan};
use crate::usage;

/// A route that is charged by the request: its body is nobody's business.
pub(super) fn by_request(request: &Request, step: &mut Step<'_>) -> State {
    let estimate = Estimate {
        prompt: Tokens::ZERO,
        output: Tokens::ZERO,
        basis: Basis::Exact,
        text: Tokens::ZERO,
        correction: Correction::NONE,
        doubt: Doubt::Text,
        caching: Caching::Unmarked,
    };
    let plan = request.plan("", counts_requests, step);
    Asking { plan, estimate, reading: None, rewrite: Rewrite::Nothing, call: Call::None }.ask(step)
}

pub(super) fn counts_requests(rule: &LimitRule) -> bool {
    rule.unit == Unit::Requests
}

/// Counts requests, and whether it applies is known before the body is.
pub(super) fn counts_requests_of_any_model(rule: &LimitRule) -> bool {
    counts_requests(rule) && !rule.depends_on_model()
}

impl Request {
    pub(super) fn plan(&self, model: &str, counts: impl Fn(&LimitRule) -> bool, step: &Step<'_>) -> Plan {
        let config = &step.gate.config;
        let payer = Payer {
            subject: &self.subject,
            tier: self.tier,
            target: config.target(&self.path, self.api, model, self.tier),
        };
        Plan { id: step.id, accounts: step.gate.limits.accounts(config, &payer, counts) }
    }

    fn reading(&self, model: usize, answering: Answering) -> Option<Reading> {
        let dialect = usage::Dialect::of(self.api)?;
        Some(Reading { model, dialect, answering })
    }
}

impl Gathering {
    /// The accounts that count requests have said whether it is worth reading further.
    pub(super) fn checked(self, answer: Result<Decision, StoreError>, step: &mut Step<'_>) -> State {
        match answer {
            Ok(Decision::Granted(_) | Decision::AlreadySettled) => {
                step.effects.push(Effect::ReadBody { size: self.waiting });
                State::Gathering(self)
            }
            Ok(Decision::Refused(refusal)) => {
                let plan = self.request.plan("", counts_requests_of_any_model, step);
                refuse(&plan.accounts, &refusal, Toll::NO_TOKENS, step)
            }
            Err(error) => step.unavailable(kind(&error)),
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
        let mut chat = match chat::parse(dialect, bytes) {
            Ok(chat) => chat,
            Err(error) => return step.refuse_body(reason(error), error.to_string()),
        };
        if let Some(named) = self.request.path.model() {
            chat.model = Some(Cow::Owned(named.into_owned()));
        }
        let name = chat.model.as_deref().unwrap_or_default();
        step.record.model = Some(record::name(name.as_bytes()));
        let config = &step.gate.config;
        let model = config.model_index(name);
        let rule = config.model_rule(model);
        let plan = self.request.plan(name, |_| true, step);
        let output = estimate::output(&chat, rule, &config.hold);
        let ceiling = plan::ceiling(&plan.accounts, output, chat.caching);
        let estimate = estimate::estimate(
            &chat,
            rule,
            &config.hold,
            step.gate.correction(model),
            ceiling,
            step.gate.memo.borrow_mut().within(self.request.subject.scope()),
        );
        match estimate {
            Ok(estimate) => {
                let rewrite = self.rewrite(bytes, &chat, step);
                let reading = self.request.reading(model, chat.answering);
                Asking { plan, estimate, reading, rewrite, call: Call::None }.ask(step)
            }
            Err(OverCeiling { more_than }) => {
                Refusing { plan, more_than, output, caching: chat.caching }.ask(step)
            }
        }
    }

    /// Once the headers are gone, the length that they announce is a promise: the body stays as it is.
    fn rewrite(&self, bytes: &[u8], chat: &Chat<'_>, step: &Step<'_>) -> Rewrite {
        let wanted = match (step.gate.config.response.usage, chat.delivery, chat.usage) {
            (UsageOption::Inject, Delivery::Streamed, UsageAsk::Absent | UsageAsk::Refused) => true,
            (UsageOption::Inject, Delivery::Streamed, UsageAsk::Asked)
            | (UsageOption::Inject, Delivery::Whole, _)
            | (UsageOption::Leave, _, _) => false,
        };
        match (self.headers, wanted) {
            (HeaderHold::Held { .. }, true) => rewrite::include_usage(bytes, chat)
                .map_or(Rewrite::Nothing, |with| Rewrite::AskForUsage { replaced: self.waiting, with }),
            (HeaderHold::Held { .. }, false) | (HeaderHold::JustReleased | HeaderHold::Released, _) => {
                Rewrite::Nothing
            }
        }
    }

    fn unreadable(self, step: &mut Step<'_>) -> State {
        let config = &step.gate.config;
        match config.body.unreadable {
            Unreadable::Refuse => step.refuse_body(
                BodyReason::Unreadable,
                "The request body is too large to be read here.".to_owned(),
            ),
            Unreadable::Estimate => {
                let model = config.model_index("");
                let size = u64::try_from(self.waiting).unwrap_or(u64::MAX);
                let estimate = bytes::from_size(size, config.model_rule(model), &config.hold);
                let plan = self.request.plan("", |_| true, step);
                let reading = self.request.reading(model, Answering::Now);
                Asking { plan, estimate, reading, rewrite: Rewrite::Nothing, call: Call::None }.ask(step)
            }
        }
    }
}

pub(super) fn kind(error: &StoreError) -> StoreErrorKind {
    match error {
        StoreError::Full { .. } => StoreErrorKind::Full,
        StoreError::Contended { .. } => StoreErrorKind::Contended,
        StoreError::Host(_) | StoreError::Missing { .. } | StoreError::Unreadable { .. } => {
            StoreErrorKind::Unreadable
        }
    }
}

fn reason(error: BodyError) -> BodyReason {
    match error {
        BodyError::Empty => BodyReason::Missing,
        BodyError::NotJson { .. } | BodyError::NotUtf8 { .. } | BodyError::TooDeep => BodyReason::NotJson,
        BodyError::NotAnObject
        | BodyError::TooManyParts
        | BodyError::Batch
        | BodyError::WrongType { .. }
        | BodyError::Duplicate { .. } => BodyReason::Nonsense,
    }
}

//! From the upstream's first header to the settlement.

use tollgate_budget::{Span, Tokens};

use super::gather::{HeaderList, text};
use super::record::{OverHold, Status};
use super::state::{Answer, Open, State};
use super::{Body, Effect, Origin, Step};
use crate::config::HeaderFamily;
use crate::metrics::{Metric, TokenKind};
use crate::plan::Toll;
use crate::reply::limits;
use crate::usage::{Answered, Cost, Held, HideUsage, Outcome, Passed, Report, UsageMeter, charge};

/// A stream that outgrows its hold is charged for this many tokens more at a time: seldom enough to cost
/// nothing, often enough that the next request meets a fuller account.
const STEP: Tokens = Tokens::new(256);

impl Open {
    pub(super) fn response_headers(
        &mut self,
        headers: HeaderList<'_>,
        origin: Origin,
        step: &mut Step<'_>,
    ) {
        let status = text(headers, ":status").and_then(|status| status.parse::<u16>().ok()).unwrap_or(0);
        self.answer = match (origin, status) {
            (Origin::Upstream, 200..=299) => self.follow(headers, step),
            (Origin::Upstream | Origin::Proxy, _) => Answer::Failed,
        };
        match (origin, status) {
            // A provider's own refusal speaks of the provider's limits.
            (Origin::Upstream, 429) => {}
            (Origin::Upstream | Origin::Proxy, _) => self.announce(headers, step),
        }
    }

    fn follow(&self, headers: HeaderList<'_>, step: &mut Step<'_>) -> Answer {
        let config = &step.gate.config;
        if self.hide == HideUsage::Hide && text(headers, "content-length").is_some() {
            // What is hidden makes the answer shorter than announced.
            step.effects.push(Effect::RemoveResponseHeader("content-length"));
        }
        Answer::Followed(Box::new(UsageMeter::new(config.model_rule(self.model).tokenizer, self.hide)))
    }

    /// Our headers replace the upstream's of the same names, and those that we have no value for.
    fn announce(&mut self, headers: HeaderList<'_>, step: &mut Step<'_>) {
        let ours = std::mem::take(&mut self.announce);
        for family in &step.gate.config.response.headers {
            let names: &[&'static str] = match family {
                HeaderFamily::TokenLimit => &limits::TOKEN_LIMIT_NAMES,
                HeaderFamily::OpenAi => &limits::OPENAI_NAMES,
            };
            let stale = names.iter().copied().filter(|name| {
                !ours.iter().any(|(own, _)| own == name) && headers.iter().any(|(found, _)| found == name)
            });
            step.effects.extend(stale.map(Effect::RemoveResponseHeader));
        }
        step.effects.extend(ours.into_iter().map(|(name, value)| Effect::SetResponseHeader(name, value)));
    }

    pub(super) fn response_body(&mut self, chunk: &[u8], body: Body, step: &mut Step<'_>) {
        let Answer::Followed(meter) = &mut self.answer else { return };
        let passed = meter.chunk(chunk);
        let held_back = match body {
            Body::Goes => Vec::new(),
            Body::Ends => meter.finish(),
        };
        match (passed, held_back.is_empty()) {
            (Passed::AsIs, true) => {}
            (Passed::AsIs, false) => {
                step.effects.push(Effect::ReplaceResponseBody([chunk, &held_back].concat()));
            }
            (Passed::Instead(bytes), _) => {
                step.effects.push(Effect::ReplaceResponseBody([bytes, held_back].concat()));
            }
        }
        let seen = meter.seen();
        if seen > self.covered {
            self.outgrow(seen, step);
        }
        self.keep_lease(step);
    }

    fn outgrow(&mut self, seen: Tokens, step: &mut Step<'_>) {
        if step.record.over_hold == OverHold::No {
            step.record.over_hold = OverHold::Yes;
            step.count(Metric::StreamsOverHold, 1);
        }
        let steps = seen.saturating_sub(self.covered).count().div_ceil(STEP.count());
        let more = STEP.saturating_mul(steps);
        self.covered = self.covered.saturating_add(more);
        step.effects.push(Effect::Grow(self.plan.growth(more)));
    }

    /// A hold lives as long as its stream: renewed when half its lease is over.
    pub(super) fn keep_lease(&mut self, step: &mut Step<'_>) {
        let lease = step.gate.config.hold.lease;
        if step.now.since(self.renewed) >= Span::from_millis(lease.as_millis() / 2) {
            self.renewed = step.now;
            step.effects.push(Effect::Renew(self.plan.renewal(lease)));
        }
    }

    pub(super) fn settle(mut self, step: &mut Step<'_>) -> State {
        let held = Held { prompt: self.estimate.prompt, output: self.estimate.output };
        let cost = match &mut self.answer {
            // The prompt went out, and nobody stayed to see what came back.
            Answer::Awaited => Cost { input: held.prompt, output: Tokens::ZERO, outcome: Outcome::Estimate },
            Answer::Failed => Cost { input: Tokens::ZERO, output: Tokens::ZERO, outcome: Outcome::NoCharge },
            Answer::Followed(meter) => {
                // On a broken stream the bytes still held back have no one to go to.
                let _nobody = meter.finish();
                let report = meter.report();
                self.measure(&report, step);
                charge(&report, held)
            }
        };
        step.record.status = match &self.answer {
            Answer::Awaited => Status::ClientDisconnect,
            Answer::Failed => Status::UpstreamError,
            Answer::Followed(meter) => meter.report().into(),
        };
        step.record.actual = Some(cost);
        step.count(Metric::Tokens { kind: TokenKind::Input, model: self.model }, cost.input.count());
        step.count(Metric::Tokens { kind: TokenKind::Output, model: self.model }, cost.output.count());
        let toll = Toll { input: cost.input, output: cost.output };
        step.effects.push(Effect::Settle(self.plan.settlement(toll)));
        State::Ended
    }

    fn measure(&self, report: &Report, step: &mut Step<'_>) {
        let model = self.model;
        let Some(usage) = report.usage else {
            if report.answered == Answered::Output {
                step.count(Metric::UsageMissing { model }, 1);
            }
            return;
        };
        step.count(Metric::Tokens { kind: TokenKind::Cached, model }, usage.cached_input.count());
        step.count(Metric::Tokens { kind: TokenKind::Reasoning, model }, usage.reasoning.count());
        if let Some(input) = usage.input {
            step.count(Metric::EstimatedInput { model }, self.estimate.prompt.count());
            step.count(Metric::ReportedInput { model }, input.count());
        }
    }
}

//! From the upstream's first header to the settlement.

use tollgate_budget::{OnLeaseEnd, Span, Tokens, Toll};

use super::gather::text;
use super::record::{OverHold, Status};
use super::state::{Answer, Open, State};
use super::{Body, Effect, End, Origin, Step};
use crate::chat::Answering;
use crate::chat::body::is_coded;
use crate::estimate::Estimate;
use crate::identity::{Headers, header};
use crate::metrics::{Metric, Nearness, SettledAs, TokenKind};
use crate::remote::Letter;
use crate::reply::limits;
use crate::usage::{Answered, HideUsage, Passed, Report, UsageMeter, charge};

/// A stream that outgrows its hold is charged for this many tokens more at a time: seldom enough to cost
/// nothing, often enough that the next request meets a fuller account.
const STEP: Tokens = Tokens::new(256);

/// A token has at least a byte, and no factor in use makes more than four of one.
const MOST_PER_BYTE: u64 = 4;

/// The least bytes of text that so many tokens take. To ask a meter for tokens takes time that grows with a
/// run of text that does not break, and a chunk is mostly not text: so the bytes of text say when to ask.
pub(super) const fn bytes_of(tokens: Tokens) -> u64 {
    tokens.count() / MOST_PER_BYTE
}

impl Open {
    pub(super) fn response_headers(&mut self, headers: &Headers<'_>, origin: Origin, step: &mut Step<'_>) {
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

    fn follow(&self, headers: &Headers<'_>, step: &mut Step<'_>) -> Answer {
        let Some(reading) = self.reading else { return Answer::Uncounted };
        if self.hide == HideUsage::Hide && text(headers, "content-length").is_some() {
            // What is hidden makes the answer shorter than announced.
            step.effects.push(Effect::RemoveResponseHeader("content-length"));
        }
        let tokenizer = step.gate.config.model_rule(reading.model).tokenizer;
        let coded = text(headers, "content-encoding").is_some_and(is_coded);
        let meter = if coded {
            UsageMeter::unreadable(tokenizer)
        } else if text(headers, "content-type").is_some_and(is_event_stream) {
            UsageMeter::new(reading.dialect, tokenizer, self.hide).announced_as_events()
        } else {
            UsageMeter::new(reading.dialect, tokenizer, self.hide)
        };
        Answer::Followed { meter: Box::new(meter), reading }
    }

    /// Where headers are not held, an upstream may answer before it has seen the body: its own headers then
    /// went by before there was a hold to speak of.
    fn follow_unannounced(&mut self, step: &Step<'_>) {
        if let (Answer::Awaited, Some(reading)) = (&self.answer, self.reading) {
            let tokenizer = step.gate.config.model_rule(reading.model).tokenizer;
            let meter = Box::new(UsageMeter::new(reading.dialect, tokenizer, self.hide));
            self.answer = Answer::Followed { meter, reading };
        }
    }

    pub(super) fn follows(&self) -> bool {
        match self.answer {
            Answer::Awaited | Answer::Followed { .. } => true,
            Answer::Failed | Answer::Uncounted => false,
        }
    }

    /// Our headers replace the upstream's of the same names, and those that we have no value for.
    fn announce(&mut self, headers: &Headers<'_>, step: &mut Step<'_>) {
        let ours = std::mem::take(&mut self.announce);
        for family in &step.gate.config.response.headers {
            let stale = limits::names(*family)
                .filter(|name| !ours.iter().any(|(own, _)| own == name) && header(headers, name).is_some());
            step.effects.extend(stale.map(Effect::RemoveResponseHeader));
        }
        step.effects.extend(ours.into_iter().map(|(name, value)| Effect::SetResponseHeader(name, value)));
    }

    pub(super) fn response_body(&mut self, chunk: &[u8], body: Body, step: &mut Step<'_>) {
        self.follow_unannounced(step);
        let Answer::Followed { meter, .. } = &mut self.answer else { return };
        let passed = meter.chunk(chunk);
        let held_back = match body {
            Body::Goes => Vec::new(),
            Body::Ends => meter.finish(),
        };
        match (passed, held_back.is_empty()) {
            (Passed::AsIs, true) => {}
            (Passed::AsIs, false) => {
                let with = [chunk, &held_back].concat();
                step.effects.push(Effect::ReplaceResponseBody { replaced: chunk.len(), with });
            }
            (Passed::Instead(bytes), _) => {
                let with = [bytes, held_back].concat();
                step.effects.push(Effect::ReplaceResponseBody { replaced: chunk.len(), with });
            }
        }
        let text = meter.text_bytes();
        if text > self.ask_at {
            let seen = meter.seen();
            if seen > self.covered {
                self.outgrow(seen, step);
            }
            self.ask_at = text.saturating_add(bytes_of(self.covered.saturating_sub(seen)));
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
        let before = self.toll();
        self.covered = self.covered.saturating_add(more);
        if self.hold.is_local() {
            step.effects.push(Effect::Grow { id: self.hold.id, by: self.hold.growth(before, self.toll()) });
        }
        self.tell_of_renewal(step);
    }

    /// What the hold covers by now.
    fn toll(&self) -> Toll {
        Toll { output: self.covered, ..self.estimate.toll() }
    }

    fn tell_of_renewal(&self, step: &mut Step<'_>) {
        if let Some(renewal) = self.hold.renewal(self.toll(), step.gate.config.hold.lease) {
            step.post(Letter::Renewal(renewal));
        }
    }

    /// A hold lives as long as its stream: renewed when half its lease is over.
    pub(super) fn keep_lease(&mut self, step: &mut Step<'_>) {
        let lease = step.gate.config.hold.lease;
        if step.now.since(self.renewed) >= Span::from_millis(lease.as_millis() / 2) {
            self.renewed = step.now;
            if self.hold.is_local() {
                step.effects.push(Effect::Renew { id: self.hold.id, places: self.hold.places(), lease });
            }
            self.tell_of_renewal(step);
        }
    }

    pub(super) fn settle(mut self, end: End, step: &mut Step<'_>) -> State {
        let held = self.estimate.toll();
        let later = self.reading.is_some_and(|reading| reading.answering == Answering::Later);
        let toll = match &mut self.answer {
            Answer::Awaited => match end {
                // Nobody need stay for an answer that is fetched later.
                End::Client | End::Complete if later => return self.leave_open(step),
                // The prompt went out, and nobody stayed to see what came back.
                End::Client | End::Complete => {
                    step.record.status = Status::ClientDisconnect;
                    Toll { output: Tokens::ZERO, ..held }
                }
                End::Upstream => {
                    step.record.status = Status::UpstreamError;
                    Toll::NO_TOKENS
                }
            },
            Answer::Failed => {
                step.record.status = Status::UpstreamError;
                Toll::NO_TOKENS
            }
            Answer::Uncounted => {
                step.record.status = Status::Ok;
                Toll::NO_TOKENS
            }
            Answer::Followed { meter, reading } => {
                // On a broken stream the bytes still held back have no one to go to.
                let _nobody = meter.finish();
                let report = meter.report();
                step.count(Metric::EventsTooLarge, meter.too_large());
                step.record.status = status(&report, end);
                match (report.usage, report.answered, end) {
                    // The provider goes on, and whoever fetches the answer learns what it cost.
                    (None, Answered::Nothing | Answered::Output | Answered::Unreadable, _) if later => {
                        return self.leave_open(step);
                    }
                    // Broken off before any token, which an error status would have said as well.
                    (None, Answered::Nothing, End::Upstream) => Toll::NO_TOKENS,
                    (_, _, _) => {
                        let toll = charge(&report, held).toll;
                        measure(reading.model, &report, toll, &self.estimate, step);
                        toll
                    }
                }
            }
        };
        step.record.actual = Some(toll);
        if self.hold.is_local() {
            step.effects.push(Effect::Settle { id: self.hold.id, spent: self.hold.spent(toll) });
        }
        if let Some(settlement) = self.hold.settlement(toll) {
            step.post(Letter::Settlement(settlement));
        }
        step.close_record();
        State::Ended
    }

    /// The hold ends with its lease. One that the counter service may never have heard of would not: what its
    /// lease would come to is charged at once.
    fn leave_open(self, step: &mut Step<'_>) -> State {
        let held = self.toll();
        match step.gate.config.hold.on_lease_end {
            OnLeaseEnd::Charge if !self.hold.is_kept_remotely() => {
                self.hold.settlement(held).into_iter().for_each(|end| step.post(Letter::Settlement(end)));
            }
            OnLeaseEnd::Charge | OnLeaseEnd::Release => {}
        }
        step.record.status = Status::Ok;
        step.count(Metric::Settlements { outcome: SettledAs::Later }, 1);
        step.close_record();
        State::Ended
    }
}

fn is_event_stream(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case("text/event-stream")
}

fn status(report: &Report, end: End) -> Status {
    match (report.answered, end) {
        (Answered::ErrorOnly | Answered::OutputThenError, _) | (_, End::Upstream) => Status::UpstreamError,
        (Answered::Nothing | Answered::Output | Answered::Unreadable, End::Complete) => Status::Ok,
        (Answered::Nothing | Answered::Output | Answered::Unreadable, End::Client) => {
            Status::ClientDisconnect
        }
    }
}

fn measure(model: usize, report: &Report, toll: Toll, estimate: &Estimate, step: &mut Step<'_>) {
    step.count(Metric::Tokens { kind: TokenKind::Input, model }, toll.input.count());
    step.count(Metric::Tokens { kind: TokenKind::Output, model }, toll.output.count());
    match (report.usage, report.answered) {
        (Some(usage), _) => {
            step.count(Metric::Tokens { kind: TokenKind::Cached, model }, usage.cached_input.count());
            step.count(Metric::Tokens { kind: TokenKind::Reasoning, model }, usage.reasoning.count());
            if let Some(input) = usage.input {
                step.count(Metric::EstimatedInput { model }, estimate.uncorrected().count());
                step.count(Metric::ReportedInput { model }, input.count());
                // Whoever reports nothing at all for a prompt has not read it.
                if input > Tokens::ZERO {
                    learn(model, estimate, input, step);
                }
            }
        }
        (None, Answered::Output | Answered::OutputThenError | Answered::Unreadable) => {
            step.count(Metric::UsageMissing { model }, 1);
        }
        (None, Answered::Nothing | Answered::ErrorOnly) => {}
    }
}

fn learn(model: usize, estimate: &Estimate, input: Tokens, step: &mut Step<'_>) {
    let outcome = Nearness::of(estimate.prompt, input);
    step.count(Metric::InputEstimates { model, outcome }, 1);
    if let Some(reported) = estimate.reported_text(input) {
        step.effects.push(Effect::Learn { model, estimated: estimate.text, reported });
    }
}

//! From the request's headers to its whole body.

use tollgate_budget::{Span, Toll};

use super::gate;
use super::record;
use super::state::{Gathering, HeaderHold, Request, State};
use super::{Body, Effect, Step, admit};
use crate::chat::Dialect;
use crate::chat::body::{self, Unread};
use crate::config::{Api, RequestPath, TierStanding, Upgrades};
use crate::identity::{self, Caller, Headers, header};
use crate::metrics::{self, BodyReason, Metric, StoreErrorKind};
use crate::plan::{self, Account};
use crate::remote::{self, Question, Said};
use crate::reply::Shape;

/// How long a host may hold headers without showing a byte of the body before we suspect that it cannot.
/// No client is refused for it: the headers are let go, and the decision falls with the body.
const HOLD_WITHOUT_BODY: Span = Span::from_secs(2);

/// A body of this size takes longer to read and count than a look at the accounts that count requests.
const LOOK_FIRST: usize = 16 * 1024;

pub(super) fn request_headers(caller: Caller<'_>, body: Body, step: &mut Step<'_>) -> State {
    let headers = caller.headers;
    let method = text(headers, ":method").unwrap_or_default();
    // A path that is not text is still a path to some upstream.
    let path = header(headers, ":path").unwrap_or_default();
    let path = RequestPath::new(&String::from_utf8_lossy(path));
    if method.eq_ignore_ascii_case("GET") && step.gate.config.is_budget_path(&path) {
        *step.shape = Shape::spoken_by(headers);
        return look(caller, step);
    }
    let Some(api) = step.gate.config.route(&path) else { return State::Passing };
    *step.shape = Shape::of(api, headers);
    if api == Api::Free {
        return State::Passing;
    }
    if is_upgrade(headers) {
        return upgrade(method, step);
    }
    match body {
        // Listing or deleting what a provider has stored costs no tokens. But whatever has a body may be read as
        // a request by some upstream, which a method in lower case or an override header turns into a POST.
        Body::Ends if !method.eq_ignore_ascii_case("POST") => State::Passing,
        Body::Ends | Body::Goes => metered(api, path, caller, body, step),
    }
}

/// An upgrade has no body that ends, so it cannot be metered. A POST that asks for one may be answered as the
/// request that it also is, so the policy's leave is not for it.
fn upgrade(method: &str, step: &mut Step<'_>) -> State {
    match (step.gate.config.upgrades, method) {
        (Upgrades::Pass, "GET" | "CONNECT") => State::Passing,
        (Upgrades::Pass | Upgrades::Refuse, _) => step.refuse_body(
            BodyReason::Upgrade,
            "Upgrades (WebSocket and others) are not served on this path.".to_owned(),
        ),
    }
}

fn metered(api: Api, path: RequestPath, caller: Caller<'_>, body: Body, step: &mut Step<'_>) -> State {
    let headers = caller.headers;
    let subject = match identity::identify(caller, &step.gate.config) {
        Ok(subject) => subject,
        Err(missing) => {
            return step.unidentified(&missing.attribute);
        }
    };
    step.record.tenant = step.gate.config.attribute("tenant").map(|i| record::name(subject.value(i)));
    let tier = subject.tier(&step.gate.config);
    if tier.standing == TierStanding::Unknown {
        step.count(Metric::UnknownTiers, 1);
    }
    let request = Request { api, path, subject, tier };
    match Dialect::of(api) {
        Some(_) => gather(request, headers, body, step),
        None => {
            strip(headers, step);
            admit::by_request(&request, step)
        }
    }
}

fn gather(request: Request, headers: &Headers<'_>, body: Body, step: &mut Step<'_>) -> State {
    let config = &step.gate.config;
    let length = text(headers, "content-length");
    if let Err(unread) = body::admit(&config.body, length, text(headers, "content-encoding")) {
        return refuse_unread(unread, step);
    }
    match body {
        Body::Ends => step.refuse_body(BodyReason::Missing, "The request has no body.".to_owned()),
        Body::Goes => {
            strip(headers, step);
            // Usage is read from the answer, so the answer must come as text.
            step.effects.push(Effect::SetRequestHeader("accept-encoding", "identity".to_owned()));
            let headers = match step.gate.headers() {
                how @ (gate::Headers::Hold | gate::Headers::Try) => HeaderHold::Held { how, since: step.now },
                gate::Headers::LetGo => HeaderHold::Released,
            };
            State::Gathering(Gathering { request, headers, waiting: 0 })
        }
    }
}

fn refuse_unread(unread: Unread, step: &mut Step<'_>) -> State {
    match unread {
        Unread::TooLarge { max } => {
            step.refuse_body(BodyReason::TooLarge, format!("The request body is larger than {max} bytes."))
        }
        Unread::Compressed => step.refuse_body(
            BodyReason::Compressed,
            "Compressed request bodies are not accepted here. Send the body without content-encoding."
                .to_owned(),
        ),
    }
}

/// Orders that a proxy takes from a client where it does not know that it stands at the edge: to repeat a
/// request, for which the provider would be paid each time, or to give up on the answer.
const ORDERS: [&str; 4] = ["x-envoy-retr", "x-envoy-max-retries", "x-envoy-hedge", "x-envoy-upstream-rq-"];

/// Headers that name the caller to us and are not the upstream's business, and orders to the proxy.
fn strip(headers: &Headers<'_>, step: &mut Step<'_>) {
    let names = step.gate.config.stripped_headers();
    let present = names.filter(|name| header(headers, name).is_some());
    step.effects.extend(present.map(|name| Effect::RemoveRequestHeader(name.to_owned())));
    let names = headers.iter().filter_map(|(name, _)| std::str::from_utf8(name).ok());
    let orders = names.filter(|name| ORDERS.iter().any(|order| name.starts_with(order)));
    step.effects.extend(orders.map(|name| Effect::RemoveRequestHeader(name.to_owned())));
}

fn look(caller: Caller<'_>, step: &mut Step<'_>) -> State {
    match identity::identify(caller, &step.gate.config) {
        Err(missing) => step.unidentified(&missing.attribute),
        Ok(subject) => {
            let tier = subject.tier(&step.gate.config);
            let accounts = step.gate.limits.own(&step.gate.config, &subject, tier);
            let question = match &step.gate.service {
                None => {
                    Effect::Look(accounts.iter().map(|account| account.charge(Toll::NO_TOKENS)).collect())
                }
                Some(_) if accounts.is_empty() => return step.tell(&[], &[]),
                Some(service) if service.is_asked(step.now) => {
                    Effect::Ask(Question::standings(plan::standings(&accounts)))
                }
                Some(_) => return step.unavailable(StoreErrorKind::Away),
            };
            step.effects.push(question);
            State::Looking(accounts)
        }
    }
}

/// The counter service has told how the caller's own accounts stand.
pub(super) fn looked(accounts: &[Account], said: Said<'_>, step: &mut Step<'_>) -> State {
    match step.hear(metrics::Call::Standings, remote::standings(said, accounts.len())) {
        Ok(standings) => {
            let standings: Vec<_> = standings.into_iter().map(Some).collect();
            step.tell(accounts, &standings)
        }
        Err(_) => step.unavailable(StoreErrorKind::Away),
    }
}

impl Gathering {
    pub(super) fn request_body(mut self, waiting: usize, body: Body, step: &mut Step<'_>) -> State {
        match self.headers {
            HeaderHold::Held { how: gate::Headers::Try, since } if waiting > 0 => {
                step.gate.shows_bodies();
                self.headers = HeaderHold::Held { how: gate::Headers::Hold, since };
            }
            HeaderHold::JustReleased if waiting > 0 => {
                step.gate.showed_a_body_late();
                self.headers = HeaderHold::Released;
            }
            HeaderHold::Held { .. } | HeaderHold::JustReleased | HeaderHold::Released => {}
        }
        self.waiting = waiting;
        if let Err(unread) = body::fits(&step.gate.config.body, waiting) {
            return refuse_unread(unread, step);
        }
        match body {
            Body::Goes => State::Gathering(self),
            Body::Ends => self.complete(step),
        }
    }

    /// The body is whole: its last bytes have come, or trailers follow it.
    pub(super) fn complete(self, step: &mut Step<'_>) -> State {
        if self.waiting == 0 {
            return step.refuse_body(BodyReason::Missing, "The request has no body.".to_owned());
        }
        step.effects.push(self.look_first(step).unwrap_or(Effect::ReadBody { size: self.waiting }));
        State::Gathering(self)
    }

    /// A caller who is out of requests need not have its prompt counted.
    fn look_first(&self, step: &Step<'_>) -> Option<Effect> {
        // To ask a service twice costs more than to count.
        if self.waiting <= LOOK_FIRST || step.gate.service.is_some() {
            return None;
        }
        let plan = self.request.plan("", admit::counts_requests_of_any_model, step);
        let check = || Effect::Check(plan.reservation(Toll::NO_TOKENS, &step.gate.config.hold));
        (!plan.accounts.is_empty()).then(check)
    }

    pub(super) fn tick(mut self, step: &mut Step<'_>) -> State {
        match self.headers {
            HeaderHold::Held { how: gate::Headers::Try, since }
                if step.now.since(since) >= HOLD_WITHOUT_BODY =>
            {
                step.count(Metric::HeadersReleased, 1);
                step.effects.push(Effect::ResumeRequest);
                self.headers = HeaderHold::JustReleased;
            }
            // Nothing came at once, so there was nothing: the client is slow, not the host unable.
            HeaderHold::JustReleased => self.headers = HeaderHold::Released,
            HeaderHold::Held { .. } | HeaderHold::Released => {}
        }
        State::Gathering(self)
    }
}

fn is_upgrade(headers: &Headers<'_>) -> bool {
    text(headers, "upgrade").is_some() || text(headers, ":protocol").is_some()
}

/// The first value of a header that is text.
pub(super) fn text<'a>(headers: &Headers<'a>, name: &str) -> Option<&'a str> {
    std::str::from_utf8(header(headers, name)?).ok()
}

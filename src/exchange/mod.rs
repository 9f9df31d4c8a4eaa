//! One request and its answer: a state machine that is told what happened and says what to do.
//!
//! [`Exchange::on`] is fed [`Input`]s and answers with the [`Effect`]s that its driver must carry out, in
//! order; some effects have an answer, which comes back as the next input. It owns no clock, draws no
//! random number and makes no call, so a whole exchange replays from a list of inputs.
//!
//! What must not go wrong is settling. A hold is taken by exactly one [`Effect::Reserve`] and ended by
//! exactly one [`Effect::Settle`], and the only input that settles is [`Input::Ended`], which a host
//! always delivers, and last: after the end of the answer, after trailers, when the client has left, when
//! the upstream broke off.

mod admit;
mod answer;
mod ask;
mod gate;
mod gather;
mod record;
mod state;
mod step;

use std::rc::Rc;

use tollgate_budget::{Decision, HoldId, Span, Standing, Timestamp, Tokens};

pub use gate::Gate;

use crate::identity::{Caller, Headers};
use crate::local::{LocalCharge, LocalReservation, Place, Reserved, Spent, StoreError};
use crate::metrics::{Metric, SettledAs};
use crate::remote::{Question, Said};
use crate::reply::{Reply, Shape};

use record::Record;
use state::{HeaderHold, State};
use step::Step;

/// What happened.
#[derive(Debug)]
pub enum Input<'a> {
    RequestHeaders {
        caller: Caller<'a>,
        body: Body,
    },
    /// Bytes of the body wait at the host: all that came since we first kept it waiting.
    RequestBody {
        waiting: usize,
        body: Body,
    },
    RequestTrailers,
    /// Answers [`Effect::ReadBody`]; `None` where the host does not show it.
    Body(Option<Vec<u8>>),
    /// Answers [`Effect::Check`].
    Checked(Result<Decision, StoreError>),
    /// Answers [`Effect::Reserve`].
    Decided(Result<Reserved, StoreError>),
    /// Answers [`Effect::Ask`] at once: the call is on its way.
    Asked,
    /// Answers [`Effect::Ask`], at once or in a callback of its own.
    Answered(Said<'a>),
    /// Answers [`Effect::Look`], in its order; `None` for an account that cannot be read.
    Standings(Vec<Option<Standing>>),
    ResponseHeaders {
        headers: &'a Headers<'a>,
        origin: Origin,
    },
    ResponseBody {
        chunk: &'a [u8],
        body: Body,
    },
    /// Some time has passed.
    Tick,
    /// The stream is over. Always arrives, and arrives last.
    Ended(End),
    /// Answers [`Effect::Settle`].
    Settled(SettledAs),
}

/// Whether more of a body is to come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Body {
    Goes,
    Ends,
}

/// Who wrote an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Origin {
    Upstream,
    /// The proxy itself, in the upstream's place.
    Proxy,
}

/// Who ended the stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// The answer was whole.
    Complete,
    /// The client left.
    Client,
    /// The upstream broke off, or the proxy gave up on it.
    Upstream,
}

/// What the driver must now do.
#[must_use = "an effect not carried out is a decision not enforced"]
#[derive(Clone, Debug)]
pub enum Effect {
    /// Read this much of the waiting body.
    ReadBody {
        size: usize,
    },
    /// Ask how [`LocalReservation`] would be decided, taking nothing.
    Check(LocalReservation),
    Reserve(LocalReservation),
    /// Ask the counter service.
    Ask(Question),
    /// There is mail for the counter service.
    Wake,
    /// Undo whatever [`Effect::Reserve`] may have taken.
    Withdraw(LocalReservation),
    /// Ask how the charges' accounts stand.
    Look(Vec<LocalCharge>),
    Settle {
        id: HoldId,
        spent: Vec<Spent>,
    },
    /// Charge a hold for more than it holds.
    Grow {
        id: HoldId,
        by: Vec<Spent>,
    },
    Renew {
        id: HoldId,
        places: Vec<Place>,
        lease: Span,
    },
    Reply(Reply),
    /// Let headers go that were held.
    ResumeRequest,
    SetRequestHeader(&'static str, String),
    RemoveRequestHeader(String),
    /// Put `with` in the place of the whole body of `replaced` bytes, and announce its length.
    ReplaceRequestBody {
        replaced: usize,
        with: Vec<u8>,
    },
    SetResponseHeader(&'static str, String),
    RemoveResponseHeader(&'static str),
    /// Put `with` in the place of the chunk of `replaced` bytes.
    ReplaceResponseBody {
        replaced: usize,
        with: Vec<u8>,
    },
    Count(Metric, u64),
    /// An answer told how good the count of its prompt's text was. May be told to the other workers later; they
    /// answer by way of [`Gate::correct`].
    Learn {
        /// Names the rule of the policy's models.
        model: usize,
        estimated: Tokens,
        reported: Tokens,
    },
    /// The packed field of the access log.
    Record(String),
}

impl Effect {
    /// Whether its outcome hangs on the time at which it is carried out.
    pub const fn asks_the_store(&self) -> bool {
        match self {
            Self::Check(_)
            | Self::Reserve(_)
            | Self::Withdraw(_)
            | Self::Look(_)
            | Self::Settle { .. }
            | Self::Grow { .. }
            | Self::Renew { .. }
            | Self::Ask(_) => true,
            Self::ReadBody { .. }
            | Self::Wake
            | Self::Reply(_)
            | Self::ResumeRequest
            | Self::SetRequestHeader(..)
            | Self::RemoveRequestHeader(_)
            | Self::ReplaceRequestBody { .. }
            | Self::SetResponseHeader(..)
            | Self::RemoveResponseHeader(_)
            | Self::ReplaceResponseBody { .. }
            | Self::Count(..)
            | Self::Learn { .. }
            | Self::Record(_) => false,
        }
    }
}

/// Whether the host is to pass on what it has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Flow {
    Continue,
    Pause,
}

/// One request and its answer.
#[derive(Debug)]
pub struct Exchange {
    gate: Rc<Gate>,
    id: HoldId,
    record: Record,
    shape: Shape,
    state: State,
}

impl Exchange {
    /// `id`: unlike any other hold's.
    pub fn new(gate: Rc<Gate>, id: HoldId) -> Self {
        Self { gate, id, record: Record::default(), shape: Shape::default(), state: State::Fresh }
    }

    pub fn on(&mut self, input: Input<'_>, now: Timestamp) -> Vec<Effect> {
        let state = std::mem::replace(&mut self.state, State::Ended);
        let mut step = Step::new(&self.gate, self.id, &mut self.record, &mut self.shape, now);
        self.state = transition(state, input, &mut step);
        step.into_effects()
    }

    /// What to do with the request's headers.
    pub fn headers_flow(&self) -> Flow {
        match &self.state {
            State::Gathering(gathering) => match gathering.headers {
                HeaderHold::Held { .. } => Flow::Pause,
                HeaderHold::JustReleased | HeaderHold::Released => Flow::Continue,
            },
            State::Asking(_) | State::Refusing(_) | State::Looking(_) | State::Replied => Flow::Pause,
            State::Fresh | State::Passing | State::Open(_) | State::Ended => Flow::Continue,
        }
    }

    /// What to do with the request's body, and with its trailers.
    pub fn body_flow(&self) -> Flow {
        match &self.state {
            // While the decision is open nothing may pass: a body that goes on takes its headers with it.
            State::Gathering(_)
            | State::Asking(_)
            | State::Refusing(_)
            | State::Looking(_)
            | State::Replied => Flow::Pause,
            State::Fresh | State::Passing | State::Open(_) | State::Ended => Flow::Continue,
        }
    }

    /// Whether time matters to it: headers are held, or a lease runs.
    pub fn needs_ticks(&self) -> bool {
        match &self.state {
            State::Gathering(_) | State::Asking(_) | State::Open(_) => true,
            State::Fresh
            | State::Passing
            | State::Refusing(_)
            | State::Looking(_)
            | State::Replied
            | State::Ended => false,
        }
    }

    /// Whether the answer's headers are worth a look.
    pub fn awaits_answer(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Whether the answer's body is worth a look.
    pub fn follows_answer(&self) -> bool {
        matches!(&self.state, State::Open(open) if open.follows())
    }
}

fn transition(state: State, input: Input<'_>, step: &mut Step<'_>) -> State {
    match (state, input) {
        (State::Fresh, Input::RequestHeaders { caller, body }) => gather::request_headers(caller, body, step),

        (State::Gathering(gathering), Input::RequestBody { waiting, body }) => {
            gathering.request_body(waiting, body, step)
        }
        (State::Gathering(gathering), Input::RequestTrailers) => gathering.complete(step),
        (State::Gathering(gathering), Input::Checked(answer)) => gathering.checked(answer, step),
        (State::Gathering(gathering), Input::Body(bytes)) => gathering.body(bytes.as_deref(), step),
        (State::Gathering(gathering), Input::Tick) => gathering.tick(step),

        (State::Asking(asking), Input::Decided(answer)) => asking.decided(answer, step),
        (State::Asking(asking), Input::Asked) => asking.asked(step),
        (State::Asking(asking), Input::Answered(answer)) => asking.answered(answer, step),
        (State::Asking(asking), Input::Tick) => asking.tick(step),
        (State::Refusing(refusing), Input::Checked(answer)) => refusing.checked(answer, step),
        (State::Refusing(refusing), Input::Answered(answer)) => refusing.answered(answer, step),
        (State::Looking(accounts), Input::Standings(standings)) => step.tell(&accounts, &standings),
        (State::Looking(accounts), Input::Answered(answer)) => gather::looked(&accounts, answer, step),

        (State::Open(mut open), input) => match input {
            Input::ResponseHeaders { headers, origin } => {
                open.response_headers(headers, origin, step);
                State::Open(open)
            }
            Input::ResponseBody { chunk, body } => {
                open.response_body(chunk, body, step);
                State::Open(open)
            }
            Input::Tick => {
                open.keep_lease(step);
                State::Open(open)
            }
            Input::Ended(end) => open.settle(end, step),
            // A body's last callbacks may come after the decision.
            Input::RequestBody { .. }
            | Input::RequestTrailers
            | Input::RequestHeaders { .. }
            | Input::Body(_)
            | Input::Checked(_)
            | Input::Decided(_)
            | Input::Asked
            | Input::Answered(_)
            | Input::Standings(_)
            | Input::Settled(_) => State::Open(open),
        },

        (State::Ended, Input::Settled(outcome)) => {
            step.count(Metric::Settlements { outcome }, 1);
            State::Ended
        }

        // Nothing was taken, so nothing is owed.
        (
            State::Fresh
            | State::Passing
            | State::Gathering(_)
            | State::Refusing(_)
            | State::Looking(_)
            | State::Replied,
            Input::Ended(_),
        ) => {
            step.close_record();
            State::Ended
        }
        // The store was asked and its answer never came: what it may have taken is given back.
        (State::Asking(asking), Input::Ended(_)) => asking.abandon(step),

        // Callbacks that a host delivers in any state: the filter's own replies pass through the answer's
        // callbacks, other filters' replies come without a request.
        (state, Input::RequestHeaders { .. } | Input::RequestBody { .. } | Input::RequestTrailers)
        | (state, Input::ResponseHeaders { .. } | Input::ResponseBody { .. } | Input::Tick) => state,
        // Answers to questions that this state did not ask, and an end after the end.
        (state, Input::Body(_) | Input::Checked(_) | Input::Decided(_) | Input::Standings(_))
        | (state, Input::Asked | Input::Answered(_) | Input::Settled(_))
        | (state @ State::Ended, Input::Ended(_)) => state,
    }
}

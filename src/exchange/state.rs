//! Where an exchange stands: each state holds only what it may use.

use tollgate_budget::{Caching, Timestamp, Tokens};

use super::gate::Headers;
use crate::chat::Answering;
use crate::config::{Api, RequestPath, Tier};
use crate::estimate::Estimate;
use crate::identity::Subject;
use crate::plan::{Account, Granted, Plan};
use crate::usage::{Dialect, HideUsage, UsageMeter};

#[derive(Debug)]
pub(super) enum State {
    /// Nothing has been seen: a stream that another filter answered stays here.
    Fresh,
    /// Not ours to meter.
    Passing,
    /// The body is still coming.
    Gathering(Gathering),
    /// The store was asked for the hold.
    Asking(Box<Asking>),
    /// The prompt can never fit; the store was asked how the account stands that says so.
    Refusing(Refusing),
    /// The store was asked how the caller's own accounts stand.
    Looking(Vec<Account>),
    /// The request went upstream; its real cost is owed to the accounts.
    Open(Box<Open>),
    /// We answered ourselves. Nothing is owed.
    Replied,
    /// Final.
    Ended,
}

/// What the request's headers said.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) api: Api,
    pub(super) path: RequestPath,
    pub(super) subject: Subject,
    pub(super) tier: Tier,
}

#[derive(Debug)]
pub(super) struct Gathering {
    pub(super) request: Request,
    pub(super) headers: HeaderHold,
    /// Bytes of the body at the host.
    pub(super) waiting: usize,
}

/// What has become of the request's headers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum HeaderHold {
    Held {
        how: Headers,
        since: Timestamp,
    },
    /// Let go a moment ago, since no body came: the next callback tells why.
    JustReleased,
    /// Gone upstream: the body is not rewritten.
    Released,
}

#[derive(Debug)]
pub(super) struct Asking {
    pub(super) plan: Plan,
    pub(super) estimate: Estimate,
    pub(super) reading: Option<Reading>,
    pub(super) rewrite: Rewrite,
    pub(super) call: Call,
}

/// How the question was put to the store, which tells how the request goes on: the host waits for the end
/// of the callback in which all was decided, and must be told to go on otherwise.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Call {
    /// Nothing was asked over the network.
    None,
    /// The counter service was asked.
    Waiting { since: Timestamp },
    /// It gave no word in time; what it may have done is settled in the end.
    Unanswered,
}

/// How the answer is read; not at all on a route that is charged by the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Names the rule of the policy's models.
    pub(super) model: usize,
    pub(super) dialect: Dialect,
    pub(super) answering: Answering,
}

#[derive(Debug)]
pub(super) struct Refusing {
    pub(super) plan: Plan,
    /// Counting stopped here: the prompt has more.
    pub(super) more_than: Tokens,
    pub(super) output: Tokens,
    pub(super) caching: Caching,
}

/// What becomes of the body when the request is let through.
#[derive(Debug)]
pub(super) enum Rewrite {
    Nothing,
    /// The body that asks for usage in the place of the one that does not.
    AskForUsage {
        replaced: usize,
        with: Vec<u8>,
    },
}

#[derive(Debug)]
pub(super) struct Open {
    pub(super) hold: Granted,
    pub(super) estimate: Estimate,
    pub(super) reading: Option<Reading>,
    pub(super) hide: HideUsage,
    /// Headers that tell the caller how its accounts stand.
    pub(super) announce: Vec<(&'static str, String)>,
    /// Output that the hold covers; grows with a stream that outgrows it.
    pub(super) covered: Tokens,
    /// With fewer bytes of text than this the answer cannot have outgrown its hold.
    pub(super) ask_at: u64,
    pub(super) renewed: Timestamp,
    pub(super) answer: Answer,
}

#[derive(Debug)]
pub(super) enum Answer {
    Awaited,
    /// An error of the provider's or of the way to it, before any token.
    Failed,
    /// On a route that is charged by the request.
    Uncounted,
    Followed {
        meter: Box<UsageMeter>,
        reading: Reading,
    },
}

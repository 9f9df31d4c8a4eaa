//! Where an exchange stands: each state holds only what it may use.

use tollgate_budget::{Timestamp, Tokens};

use super::gate::Headers;
use crate::config::{Api, Tier};
use crate::config::RequestPath;
use crate::estimate::Estimate;
use crate::identity::Subject;
use crate::plan::{Account, Plan};
use crate::usage::{HideUsage, UsageMeter};

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
    Held { how: Headers, since: Timestamp },
    /// Let go a moment ago, since no body came: the next callback tells why.
    JustReleased,
    /// Gone upstream: the body is not rewritten.
    Released,
}

#[derive(Debug)]
pub(super) struct Asking {
    pub(super) plan: Plan,
    pub(super) estimate: Estimate,
    /// Index into the policy's models.
    pub(super) model: usize,
    /// The body that asks for usage, where the client's did not.
    pub(super) rewritten: Option<Vec<u8>>,
    /// Length of the body that it replaces.
    pub(super) body_size: usize,
}

#[derive(Debug)]
pub(super) struct Open {
    pub(super) plan: Plan,
    pub(super) estimate: Estimate,
    pub(super) model: usize,
    pub(super) hide: HideUsage,
    /// Headers that tell the caller how its accounts stand.
    pub(super) announce: Vec<(&'static str, String)>,
    /// Output that the hold covers; grows with a stream that outgrows it.
    pub(super) covered: Tokens,
    pub(super) renewed: Timestamp,
    pub(super) answer: Answer,
}

#[derive(Debug)]
pub(super) enum Answer {
    Awaited,
    /// An error of the provider's or of the way to it, before any token.
    Failed,
    Followed(Box<UsageMeter>),
}

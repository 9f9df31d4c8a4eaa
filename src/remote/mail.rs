//! Settlements and renewals on their way to the service.

use tollgate_budget::Timestamp;
use tollgate_budget::wire::{self, Outcome, Renewed};

use crate::metrics::{CallOutcome, Metric, SettledAs};

use super::outbox::Outbox;
use super::{Outage, Response, Said, json, read};

/// What the service is to be told, sooner or later, once or more often.
#[derive(Clone, Debug)]
pub enum Letter {
    Settlement(wire::Settlement),
    Renewal(wire::Renewal),
}

/// Letters of one kind travel together, one parcel at a time.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Post {
    Settlements,
    Renewals,
}

/// A call to be made; its answer goes to [`Mail::answered`].
#[derive(Clone, Debug)]
pub struct Parcel {
    pub post: Post,
    pub path: &'static str,
    pub body: Vec<u8>,
}

/// What became of a parcel.
#[derive(Clone, Debug)]
pub struct Receipt<O = Outcome> {
    /// One by one; those that failed are sent again. None are told of renewals.
    pub outcomes: Result<Vec<O>, Outage>,
    /// Settlements that the service will never take.
    pub lost: u64,
}

impl Receipt {
    /// What is to be counted of it.
    pub fn metrics(&self, post: Post) -> impl Iterator<Item = (Metric, u64)> {
        let call = post.call();
        let (outcome, settled) = match &self.outcomes {
            Ok(outcomes) => (Some(CallOutcome::Answered), outcomes.as_slice()),
            Err(outage) => (outage.outcome(), &[][..]),
        };
        let settled = settled.iter().filter_map(|outcome| settled_as(*outcome));
        let settled = settled.map(|outcome| (Metric::Settlements { outcome }, 1));
        let lost = (Metric::Settlements { outcome: SettledAs::Lost }, self.lost);
        let called = outcome.map(|outcome| (Metric::CounterCalls { call, outcome }, 1));
        called.into_iter().chain(settled).chain(Some(lost)).filter(|(_, by)| *by > 0)
    }
}

/// `None` for what is to be sent again.
const fn settled_as(outcome: Outcome) -> Option<SettledAs> {
    match outcome {
        Outcome::Closed => Some(SettledAs::Closed),
        Outcome::CorrectedAfterLease => Some(SettledAs::AfterLease),
        Outcome::Unknown => Some(SettledAs::Unknown),
        Outcome::Duplicate => Some(SettledAs::Duplicate),
        Outcome::Failed => None,
    }
}

#[derive(Debug, Default)]
pub(super) struct Mail {
    settlements: Outbox,
    renewals: Outbox,
}

impl Mail {
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.settlements.is_due(now) || self.renewals.is_due(now)
    }

    pub(super) fn len(&self) -> usize {
        self.settlements.len().saturating_add(self.renewals.len())
    }

    pub(super) fn settlements_waiting(&self) -> u64 {
        self.settlements.len() as u64
    }

    /// Returns how many settlements were given up for it.
    pub(super) fn put(&mut self, letter: Letter) -> u64 {
        match letter {
            Letter::Settlement(settlement) => self.settlements.push(json(&settlement)),
            Letter::Renewal(renewal) => {
                // A renewal that is lost leaves its stream to its settlement.
                self.renewals.push(json(&renewal));
                0
            }
        }
    }

    /// Renewals first: they are few, and a lease does not wait.
    pub(super) fn next(&mut self, now: Timestamp) -> Option<Parcel> {
        if let Some(batch) = self.renewals.next_batch(now) {
            let body = list("renewals", batch);
            return Some(Parcel { post: Post::Renewals, path: wire::RENEWALS, body });
        }
        let body = list("settlements", self.settlements.next_batch(now)?);
        Some(Parcel { post: Post::Settlements, path: wire::SETTLEMENTS, body })
    }

    pub(super) fn answered(&mut self, post: Post, end: Said<'_>, now: Timestamp) -> Receipt {
        match post {
            Post::Settlements => {
                let reply = read::<wire::SettlementsReply>(end).map(|reply| reply.outcomes);
                let settled = |outcome: &Outcome| *outcome != Outcome::Failed;
                deliver(&mut self.settlements, reply, settled, end, now)
            }
            Post::Renewals => {
                let reply = read::<wire::RenewalsReply>(end).map(|reply| reply.outcomes);
                let renewed = |outcome: &Renewed| *outcome != Renewed::Failed;
                let receipt = deliver(&mut self.renewals, reply, renewed, end, now);
                Receipt { outcomes: receipt.outcomes.map(|_| Vec::new()), lost: 0 }
            }
        }
    }
}

/// [`wire::Settlements`] or [`wire::Renewals`], of letters that are JSON already.
fn list<'a>(name: &str, letters: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut body = format!("{{\"{name}\":[").into_bytes();
    for (place, letter) in letters.enumerate() {
        if place > 0 {
            body.push(b',');
        }
        body.extend_from_slice(letter);
    }
    body.extend_from_slice(b"]}");
    body
}

fn deliver<O>(
    outbox: &mut Outbox,
    reply: Result<Vec<O>, Outage>,
    is_final: impl Fn(&O) -> bool,
    end: Said<'_>,
    now: Timestamp,
) -> Receipt<O> {
    match reply {
        // An answer of another length is about another batch.
        Ok(outcomes) if outcomes.len() == outbox.flying() => {
            outbox.answered(now, |place| outcomes.get(place).is_some_and(|outcome| !is_final(outcome)));
            Receipt { outcomes: Ok(outcomes), lost: 0 }
        }
        Ok(_) => {
            outbox.failed(now);
            Receipt { outcomes: Err(Outage::Nonsense), lost: 0 }
        }
        Err(outage) => {
            let lost = if is_for_good(end) { outbox.refused() } else { 0 };
            outbox.failed(now);
            Receipt { outcomes: Err(outage), lost }
        }
    }
}

/// What the service does not understand now it will not understand later. A token can be put right.
const fn is_for_good(end: Said<'_>) -> bool {
    matches!(end, Ok(Some(Response { status: 400 | 413 | 415, .. })))
}

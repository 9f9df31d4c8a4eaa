//! The counter service as seen from here: what is asked of it and told to it, and whether it is there.
//!
//! docs/protocol.md tells what the messages mean. Nothing here makes a call: a [`Question`] is carried by the
//! host, and what came back, if anything, is read by [`decision`] or [`standings`].

mod breaker;
mod mail;
mod outbox;

use std::cell::{Cell, RefCell};

use serde::de::DeserializeOwned;
use tollgate_budget::wire;
use tollgate_budget::{Decision, Standing, Timestamp};

use crate::local::SharedData;
use crate::metrics::{Call, CallOutcome};

use breaker::Breaker;
use mail::Mail;
pub use mail::{Letter, Parcel, Post, Receipt};

/// What one worker knows of the service, and still has to tell it.
#[derive(Debug, Default)]
pub struct Service {
    breaker: Cell<Breaker>,
    mail: RefCell<Mail>,
}

/// A call to be made now, whose answer decides.
#[derive(Clone, Debug)]
pub struct Question {
    pub path: &'static str,
    pub body: Vec<u8>,
}

/// What came back: no answer at all is told by its absence.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    pub status: u16,
    pub body: &'a [u8],
}

/// The host did not take a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Unsent;

/// How a call ended, as the host tells it.
pub type Said<'a> = Result<Option<Response<'a>>, Unsent>;

/// Why there was no word of the service's.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Outage {
    /// It failed a moment ago, and was not asked.
    Avoided,
    /// The proxy did not take the call: no such cluster, none of its endpoints there, too many calls.
    Unsent,
    /// No answer in time, or one that was cut off.
    Silent,
    /// It says that it cannot, or the proxy says so in its place.
    Failing,
    /// It does not take what we say: a wrong token, another version.
    Rejected,
    /// It is well, and does not take this one message: no reason to keep others from asking.
    Misunderstood,
    /// Not an answer to what was asked.
    Nonsense,
    /// It is well, and has no room for this subject: no outage at all, and others are not to suffer from it.
    Full,
}

impl Post {
    pub const fn call(self) -> Call {
        match self {
            Self::Settlements => Call::Settlements,
            Self::Renewals => Call::Renewals,
        }
    }
}

impl Outage {
    /// `None` where no call was made.
    pub const fn outcome(self) -> Option<CallOutcome> {
        match self {
            Self::Avoided => None,
            Self::Unsent => Some(CallOutcome::Unsent),
            Self::Silent => Some(CallOutcome::Silent),
            Self::Failing => Some(CallOutcome::Failing),
            Self::Rejected | Self::Misunderstood => Some(CallOutcome::Rejected),
            Self::Nonsense => Some(CallOutcome::Nonsense),
            Self::Full => Some(CallOutcome::Full),
        }
    }
}

impl Service {
    /// Whether the service may be asked now.
    pub fn is_asked(&self, now: Timestamp) -> bool {
        let mut breaker = self.breaker.get();
        let admits = breaker.admits(now);
        self.breaker.set(breaker);
        admits
    }

    /// A call came to this.
    pub fn learn<T>(&self, outcome: &Result<T, Outage>, now: Timestamp) {
        let mut breaker = self.breaker.get();
        match outcome {
            Ok(_) | Err(Outage::Full | Outage::Misunderstood) => breaker.succeeded(now),
            Err(Outage::Avoided) => {}
            Err(_) => breaker.failed(now),
        }
        self.breaker.set(breaker);
    }

    fn breaker(&self) -> Breaker {
        self.breaker.get()
    }

    pub fn is_avoided(&self) -> bool {
        self.breaker().is_open()
    }

    /// What another worker found out.
    fn hear(&self, other: breaker::Standing) {
        let mut breaker = self.breaker.get();
        breaker.hear(other);
        self.breaker.set(breaker);
    }

    /// To be delivered. Returns how many letters were given up for it.
    pub fn post(&self, letter: Letter) -> u64 {
        self.mail.borrow_mut().put(letter)
    }

    /// What to deliver now.
    pub fn next_parcel(&self, now: Timestamp) -> Option<Parcel> {
        let mut mail = self.mail.borrow_mut();
        // A breaker that is open lets one call through now and then, which must not be spent on nothing.
        if !mail.is_due(now) || !self.is_asked(now) {
            return None;
        }
        mail.next(now)
    }

    pub fn delivered(&self, post: Post, end: Said<'_>, now: Timestamp) -> Receipt {
        let receipt = self.mail.borrow_mut().answered(post, end, now);
        // A service that is quick to settle may still be too slow to be waited for: while it is asked, only
        // questions say that it answers.
        if receipt.outcomes.is_err() || self.is_avoided() {
            self.learn(&receipt.outcomes, now);
        }
        receipt
    }

    /// Tells the other workers what this one found out of the service, or learns it from them. A race that is
    /// lost is made up for by the next call of this.
    pub fn compare(&self, shared: &impl SharedData, key: &str) {
        let Ok(found) = shared.load(key) else { return };
        let heard = found.as_ref().and_then(|(bytes, _)| breaker::Standing::from_bytes(bytes));
        if let Some(standing) = heard {
            self.hear(standing);
        }
        let ours = self.breaker().standing();
        if heard != Some(ours) {
            let _next_time = shared.store(key, &ours.to_bytes(), found.map(|(_, cas)| cas));
        }
    }

    /// Nobody is left to deliver what waits. Returns how many settlements are lost by it.
    pub fn give_up(&self) -> u64 {
        self.mail.take().settlements_waiting()
    }

    /// Letters that wait, or whose delivery is not known yet.
    pub fn undelivered(&self) -> usize {
        self.mail.borrow().len()
    }
}

impl Question {
    pub fn hold(hold: &wire::Hold) -> Self {
        Self { path: wire::HOLDS, body: json(hold) }
    }

    pub fn standings(accounts: Vec<wire::Account>) -> Self {
        Self { path: wire::STANDINGS, body: json(&wire::Standings { accounts }) }
    }
}

/// The answer to [`Question::hold`] with so many charges.
pub fn decision(end: Said<'_>, charges: usize) -> Result<Decision, Outage> {
    let wire::HoldReply { decision } = read(end)?;
    let fits = match &decision {
        Decision::Granted(grant) => grant.standings.len() == charges,
        Decision::Refused(refusal) => refusal.charge < charges,
        Decision::AlreadySettled => true,
    };
    if fits { Ok(decision) } else { Err(Outage::Nonsense) }
}

/// The answer to [`Question::standings`] of so many accounts.
pub fn standings(end: Said<'_>, accounts: usize) -> Result<Vec<Standing>, Outage> {
    let wire::StandingsReply { standings } = read(end)?;
    if standings.len() == accounts { Ok(standings) } else { Err(Outage::Nonsense) }
}

/// The proxy's own errors look like the service's, so only a message of the service's is believed.
fn read<T: DeserializeOwned>(end: Said<'_>) -> Result<T, Outage> {
    match end {
        Ok(Some(Response { status: 200, body })) => {
            serde_json::from_slice(body).map_err(|_| Outage::Nonsense)
        }
        Ok(Some(Response { status: 400 | 413 | 415, .. })) => Err(Outage::Misunderstood),
        Ok(Some(Response { status: 400..=499, .. })) => Err(Outage::Rejected),
        Ok(None | Some(Response { status: 504, .. })) => Err(Outage::Silent),
        Ok(Some(Response { status: 503, body })) if is_full(body) => Err(Outage::Full),
        Ok(Some(Response { status: 500..=599, .. })) => Err(Outage::Failing),
        Ok(Some(_)) => Err(Outage::Nonsense),
        Err(Unsent) => Err(Outage::Unsent),
    }
}

/// Whether a problem of the service's (RFC 9457) is of the type that says so.
fn is_full(body: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Problem<'a> {
        #[serde(rename = "type")]
        kind: &'a str,
    }
    serde_json::from_slice::<Problem<'_>>(body).is_ok_and(|problem| problem.kind.ends_with("store-full"))
}

/// Messages are made of strings and numbers only, so they always have a text.
fn json(message: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(message).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(status: u16, body: &str) -> Result<Decision, Outage> {
        decision(Ok(Some(Response { status, body: body.as_bytes() })), 2)
    }

    const STANDING: &str = r#"{"capacity":9,"held":1,"spent":2,"reset_ms":3}"#;

    #[test]
    fn only_an_answer_to_what_was_asked_is_the_services_word() {
        let granted = |standings: &str| {
            format!(r#"{{"decision":{{"granted":{{"standings":[{standings}],"shadow_over":[]}}}}}}"#)
        };
        let refused = |charge: u8| {
            format!(
                r#"{{"decision":{{"refused":{{"charge":{charge},"reason":"suspended","standing":{STANDING}}}}}}}"#
            )
        };
        assert!(read(200, &granted(&format!("{STANDING},{STANDING}"))).is_ok());
        assert!(read(200, &refused(1)).is_ok());
        assert_eq!(read(200, r#"{"decision":"already_settled"}"#), Ok(Decision::AlreadySettled));
        for nonsense in [
            granted(STANDING).as_str(),
            &refused(2),
            "",
            "{}",
            "<html>",
            r#"{"decision":"granted"}"#,
            &format!("x{}", refused(1)),
        ] {
            assert_eq!(read(200, nonsense), Err(Outage::Nonsense), "{nonsense}");
        }
        for (status, outage) in [
            (0, Outage::Nonsense),
            (204, Outage::Nonsense),
            (302, Outage::Nonsense),
            (400, Outage::Misunderstood),
            (413, Outage::Misunderstood),
            (401, Outage::Rejected),
            (429, Outage::Rejected),
            (500, Outage::Failing),
            (503, Outage::Failing),
            (504, Outage::Silent),
        ] {
            assert_eq!(read(status, r#"{"decision":"already_settled"}"#), Err(outage), "{status}");
        }
        let problem = |kind: &str| format!(r#"{{"type":"urn:{kind}","title":"x","status":503}}"#);
        assert_eq!(read(503, &problem("store-full")), Err(Outage::Full));
        assert_eq!(read(503, &problem("store-unavailable")), Err(Outage::Failing));
        assert_eq!(decision(Ok(None), 2), Err(Outage::Silent));
        assert_eq!(decision(Err(Unsent), 2), Err(Outage::Unsent));
        let two = format!(r#"{{"standings":[{STANDING},{STANDING}]}}"#);
        let response = Ok(Some(Response { status: 200, body: two.as_bytes() }));
        assert_eq!(standings(response, 2).map(|two| two.len()), Ok(2));
        assert_eq!(standings(response, 3), Err(Outage::Nonsense));
    }
}

//! The counter service as the filter sees it: the messages of docs/protocol.md over one [`Ledger`], and every way
//! in which a service can be away.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use tollgate_budget::wire::{self, Close, Purpose};
use tollgate_budget::{
    AccountId, AccountKey, Amount, Capacity, Charge, Decision, Entry, Found, Grant, HoldId, Ledger, Memory,
    Reservation, Settlement, Span, Timestamp,
};

/// The cluster that policies of tests name.
pub const TARGET: &str = "tollgate_counter";

/// How it takes calls.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Manner {
    Answers,
    /// The host takes no call.
    Unreachable,
    /// Does nothing, and the proxy or the service says this.
    Says(u16, &'static str),
    /// Does nothing, and is cut off after its headers.
    Cut,
    /// Does all that it is asked, and its answer is lost.
    Deaf,
    /// Calls wait until it behaves otherwise.
    Hangs,
}

/// What the proxy makes of a call.
#[derive(Clone, Debug)]
pub enum End {
    Response(u16, Vec<u8>),
    Cut,
}

/// Clones are one service.
#[derive(Clone, Debug)]
pub struct Counter(Rc<RefCell<State>>);

#[derive(Debug)]
struct State {
    manner: Manner,
    ledger: Ledger,
    /// What each hold has set aside in total.
    totals: BTreeMap<(HoldId, AccountId), u64>,
    calls: Vec<(String, Vec<u8>)>,
}

impl Default for Counter {
    fn default() -> Self {
        let capacity = Capacity { accounts: 1000, holds: 10_000 };
        let memory = Memory { settled: Span::from_secs(3600), ended: Span::from_secs(3600) };
        let ledger = Ledger::new(capacity, memory);
        let state = State { manner: Manner::Answers, ledger, totals: BTreeMap::new(), calls: Vec::new() };
        Self(Rc::new(RefCell::new(state)))
    }
}

impl Counter {
    pub fn behave(&self, manner: Manner) {
        self.0.borrow_mut().manner = manner;
    }

    pub fn manner(&self) -> Manner {
        self.0.borrow().manner
    }

    /// Paths of the calls so far.
    pub fn calls(&self) -> Vec<String> {
        self.0.borrow().calls.iter().map(|(path, _)| path.clone()).collect()
    }

    /// All bytes that were sent to it.
    pub fn heard(&self) -> Vec<Vec<u8>> {
        self.0.borrow().calls.iter().map(|(_, body)| body.clone()).collect()
    }

    /// Held and spent, in units, of an account under a limit that never forgets meanwhile.
    pub fn account(&self, key: &str, limit: &tollgate_budget::Limit, now_ms: u64) -> (u64, u64) {
        let key: AccountKey = key.parse().unwrap();
        let standing =
            self.0.borrow_mut().ledger.standing(account(&key), limit, Timestamp::from_millis(now_ms));
        (standing.held.units(), standing.spent.units())
    }

    /// Takes a call in its present manner, which is not to hang.
    pub fn take(&self, path: &str, body: &[u8], now_ms: u64) -> End {
        let state = &mut *self.0.borrow_mut();
        state.calls.push((path.to_owned(), body.to_vec()));
        match state.manner {
            Manner::Answers => match state.answer(path, body, Timestamp::from_millis(now_ms)) {
                Ok(answer) => End::Response(200, answer),
                Err(why) => panic!("{path} does not understand: {why}: {}", String::from_utf8_lossy(body)),
            },
            Manner::Deaf => {
                state.answer(path, body, Timestamp::from_millis(now_ms)).unwrap();
                End::Cut
            }
            Manner::Cut => End::Cut,
            Manner::Says(status, text) => End::Response(status, text.into()),
            Manner::Unreachable | Manner::Hangs => panic!("no call can be taken"),
        }
    }
}

impl State {
    fn answer(&mut self, path: &str, body: &[u8], now: Timestamp) -> Result<Vec<u8>, String> {
        match path {
            wire::HOLDS => json(&wire::HoldReply { decision: self.hold(read(body)?, now) }),
            wire::SETTLEMENTS => {
                let wire::Settlements { settlements } = read(body)?;
                let outcomes = settlements.into_iter().map(|settlement| self.settle(settlement, now));
                json(&wire::SettlementsReply { outcomes: outcomes.collect() })
            }
            wire::RENEWALS => {
                let wire::Renewals { renewals } = read(body)?;
                let outcomes = renewals.into_iter().map(|renewal| self.renew(renewal, now));
                json(&wire::RenewalsReply { outcomes: outcomes.collect() })
            }
            wire::STANDINGS => {
                let wire::Standings { accounts } = read(body)?;
                let standing = |asked: &wire::Account| {
                    self.ledger.standing(account(&asked.account), &asked.limit(), now)
                };
                json(&wire::StandingsReply { standings: accounts.iter().map(standing).collect() })
            }
            other => Err(format!("no path {other}")),
        }
    }

    fn hold(&mut self, hold: wire::Hold, now: Timestamp) -> Decision {
        let charge = |charge: &wire::Charge| Charge {
            account: account(&charge.account),
            limit: charge.limit(),
            cost: charge.cost,
            largest: charge.largest,
            mode: charge.mode,
        };
        let charges: Vec<Charge> = hold.charges.iter().map(charge).collect();
        if hold.purpose == Purpose::Check {
            return match self.ledger.weigh(&charges, now) {
                Ok(shadow_over) => {
                    let standing = |charge: &Charge| self.ledger.standing(charge.account, &charge.limit, now);
                    Decision::Granted(Grant {
                        standings: charges.iter().map(standing).collect(),
                        shadow_over,
                    })
                }
                Err(refusal) => Decision::Refused(refusal),
            };
        }
        for charge in &charges {
            self.totals.insert((hold.id, charge.account), charge.cost.units());
        }
        let reservation =
            Reservation { id: hold.id, charges, lease: hold.lease, on_lease_end: hold.on_lease_end };
        self.ledger.reserve(&reservation, now).unwrap()
    }

    fn settle(&mut self, settlement: wire::Settlement, now: Timestamp) -> wire::Outcome {
        let wire::Settlement { id, close, entries } = settlement;
        if close == Close::Withdraw && self.ledger.release(id, now) == Found::Open {
            return wire::Outcome::Closed;
        }
        let entry = |entry: &wire::Entry| Entry {
            account: account(&entry.account),
            limit: entry.limit(),
            spent: if close == Close::Withdraw { Amount::ZERO } else { entry.spent },
        };
        let entries = entries.iter().map(entry).collect();
        self.ledger.settle(&Settlement { id, entries }, now).unwrap().outcome.into()
    }

    fn renew(&mut self, renewal: wire::Renewal, now: Timestamp) -> wire::Renewed {
        let wire::Renewal { id, lease, stakes } = renewal;
        let mut by = Vec::new();
        for stake in &stakes {
            let account = account(&stake.account);
            let total = self.totals.entry((id, account)).or_default();
            let wanted = stake.total.map_or(*total, Amount::units).max(*total);
            by.push((account, Amount::saturating(wanted - *total)));
            *total = wanted;
        }
        let found = self.ledger.renew(id, lease, now);
        self.ledger.grow(id, &by, now);
        found.into()
    }
}

fn account(key: &AccountKey) -> AccountId {
    let digest = Sha256::digest(key.as_str());
    AccountId::from_bits(u128::from_le_bytes(*digest.first_chunk().unwrap()))
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|why| why.to_string())
}

fn json(reply: &impl Serialize) -> Result<Vec<u8>, String> {
    serde_json::to_vec(reply).map_err(|why| why.to_string())
}

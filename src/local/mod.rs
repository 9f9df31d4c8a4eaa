//! Budgets in shared memory. (Stopgap, until the store is merged.)
use tollgate_budget::*;
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Place { pub account: AccountId, pub tag: u64 }
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Overflow { pub account: AccountId, pub limit: Limit }
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LocalCharge { pub charge: Charge, pub tag: u64, pub overflow: Overflow }
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LocalReservation { pub id: HoldId, pub charges: Vec<LocalCharge>, pub lease: Span, pub on_lease_end: OnLeaseEnd }
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LocalSettlement { pub id: HoldId, pub entries: Vec<(Place, Entry)> }
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Granted { pub decision: Decision, pub overflowed: Vec<usize> }
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StoreError { HoldsFull, Contended, Unreadable }
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cas(u32);
impl Cas { pub fn new(c: u32) -> Self { Self(c) } pub fn get(self) -> u32 { self.0 } }
#[derive(Debug)]
pub struct SharedDataError;
#[derive(Debug)]
pub enum Stored { Written, Conflict }
pub trait SharedData {
    fn load(&self, key: &str) -> Result<Option<(Vec<u8>, Cas)>, SharedDataError>;
    fn store(&self, key: &str, value: &[u8], cas: Option<Cas>) -> Result<Stored, SharedDataError>;
}
#[derive(Debug)]
pub struct LocalStore<S> { shared: S, prefix: String, shards: u32 }
const CAP: Capacity = Capacity { accounts: 64, holds: 4096 };
const MEM: Memory = Memory { settled: Span::ZERO, ended: Span::from_secs(600) };
impl<S: SharedData> LocalStore<S> {
    pub fn open(shared: S, namespace: &str, shards: u32, _now: Timestamp) -> Result<Self, String> {
        let s = Self { shared, prefix: format!("tollgate/{namespace}/"), shards };
        for i in 0..shards {
            if let Ok(None) = s.shared.load(&s.key(i.into())) {
                let _ = s.shared.store(&s.key(i.into()), &Ledger::new(CAP, MEM).encode(), None);
            }
        }
        Ok(s)
    }
    fn key(&self, tag: u64) -> String { format!("{}{}", self.prefix, tag % u64::from(self.shards)) }
    fn with<T>(&self, tag: u64, mut f: impl FnMut(&mut Ledger) -> T) -> Result<T, StoreError> {
        let key = self.key(tag);
        for _ in 0..1000 {
            let (bytes, cas) = self.shared.load(&key).map_err(|_| StoreError::Unreadable)?.ok_or(StoreError::Unreadable)?;
            let mut ledger = Ledger::decode(&bytes, CAP, MEM).map_err(|_| StoreError::Unreadable)?;
            let out = f(&mut ledger);
            match self.shared.store(&key, &ledger.encode(), Some(cas)).map_err(|_| StoreError::Unreadable)? {
                Stored::Written => return Ok(out),
                Stored::Conflict => {}
            }
        }
        Err(StoreError::Contended)
    }
    pub fn reserve(&self, r: &LocalReservation, now: Timestamp) -> Result<Granted, StoreError> {
        let Some(first) = r.charges.first() else {
            return Ok(Granted { decision: Decision::Granted(Grant { standings: vec![], shadow_over: vec![] }), overflowed: vec![] });
        };
        let res = Reservation { id: r.id, charges: r.charges.iter().map(|c| c.charge).collect(), lease: r.lease, on_lease_end: r.on_lease_end };
        let d = self.with(first.tag, |l| l.reserve(&res, now))?.map_err(|_| StoreError::HoldsFull)?;
        Ok(Granted { decision: d, overflowed: vec![] })
    }
    pub fn check(&self, r: &LocalReservation, now: Timestamp) -> Result<Decision, StoreError> {
        let Some(first) = r.charges.first() else { return Err(StoreError::Unreadable) };
        let charges: Vec<Charge> = r.charges.iter().map(|c| c.charge).collect();
        Ok(match self.with(first.tag, |l| l.weigh(&charges, now))? {
            Ok(shadow_over) => Decision::Granted(Grant { standings: vec![], shadow_over }),
            Err(r) => Decision::Refused(r),
        })
    }
    pub fn settle(&self, s: &LocalSettlement, now: Timestamp) -> Result<Settled, StoreError> {
        let Some(first) = s.entries.first() else { return Err(StoreError::Unreadable) };
        let st = Settlement { id: s.id, entries: s.entries.iter().map(|e| e.1).collect() };
        self.with(first.0.tag, |l| l.settle(&st, now))?.map_err(|_| StoreError::HoldsFull)
    }
    pub fn grow(&self, g: &crate::plan::Growth, now: Timestamp) -> Result<(), StoreError> {
        let Some(first) = g.by.first() else { return Ok(()) };
        let by: Vec<_> = g.by.iter().map(|(p, a)| (p.account, *a)).collect();
        self.with(first.0.tag, |l| l.grow(g.id, &by, now)).map(|_| ())
    }
    pub fn renew(&self, g: &crate::plan::Renewal, now: Timestamp) -> Result<(), StoreError> {
        let Some(first) = g.places.first() else { return Ok(()) };
        self.with(first.tag, |l| l.renew(g.id, g.lease, now)).map(|_| ())
    }
    pub fn standing(&self, p: Place, limit: &Limit, now: Timestamp) -> Result<Standing, StoreError> {
        self.with(p.tag, |l| l.standing(p.account, limit, now))
    }
}

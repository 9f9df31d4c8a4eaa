//! Budgets in the proxy's shared memory: the ledger, cut into shards that every worker changes by
//! compare-and-swap.
//!
//! Accounts of one shard are decided in one atomic step. Over several shards they are taken in order, and
//! what was taken first is given back before a refusal or an error is returned; a give-back that fails ends
//! with its lease.
//!
//! The host has no create-if-absent: a swap on a missing key always succeeds, so two workers creating the
//! same key lose one's work. Every key is therefore made by [`LocalStore::open`], before there is traffic,
//! and a missing one is an error later.

mod learned;
mod shard;
mod shared;

use tollgate_budget::{
    AccountId, Amount, Charge, Decision, Entry, Found, Full, Grant, HoldId, Ledger, Limit, OnLeaseEnd,
    Outcome, Refusal, Reservation, Settled, Settlement, Span, Standing, Timestamp,
};

pub use learned::{LearnedStore, News};
use shard::Shards;
pub use shard::{
    ACCOUNTS_PER_SHARD, HOLDS_PER_SHARD, MAX_CAS_ATTEMPTS, OVERFLOW_ACCOUNTS, OpenError, SHARDS_MOST,
    StoreError,
};
pub use shared::{Cas, SharedData, SharedDataError, Stored};

/// All that one request asks for.
#[derive(Clone, Debug)]
pub struct LocalReservation {
    pub id: HoldId,
    pub charges: Vec<LocalCharge>,
    pub lease: Span,
    pub on_lease_end: OnLeaseEnd,
}

/// A charge with what places it.
#[derive(Clone, Copy, Debug)]
pub struct LocalCharge {
    pub charge: Charge,
    /// Accounts of the same tag share a shard.
    pub tag: u64,
    pub overflow: Overflow,
}

/// The account of a limit that stands in for all accounts its shard has no room for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Overflow {
    pub account: AccountId,
    pub limit: Limit,
}

/// The word on a reservation, and where what was granted has been taken.
#[derive(Clone, Debug)]
pub struct Reserved {
    pub decision: Decision,
    /// In the order of the charges; to be named again when the hold grows, is renewed or settled.
    pub places: Vec<Place>,
}

/// Where a charge was taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Place {
    shard: u32,
    account: AccountId,
    limit: Limit,
    overflow: Overflow,
}

impl Place {
    /// Whether the charge stands on its limit's overflow account.
    pub fn is_overflow(&self) -> bool {
        self.account == self.overflow.account
    }
}

/// What a charge turned out to cost.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    pub place: Place,
    pub amount: Amount,
}

/// A settlement that did not get through everywhere.
#[derive(Clone, Debug)]
pub struct Unsettled {
    /// What to settle again; the rest has been settled and must not be named once more.
    pub rest: Vec<Spent>,
    pub error: StoreError,
}

/// Budgets in one namespace of the shared memory.
#[derive(Debug)]
pub struct LocalStore<S> {
    shards: Shards<S>,
}

impl<S: SharedData> LocalStore<S> {
    /// Makes what is missing of the namespace's shards. To be called before there is traffic.
    pub fn open(shared: S, namespace: &str, shards: u32) -> Result<Self, OpenError> {
        Shards::open(shared, namespace, shards).map(|shards| Self { shards })
    }

    /// Takes every charge, or none.
    pub fn reserve(&self, asked: &LocalReservation, now: Timestamp) -> Result<Reserved, StoreError> {
        let mut places: Vec<Place> = asked.charges.iter().map(|charge| self.place(charge)).collect();
        let mut taken = Taken::default();
        // The overflow shard has the highest number: charges moved there are still to come.
        while let Some(shard) = next_shard(&places, taken.shards.last().copied()) {
            let members = members_of(&places, shard);
            let part = asked.part(&places, &members);
            match self.shards.step(shard, |ledger| ledger.reserve(&part, now)) {
                Ok(Ok(Decision::Granted(grant))) => taken.add(shard, &members, grant),
                Ok(Ok(Decision::Refused(refusal))) => {
                    self.give_back(asked.id, &taken.shards, now);
                    let refusal = refusal_at(&members, refusal);
                    let refusal = self.gravest(asked, &places, shard, refusal, now);
                    return Ok(Reserved { decision: Decision::Refused(refusal), places });
                }
                Ok(Ok(Decision::AlreadySettled)) => {
                    self.give_back(asked.id, &taken.shards, now);
                    return Ok(Reserved { decision: Decision::AlreadySettled, places });
                }
                Ok(Err(full)) => {
                    if let Some(place) = self.without_room(shard, full, &mut places, &members) {
                        self.move_to_overflow(place);
                    } else {
                        self.give_back(asked.id, &taken.shards, now);
                        return Err(StoreError::Full { shard, full });
                    }
                }
                Err(error) => {
                    self.give_back(asked.id, &taken.shards, now);
                    return Err(error);
                }
            }
        }
        Ok(Reserved { decision: Decision::Granted(taken.grant()), places })
    }

    /// What [`reserve`](Self::reserve) would decide, taking nothing.
    pub fn check(&self, asked: &LocalReservation, now: Timestamp) -> Result<Decision, StoreError> {
        let places: Vec<Place> = asked.charges.iter().map(|charge| self.place(charge)).collect();
        let mut gravest: Option<Refusal> = None;
        let mut last = None;
        while let Some(shard) = next_shard(&places, last) {
            last = Some(shard);
            let members = members_of(&places, shard);
            let part = asked.part(&places, &members);
            let weighed = self.shards.step(shard, |ledger| ledger.weigh(&part.charges, now))?;
            if let Err(refusal) = weighed {
                let refusal = refusal_at(&members, refusal);
                gravest = Some(gravest.map_or(refusal, |other| other.graver(refusal)));
            }
        }
        Ok(gravest.map_or_else(|| Decision::Granted(Taken::default().grant()), Decision::Refused))
    }

    /// Replaces a hold by its true cost. What the store no longer knows is charged plainly.
    pub fn settle(&self, id: HoldId, spent: &[Spent], now: Timestamp) -> Result<Settled, Unsettled> {
        let mut rest = spent.to_vec();
        let mut all = Settled { outcome: Outcome::Closed, postings: Vec::new() };
        while let Some(shard) = rest.iter().map(|spent| spent.place.shard).min() {
            let here = rest.iter().filter(|spent| spent.place.shard == shard);
            let settlement = Settlement { id, entries: here.map(Spent::entry).collect() };
            let error = match self.shards.step(shard, |ledger| ledger.settle(&settlement, now)) {
                Ok(Ok(settled)) => {
                    rest.retain(|spent| spent.place.shard != shard);
                    all.outcome = farther(all.outcome, settled.outcome);
                    all.postings.extend(settled.postings);
                    continue;
                }
                Ok(Err(full)) => {
                    let mut places: Vec<Place> = rest.iter().map(|spent| spent.place).collect();
                    let members = members_of(&places, shard);
                    if let Some(place) = self.without_room(shard, full, &mut places, &members) {
                        self.move_to_overflow(place);
                        rest.iter_mut().zip(places).for_each(|(spent, place)| spent.place = place);
                        continue;
                    }
                    StoreError::Full { shard, full }
                }
                Err(error) => error,
            };
            return Err(Unsettled { rest, error });
        }
        Ok(all)
    }

    /// Undoes a reservation that was granted.
    pub fn release(&self, id: HoldId, places: &[Place], now: Timestamp) -> Result<Found, StoreError> {
        self.on_all(places, |_, ledger| ledger.release(id, now))
    }

    /// Adds to an open hold, whatever the limits say.
    pub fn grow(&self, id: HoldId, by: &[Spent], now: Timestamp) -> Result<Found, StoreError> {
        let places: Vec<Place> = by.iter().map(|spent| spent.place).collect();
        self.on_all(&places, |shard, ledger| {
            let here = by.iter().filter(|spent| spent.place.shard == shard);
            let by: Vec<_> = here.map(|spent| (spent.place.account, spent.amount)).collect();
            ledger.grow(id, &by, now)
        })
    }

    /// Starts an open hold's lease anew.
    pub fn renew(
        &self,
        id: HoldId,
        places: &[Place],
        lease: Span,
        now: Timestamp,
    ) -> Result<Found, StoreError> {
        self.on_all(places, |_, ledger| ledger.renew(id, lease, now))
    }

    /// How the account of a place stands: the overflow account, where a charge would go there.
    pub fn standing(&self, place: &Place, now: Timestamp) -> Result<Standing, StoreError> {
        let mut place = *place;
        let mut ledger = self.shards.peek(place.shard)?;
        if place.shard != self.shards.overflow() && !ledger.has_room_for(place.account, now) {
            self.move_to_overflow(&mut place);
            ledger = self.shards.peek(place.shard)?;
        }
        Ok(ledger.standing(place.account, &place.limit, now))
    }

    /// Where a charge belongs, for whoever must settle what was never granted or asks how it stands.
    pub fn place(&self, charge: &LocalCharge) -> Place {
        let LocalCharge { charge: Charge { account, limit, .. }, tag, overflow } = *charge;
        Place { shard: self.shards.of(tag), account, limit, overflow }
    }

    /// The place whose account its shard has no room for, if the overflow account can stand in.
    fn without_room<'a>(
        &self,
        shard: u32,
        full: Full,
        places: &'a mut [Place],
        members: &[usize],
    ) -> Option<&'a mut Place> {
        match full {
            Full::Accounts { index } if shard != self.shards.overflow() => {
                places.get_mut(*members.get(index)?)
            }
            Full::Accounts { index: _ } | Full::Holds => None,
        }
    }

    fn move_to_overflow(&self, place: &mut Place) {
        let Overflow { account, limit } = place.overflow;
        *place = Place { shard: self.shards.overflow(), account, limit, overflow: place.overflow };
    }

    /// The refusal that decides, when the charges of the shards not yet asked are weighed as well: a wait
    /// must be long enough for all. A shard that cannot answer does not undo what another has refused.
    fn gravest(
        &self,
        asked: &LocalReservation,
        places: &[Place],
        mut shard: u32,
        mut gravest: Refusal,
        now: Timestamp,
    ) -> Refusal {
        while let Some(next) = next_shard(places, Some(shard)) {
            shard = next;
            let members = members_of(places, shard);
            let part = asked.part(places, &members);
            if let Ok(Err(refusal)) = self.shards.step(shard, |ledger| ledger.weigh(&part.charges, now)) {
                gravest = gravest.graver(refusal_at(&members, refusal));
            }
        }
        gravest
    }

    fn give_back(&self, id: HoldId, shards: &[u32], now: Timestamp) {
        for shard in shards {
            if let Err(error) = self.shards.step(*shard, |ledger| ledger.release(id, now)) {
                log::warn!("hold {id} could not be given back and ends with its lease: {error}");
            }
        }
    }

    fn on_all(
        &self,
        places: &[Place],
        mut change: impl FnMut(u32, &mut Ledger) -> Found,
    ) -> Result<Found, StoreError> {
        let mut found = Found::Open;
        let mut last = None;
        while let Some(shard) = next_shard(places, last) {
            match self.shards.step(shard, |ledger| change(shard, ledger))? {
                Found::Open => {}
                Found::NotOpen => found = Found::NotOpen,
            }
            last = Some(shard);
        }
        Ok(found)
    }
}

impl LocalReservation {
    /// The reservation of one shard.
    fn part(&self, places: &[Place], members: &[usize]) -> Reservation {
        let charges = members.iter().filter_map(|member| {
            let place = places.get(*member)?;
            let charge = self.charges.get(*member)?.charge;
            Some(Charge { account: place.account, limit: place.limit, ..charge })
        });
        let Self { id, lease, on_lease_end, .. } = *self;
        Reservation { id, charges: charges.collect(), lease, on_lease_end }
    }
}

impl Spent {
    fn entry(&self) -> Entry {
        Entry { account: self.place.account, limit: self.place.limit, spent: self.amount }
    }
}

/// What has been granted so far, shard by shard.
#[derive(Default)]
struct Taken {
    shards: Vec<u32>,
    /// With the index of the charge, in its order.
    standings: Vec<(usize, Standing)>,
    /// In order.
    shadow_over: Vec<usize>,
}

impl Taken {
    fn add(&mut self, shard: u32, members: &[usize], grant: Grant) {
        self.shards.push(shard);
        for (member, standing) in members.iter().zip(grant.standings) {
            let place = self.standings.partition_point(|(other, _)| other < member);
            self.standings.insert(place, (*member, standing));
        }
        for member in grant.shadow_over.iter().filter_map(|index| members.get(*index)) {
            let place = self.shadow_over.partition_point(|other| other < member);
            self.shadow_over.insert(place, *member);
        }
    }

    fn grant(self) -> Grant {
        let standings = self.standings.into_iter().map(|(_, standing)| standing).collect();
        Grant { standings, shadow_over: self.shadow_over }
    }
}

/// The first shard of these places after `last`.
fn next_shard(places: &[Place], last: Option<u32>) -> Option<u32> {
    places.iter().map(|place| place.shard).filter(|shard| last.is_none_or(|last| *shard > last)).min()
}

fn members_of(places: &[Place], shard: u32) -> Vec<usize> {
    let here = places.iter().enumerate().filter(|(_, place)| place.shard == shard);
    here.map(|(index, _)| index).collect()
}

/// A shard's refusal, naming the charge by its place in the whole reservation.
fn refusal_at(members: &[usize], refusal: Refusal) -> Refusal {
    Refusal { charge: members.get(refusal.charge).copied().unwrap_or(refusal.charge), ..refusal }
}

/// Of the outcomes in several shards, the one farther from the ordinary.
fn farther(one: Outcome, other: Outcome) -> Outcome {
    let distance = |outcome| match outcome {
        Outcome::Closed => 0,
        Outcome::CorrectedAfterLease => 1,
        Outcome::Duplicate => 2,
        Outcome::Unknown => 3,
    };
    if distance(other) > distance(one) { other } else { one }
}

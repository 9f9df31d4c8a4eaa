//! Budgets in shared memory: the sequence cases, equality with the ledger, and what other workers, other
//! programs and a million tenants may do to them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

#[path = "../crates/budget/tests/support/mod.rs"]
mod sequence;
#[path = "support/shared_memory.rs"]
mod shared_memory;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngSeed};
use shared_memory::SharedMemory;
use tollgate::local::{
    ACCOUNTS_PER_SHARD, HOLDS_PER_SHARD, LocalCharge, LocalReservation, LocalStore, OpenError, Overflow,
    Place, Reserved, Spent, StoreError, Unsettled,
};
use tollgate_budget::{
    AccountId, Amount, BudgetKey, Capacity, Charge, Decision, Entry, Found, HoldId, Ledger, Limit, Memory,
    Mode, OnLeaseEnd, Outcome, Quota, Reason, Refusal, Reservation, Settled, Settlement, Span, Standing,
    Timestamp, Window,
};

const MINUTE: Span = Span::from_secs(60);

fn units(units: u64) -> Amount {
    Amount::saturating(units)
}

fn limit(amount: u64) -> Limit {
    Limit { window: Window::Fixed(MINUTE), quota: Quota::of(units(amount)) }
}

/// Within one minute, however long a test goes on.
fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(600_000 + millis)
}

fn overflow(limit: Limit) -> Overflow {
    Overflow { account: AccountId::from_bits(u128::MAX), limit }
}

fn charge(tag: u64, account: u128, limit: Limit, cost: u64) -> LocalCharge {
    let charge = Charge {
        account: AccountId::from_bits(account),
        limit,
        cost: units(cost),
        largest: Amount::MAX,
        mode: Mode::Enforce,
    };
    LocalCharge { charge, tag, overflow: overflow(limit) }
}

fn asked(id: u128, charges: Vec<LocalCharge>) -> LocalReservation {
    let (lease, on_lease_end) = (Span::from_secs(600), OnLeaseEnd::Charge);
    LocalReservation { id: HoldId::from_bits(id), charges, lease, on_lease_end }
}

fn spent(places: &[Place], amount: u64) -> Vec<Spent> {
    places.iter().map(|place| Spent { place: *place, amount: units(amount) }).collect()
}

fn granted(reserved: &Reserved) -> bool {
    matches!(reserved.decision, Decision::Granted(_))
}

fn used(store: &LocalStore<SharedMemory>, charge: &LocalCharge) -> (u64, u64) {
    let standing = store.standing(&store.place(charge), at(0)).unwrap();
    (standing.held.units(), standing.spent.units())
}

struct Worker {
    store: LocalStore<SharedMemory>,
    memory: SharedMemory,
    places: HashMap<HoldId, Vec<Place>>,
}

fn worker() -> Worker {
    let memory = SharedMemory::default();
    let store = LocalStore::open(memory.clone(), "cases", 8).unwrap();
    Worker { store, memory, places: HashMap::new() }
}

impl sequence::Keeper for Worker {
    fn reserve(&mut self, keys: &[BudgetKey], reservation: Reservation, now: Timestamp) -> Decision {
        let Reservation { id, charges, lease, on_lease_end } = reservation;
        let charges = charges.into_iter().zip(keys).map(|(charge, key)| LocalCharge {
            charge,
            tag: key.tag(),
            overflow: overflow(charge.limit),
        });
        let asked = LocalReservation { id, charges: charges.collect(), lease, on_lease_end };
        let reserved = self.store.reserve(&asked, now).unwrap();
        self.places.insert(id, reserved.places);
        reserved.decision
    }

    fn settle(&mut self, _keys: &[BudgetKey], settlement: Settlement, now: Timestamp) -> Settled {
        // The filter settles once and forgets; a store that remembers nothing settled need not know better.
        let Some(places) = self.places.remove(&settlement.id) else {
            return Settled { outcome: Outcome::Duplicate, postings: Vec::new() };
        };
        let spent = places.iter().zip(&settlement.entries);
        let spent: Vec<Spent> =
            spent.map(|(place, entry)| Spent { place: *place, amount: entry.spent }).collect();
        self.store.settle(settlement.id, &spent, now).unwrap()
    }

    fn standing(&mut self, key: &BudgetKey, limit: &Limit, now: Timestamp) -> Standing {
        let mut charge = charge(key.tag(), 0, *limit, 0);
        charge.charge.account = key.account();
        self.store.standing(&self.store.place(&charge), now).unwrap()
    }

    fn host_conflicts(&mut self, times: u64) {
        self.memory.conflict(times);
    }
}

#[test]
fn every_sequence_goes_as_its_case_says_in_shared_memory() {
    sequence::play_all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases"), worker);
}

#[test]
fn opening_makes_every_shard_once_and_keeps_what_is_there() {
    let memory = SharedMemory::default();
    let store = LocalStore::open(memory.clone(), "default", 4).unwrap();
    assert_eq!(memory.keys(), 4 + 2);
    let some = charge(1, 1, limit(100), 60);
    assert!(granted(&store.reserve(&asked(1, vec![some]), at(0)).unwrap()));
    let writes = memory.writes();
    let again = LocalStore::open(memory.clone(), "default", 4).unwrap();
    assert_eq!(memory.writes(), writes);
    assert_eq!(used(&again, &some), (60, 0));
    let other = LocalStore::open(memory.clone(), "default/1", 4).unwrap();
    assert_eq!(used(&other, &some), (0, 0));
}

#[test]
fn a_shared_memory_made_otherwise_is_refused_in_words() {
    let memory = SharedMemory::default();
    LocalStore::open(memory.clone(), "default", 4).unwrap();
    let error = LocalStore::open(memory.clone(), "default", 8).unwrap_err();
    assert_eq!(error, OpenError::OtherShards { asked: 8, found: 4 });
    assert!(error.to_string().contains("has 4 shards and the policy asks for 8"), "{error}");
    for foreign in [b"TGM\x02\x04\0\0\0".as_slice(), b"TGM\x01", b"x"] {
        memory.put("tollgate/default/meta", foreign);
        assert_eq!(LocalStore::open(memory.clone(), "default", 4).unwrap_err(), OpenError::OtherVersion);
    }
    assert_eq!(LocalStore::open(memory.clone(), "none", 0).unwrap_err(), OpenError::Shards { asked: 0 });
}

#[test]
fn a_refusal_in_a_later_shard_gives_back_what_earlier_ones_took() {
    let memory = SharedMemory::default();
    let store = LocalStore::open(memory.clone(), "default", 4).unwrap();
    let (first, last) = (charge(0, 1, limit(100), 60), charge(3, 2, limit(100), 60));
    assert!(granted(&store.reserve(&asked(1, vec![last]), at(0)).unwrap()));
    let refused = store.reserve(&asked(2, vec![last, first]), at(0)).unwrap();
    let Decision::Refused(refusal) = refused.decision else { panic!("{refused:?}") };
    assert_eq!(refusal.charge, 0);
    assert_eq!(used(&store, &first), (0, 0));
    assert!(granted(&store.reserve(&asked(2, vec![first]), at(0)).unwrap()));
}

#[test]
fn a_wait_is_long_enough_for_the_shards_that_were_not_reached() {
    let memory = SharedMemory::default();
    let store = LocalStore::open(memory.clone(), "default", 4).unwrap();
    let short = Limit { window: Window::Fixed(Span::from_secs(10)), ..limit(100) };
    let (near, far) = (charge(0, 1, short, 60), charge(3, 2, limit(100), 60));
    assert!(granted(&store.reserve(&asked(1, vec![near, far]), at(0)).unwrap()));
    let refused = store.reserve(&asked(2, vec![near, far]), at(0)).unwrap();
    let Decision::Refused(Refusal { charge: 1, reason: Reason::NotYet { retry_after }, .. }) =
        refused.decision
    else {
        panic!("{refused:?}")
    };
    assert_eq!(retry_after, MINUTE);
    assert!(granted(&store.reserve(&asked(2, vec![near, far]), at(60_000)).unwrap()));
    let never = charge(2, 3, limit(10), 11);
    let refused = store.reserve(&asked(3, vec![near, never]), at(60_000)).unwrap();
    let reason = Reason::Never { largest: units(10) };
    assert!(matches!(refused.decision, Decision::Refused(refusal) if refusal.reason == reason));
}

#[test]
fn what_is_told_of_each_charge_comes_in_their_order_whatever_their_shards() {
    let memory = SharedMemory::default();
    let store = LocalStore::open(memory.clone(), "default", 4).unwrap();
    let shadow = |tag, account, cost| {
        let mut charge = charge(tag, account, limit(100), cost);
        charge.charge.mode = Mode::Shadow;
        charge
    };
    let charges = vec![shadow(3, 1, 101), charge(0, 2, limit(100), 2), shadow(1, 3, 3), shadow(0, 4, 104)];
    let reserved = store.reserve(&asked(1, charges), at(0)).unwrap();
    let Decision::Granted(grant) = reserved.decision else { panic!("{reserved:?}") };
    let held: Vec<u64> = grant.standings.iter().map(|standing| standing.held.units()).collect();
    assert_eq!((held, grant.shadow_over), (vec![101, 2, 3, 104], vec![0, 3]));
}

#[test]
fn a_refusal_stands_when_a_shard_not_yet_asked_cannot_answer() {
    let memory = SharedMemory::default();
    let store = LocalStore::open(memory.clone(), "default", 4).unwrap();
    memory.put("tollgate/default/3", b"garbage");
    let charges = vec![charge(3, 2, limit(100), 1), charge(0, 1, limit(100), 101)];
    let refused = store.reserve(&asked(1, charges), at(0)).unwrap();
    assert!(matches!(refused.decision, Decision::Refused(Refusal { charge: 1, .. })), "{refused:?}");
}

#[test]
fn a_store_that_cannot_decide_says_why_and_keeps_nothing() {
    let memory = SharedMemory::default();
    let store = LocalStore::open(memory.clone(), "default", 4).unwrap();
    let (first, last) = (charge(0, 1, limit(100), 60), charge(3, 2, limit(100), 60));
    memory.put("tollgate/default/3", b"garbage");
    let error = store.reserve(&asked(1, vec![first, last]), at(0)).unwrap_err();
    assert!(matches!(error, StoreError::Unreadable { shard: 3, .. }), "{error}");
    assert_eq!(used(&store, &first), (0, 0));
    // Emptied, it starts anew.
    memory.put("tollgate/default/3", b"");
    assert!(granted(&store.reserve(&asked(1, vec![first, last]), at(0)).unwrap()));
    memory.conflict(u64::MAX);
    let error = store.reserve(&asked(2, vec![charge(3, 9, limit(100), 1)]), at(0)).unwrap_err();
    assert_eq!(error, StoreError::Contended { shard: 3 });
    memory.conflict(0);
    memory.break_down();
    assert!(matches!(store.reserve(&asked(2, vec![last]), at(0)), Err(StoreError::Host(_))));
}

#[test]
fn a_settlement_that_got_through_in_part_names_the_rest() {
    let memory = SharedMemory::default();
    let store = LocalStore::open(memory.clone(), "default", 4).unwrap();
    let (first, last) = (charge(0, 1, limit(100), 60), charge(3, 2, limit(100), 60));
    let reserved = store.reserve(&asked(1, vec![first, last]), at(0)).unwrap();
    let id = HoldId::from_bits(1);
    memory.interrupt({
        let (memory, mut writes) = (memory.clone(), 0);
        move || {
            writes += 1;
            memory.conflict(if writes > 1 { 100 } else { 0 });
        }
    });
    let Unsettled { rest, error } = store.settle(id, &spent(&reserved.places, 10), at(1)).unwrap_err();
    assert_eq!((rest.len(), error), (1, StoreError::Contended { shard: 3 }));
    memory.interrupt(|| {});
    memory.conflict(0);
    assert_eq!(store.settle(id, &rest, at(2)).unwrap().outcome, Outcome::Closed);
    assert_eq!((used(&store, &first), used(&store, &last)), ((0, 10), (0, 10)));
}

#[test]
fn a_hold_lives_in_all_its_shards() {
    let memory = SharedMemory::default();
    let store = LocalStore::open(memory.clone(), "default", 4).unwrap();
    let (first, last) = (charge(0, 1, limit(100), 60), charge(3, 2, limit(100), 60));
    let reserved = store.reserve(&asked(1, vec![first, last]), at(0)).unwrap();
    let id = HoldId::from_bits(1);
    assert_eq!(store.grow(id, &spent(&reserved.places, 50), at(1)), Ok(Found::Open));
    assert_eq!(store.renew(id, &reserved.places, MINUTE, at(1)), Ok(Found::Open));
    assert_eq!((used(&store, &first), used(&store, &last)), ((110, 0), (110, 0)));
    assert_eq!(store.release(id, &reserved.places, at(2)), Ok(Found::Open));
    assert_eq!(store.renew(id, &reserved.places, MINUTE, at(2)), Ok(Found::NotOpen));
    assert_eq!((used(&store, &first), used(&store, &last)), ((0, 0), (0, 0)));
}

/// Enough to fill every shard many times over; the bounds do not know the number.
#[test]
fn tenants_without_end_neither_grow_the_memory_nor_push_out_a_debt() {
    let memory = SharedMemory::default();
    let store = LocalStore::open(memory.clone(), "default", 2).unwrap();
    let debtor = charge(0, 1, limit(100), 100);
    let reserved = store.reserve(&asked(1, vec![debtor]), at(0)).unwrap();
    store.settle(HoldId::from_bits(1), &spent(&reserved.places, 250), at(0)).unwrap();
    let mut overflowed = 0;
    for tenant in 2..5000_u64 {
        let id = u128::from(tenant);
        let reserved = store.reserve(&asked(id, vec![charge(tenant, id, limit(100), 1)]), at(0)).unwrap();
        overflowed += u64::from(reserved.places[0].is_overflow());
        if granted(&reserved) {
            store.settle(HoldId::from_bits(id), &spent(&reserved.places, 1), at(0)).unwrap();
        }
    }
    assert_eq!(overflowed, 5000 - 2 - 2 * ACCOUNTS_PER_SHARD as u64 + 1);
    assert!(memory.bytes() < 40_000, "{} bytes", memory.bytes());
    assert_eq!(used(&store, &debtor), (0, 250));
    // The overflow account is one account with one amount: it was full after 100.
    let late = store.reserve(&asked(9999, vec![charge(0, 9999, limit(100), 1)]), at(0)).unwrap();
    assert!(matches!(late.decision, Decision::Refused(_)) && late.places[0].is_overflow());
    // Whoever asks is told of the account that refuses it.
    assert_eq!(used(&store, &charge(0, 9999, limit(100), 1)), (0, 100));
    // A minute later all is idle but the account just used, and there is room again.
    let next = store.reserve(&asked(10_000, vec![charge(0, 9999, limit(100), 1)]), at(60_000)).unwrap();
    assert!(granted(&next) && !next.places[0].is_overflow());
}

#[test]
fn what_was_never_granted_is_charged_even_where_there_is_no_room() {
    let memory = SharedMemory::default();
    let store = LocalStore::open(memory.clone(), "default", 1).unwrap();
    for tenant in 0..ACCOUNTS_PER_SHARD as u128 {
        store.reserve(&asked(tenant, vec![charge(0, tenant, limit(100), 1)]), at(0)).unwrap();
    }
    let place = store.place(&charge(0, 5000, limit(100), 0));
    let settled = store.settle(HoldId::from_bits(5000), &spent(&[place], 70), at(0)).unwrap();
    assert_eq!(settled.outcome, Outcome::Unknown);
    assert_eq!(settled.postings[0].account, overflow(limit(100)).account);
}

#[test]
fn a_shard_full_of_holds_refuses_one_more_and_nothing_else_breaks() {
    let memory = SharedMemory::default();
    let store = LocalStore::open(memory.clone(), "default", 1).unwrap();
    let one = charge(0, 1, limit(1_000_000), 1);
    // Built at once: one by one would take a test's whole minute.
    let capacity = Capacity { accounts: ACCOUNTS_PER_SHARD, holds: HOLDS_PER_SHARD };
    let mut ledger = Ledger::new(capacity, Memory { settled: Span::ZERO, ended: MINUTE });
    for id in 0..HOLDS_PER_SHARD as u128 {
        let asked = asked(id, vec![one]);
        let LocalReservation { id, lease, on_lease_end, .. } = asked;
        let reservation = Reservation { id, charges: vec![one.charge], lease, on_lease_end };
        assert!(matches!(ledger.reserve(&reservation, at(0)), Ok(Decision::Granted(_))));
    }
    memory.put("tollgate/default/0", &ledger.encode());
    assert!(memory.bytes() < 400_000, "{} bytes", memory.bytes());
    let error = store.reserve(&asked(5000, vec![one]), at(1)).unwrap_err();
    assert!(matches!(error, StoreError::Full { shard: 0, .. }), "{error}");
    let place = store.place(&one);
    assert_eq!(
        store.settle(HoldId::from_bits(7), &spent(&[place], 1), at(1)).unwrap().outcome,
        Outcome::Closed
    );
    assert!(granted(&store.reserve(&asked(5000, vec![one]), at(1)).unwrap()));
}

/// Workers on one memory, each between the load and the store of another.
struct Crew {
    store: LocalStore<SharedMemory>,
    asked: Cell<u64>,
    open: RefCell<Vec<(HoldId, Vec<Place>)>>,
}

impl Crew {
    const MOST: [u64; 2] = [10_000, 9_000];

    fn charges() -> Vec<LocalCharge> {
        vec![charge(0, 1, limit(Self::MOST[0]), 100), charge(1, 2, limit(Self::MOST[1]), 100)]
    }

    /// Asks, and every third time settles one.
    fn act(&self) {
        self.asked.set(self.asked.get() + 1);
        let id = u128::from(self.asked.get());
        let reserved = self.store.reserve(&asked(id, Self::charges()), at(0)).unwrap();
        if granted(&reserved) {
            self.open.borrow_mut().push((HoldId::from_bits(id), reserved.places));
        }
        let done = if id % 3 == 0 { self.open.borrow_mut().pop() } else { None };
        if let Some((id, places)) = done {
            self.store.settle(id, &spent(&places, 40), at(0)).unwrap();
        }
        for (account, most) in Self::charges().iter().zip(Self::MOST) {
            let (held, spent) = used(&self.store, account);
            assert!(held + spent <= most, "{held} + {spent}");
        }
    }
}

#[test]
fn workers_that_interrupt_each_other_never_give_out_too_much_nor_lose_anything() {
    let memory = SharedMemory::default();
    let store = LocalStore::open(memory.clone(), "default", 2).unwrap();
    let crew = Rc::new(Crew { store, asked: Cell::new(0), open: RefCell::default() });
    memory.interrupt({
        let (crew, mut writes) = (crew.clone(), 0);
        move || {
            writes += 1;
            if writes % 2 == 0 {
                crew.act();
            }
        }
    });
    for _ in 0..400 {
        crew.act();
    }
    let open = crew.open.borrow().len() as u64;
    let [first, second] = [0, 1].map(|n| used(&crew.store, &Crew::charges()[n]));
    assert_eq!(first, second, "what one shard refused, the other gave back");
    assert_eq!(first.0, open * 100);
    assert!(first.0 + first.1 > Crew::MOST[1] - 100, "{first:?}");
}

#[derive(Clone, Debug)]
enum Op {
    Reserve { tenant: u64, costs: [u64; 2], lease: u64, how: OnLeaseEnd },
    Settle { hold: usize, amount: u64 },
    Release { hold: usize },
    Grow { hold: usize, by: u64 },
    Renew { hold: usize, lease: u64 },
    Wait(u64),
    Conflicts(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let how = prop_oneof![Just(OnLeaseEnd::Charge), Just(OnLeaseEnd::Release)];
    let reserve = (0..5_u64, prop::array::uniform2(0..400_u64), 1..5000_u64, how);
    prop_oneof![
        6 => reserve.prop_map(|(tenant, costs, lease, how)| Op::Reserve { tenant, costs, lease, how }),
        4 => (0..30_usize, 0..500_u64).prop_map(|(hold, amount)| Op::Settle { hold, amount }),
        1 => (0..30_usize).prop_map(|hold| Op::Release { hold }),
        1 => (0..30_usize, 0..200_u64).prop_map(|(hold, by)| Op::Grow { hold, by }),
        1 => (0..30_usize, 1..5000_u64).prop_map(|(hold, lease)| Op::Renew { hold, lease }),
        5 => (0..2000_u64).prop_map(Op::Wait),
        1 => (1..10_u64).prop_map(Op::Conflicts),
    ]
}

fn windows() -> impl Strategy<Value = [Window; 2]> {
    let window = (0..3_u8, 100..3000_u64).prop_map(|(kind, span)| {
        let span = Span::from_millis(span);
        match kind {
            0 => Window::Fixed(span),
            1 => Window::Sliding(span),
            _ => Window::Bucket { period: span, burst: None },
        }
    });
    prop::array::uniform2(window)
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(0x10_ca_15_70_7e),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("proptest-regressions/local.txt"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn one_shard_or_many_do_as_the_ledger_does(
        windows in windows(),
        shards in prop_oneof![Just(1_u32), Just(3), Just(16)],
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let memory = SharedMemory::default();
        let store = LocalStore::open(memory.clone(), "default", shards).unwrap();
        let (settled, ended) = (Span::ZERO, Span::from_secs(600));
        let mut ledger = Ledger::new(Capacity { accounts: 100, holds: 1000 }, Memory { settled, ended });
        let limits = windows.map(|window| Limit { window, quota: Quota::of(units(500)) });
        let mut held: Vec<(HoldId, u64, Vec<Place>)> = Vec::new();
        let accounts = |tenant| [0, 1].map(|n| AccountId::from_bits(u128::from(tenant) * 2 + n));
        let mut now = 1_000_000;
        for (index, op) in ops.into_iter().enumerate() {
            let at = Timestamp::from_millis(now);
            match op {
                Op::Reserve { tenant, costs, lease, how } => {
                    let charges: Vec<LocalCharge> = (0..2)
                        .map(|n| charge(tenant, accounts(tenant)[n].to_bits(), limits[n], costs[n]))
                        .collect();
                    let mut asked = asked(index as u128, charges.clone());
                    (asked.lease, asked.on_lease_end) = (Span::from_millis(lease), how);
                    let reserved = store.reserve(&asked, at).unwrap();
                    let charges = charges.iter().map(|charge| charge.charge).collect();
                    let reservation =
                        Reservation { id: asked.id, charges, lease: asked.lease, on_lease_end: how };
                    prop_assert_eq!(&reserved.decision, &ledger.reserve(&reservation, at).unwrap());
                    if granted(&reserved) {
                        held.push((asked.id, tenant, reserved.places));
                    }
                }
                Op::Settle { hold, amount } => {
                    let Some((id, tenant, places)) = held.get(hold) else { continue };
                    let settled = store.settle(*id, &spent(places, amount), at).unwrap();
                    let entries = (0..2).map(|n| Entry {
                        account: accounts(*tenant)[n],
                        limit: limits[n],
                        spent: units(amount),
                    });
                    let settlement = Settlement { id: *id, entries: entries.collect() };
                    prop_assert_eq!(settled, ledger.settle(&settlement, at).unwrap());
                }
                Op::Release { hold } => {
                    let Some((id, _, places)) = held.get(hold) else { continue };
                    prop_assert_eq!(store.release(*id, places, at).unwrap(), ledger.release(*id, at));
                }
                Op::Grow { hold, by } => {
                    let Some((id, tenant, places)) = held.get(hold) else { continue };
                    let found = store.grow(*id, &spent(places, by), at).unwrap();
                    let by: Vec<_> = accounts(*tenant).iter().map(|account| (*account, units(by))).collect();
                    prop_assert_eq!(found, ledger.grow(*id, &by, at));
                }
                Op::Renew { hold, lease } => {
                    let Some((id, _, places)) = held.get(hold) else { continue };
                    let lease = Span::from_millis(lease);
                    prop_assert_eq!(store.renew(*id, places, lease, at).unwrap(), ledger.renew(*id, lease, at));
                }
                Op::Wait(millis) => now += millis,
                Op::Conflicts(times) => memory.conflict(times),
            }
        }
    }
}

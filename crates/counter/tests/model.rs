//! Every store does what a ledger does, over generated histories: each answer is compared, and each account
//! in the end. The seed is fixed: a failure is a failure for all.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use tollgate_budget::wire::Close;
use tollgate_budget::{
    self as budget, AccountId, Amount, Capacity, Decision, Found, HoldId, Ledger, Limit, LimitHash, Mode,
    OnLeaseEnd, Outcome, Quota, Refusal, Reservation, Settlement, Span, Standing, SubjectHash, Timestamp,
    Window,
};
use tollgate_counter::store::memory::MemoryStore;
use tollgate_counter::store::{Charge, Entry, MEMORY, Part, Posting, Settled, Slot, Store};

const NAMES: [&str; 3] = ["tokens", "requests", "burst"];
/// So few that all of it happens to the same ones.
const FEW: usize = 16;
/// More than a slot keeps without an index.
const MANY: usize = 150;
const START: u64 = 400_000_500_000;

/// What may happen in a slot. Holds are few and named by number, so that all of it happens to the same ones:
/// settled before they were asked for, asked for twice, renewed too late.
#[derive(Clone, Debug)]
enum Op {
    Reserve {
        hold: usize,
        costs: [u64; 3],
        lease: u64,
        how: OnLeaseEnd,
        mode: Mode,
        largest: u64,
    },
    Weigh {
        costs: [u64; 3],
    },
    Settle {
        hold: usize,
        spent: [u64; 3],
        named: usize,
    },
    Withdraw {
        hold: usize,
    },
    Release {
        hold: usize,
    },
    Renew {
        hold: usize,
        lease: u64,
        total: u64,
    },
    Relimit {
        account: usize,
        limit: Limit,
    },
    Standings,
    Wait(u64),
    StepBack(u64),
    /// Policies and live amounts are not the ledger's: they are compared between stores only.
    Policy(u32),
    SetAmount {
        account: usize,
        amount: Option<u64>,
    },
}

fn cost() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(0), 4 => 1..120_u64, 2 => 120..1100_u64]
}

fn costs() -> impl Strategy<Value = [u64; 3]> {
    prop::array::uniform3(cost())
}

fn reserve(holds: usize) -> impl Strategy<Value = Op> {
    let how = prop_oneof![Just(OnLeaseEnd::Charge), Just(OnLeaseEnd::Release)];
    let mode = prop_oneof![6 => Just(Mode::Enforce), 1 => Just(Mode::Shadow)];
    let largest = prop_oneof![6 => Just(Amount::MAX.units()), 1 => 1..500_u64];
    (0..holds, costs(), 1..4000_u64, how, mode, largest).prop_map(
        |(hold, costs, lease, how, mode, largest)| Op::Reserve { hold, costs, lease, how, mode, largest },
    )
}

fn limit() -> impl Strategy<Value = Limit> {
    let span = prop_oneof![Just(1000_u64), Just(60), Just(997), 1..3000_u64].prop_map(Span::from_millis);
    let window = (span, 0..4_u8, 1..1500_u64).prop_map(|(span, kind, burst)| match kind {
        0 => Window::Fixed(span),
        1 => Window::Sliding(span),
        2 => Window::Bucket { period: span, burst: None },
        _ => Window::Bucket { period: span, burst: Some(units(burst)) },
    });
    let amount = prop_oneof![1 => Just(0), 12 => 1..1000_u64];
    (window, amount).prop_map(|(window, amount)| Limit { window, quota: Quota::of(units(amount)) })
}

/// Numbers at the ends of what is allowed.
fn monstrous_limit() -> impl Strategy<Value = Limit> {
    let span =
        prop_oneof![Just(1_u64), Just(9_000_000_000_000), Just(8_999_999_999_999), 1..9_000_000_000_000_u64];
    let window =
        (span.prop_map(Span::from_millis), 0..4_u8, amount()).prop_map(|(span, kind, burst)| match kind {
            0 => Window::Fixed(span),
            1 => Window::Sliding(span),
            2 => Window::Bucket { period: span, burst: None },
            _ => Window::Bucket { period: span, burst: Some(units(burst)) },
        });
    (window, amount()).prop_map(|(window, amount)| Limit { window, quota: Quota::of(units(amount)) })
}

fn amount() -> impl Strategy<Value = u64> {
    let most = Amount::MAX.units();
    prop_oneof![Just(0), Just(1), Just(most), Just(most - 1), 0..=most, 0..10_000_u64]
}

fn op(holds: usize) -> impl Strategy<Value = Op> {
    let far = 1_000_000_u64..400_000_000_000;
    prop_oneof![
        12 => reserve(holds),
        2 => costs().prop_map(|costs| Op::Weigh { costs }),
        6 => (0..holds, costs(), 0..=3_usize).prop_map(|(hold, spent, named)| Op::Settle { hold, spent, named }),
        1 => (0..holds).prop_map(|hold| Op::Withdraw { hold }),
        1 => (0..holds).prop_map(|hold| Op::Release { hold }),
        3 => (0..holds, 1..4000_u64, cost()).prop_map(|(hold, lease, total)| Op::Renew { hold, lease, total }),
        1 => (0..3_usize, limit()).prop_map(|(account, limit)| Op::Relimit { account, limit }),
        1 => Just(Op::Standings),
        8 => prop_oneof![4 => 0..90_u64, 2 => 90..1100_u64, 1 => 1100..5000_u64].prop_map(Op::Wait),
        1 => (3_500_000..3_700_000_u64).prop_map(Op::Wait),
        1 => far.clone().prop_map(Op::Wait),
        1 => (1..3000_u64).prop_map(Op::StepBack),
        1 => far.prop_map(Op::StepBack),
    ]
}

fn op_of_stores() -> impl Strategy<Value = Op> {
    let set = prop_oneof![1 => Just(None), 2 => (0..900_u64).prop_map(Some)];
    prop_oneof![
        12 => op(FEW),
        2 => (1..70_000_u64).prop_map(Op::StepBack),
        2 => (0..3_u32).prop_map(Op::Policy),
        1 => (0..3_usize, set).prop_map(|(account, amount)| Op::SetAmount { account, amount }),
        2 => (20_000..70_000_u64).prop_map(Op::Wait),
    ]
}

fn monstrous_op() -> impl Strategy<Value = Op> {
    let amounts = || prop::array::uniform3(amount());
    let span = || prop_oneof![Just(1_u64), Just(9_000_000_000_000), 1..9_000_000_000_000_u64];
    let how = prop_oneof![Just(OnLeaseEnd::Charge), Just(OnLeaseEnd::Release)];
    prop_oneof![
        6 => (0..FEW, amounts(), span(), how, amount()).prop_map(|(hold, costs, lease, how, largest)| {
            Op::Reserve { hold, costs, lease, how, mode: Mode::Shadow, largest }
        }),
        2 => amounts().prop_map(|costs| Op::Weigh { costs }),
        4 => (0..FEW, amounts(), 0..=3_usize).prop_map(|(hold, spent, named)| Op::Settle { hold, spent, named }),
        2 => (0..FEW, span(), amount()).prop_map(|(hold, lease, total)| Op::Renew { hold, lease, total }),
        1 => (0..3_usize, monstrous_limit()).prop_map(|(account, limit)| Op::Relimit { account, limit }),
        2 => span().prop_map(Op::Wait),
        1 => span().prop_map(Op::StepBack),
    ]
}

#[derive(Clone, Debug)]
struct History {
    limits: [Limit; 3],
    ops: Vec<Op>,
}

fn histories(
    limits: impl Strategy<Value = Limit>,
    op: impl Strategy<Value = Op>,
    most: usize,
) -> impl Strategy<Value = History> {
    let limits = prop::collection::vec(limits, 3).prop_map(|limits| [limits[0], limits[1], limits[2]]);
    (limits, prop::collection::vec(op, 1..most)).prop_map(|(limits, ops)| History { limits, ops })
}

/// What one operation answered.
#[derive(Debug, Eq, PartialEq)]
enum Did {
    Decided(Decision),
    Weighed(Result<Vec<usize>, Refusal>),
    Settled(Outcome, Vec<Posting>),
    Found(Found),
    Stood(Vec<Standing>),
    Nothing,
}

/// What is common to all keepers: the clock, the limits, the policy.
struct World {
    now: u64,
    limits: [Limit; 3],
    policy: u32,
}

impl World {
    fn new(history: &History) -> Self {
        Self { now: START, limits: history.limits, policy: 0 }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now)
    }

    /// A cost of nothing leaves the account out half of the time: as a rule nothing is asked of it.
    fn part(
        &self,
        hold: usize,
        costs: [u64; 3],
        lease: u64,
        how: OnLeaseEnd,
        mode: Mode,
        largest: u64,
    ) -> Part {
        let charges =
            (0..3).filter(|account| costs[*account] > 0 || hold.is_multiple_of(2)).map(|account| Charge {
                name: NAMES[account].to_owned(),
                limit: self.limits[account],
                cost: units(costs[account]),
                largest: units(largest),
                // Where costs are shadowed, the first is not: a refusal among them.
                mode: if account == 0 { Mode::Enforce } else { mode },
            });
        let (id, policy) = (id(hold), self.policy);
        Part { id, policy, charges: charges.collect(), lease: Span::from_millis(lease), on_lease_end: how }
    }

    fn entries(&self, spent: [u64; 3], named: usize) -> Vec<Entry> {
        let entry = |account: usize| Entry {
            name: NAMES[account].to_owned(),
            limit: self.limits[account],
            spent: units(spent[account]),
        };
        (0..named).map(entry).collect()
    }

    fn asked(&self) -> Vec<(String, Limit)> {
        NAMES.iter().zip(self.limits).map(|(name, limit)| ((*name).to_owned(), limit)).collect()
    }

    /// What changes only the world.
    fn pass(&mut self, op: &Op) {
        match *op {
            Op::Wait(millis) => self.now = (self.now + millis).min(8_900_000_000_000),
            Op::StepBack(millis) => self.now = self.now.saturating_sub(millis),
            Op::Relimit { account, limit } => self.limits[account] = limit,
            Op::Policy(policy) => self.policy = policy,
            Op::Reserve { .. }
            | Op::Weigh { .. }
            | Op::Settle { .. }
            | Op::Withdraw { .. }
            | Op::Release { .. }
            | Op::Renew { .. }
            | Op::Standings
            | Op::SetAmount { .. } => {}
        }
    }
}

async fn on_store<S: Store>(store: &S, slot: &Slot, history: &History) -> Vec<Did> {
    let mut world = World::new(history);
    let mut all = Vec::new();
    for op in history.ops.iter().chain([&Op::Standings]) {
        world.pass(op);
        let now = world.now();
        all.push(match *op {
            Op::Reserve { hold, costs, lease, how, mode, largest } => {
                let part = world.part(hold, costs, lease, how, mode, largest);
                Did::Decided(store.reserve(slot, &part, now).await.unwrap().result.decision)
            }
            Op::Weigh { costs } => {
                let part = world.part(0, costs, 1, OnLeaseEnd::Charge, Mode::Shadow, Amount::MAX.units());
                Did::Weighed(store.weigh(slot, &part, now).await.unwrap().result)
            }
            Op::Settle { hold, spent, named } => {
                let entries = world.entries(spent, named);
                settled(store.settle(slot, id(hold), Close::Settle, &entries, now).await.unwrap().result)
            }
            Op::Withdraw { hold } => {
                settled(store.settle(slot, id(hold), Close::Withdraw, &[], now).await.unwrap().result)
            }
            Op::Release { hold } => Did::Found(store.release(slot, id(hold), now).await.unwrap().result),
            Op::Renew { hold, lease, total } => {
                let totals = [(NAMES[0].to_owned(), units(total)), (NAMES[2].to_owned(), units(total / 2))];
                let lease = Span::from_millis(lease);
                Did::Found(store.renew(slot, id(hold), lease, &totals, now).await.unwrap().result)
            }
            Op::Standings => Did::Stood(store.standings(slot, &world.asked(), now).await.unwrap().result),
            Op::SetAmount { account, amount } => {
                store.set_amount(slot, NAMES[account], amount.map(units), now).await.unwrap();
                Did::Nothing
            }
            Op::Relimit { .. } | Op::Wait(_) | Op::StepBack(_) | Op::Policy(_) => Did::Nothing,
        });
    }
    all
}

fn settled(settled: Settled) -> Did {
    // What was nothing and is nothing may be told or not.
    let told = settled.postings.into_iter().filter(|posting| {
        posting.before.saturating_add(posting.spent).saturating_add(posting.debt) > Amount::ZERO
    });
    let mut postings: Vec<_> = told.collect();
    postings.sort();
    Did::Settled(settled.outcome, postings)
}

fn on_ledger(history: &History) -> Vec<Did> {
    let mut ledger = Ledger::new(Capacity { accounts: 1000, holds: 100_000 }, MEMORY);
    let mut world = World::new(history);
    let mut all = Vec::new();
    for op in history.ops.iter().chain([&Op::Standings]) {
        world.pass(op);
        let now = world.now();
        all.push(match *op {
            Op::Reserve { hold, costs, lease, how, mode, largest } => {
                let Part { id, charges, lease, on_lease_end, .. } =
                    world.part(hold, costs, lease, how, mode, largest);
                let charges = charges.iter().map(charge).collect();
                Did::Decided(ledger.reserve(&Reservation { id, charges, lease, on_lease_end }, now).unwrap())
            }
            Op::Weigh { costs } => {
                let part = world.part(0, costs, 1, OnLeaseEnd::Charge, Mode::Shadow, Amount::MAX.units());
                let charges: Vec<_> = part.charges.iter().map(charge).collect();
                Did::Weighed(ledger.weigh(&charges, now))
            }
            Op::Settle { hold, spent, named } => {
                let entry = |entry: &Entry| budget::Entry {
                    account: account_id(&entry.name),
                    limit: entry.limit,
                    spent: entry.spent,
                };
                let entries = world.entries(spent, named).iter().map(entry).collect();
                of_ledger(ledger.settle(&Settlement { id: id(hold), entries }, now).unwrap())
            }
            Op::Withdraw { hold } => of_ledger(ledger.withdraw(id(hold), now)),
            Op::Release { hold } => Did::Found(ledger.release(id(hold), now)),
            Op::Renew { hold, lease, total } => {
                let totals = [(account_id(NAMES[0]), units(total)), (account_id(NAMES[2]), units(total / 2))];
                ledger.raise(id(hold), &totals, now);
                Did::Found(ledger.renew(id(hold), Span::from_millis(lease), now))
            }
            Op::Standings => {
                let stand = |(name, limit): &(String, Limit)| ledger.standing(account_id(name), limit, now);
                Did::Stood(world.asked().iter().map(stand).collect())
            }
            Op::Relimit { .. } | Op::Wait(_) | Op::StepBack(_) | Op::Policy(_) | Op::SetAmount { .. } => {
                Did::Nothing
            }
        });
    }
    all
}

fn of_ledger(done: budget::Settled) -> Did {
    let posting = |posting: &budget::Posting| Posting {
        name: NAMES.iter().find(|name| account_id(name) == posting.account).unwrap().to_string(),
        before: posting.before,
        spent: posting.spent,
        refunded: posting.refunded,
        debt: posting.debt,
    };
    settled(Settled { outcome: done.outcome, postings: done.postings.iter().map(posting).collect() })
}

fn charge(charge: &Charge) -> budget::Charge {
    budget::Charge {
        account: account_id(&charge.name),
        limit: charge.limit,
        cost: charge.cost,
        largest: charge.largest,
        mode: charge.mode,
    }
}

fn account_id(name: &str) -> AccountId {
    SubjectHash::of("model", []).account(LimitHash::of(name))
}

fn id(hold: usize) -> HoldId {
    // Not in the order of their numbers, and with a zero byte: ids are bytes in Redis.
    HoldId::from_bits((hold as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_0000_0000_0000_0100) ^ 7)
}

fn units(units: u64) -> Amount {
    Amount::saturating(units)
}

/// Each history gets a slot of its own.
fn slot() -> Slot {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Slot::of(&format!("model/tokens/history={number}").parse().unwrap())
}

fn check(cases: u32, histories: impl Strategy<Value = History>, same: impl AsyncFn(&History)) {
    let config = Config {
        cases,
        rng_seed: RngSeed::Fixed(0x0c_0a_17_e2),
        failure_persistence: None,
        ..Config::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let run = TestRunner::new(config).run(&histories, |history| {
        runtime.block_on(same(&history));
        Ok(())
    });
    run.unwrap_or_else(|failure| panic!("{failure}"));
}

fn compare(history: &History, expected: &[Did], found: &[Did]) {
    for (place, (expected, found)) in expected.iter().zip(found).enumerate() {
        assert_eq!(expected, found, "operation {place}: {:?}", history.ops.get(place));
    }
    assert_eq!(expected.len(), found.len());
}

#[test]
fn memory_does_what_a_ledger_does() {
    let store = MemoryStore::default();
    check(2000, histories(limit(), op(FEW), 60), async |history| {
        compare(history, &on_ledger(history), &on_store(&store, &slot(), history).await);
    });
}

#[test]
fn redis_does_what_a_ledger_does() {
    let server = support::RedisServer::start();
    let store = server.store_with_clock_of_test();
    check(1500, histories(limit(), op(FEW), 60), async |history| {
        compare(history, &on_ledger(history), &on_store(&store, &slot(), history).await);
    });
}

#[test]
fn redis_counts_with_the_largest_numbers_as_a_ledger_does() {
    let server = support::RedisServer::start();
    let store = server.store_with_clock_of_test();
    check(1000, histories(monstrous_limit(), monstrous_op(), 60), async |history| {
        compare(history, &on_ledger(history), &on_store(&store, &slot(), history).await);
    });
}

#[test]
fn redis_minds_policies_and_live_amounts_as_memory_does() {
    let server = support::RedisServer::start();
    let (redis, memory) = (server.store_with_clock_of_test(), MemoryStore::default());
    check(1000, histories(limit(), op_of_stores(), 60), async |history| {
        let slot = slot();
        compare(history, &on_store(&memory, &slot, history).await, &on_store(&redis, &slot, history).await);
    });
}

/// Leases and waits are as in the other histories, so that many holds come to be due at once.
#[test]
fn redis_does_what_a_ledger_does_in_a_slot_with_many_holds() {
    let server = support::RedisServer::start();
    let store = server.store_with_clock_of_test();
    let roomy = || {
        let span = prop_oneof![Just(60_000_u64), Just(3_600_000)].prop_map(Span::from_millis);
        (span, 0..3_u8).prop_map(|(span, kind)| {
            let window = match kind {
                0 => Window::Fixed(span),
                1 => Window::Sliding(span),
                _ => Window::Bucket { period: span, burst: None },
            };
            Limit { window, quota: Quota::of(units(1_000_000)) }
        })
    };
    let op = prop_oneof![20 => op(MANY), 20 => reserve(MANY)];
    check(150, histories(roomy(), op, 500), async |history| {
        compare(history, &on_ledger(history), &on_store(&store, &slot(), history).await);
    });
}

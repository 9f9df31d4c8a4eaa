//! What the ledger promises, over generated histories. The seed is fixed: a failure is a failure for all.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngSeed};
use tollgate_budget::{
    AccountId, Amount, Capacity, Charge, Decision, Entry, Found, Full, HoldId, Ledger, Limit, Memory, Mode,
    OnLeaseEnd, Outcome, Quota, Reason, Refusal, Reservation, Settlement, Span, Standing, Timestamp, Window,
};

/// As many cases as `PROPTEST_CASES` says.
fn config() -> ProptestConfig {
    ProptestConfig {
        rng_seed: RngSeed::Fixed(0x70_11_6a_7e),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "proptest-regressions/properties.txt",
        ))),
        ..ProptestConfig::default()
    }
}

const ROOMY: Capacity = Capacity { accounts: 1000, holds: 1000 };
/// For worlds whose clock leaps by years.
const FOREVER: Memory =
    Memory { settled: Span::from_secs(10_000_000_000), ended: Span::from_secs(10_000_000_000) };
const LONG: Memory = Memory { settled: Span::from_secs(3600), ended: Span::from_secs(3600) };
const ACCOUNTS: usize = 3;

/// What may happen to a ledger. Holds are named by the order of their reservation.
#[derive(Clone, Debug)]
enum Op {
    Reserve {
        costs: [u64; ACCOUNTS],
        lease: u64,
        how: OnLeaseEnd,
    },
    /// In percent of what was held.
    Settle {
        hold: usize,
        percent: u64,
    },
    Release {
        hold: usize,
    },
    Renew {
        hold: usize,
        lease: u64,
    },
    Grow {
        hold: usize,
        by: u64,
    },
    Wait(u64),
    StepBack(u64),
}

fn reserve() -> impl Strategy<Value = Op> {
    let cost = prop_oneof![1 => Just(0), 4 => 1..120_u64, 1 => 120..1100_u64];
    let how = prop_oneof![Just(OnLeaseEnd::Charge), Just(OnLeaseEnd::Release)];
    (prop::array::uniform3(cost), 1..4000_u64, how).prop_map(|(costs, lease, how)| Op::Reserve {
        costs,
        lease,
        how,
    })
}

fn wait() -> impl Strategy<Value = Op> {
    prop_oneof![4 => 0..90_u64, 2 => 90..1100_u64, 1 => 1100..5000_u64].prop_map(Op::Wait)
}

/// Real costs within the holds, and a clock that only runs forward.
fn calm_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => reserve(),
        4 => (0..40_usize, 0..=100_u64).prop_map(|(hold, percent)| Op::Settle { hold, percent }),
        1 => (0..40_usize).prop_map(|hold| Op::Release { hold }),
        1 => (0..40_usize, 1..4000_u64).prop_map(|(hold, lease)| Op::Renew { hold, lease }),
        6 => wait(),
    ]
}

fn clock_op() -> impl Strategy<Value = Op> {
    let far = 1_000_000_u64..400_000_000_000;
    prop_oneof![
        12 => calm_op(),
        1 => (1..3000_u64).prop_map(Op::StepBack),
        1 => far.clone().prop_map(Op::StepBack),
        1 => far.prop_map(Op::Wait),
    ]
}

/// Costs beyond the holds as well.
fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => clock_op(),
        2 => (0..40_usize, 100..400_u64).prop_map(|(hold, percent)| Op::Settle { hold, percent }),
        1 => (0..40_usize, 0..300_u64).prop_map(|(hold, by)| Op::Grow { hold, by }),
    ]
}

fn limit() -> impl Strategy<Value = Limit> {
    let span = prop_oneof![Just(1000_u64), Just(60), Just(997), 1..3000_u64].prop_map(Span::from_millis);
    let window = (span, 0..4_u8, 1..1500_u64).prop_map(|(span, kind, burst)| match kind {
        0 => Window::Fixed(span),
        1 => Window::Sliding(span),
        2 => Window::Bucket { period: span, burst: None },
        _ => Window::Bucket { period: span, burst: Some(units(burst)) },
    });
    (window, 1..1000_u64).prop_map(|(window, amount)| Limit { window, quota: Quota::of(units(amount)) })
}

fn limits() -> impl Strategy<Value = [Limit; ACCOUNTS]> {
    prop::array::uniform3(limit())
}

/// A ledger, its clock, and what was asked of it.
#[derive(Clone)]
struct World {
    ledger: Ledger,
    limits: [Limit; ACCOUNTS],
    now: u64,
    asked: Vec<Reservation>,
    released: BTreeSet<usize>,
}

#[derive(Debug)]
enum Did {
    Reserved(Result<Decision, Full>),
    Settled(Outcome),
    Nothing,
}

impl World {
    fn new(limits: [Limit; ACCOUNTS]) -> Self {
        Self {
            ledger: Ledger::new(ROOMY, FOREVER),
            limits,
            now: 400_000_500_000,
            asked: Vec::new(),
            released: BTreeSet::new(),
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now)
    }

    fn reservation(&self, costs: [u64; ACCOUNTS], lease: u64, how: OnLeaseEnd) -> Reservation {
        let charges = (0..ACCOUNTS).filter(|account| costs[*account] > 0).map(|account| Charge {
            account: account_id(account),
            limit: self.limits[account],
            cost: units(costs[account]),
            largest: Amount::MAX,
            mode: Mode::Enforce,
        });
        Reservation {
            id: HoldId::from_bits(self.asked.len() as u128),
            charges: charges.collect(),
            lease: Span::from_millis(lease),
            on_lease_end: how,
        }
    }

    fn settlement(&self, hold: usize, percent: u64) -> Option<Settlement> {
        let Reservation { id, charges, .. } = self.asked.get(hold)?;
        // Whoever gave back a hold has nothing to settle.
        if self.released.contains(&hold) {
            return None;
        }
        let entries = charges.iter().map(|charge| Entry {
            account: charge.account,
            limit: charge.limit,
            spent: units(charge.cost.units() * percent / 100),
        });
        Some(Settlement { id: *id, entries: entries.collect() })
    }

    fn run(&mut self, op: &Op) -> Did {
        let now = self.now();
        match *op {
            Op::Reserve { costs, lease, how } => {
                let reservation = self.reservation(costs, lease, how);
                let decision = self.ledger.reserve(&reservation, now);
                if let Ok(Decision::Granted(_)) = decision {
                    self.asked.push(reservation);
                }
                Did::Reserved(decision)
            }
            Op::Settle { hold, percent } => match self.settlement(hold, percent) {
                Some(settlement) => Did::Settled(self.ledger.settle(&settlement, now).unwrap().outcome),
                None => Did::Nothing,
            },
            Op::Release { hold } => {
                if let Some(reservation) = self.asked.get(hold) {
                    self.ledger.release(reservation.id, now);
                    self.released.insert(hold);
                }
                Did::Nothing
            }
            Op::Renew { hold, lease } => {
                if let Some(reservation) = self.asked.get(hold) {
                    self.ledger.renew(reservation.id, Span::from_millis(lease), now);
                }
                Did::Nothing
            }
            Op::Grow { hold, by } => {
                if let Some(Reservation { id, charges, .. }) = self.asked.get(hold) {
                    let by: Vec<_> = charges.iter().map(|charge| (charge.account, units(by))).collect();
                    self.ledger.grow(*id, &by, now);
                }
                Did::Nothing
            }
            Op::Wait(millis) => {
                self.now += millis;
                Did::Nothing
            }
            Op::StepBack(millis) => {
                self.now = self.now.saturating_sub(millis);
                Did::Nothing
            }
        }
    }

    /// A lease end has released the hold, so its cost would come on top: debt.
    fn would_charge_what_was_given_back(&self, op: &Op) -> bool {
        let Op::Settle { hold, .. } = op else { return false };
        self.asked.get(*hold).is_some_and(|asked| {
            let renewed = self.ledger.clone().renew(asked.id, Span::ZERO, self.now());
            asked.on_lease_end == OnLeaseEnd::Release && renewed == Found::NotOpen
        })
    }

    fn standing(&mut self, account: usize) -> Standing {
        let now = self.now();
        self.ledger.standing(account_id(account), &self.limits[account], now)
    }

    fn standings(&mut self) -> [Standing; ACCOUNTS] {
        std::array::from_fn(|account| self.standing(account))
    }
}

fn account_id(account: usize) -> AccountId {
    AccountId::from_bits(account as u128)
}

fn units(units: u64) -> Amount {
    Amount::saturating(units)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_account_ever_gives_out_more_than_it_has_whatever_the_clock_does(
        limits in limits(),
        ops in prop::collection::vec(clock_op(), 1..80),
    ) {
        let mut world = World::new(limits);
        for op in &ops {
            if world.would_charge_what_was_given_back(op) {
                continue;
            }
            world.run(op);
            for standing in world.standings() {
                prop_assert!(standing.used() <= standing.capacity, "after {op:?}: {standing:?}");
            }
        }
    }

    #[test]
    fn windows_count_what_was_taken_in_them_and_nothing_else(
        limits in limits(),
        ops in prop::collection::vec(calm_op(), 1..80),
    ) {
        let mut world = World::new(limits);
        let mut model = Model::default();
        for op in &ops {
            let did = world.run(op);
            model.follow(op, &did, &world);
            for (account, limit) in limits.iter().enumerate() {
                let used = world.standing(account).used().units();
                let counted = model.used(account, limit, world.now);
                match limit.window {
                    Window::Fixed(_) | Window::Sliding(_) => {
                        prop_assert_eq!(used, counted, "account {} after {:?}", account, op);
                    }
                    // A bucket may keep back a part of a refund, never give back too much.
                    Window::Bucket { .. } => {
                        prop_assert!(used >= counted, "{used} < {counted} in {account} after {op:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn waiting_as_told_admits_and_a_millisecond_less_does_not(
        limits in limits(),
        ops in prop::collection::vec(any_op(), 1..60),
        costs in prop::array::uniform3(0..400_u64),
    ) {
        let mut world = World::new(limits);
        for mut op in ops {
            // Only what ends by itself may be foreseen.
            if let Op::Reserve { how, .. } = &mut op {
                *how = OnLeaseEnd::Charge;
            }
            world.run(&op);
        }
        let reservation = world.reservation(costs, 1000, OnLeaseEnd::Charge);
        let now = world.now();
        if let Ok(Decision::Refused(Refusal { reason: Reason::NotYet { retry_after }, .. })) =
            world.ledger.reserve(&reservation, now)
        {
            let waited = |millis| world.ledger.clone().reserve(&reservation, Timestamp::from_millis(millis));
            let told = world.now + retry_after.as_millis();
            prop_assert!(matches!(waited(told), Ok(Decision::Granted(_))), "not admitted after {retry_after}");
            let early = waited(told - 1);
            prop_assert!(matches!(early, Ok(Decision::Refused(_))), "admitted before {retry_after}");
        }
    }

    #[test]
    fn a_clock_out_of_its_mind_locks_nobody_out_for_longer_than_three_windows(
        limits in limits(),
        ops in prop::collection::vec(clock_op(), 1..60),
    ) {
        let mut world = World::new(limits);
        for op in &ops {
            world.run(op);
        }
        for (account, limit) in limits.iter().enumerate() {
            let own = match limit.window {
                Window::Fixed(_) => 1,
                Window::Sliding(_) => 2,
                Window::Bucket { .. } => limit.capacity().units() / limit.quota.amount().units() + 2,
            };
            let span = limit.window.span().as_millis();
            let reset = world.standing(account).reset.as_millis();
            prop_assert!(reset <= (1 + own) * span + 1, "{reset} ms with {limit:?}");
        }
    }

    #[test]
    fn a_refusal_leaves_nothing_behind(
        limits in limits(),
        ops in prop::collection::vec(calm_op(), 1..60),
    ) {
        let mut world = World::new(limits);
        for op in &ops {
            let mut before = world.ledger.clone();
            before.sweep(world.now());
            if let Did::Reserved(Ok(Decision::Refused(_))) = world.run(op) {
                prop_assert_eq!(&world.ledger, &before);
            }
        }
    }

    #[test]
    fn a_reservation_or_settlement_repeated_changes_nothing(
        limits in limits(),
        ops in prop::collection::vec(any_op(), 1..60),
    ) {
        let mut world = World::new(limits);
        for op in &ops {
            let did = world.run(op);
            let before = world.ledger.clone();
            match (op, did) {
                (Op::Reserve { .. }, Did::Reserved(Ok(Decision::Granted(_)))) => {
                    let again = world.asked.last().unwrap().clone();
                    let decision = world.ledger.reserve(&again, world.now());
                    prop_assert!(matches!(decision, Ok(Decision::Granted(_))));
                }
                (Op::Settle { hold, .. }, Did::Settled(_)) => {
                    let did = world.run(&Op::Settle { hold: *hold, percent: 333 });
                    prop_assert!(matches!(did, Did::Settled(Outcome::Duplicate)));
                    let late = world.asked[*hold].clone();
                    let decision = world.ledger.reserve(&late, world.now());
                    prop_assert_eq!(decision, Ok(Decision::AlreadySettled));
                }
                (_, _) => {}
            }
            prop_assert_eq!(&world.ledger, &before);
        }
    }

    /// In windows too long to end, the books must come out to the unit.
    #[test]
    fn every_token_is_booked_as_held_or_as_spent(
        kinds in prop::array::uniform3(0..3_u8),
        ops in prop::collection::vec(any_op(), 1..80),
    ) {
        let century = Span::from_secs(100 * 365 * 86_400);
        let limits = kinds.map(|kind| Limit {
            quota: Quota::of(units(5000)),
            window: match kind {
                0 => Window::Fixed(century),
                1 => Window::Sliding(century),
                _ => Window::Bucket { period: century, burst: None },
            },
        });
        let mut world = World::new(limits);
        let mut books = Books::default();
        for op in &ops {
            // Steps of years would end even these windows.
            if matches!(op, Op::Wait(millis) | Op::StepBack(millis) if *millis > 5000) {
                continue;
            }
            books.end(world.ledger.sweep(world.now()));
            let before = world.ledger.clone();
            let did = world.run(op);
            books.follow(op, &did, &world, before);
            books.end(world.ledger.sweep(world.now()));
            for account in 0..ACCOUNTS {
                let standing = world.standing(account);
                let (held, spent) = books.sums(account);
                prop_assert_eq!((standing.held, standing.spent), (held, spent), "after {:?}", op);
            }
        }
    }

    #[test]
    fn it_makes_no_difference_when_leases_are_swept(
        limits in limits(),
        ops in prop::collection::vec(calm_op(), 1..80),
        rhythm in 1..50_u64,
    ) {
        let mut lazy = World::new(limits);
        let mut eager = World::new(limits);
        for op in &ops {
            if let Op::Wait(millis) = op {
                for passed in (0..*millis).step_by(usize::try_from(rhythm).unwrap()) {
                    eager.ledger.sweep(Timestamp::from_millis(eager.now + passed));
                }
            }
            let (left, right) = (lazy.run(op), eager.run(op));
            prop_assert_eq!(format!("{left:?}"), format!("{right:?}"));
        }
        prop_assert_eq!(lazy.standings(), eager.standings());
    }

    /// A ledger with room for few accounts says so, or does as one with room for all.
    #[test]
    fn making_room_loses_no_debt(
        window in limit(),
        ops in prop::collection::vec((0..12_u128, 1..600_u64, 0..300_u64, 0..800_u64), 1..80),
    ) {
        let mut small = Ledger::new(Capacity { accounts: 3, holds: 20 }, LONG);
        let mut large = Ledger::new(ROOMY, LONG);
        let mut now = 50_000;
        for (id, (tenant, cost, percent, pause)) in ops.into_iter().enumerate() {
            now += pause;
            let at = Timestamp::from_millis(now);
            let (account, cost) = (AccountId::from_bits(tenant), units(cost));
            let id = HoldId::from_bits(id as u128);
            let charge = Charge { account, limit: window, cost, largest: Amount::MAX, mode: Mode::Enforce };
            let (lease, on_lease_end) = (Span::from_millis(700), OnLeaseEnd::Charge);
            let reservation = Reservation { id, charges: vec![charge], lease, on_lease_end };
            let Ok(decision) = small.reserve(&reservation, at) else { continue };
            prop_assert_eq!(Ok(decision.clone()), large.reserve(&reservation, at));
            prop_assert!(small.accounts() <= 3 && small.holds() <= 20);
            if matches!(decision, Decision::Granted(_)) && percent < 250 {
                let entry = Entry { account, limit: window, spent: units(cost.units() * percent / 100) };
                let settlement = Settlement { id, entries: vec![entry] };
                prop_assert_eq!(small.settle(&settlement, at), large.settle(&settlement, at));
            }
        }
    }

    #[test]
    fn a_ledger_survives_being_written_and_read(
        limits in limits(),
        ops in prop::collection::vec(any_op(), 1..60),
    ) {
        let mut world = World::new(limits);
        for op in &ops {
            world.run(op);
            let read = Ledger::decode(&world.ledger.encode(), ROOMY, FOREVER);
            prop_assert_eq!(read.as_ref(), Ok(&world.ledger));
        }
    }

    #[test]
    fn bytes_that_are_no_ledger_are_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(Ledger::decode(&bytes, ROOMY, LONG).is_err());
    }

    #[test]
    fn no_number_is_too_large(ops in prop::collection::vec(monstrous(), 1..30)) {
        let mut ledger = Ledger::new(ROOMY, LONG);
        for (limit, mode, cost, percent, now, lease) in ops {
            let now = Timestamp::from_millis(now);
            let id = HoldId::from_bits(u128::from(lease % 5));
            let account = AccountId::from_bits(u128::from(cost % 2));
            let charge = Charge { account, limit, cost: units(cost), largest: Amount::MAX, mode };
            let lease = Span::from_millis(lease);
            let reservation =
                Reservation { id, charges: vec![charge], lease, on_lease_end: OnLeaseEnd::Release };
            ledger.reserve(&reservation, now).unwrap();
            ledger.grow(id, &[(account, units(cost))], now);
            let standing = ledger.standing(account, &limit, now);
            prop_assert!(standing.used() <= Amount::MAX);
            if percent % 3 == 0 {
                let entries = vec![Entry { account, limit, spent: units(percent) }];
                ledger.settle(&Settlement { id, entries }, now).unwrap();
            }
        }
    }
}

fn monstrous() -> impl Strategy<Value = (Limit, Mode, u64, u64, u64, u64)> {
    let number = || {
        prop_oneof![
            Just(0),
            Just(1),
            Just(u64::MAX),
            Just(Amount::MAX.units()),
            Just(Amount::MAX.units() - 1),
            any::<u64>(),
            0..10_000_u64,
        ]
    };
    let window = (number(), 0..4_u8, number()).prop_map(|(span, kind, burst)| {
        let span = Span::from_millis(span);
        match kind {
            0 => Window::Fixed(span),
            1 => Window::Sliding(span),
            2 => Window::Bucket { period: span, burst: None },
            _ => Window::Bucket { period: span, burst: Some(units(burst)) },
        }
    });
    let limit =
        (window, number()).prop_map(|(window, amount)| Limit { window, quota: Quota::of(units(amount)) });
    let mode = prop_oneof![Just(Mode::Enforce), Just(Mode::Shadow)];
    (limit, mode, number(), number(), number(), number())
}

/// The algorithms by their definitions: every hold as an entry at the time it was taken, with what it turned
/// out to cost, and all of it summed anew each time.
#[derive(Default)]
struct Model {
    /// By hold.
    taken: Vec<Taken>,
}

struct Taken {
    at: [u64; ACCOUNTS],
    until: u64,
    how: OnLeaseEnd,
    amounts: [u64; ACCOUNTS],
    held: [u64; ACCOUNTS],
    open: bool,
    settled: bool,
}

impl Model {
    fn follow(&mut self, op: &Op, did: &Did, world: &World) {
        let now = world.now;
        for taken in self.taken.iter_mut().filter(|taken| taken.open && taken.until <= now) {
            taken.open = false;
            if taken.how == OnLeaseEnd::Release {
                taken.amounts = [0; ACCOUNTS];
            }
        }
        match (op, did) {
            (Op::Reserve { costs, lease, how }, Did::Reserved(Ok(Decision::Granted(_)))) => {
                let (at, until) = ([now; ACCOUNTS], now + lease);
                let (amounts, held) = (*costs, *costs);
                self.taken.push(Taken { at, until, how: *how, amounts, held, open: true, settled: false });
            }
            (Op::Settle { hold, percent }, Did::Settled(outcome)) if *outcome != Outcome::Duplicate => {
                let taken = &mut self.taken[*hold];
                let given_back = !taken.open && taken.how == OnLeaseEnd::Release;
                for (account, limit) in world.limits.iter().enumerate() {
                    taken.amounts[account] = taken.held[account] * percent / 100;
                    // What was given back is charged when its cost comes, except in a window that still
                    // counts, and except where it had aged before and was never given back.
                    let at = taken.at[account];
                    if given_back && counts(limit, at, taken.until) && !counts(limit, at, now) {
                        taken.at[account] = now;
                    }
                }
                taken.settled = true;
                taken.open = false;
            }
            (Op::Release { hold }, _) if *hold < self.taken.len() => {
                if !self.taken[*hold].settled {
                    self.taken[*hold].amounts = [0; ACCOUNTS];
                    self.taken[*hold].open = false;
                }
            }
            (Op::Renew { hold, lease }, _) if *hold < self.taken.len() => {
                if self.taken[*hold].open {
                    self.taken[*hold].until = now + lease;
                }
            }
            (_, _) => {}
        }
    }

    fn used(&self, account: usize, limit: &Limit, now: u64) -> u64 {
        let span = limit.window.span().as_millis();
        let mut taken: Vec<(u64, u64)> =
            self.taken.iter().map(|taken| (taken.at[account], taken.amounts[account])).collect();
        taken.sort_unstable();
        let in_window = |window: u64| -> u64 {
            taken.iter().filter(|(at, _)| at / span == window).map(|(_, amount)| amount).sum()
        };
        let current = now / span;
        match limit.window {
            Window::Fixed(_) => in_window(current),
            Window::Sliding(_) => {
                let left = 1000 - now % span * 1000 / span;
                in_window(current) + (in_window(current - 1) * left).div_ceil(1000)
            }
            // In units times the period, so that nothing is rounded; the last is rounded down.
            Window::Bucket { .. } => {
                let rate = limit.quota.amount().units();
                let (mut level, mut at) = (0_u64, 0);
                for (then, amount) in taken {
                    level = level.saturating_sub((then - at) * rate) + amount * span;
                    at = then;
                }
                level.saturating_sub((now - at) * rate) / span
            }
        }
    }
}

fn counts(limit: &Limit, at: u64, now: u64) -> bool {
    let span = limit.window.span().as_millis();
    match limit.window {
        Window::Fixed(_) => at / span == now / span,
        Window::Sliding(_) => now / span - at / span <= 1,
        Window::Bucket { .. } => false,
    }
}

/// What each hold has booked in each account.
#[derive(Default)]
struct Books {
    held: BTreeMap<(HoldId, AccountId), Amount>,
    spent: BTreeMap<(HoldId, AccountId), Amount>,
}

impl Books {
    fn end(&mut self, ended: Vec<tollgate_budget::Ended>) {
        for hold in ended {
            for posting in hold.postings {
                self.held.remove(&(hold.id, posting.account));
                self.spent.insert((hold.id, posting.account), posting.spent);
            }
        }
    }

    fn follow(&mut self, op: &Op, did: &Did, world: &World, mut before: Ledger) {
        match (op, did) {
            (Op::Reserve { .. }, Did::Reserved(Ok(Decision::Granted(_)))) => {
                let Reservation { id, charges, .. } = world.asked.last().unwrap();
                for charge in charges {
                    self.held.insert((*id, charge.account), charge.cost);
                }
            }
            (Op::Settle { hold, percent }, Did::Settled(outcome)) if *outcome != Outcome::Duplicate => {
                let settlement = world.settlement(*hold, *percent).unwrap();
                for entry in settlement.entries {
                    self.held.remove(&(settlement.id, entry.account));
                    self.spent.insert((settlement.id, entry.account), entry.spent);
                }
            }
            (Op::Release { hold }, _) => {
                let Some(Reservation { id, .. }) = world.asked.get(*hold) else { return };
                self.held.retain(|(hold, _), _| hold != id);
                // Known by its tombstone only: spent stays.
                let settled = before.settle(&Settlement { id: *id, entries: Vec::new() }, world.now());
                if settled.unwrap().outcome != Outcome::Duplicate {
                    self.spent.retain(|(hold, _), _| hold != id);
                }
            }
            (Op::Grow { hold, by }, _) => {
                let Some(Reservation { id, charges, .. }) = world.asked.get(*hold) else { return };
                if before.renew(*id, Span::ZERO, world.now()) == Found::Open {
                    for charge in charges {
                        let held = self.held.get_mut(&(*id, charge.account)).unwrap();
                        *held = held.saturating_add(units(*by));
                    }
                }
            }
            (_, _) => {}
        }
    }

    fn sums(&self, account: usize) -> (Amount, Amount) {
        let sum = |of: &BTreeMap<(HoldId, AccountId), Amount>| {
            of.iter()
                .filter(|((_, id), _)| *id == account_id(account))
                .fold(Amount::ZERO, |sum, (_, amount)| sum.saturating_add(*amount))
        };
        (sum(&self.held), sum(&self.spent))
    }
}

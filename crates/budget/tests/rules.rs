//! The ledger's rules one by one, where a generated history would hide the point.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use tollgate_budget::{
    AccountId, Amount, Capacity, Charge, Decision, Entry, Found, Full, Grant, HoldId, Ledger, Limit, Memory,
    Mode, OnLeaseEnd, Outcome, Quota, Reason, Refusal, Reservation, Settled, Settlement, Span, Standing,
    Timestamp, Window,
};

const MINUTE: Span = Span::from_secs(60);
const MEMORY: Memory = Memory { settled: MINUTE, ended: MINUTE };

fn ledger() -> Ledger {
    Ledger::new(Capacity { accounts: 10, holds: 10 }, MEMORY)
}

fn windows() -> [Window; 3] {
    [Window::Fixed(MINUTE), Window::Sliding(MINUTE), Window::Bucket { period: MINUTE, burst: None }]
}

fn limit(window: Window, amount: u64) -> Limit {
    Limit { window, quota: Quota::of(units(amount)) }
}

fn units(units: u64) -> Amount {
    Amount::saturating(units)
}

fn id(bits: u128) -> HoldId {
    HoldId::from_bits(bits)
}

fn account(bits: u128) -> AccountId {
    AccountId::from_bits(bits)
}

/// Just after the start of a minute.
fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(600_000 + millis)
}

fn charge(to: u128, limit: Limit, cost: u64) -> Charge {
    Charge { account: account(to), limit, cost: units(cost), largest: Amount::MAX, mode: Mode::Enforce }
}

fn reservation(hold: u128, charges: Vec<Charge>) -> Reservation {
    Reservation { id: id(hold), charges, lease: Span::from_secs(600), on_lease_end: OnLeaseEnd::Charge }
}

fn settlement(hold: u128, to: u128, limit: Limit, spent: u64) -> Settlement {
    Settlement { id: id(hold), entries: vec![Entry { account: account(to), limit, spent: units(spent) }] }
}

fn reserve(ledger: &mut Ledger, hold: u128, charges: Vec<Charge>, now: Timestamp) -> Decision {
    ledger.reserve(&reservation(hold, charges), now).unwrap()
}

fn granted(decision: Decision) -> Grant {
    match decision {
        Decision::Granted(grant) => grant,
        Decision::Refused(_) | Decision::AlreadySettled => panic!("{decision:?}"),
    }
}

fn refused(decision: Decision) -> Refusal {
    match decision {
        Decision::Refused(refusal) => refusal,
        Decision::Granted(_) | Decision::AlreadySettled => panic!("{decision:?}"),
    }
}

fn outcome(settled: Result<Settled, Full>) -> Outcome {
    settled.unwrap().outcome
}

fn used(standing: &Standing) -> (u64, u64) {
    (standing.held.units(), standing.spent.units())
}

#[test]
fn never_and_suspended_are_told_before_not_yet() {
    for window in windows() {
        let mut ledger = ledger();
        let (open, closed) = (limit(window, 100), limit(window, 0));
        reserve(&mut ledger, 1, vec![charge(1, open, 100)], at(0));
        let not_yet = charge(1, open, 50);
        let never = charge(2, open, 101);
        let never_by_share = Charge { largest: units(40), ..charge(2, open, 50) };
        for (other, reason) in [
            (never, Reason::Never { largest: units(100) }),
            (never_by_share, Reason::Never { largest: units(40) }),
            (charge(3, closed, 1), Reason::Suspended),
            (charge(3, closed, 0), Reason::Suspended),
        ] {
            let refusal = refused(reserve(&mut ledger, 2, vec![not_yet, other], at(0)));
            assert_eq!((refusal.charge, refusal.reason), (1, reason));
        }
    }
}

#[test]
fn the_longest_wait_is_told_and_its_charge_named() {
    let mut ledger = ledger();
    let (short, long) = (limit(Window::Fixed(Span::from_secs(10)), 100), limit(Window::Fixed(MINUTE), 100));
    reserve(&mut ledger, 1, vec![charge(1, short, 100), charge(2, long, 100)], at(1000));
    let both = vec![charge(1, short, 1), charge(2, long, 1), charge(1, short, 1)];
    let refusal = refused(reserve(&mut ledger, 2, both, at(1000)));
    assert_eq!(refusal.charge, 1);
    assert_eq!(refusal.reason, Reason::NotYet { retry_after: Span::from_secs(59) });
    assert_eq!(used(&refusal.standing), (100, 0));
}

#[test]
fn what_costs_nothing_is_not_held_up_by_a_debt() {
    for window in windows() {
        let mut ledger = ledger();
        let limit = limit(window, 100);
        ledger.settle(&settlement(1, 1, limit, 300), at(0)).unwrap();
        granted(reserve(&mut ledger, 2, vec![charge(1, limit, 0)], at(0)));
    }
}

#[test]
fn a_shadow_limit_takes_and_tells_but_never_refuses() {
    for window in windows() {
        let mut ledger = ledger();
        let shadow = |cost| Charge { mode: Mode::Shadow, ..charge(1, limit(window, 100), cost) };
        let grant = granted(reserve(&mut ledger, 1, vec![shadow(70)], at(0)));
        assert_eq!(grant.shadow_over, Vec::<usize>::new());
        let grant =
            granted(reserve(&mut ledger, 2, vec![charge(2, limit(window, 10), 1), shadow(70)], at(0)));
        assert_eq!(grant.shadow_over, [1]);
        assert_eq!(used(&grant.standings[1]), (140, 0));
        let grant = granted(reserve(&mut ledger, 3, vec![shadow(1000)], at(0)));
        assert_eq!(grant.shadow_over, [0]);
    }
}

#[test]
fn two_charges_on_one_account_are_weighed_together() {
    for window in windows() {
        let mut ledger = ledger();
        let limit = limit(window, 100);
        let twice = |cost| vec![charge(1, limit, cost), charge(1, limit, cost)];
        let refusal = refused(reserve(&mut ledger, 1, twice(60), at(0)));
        assert_eq!(refusal.reason, Reason::Never { largest: units(100) });
        granted(reserve(&mut ledger, 2, twice(50), at(0)));
        ledger.settle(&settlement(2, 1, limit, 30), at(0)).unwrap();
        assert_eq!(used(&ledger.standing(account(1), &limit, at(0))), (0, 30));
    }
}

#[test]
fn a_settlement_that_overtakes_its_reservation_leaves_no_hold_behind() {
    for window in windows() {
        let mut ledger = ledger();
        let limit = limit(window, 100);
        assert_eq!(outcome(ledger.settle(&settlement(1, 1, limit, 30), at(0))), Outcome::Unknown);
        assert_eq!(reserve(&mut ledger, 1, vec![charge(1, limit, 80)], at(1)), Decision::AlreadySettled);
        assert_eq!(outcome(ledger.settle(&settlement(1, 1, limit, 30), at(2))), Outcome::Duplicate);
        assert_eq!(used(&ledger.standing(account(1), &limit, at(2))), (0, 30));
        assert_eq!(outcome(ledger.settle(&settlement(1, 1, limit, 7), at(60_001))), Outcome::Unknown);
    }
}

#[test]
fn a_lease_end_charges_or_releases_and_a_late_settlement_corrects_either() {
    for window in windows() {
        for (how, between) in [(OnLeaseEnd::Charge, (0, 80)), (OnLeaseEnd::Release, (0, 0))] {
            let mut ledger = ledger();
            let limit = limit(window, 100);
            let lease = Span::from_millis(20);
            let charges = vec![charge(1, limit, 80)];
            let asked = Reservation { id: id(1), charges, lease, on_lease_end: how };
            granted(ledger.reserve(&asked, at(0)).unwrap());
            assert_eq!(ledger.renew(id(1), lease, at(10)), Found::Open);
            assert_eq!(used(&ledger.standing(account(1), &limit, at(29))), (80, 0));
            assert_eq!(used(&ledger.standing(account(1), &limit, at(30))), between);
            assert_eq!(ledger.renew(id(1), lease, at(31)), Found::NotOpen);
            assert_eq!(ledger.grow(id(1), &[(account(1), units(5))], at(31)), Found::NotOpen);
            let settled = ledger.settle(&settlement(1, 1, limit, 50), at(40));
            assert_eq!(outcome(settled), Outcome::CorrectedAfterLease);
            assert_eq!(used(&ledger.standing(account(1), &limit, at(40))), (0, 50), "{window:?} {how:?}");
        }
    }
}

#[test]
fn a_hold_that_outgrew_its_window_grows_in_the_current_one() {
    for window in [Window::Fixed(MINUTE), Window::Sliding(MINUTE)] {
        let mut ledger = ledger();
        let limit = limit(window, 100);
        granted(reserve(&mut ledger, 1, vec![charge(1, limit, 80)], at(0)));
        let later = at(120_000);
        assert_eq!(ledger.grow(id(1), &[(account(1), units(30))], later), Found::Open);
        assert_eq!(used(&ledger.standing(account(1), &limit, later)), (30, 0));
        // 80 have aged; of the 30 that have not, 10 were used.
        ledger.settle(&settlement(1, 1, limit, 90), later).unwrap();
        assert_eq!(used(&ledger.standing(account(1), &limit, later)), (0, 10));
    }
}

#[test]
fn growth_is_taken_even_beyond_the_limit() {
    for window in windows() {
        let mut ledger = ledger();
        let limit = limit(window, 100);
        granted(reserve(&mut ledger, 1, vec![charge(1, limit, 80)], at(0)));
        ledger.grow(id(1), &[(account(1), units(50)), (account(9), units(50))], at(0));
        let standing = ledger.standing(account(1), &limit, at(0));
        assert_eq!((used(&standing), standing.debt()), ((130, 0), units(30)));
        assert_eq!(ledger.accounts(), 1);
    }
}

#[test]
fn a_release_leaves_everything_as_it_was() {
    for window in windows() {
        let mut ledger = ledger();
        let limit = limit(window, 100);
        granted(reserve(&mut ledger, 1, vec![charge(1, limit, 20)], at(0)));
        let before = ledger.standing(account(1), &limit, at(0));
        granted(reserve(&mut ledger, 2, vec![charge(1, limit, 70), charge(2, limit, 1)], at(0)));
        assert_eq!(ledger.release(id(2), at(0)), Found::Open);
        assert_eq!(ledger.standing(account(1), &limit, at(0)), before);
        assert_eq!(ledger.release(id(2), at(0)), Found::NotOpen);
        assert_eq!(ledger.holds(), 1);
        granted(reserve(&mut ledger, 2, vec![charge(1, limit, 80)], at(0)));
    }
}

#[test]
fn an_account_without_an_entry_is_charged_what_was_set_aside() {
    let mut ledger = ledger();
    let limit = limit(Window::Fixed(MINUTE), 100);
    granted(reserve(&mut ledger, 1, vec![charge(1, limit, 20), charge(2, limit, 5)], at(0)));
    ledger.settle(&settlement(1, 1, limit, 3), at(0)).unwrap();
    assert_eq!(used(&ledger.standing(account(1), &limit, at(0))), (0, 3));
    assert_eq!(used(&ledger.standing(account(2), &limit, at(0))), (0, 5));
}

#[test]
fn a_full_ledger_says_which_charge_has_no_room_and_reuses_what_is_idle() {
    for window in windows() {
        let mut ledger = Ledger::new(Capacity { accounts: 2, holds: 3 }, MEMORY);
        let limit = limit(window, 100);
        granted(reserve(&mut ledger, 1, vec![charge(1, limit, 60)], at(0)));
        let three = reservation(2, vec![charge(1, limit, 1), charge(2, limit, 1), charge(3, limit, 1)]);
        assert_eq!(ledger.reserve(&three, at(0)), Err(Full::Accounts { index: 2 }));
        granted(reserve(&mut ledger, 2, vec![charge(2, limit, 1)], at(0)));
        ledger.release(id(2), at(0));
        granted(reserve(&mut ledger, 3, vec![charge(3, limit, 1)], at(0)));
        let plain = settlement(4, 4, limit, 1);
        assert_eq!(ledger.settle(&plain, at(0)), Err(Full::Accounts { index: 0 }));
        assert_eq!(outcome(ledger.settle(&settlement(4, 4, limit, 0), at(0))), Outcome::Unknown);
        let one_more = reservation(5, vec![charge(3, limit, 1)]);
        assert_eq!(ledger.reserve(&one_more, at(0)), Err(Full::Holds));
        // The mark of the settlement above is forgotten after a minute.
        granted(ledger.reserve(&one_more, at(60_000)).unwrap());
    }
}

#[test]
fn an_account_with_an_open_hold_is_kept_however_long_nothing_counts_in_it() {
    for window in windows() {
        let mut ledger = Ledger::new(Capacity { accounts: 1, holds: 3 }, MEMORY);
        let limit = limit(window, 100);
        granted(reserve(&mut ledger, 1, vec![charge(1, limit, 60)], at(0)));
        let later = at(300_000);
        assert_eq!(used(&ledger.standing(account(1), &limit, later)), (0, 0));
        let other = reservation(2, vec![charge(2, limit, 1)]);
        assert_eq!(ledger.reserve(&other, later), Err(Full::Accounts { index: 0 }));
        assert_eq!(outcome(ledger.settle(&settlement(1, 1, limit, 90), later)), Outcome::Closed);
        assert_eq!(used(&ledger.standing(account(1), &limit, later)), (0, 30));
        assert_eq!(ledger.reserve(&other, later), Err(Full::Accounts { index: 0 }));
        granted(ledger.reserve(&other, at(500_000)).unwrap());
    }
}

#[test]
fn a_lease_taken_under_a_clock_years_ahead_ends_when_the_clock_is_right_again() {
    let mut ledger = ledger();
    let limit = limit(Window::Fixed(MINUTE), 100);
    granted(reserve(&mut ledger, 1, vec![charge(1, limit, 60)], at(315_360_000_000)));
    assert_eq!(ledger.sweep(at(0)), []);
    assert_eq!(ledger.sweep(at(599_999)), []);
    let ended = ledger.sweep(at(600_000));
    assert_eq!((ended.len(), ended[0].postings[0].spent), (1, units(60)));
}

/// Fresh clients all the time, each using half of what it holds, over many short windows.
#[test]
fn of_a_limit_that_everybody_wants_at_least_99_percent_are_used() {
    const AMOUNT: u64 = 90_000;
    const SPAN: u64 = 1000;
    const WINDOWS: u64 = 10;
    // A sliding window cannot use again what is refunded after its end, so it loses the share of the window
    // that an answer takes.
    const LATENCY: u64 = 5;
    for window in [
        Window::Fixed(Span::from_millis(SPAN)),
        Window::Sliding(Span::from_millis(SPAN)),
        Window::Bucket { period: Span::from_millis(SPAN), burst: None },
    ] {
        let mut ledger =
            Ledger::new(Capacity { accounts: 1, holds: 100_000 }, Memory { settled: Span::ZERO, ..MEMORY });
        let limit = limit(window, AMOUNT);
        let mut open = std::collections::VecDeque::new();
        let (mut next, mut spent) = (0, 0);
        for now in 0..WINDOWS * SPAN {
            while open.front().is_some_and(|(_, until)| *until <= now) {
                let (hold, _) = open.pop_front().unwrap();
                ledger.settle(&settlement(hold, 1, limit, 100), at(now)).unwrap();
                spent += 100;
            }
            while let Decision::Granted(_) = reserve(&mut ledger, next, vec![charge(1, limit, 200)], at(now))
            {
                open.push_back((next, now + LATENCY));
                next += 1;
            }
        }
        assert!(spent * 100 >= WINDOWS * AMOUNT * 99, "{window:?}: {} of {}", spent, WINDOWS * AMOUNT);
    }
}

#[test]
fn a_withdrawal_that_comes_first_leaves_a_mark() {
    for window in windows() {
        let mut ledger = ledger();
        let limit = limit(window, 100);
        assert_eq!(ledger.withdraw(id(1), at(0)).outcome, Outcome::Unknown);
        assert_eq!(reserve(&mut ledger, 1, vec![charge(1, limit, 60)], at(1)), Decision::AlreadySettled);
        assert_eq!(ledger.standing(account(1), &limit, at(2)).used(), Amount::ZERO);
        reserve(&mut ledger, 2, vec![charge(1, limit, 60)], at(3));
        assert_eq!(ledger.withdraw(id(2), at(4)).outcome, Outcome::Closed);
        assert_eq!(ledger.withdraw(id(2), at(5)).outcome, Outcome::Duplicate);
        let late = ledger.settle(&settlement(2, 1, limit, 60), at(6)).unwrap();
        assert_eq!(late.outcome, Outcome::Duplicate);
        assert_eq!(ledger.standing(account(1), &limit, at(7)).used(), Amount::ZERO);
    }
}

#[test]
fn a_hold_is_raised_to_a_total_however_often_it_is_said() {
    for window in windows() {
        let mut ledger = ledger();
        let limit = limit(window, 100);
        reserve(&mut ledger, 1, vec![charge(1, limit, 60)], at(0));
        for total in [80, 120, 80, 120, 10] {
            assert_eq!(ledger.raise(id(1), &[(account(1), units(total))], at(1)), Found::Open);
        }
        assert_eq!(ledger.standing(account(1), &limit, at(2)).held, units(120));
        assert_eq!(ledger.raise(id(2), &[(account(1), units(9))], at(3)), Found::NotOpen);
    }
}

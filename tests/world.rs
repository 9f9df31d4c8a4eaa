//! Many workers over one shared memory, with a clock that steps, clients that leave, upstreams that fail,
//! VMs that are lost, and other workers in every gap: nothing is granted twice, nothing is forgotten.
//!
//! Each history is a seed. A failing one says so, and replays.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod common;

use std::cell::RefCell;
use std::rc::Rc;

use common::cuts::Random;
use common::proxy::native::{NativeProxy, NativeStream};
use common::proxy::{Proxy, START_MS, Seen, Setup, Stream};
use common::requests::{
    Ask, PROMPT, Standing, answer, answer_bytes, begin_events, delta, send_events, standing, usage_event,
};
use serde_json::{Value, json};

const WORKERS: usize = 3;
const TENANTS: [&str; 3] = ["a", "b", "c"];

/// How answers relate to their holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Answers {
    /// None costs more than was held.
    Within,
    /// Some do, and become debt.
    Beyond,
}

/// What the clock does beside going on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Clock {
    Steady,
    Steps,
}

struct Plot {
    seed: u64,
    window: Value,
    answers: Answers,
    clock: Clock,
    on_lease_end: &'static str,
}

/// What the world knows of one request that was let through.
struct Exchange {
    stream: NativeStream,
    worker: usize,
    tenant: &'static str,
    cap: u64,
    phase: Phase,
    /// Tokens of the answer that have passed.
    seen: u64,
    /// Output that is held for it.
    covered: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Waiting,
    Streaming,
    Over,
    /// Its VM is gone: nobody will settle it.
    Lost,
}

struct World {
    plot: Plot,
    random: Random,
    proxy: NativeProxy,
    exchanges: Vec<Exchange>,
    /// What other workers did in a gap; they know of no more than what they opened.
    intruders: Rc<RefCell<Vec<Exchange>>>,
    amount: u64,
    global: u64,
}

impl World {
    fn new(plot: Plot) -> Self {
        let mut random = Random::seeded(plot.seed);
        let amount = 1000 + 500 * below(&mut random, 12);
        let global = amount * 2;
        let tokens = |name: &str, per: Value, amount: u64, unit: &str| json!({"name": name, "per": per, "unit": unit, "window": plot.window, "amount": amount});
        let policy = json!({
            "version": 1,
            "subject": {"tenant": {"from": [{"header": "x-tenant-id"}], "default": "anonymous"}},
            "store": {"local": {"shards": 1 + below(&mut random, 6)}},
            "hold": {"lease": "10s", "on_lease_end": plot.on_lease_end},
            "limits": [
                tokens("tenant", json!(["tenant"]), amount, "tokens"),
                tokens("requests", json!(["tenant"]), 40, "requests"),
                tokens("global", json!([]), global, "raw_tokens"),
            ],
        });
        let proxy = NativeProxy::launch(&Setup::new(&policy).workers(WORKERS).start_ms(START_MS + 7_000_000));
        let intruders = Rc::default();
        Self { plot, random, proxy, exchanges: Vec::new(), intruders, amount, global }
    }

    fn below(&mut self, bound: u64) -> u64 {
        below(&mut self.random, bound)
    }

    fn pick(&mut self, bound: usize) -> usize {
        self.random.below(bound)
    }

    fn step(&mut self) {
        self.disturb();
        match self.below(12) {
            0..=3 => self.ask(),
            4..=8 => self.go_on(),
            9 => {
                let ms = self.below(3_000);
                self.proxy.advance(ms);
            }
            10 => self.step_clock(),
            _ => self.lose_a_vm(),
        }
        self.adopt();
        self.check_limits();
    }

    /// In some of the gaps to come another worker is faster.
    fn disturb(&mut self) {
        let conflicts = self.below(4).saturating_sub(1) * self.below(8);
        self.proxy.conflict(conflicts);
        let (cap, tenant) = (10 + self.below(200), TENANTS[self.pick(3)]);
        let intrudes = self.below(3) == 0;
        let (worker, lower) = (WORKERS - 1, self.proxy.clone());
        let (seen, mut left) = (Rc::clone(&self.intruders), u32::from(intrudes));
        self.proxy.memory().interrupt(move || {
            if left > 0 {
                left -= 1;
                let stream = Ask::new(cap).tenant(tenant).send_to(&lower, worker);
                seen.borrow_mut().push(Exchange::of(stream, worker, tenant, cap));
            }
        });
    }

    fn adopt(&mut self) {
        let intruders = self.intruders.take();
        let passed = intruders.into_iter().filter(|exchange| exchange.stream.seen().passed());
        self.exchanges.extend(passed);
    }

    fn ask(&mut self) {
        let (cap, tenant) = (1 + self.below(600), TENANTS[self.pick(3)]);
        // The last worker acts in the gaps of the others.
        let worker = self.pick(WORKERS - 1);
        let ask = if self.below(2) == 0 { Ask::new(cap) } else { Ask::stream(cap) };
        let ask = ask.tenant(tenant);
        let stream = ask.begin(&self.proxy, worker);
        let (head, tail) = ask.body.split_at(10);
        stream.body(head, false);
        if self.below(8) == 0 {
            stream.client_leaves();
            return;
        }
        stream.body(tail, true);
        let seen = stream.seen();
        if seen.passed() {
            self.exchanges.push(Exchange::of(stream, worker, tenant, cap));
        } else {
            assert!([413, 429].contains(&seen.status()), "{}", seen.client.text());
        }
    }

    fn go_on(&mut self) {
        let open: Vec<usize> = (0..self.exchanges.len()).filter(|n| self.exchanges[*n].is_open()).collect();
        if open.is_empty() {
            return;
        }
        let index = open[self.pick(open.len())];
        let (action, size) = (self.below(10), self.below(300));
        let answers = self.plot.answers;
        let exchange = &mut self.exchanges[index];
        let room = match answers {
            Answers::Within => exchange.cap - exchange.seen,
            Answers::Beyond => 1000,
        };
        let size = size.min(room);
        match (exchange.phase, action) {
            (Phase::Waiting, 0..=3) => {
                begin_events(&exchange.stream);
                exchange.phase = Phase::Streaming;
            }
            (Phase::Waiting, 4..=6) => exchange.end(|stream| answer(stream, PROMPT, size)),
            (Phase::Waiting, 7) => exchange.end(|stream| answer_bytes(stream, 429, &[], b"{}")),
            (Phase::Streaming, 0..=4) => exchange.say(size),
            (Phase::Streaming, 5..=7) => {
                let output = exchange.seen + size.min(room);
                exchange.end(|stream| send_events(stream, &[&usage_event(PROMPT, output)]));
            }
            (Phase::Waiting | Phase::Streaming, 8) => exchange.end(Stream::client_leaves),
            (Phase::Waiting | Phase::Streaming, _) => exchange.end(Stream::upstream_resets),
            (Phase::Over | Phase::Lost, _) => {}
        }
    }

    fn step_clock(&mut self) {
        let (now, by) = (self.proxy.now_ms(), self.below(15_000));
        match (self.plot.clock, self.below(3)) {
            (Clock::Steady, _) => self.proxy.advance(100),
            // Far enough to end leases that nobody could renew, and not so far that they are forgotten.
            (Clock::Steps, 0) => self.proxy.set_time(now + by),
            (Clock::Steps, _) => self.proxy.set_time(now - by),
        }
    }

    fn lose_a_vm(&mut self) {
        if self.below(4) > 0 {
            return;
        }
        let worker = self.pick(WORKERS);
        self.proxy.reload(worker);
        for exchange in
            self.exchanges.iter_mut().filter(|exchange| exchange.worker == worker && exchange.is_open())
        {
            exchange.phase = Phase::Lost;
        }
    }

    fn quiet(&self) {
        self.proxy.conflict(0);
        self.proxy.memory().interrupt(|| {});
    }

    fn standing(&self, limit: &str, tenant: &str) -> Standing {
        standing(&self.proxy, limit, tenant)
    }

    /// Granted holds never exceed a limit; only what answers cost beyond their holds can.
    fn check_limits(&self) {
        self.quiet();
        if self.plot.answers == Answers::Beyond {
            return;
        }
        for (limit, most) in [("tenant", self.amount), ("global", self.global), ("requests", 40)] {
            for tenant in TENANTS {
                let Standing { spent, held } = self.standing(limit, tenant);
                assert!(
                    spent + held <= most,
                    "seed {}: {limit} of {tenant}: {spent} + {held}",
                    self.plot.seed
                );
            }
        }
    }

    /// Ends all that is open, and waits until every lost hold has ended with its lease.
    fn wind_up(&mut self) {
        self.quiet();
        for exchange in self.exchanges.iter_mut().filter(|exchange| exchange.is_open()) {
            exchange.end(Stream::client_leaves);
        }
        self.proxy.advance(10_000);
    }

    fn check_settlements(&self) {
        let seed = self.plot.seed;
        let settled = self.exchanges.iter().filter(|exchange| exchange.phase == Phase::Over).count() as u64;
        let of = |outcome: &str| self.proxy.metric(&format!("tollgate_settlements_total;outcome={outcome}"));
        assert_eq!(of("closed") + of("after_lease"), settled, "seed {seed}: each settled once");
        assert_eq!((of("unknown"), of("duplicate"), of("lost")), (0, 0, 0), "seed {seed}");
        if self.plot.clock == Clock::Steady {
            assert_eq!(of("after_lease"), 0, "seed {seed}: a lease that is renewed does not end");
        }
    }

    /// In a window that has not rolled, an account is the sum of what its requests cost.
    fn check_accounts(&self) {
        let seed = self.plot.seed;
        let mut total = 0;
        for tenant in TENANTS {
            let own: Vec<&Exchange> =
                self.exchanges.iter().filter(|exchange| exchange.tenant == tenant).collect();
            let tokens = own.iter().map(|exchange| self.cost(exchange)).sum();
            total += tokens;
            assert_eq!(
                self.standing("tenant", tenant),
                Standing { spent: tokens, held: 0 },
                "seed {seed}: {tenant}"
            );
            let given_back =
                |exchange: &&&Exchange| exchange.phase == Phase::Lost && self.plot.on_lease_end == "release";
            let requests = own.len() - own.iter().filter(given_back).count();
            let expected = Standing { spent: requests as u64, held: 0 };
            assert_eq!(self.standing("requests", tenant), expected, "seed {seed}: {tenant}");
        }
        assert_eq!(self.standing("global", "a"), Standing { spent: total, held: 0 }, "seed {seed}");
    }

    fn cost(&self, exchange: &Exchange) -> u64 {
        match (exchange.phase, self.plot.on_lease_end) {
            (Phase::Lost, "charge") => PROMPT + exchange.covered,
            (Phase::Lost, _) => 0,
            (Phase::Waiting | Phase::Streaming | Phase::Over, _) => charged(&exchange.stream.seen()),
        }
    }

    fn check_rest(&self) {
        for (limit, tenant) in [("tenant", "a"), ("tenant", "b"), ("requests", "c"), ("global", "a")] {
            assert_eq!(
                self.standing(limit, tenant),
                Standing { spent: 0, held: 0 },
                "seed {}",
                self.plot.seed
            );
        }
    }
}

impl Exchange {
    fn of(stream: NativeStream, worker: usize, tenant: &'static str, cap: u64) -> Self {
        Self { stream, worker, tenant, cap, phase: Phase::Waiting, seen: 0, covered: cap }
    }

    fn is_open(&self) -> bool {
        match self.phase {
            Phase::Waiting | Phase::Streaming => true,
            Phase::Over | Phase::Lost => false,
        }
    }

    fn say(&mut self, tokens: u64) {
        let text = " a".repeat(usize::try_from(tokens).unwrap());
        self.stream.answer_chunk(delta(&text).as_bytes(), false);
        self.seen += tokens;
        if self.seen > self.covered {
            self.covered += (self.seen - self.covered).div_ceil(256) * 256;
        }
    }

    fn end(&mut self, act: impl FnOnce(&NativeStream)) {
        act(&self.stream);
        assert!(self.stream.seen().ended);
        self.phase = Phase::Over;
    }
}

fn charged(seen: &Seen) -> u64 {
    seen.recorded("input") + seen.recorded("output")
}

fn below(random: &mut Random, bound: u64) -> u64 {
    random.below(usize::try_from(bound).unwrap()) as u64
}

fn lease_end(seed: u64) -> &'static str {
    if seed.is_multiple_of(2) { "charge" } else { "release" }
}

/// A window that does not end in a test's time.
fn year() -> Value {
    json!({"fixed": "365d"})
}

const STEPS: usize = 120;

fn history(plot: Plot) -> World {
    let mut world = World::new(plot);
    for _ in 0..STEPS {
        world.step();
    }
    world.wind_up();
    world
}

#[test]
fn nothing_is_granted_beyond_a_limit_and_every_account_is_the_sum_of_its_requests() {
    for seed in 0..100 {
        let world = history(Plot {
            seed,
            window: year(),
            answers: Answers::Within,
            clock: Clock::Steady,
            on_lease_end: lease_end(seed),
        });
        world.check_settlements();
        world.check_accounts();
    }
}

#[test]
fn debts_and_steps_of_the_clock_do_not_make_a_settlement_count_twice() {
    for seed in 1000..1100 {
        let world = history(Plot {
            seed,
            window: year(),
            answers: Answers::Beyond,
            clock: Clock::Steps,
            on_lease_end: lease_end(seed),
        });
        world.check_settlements();
        world.check_accounts();
    }
}

#[test]
fn windows_that_roll_under_a_stepping_clock_never_hold_more_than_their_amount_and_empty_in_the_end() {
    let windows = [
        json!({"fixed": "10s"}),
        json!({"sliding": "10s"}),
        json!({"bucket": "10s"}),
        json!({"sliding": "3s"}),
    ];
    for seed in 2000..2120 {
        let window = windows[usize::try_from(seed).unwrap() % windows.len()].clone();
        let world = history(Plot {
            seed,
            window,
            answers: Answers::Within,
            clock: Clock::Steps,
            on_lease_end: lease_end(seed),
        });
        world.check_settlements();
        world.proxy.set_time(world.proxy.now_ms() + 900_000);
        world.check_rest();
    }
}

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
    Ask, PROMPT, Standing, answer, answer_bytes, begin_events, delta, send_events, standing, standings,
    usage_event,
};
use serde_json::{Value, json};

const WORKERS: usize = 3;
const REQUESTS: u64 = 40;
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
    /// The latest time there has been.
    latest: u64,
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
                tokens("requests", json!(["tenant"]), REQUESTS, "requests"),
                tokens("global", json!([]), global, "raw_tokens"),
            ],
        });
        let proxy = NativeProxy::launch(&Setup::new(&policy).workers(WORKERS).start_ms(START_MS + 7_000_000));
        let intruders = Rc::default();
        Self { plot, random, proxy, exchanges: Vec::new(), intruders, amount, global, latest: 0 }
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
        self.latest = self.latest.max(self.proxy.now_ms());
        if self.below(3) == 0 {
            self.check_limits();
        }
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
        // A hold that ended by its lease and gave its room away may still be settled: that is debt.
        let may_owe = self.plot.clock == Clock::Steps && self.plot.on_lease_end == "release";
        if self.plot.answers == Answers::Beyond || may_owe {
            return;
        }
        let most = |limit: &str| match limit {
            "tenant" => self.amount,
            "global" => self.global,
            _ => REQUESTS,
        };
        for tenant in TENANTS {
            for (limit, Standing { spent, held }) in standings(&self.proxy, tenant) {
                let seed = self.plot.seed;
                assert!(spent + held <= most(&limit), "seed {seed}: {limit} of {tenant}: {spent} + {held}");
            }
        }
    }

    /// Ends all that is open, and waits until every lost hold has ended with its lease.
    fn wind_up(&mut self) {
        self.quiet();
        for exchange in self.exchanges.iter_mut().filter(|exchange| exchange.is_open()) {
            exchange.end(Stream::client_leaves);
        }
        // A lease that began before the clock stepped back runs from the step only once its shard is touched.
        let back = self.latest - self.proxy.now_ms();
        self.proxy.advance(back + 10_000);
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
        let sum = |of: &[&Exchange], cost: fn(&Exchange, &str) -> u64| -> u64 {
            of.iter().map(|exchange| cost(exchange, self.plot.on_lease_end)).sum()
        };
        for tenant in TENANTS {
            let own: Vec<&Exchange> = self.exchanges.iter().filter(|one| one.tenant == tenant).collect();
            let requests = Standing { spent: sum(&own, Exchange::requests), held: 0 };
            assert_eq!(self.standing("requests", tenant), requests, "seed {seed}: {tenant}");
            let Standing { spent, held } = self.standing("tenant", tenant);
            let (least, most) = (sum(&own, Exchange::least), sum(&own, Exchange::most));
            assert!(
                held == 0 && (least..=most).contains(&spent),
                "seed {seed}: {tenant}: {spent}, not {least}..={most}"
            );
            assert!(least == most || self.plot.clock == Clock::Steps);
        }
        let tenants = TENANTS.map(|tenant| self.standing("tenant", tenant).spent);
        let global = Standing { spent: tenants.iter().sum(), held: 0 };
        assert_eq!(self.standing("global", "a"), global, "seed {seed}");
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

// What it cost in the end, by how a lease ends.
impl Exchange {
    fn requests(&self, on_lease_end: &str) -> u64 {
        u64::from(self.phase != Phase::Lost || on_lease_end == "charge")
    }

    /// What a lost stream grew by is lost too where its lease had ended before: the clock had stepped.
    fn least(&self, on_lease_end: &str) -> u64 {
        if self.phase == Phase::Lost {
            self.lost(self.cap, on_lease_end)
        } else {
            charged(&self.stream.seen())
        }
    }

    fn most(&self, on_lease_end: &str) -> u64 {
        if self.phase == Phase::Lost {
            self.lost(self.covered, on_lease_end)
        } else {
            charged(&self.stream.seen())
        }
    }

    fn lost(&self, output: u64, on_lease_end: &str) -> u64 {
        if on_lease_end == "charge" { PROMPT + output } else { 0 }
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

/// What a foreign model's prompts are held at, whatever workers, races and providers do to what is learned.
#[test]
fn lessons_of_a_torn_world_stay_within_their_bounds_and_end_up_the_same_everywhere() {
    for seed in 3000..3040 {
        let mut random = Random::seeded(seed);
        let proxy = NativeProxy::launch(&Setup::new(&foreign_policy()).workers(WORKERS));
        let text = "The keeper climbed the stairs. ".repeat(300);
        let ask = Ask::new(1)
            .with("model", json!("foreign"))
            .with("messages", json!([{"role": "user", "content": text}]));
        let held = |worker: usize| {
            let stream = ask.send_to(&proxy, worker);
            stream.client_leaves();
            stream.seen().recorded("estimated_input")
        };
        let counted = held(0);
        let bounds = counted / 2..=counted * 2;
        for _ in 0..400 {
            let worker = random.below(WORKERS);
            match below(&mut random, 10) {
                0 => proxy.reload(worker),
                1 => proxy.memory().conflict(below(&mut random, 6)),
                2 | 3 => proxy.advance(below(&mut random, 900)),
                4 => answer(&ask.send_to(&proxy, worker), below(&mut random, 1_000_000), 1),
                _ => answer(&ask.send_to(&proxy, worker), counted * (120 + below(&mut random, 20)) / 100, 1),
            }
            assert!(bounds.contains(&held(worker)), "seed {seed}: {} after {counted}", held(worker));
        }
        proxy.memory().conflict(0);
        proxy.advance(1000);
        let all: Vec<u64> = (0..WORKERS).map(held).collect();
        assert!(all.iter().all(|held| *held == all[0]), "seed {seed}: {all:?}");
        assert!(all[0] > counted * 11 / 10, "seed {seed}: {all:?} after {counted}");
    }
}

fn foreign_policy() -> Value {
    json!({
        "version": 1,
        "models": [{"match": "foreign", "tokenizer": {"like": "o200k_base", "factor": 1.0}}],
        "limits": [{"name": "all", "per": [], "unit": "tokens", "window": year(), "amount": 4_000_000_000_u64}],
    })
}

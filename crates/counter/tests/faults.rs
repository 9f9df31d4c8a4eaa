//! What Redis may do to the service. After each fault the accounts equal a replay of what was acknowledged:
//! every hold is over, and every settlement counts once.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that cannot go on has failed"
)]

mod proxy;
mod support;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use proxy::{Proxy, Way};
use support::RedisServer;
use tollgate_budget::wire::{self, Close, Outcome, Purpose};
use tollgate_budget::{Amount, Decision, HoldId, Mode, OnLeaseEnd, Span, Timestamp, Window};
use tollgate_counter::Service;
use tollgate_counter::problem::Problem;
use tollgate_counter::store::StoreError;
use tollgate_counter::store::redis::{RedisStore, Target};

/// Of one step: short, since what is frozen is waited for so long, and long enough for a busy machine.
const TIMEOUT: Duration = Duration::from_millis(500);

/// A window that does not end: whatever is spent stays to be seen.
const EVER: Window = Window::Fixed(Span::from_millis(9_000_000_000_000));
const AMOUNT: Amount = Amount::saturating(1_000_000);
const COST: u64 = 10;
const GLOBAL: &str = "default/global/";

/// Before, during and after each fault, by their numbers.
const SETTLED_BEFORE: std::ops::Range<u64> = 0..40;
const OPEN_BEFORE: std::ops::Range<u64> = 40..80;
const DURING: std::ops::Range<u64> = 80..200;

/// Answers in the middle of the load before the fault comes.
const UNHARMED: usize = 30;

type Subject = Arc<Service<RedisStore>>;

fn block<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

fn service(target: Target) -> Subject {
    Arc::new(Service::new(RedisStore::new(target, TIMEOUT).unwrap(), tollgate_counter::clock::system))
}

fn tenant(number: u64) -> String {
    format!("default/tokens/tenant=t{}", number % 7)
}

fn spent(number: u64) -> u64 {
    // Less than the hold, as much, and more.
    number % 23
}

fn hold(number: u64) -> wire::Hold {
    let charge = |account: &str| wire::Charge {
        account: account.parse().unwrap(),
        window: EVER,
        amount: AMOUNT,
        cost: Amount::saturating(COST),
        largest: Amount::MAX,
        mode: Mode::Enforce,
    };
    wire::Hold {
        id: HoldId::from_bits(number.into()),
        purpose: Purpose::Take,
        policy: 1,
        lease: Span::from_secs(3600),
        on_lease_end: OnLeaseEnd::Charge,
        charges: vec![charge(&tenant(number)), charge(GLOBAL)],
    }
}

/// Every ninth is withdrawn: its answer never came, and the request was denied for it.
fn settlement(number: u64) -> wire::Settlement {
    let entry = |account: &str| wire::Entry {
        account: account.parse().unwrap(),
        window: EVER,
        amount: AMOUNT,
        spent: Amount::saturating(spent(number)),
    };
    let close = if number.is_multiple_of(9) { Close::Withdraw } else { Close::Settle };
    let entries = vec![entry(&tenant(number)), entry(GLOBAL)];
    wire::Settlement { id: HoldId::from_bits(number.into()), close, entries }
}

async fn is_settled(service: &Subject, number: u64) -> bool {
    service.settle(&[settlement(number)]).await.unwrap() != [Outcome::Failed]
}

/// As a gateway does: again and again, under the same id.
async fn settle_at_last(service: &Subject, number: u64) {
    while !is_settled(service, number).await {
        tokio::task::yield_now().await;
    }
}

async fn used(service: &Subject, account: &str) -> (u64, u64) {
    let account = wire::Account { account: account.parse().unwrap(), window: EVER, amount: AMOUNT };
    let standing = service.standings(&[account]).await.unwrap()[0];
    (standing.held.units(), standing.spent.units())
}

/// What every account must come to when all is settled.
async fn check_replay(service: &Subject) {
    let all = (SETTLED_BEFORE.start..DURING.end).filter(|number| !number.is_multiple_of(9));
    for account in (0..7).map(tenant).chain([GLOBAL.to_owned()]) {
        let mine = all.clone().filter(|number| account == GLOBAL || tenant(*number) == account);
        let expected = mine.map(spent).sum();
        assert_eq!(used(service, &account).await, (0, expected), "{account}");
    }
}

/// Load before, during and after a fault. `fault` comes in the midst of it and may end there as well; `over`
/// ends it when all that was asked meanwhile has been answered in one way or another. Tells how many were
/// not.
async fn endure(service: &Subject, fault: impl FnOnce(), over: impl FnOnce()) -> usize {
    for number in SETTLED_BEFORE.start..OPEN_BEFORE.end {
        assert!(matches!(service.hold(&hold(number)).await, Ok(Decision::Granted(_))));
        if SETTLED_BEFORE.contains(&number) {
            assert!(is_settled(service, number).await);
        }
    }
    let ask = |number: u64| {
        let service = Arc::clone(service);
        tokio::spawn(async move {
            if OPEN_BEFORE.contains(&number) {
                return (number, is_settled(&service, number).await);
            }
            match service.hold(&hold(number)).await {
                // Whatever became of it, its real cost is still to be told.
                Ok(Decision::Granted(_)) => (number, is_settled(&service, number).await),
                Ok(other) => panic!("{number}: {other:?}"),
                Err(Problem::Store(_)) => (number, false),
                Err(other) => panic!("{number}: {other:?}"),
            }
        })
    };
    // Some are under way when the fault comes, and some come to it: so it never comes too late.
    let later = DURING.start.midpoint(DURING.end)..DURING.end;
    let mut asked: FuturesUnordered<_> = (OPEN_BEFORE.start..later.start).map(ask).collect();
    let mut open = Vec::new();
    let mut note = |answer: Result<(u64, bool), _>| {
        let (number, settled) = answer.unwrap();
        if !settled {
            open.push(number);
        }
    };
    for _ in 0..UNHARMED {
        note(asked.next().await.unwrap());
    }
    fault();
    asked.extend(later.map(ask));
    while let Some(answer) = asked.next().await {
        note(answer);
    }
    over();
    for number in &open {
        settle_at_last(service, *number).await;
    }
    check_replay(service).await;
    // All of it once more, as if no acknowledgement had come.
    for number in SETTLED_BEFORE.start..DURING.end {
        let outcomes = service.settle(&[settlement(number)]).await.unwrap();
        assert_eq!(outcomes, [Outcome::Duplicate], "{number}");
        assert_eq!(service.hold(&hold(number)).await, Ok(Decision::AlreadySettled), "{number}");
    }
    check_replay(service).await;
    open.len()
}

#[test]
fn killed_with_a_log_of_what_was_done_it_loses_nothing_that_was_acknowledged() {
    let mut server = RedisServer::with(&["appendonly yes"]);
    block(async {
        let service = service(server.target());
        for number in 1000..1050 {
            assert!(matches!(service.hold(&hold(number)).await, Ok(Decision::Granted(_))));
        }
        server.kill();
        assert!(matches!(service.hold(&hold(2000)).await, Err(Problem::Store(StoreError::Away))));
        server.restart();
        assert_eq!(used(&service, GLOBAL).await, (500, 0));
    });
}

#[test]
fn killed_under_load_it_comes_to_the_same() {
    let mut server = RedisServer::with(&["appendonly yes"]);
    block(async {
        let service = service(server.target());
        let server = std::cell::RefCell::new(&mut server);
        let unanswered =
            endure(&service, || server.borrow_mut().kill(), || server.borrow_mut().restart()).await;
        assert!(unanswered > 0, "the fault came too late to do harm");
    });
}

#[test]
fn restarted_under_load_it_is_taught_its_scripts_again() {
    let mut server = RedisServer::with(&["appendonly yes"]);
    block(async {
        let service = service(server.target());
        let restart = || {
            server.kill();
            server.restart();
        };
        endure(&service, restart, || {}).await;
    });
}

#[test]
fn frozen_it_is_not_waited_for_and_what_it_does_late_does_no_harm() {
    let server = RedisServer::start();
    block(async {
        let service = service(server.target());
        let unanswered = endure(&service, || server.signal("-STOP"), || server.signal("-CONT")).await;
        assert!(unanswered > 0, "the fault came too late to do harm");
    });
}

#[test]
fn without_its_scripts_it_is_taught_them_again() {
    let server = RedisServer::start();
    block(async {
        let service = service(server.target());
        let flush = || drop(server.command(&["SCRIPT", "FLUSH", "SYNC"]));
        assert_eq!(endure(&service, flush, || {}).await, 0);
    });
}

#[test]
fn read_only_it_takes_nothing_and_is_asked_again() {
    let server = RedisServer::start();
    let nobody = support::free_port().to_string();
    block(async {
        let service = service(server.target());
        let unanswered = endure(
            &service,
            || drop(server.command(&["REPLICAOF", "127.0.0.1", &nobody])),
            || drop(server.command(&["REPLICAOF", "NO", "ONE"])),
        )
        .await;
        assert!(unanswered > 0, "the fault came too late to do harm");
    });
}

#[test]
fn out_of_memory_it_changes_nothing_by_halves() {
    let server = RedisServer::start();
    block(async {
        let service = service(server.target());
        let unanswered = endure(
            &service,
            || drop(server.command(&["CONFIG", "SET", "maxmemory", "1"])),
            || drop(server.command(&["CONFIG", "SET", "maxmemory", "0"])),
        )
        .await;
        assert!(unanswered > 0, "the fault came too late to do harm");
    });
}

#[test]
fn busy_with_a_script_of_somebody_else_it_is_not_waited_for() {
    let server = RedisServer::with(&["busy-reply-threshold 50"]);
    block(async {
        let service = service(server.target());
        let port = server.port;
        let script = std::cell::RefCell::new(None);
        let endless = || {
            *script.borrow_mut() = Some(std::thread::spawn(move || {
                let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
                let mut connection = client.get_connection().unwrap();
                let killed: redis::RedisResult<()> =
                    redis::cmd("EVAL").arg("while true do end").arg(0).query(&mut connection);
                assert!(killed.is_err());
            }));
        };
        // Whether it has begun is known when it can be killed, and that it is over when it is answered.
        let kill = || {
            let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
            let mut connection = client.get_connection().unwrap();
            while redis::cmd("SCRIPT").arg("KILL").query::<()>(&mut connection).is_err() {}
            script.borrow_mut().take().unwrap().join().unwrap();
        };
        endure(&service, endless, kill).await;
    });
}

#[test]
fn answers_that_are_lost_are_asked_for_again() {
    let server = RedisServer::start();
    block(async {
        let proxy = Proxy::start(server.port).await;
        let service = service(Target::parse(&format!("redis://127.0.0.1:{}", proxy.port)).unwrap());
        let unanswered = endure(&service, || proxy.set(Way::CutAnswers), || proxy.set(Way::Pass)).await;
        assert!(unanswered > 0, "the fault came too late to do harm");
    });
}

#[test]
fn a_connection_that_breaks_at_every_tenth_answer_loses_nothing() {
    let server = RedisServer::start();
    block(async {
        let proxy = Proxy::start(server.port).await;
        let service = service(Target::parse(&format!("redis://127.0.0.1:{}", proxy.port)).unwrap());
        endure(&service, || proxy.set(Way::CutEveryTenth), || proxy.set(Way::Pass)).await;
    });
}

#[test]
fn nonsense_and_refusals_are_told_as_what_they_are() {
    block(async {
        for (answer, expected) in [
            ("-LOADING Redis is loading the dataset in memory\r\n", StoreError::Unwilling("LOADING".into())),
            ("-NOAUTH Authentication required.\r\n", StoreError::Unwilling("NOAUTH".into())),
            ("-NOPERM no permission\r\n", StoreError::Unwilling("NOPERM".into())),
            (":17\r\n", StoreError::Nonsense),
            ("*2\r\n$3\r\nfoo\r\n:1\r\n", StoreError::Nonsense),
            ("*2\r\n:0\r\n:99\r\n", StoreError::Nonsense),
            ("*3\r\n:0\r\n:0\r\n:5\r\n", StoreError::Nonsense),
            ("*0\r\n", StoreError::Nonsense),
        ] {
            let port = proxy::answer_always(answer).await;
            let service = service(Target::parse(&format!("redis://127.0.0.1:{port}")).unwrap());
            assert_eq!(service.hold(&hold(1)).await, Err(Problem::Store(expected)), "{answer:?}");
            let outcomes = service.settle(&[settlement(1)]).await.unwrap();
            assert_eq!(outcomes, [Outcome::Failed], "{answer:?}");
        }
    });
}

/// The clock of the machine that Redis runs on is set back an hour: nothing is given out again.
#[test]
fn a_clock_that_is_set_back_gives_nothing_out_again() {
    thread_local! {
        static NOW: std::cell::Cell<u64> = const { std::cell::Cell::new(1_000_000_000) };
    }
    fn now() -> Timestamp {
        Timestamp::from_millis(NOW.get())
    }
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let service = Arc::new(Service::new(server.store_with_clock_of_test(), now));
        let minute = |number| {
            let mut hold = hold(number);
            for charge in &mut hold.charges {
                (charge.window, charge.amount) =
                    (Window::Sliding(Span::from_secs(60)), Amount::saturating(100));
            }
            hold
        };
        let mut granted = 0;
        for number in 0..40 {
            granted += u64::from(matches!(service.hold(&minute(number * 7)).await, Ok(Decision::Granted(_))));
            NOW.set(if number == 20 { 1_000_000_000 - 3_600_000 } else { NOW.get() + 10 });
        }
        assert_eq!(granted, 10);
        assert!(is_settled(&service, 0).await);
    });
}

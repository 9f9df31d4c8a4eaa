//! What every store promises, asked of each through the service, and what holds for Redis alone.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that cannot go on has failed"
)]

#[path = "../../budget/tests/support/mod.rs"]
mod sequences;
mod support;

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::runtime::{Builder, Runtime};
use tollgate_budget::wire::{self, Close, Outcome, Purpose, Renewed};
use tollgate_budget::{
    self as budget, AccountKey, Amount, BudgetKey, Decision, Grant, HoldId, Limit, Mode, OnLeaseEnd, Reason,
    Refusal, Reservation, Settlement, Span, Standing, Timestamp, Window,
};
use tollgate_counter::Service;
use tollgate_counter::store::memory::MemoryStore;
use tollgate_counter::store::{HOLDS_PER_SLOT, MEMORY, SKEW, Store, StoreError};

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(600_000_000) };
}

fn now() -> Timestamp {
    Timestamp::from_millis(NOW.get())
}

fn wait(millis: u64) {
    NOW.set(NOW.get() + millis);
}

fn block<T>(future: impl Future<Output = T>) -> T {
    thread_local! {
        // One for the whole test: a connection lives in the runtime that made it.
        static RUNTIME: Runtime = Builder::new_current_thread().enable_all().build().unwrap();
    }
    RUNTIME.with(|runtime| runtime.block_on(future))
}

fn units(units: u64) -> Amount {
    Amount::saturating(units)
}

const MINUTE: Window = Window::Fixed(Span::from_secs(60));

fn charge(account: &str, amount: u64, cost: u64) -> wire::Charge {
    wire::Charge {
        account: account.parse().unwrap(),
        window: MINUTE,
        amount: units(amount),
        cost: units(cost),
        largest: Amount::MAX,
        mode: Mode::Enforce,
    }
}

fn hold(id: u128, charges: Vec<wire::Charge>) -> wire::Hold {
    wire::Hold {
        id: HoldId::from_bits(id),
        purpose: Purpose::Take,
        policy: 0,
        lease: Span::from_secs(600),
        on_lease_end: OnLeaseEnd::Charge,
        charges,
    }
}

fn settlement(id: u128, accounts: &[&str], amount: u64, spent: u64) -> wire::Settlement {
    let entry = |account: &&str| wire::Entry {
        account: account.parse().unwrap(),
        window: MINUTE,
        amount: units(amount),
        spent: units(spent),
    };
    let entries = accounts.iter().map(entry).collect();
    wire::Settlement { id: HoldId::from_bits(id), close: Close::Settle, entries }
}

fn is_granted(decision: &Decision) -> bool {
    matches!(decision, Decision::Granted(_))
}

async fn standing<S: Store>(service: &Service<S>, account: &str, amount: u64) -> Standing {
    let account = wire::Account { account: account.parse().unwrap(), window: MINUTE, amount: units(amount) };
    service.standings(&[account]).await.unwrap()[0]
}

async fn used<S: Store>(service: &Service<S>, account: &str) -> (u64, u64) {
    let standing = standing(service, account, 100).await;
    (standing.held.units(), standing.spent.units())
}

const ACME: &str = "default/tokens/tenant=acme";
const GLOBAL: &str = "default/global/";

/// What every store promises; each claim gets a store of its own.
trait Claims {
    type Store: Store;

    fn service(&self) -> Arc<Service<Self::Store>>;

    fn all(&self) {
        self.sequences_go_as_their_cases_say();
        block(self.holds_settle_once());
        block(self.a_settlement_may_come_first());
        block(self.a_withdrawal_may_come_first());
        block(self.slots_are_taken_all_or_none());
        block(self.the_gravest_refusal_of_all_slots_is_told());
        block(self.leases_end_and_are_renewed());
        block(self.a_hold_grows_to_a_total());
        block(self.many_race_and_the_limit_holds());
        block(self.hostile_names_stay_apart());
        block(self.the_list_is_walked_to_its_end());
        block(self.the_sweeper_ends_leases());
        block(self.policies_and_live_amounts_count());
        block(self.more_limits_than_a_slot_has_room_for());
        block(self.marks_are_forgotten_after_an_hour());
    }

    fn sequences_go_as_their_cases_say(&self) {
        let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases");
        let began = NOW.get();
        sequences::play_all(&cases, || Keeper(self.service()));
        NOW.set(began);
    }

    async fn holds_settle_once(&self) {
        let service = self.service();
        let both = [ACME, GLOBAL];
        let asked = hold(1, both.map(|account| charge(account, 100, 60)).to_vec());
        assert!(is_granted(&service.hold(&asked).await.unwrap()));
        // The answer was lost, and it is asked again.
        assert!(is_granted(&service.hold(&asked).await.unwrap()));
        assert_eq!((used(&service, ACME).await, used(&service, GLOBAL).await), ((60, 0), (60, 0)));
        let settlements = vec![settlement(1, &both, 100, 20); 100];
        let outcomes = service.settle(&settlements).await.unwrap();
        let closed = outcomes.iter().filter(|outcome| **outcome == Outcome::Closed).count();
        assert!(
            closed >= 1
                && outcomes.iter().all(|outcome| { matches!(outcome, Outcome::Closed | Outcome::Duplicate) })
        );
        assert_eq!((used(&service, ACME).await, used(&service, GLOBAL).await), ((0, 20), (0, 20)));
        assert_eq!(service.hold(&asked).await.unwrap(), Decision::AlreadySettled);
        assert_eq!(used(&service, ACME).await, (0, 20));
    }

    async fn a_settlement_may_come_first(&self) {
        let service = self.service();
        let outcomes = service.settle(&[settlement(1, &[ACME, GLOBAL], 100, 30)]).await.unwrap();
        assert_eq!(outcomes, [Outcome::Unknown]);
        let late = hold(1, vec![charge(ACME, 100, 60), charge(GLOBAL, 100, 60)]);
        assert_eq!(service.hold(&late).await.unwrap(), Decision::AlreadySettled);
        assert_eq!((used(&service, ACME).await, used(&service, GLOBAL).await), ((0, 30), (0, 30)));
        // It came to one of the slots only, and is sent again.
        service.hold(&hold(2, vec![charge(ACME, 100, 5), charge(GLOBAL, 100, 5)])).await.unwrap();
        service.settle(&[settlement(2, &[GLOBAL], 100, 1)]).await.unwrap();
        let outcomes = service.settle(&[settlement(2, &[ACME, GLOBAL], 100, 1)]).await.unwrap();
        assert_eq!(outcomes, [Outcome::Closed]);
        assert_eq!((used(&service, ACME).await, used(&service, GLOBAL).await), ((0, 31), (0, 31)));
    }

    async fn a_withdrawal_may_come_first(&self) {
        let service = self.service();
        let withdrawal =
            wire::Settlement { close: Close::Withdraw, ..settlement(1, &[ACME, GLOBAL], 100, 30) };
        assert_eq!(service.settle(std::slice::from_ref(&withdrawal)).await.unwrap(), [Outcome::Unknown]);
        let late = hold(1, vec![charge(ACME, 100, 60), charge(GLOBAL, 100, 60)]);
        assert_eq!(service.hold(&late).await.unwrap(), Decision::AlreadySettled);
        assert_eq!((used(&service, ACME).await, used(&service, GLOBAL).await), ((0, 0), (0, 0)));
        assert_eq!(service.settle(&[withdrawal]).await.unwrap(), [Outcome::Duplicate]);
        service.hold(&hold(2, vec![charge(ACME, 100, 60)])).await.unwrap();
        let withdrawal = wire::Settlement { close: Close::Withdraw, ..settlement(2, &[ACME], 100, 0) };
        assert_eq!(service.settle(&[withdrawal]).await.unwrap(), [Outcome::Closed]);
        assert_eq!(used(&service, ACME).await, (0, 0));
    }

    async fn slots_are_taken_all_or_none(&self) {
        let service = self.service();
        let three = ["default/tokens/org=o,user=u", "default/tokens/org=o", GLOBAL];
        service.hold(&hold(1, vec![charge(GLOBAL, 100, 90)])).await.unwrap();
        let asked = hold(2, three.map(|account| charge(account, 100, 20)).to_vec());
        let Decision::Refused(Refusal { charge: 2, reason: Reason::NotYet { .. }, .. }) =
            service.hold(&asked).await.unwrap()
        else {
            panic!("the last slot must refuse")
        };
        assert_eq!((used(&service, three[0]).await, used(&service, three[1]).await), ((0, 0), (0, 0)));
        assert_eq!(used(&service, GLOBAL).await, (90, 0));
        // Another try of the same request is another question.
        service.settle(&[settlement(1, &[GLOBAL], 100, 0)]).await.unwrap();
        let Decision::Granted(Grant { standings, .. }) = service.hold(&asked).await.unwrap() else {
            panic!("there is room now")
        };
        assert_eq!(standings.iter().map(|standing| standing.held.units()).collect::<Vec<_>>(), [20, 20, 20]);
    }

    async fn the_gravest_refusal_of_all_slots_is_told(&self) {
        let service = self.service();
        service.hold(&hold(1, vec![charge(ACME, 100, 90)])).await.unwrap();
        let asked = hold(2, vec![charge(ACME, 100, 20), charge(GLOBAL, 10, 20)]);
        let Decision::Refused(Refusal { charge, reason, .. }) = service.hold(&asked).await.unwrap() else {
            panic!("both must refuse")
        };
        assert_eq!((charge, reason), (1, Reason::Never { largest: units(10) }));
        let check = wire::Hold { purpose: Purpose::Check, ..asked };
        let Decision::Refused(Refusal { charge, .. }) = service.hold(&check).await.unwrap() else {
            panic!("both must refuse")
        };
        assert_eq!(charge, 1);
    }

    async fn leases_end_and_are_renewed(&self) {
        let service = self.service();
        for (id, how) in [(1, OnLeaseEnd::Charge), (2, OnLeaseEnd::Release), (3, OnLeaseEnd::Charge)] {
            let account = format!("default/tokens/tenant=t{id}");
            let asked = hold(id, vec![charge(&account, 100, 60)]);
            service
                .hold(&wire::Hold { lease: Span::from_secs(10), on_lease_end: how, ..asked })
                .await
                .unwrap();
        }
        wait(9_000);
        let stakes = vec![wire::Stake { account: "default/tokens/tenant=t3".parse().unwrap(), total: None }];
        let renewal = wire::Renewal { id: HoldId::from_bits(3), lease: Span::from_secs(10), stakes };
        assert_eq!(service.renew(std::slice::from_ref(&renewal)).await.unwrap(), [Renewed::Open]);
        wait(9_000);
        let [one, two, three] = [1, 2, 3].map(|id| format!("default/tokens/tenant=t{id}"));
        assert_eq!(used(&service, &one).await, (0, 60));
        assert_eq!(used(&service, &two).await, (0, 0));
        assert_eq!(used(&service, &three).await, (60, 0));
        let late = [settlement(1, &[&one], 100, 10), settlement(2, &[&two], 100, 10)];
        let outcomes = service.settle(&late).await.unwrap();
        assert_eq!(outcomes, [Outcome::CorrectedAfterLease, Outcome::CorrectedAfterLease]);
        assert_eq!((used(&service, &one).await, used(&service, &two).await), ((0, 10), (0, 10)));
        wait(1_000);
        assert_eq!(service.renew(&[renewal]).await.unwrap(), [Renewed::NotOpen]);
    }

    async fn a_hold_grows_to_a_total(&self) {
        let service = self.service();
        service.hold(&hold(1, vec![charge(ACME, 100, 60), charge(GLOBAL, 100, 60)])).await.unwrap();
        let total = |total| wire::Renewal {
            id: HoldId::from_bits(1),
            lease: Span::from_secs(600),
            stakes: vec![
                wire::Stake { account: ACME.parse().unwrap(), total: Some(units(total)) },
                wire::Stake { account: GLOBAL.parse().unwrap(), total: None },
            ],
        };
        for step in [80, 130, 80, 130, 0] {
            assert_eq!(service.renew(&[total(step)]).await.unwrap(), [Renewed::Open]);
        }
        assert_eq!((used(&service, ACME).await, used(&service, GLOBAL).await), ((130, 0), (60, 0)));
    }

    async fn many_race_and_the_limit_holds(&self) {
        let service = self.service();
        let tenants = (0..50_u128).flat_map(|tenant| (0..4).map(move |n| (tenant, n)));
        let asked = tenants.map(|(tenant, n)| {
            let service = Arc::clone(&service);
            async move {
                let account = format!("default/tokens/tenant=t{tenant}");
                let asked = hold(tenant * 10 + n, vec![charge(&account, 3, 1), charge(GLOBAL, 90, 1)]);
                is_granted(&service.hold(&asked).await.unwrap())
            }
        });
        let granted = join_all(asked).await.into_iter().filter(|granted| *granted).count();
        assert_eq!(granted, 90);
        assert_eq!(used(&service, GLOBAL).await, (90, 0));
        let mut held = 0;
        for tenant in 0..50 {
            let (here, spent) = used(&service, &format!("default/tokens/tenant=t{tenant}")).await;
            assert!(here <= 3 && spent == 0);
            held += here;
        }
        assert_eq!(held, 90, "what was taken for a refused request was given back");
    }

    async fn hostile_names_stay_apart(&self) {
        let service = self.service();
        let values: [&[u8]; 8] =
            [b"a}:book", b"a}", b"{a", b"a,b=c", b"a/b", b"a\n\0", b"a*", &[b'x'; 10_240]];
        let keys = values.map(|value| BudgetKey {
            namespace: "default".to_owned(),
            limit: "tokens".to_owned(),
            subject: vec![("tenant".to_owned(), value.to_vec())],
        });
        let names = keys.map(|key| AccountKey::from(&key));
        for (cost, name) in (1..).zip(&names) {
            service.hold(&hold(cost.into(), vec![charge(name.as_str(), 100, cost)])).await.unwrap();
        }
        for (cost, name) in (1..).zip(&names) {
            assert_eq!(used(&service, name.as_str()).await, (cost, 0), "{name}");
            let kept = service.account(name).await.unwrap().expect("it is kept");
            assert_eq!((&kept.account, kept.standing.held), (name, units(cost)));
        }
    }

    async fn the_list_is_walked_to_its_end(&self) {
        let service = self.service();
        for tenant in 0..250_u128 {
            let of = |limit: &str| charge(&format!("default/{limit}/tenant=t{tenant}"), 100, 1);
            service.hold(&hold(tenant, vec![of("tokens"), of("requests")])).await.unwrap();
        }
        service.hold(&hold(999, vec![charge("other/tokens/tenant=t1", 100, 1)])).await.unwrap();
        for (prefix, expected) in [
            ("", 501),
            ("default", 500),
            ("default/", 500),
            ("default/tokens/", 250),
            ("default/tok", 250),
            ("default/tokens/tenant=t24", 11),
            ("other/", 1),
            ("nobody/", 0),
            ("default/tokens/*", 0),
        ] {
            let (mut found, mut cursor) = (Vec::new(), None::<String>);
            loop {
                let page = service.accounts(prefix, 20, cursor.as_deref()).await.unwrap();
                found.extend(page.accounts.into_iter().map(|kept| kept.account));
                let Some(next) = page.cursor else { break };
                cursor = Some(next);
            }
            assert!(found.iter().all(|account| account.as_str().starts_with(prefix)));
            found.sort();
            found.dedup();
            assert_eq!(found.len(), expected, "{prefix}");
        }
    }

    async fn the_sweeper_ends_leases(&self) {
        let service = self.service();
        for id in 0..5 {
            let asked = hold(id, vec![charge(&format!("default/tokens/tenant=t{id}"), 100, 60)]);
            let lease = Span::from_secs(if id < 3 { 10 } else { 100 });
            service.hold(&wire::Hold { lease, ..asked }).await.unwrap();
        }
        wait(20_000);
        let swept = service.store().sweep(now()).await.unwrap();
        assert_eq!((swept.slots, swept.leases_ended, swept.open_holds), (5, 3, 2));
        let swept = service.store().sweep(now()).await.unwrap();
        assert_eq!((swept.leases_ended, swept.open_holds), (0, 2));
    }

    async fn policies_and_live_amounts_count(&self) {
        let service = self.service();
        let ask = async |id, policy, amount| {
            let asked = hold(id, vec![charge(ACME, amount, 20)]);
            is_granted(&service.hold(&wire::Hold { policy, ..asked }).await.unwrap())
        };
        assert!(ask(1, 1, 100).await);
        assert!(ask(2, 2, 50).await);
        assert!(!ask(3, 1, 100).await, "two policies: the smaller amount counts");
        wait(SKEW.as_millis());
        // Another window as well.
        for id in 4..9 {
            assert!(ask(id, 1, 100).await, "the other policy is gone");
        }
        let key: AccountKey = ACME.parse().unwrap();
        service.set_amount(&key, Some(units(130))).await.unwrap();
        assert!(ask(9, 2, 50).await, "what was set stands above all");
        assert!(!ask(10, 1, 1000).await);
        let kept = service.account(&key).await.unwrap().expect("it is kept");
        assert_eq!((kept.amount_set, kept.standing.capacity), (Some(units(130)), units(130)));
        service.set_amount(&key, Some(Amount::ZERO)).await.unwrap();
        let asked = hold(11, vec![charge(ACME, 1000, 1)]);
        let Decision::Refused(Refusal { reason: Reason::Suspended, .. }) =
            service.hold(&asked).await.unwrap()
        else {
            panic!("an amount of nothing suspends")
        };
        service.set_amount(&key, None).await.unwrap();
        assert!(is_granted(&service.hold(&asked).await.unwrap()));
        assert_eq!(service.account(&key).await.unwrap().and_then(|kept| kept.amount_set), None);
    }

    async fn more_limits_than_a_slot_has_room_for(&self) {
        let service = self.service();
        let account = |n| format!("default/limit-{n}/tenant=acme");
        for n in 0..256_u128 {
            assert!(is_granted(&service.hold(&hold(n, vec![charge(&account(n), 100, 1)])).await.unwrap()));
        }
        let one_more = hold(300, vec![charge(&account(0), 100, 1), charge(&account(300), 100, 1)]);
        let error = service.hold(&one_more).await.unwrap_err();
        let full = StoreError::Full(budget::Full::Accounts { index: 1 });
        assert_eq!(error, tollgate_counter::problem::Problem::Store(full));
        assert_eq!(used(&service, &account(0)).await, (1, 0), "nothing was taken");
        // Once one is idle there is room.
        service.settle(&[settlement(7, &[&account(7)], 100, 0)]).await.unwrap();
        assert!(is_granted(&service.hold(&one_more).await.unwrap()));
    }

    async fn marks_are_forgotten_after_an_hour(&self) {
        let service = self.service();
        for id in 0..200_u128 {
            service.settle(&[settlement(id, &[ACME], 1000, 1)]).await.unwrap();
        }
        wait(MEMORY.settled.as_millis() - 1);
        let again = settlement(7, &[ACME], 1000, 1);
        assert_eq!(service.settle(std::slice::from_ref(&again)).await.unwrap(), [Outcome::Duplicate]);
        wait(1);
        assert_eq!(service.settle(&[again]).await.unwrap(), [Outcome::Unknown]);
    }
}

struct Memory;

impl Claims for Memory {
    type Store = MemoryStore;

    fn service(&self) -> Arc<Service<MemoryStore>> {
        Arc::new(Service::new(MemoryStore::default(), now))
    }
}

#[test]
fn memory_keeps_every_promise() {
    Memory.all();
}

struct Redis(support::RedisServer);

impl Claims for Redis {
    type Store = tollgate_counter::store::redis::RedisStore;

    fn service(&self) -> Arc<Service<Self::Store>> {
        self.0.command(&["FLUSHALL"]);
        Arc::new(Service::new(self.0.store_with_clock_of_test(), now))
    }
}

#[test]
fn redis_keeps_every_promise() {
    Redis(support::RedisServer::start()).all();
}

struct Cluster(support::RedisCluster);

impl Claims for Cluster {
    type Store = tollgate_counter::store::redis::RedisStore;

    fn service(&self) -> Arc<Service<Self::Store>> {
        for master in &self.0.masters {
            master.command(&["FLUSHALL"]);
        }
        Arc::new(Service::new(self.0.store_with_clock_of_test(), now))
    }
}

#[test]
fn a_cluster_of_redis_keeps_every_promise() {
    Cluster(support::RedisCluster::start()).all();
}

/// With Redis' own clock, as it is used.
#[test]
fn no_key_of_redis_lasts_for_ever() {
    let server = support::RedisServer::start();
    let service = Arc::new(Service::new(server.store(), now));
    block(async {
        for id in 0..300 {
            let asked = hold(id, vec![charge(ACME, 1000, 1), charge(GLOBAL, 1000, 1)]);
            assert!(is_granted(&service.hold(&asked).await.unwrap()));
            if id < 100 {
                service.settle(&[settlement(id, &[ACME, GLOBAL], 1000, 1)]).await.unwrap();
            }
        }
        service.settle(&[settlement(1000, &["default/tokens/tenant=late"], 10, 1)]).await.unwrap();
        service.set_amount(&"default/tokens/tenant=set".parse().unwrap(), Some(units(1))).await.unwrap();
    });
    let keys: Vec<String> = redis::from_redis_value(server.command(&["KEYS", "*"])).unwrap();
    assert_eq!(keys.len(), 8, "{keys:?}");
    for key in keys {
        let left: i64 = redis::from_redis_value(server.command(&["PTTL", &key])).unwrap();
        assert!(left > 3_000_000, "{key} lasts {left} ms");
        let keeps = if key.contains("set") { 600 } else { 3 };
        assert!(left < keeps * 86_400_000, "{key} lasts {left} ms");
    }
}

#[test]
fn the_bounds_in_the_scripts_are_those_of_the_store() {
    let book = include_str!("../src/store/redis/book.lua");
    assert!(book.contains(&format!("HOLDS_MOST = {HOLDS_PER_SLOT} ")));
    assert!(book.contains(&format!("ACCOUNTS_MOST = {} ", tollgate_counter::store::ACCOUNTS_PER_SLOT)));
    assert!(book.contains(&format!("SKEW = {} ", SKEW.as_millis())));
    assert!(book.contains(&format!("HOUR = {}\n", MEMORY.settled.as_millis())));
    assert_eq!(MEMORY.settled, MEMORY.ended);
}

/// Plays a sequence case through the service, accounts in slots of their own.
struct Keeper<S>(Arc<Service<S>>);

impl<S: Store> sequences::Keeper for Keeper<S> {
    fn reserve(&mut self, keys: &[BudgetKey], reservation: Reservation, now: Timestamp) -> Decision {
        NOW.set(now.as_millis());
        let charge = |(key, charge): (&BudgetKey, &budget::Charge)| wire::Charge {
            account: AccountKey::from(key),
            window: charge.limit.window,
            amount: charge.limit.quota.amount(),
            cost: charge.cost,
            largest: charge.largest,
            mode: charge.mode,
        };
        let hold = wire::Hold {
            id: reservation.id,
            purpose: Purpose::Take,
            policy: 1,
            lease: reservation.lease,
            on_lease_end: reservation.on_lease_end,
            charges: keys.iter().zip(&reservation.charges).map(charge).collect(),
        };
        block(self.0.hold(&hold)).unwrap()
    }

    fn settle(&mut self, keys: &[BudgetKey], settlement: Settlement, now: Timestamp) -> budget::Settled {
        NOW.set(now.as_millis());
        let entry = |(key, entry): (&BudgetKey, &budget::Entry)| wire::Entry {
            account: AccountKey::from(key),
            window: entry.limit.window,
            amount: entry.limit.quota.amount(),
            spent: entry.spent,
        };
        let entries = keys.iter().zip(&settlement.entries).map(entry).collect();
        let settlement = wire::Settlement { id: settlement.id, close: Close::Settle, entries };
        let outcome = match block(self.0.settle(&[settlement])).unwrap()[0] {
            Outcome::Closed => budget::Outcome::Closed,
            Outcome::CorrectedAfterLease => budget::Outcome::CorrectedAfterLease,
            Outcome::Unknown => budget::Outcome::Unknown,
            Outcome::Duplicate => budget::Outcome::Duplicate,
            Outcome::Failed => panic!("the store failed"),
        };
        budget::Settled { outcome, postings: Vec::new() }
    }

    fn standing(&mut self, key: &BudgetKey, limit: &Limit, now: Timestamp) -> Standing {
        NOW.set(now.as_millis());
        let (window, amount) = (limit.window, limit.quota.amount());
        let account = wire::Account { account: AccountKey::from(key), window, amount };
        block(self.0.standings(&[account])).unwrap()[0]
    }

    fn host_conflicts(&mut self, _times: u64) {}
}

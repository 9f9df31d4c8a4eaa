//! What the store in shared memory does under an exchange: leases, other workers, reloads, and its bounds.

use serde_json::{Value, json};
use tollgate::local::{ACCOUNTS_PER_SHARD, HOLDS_PER_SHARD};
use tollgate_budget::{
    AccountId, Amount, Capacity, Charge, HoldId, Ledger, Limit, Memory, Mode, OnLeaseEnd, Quota, Reservation,
    Span, Timestamp, Window,
};

use super::{account, held, launch, limit, merged, policy, spent, tokens};
use crate::ProxyUnderTest;
use crate::common::proxy::{Proxy, Setup, Stream};
use crate::common::requests::{Ask, PROMPT, answer, begin_events, delta, standing};

/// A window so long that it does not end meanwhile.
fn leased(lease: &str, on_lease_end: &str) -> Value {
    let day = merged(limit("tokens", "tokens", 1000), json!({"window": {"fixed": "1d"}}));
    merged(policy(json!([day])), json!({"hold": {"lease": lease, "on_lease_end": on_lease_end}}))
}

fn workers(policy: &Value, workers: usize) -> ProxyUnderTest {
    ProxyUnderTest::launch(&Setup::new(policy).workers(workers))
}

#[test]
fn a_stream_that_lives_keeps_its_hold_by_ticks_alone() {
    let proxy = launch(&leased("10s", "release"));
    let stream = Ask::new(500).send(&proxy);
    proxy.advance(120_000);
    assert_eq!(account(&proxy, "tokens"), held(PROMPT + 500));
    answer(&stream, 10, 90);
    assert_eq!(account(&proxy, "tokens"), spent(100));
    assert_eq!(proxy.metric("tollgate_settlements_total;outcome=closed"), 1);
}

#[test]
fn a_stream_on_a_route_charged_by_the_request_keeps_its_hold_as_well() {
    let day = merged(limit("requests", "requests", 9), json!({"window": {"fixed": "1d"}}));
    let routes = json!([{"path": "/v1/count", "api": "request_only"}]);
    let hold = json!({"lease": "10s", "on_lease_end": "release"});
    let proxy = launch(&merged(policy(json!([day])), json!({"routes": routes, "hold": hold})));
    let stream = Ask::raw("any").path("/v1/count").send(&proxy);
    proxy.advance(120_000);
    assert_eq!(account(&proxy, "requests"), held(1));
    answer(&stream, 0, 0);
    assert_eq!(proxy.metric("tollgate_settlements_total;outcome=closed"), 1);
}

#[test]
fn a_stream_that_speaks_keeps_its_hold_by_its_chunks_alone() {
    let proxy = launch(&leased("10s", "release"));
    let stream = Ask::stream(500).send(&proxy);
    begin_events(&stream);
    for _ in 0..10 {
        // Without a tick between: the clock is set.
        proxy.set_time(proxy.now_ms() + 6_000);
        stream.answer_chunk(delta(" word").as_bytes(), false);
    }
    assert_eq!(account(&proxy, "tokens"), held(PROMPT + 500));
    stream.client_leaves();
    assert_eq!(account(&proxy, "tokens"), spent(PROMPT + 10));
}

#[test]
fn a_hold_nobody_renews_ends_with_its_lease_as_the_policy_says() {
    for (how, after) in [("charge", spent(PROMPT + 500)), ("release", spent(0))] {
        let proxy = launch(&leased("10s", how));
        let _lost = Ask::new(500).send(&proxy);
        proxy.reload(0);
        proxy.advance(9_999);
        assert_eq!(account(&proxy, "tokens"), held(PROMPT + 500));
        proxy.advance(1);
        assert_eq!(account(&proxy, "tokens"), after, "{how}");
    }
}

#[test]
fn a_settlement_after_the_lease_corrects_what_its_end_did() {
    for how in ["charge", "release"] {
        let proxy = launch(&leased("10s", how));
        let stream = Ask::new(500).send(&proxy);
        proxy.set_time(proxy.now_ms() + 60_000);
        assert_eq!(account(&proxy, "tokens").held, 0);
        answer(&stream, 10, 90);
        assert_eq!(account(&proxy, "tokens"), spent(100), "{how}");
        assert_eq!(proxy.metric("tollgate_settlements_total;outcome=after_lease"), 1);
    }
}

#[test]
fn a_settlement_of_a_hold_that_is_forgotten_is_charged_all_the_same() {
    let proxy = launch(&leased("10s", "release"));
    let stream = Ask::new(500).send(&proxy);
    proxy.set_time(proxy.now_ms() + 3_600_000);
    answer(&stream, 10, 90);
    assert_eq!(account(&proxy, "tokens"), spent(100));
    assert_eq!(proxy.metric("tollgate_settlements_total;outcome=unknown"), 1);
}

#[test]
fn all_workers_share_every_account() {
    let proxy = workers(&tokens(1000), 4);
    let cap = 200 - PROMPT;
    let streams: Vec<_> = (0..12).map(|n| Ask::new(cap).send_to(&proxy, n % 4)).collect();
    let passed: Vec<_> = streams.iter().map(|stream| stream.seen().passed()).collect();
    assert_eq!(passed.iter().filter(|passed| **passed).count(), 5);
    assert_eq!(account(&proxy, "tokens"), held(1000));
    streams.iter().take(5).for_each(|stream| answer(stream, 10, 20));
    assert_eq!(account(&proxy, "tokens"), spent(150));
}

#[test]
fn accounts_outlive_a_reload_of_the_vm_and_its_lost_streams_end_with_their_lease() {
    let proxy = workers(&leased("10s", "charge"), 2);
    answer(&Ask::new(100).send(&proxy), 30, 20);
    let lost = Ask::new(200).send(&proxy);
    let other = Ask::new(300).send_to(&proxy, 1);
    proxy.reload(0);
    lost.client_leaves();
    assert_eq!(account(&proxy, "tokens").spent, 50);
    assert!(Ask::new(10).send(&proxy).seen().passed());
    proxy.advance(20_000);
    answer(&other, 40, 10);
    // The request after the reload is still open.
    assert_eq!(account(&proxy, "tokens").spent, 50 + PROMPT + 200 + 50);
}

#[test]
fn other_workers_that_are_faster_are_tried_again() {
    let proxy = launch(&tokens(1000));
    proxy.conflict(3);
    let stream = Ask::new(100).send(&proxy);
    assert!(stream.seen().passed());
    proxy.conflict(3);
    answer(&stream, 30, 20);
    assert_eq!(account(&proxy, "tokens"), spent(50));
}

#[test]
fn a_race_lost_without_end_is_answered_503_and_takes_nothing() {
    let proxy = launch(&tokens(1000));
    proxy.conflict(10_000);
    let seen = Ask::new(100).send(&proxy).seen();
    assert_eq!((seen.status(), seen.details.as_deref()), (503, Some("tollgate_store_unavailable")));
    assert_eq!((seen.header("retry-after"), seen.header("x-should-retry")), (Some("1".into()), None));
    assert_eq!(seen.json()["error"]["type"], json!("server_error"));
    assert_eq!(seen.record()["decision"], json!("store_unavailable"));
    assert_eq!(proxy.metric("tollgate_store_errors_total;kind=contended"), 1);
    proxy.conflict(0);
    assert_eq!(account(&proxy, "tokens"), spent(0));
    assert!(Ask::new(100).send(&proxy).seen().passed());
}

#[test]
fn a_settlement_that_the_store_does_not_take_ends_with_its_lease() {
    let proxy = launch(&leased("10s", "charge"));
    let stream = Ask::new(100).send(&proxy);
    proxy.conflict(10_000);
    answer(&stream, 30, 20);
    proxy.conflict(0);
    assert_eq!(proxy.metric("tollgate_settlements_total;outcome=lost"), 1);
    assert_eq!(account(&proxy, "tokens"), held(PROMPT + 100));
    proxy.advance(10_000);
    assert_eq!(account(&proxy, "tokens"), spent(PROMPT + 100));
}

#[test]
fn a_shard_that_cannot_be_read_is_answered_503_and_loses_nothing() {
    let proxy = launch(&merged(tokens(1000), json!({"store": {"local": {"shards": 1}}})));
    answer(&Ask::new(100).send(&proxy), 30, 20);
    let key = "tollgate/default/0";
    let good = proxy.shared()[key].clone();
    for bad in [b"garbage".as_slice(), &good[..good.len() - 1], &[0xff; 64]] {
        proxy.put_shared(key, bad);
        let seen = Ask::new(100).send(&proxy).seen();
        assert_eq!((seen.status(), seen.untouched_upstream()), (503, true));
        assert_eq!(proxy.shared()[key], bad, "left as it is, for whoever looks");
    }
    assert_eq!(proxy.metric("tollgate_store_errors_total;kind=unreadable"), 3);
    proxy.put_shared(key, &good);
    assert_eq!(account(&proxy, "tokens"), spent(50));
    assert!(Ask::new(100).send(&proxy).seen().passed());
}

#[test]
fn tenants_beyond_a_shards_room_share_one_marked_account() {
    let proxy = launch(&merged(tokens(1000), json!({"store": {"local": {"shards": 1}}})));
    let ask = |tenant: usize| Ask::new(100).tenant(format!("tenant-{tenant}"));
    for tenant in 0..ACCOUNTS_PER_SHARD {
        let stream = ask(tenant).send(&proxy);
        answer(&stream, 9, 1);
        assert_eq!(stream.seen().header("x-tollgate-overflow"), None);
    }
    let bytes = |proxy: &ProxyUnderTest| proxy.shared().values().map(Vec::len).sum::<usize>();
    let full = bytes(&proxy);
    let late: Vec<_> = (0..20).map(|tenant| ask(10_000 + tenant).send(&proxy)).collect();
    let passed = late.iter().filter(|stream| stream.seen().passed()).count();
    assert_eq!(passed as u64, 1000 / (PROMPT + 100), "one amount for all of them");
    answer(&late[0], 9, 1);
    assert_eq!(late[0].seen().header("x-tollgate-overflow").as_deref(), Some("tokens"));
    assert_eq!(proxy.metric("tollgate_overflow_charges_total;limit=tokens"), passed as u64);
    late.iter().skip(1).for_each(Stream::client_leaves);
    assert!(bytes(&proxy) < full + 2000, "{} after {full}", bytes(&proxy));
    assert_eq!(standing(&proxy, "tokens", "tenant-5"), spent(10), "nobody was pushed out");
    // With the window the idle accounts end, and there is room again.
    proxy.advance(120_000);
    let stream = ask(20_000).send(&proxy);
    answer(&stream, 9, 1);
    assert_eq!(stream.seen().header("x-tollgate-overflow"), None);
}

#[test]
fn a_shard_full_of_holds_is_answered_503() {
    let policy = merged(tokens(1_000_000), json!({"store": {"local": {"shards": 1}}}));
    let proxy = launch(&policy);
    let now = Timestamp::from_millis(proxy.now_ms());
    proxy.put_shared("tollgate/default/0", &full_of_holds(now));
    let seen = Ask::new(100).send(&proxy).seen();
    assert_eq!((seen.status(), seen.details.as_deref()), (503, Some("tollgate_store_unavailable")));
    assert_eq!(proxy.metric("tollgate_store_errors_total;kind=full"), 1);
    assert_eq!(account(&proxy, "tokens"), spent(0));
    // They end with their leases.
    proxy.advance(600_000);
    proxy.advance(600_000);
    assert!(Ask::new(100).send(&proxy).seen().passed());
}

/// Built at once: one by one would take a test's whole minute.
fn full_of_holds(now: Timestamp) -> Vec<u8> {
    let capacity = Capacity { accounts: ACCOUNTS_PER_SHARD, holds: HOLDS_PER_SHARD };
    let mut ledger = Ledger::new(capacity, Memory { settled: Span::ZERO, ended: Span::from_secs(600) });
    let window = Window::Fixed(Span::from_secs(60));
    let charge = Charge {
        account: AccountId::from_bits(1),
        limit: Limit { window, quota: Quota::of(Amount::saturating(1_000_000)) },
        cost: Amount::saturating(1),
        largest: Amount::MAX,
        mode: Mode::Enforce,
    };
    for id in 0..HOLDS_PER_SHARD as u128 {
        let (lease, on_lease_end) = (Span::from_secs(600), OnLeaseEnd::Charge);
        let reservation =
            Reservation { id: HoldId::from_bits(u128::MAX - id), charges: vec![charge], lease, on_lease_end };
        ledger.reserve(&reservation, now).unwrap();
    }
    ledger.encode()
}

#[test]
fn a_clock_that_steps_back_neither_locks_out_nor_gives_anew() {
    let proxy = launch(&tokens(1000));
    proxy.set_time(proxy.now_ms() + 40_000);
    answer(&Ask::new(800).send(&proxy), 100, 700);
    assert_eq!(Ask::new(300).send(&proxy).seen().status(), 429);
    proxy.set_time(proxy.now_ms() - 30_000);
    let seen = Ask::new(300).send(&proxy).seen();
    assert_eq!(seen.status(), 429);
    assert!(seen.number("retry-after-ms") <= 60_000);
    assert!(Ask::new(100).send(&proxy).seen().passed());
    proxy.advance(seen.number("retry-after-ms"));
    assert!(Ask::new(300).send(&proxy).seen().passed());
}

#[test]
fn a_policy_that_does_not_check_is_refused_in_words() {
    let refused = ProxyUnderTest::start(&Setup::new(&json!({"version": 2, "limits": []})));
    assert!(refused.err().is_some_and(|why| why.contains("version")));
}

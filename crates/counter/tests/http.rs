//! The service's door: who may pass, what is refused and in which words, and that what it promises in
//! docs/openapi.yaml is what it does.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tollgate_budget::{Timestamp, wire};
use tollgate_counter::http::{DOORS, router};
use tollgate_counter::store::memory::MemoryStore;
use tollgate_counter::{Caller, Service, Tokens};
use tower::ServiceExt;

const GATEWAY: &str = "gateway-0123456789";
const ADMINISTRATOR: &str = "administrator-0123456789";
const ID: &str = "000102030405060708090a0b0c0d0e0f";

fn now() -> Timestamp {
    Timestamp::from_millis(1_000_000_000)
}

fn open() -> Router {
    router(Arc::new(Service::new(MemoryStore::default(), now)), Tokens::default())
}

fn guarded() -> Router {
    let tokens = Tokens { gateway: Some(GATEWAY.into()), administrator: Some(ADMINISTRATOR.into()) };
    router(Arc::new(Service::new(MemoryStore::default(), now)), tokens)
}

async fn send(router: &Router, request: Request<Body>) -> (StatusCode, String, Value) {
    let response = router.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE).map(|kind| kind.to_str().unwrap().to_owned());
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, kind.unwrap_or_default(), serde_json::from_slice(&body).unwrap_or(Value::Null))
}

fn request(method: &str, path: &str, token: Option<&str>, body: &str) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    request.header(header::CONTENT_TYPE, "application/json").body(Body::from(body.to_owned())).unwrap()
}

async fn ask(router: &Router, method: &str, path: &str, body: &Value) -> (StatusCode, Value) {
    let (status, _, answer) = send(router, request(method, path, None, &body.to_string())).await;
    (status, answer)
}

fn charge(account: &str, cost: u64) -> Value {
    json!({"account": account, "window": {"sliding": 60_000}, "amount": 100, "cost": cost, "largest": 100,
        "mode": "enforce"})
}

fn hold(id: &str, charges: &[Value]) -> Value {
    json!({"id": id, "lease_ms": 60_000, "on_lease_end": "charge", "charges": charges})
}

fn settlement(id: &str, account: &str, spent: u64) -> Value {
    let entry = json!({"account": account, "window": {"sliding": 60_000}, "amount": 100, "spent": spent});
    json!({"settlements": [{"id": id, "entries": [entry]}]})
}

fn problem(answer: &Value) -> &str {
    answer["type"].as_str().unwrap().rsplit('/').next().unwrap()
}

const ACME: &str = "default/tokens/tenant=acme";

#[tokio::test]
async fn a_hold_is_granted_settled_and_refused_as_the_protocol_says() {
    let router = open();
    let (status, answer) = ask(&router, "POST", wire::HOLDS, &hold(ID, &[charge(ACME, 60)])).await;
    assert_eq!(status, StatusCode::OK);
    let standing = &answer["decision"]["granted"]["standings"][0];
    assert_eq!((standing["held"].as_u64(), standing["spent"].as_u64()), (Some(60), Some(0)), "{answer}");

    let other = "100102030405060708090a0b0c0d0e0f";
    let (_, answer) = ask(&router, "POST", wire::HOLDS, &hold(other, &[charge(ACME, 60)])).await;
    let refusal = &answer["decision"]["refused"];
    assert_eq!(refusal["charge"], 0);
    assert!(refusal["reason"]["not_yet"]["retry_after_ms"].as_u64().unwrap() > 0, "{answer}");

    let (_, answer) = ask(&router, "POST", wire::SETTLEMENTS, &settlement(ID, ACME, 30)).await;
    assert_eq!(answer, json!({"outcomes": ["closed"]}));
    let (_, answer) = ask(&router, "POST", wire::SETTLEMENTS, &settlement(ID, ACME, 30)).await;
    assert_eq!(answer, json!({"outcomes": ["duplicate"]}));
    let (_, answer) = ask(&router, "POST", wire::HOLDS, &hold(ID, &[charge(ACME, 60)])).await;
    assert_eq!(answer, json!({"decision": "already_settled"}));

    let (_, answer) = ask(&router, "POST", wire::HOLDS, &hold(other, &[charge(ACME, 70)])).await;
    assert!(answer["decision"]["granted"].is_object(), "{answer}");
    let renewal = json!({"renewals": [{"id": other, "lease_ms": 5, "stakes": [{"account": ACME, "total": 80}]},
        {"id": ID, "lease_ms": 5, "stakes": [{"account": ACME}]}]});
    let (_, answer) = ask(&router, "POST", wire::RENEWALS, &renewal).await;
    assert_eq!(answer, json!({"outcomes": ["open", "not_open"]}));
    let asked = json!({"accounts": [{"account": ACME, "window": {"sliding": 60_000}, "amount": 100}]});
    let (_, answer) = ask(&router, "POST", wire::STANDINGS, &asked).await;
    let standing = &answer["standings"][0];
    assert_eq!((standing["held"].as_u64(), standing["spent"].as_u64()), (Some(80), Some(30)), "{answer}");
}

#[tokio::test]
async fn a_check_takes_nothing_and_a_withdrawal_leaves_nothing() {
    let router = open();
    let mut check = hold(ID, &[charge(ACME, 60)]);
    check["purpose"] = json!("check");
    for _ in 0..3 {
        let (_, answer) = ask(&router, "POST", wire::HOLDS, &check).await;
        assert_eq!(answer["decision"]["granted"]["standings"][0]["held"], 0, "{answer}");
    }
    let mut withdrawal = settlement(ID, ACME, 99);
    withdrawal["settlements"][0]["close"] = json!("withdraw");
    let (_, answer) = ask(&router, "POST", wire::SETTLEMENTS, &withdrawal).await;
    assert_eq!(answer, json!({"outcomes": ["unknown"]}));
    let (_, answer) = ask(&router, "POST", wire::HOLDS, &hold(ID, &[charge(ACME, 60)])).await;
    assert_eq!(answer, json!({"decision": "already_settled"}));
    let (_, answer) = ask(&router, "GET", "/v1/accounts", &Value::Null).await;
    assert_eq!(answer, json!({"accounts": []}));
}

#[tokio::test]
async fn a_refusal_in_one_slot_leaves_nothing_in_the_others() {
    let router = open();
    let (one, two, global) = (ACME, "default/tokens/tenant=acme,user=u", "default/global/");
    ask(&router, "POST", wire::HOLDS, &hold(ID, &[charge(global, 90)])).await;
    let other = "100102030405060708090a0b0c0d0e0f";
    let three = [charge(global, 20), charge(one, 20), charge(two, 20)];
    let (_, answer) = ask(&router, "POST", wire::HOLDS, &hold(other, &three)).await;
    assert_eq!(answer["decision"]["refused"]["charge"], 0, "{answer}");
    let (_, answer) = ask(&router, "GET", "/v1/accounts?prefix=default/tokens/", &Value::Null).await;
    for account in answer["accounts"].as_array().unwrap() {
        let standing = &account["standing"];
        assert_eq!((&standing["held"], &standing["spent"]), (&json!(0), &json!(0)), "{account}");
    }
    let (_, answer) = ask(&router, "POST", wire::HOLDS, &hold(other, &three[1..])).await;
    assert!(answer["decision"]["granted"].is_object(), "{answer}");
}

#[tokio::test]
async fn amounts_set_live_stand_above_what_charges_say() {
    let router = open();
    let path = "/v1/amounts/tokens/tenant%3Dacme";
    assert_eq!(ask(&router, "PUT", path, &json!({"amount": 10})).await.0, StatusCode::NO_CONTENT);
    let (_, answer) = ask(&router, "POST", wire::HOLDS, &hold(ID, &[charge(ACME, 11)])).await;
    assert_eq!(answer["decision"]["refused"]["reason"], json!({"never": {"largest": 10}}));
    ask(&router, "PUT", path, &json!({"amount": 0})).await;
    let (_, answer) = ask(&router, "POST", wire::HOLDS, &hold(ID, &[charge(ACME, 1)])).await;
    assert_eq!(answer["decision"]["refused"]["reason"], "suspended");
    ask(&router, "PUT", path, &json!({"amount": 1000})).await;
    let (_, answer) = ask(&router, "POST", wire::HOLDS, &hold(ID, &[charge(ACME, 500)])).await;
    assert_eq!(answer["decision"]["granted"]["standings"][0]["capacity"], 1000, "{answer}");
    let (_, answer) =
        ask(&router, "GET", "/v1/accounts/default%2Ftokens%2Ftenant%3Dacme", &Value::Null).await;
    assert_eq!((&answer["override"], &answer["standing"]["held"]), (&json!(1000), &json!(500)), "{answer}");
    assert_eq!(ask(&router, "DELETE", path, &Value::Null).await.0, StatusCode::NO_CONTENT);
    let other = "100102030405060708090a0b0c0d0e0f";
    let (_, answer) = ask(&router, "POST", wire::HOLDS, &hold(other, &[charge(ACME, 1)])).await;
    assert!(answer["decision"]["refused"]["reason"]["not_yet"].is_object(), "{answer}");

    let path = "/v1/amounts/global/?namespace=other";
    assert_eq!(ask(&router, "PUT", path, &json!({"amount": 0})).await.0, StatusCode::NO_CONTENT);
    let charges = [charge("other/global/", 1), charge("default/global/", 1)];
    let (_, answer) = ask(&router, "POST", wire::HOLDS, &hold(other, &charges)).await;
    assert_eq!(answer["decision"]["refused"]["charge"], 0, "{answer}");
    assert_eq!(answer["decision"]["refused"]["reason"], "suspended");
    assert_eq!(ask(&router, "DELETE", path, &Value::Null).await.0, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn the_smaller_amount_counts_while_two_policies_are_in_use() {
    let router = open();
    let ask_for = async |id: u8, policy: u32, amount: u64| {
        let mut charge = charge(ACME, 30);
        charge["amount"] = json!(amount);
        let mut hold = hold(&format!("{id:032x}"), &[charge]);
        hold["policy"] = json!(policy);
        ask(&router, "POST", wire::HOLDS, &hold).await.1["decision"]["granted"].is_object()
    };
    assert!(ask_for(1, 1, 100).await);
    assert!(ask_for(2, 2, 60).await);
    assert!(!ask_for(3, 1, 100).await);
    assert!(!ask_for(4, 2, 60).await);
}

#[tokio::test]
async fn the_list_of_accounts_is_paged_to_its_end() {
    let router = open();
    for tenant in 0..25 {
        let charges = [
            charge(&format!("default/tokens/tenant=t{tenant:02}"), 1),
            charge(&format!("default/requests/tenant=t{tenant:02}"), 1),
            charge(&format!("other/tokens/tenant=t{tenant:02}"), 1),
        ];
        ask(&router, "POST", wire::HOLDS, &hold(&format!("{tenant:032x}"), &charges)).await;
    }
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/accounts?prefix=default/tokens/tenant%3Dt1&limit=3{cursor}");
        let (_, answer) = ask(&router, "GET", &path, &Value::Null).await;
        let page = answer["accounts"].as_array().unwrap();
        assert!(page.len() <= 3, "{answer}");
        found.extend(page.iter().map(|account| account["account"].as_str().unwrap().to_owned()));
        let Some(next) = answer["cursor"].as_str() else { break };
        let next: String = next.bytes().map(|byte| format!("%{byte:02x}")).collect();
        cursor = format!("&cursor={next}");
    }
    found.sort_unstable();
    let expected: Vec<_> = (10..20).map(|tenant| format!("default/tokens/tenant=t{tenant}")).collect();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn each_door_opens_to_its_token_only() {
    let router = guarded();
    for door in DOORS {
        for method in door.methods {
            let path = door.path.replace("{key}", "default%2Fa%2F").replace("{limit}", "a");
            let path = path.replace("{subject}", "b%3Dc").replace("{account}", "default%2Fa%2F");
            for (token, is) in [
                (None, None),
                (Some("wrong"), None),
                (Some(GATEWAY), Some(Caller::Gateway)),
                (Some(ADMINISTRATOR), Some(Caller::Administrator)),
            ] {
                let (status, kind, answer) =
                    send(&router, request(&method.to_uppercase(), &path, token, "{}")).await;
                let what = format!("{method} {path} with {token:?}: {status}");
                match (door.needs, is) {
                    (Some(_), None) => assert_eq!(status, StatusCode::UNAUTHORIZED, "{what}"),
                    (Some(needs), Some(is)) if is < needs => {
                        assert_eq!(status, StatusCode::FORBIDDEN, "{what}");
                    }
                    (_, _) => {
                        assert!(
                            ![StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status),
                            "{what}"
                        );
                        continue;
                    }
                }
                assert_eq!(kind, "application/problem+json", "{what}");
                assert_eq!(answer["status"], status.as_u16(), "{what}");
            }
        }
    }
}

#[tokio::test]
async fn nonsense_is_refused_in_words_and_leaves_nothing() {
    let router = open();
    let huge = format!("[{}", "1,".repeat(wire::BODY_MOST));
    let many: Vec<_> = (0..=wire::ACCOUNTS_MOST).map(|n| charge(&format!("default/l{n}/"), 1)).collect();
    let settlements: Vec<_> =
        (0..=wire::BATCH_MOST).map(|n| json!({"id": format!("{n:032x}"), "entries": []})).collect();
    let mut endless = charge(ACME, 1);
    endless["window"] = json!({"fixed": 0});
    for (method, path, body, status, name) in [
        ("POST", wire::HOLDS, "".to_owned(), 400, "malformed"),
        ("POST", wire::HOLDS, "{".to_owned(), 400, "malformed"),
        ("POST", wire::HOLDS, "\u{0}".repeat(50), 400, "malformed"),
        ("POST", wire::HOLDS, "[".repeat(100_000), 400, "malformed"),
        ("POST", wire::HOLDS, huge, 413, "too-large"),
        ("POST", wire::HOLDS, hold(ID, &many).to_string(), 413, "too-large"),
        ("POST", wire::HOLDS, hold(ID, &[endless]).to_string(), 400, "malformed"),
        ("POST", wire::HOLDS, hold(ID, &[charge("a/b", 1)]).to_string(), 400, "malformed"),
        ("POST", wire::SETTLEMENTS, json!({"settlements": settlements}).to_string(), 413, "too-large"),
        ("POST", wire::SETTLEMENTS, json!({"settlements": [], "more": 1}).to_string(), 400, "malformed"),
        ("GET", wire::HOLDS, "".to_owned(), 405, "method-not-allowed"),
        ("POST", "/v2/holds", "{}".to_owned(), 404, "not-found"),
        ("GET", "/v1/accounts/default%2Fa%2Fb%3Dc", "".to_owned(), 404, "not-found"),
        ("GET", "/v1/accounts/nonsense", "".to_owned(), 400, "malformed"),
        ("GET", "/v1/accounts?limit=many", "".to_owned(), 400, "malformed"),
        ("GET", "/v1/accounts?more=1", "".to_owned(), 400, "malformed"),
        ("PUT", "/v1/amounts/a/b%3Dc", "{\"amount\": -1}".to_owned(), 400, "malformed"),
        ("PUT", "/v1/amounts/a%2Fb/c%3Dd", "{\"amount\": 1}".to_owned(), 400, "malformed"),
        ("POST", "/v1/balances/default%2Fa%2F", "{}".to_owned(), 501, "not-built"),
    ] {
        let (found, kind, answer) = send(&router, request(method, path, None, &body)).await;
        let start: String = body.chars().take(60).collect();
        assert_eq!(found.as_u16(), status, "{method} {path} {start}: {answer}");
        assert_eq!((kind.as_str(), problem(&answer)), ("application/problem+json", name), "{start}");
    }
    let plain = Request::builder().method("POST").uri(wire::HOLDS).header(header::CONTENT_TYPE, "text/plain");
    let (status, _, answer) = send(&router, plain.body(Body::from("{}")).unwrap()).await;
    assert_eq!((status.as_u16(), problem(&answer)), (415, "not-json"));
    let (_, answer) = ask(&router, "GET", "/v1/accounts", &Value::Null).await;
    assert_eq!(answer, json!({"accounts": []}));
}

#[tokio::test]
async fn what_was_asked_is_counted_under_names_that_are_documented() {
    let router = open();
    ask(&router, "POST", wire::HOLDS, &hold(ID, &[charge(ACME, 60)])).await;
    ask(&router, "POST", wire::SETTLEMENTS, &settlement(ID, ACME, 75)).await;
    ask(&router, "GET", "/nowhere", &Value::Null).await;
    let response = router.clone().oneshot(request("GET", "/metrics", None, "")).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(body.to_vec()).unwrap();
    for line in [
        r#"tollgate_counter_requests_total{route="holds",status="200"} 1"#,
        r#"tollgate_counter_requests_total{route="unknown",status="404"} 1"#,
        r#"tollgate_counter_decisions_total{outcome="granted"} 1"#,
        r#"tollgate_counter_settlements_total{outcome="closed"} 1"#,
        "tollgate_counter_debt_units_total 15",
        "tollgate_counter_store_duration_seconds_count 2",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("acme"), "a label names a tenant\n{text}");
    let page = fs::read_to_string(docs().join("metrics.md")).unwrap();
    for name in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()) {
        assert!(page.contains(name), "docs/metrics.md does not name {name}");
    }
}

#[test]
fn the_openapi_file_names_every_door_and_no_other() {
    let text = fs::read_to_string(docs().join("openapi.yaml")).unwrap();
    let page: Value = serde_saphyr::from_str(&text).unwrap();
    let paths = page["paths"].as_object().unwrap();
    let doors: Vec<&str> = DOORS.iter().map(|door| door.path).collect();
    for path in paths.keys() {
        assert!(doors.contains(&path.as_str()), "no such path: {path}");
    }
    for door in DOORS {
        let told = paths.get(door.path).unwrap_or_else(|| panic!("{} is not described", door.path));
        let methods: Vec<&str> =
            told.as_object().unwrap().keys().map(String::as_str).filter(|key| *key != "parameters").collect();
        assert_eq!(methods, door.methods, "{}", door.path);
        for method in door.methods {
            let needs = match door.needs {
                None => json!([]),
                Some(Caller::Gateway) => json!([{"gateway": []}, {"administrator": []}]),
                Some(Caller::Administrator) => json!([{"administrator": []}]),
            };
            assert_eq!(told[method]["security"], needs, "{method} {}", door.path);
        }
    }
    let schemas = page["components"]["schemas"].as_object().unwrap();
    let mut references = Vec::new();
    collect_references(&page, &mut references);
    for reference in references {
        let name = reference.strip_prefix("#/components/schemas/").unwrap();
        assert!(schemas.contains_key(name), "{reference} leads nowhere");
    }
}

fn collect_references(value: &Value, into: &mut Vec<String>) {
    if let Some(map) = value.as_object() {
        into.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
        map.values().for_each(|value| collect_references(value, into));
    }
    if let Some(list) = value.as_array() {
        list.iter().for_each(|value| collect_references(value, into));
    }
}

fn docs() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

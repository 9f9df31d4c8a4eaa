//! Routes and statuses: bytes become messages here, and results become answers. Decides nothing else.
//!
//! A body is read only after its sender has shown a token, and no further than its bound.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest, MatchedPath, Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post, put};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tollgate_budget::wire::{self, HoldReply, RenewalsReply, SettlementsReply, StandingsReply};
use tollgate_budget::{AccountKey, Amount, Standing, Window};

use crate::clock::Stopwatch;
use crate::metrics::Route;
use crate::problem::Problem;
use crate::service::{PAGE_MOST, Service};
use crate::store::{Kept, Store};
use crate::tokens::{Caller, Tokens};

/// Whoever sends a body more slowly than this keeps a connection and its memory for nothing.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// Characters of a reader's complaint that are repeated to whoever sent what it complains about.
const COMPLAINT_MOST: usize = 200;

/// The namespace of a policy that names none.
const NAMESPACE: &str = "default";

/// A path and what it takes to use it.
#[derive(Clone, Copy, Debug)]
pub struct Door {
    pub path: &'static str,
    pub methods: &'static [&'static str],
    /// The least that a caller must be.
    pub needs: Option<Caller>,
    pub route: Route,
}

/// All there are; docs/openapi.yaml is held against this list.
pub const DOORS: [Door; 12] = [
    Door { path: wire::HOLDS, methods: &["post"], needs: Some(Caller::Gateway), route: Route::Holds },
    Door {
        path: wire::SETTLEMENTS,
        methods: &["post"],
        needs: Some(Caller::Gateway),
        route: Route::Settlements,
    },
    Door { path: wire::RENEWALS, methods: &["post"], needs: Some(Caller::Gateway), route: Route::Renewals },
    Door { path: wire::STANDINGS, methods: &["post"], needs: Some(Caller::Gateway), route: Route::Standings },
    Door {
        path: "/v1/accounts",
        methods: &["get"],
        needs: Some(Caller::Administrator),
        route: Route::Accounts,
    },
    Door {
        path: "/v1/accounts/{key}",
        methods: &["get"],
        needs: Some(Caller::Administrator),
        route: Route::Accounts,
    },
    Door {
        path: "/v1/amounts/{limit}/",
        methods: &["delete", "put"],
        needs: Some(Caller::Administrator),
        route: Route::Amounts,
    },
    Door {
        path: "/v1/amounts/{limit}/{subject}",
        methods: &["delete", "put"],
        needs: Some(Caller::Administrator),
        route: Route::Amounts,
    },
    Door {
        path: "/v1/balances/{account}",
        methods: &["post"],
        needs: Some(Caller::Administrator),
        route: Route::Balances,
    },
    Door { path: "/healthz", methods: &["get"], needs: None, route: Route::Health },
    Door { path: "/readyz", methods: &["get"], needs: None, route: Route::Ready },
    Door { path: "/metrics", methods: &["get"], needs: None, route: Route::Metrics },
];

type Shared<S> = State<Arc<Service<S>>>;

/// All routes over one service.
pub fn router<S: Store>(service: Arc<Service<S>>, tokens: Tokens) -> Router {
    let tokens = Arc::new(tokens);
    let gates = DOORS.iter().fold(Router::new(), |router, door| {
        let gate = Gate { tokens: Arc::clone(&tokens), needs: door.needs };
        let methods = answers::<S>(door.path)
            .fallback(async || Problem::MethodNotAllowed)
            .route_layer(middleware::from_fn_with_state(gate, pass));
        router.route(door.path, methods)
    });
    gates
        .fallback(async || Problem::NotFound)
        .layer(DefaultBodyLimit::max(wire::BODY_MOST))
        .layer(middleware::from_fn_with_state(Arc::clone(&service), count::<S>))
        .with_state(service)
}

fn answers<S: Store>(path: &str) -> MethodRouter<Arc<Service<S>>> {
    match path {
        wire::HOLDS => post(hold::<S>),
        wire::SETTLEMENTS => post(settle::<S>),
        wire::RENEWALS => post(renew::<S>),
        wire::STANDINGS => post(standings::<S>),
        "/v1/accounts" => get(accounts::<S>),
        "/v1/accounts/{key}" => get(account::<S>),
        "/v1/amounts/{limit}/" => put(set_for_all::<S>).delete(unset_for_all::<S>),
        "/v1/amounts/{limit}/{subject}" => put(set::<S>).delete(unset::<S>),
        "/v1/balances/{account}" => post(top_up),
        "/healthz" => get(async || "ok\n"),
        "/readyz" => get(ready::<S>),
        "/metrics" => get(metrics::<S>),
        _ => MethodRouter::new(),
    }
}

/// Who may pass.
#[derive(Clone)]
struct Gate {
    tokens: Arc<Tokens>,
    needs: Option<Caller>,
}

async fn pass(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let Some(needs) = gate.needs else { return next.run(request).await };
    match gate.tokens.caller(bearer(request.headers())) {
        Some(caller) if caller >= needs => next.run(request).await,
        Some(_) => Problem::Forbidden.into_response(),
        None => Problem::Unauthenticated.into_response(),
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

async fn count<S: Store>(State(service): Shared<S>, request: Request, next: Next) -> Response {
    let watch = Stopwatch::start();
    let path = request.extensions().get::<MatchedPath>();
    let door = path.and_then(|path| DOORS.iter().find(|door| door.path == path.as_str()));
    let route = door.map_or(Route::Unknown, |door| door.route);
    let response = next.run(request).await;
    service.metrics().answered(route, response.status().as_u16(), watch.elapsed());
    response
}

/// A JSON body of this shape.
struct Message<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Message<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            return Err(Problem::NotJson);
        }
        let read = tokio::time::timeout(BODY_WITHIN, Bytes::from_request(request, state));
        let body = read.await.map_err(|_| Problem::TooSlow)?.map_err(|error| {
            if error.status() == StatusCode::PAYLOAD_TOO_LARGE {
                Problem::body_too_large()
            } else {
                Problem::Malformed("the body broke off".to_owned())
            }
        })?;
        serde_json::from_slice(&body)
            .map(Self)
            .map_err(|error| Problem::Malformed(error.to_string().chars().take(COMPLAINT_MOST).collect()))
    }
}

/// A page in a browser can send anything but this without asking first, so that none reaches a service
/// that listens on loopback and knows no tokens.
fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

struct Answer(Response);

impl Answer {
    fn json(value: &impl Serialize) -> Self {
        let body = serde_json::to_vec(value).unwrap_or_default();
        Self(([(header::CONTENT_TYPE, "application/json")], body).into_response())
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        self.0
    }
}

type Answered = Result<Answer, Problem>;

async fn hold<S: Store>(State(service): Shared<S>, Message(hold): Message<wire::Hold>) -> Answered {
    uninterrupted(async move {
        let decision = service.hold(&hold).await?;
        Ok(Answer::json(&HoldReply { decision }))
    })
    .await
}

async fn settle<S: Store>(State(service): Shared<S>, Message(batch): Message<wire::Settlements>) -> Answered {
    uninterrupted(async move {
        let outcomes = service.settle(&batch.settlements).await?;
        Ok(Answer::json(&SettlementsReply { outcomes }))
    })
    .await
}

async fn renew<S: Store>(State(service): Shared<S>, Message(batch): Message<wire::Renewals>) -> Answered {
    let outcomes = service.renew(&batch.renewals).await?;
    Ok(Answer::json(&RenewalsReply { outcomes }))
}

async fn standings<S: Store>(
    State(service): Shared<S>,
    Message(asked): Message<wire::Standings>,
) -> Answered {
    let standings = service.standings(&asked.accounts).await?;
    Ok(Answer::json(&StandingsReply { standings }))
}

/// Goes on when the caller hangs up: a hold of which one slot was taken would else be given back by its lease
/// only.
async fn uninterrupted(work: impl Future<Output = Answered> + Send + 'static) -> Answered {
    match tokio::spawn(work).await {
        Ok(answered) => answered,
        // Only a runtime that is being shut down ends a task.
        Err(_) => Err(Problem::Store(crate::store::StoreError::Away)),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listing {
    #[serde(default)]
    prefix: String,
    limit: Option<usize>,
    cursor: Option<String>,
}

#[derive(Serialize)]
struct Accounts {
    accounts: Vec<Account>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

#[derive(Serialize)]
struct Account {
    account: AccountKey,
    window: Window,
    amount: Amount,
    #[serde(rename = "override", skip_serializing_if = "Option::is_none")]
    amount_set: Option<Amount>,
    standing: Standing,
}

impl From<Kept> for Account {
    fn from(kept: Kept) -> Self {
        let Kept { account, limit, amount_set, standing } = kept;
        Self { account, window: limit.window, amount: limit.quota.amount(), amount_set, standing }
    }
}

async fn accounts<S: Store>(
    State(service): Shared<S>,
    query: Result<Query<Listing>, axum::extract::rejection::QueryRejection>,
) -> Answered {
    let Query(Listing { prefix, limit, cursor }) =
        query.map_err(|_| Problem::Malformed("the query takes prefix, limit and cursor".to_owned()))?;
    let page = service.accounts(&prefix, limit.unwrap_or(PAGE_MOST), cursor.as_deref()).await?;
    let accounts = page.accounts.into_iter().map(Account::from).collect();
    Ok(Answer::json(&Accounts { accounts, cursor: page.cursor }))
}

async fn account<S: Store>(State(service): Shared<S>, Path(key): Path<String>) -> Answered {
    let kept = service.account(&parse(&key)?).await?.ok_or(Problem::NotFound)?;
    Ok(Answer::json(&Account::from(kept)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InNamespace {
    namespace: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetAmount {
    amount: Amount,
}

type Space = Query<InNamespace>;

async fn set<S: Store>(
    State(service): Shared<S>,
    Path((limit, subject)): Path<(String, String)>,
    Query(space): Space,
    Message(body): Message<SetAmount>,
) -> Result<StatusCode, Problem> {
    amount(&service, &space, &limit, &subject, Some(body.amount)).await
}

async fn unset<S: Store>(
    State(service): Shared<S>,
    Path((limit, subject)): Path<(String, String)>,
    Query(space): Space,
) -> Result<StatusCode, Problem> {
    amount(&service, &space, &limit, &subject, None).await
}

async fn set_for_all<S: Store>(
    State(service): Shared<S>,
    Path(limit): Path<String>,
    Query(space): Space,
    Message(body): Message<SetAmount>,
) -> Result<StatusCode, Problem> {
    amount(&service, &space, &limit, "", Some(body.amount)).await
}

async fn unset_for_all<S: Store>(
    State(service): Shared<S>,
    Path(limit): Path<String>,
    Query(space): Space,
) -> Result<StatusCode, Problem> {
    amount(&service, &space, &limit, "", None).await
}

async fn amount<S: Store>(
    service: &Service<S>,
    space: &InNamespace,
    limit: &str,
    subject: &str,
    amount: Option<Amount>,
) -> Result<StatusCode, Problem> {
    let namespace = space.namespace.as_deref().unwrap_or(NAMESPACE);
    let key = parse(&format!("{namespace}/{limit}/{subject}"))?;
    service.set_amount(&key, amount).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// There is no window yet that keeps what would be topped up, and credit that nothing can spend is no credit.
async fn top_up() -> Problem {
    Problem::NotBuilt
}

async fn ready<S: Store>(State(service): Shared<S>) -> Result<&'static str, Problem> {
    service.ready().await.map(|()| "ready\n")
}

async fn metrics<S: Store>(State(service): Shared<S>) -> Response {
    const OPEN_METRICS: HeaderValue =
        HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    ([(header::CONTENT_TYPE, OPEN_METRICS)], service.metrics().text()).into_response()
}

fn parse(key: &str) -> Result<AccountKey, Problem> {
    key.parse().map_err(|error| Problem::Malformed(format!("the account's name: {error}")))
}

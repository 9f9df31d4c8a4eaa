//! What is written → what is meant: defaults filled in, references resolved, contradictions reported.
//!
//! Every function reads on after a problem, with a default in place of what was refused: a policy is
//! corrected in one round. The result is only handed out when nothing was reported.

mod limits;
mod models;
mod rates;

use tollgate_budget::{OnLeaseEnd, Span, Tokens};

use super::builtin;
use super::number::Count;
use super::problems::{Place, Problems, shown};
use super::raw::{self, Policy};
use super::read::List;
use super::{
    Absent, Attribute, BodyRules, CounterRules, FilterConfig, Form, HeaderFamily, HeaderHold, HoldRules,
    OnOutage, PathPattern, Per, ResponseRules, Route, Source, StoreRules, Unreadable, Upgrades, UsageOption,
};

/// Every attribute is looked up and hashed for every request.
const MAX_ATTRIBUTES: usize = 16;
const MAX_SOURCES: usize = 16;
/// Namespace and keys; deeper than claims nest.
const MAX_METADATA_PARTS: usize = 8;
/// How the host names what is in the stream's dynamic metadata.
pub(super) const METADATA: [&str; 2] = ["metadata", "filter_metadata"];
/// As DNS labels and metric labels go.
const MAX_NAME: usize = 64;
/// A request waits this long at most for a service that hangs.
const MAX_CALL: Span = Span::from_secs(10);
const MAX_GATEWAYS: u64 = 10_000;
/// The most that account arithmetic can tell apart, in tokens.
const MAX_TOKENS: u64 = tollgate_budget::Amount::MAX.units() / 1000;
/// The linear memory of a wasm module ends at 4 GiB; a quarter of it in one body is a mistake.
const MAX_BODY: u64 = 1 << 30;
/// More parts than workers could ever contend for, each with memory of its own.
const MAX_SHARDS: u64 = 4096;

/// Headers that carry a credential: hashed even where the policy does not ask, since a raw key must never
/// reach an account, a log or a metric.
const SECRET_HEADERS: [&str; 6] =
    ["authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"];

pub(super) fn compile(policy: &Policy, problems: &mut Problems) -> FilterConfig {
    let document = Place::Document;
    check_version(policy.version, document.key("version"), problems);
    let mut metadata = Vec::new();
    let subject = subject(policy, &mut metadata, document.key("subject"), problems);
    let (models, unknown_model) = models::models(policy.models.as_ref(), document.key("models"), problems);
    let (tiers, limits) = limits::limits(policy, &subject, &models, document.key("limits"), problems);
    FilterConfig {
        namespace: namespace(policy, document.key("namespace"), problems),
        subject,
        metadata,
        tiers,
        routes: routes(policy.routes.as_ref(), document.key("routes"), problems),
        upgrades: policy.upgrades.unwrap_or(Upgrades::Refuse),
        models,
        unknown_model,
        hold: hold(policy.hold.as_ref(), document.key("hold"), problems),
        body: body(policy.body.as_ref(), document.key("body"), problems),
        limits,
        fingerprint: 0,
        store: store(policy.store.as_ref(), document.key("store"), problems),
        header_hold: policy.host.as_ref().and_then(|host| host.header_hold).unwrap_or(HeaderHold::Auto),
        response: response(policy.response.as_ref(), document.key("response"), problems),
    }
}

fn check_version(version: Option<Count>, at: Place<'_>, problems: &mut Problems) {
    match version {
        Some(Count(1)) => {}
        Some(Count(other)) => problems.add(at, format!("found {other}; this build knows only version 1")),
        None => problems.add_unless_touched(at, "missing; write `version: 1`"),
    }
}

fn namespace(policy: &Policy, at: Place<'_>, problems: &mut Problems) -> String {
    let name = policy.namespace.as_deref().unwrap_or("default");
    check_name(name, at, problems);
    name.to_owned()
}

fn check_name(name: &str, at: Place<'_>, problems: &mut Problems) {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(plain) {
        problems.add(at, format!("`{}` is not a name: 1 to {MAX_NAME} of a-z, 0-9 and `-`", quotable(name)));
    }
}

fn quotable(text: &str) -> String {
    shown(text).escape_debug().to_string()
}

fn subject(
    policy: &Policy,
    metadata: &mut Vec<String>,
    at: Place<'_>,
    problems: &mut Problems,
) -> Vec<Attribute> {
    let Some(table) = &policy.subject else { return Vec::new() };
    if table.0.len() > MAX_ATTRIBUTES {
        problems.add(at, format!("{} attributes are more than {MAX_ATTRIBUTES}", table.0.len()));
    }
    let compiled = |(name, raw): &(String, Option<raw::Attribute>)| {
        let at = at.key(name);
        if name.is_empty() || name.len() > MAX_NAME {
            problems.add(at, format!("the name of an attribute has 1 to {MAX_NAME} bytes"));
        }
        if name == Per::MODEL {
            problems.add(at, "`model` in `per` is the request's model; the attribute needs another name");
        }
        raw.as_ref().map(|raw| attribute(name, raw, metadata, at, problems))
    };
    table.0.iter().filter_map(compiled).collect()
}

fn attribute(
    name: &str,
    raw: &raw::Attribute,
    metadata: &mut Vec<String>,
    at: Place<'_>,
    problems: &mut Problems,
) -> Attribute {
    let from = at.key("from");
    let sources = raw.from.as_ref().map(List::read_items).into_iter().flatten();
    let sources: Vec<Source> =
        sources.filter_map(|(i, raw)| source(raw, metadata, from.item(i), problems)).collect();
    if sources.is_empty() {
        problems.add_unless_touched(
            from,
            "missing: where the value comes from, such as `[{header: x-tenant-id}]`",
        );
    }
    if sources.len() > MAX_SOURCES {
        problems.add(from, format!("{} sources are more than {MAX_SOURCES}", sources.len()));
    }
    Attribute { name: name.to_owned(), sources, absent: absent(raw, at, problems) }
}

fn absent(raw: &raw::Attribute, at: Place<'_>, problems: &mut Problems) -> Absent {
    match (&raw.default, raw.required) {
        (Some(default), None | Some(false)) => {
            if default.is_empty() {
                problems
                    .add(at.key("default"), "empty; name the account that all callers without a value share");
            }
            return Absent::Default(default.clone());
        }
        (Some(_), Some(true)) => {
            problems.add(at, "`required: true` leaves nothing for `default` to stand for; keep one of them");
        }
        (None, None | Some(false)) => {
            problems.add_unless_touched(
                at,
                "neither `default` nor `required: true` says what a request without it gets",
            );
        }
        (None, Some(true)) => {}
    }
    Absent::Refuse
}

fn source(
    raw: &raw::Source,
    metadata: &mut Vec<String>,
    at: Place<'_>,
    problems: &mut Problems,
) -> Option<Source> {
    match (&raw.header, &raw.metadata, raw.bearer) {
        (Some(header), None, None) => {
            let name = header.to_ascii_lowercase();
            check_header(&name, at.key("header"), problems);
            let secret = SECRET_HEADERS.contains(&name.as_str());
            let form = if secret { Form::Sha256 } else { raw.form.unwrap_or(Form::AsIs) };
            let (strip, trusted) = (raw.strip.unwrap_or(false), raw.trusted.unwrap_or(false));
            Some(Source::Header { name, form, strip, trusted })
        }
        (None, Some(parts), None) => {
            stray(raw, &["strip", "trusted"], "metadata", at, problems);
            let path = metadata_path(parts, at.key("metadata"), problems)?;
            let known = metadata.iter().position(|known| *known == path);
            let property = known.unwrap_or(metadata.len());
            if known.is_none() {
                metadata.push(path);
            }
            Some(Source::Metadata { property, form: raw.form.unwrap_or(Form::AsIs) })
        }
        (None, None, Some(raw::Hashed::Sha256)) => {
            stray(raw, &["as", "strip", "trusted"], "bearer", at, problems);
            Some(Source::Bearer)
        }
        (None, None, None) => {
            problems.add_unless_touched(
                at,
                "no source; write `{header: x-tenant-id}`, `{bearer: sha256}` or `{metadata: [namespace, key]}`",
            );
            None
        }
        (header, metadata, bearer) => {
            let given = [
                ("header", header.is_some()),
                ("metadata", metadata.is_some()),
                ("bearer", bearer.is_some()),
            ];
            let given: Vec<_> = given.into_iter().filter_map(|(key, given)| given.then_some(key)).collect();
            let keys = given.join("` and `");
            problems.add(at, format!("`{keys}` are sources of their own; write one after the other"));
            None
        }
    }
}

/// Keys that mean nothing beside this source.
fn stray(raw: &raw::Source, keys: &[&str], source: &str, at: Place<'_>, problems: &mut Problems) {
    let given =
        [("as", raw.form.is_some()), ("strip", raw.strip.is_some()), ("trusted", raw.trusted.is_some())];
    for (key, _) in given.into_iter().filter(|(key, given)| *given && keys.contains(key)) {
        problems.add(at.key(key), format!("`{key}` goes with `header`, not with `{source}`"));
    }
}

/// The property by which the host finds it.
fn metadata_path(parts: &List<String>, at: Place<'_>, problems: &mut Problems) -> Option<String> {
    if !(2..=MAX_METADATA_PARTS).contains(&parts.0.len()) {
        let wanted = "such as `[envoy.filters.http.jwt_authn, jwt_payload, org_id]`";
        problems.add(
            at,
            format!(
                "{} parts, expected a namespace and keys, {MAX_METADATA_PARTS} at most, {wanted}",
                parts.0.len()
            ),
        );
        return None;
    }
    let mut path = METADATA.join("\0");
    for (i, part) in parts.read_items() {
        // The host takes a path apart at these.
        if part.is_empty() || part.contains('\0') {
            problems.add(at.item(i), "empty, or with a NUL in it: no key of the metadata");
        }
        path.push('\0');
        path.push_str(part);
    }
    Some(path)
}

/// A token of RFC 9110; the parts of the request line are no headers.
fn check_header(name: &str, at: Place<'_>, problems: &mut Problems) {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(token) {
        problems.add(at, format!("`{}` is not the name of a header", quotable(name)));
    }
}

fn routes(raw: Option<&List<raw::Route>>, at: Place<'_>, problems: &mut Problems) -> Vec<Route> {
    let Some(list) = raw else {
        return builtin::routes();
    };
    let compiled = |(i, raw): (usize, &raw::Route)| {
        let at = at.item(i);
        if raw.api.is_none() {
            problems.add_unless_touched(
                at.key("api"),
                "missing; write `api: openai_chat`, another API, `request_only` or `free`",
            );
        }
        let Some(path) = &raw.path else {
            problems.add_unless_touched(at.key("path"), "missing; write `path: /v1/chat/completions`");
            return None;
        };
        Some(Route { path: path_pattern(path, at.key("path"), problems)?, api: raw.api? })
    };
    list.read_items().filter_map(compiled).collect()
}

fn path_pattern(path: &str, at: Place<'_>, problems: &mut Problems) -> Option<PathPattern> {
    let dotted = path.split('/').any(|segment| matches!(segment, "." | ".."));
    if !path.starts_with('/') || dotted || path.contains(['?', '#', '%', '\\']) {
        let wanted = "starting with `/`, without query, escapes and dot segments";
        problems.add(at, format!("`{}` is not a path: {wanted}", quotable(path)));
        return None;
    }
    let pattern = PathPattern::new(path);
    if pattern.is_none() {
        problems.add(at, format!("`{path}` would match every path; name at least one segment"));
    }
    pattern
}

fn hold(raw: Option<&raw::Hold>, at: Place<'_>, problems: &mut Problems) -> HoldRules {
    let raw = raw.cloned().unwrap_or_default();
    let max_share_milli = raw.max_share.map_or(1000, |share| share.milli_floor);
    if let Some(share) = raw.max_share
        && !(1..=1000).contains(&max_share_milli)
    {
        problems.add(at.key("max_share"), format!("found {share}, expected 0.001 to 1"));
    }
    HoldRules {
        max_output: tokens(raw.max_output_tokens, 1, at.key("max_output_tokens"), problems)
            .unwrap_or(Tokens::new(65_536)),
        previous_response: tokens(
            raw.previous_response_tokens,
            0,
            at.key("previous_response_tokens"),
            problems,
        )
        .unwrap_or(Tokens::new(2000)),
        max_share_milli,
        lease: raw.lease.unwrap_or(Span::from_secs(10 * 60)),
        on_lease_end: raw.on_lease_end.unwrap_or(OnLeaseEnd::Charge),
    }
}

fn tokens(count: Option<Count>, least: u64, at: Place<'_>, problems: &mut Problems) -> Option<Tokens> {
    within(count, least, MAX_TOKENS, "tokens", at, problems).map(Tokens::new)
}

fn within(
    count: Option<Count>,
    least: u64,
    most: u64,
    what: &str,
    at: Place<'_>,
    problems: &mut Problems,
) -> Option<u64> {
    let Count(count) = count?;
    if (least..=most).contains(&count) {
        return Some(count);
    }
    problems.add(at, format!("found {count}, expected {least} to {most} {what}"));
    None
}

fn body(raw: Option<&raw::Body>, at: Place<'_>, problems: &mut Problems) -> BodyRules {
    let max = raw.and_then(|raw| within(raw.max, 1, MAX_BODY, "bytes", at.key("max"), problems));
    BodyRules {
        max: max.and_then(|max| usize::try_from(max).ok()).unwrap_or(16_777_216),
        unreadable: raw.and_then(|raw| raw.unreadable).unwrap_or(Unreadable::Estimate),
    }
}

fn store(raw: Option<&raw::Store>, at: Place<'_>, problems: &mut Problems) -> StoreRules {
    let local = raw.and_then(|raw| raw.local.as_ref());
    let counter = raw.and_then(|raw| raw.counter.as_ref());
    if local.is_some() && counter.is_some() {
        problems.add(at, "two stores at once; write `local` or `counter`");
    }
    let shards = local.and_then(|local| local.shards);
    let shards = within(shards, 1, MAX_SHARDS, "shards", at.key("local").key("shards"), problems);
    StoreRules {
        shards: shards.and_then(|shards| u32::try_from(shards).ok()).unwrap_or(256),
        counter: counter.and_then(|raw| counter_rules(raw, at.key("counter"), problems)),
    }
}

fn counter_rules(raw: &raw::Counter, at: Place<'_>, problems: &mut Problems) -> Option<CounterRules> {
    let filled = |text: &Option<String>, default: Option<&str>, key, problems: &mut Problems| match text {
        Some(text) if text.is_empty() || !text.chars().all(|c| c.is_ascii_graphic()) => {
            problems.add(at.key(key), "empty, or with blanks in it");
            None
        }
        Some(text) => Some(text.clone()),
        None => default.map(ToOwned::to_owned),
    };
    if raw.target.is_none() {
        problems.add_unless_touched(
            at.key("target"),
            "missing; write the name of the proxy's cluster that leads to `tollgate serve`",
        );
    }
    let timeout = raw.timeout.unwrap_or(Span::from_millis(50));
    if timeout > MAX_CALL {
        problems.add(
            at.key("timeout"),
            format!("found {}, expected 1 to {} ms", timeout.as_millis(), MAX_CALL.as_millis()),
        );
    }
    let target = filled(&raw.target, None, "target", problems);
    let authority = filled(&raw.authority, Some("tollgate"), "authority", problems);
    let token_env = filled(&raw.token_env, Some("TOLLGATE_TOKEN"), "token_env", problems);
    let gateways = within(raw.gateways, 1, MAX_GATEWAYS, "gateways", at.key("gateways"), problems);
    Some(CounterRules {
        target: target?,
        authority: authority?,
        timeout,
        token_env: token_env?,
        gateways: gateways.unwrap_or(4),
        on_outage: raw.on_outage.unwrap_or(OnOutage::Local),
    })
}

fn response(raw: Option<&raw::Response>, at: Place<'_>, problems: &mut Problems) -> ResponseRules {
    let headers = raw.and_then(|raw| raw.headers.as_ref()).map(|list| {
        let mut families: Vec<HeaderFamily> = Vec::new();
        for (_, &family) in list.read_items() {
            if !families.contains(&family) {
                families.push(family);
            }
        }
        families
    });
    let path = raw.and_then(|raw| raw.budget_path.as_deref()).unwrap_or("/tollgate/budget");
    ResponseRules {
        headers: headers.unwrap_or_else(|| vec![HeaderFamily::TokenLimit, HeaderFamily::OpenAi]),
        usage: raw.and_then(|raw| raw.usage).unwrap_or(UsageOption::Inject),
        budget_path: budget_path(path, at.key("budget_path"), problems),
    }
}

fn budget_path(path: &str, at: Place<'_>, problems: &mut Problems) -> Option<String> {
    if path == "none" {
        return None;
    }
    if path.contains('*') {
        problems.add(at, "`*` stands for nothing here; write the whole path, or `none`");
        return None;
    }
    path_pattern(path, at, problems).map(|_| path.to_owned())
}

//! What a policy means once it is taken: defaults, inheritance, and the questions a request puts to it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use serde_json::{Value, json};
use tollgate::config::{
    Absent, Api, FilterConfig, HeaderFamily, HeaderHold, Media, RequestPath, Target, Tokenizer, Unreadable,
    Upgrades, UsageOption, Vocabulary,
};
use tollgate::identity::{Caller, identify, key};
use tollgate_budget::{Amount, Limit, OnLeaseEnd, Quota, Span, Tokens, Window};

fn policy(value: Value) -> FilterConfig {
    FilterConfig::from_slice(value.to_string().as_bytes()).unwrap()
}

fn limits(limits: Value) -> FilterConfig {
    policy(json!({
        "version": 1,
        "subject": {
            "tenant": {"from": [{"header": "x-tenant"}], "default": "anonymous"},
            "tier": {"from": [{"header": "x-tier"}], "default": "free"},
        },
        "models": [{"match": "gpt-4o*"}, {"match": "mine", "alias": "gpt-4o"}],
        "limits": limits,
    }))
}

fn models(models: Value) -> FilterConfig {
    policy(json!({"version": 1, "models": models}))
}

const O200K: Tokenizer = Tokenizer::Exact(Vocabulary::O200kBase);
const CL100K: Tokenizer = Tokenizer::Exact(Vocabulary::Cl100kBase);

const fn like(factor_milli: u64) -> Tokenizer {
    Tokenizer::Like { vocabulary: Vocabulary::O200kBase, factor_milli }
}

#[test]
fn what_a_policy_does_not_say_has_the_documented_default() {
    let config = policy(json!({"version": 1}));
    assert_eq!(config.namespace, "default");
    assert_eq!(config.upgrades, Upgrades::Refuse);
    assert_eq!(config.route(&RequestPath::new("/v1/chat/completions")), Some(Api::OpenAiChat));
    assert_eq!(config.hold.max_output, Tokens::new(65_536));
    assert_eq!(config.hold.previous_response, Tokens::new(2000));
    assert_eq!(config.hold.max_share_milli, 1000);
    assert_eq!(config.hold.lease, Span::from_secs(600));
    assert_eq!(config.hold.on_lease_end, OnLeaseEnd::Charge);
    assert_eq!((config.body.max, config.body.unreadable), (16 << 20, Unreadable::Estimate));
    assert_eq!(config.store.shards, 256);
    assert_eq!(config.header_hold, HeaderHold::Auto);
    assert_eq!(config.response.headers, [HeaderFamily::TokenLimit, HeaderFamily::OpenAi]);
    assert_eq!(config.response.usage, UsageOption::Inject);
    assert!(config.is_budget_path(&RequestPath::new("/tollgate/budget?x")));
    assert!(config.limits.is_empty() && config.subject.is_empty() && config.tiers.is_none());
}

#[test]
fn the_known_paths_are_metered_by_default_whatever_stands_before_them() {
    let config = policy(json!({"version": 1}));
    for (path, api) in [
        ("/v1/chat/completions", Some(Api::OpenAiChat)),
        ("/chat/completions", Some(Api::OpenAiChat)),
        ("/openai/deployments/any/chat/completions?api-version=1", Some(Api::OpenAiChat)),
        ("/v1/completions", Some(Api::OpenAiCompletions)),
        ("/openai/deployments/any/completions", Some(Api::OpenAiCompletions)),
        ("/v1/embeddings", Some(Api::OpenAiEmbeddings)),
        ("/openai/deployments/any/embeddings", Some(Api::OpenAiEmbeddings)),
        ("/openai/v1/responses", Some(Api::OpenAiResponses)),
        ("/openai/responses?api-version=1", Some(Api::OpenAiResponses)),
        ("/v1/responses/compact", Some(Api::OpenAiResponses)),
        ("/v1/responses/input_tokens", Some(Api::RequestOnly)),
        ("/v1/responses/resp_1/cancel", None),
        ("/v1/messages", Some(Api::AnthropicMessages)),
        ("/anthropic/v1/messages?beta=true", Some(Api::AnthropicMessages)),
        ("/v1/messages/batches", Some(Api::AnthropicMessages)),
        ("/v1/messages/batches/msgbatch_1/cancel", None),
        ("/v1/messages/count_tokens", Some(Api::RequestOnly)),
        (
            "/v1/projects/p/locations/l/publishers/anthropic/models/claude@1:rawPredict",
            Some(Api::AnthropicMessages),
        ),
        (
            "/v1/projects/p/locations/l/publishers/anthropic/models/count-tokens:rawPredict",
            Some(Api::RequestOnly),
        ),
        ("/v1/threads/thread_1/messages", None),
        ("/v1/models", None),
    ] {
        assert_eq!(config.route(&RequestPath::new(path)), api, "{path}");
    }
}

#[test]
fn the_built_in_table_knows_the_families() {
    let config = policy(json!({"version": 1}));
    for (model, tokenizer) in [
        ("gpt-4o-mini", O200K),
        ("gpt-4.1", O200K),
        ("gpt-5-nano", O200K),
        ("o3", O200K),
        ("chatgpt-4o-latest", O200K),
        ("gpt-oss-120b", O200K),
        ("gpt-4", CL100K),
        ("gpt-4-turbo-2024-04-09", CL100K),
        ("gpt-3.5-turbo", CL100K),
        ("ft:gpt-3.5-turbo-0125:org::id", CL100K),
        ("claude-3-5-sonnet-20241022", like(1200)),
        ("claude-opus-4-20250514", like(1200)),
        ("claude-sonnet-4-5-20250929", like(1200)),
        ("claude-opus-4-6", like(1200)),
        ("claude-opus-4-7", like(1600)),
        ("claude-next", like(1600)),
        ("gemini-2.5-pro", like(1200)),
        ("qwen3-max", like(1300)),
        ("somebody-elses", like(1100)),
        ("", like(1100)),
    ] {
        assert_eq!(config.model(model).tokenizer, tokenizer, "{model}");
    }
    let unknown = config.model("somebody-elses");
    assert_eq!((unknown.default_output, unknown.max_output), (Tokens::new(1024), Tokens::new(16_384)));
    let media = Media { image: Tokens::new(1000), audio: Tokens::new(2000), file: Tokens::new(3000) };
    assert_eq!(unknown.media, media);
}

#[test]
fn a_rule_takes_what_it_does_not_say_from_the_rule_for_the_rest() {
    let config = models(json!([
        {"match": "a*", "tokenizer": "cl100k_base"},
        {"match": "*", "default_output_tokens": 7, "media": {"image": 1}},
    ]));
    let (a, other) = (config.model("abc"), config.model("other"));
    assert_eq!((a.tokenizer, a.default_output, a.media.image), (CL100K, Tokens::new(7), Tokens::new(1)));
    assert_eq!((other.tokenizer, other.media.audio), (like(1100), Tokens::new(2000)));
    let config = models(json!([{"match": "a*", "tokenizer": "cl100k_base"}]));
    assert_eq!(config.model("other").tokenizer, like(1100));
    assert_eq!(config.models.last().unwrap().pattern.as_str(), "*");
}

#[test]
fn a_default_never_exceeds_what_the_model_can_produce() {
    let config = models(json!([
        {"match": "small", "max_output_tokens": 100},
        {"match": "large", "default_output_tokens": 50000},
    ]));
    let outputs = |name| (config.model(name).default_output.count(), config.model(name).max_output.count());
    assert_eq!(outputs("small"), (100, 100));
    assert_eq!(outputs("large"), (50_000, 50_000));
}

#[test]
fn an_alias_is_what_it_stands_for_but_for_what_it_says_itself() {
    let config = models(json!([
        {"match": "azure-*", "alias": "gpt-4o", "max_output_tokens": 4096},
        {"match": "gpt-4o*", "tokenizer": "o200k_base", "default_output_tokens": 99},
        {"match": "*", "tokenizer": {"characters": 4}},
    ]));
    let alias = config.model("azure-eu");
    assert_eq!(
        (alias.tokenizer, alias.default_output, alias.max_output),
        (O200K, Tokens::new(99), Tokens::new(4096))
    );
    assert_eq!(config.family("azure-eu"), "gpt-4o*");
    assert_eq!(config.family("gpt-4o-mini"), "gpt-4o*");
    assert_eq!(config.family("x"), "*");
}

#[test]
fn a_limit_looks_only_at_what_its_conditions_name() {
    let config = limits(json!([{
        "name": "a", "per": [], "unit": "tokens", "window": {"bucket": "60s", "burst": 5}, "amount": 9,
        "when": {"models": ["gpt-4o"], "tiers": ["free"], "paths": ["/chat/completions"], "apis": ["openai_chat"]},
    }]));
    let path = RequestPath::new("/v1/chat/completions");
    let other = RequestPath::new("/v1/completions");
    let target = Target { path: &path, api: Api::OpenAiChat, model: "gpt-4o", tier: Some("free") };
    let applies = |target: Target<'_>| config.applies(&config.limits[0], &target);
    assert!(applies(target));
    assert!(applies(Target { model: "mine", ..target }), "an alias counts as what it stands for");
    assert!(!applies(Target { model: "gpt-4o-mini", ..target }));
    assert!(!applies(Target { tier: Some("pro"), ..target }));
    assert!(!applies(Target { path: &other, ..target }));
    assert!(!applies(Target { api: Api::RequestOnly, ..target }));
}

#[test]
fn amounts_are_in_account_units_and_zero_suspends() {
    let config = limits(json!([
        {"name": "a", "per": ["tenant"], "unit": "tokens", "window": {"sliding": "60s"}, "amount": {"free": 0, "pro": 5}},
        {"name": "b", "per": ["tenant"], "unit": "requests", "window": {"bucket": "1s", "burst": 7}, "amount": 3},
    ]));
    let tier = |value: &str| {
        identify(Caller { headers: &[(b"x-tier", value.as_bytes())], metadata: &[] }, &config)
            .unwrap()
            .tier(&config)
    };
    let amount = |units| Amount::new(units).unwrap();
    let window = Window::Sliding(Span::from_secs(60));
    assert_eq!(config.limits[0].limit(tier("free")), Limit { window, quota: Quota::Suspended });
    assert_eq!(config.limits[0].limit(tier("pro")), Limit { window, quota: Quota::Of(amount(5000)) });
    let window = Window::Bucket { period: Span::from_secs(1), burst: Some(amount(7)) };
    assert_eq!(config.limits[1].limit(tier("pro")), Limit { window, quota: Quota::Of(amount(3)) });
}

#[test]
fn an_account_is_named_by_its_limit_its_subject_and_the_models_family() {
    let config = limits(json!([
        {"name": "a", "per": ["tenant", "model"], "unit": "tokens", "window": {"sliding": "60s"}, "amount": 9},
    ]));
    let subject = identify(Caller { headers: &[(b"x-tenant", b"acme")], metadata: &[] }, &config).unwrap();
    let key = |model| key(&config, &config.limits[0], &subject, config.family(model));
    assert_eq!(key("gpt-4o"), key("mine"));
    assert_ne!(key("gpt-4o"), key("other"));
    assert_eq!(key("invented-1"), key("invented-2"), "invented names share the account of unknown models");
    assert_eq!(key("gpt-4o").subject[0], ("tenant".to_owned(), b"acme".to_vec()));
}

#[test]
fn the_first_route_that_matches_decides() {
    let config = policy(json!({"version": 1, "routes": [
        {"path": "/internal/chat/completions", "api": "free"},
        {"path": "/chat/completions", "api": "openai_chat"},
        {"path": "/count_tokens", "api": "request_only"},
    ]}));
    let route = |path| config.route(&RequestPath::new(path));
    assert_eq!(route("/internal/chat/completions"), Some(Api::Free));
    assert_eq!(route("/v1/chat/completions"), Some(Api::OpenAiChat));
    assert_eq!(route("/v1/messages/count_tokens"), Some(Api::RequestOnly));
    assert_eq!(route("/v1/models"), None);
}

#[test]
fn the_budget_path_can_be_switched_off() {
    let config = policy(json!({"version": 1, "response": {"budget_path": "none"}}));
    assert_eq!(config.response.budget_path, None);
}

#[test]
fn a_subject_has_its_attributes_by_name() {
    let config = policy(json!({"version": 1, "subject": {
        "user": {"from": [{"header": "x-user"}], "required": true},
        "org": {"from": [{"header": "x-org"}], "default": "none"},
    }}));
    let names: Vec<_> = config.subject.iter().map(|attribute| attribute.name.as_str()).collect();
    assert_eq!(names, ["org", "user"]);
    assert_eq!(config.subject[0].absent, Absent::Default("none".into()));
    assert_eq!(config.subject[1].absent, Absent::Refuse);
}

//! The policy as it is written: its keys, their words, and what is not built yet. No behaviour.
//!
//! The comments on keys are the descriptions in `policy.schema.json`.

use serde_json::{Value, json};
use tollgate_budget::{Mode, OnLeaseEnd, Span, Unit};

use super::number::{Count, Millionths, Quantity, Ratio};
use super::problems::{Place, Problems};
use super::read::{List, Read, Table, record, words};
use super::{Api, Form, HeaderFamily, HeaderHold, OnOutage, Unreadable, Upgrades, UsageOption, Vocabulary};

record! {
    /// A Tollgate policy.
    Policy, "the policy" {
        /// Always 1.
        version: Count,
        /// Part of every account's key: two installations on one proxy stay apart. Default: default.
        namespace: String,
        /// Attribute of the caller, and the sources that may yield it; the first that does wins.
        subject: Table<Attribute>,
        /// What is metered; all else passes untouched. Default: the known paths of the APIs that are read.
        routes: List<Route>,
        /// WebSocket and other upgrades on metered paths. Default: refuse.
        upgrades: Upgrades,
        /// What is known of models; the first match decides. Default: a built-in table.
        models: List<Model>,
        /// How much of a request's possible cost is set aside, and for how long.
        hold: Hold,
        /// What to do with request bodies that cannot be read as they are.
        body: Body,
        /// The budgets.
        limits: List<Limit>,
        /// Shared pools: not supported yet, so the list is empty.
        pools: Pools,
        /// Where budgets are kept.
        store: Store,
        /// What the proxy can do.
        host: Host,
        /// What the client sees.
        response: Response,
        /// What metrics say about whom.
        telemetry: Telemetry,
    }
    later []
}

record! {
    /// An attribute of the subject.
    Attribute, "an attribute" {
        /// Sources in the order in which they are asked.
        from: List<Source>,
        /// Stands for an attribute that no source yields.
        default: String,
        /// Instead of a default: a request without the attribute is answered with 401.
        required: bool,
    }
    later []
}

record! {
    /// Where an attribute's value may come from: a header, the bearer token, or the stream's metadata.
    Source, "a source" {
        /// Name of a request header.
        header: String,
        /// sha256: the value of the header or of the metadata is hashed at once.
        form as "as": Form,
        /// Remove the header before the upstream sees it. Default: false.
        strip: bool,
        /// A filter in front sets or clears the header. Default: false.
        trusted: bool,
        /// sha256: the token of `authorization: Bearer`, hashed at once.
        bearer: Hashed,
        /// Namespace and keys of what a filter in front has put into the dynamic metadata.
        metadata: List<String>,
    }
    later []
}

record! {
    /// A path and what is spoken there.
    Route, "a route" {
        /// Without query; matches as a suffix, and `*` stands for one segment.
        path: String,
        /// The API spoken there. request_only charges one request and no tokens; free passes untouched.
        api: Api,
    }
    later []
}

record! {
    /// What is known of the models that a name matches. What a rule does not give comes from the rule for `*`.
    Model, "a model" {
        /// Name of a model; `*` stands for any run of characters.
        pattern as "match": String,
        /// The name by which the rest of the table knows the model.
        alias: String,
        /// How its tokens are counted.
        tokenizer: TokenizerChoice,
        /// Output set aside for a request that declares no cap.
        default_output_tokens: Count,
        /// What the model can produce at most in one answer.
        max_output_tokens: Count,
        /// Flat estimates where dimensions cannot be known.
        media: MediaTokens,
        /// How many tokens of a budget one of its tokens counts for, above 0. Default: 1.
        weight: Millionths,
        /// What the kinds of token count for beside input, which is 1.
        weights: Weights,
        /// Dollars per million tokens.
        price: Price,
    }
    later ["fallback", "output_cap"]
}

record! {
    /// What the kinds of token count for beside input, which is 1.
    Weights, "weights" {
        /// Input read from the provider's cache, at most 1. Default: 1.
        cached_input: Millionths,
        /// Input written to it, at least 1. Default: 1.
        cache_write: Millionths,
        /// Output, reasoning included. Default: 1.
        output: Millionths,
    }
    later []
}

record! {
    /// Dollars per million tokens.
    Price, "a price" {
        /// Input.
        input: Millionths,
        /// Input read from the provider's cache. Default: as input.
        cached_input: Millionths,
        /// Input written to it. Default: as input.
        cache_write: Millionths,
        /// Output, reasoning included.
        output: Millionths,
        /// The prices of large prompts.
        above: PriceStep,
    }
    later []
}

record! {
    /// The prices of requests with more than so many tokens of input.
    PriceStep, "a price step" {
        /// The last size of prompt below the step.
        input_tokens: Count,
        /// Input.
        input: Millionths,
        /// Input read from the provider's cache. Default: as input.
        cached_input: Millionths,
        /// Input written to it. Default: as input.
        cache_write: Millionths,
        /// Output, reasoning included.
        output: Millionths,
    }
    later []
}

/// A vocabulary by its name, or something near it.
#[derive(Clone, Debug)]
pub(super) enum TokenizerChoice {
    Named(Vocabulary),
    Near(Approximation),
}

record! {
    /// A tokenizer that is not public: the nearest one times a factor, or characters.
    Approximation, "a tokenizer" {
        /// The nearest public vocabulary.
        like: Vocabulary,
        /// Times this many.
        factor: Ratio,
        /// Characters per token.
        characters: Ratio,
    }
    later []
}

record! {
    /// Tokens for media whose size cannot be known.
    MediaTokens, "media" {
        /// Tokens of an image. Default: 1000.
        image: Count,
        /// Tokens of an audio clip. Default: 2000.
        audio: Count,
        /// Tokens of a file. Default: 3000.
        file: Count,
    }
    later []
}

record! {
    /// How much of a request's possible cost is set aside, and for how long.
    Hold, "hold" {
        /// declared: the request's own cap, or the model's default.
        output: HoldOutput,
        /// Bounds the output part of one hold over all its answers. Default: 65536.
        max_output_tokens: Count,
        /// Added where the prompt continues one that the provider keeps. Default: 2000.
        previous_response_tokens: Count,
        /// The most of any one account that one request may hold, above 0 and at most 1. Default: 1.
        max_share: Ratio,
        /// A hold that nobody settles ends after this time. Default: 10m.
        lease: Span,
        /// What becomes of it then. Default: charge.
        on_lease_end: OnLeaseEnd,
    }
    later ["oversubscribe"]
}

record! {
    /// What to do with request bodies that cannot be read as they are.
    Body, "body" {
        /// Bytes; a larger body is refused. Default: 16777216.
        max: Count,
        /// A body that the host cannot show. Default: estimate.
        unreadable: Unreadable,
        /// A compressed body. Default: refuse.
        compressed: Compressed,
    }
    later []
}

record! {
    /// One budget.
    Limit, "a limit" {
        /// Lower-case letters, digits and dashes.
        name: String,
        /// Attributes that make the account, and `model`; an empty list is one account for all.
        per: List<String>,
        /// What is counted.
        unit: Unit,
        /// In how long.
        window: WindowChoice,
        /// How much: a number, or one for each tier. 0 suspends. Of tokens and requests whole ones, of dollars with nine
        /// decimals at most.
        amount: AmountChoice,
        /// Only for these requests.
        when: Conditions,
        /// enforce, or shadow: count and tell, never refuse. Default: enforce.
        mode: Mode,
    }
    later ["borrow", "on_exceeded", "pressure", "retry_after"]
}

/// A window of time. (A balance has none, and is not built yet.)
#[derive(Clone, Debug)]
pub(super) struct WindowChoice(pub(super) WindowKinds);

record! {
    /// In how long: one of sliding, fixed and bucket.
    WindowKinds, "a window" {
        /// Two fixed windows, the earlier one weighted by what the sliding window still covers of it.
        sliding: Span,
        /// Whole windows counted from the epoch.
        fixed: Span,
        /// Fills by the amount in this time.
        bucket: Span,
        /// What a bucket holds when full. Default: the amount.
        burst: Quantity,
    }
    later ["calendar", "sliding_log", "step", "timezone"]
}

/// One amount, or one for each tier.
#[derive(Clone, Debug)]
pub(super) enum AmountChoice {
    Same(Quantity),
    PerTier(Table<Quantity>),
}

record! {
    /// Only for these requests; an empty list asks nothing.
    Conditions, "when" {
        /// Names of models; `*` stands for any run of characters.
        models: List<String>,
        /// Paths, as in routes.
        paths: List<String>,
        /// Names of tiers.
        tiers: List<String>,
        /// APIs, as in routes.
        apis: List<Api>,
    }
    later []
}

record! {
    /// Where budgets are kept.
    Store, "store" {
        /// In the shared memory of this proxy process; the default.
        local: Local,
        /// At the counter service, which all gateways share.
        counter: Counter,
    }
    later []
}

record! {
    /// Shared memory.
    Local, "local" {
        /// Independent parts that can change at once. Default: 256.
        shards: Count,
    }
    later []
}

record! {
    /// The counter service, `tollgate serve`.
    Counter, "counter" {
        /// The proxy's cluster that leads there.
        target: String,
        /// The host that requests to the service name. Default: tollgate.
        authority: String,
        /// How long a request waits for the service's word before it counts as away. Default: 50ms.
        timeout: Span,
        /// The environment variable of the proxy's VM that holds the service's token. Default: TOLLGATE_TOKEN.
        token_env: String,
        /// How many gateways share the service: each goes on with one part in so many of every limit while it is
        /// away. Default: 4.
        gateways: Count,
        /// What becomes of requests while the service is away. Default: local.
        on_outage: OnOutage,
    }
    later []
}

record! {
    /// What the proxy can do.
    Host, "host" {
        /// Whether request headers can be held while the body is read. Default: auto.
        header_hold: HeaderHold,
    }
    later []
}

record! {
    /// What the client sees.
    Response, "response" {
        /// Families of headers; an empty list for none. Default: token_limit and openai.
        headers: List<HeaderFamily>,
        /// inject: ask for usage in streams and hide the extra chunk. Default: inject.
        usage: UsageOption,
        /// Where a tenant reads its own accounts, or none. Default: /tollgate/budget.
        budget_path: String,
    }
    later []
}

record! {
    /// What metrics say about whom.
    Telemetry, "telemetry" {
        /// none: metrics have no tenant label.
        tenant_label: TenantLabel,
    }
    later []
}

/// What a bearer token becomes; there is no other way to use one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hashed {
    Sha256,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum HoldOutput {
    Declared,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Compressed {
    Refuse,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct TenantLabel;

#[derive(Clone, Copy, Debug)]
pub(super) struct Pools;

words!(Upgrades { Refuse = "refuse", Pass = "pass" } later []);
words!(Form { Sha256 = "sha256" } later []);
words!(Hashed { Sha256 = "sha256" } later []);
words!(Api {
    OpenAiChat = "openai_chat", OpenAiCompletions = "openai_completions", OpenAiEmbeddings = "openai_embeddings",
    OpenAiResponses = "openai_responses", AnthropicMessages = "anthropic_messages", RequestOnly = "request_only",
    Free = "free",
} later ["openai_batch", "gemini", "bedrock_converse", "bedrock_invoke", "cohere_chat", "ollama"]);
words!(Vocabulary { O200kBase = "o200k_base", Cl100kBase = "cl100k_base" } later []);
words!(HoldOutput { Declared = "declared" } later ["learned"]);
words!(OnOutage { Local = "local", Allow = "allow", Deny = "deny" } later []);
words!(OnLeaseEnd { Charge = "charge", Release = "release" } later []);
words!(Unreadable { Estimate = "estimate", Refuse = "refuse" } later []);
words!(Compressed { Refuse = "refuse" } later ["decode"]);
words!(Unit {
    Tokens = "tokens", RawTokens = "raw_tokens", InputTokens = "input_tokens", OutputTokens = "output_tokens",
    Requests = "requests", Usd = "usd",
} later ["concurrency"]);
words!(Mode { Enforce = "enforce", Shadow = "shadow" } later []);
words!(HeaderHold { Auto = "auto", Hold = "hold", None = "none" } later []);
words!(HeaderFamily { TokenLimit = "token_limit", OpenAi = "openai", Anthropic = "anthropic", Ietf = "ietf" } later []);
words!(UsageOption { Inject = "inject", Leave = "leave" } later []);

impl Read for TokenizerChoice {
    fn read(value: &Value, at: Place<'_>, problems: &mut Problems) -> Option<Self> {
        match value {
            Value::Object(_) => Approximation::read(value, at, problems).map(Self::Near),
            Value::String(_) => Vocabulary::read(value, at, problems).map(Self::Named),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
                problems.unexpected(
                    at,
                    value,
                    "`o200k_base`, `cl100k_base`, `{like, factor}` or `{characters}`",
                );
                None
            }
        }
    }

    fn schema() -> Value {
        json!({"anyOf": [Vocabulary::schema(), Approximation::schema()]})
    }
}

impl Read for WindowChoice {
    fn read(value: &Value, at: Place<'_>, problems: &mut Problems) -> Option<Self> {
        match value {
            Value::Object(_) => WindowKinds::read(value, at, problems).map(Self),
            Value::String(text) if text == "balance" => {
                problems.add(at, "`balance` is not supported yet");
                None
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                problems.unexpected(
                    at,
                    value,
                    "`{sliding: 60s}`, `{fixed: 60s}` or `{bucket: 60s, burst: 1000}`",
                );
                None
            }
        }
    }

    fn schema() -> Value {
        WindowKinds::schema()
    }
}

impl Read for AmountChoice {
    fn read(value: &Value, at: Place<'_>, problems: &mut Problems) -> Option<Self> {
        match value {
            // An amount from the request; no tier has a list for its amount.
            Value::Object(entries) if entries.get("metadata").is_some_and(Value::is_array) => {
                problems.add(at.key("metadata"), "`metadata` is not supported yet");
                None
            }
            Value::Object(_) => Table::read(value, at, problems).map(Self::PerTier),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Quantity::read(value, at, problems).map(Self::Same)
            }
        }
    }

    fn schema() -> Value {
        json!({"anyOf": [Quantity::schema(), Table::<Quantity>::schema()]})
    }
}

impl Read for TenantLabel {
    fn read(value: &Value, at: Place<'_>, problems: &mut Problems) -> Option<Self> {
        match value {
            Value::String(text) if text == "none" => return Some(Self),
            Value::Object(entries) if entries.contains_key("top") => {
                problems.add(at.key("top"), "`top` is not supported yet");
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => problems.unexpected(at, value, "`none`"),
        }
        None
    }

    fn schema() -> Value {
        json!({"enum": ["none"]})
    }
}

impl Read for Pools {
    fn read(value: &Value, at: Place<'_>, problems: &mut Problems) -> Option<Self> {
        match value {
            Value::Array(items) if items.is_empty() => return Some(Self),
            Value::Object(entries) if entries.is_empty() => return Some(Self),
            Value::Array(_) => problems.add(at, "`pools` is not supported yet; an empty list would do"),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                problems.unexpected(at, value, "an empty list");
            }
        }
        None
    }

    fn schema() -> Value {
        json!({"anyOf": [{"type": "array", "maxItems": 0}, {"type": "object", "maxProperties": 0}]})
    }
}

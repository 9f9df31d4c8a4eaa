//! A checked policy, and the questions that a request puts to it.

use tollgate_budget::{Amount, Limit, Mode, OnLeaseEnd, Quota, Rate, Span, Tariff, Tokens, Unit, Window};

use super::pattern::{Glob, PathPattern, RequestPath};

/// A checked policy. Nothing in it can be missing, contradictory or out of range.
#[derive(Clone, Debug)]
pub struct FilterConfig {
    /// Part of every account's key.
    pub namespace: String,
    /// By name: hosts do not keep the order in which a policy writes them.
    pub subject: Vec<Attribute>,
    /// Properties that the host is to read for each request, as it names them: with a NUL between the parts.
    /// [`Source::Metadata`] names them by their index.
    pub metadata: Vec<String>,
    /// `None` when no limit looks at the tier.
    pub tiers: Option<Tiers>,
    pub routes: Vec<Route>,
    pub upgrades: Upgrades,
    /// As the policy lists them; first match decides.
    pub models: Vec<ModelRule>,
    /// The rule for `*`: what is assumed of a model that no other rule names.
    pub unknown_model: ModelRule,
    pub hold: HoldRules,
    pub body: BodyRules,
    pub limits: Vec<LimitRule>,
    /// Tells this policy from others: gateways that differ in it may differ in their amounts.
    pub fingerprint: u32,
    pub store: StoreRules,
    pub header_hold: HeaderHold,
    pub response: ResponseRules,
}

/// One attribute of the subject, and where its value comes from.
#[derive(Clone, Debug)]
pub struct Attribute {
    pub name: String,
    /// The first that yields a value wins.
    pub sources: Vec<Source>,
    pub absent: Absent,
}

#[derive(Clone, Debug)]
pub enum Source {
    Header {
        /// Lower case.
        name: String,
        form: Form,
        /// Remove the header before the upstream sees it.
        strip: bool,
        /// A filter in front sets or clears the header.
        trusted: bool,
    },
    /// The token of `authorization: Bearer …`, always hashed.
    Bearer,
    /// What a filter in front has put into the stream's metadata, such as a claim of a verified token.
    Metadata {
        /// Index into [`FilterConfig::metadata`].
        property: usize,
        form: Form,
    },
}

/// How a value that was found becomes an attribute's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    AsIs,
    /// SHA-256, lower-case hexadecimal.
    Sha256,
}

/// What stands for an attribute that no source yields.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Absent {
    Default(String),
    /// The request is answered with 401.
    Refuse,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Route {
    pub path: PathPattern,
    pub api: Api,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Api {
    OpenAiChat,
    OpenAiCompletions,
    OpenAiEmbeddings,
    OpenAiResponses,
    AnthropicMessages,
    /// Charged as one request, no tokens.
    RequestOnly,
    /// Passes untouched.
    Free,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Upgrades {
    Refuse,
    Pass,
}

/// What is known of the models whose name matches.
#[derive(Clone, Debug)]
pub struct ModelRule {
    /// As written in the policy; a bounded label for metrics.
    pub pattern: Glob,
    /// The name by which the rest of the table knows the model.
    pub alias: Option<String>,
    pub tokenizer: Tokenizer,
    pub default_output: Tokens,
    /// The most the model can produce in one answer: bounds the hold, leaves the body alone.
    pub max_output: Tokens,
    pub media: Media,
    pub weights: Weights,
    /// In dollars. Every model that a limit in dollars meets has one.
    pub price: Option<Tariff>,
}

/// What a model's tokens count for where a limit counts `tokens`, in millionths.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Weights {
    /// One token of input. Never zero, and at most ten thousand.
    pub model: u64,
    /// One token of each kind beside one of input: at most 1.
    pub cached_input: u64,
    /// At least 1.
    pub cache_write: u64,
    /// At most a thousand, as the others are.
    pub output: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tokenizer {
    Exact(Vocabulary),
    /// The nearest public vocabulary times a factor, in thousandths, rounded up.
    Like {
        vocabulary: Vocabulary,
        factor_milli: u64,
    },
    /// Characters per token, in thousandths.
    Characters {
        per_token_milli: u64,
    },
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Vocabulary {
    O200kBase,
    Cl100kBase,
}

/// Flat estimates where dimensions cannot be known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Media {
    pub image: Tokens,
    pub audio: Tokens,
    pub file: Tokens,
}

#[derive(Clone, Copy, Debug)]
pub struct HoldRules {
    /// Bounds the output part of one hold over all its answers.
    pub max_output: Tokens,
    /// Added where the prompt continues one that the provider keeps.
    pub previous_response: Tokens,
    /// The most of any one account that one request may hold, in thousandths (1..=1000).
    pub max_share_milli: u64,
    pub lease: Span,
    pub on_lease_end: OnLeaseEnd,
}

#[derive(Clone, Copy, Debug)]
pub struct BodyRules {
    /// Bytes.
    pub max: usize,
    pub unreadable: Unreadable,
}

/// A body that the host cannot show.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unreadable {
    /// By its size.
    Estimate,
    Refuse,
}

#[derive(Clone, Debug)]
pub struct LimitRule {
    pub name: String,
    /// Indices into [`FilterConfig::subject`] and the model, in the order of the policy.
    pub per: Vec<Per>,
    pub unit: Unit,
    pub window: Window,
    pub amount: Amounts,
    pub when: When,
    pub mode: Mode,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Per {
    Attribute(usize),
    /// The model as the policy's table knows it.
    Model,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Amounts {
    Same(Amount),
    /// One for each of [`Tiers::names`], in their order.
    PerTier(Vec<Amount>),
}

/// The tiers that the policy tells apart; the same for all its limits.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tiers {
    /// Index into [`FilterConfig::subject`].
    pub attribute: usize,
    pub names: Vec<String>,
    /// Index into `names`, for values that are none of them.
    pub default: usize,
}

/// Empty lists match everything.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct When {
    pub models: Vec<Glob>,
    pub paths: Vec<PathPattern>,
    pub tiers: Vec<String>,
    pub apis: Vec<Api>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoreRules {
    pub shards: u32,
    /// `None` where this proxy's memory is the store.
    pub counter: Option<CounterRules>,
}

/// The counter service as this gateway reaches it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CounterRules {
    /// The proxy's name for the way there.
    pub target: String,
    pub authority: String,
    /// Of one call.
    pub timeout: Span,
    /// The environment variable that holds the token; there may be none.
    pub token_env: String,
    /// Never zero.
    pub gateways: u64,
    pub on_outage: OnOutage,
}

/// What becomes of requests while the counter service is away.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum OnOutage {
    /// Each gateway gives out its share of every limit from its own memory.
    Local,
    Allow,
    Deny,
}

/// Whether request headers can be held while the body is read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HeaderHold {
    Auto,
    Hold,
    None,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ResponseRules {
    pub headers: Vec<HeaderFamily>,
    pub usage: UsageOption,
    pub budget_path: Option<String>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HeaderFamily {
    TokenLimit,
    OpenAi,
    Anthropic,
    Ietf,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UsageOption {
    /// Ask for usage in streams and hide the extra chunk.
    Inject,
    Leave,
}

/// What of a request decides whether a limit looks at it.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    pub path: &'a RequestPath,
    pub api: Api,
    /// As the request names it.
    pub model: &'a str,
    /// As [`FilterConfig::tier_name`] gives it.
    pub tier: Option<&'a str>,
}

impl FilterConfig {
    /// How a path is metered; `None` passes untouched.
    pub fn route(&self, path: &RequestPath) -> Option<Api> {
        self.routes.iter().find(|route| route.path.matches(path)).map(|route| route.api)
    }

    /// Where a tenant reads its own accounts.
    pub fn is_budget_path(&self, path: &RequestPath) -> bool {
        self.response.budget_path.as_ref().is_some_and(|own| RequestPath::new(own) == *path)
    }

    /// What is known of a model; an alias already has the fields of what it stands for.
    pub fn model(&self, name: &str) -> &ModelRule {
        self.models.iter().find(|rule| rule.matches(name)).unwrap_or(&self.unknown_model)
    }

    /// The model as the policy's table knows it: the pattern of the rule that decides, and for an alias of
    /// the rule that it stands for. Clients invent names, the table does not: it bounds accounts and labels.
    pub fn family(&self, name: &str) -> &str {
        let rule = self.model(name);
        rule.alias.as_ref().map_or(rule, |alias| self.model(alias)).pattern.as_str()
    }

    /// Whether a limit looks at a request.
    pub fn applies(&self, limit: &LimitRule, target: &Target<'_>) -> bool {
        let When { models, paths, tiers, apis } = &limit.when;
        let alias = || self.model(target.model).alias.as_deref();
        any(models, |glob| glob.matches(target.model) || alias().is_some_and(|name| glob.matches(name)))
            && any(paths, |pattern| pattern.matches(target.path))
            && any(tiers, |tier| target.tier == Some(tier.as_str()))
            && any(apis, |api| *api == target.api)
    }

    /// The name of the tier that counts; `None` when no limit looks at it.
    pub fn tier_name(&self, tier: Tier) -> Option<&str> {
        self.tiers.as_ref()?.names.get(tier.index).map(String::as_str)
    }
}

/// An empty list asks nothing.
fn any<T>(list: &[T], accepts: impl FnMut(&T) -> bool) -> bool {
    list.is_empty() || list.iter().any(accepts)
}

impl ModelRule {
    pub fn matches(&self, name: &str) -> bool {
        self.pattern.matches(name)
    }

    /// How a limit of this unit counts requests to the model.
    pub fn tariff(&self, unit: Unit) -> Tariff {
        match unit {
            Unit::Tokens => Tariff::of(self.weights.rate()),
            Unit::RawTokens => Tariff::RAW_TOKENS,
            Unit::InputTokens => Tariff::INPUT_TOKENS,
            Unit::OutputTokens => Tariff::OUTPUT_TOKENS,
            Unit::Requests => Tariff::REQUESTS,
            Unit::Usd => self.price.unwrap_or(Tariff::PRICELESS),
        }
    }
}

impl Weights {
    /// Every token as it is.
    pub const NONE: Self =
        Self { model: 1_000_000, cached_input: 1_000_000, cache_write: 1_000_000, output: 1_000_000 };

    /// A millionth of a millionth of a token is a billionth of an account unit.
    pub const fn rate(&self) -> Rate {
        Rate {
            input: self.model.saturating_mul(1_000_000),
            cached: self.model.saturating_mul(self.cached_input),
            written: self.model.saturating_mul(self.cache_write),
            output: self.model.saturating_mul(self.output),
        }
    }
}

impl LimitRule {
    /// What an account of this limit is, for a subject of this tier.
    pub fn limit(&self, tier: Tier) -> Limit {
        Limit { window: self.window, quota: Quota::of(self.amount.of(tier)) }
    }
}

impl Amounts {
    pub fn of(&self, tier: Tier) -> Amount {
        match self {
            Self::Same(amount) => *amount,
            // One amount for each tier, by the checker.
            Self::PerTier(amounts) => amounts.get(tier.index).copied().unwrap_or_default(),
        }
    }
}

impl Tiers {
    /// The tier that a subject's value stands for.
    pub fn tier(&self, value: &[u8]) -> Tier {
        match self.names.iter().position(|name| name.as_bytes() == value) {
            Some(index) => Tier { index, standing: TierStanding::Known },
            None => Tier { index: self.default, standing: TierStanding::Unknown },
        }
    }
}

impl Per {
    /// The word of `per` that stands for the model; no attribute may have this name.
    pub const MODEL: &str = "model";
}

/// Index into [`Tiers::names`]; zero when the policy has none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Tier {
    pub index: usize,
    pub standing: TierStanding,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TierStanding {
    Known,
    /// A value that no amount names: the default tier, and a metric.
    Unknown,
}

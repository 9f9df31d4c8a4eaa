//! Bytes → [`FilterConfig`], or every problem at once. The only door.

use tollgate_budget::{Amount, Mode, Span, Tokens, Unit};

/// A checked policy. Nothing in it can be missing, contradictory or out of range.
#[derive(Clone, Debug)]
pub struct FilterConfig {
    /// Part of every account's key.
    pub namespace: String,
    /// In the order of the policy.
    pub subject: Vec<Attribute>,
    pub routes: Vec<Route>,
    pub upgrades: Upgrades,
    /// First match decides; the last one matches everything.
    pub models: Vec<ModelRule>,
    pub hold: HoldRules,
    pub body: BodyRules,
    pub limits: Vec<LimitRule>,
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
}

/// How a header's value becomes an attribute's.
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
    /// Segments without the leading slash; `*` stands for one segment. Matches as a suffix.
    pub path: Vec<Segment>,
    pub api: Api,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Segment {
    Literal(String),
    Any,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Api {
    OpenAiChat,
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
    pub pattern: String,
    /// The name by which the rest of the table knows the model.
    pub alias: Option<String>,
    pub tokenizer: Tokenizer,
    pub default_output: Tokens,
    /// The most the model can produce in one answer: bounds the hold, leaves the body alone.
    pub max_output: Tokens,
    pub media: Media,
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
    /// The most of any one account that one request may hold, in thousandths (1..=1000).
    pub max_share_milli: u64,
    pub lease: Span,
    pub on_lease_end: tollgate_budget::OnLeaseEnd,
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
    pub window: tollgate_budget::Window,
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
    PerTier {
        /// The subject attribute that names the tier.
        attribute: usize,
        /// In the order of the policy.
        tiers: Vec<(String, Amount)>,
        /// Index into `tiers` for values that it does not name.
        default: usize,
    },
}

/// Empty lists match everything.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct When {
    pub models: Vec<Glob>,
    pub paths: Vec<Vec<Segment>>,
    pub tiers: Vec<String>,
    pub apis: Vec<Api>,
}

/// A name with `*` for any run of characters.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Glob(pub String);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StoreRules {
    pub shards: u32,
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
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UsageOption {
    /// Ask for usage in streams and hide the extra chunk.
    Inject,
    Leave,
}

/// A problem in a policy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConfigError {
    /// `limits[2].window.sliding`; empty for the document as a whole.
    pub path: String,
    /// What was found and what would do.
    pub problem: String,
}

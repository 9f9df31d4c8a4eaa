//! Request bytes → [`Chat`]: only the parts that cost tokens, and where the output caps stand.
//!
//! The body is a stranger's. Where two servers could read it in two ways (a key given twice, a cap under
//! two names, keys that differ in case only), the dearer reading is taken or the body is refused: a
//! cheaper one would be a way around the budget. Nothing of the body reaches an error.

pub mod body;
pub mod rewrite;

mod anthropic;
mod any;
mod completions;
mod content;
mod embeddings;
mod error;
mod media;
mod number;
mod offers;
mod openai;
mod prompts;
mod reading;
mod responses;
mod shape;
mod stream_options;
mod system;

use std::borrow::Cow;
use std::ops::Range;

pub use error::BodyError;
use tollgate_budget::Caching;

use crate::config::Api;
use reading::Fields;

/// The way a body spells a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Dialect {
    /// `POST …/chat/completions`, by OpenAI and everyone who speaks like it.
    OpenAiChat,
    OpenAiCompletions,
    OpenAiEmbeddings,
    OpenAiResponses,
    AnthropicMessages,
}

impl Dialect {
    pub const ALL: [Self; 5] = [
        Self::OpenAiChat,
        Self::OpenAiCompletions,
        Self::OpenAiEmbeddings,
        Self::OpenAiResponses,
        Self::AnthropicMessages,
    ];

    /// `None` where the body is not read.
    pub const fn of(api: Api) -> Option<Self> {
        match api {
            Api::OpenAiChat => Some(Self::OpenAiChat),
            Api::OpenAiCompletions => Some(Self::OpenAiCompletions),
            Api::OpenAiEmbeddings => Some(Self::OpenAiEmbeddings),
            Api::OpenAiResponses => Some(Self::OpenAiResponses),
            Api::AnthropicMessages => Some(Self::AnthropicMessages),
            Api::RequestOnly | Api::Free => None,
        }
    }

    /// What is behind the keys of its body, beside those that all have.
    const fn fields(self) -> Fields {
        match self {
            Self::OpenAiChat => openai::FIELDS,
            Self::OpenAiCompletions => completions::FIELDS,
            Self::OpenAiEmbeddings => embeddings::FIELDS,
            Self::OpenAiResponses => responses::FIELDS,
            Self::AnthropicMessages => anthropic::FIELDS,
        }
    }
}

/// Reads a whole body. Strings without escapes are borrowed from it.
pub fn parse(dialect: Dialect, body: &[u8]) -> Result<Chat<'_>, BodyError> {
    reading::parse(dialect, body)
}

/// What of one request costs tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Chat<'a> {
    /// By the body; where the path names it (Azure's deployments) that is what counts.
    pub model: Option<Cow<'a, str>>,
    /// In the order of the body; never more than [`MAX_PIECES`].
    pub pieces: Vec<Piece<'a>>,
    /// Messages opened, whatever is in them; never more than [`MAX_PIECES`].
    pub messages: u64,
    /// Prompts of a batch, at least one.
    pub prompts: u64,
    /// Tokens of the prompt that need no counting: ids, and what only the provider can read.
    pub given_tokens: u64,
    pub framing: Framing,
    pub context: Context,
    pub caching: Caching,
    pub output_cap: OutputCap,
    /// Answers to pay for over all prompts, at least one.
    pub choices: u64,
    pub delivery: Delivery,
    pub answering: Answering,
    pub usage: UsageAsk,
    /// What turns the body into one that asks for usage; `None` where nothing is to be added.
    usage_edit: Option<Edit>,
}

/// One part of the prompt.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece<'a> {
    /// Who speaks in a message.
    Role(Cow<'a, str>),
    /// The speaker's name, which the model sees.
    Name(Cow<'a, str>),
    Text(Cow<'a, str>),
    /// Text that every prompt of a batch gets.
    Suffix(Cow<'a, str>),
    /// One tool or function call opens; its name and arguments follow as text.
    Call,
    /// One tool or function on offer, as JSON.
    Tool(&'a str),
    /// The shape asked of the answer, as JSON.
    Schema(&'a str),
    Image(Image<'a>),
    Audio,
    /// A document, a video, any other file.
    File,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Image<'a> {
    pub source: ImageSource<'a>,
    /// The most that is asked for; `None` where nothing is said, which is the same as [`Detail::Auto`].
    pub detail: Option<Detail>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ImageSource<'a> {
    /// `data:` or remote.
    Url(Cow<'a, str>),
    Base64(Cow<'a, str>),
    /// Named by an id that only the provider knows.
    Elsewhere,
}

/// From the cheapest to the dearest.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Detail {
    Low,
    Auto,
    High,
}

/// The caps on one answer, under whatever name. Zero and negative ones are no caps: some servers refuse
/// them, others take them for "as much as there is".
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OutputCap {
    #[default]
    Absent,
    /// Given, but as zero or less.
    NotACap,
    /// The largest of them.
    AtMost(u64),
    /// One name gives a cap and another says that there is none; the upstream may obey either.
    AtMostOrNone(u64),
    /// The API answers without tokens.
    NoOutput,
}

/// What a provider puts around the texts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Framing {
    /// The marks of a conversation, whose next turn is the answer's.
    Turns,
    Bare,
}

/// Whether the body has all of its prompt.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Context {
    #[default]
    Whole,
    /// The provider puts something before it that it keeps.
    Continued,
}

/// How the answer is to come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Delivery {
    Whole,
    Streamed,
}

/// When the answer comes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Answering {
    /// With the reply, or in it.
    Now,
    /// Whoever wants it asks again, maybe past us; the reply may tell nothing of its cost.
    Later,
}

/// What `stream_options.include_usage` says, streaming or not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UsageAsk {
    /// Missing or null.
    Absent,
    Asked,
    Refused,
}

/// Bytes to put in the place of others.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Edit {
    at: Range<usize>,
    with: &'static str,
}

/// Far above any conversation a provider takes, and what 16 MiB of one-letter parts would otherwise grow
/// to (100 MiB that a VM never gives back).
pub const MAX_PIECES: usize = 65_536;

//! What is known of paths and models when the policy says nothing: the tables behind absent `routes` and
//! `models`, and the last row of the models behind every table without a `*`.
//!
//! OpenAI publishes its encodings; for the others the factors are measured ratios to o200k_base, and
//! settlement corrects what they miss. A family that can answer with more than the last row's maximum says
//! so: a hold that is cut too short is the one way to overshoot.

use tollgate_budget::Tokens;

use super::{Api, Glob, Media, ModelRule, PathPattern, Route, Tokenizer, Vocabulary, Weights};

/// First match decides. Providers put a prefix before these (`/openai`, `/api`, `/anthropic`), Azure the
/// deployment instead of the version, and some servers leave the version out of the chat's.
const ROUTES: &[(&str, Api)] = &[
    ("/chat/completions", Api::OpenAiChat),
    ("/v1/completions", Api::OpenAiCompletions),
    ("/deployments/*/completions", Api::OpenAiCompletions),
    ("/v1/embeddings", Api::OpenAiEmbeddings),
    ("/deployments/*/embeddings", Api::OpenAiEmbeddings),
    ("/v1/responses", Api::OpenAiResponses),
    ("/openai/responses", Api::OpenAiResponses),
    ("/responses/compact", Api::OpenAiResponses),
    ("/responses/input_tokens", Api::RequestOnly),
    ("/v1/messages", Api::AnthropicMessages),
    // Refused by their bodies: what is not read must not pass.
    ("/v1/messages/batches", Api::AnthropicMessages),
    ("/v1/messages/count_tokens", Api::RequestOnly),
    // Vertex AI: the model, a colon and the way to ask.
    ("/publishers/anthropic/models/count-tokens:rawPredict", Api::RequestOnly),
    ("/publishers/anthropic/models/*", Api::AnthropicMessages),
];

pub(super) fn routes() -> Vec<Route> {
    let route = |&(path, api): &(&str, Api)| Some(Route { path: PathPattern::new(path)?, api });
    ROUTES.iter().filter_map(route).collect()
}

const CL100K: Tokenizer = Tokenizer::Exact(Vocabulary::Cl100kBase);
const O200K: Tokenizer = Tokenizer::Exact(Vocabulary::O200kBase);

const fn like_o200k(factor_milli: u64) -> Tokenizer {
    Tokenizer::Like { vocabulary: Vocabulary::O200kBase, factor_milli }
}

/// For a model nobody knows.
const UNKNOWN_MAX_OUTPUT: u64 = 16_384;

/// First match decides.
const FAMILIES: &[(&str, Tokenizer, u64)] = &[
    ("gpt-4o*", O200K, 16_384),
    ("gpt-4.1*", O200K, 32_768),
    ("gpt-4.5*", O200K, 16_384),
    ("gpt-4", CL100K, 16_384),
    ("gpt-4-*", CL100K, 16_384),
    ("gpt-3.5*", CL100K, 16_384),
    // Azure's spelling.
    ("gpt-35-*", CL100K, 16_384),
    ("gpt-5*", O200K, 128_000),
    ("gpt-oss*", O200K, 131_072),
    ("chatgpt-*", O200K, 16_384),
    ("o1*", O200K, 100_000),
    ("o3*", O200K, 100_000),
    ("o4*", O200K, 100_000),
    // Fine-tuned models carry their base's name.
    ("ft:gpt-4o*", O200K, 16_384),
    ("ft:gpt-4.1*", O200K, 32_768),
    ("ft:gpt-4-*", CL100K, 16_384),
    ("ft:gpt-3.5*", CL100K, 16_384),
    // Claude up to 4.6, and then the tokenizer that came with 4.7: a name not listed here is newer.
    ("claude-instant*", like_o200k(1200), 16_384),
    ("claude-2*", like_o200k(1200), 16_384),
    ("claude-3*", like_o200k(1200), 128_000),
    ("claude-*-4-0*", like_o200k(1200), 128_000),
    ("claude-*-4-1*", like_o200k(1200), 128_000),
    ("claude-*-4-2025*", like_o200k(1200), 128_000),
    ("claude-*-4-5*", like_o200k(1200), 128_000),
    ("claude-*-4-6*", like_o200k(1200), 128_000),
    ("claude-*", like_o200k(1600), 128_000),
    ("gemini-*", like_o200k(1200), 65_536),
    ("gemma*", like_o200k(1200), 16_384),
    ("llama*", like_o200k(1100), 16_384),
    ("meta-llama*", like_o200k(1100), 16_384),
    ("mistral*", like_o200k(1300), 16_384),
    ("ministral*", like_o200k(1300), 16_384),
    ("mixtral*", like_o200k(1300), 16_384),
    ("magistral*", like_o200k(1300), 65_536),
    ("codestral*", like_o200k(1300), 16_384),
    ("deepseek*", like_o200k(1100), 65_536),
    ("qwen*", like_o200k(1300), 65_536),
];

/// The table that serves when a policy has none; its last rule is [`unknown_model`].
pub(super) fn models() -> Vec<ModelRule> {
    let rule = |&(pattern, tokenizer, max_output): &(&str, Tokenizer, u64)| ModelRule {
        pattern: Glob(pattern.to_owned()),
        tokenizer,
        max_output: Tokens::new(max_output),
        ..unknown_model()
    };
    FAMILIES.iter().map(rule).chain([unknown_model()]).collect()
}

/// What is assumed of a model that no rule names.
pub(super) fn unknown_model() -> ModelRule {
    ModelRule {
        pattern: Glob("*".to_owned()),
        alias: None,
        tokenizer: like_o200k(1100),
        default_output: Tokens::new(1024),
        max_output: Tokens::new(UNKNOWN_MAX_OUTPUT),
        media: Media { image: Tokens::new(1000), audio: Tokens::new(2000), file: Tokens::new(3000) },
        weights: Weights::NONE,
        price: None,
    }
}

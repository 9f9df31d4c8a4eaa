//! `tollgate count`: what the filter would hold for a request, by the filter's own arithmetic.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tollgate::chat::{self, Chat, Dialect, OutputCap};
use tollgate::config::{Api, ConfigError, FilterConfig, Weights};
use tollgate::estimate::learned::Correction;
use tollgate::estimate::memo::TextMemo;
use tollgate::estimate::{self, Estimate};
use tollgate_budget::Unit;

use crate::input;
use crate::summary::{api_word, counting, figure, grouped};

/// What `--api` takes, by the words of a policy: the APIs whose bodies are read.
pub(crate) fn dialect(word: &str) -> Result<Dialect, String> {
    const APIS: [Api; 5] = [
        Api::OpenAiChat,
        Api::OpenAiCompletions,
        Api::OpenAiEmbeddings,
        Api::OpenAiResponses,
        Api::AnthropicMessages,
    ];
    let named = APIS.into_iter().find(|api| api_word(*api) == word);
    named.and_then(Dialect::of).ok_or_else(|| format!("one of {}", APIS.map(api_word).join(", ")))
}

#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) dialect: Dialect,
    pub(crate) model: Option<String>,
    pub(crate) policy: Option<PathBuf>,
    pub(crate) request: PathBuf,
}

/// The estimate to `out`; what is wrong with policy or request to `err`.
pub(crate) fn run(question: &Question, out: &mut impl Write, err: &mut impl Write) -> io::Result<ExitCode> {
    let config = match policy(question.policy.as_deref())? {
        Ok(config) => config,
        Err(problems) => {
            for problem in problems {
                writeln!(err, "{problem}")?;
            }
            return Ok(ExitCode::FAILURE);
        }
    };
    let body = input::read(&question.request)?;
    match chat::parse(question.dialect, &body) {
        Ok(chat) => told(&chat, question.model.as_deref(), &config, out).map(|()| ExitCode::SUCCESS),
        Err(error) => writeln!(err, "{error}").map(|()| ExitCode::FAILURE),
    }
}

/// The one given, or the smallest there is, which has every default.
fn policy(path: Option<&Path>) -> io::Result<Result<FilterConfig, Vec<ConfigError>>> {
    let Some(path) = path else {
        return Ok(FilterConfig::from_slice(br#"{"version": 1}"#));
    };
    let policies = match input::policies(path, input::read(path)?) {
        Ok(policies) => policies,
        Err(error) => return Ok(Err(vec![error])),
    };
    // Of several filters in one configuration the first speaks for the request, as in a chain of filters.
    let first = policies.into_iter().next().map(|policy| policy.json).unwrap_or_default();
    Ok(FilterConfig::from_slice(&first))
}

fn told(chat: &Chat<'_>, asked: Option<&str>, config: &FilterConfig, out: &mut impl Write) -> io::Result<()> {
    let name = asked.or(chat.model.as_deref()).unwrap_or_default();
    let rule = config.model(name);
    // Nobody else shares this memo, so its key is no secret.
    let mut memo = TextMemo::new([0; 16]);
    let Ok(estimate) = estimate::estimate(chat, rule, &config.hold, Correction::NONE, None, memo.within(0))
    else {
        return Err(io::Error::other("counting stopped without a ceiling"));
    };
    let Estimate { prompt, output, .. } = estimate;
    let shown = if name.is_empty() { "none named" } else { name };
    writeln!(out, "model:  {} (rule {})", shown.escape_debug(), rule.pattern)?;
    writeln!(out, "prompt: {} tokens, {}", grouped(prompt.count()), counting(rule))?;
    let cap = match chat.output_cap {
        OutputCap::NoOutput => "the API has no output".to_owned(),
        OutputCap::Absent => "the request has no cap: the model's default".to_owned(),
        OutputCap::NotACap => "the request's cap is none: the model's default".to_owned(),
        OutputCap::AtMost(cap) => format!("the request's cap is {}", grouped(cap)),
        OutputCap::AtMostOrNone(cap) => {
            format!("the request's caps disagree, the largest is {}", grouped(cap))
        }
    };
    let answers =
        if chat.choices == 1 { "1 answer".to_owned() } else { format!("{} answers", grouped(chat.choices)) };
    writeln!(out, "output: {} tokens held for {answers}, {cap}", grouped(output.count()))?;
    writeln!(out, "hold:   {} tokens", grouped(prompt.saturating_add(output).count()))?;
    let told = |unit: Unit| figure(unit.ceil(rule.tariff(unit).cost(estimate.toll())));
    if rule.weights != Weights::NONE {
        writeln!(out, "weight: counts for {} tokens", told(Unit::Tokens))?;
    }
    match rule.price {
        Some(_) => writeln!(out, "price:  {} dollars at most", told(Unit::Usd)),
        None => Ok(()),
    }
}

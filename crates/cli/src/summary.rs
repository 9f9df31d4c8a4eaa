//! What a policy enforces, in plain words.

use std::fmt::{self, Display, Formatter};

use tollgate::config::{
    Absent, Amounts, Api, CounterRules, FilterConfig, Form, HeaderFamily, LimitRule, ModelRule, OnOutage,
    Per, Source, Tier, Tokenizer, Unreadable, Upgrades, UsageOption, Vocabulary, Weights, When,
};
use tollgate_budget::toll::ONE;
use tollgate_budget::{Figure, Mode, OnLeaseEnd, Quota, Rate, Unit, Window};

use crate::overshoot;
use crate::warnings::{counts_output, tiers_of};

#[derive(Debug)]
pub(crate) struct Summary<'a>(pub(crate) &'a FilterConfig);

impl Display for Summary<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let config = self.0;
        routes(config, f)?;
        subject(config, f)?;
        for limit in &config.limits {
            self::limit(config, limit, f)?;
        }
        models(config, f)?;
        rest(config, f)
    }
}

fn routes(config: &FilterConfig, f: &mut Formatter<'_>) -> fmt::Result {
    writeln!(f, "Metered (a path that ends so); everything else passes untouched:")?;
    for route in &config.routes {
        let what = match route.api {
            Api::OpenAiChat => "OpenAI chat completions",
            Api::OpenAiCompletions => "OpenAI completions",
            Api::OpenAiEmbeddings => "OpenAI embeddings",
            Api::OpenAiResponses => "OpenAI Responses",
            Api::AnthropicMessages => "Anthropic messages",
            Api::RequestOnly => "counts as one request, no tokens",
            Api::Free => "passes untouched",
        };
        writeln!(f, "  {}: {what}", route.path)?;
    }
    let upgrades = match config.upgrades {
        Upgrades::Refuse => "refused",
        Upgrades::Pass => "passed, unmetered",
    };
    writeln!(f, "  WebSocket and other upgrades there are {upgrades}.")
}

fn subject(config: &FilterConfig, f: &mut Formatter<'_>) -> fmt::Result {
    if config.subject.is_empty() {
        return Ok(());
    }
    writeln!(f, "Who pays (the first source that yields a value):")?;
    for attribute in &config.subject {
        let sources: Vec<String> = attribute.sources.iter().map(|from| source(config, from)).collect();
        let absent = match &attribute.absent {
            Absent::Default(default) => format!("else {default:?}"),
            Absent::Refuse => "else the request gets 401".to_owned(),
        };
        writeln!(f, "  {}: {}, {absent}", attribute.name, sources.join(", "))?;
    }
    Ok(())
}

fn source(config: &FilterConfig, source: &Source) -> String {
    match source {
        Source::Header { name, form, strip, trusted: _ } => {
            let stripped = if *strip { " (removed before the upstream)" } else { "" };
            format!("header {name}{}{stripped}", hashed(*form))
        }
        Source::Bearer => "bearer token (hashed)".to_owned(),
        Source::Metadata { property, form } => {
            let parts: Vec<_> = config.metadata_parts(*property).collect();
            format!("metadata {}{}", parts.join(" / "), hashed(*form))
        }
    }
}

const fn hashed(form: Form) -> &'static str {
    match form {
        Form::AsIs => "",
        Form::Sha256 => " (hashed)",
    }
}

fn limit(config: &FilterConfig, limit: &LimitRule, f: &mut Formatter<'_>) -> fmt::Result {
    let mode = match limit.mode {
        Mode::Enforce => "",
        Mode::Shadow => " (shadow: counted and reported, never refused)",
    };
    writeln!(f, "Limit {}{mode}:", limit.name)?;
    let tiers = tiers_of(config, limit);
    for (_, tier) in &tiers {
        let who = match (&limit.amount, config.tier_name(*tier)) {
            (Amounts::PerTier(_), Some(name)) => format!("tier {name}: "),
            (Amounts::PerTier(_) | Amounts::Same(_), _) => String::new(),
        };
        writeln!(f, "  {who}{}", amount(config, limit, *tier))?;
    }
    if let (Amounts::PerTier(_), Some(tiers)) = (&limit.amount, &config.tiers) {
        let default = tiers.names.get(tiers.default).map_or("", String::as_str);
        writeln!(f, "  A tier that is none of these counts as {default}.")?;
    }
    when(&limit.when, f)?;
    overshoots(config, limit, &tiers, f)
}

fn amount(config: &FilterConfig, limit: &LimitRule, tier: Tier) -> String {
    let rule = limit.limit(tier);
    let per = per(config, limit);
    let Quota::Of(amount) = rule.quota else {
        return format!("suspended {per}: every request gets 403");
    };
    let count = figure(limit.unit.floor(amount));
    let unit = unit(limit.unit);
    match limit.window {
        Window::Sliding(span) => format!(
            "{count} {unit} per {span} (sliding, weighted: up to nearly twice that around a turn) {per}"
        ),
        Window::Fixed(span) => {
            format!("{count} {unit} in each {span} (fixed: up to twice that around a turn) {per}")
        }
        Window::Bucket { period, burst: _ } => {
            let burst = figure(limit.unit.floor(rule.capacity()));
            format!("{count} {unit} every {period}, saved up to {burst} (bucket) {per}")
        }
    }
}

const fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Tokens => "tokens",
        Unit::RawTokens => "raw tokens",
        Unit::InputTokens => "input tokens",
        Unit::OutputTokens => "output tokens",
        Unit::Requests => "requests",
        Unit::Usd => "dollars",
    }
}

fn per(config: &FilterConfig, limit: &LimitRule) -> String {
    let name = |per: &Per| match per {
        Per::Attribute(index) => config.subject.get(*index).map_or("", |attribute| attribute.name.as_str()),
        Per::Model => Per::MODEL,
    };
    match limit.per.iter().map(name).collect::<Vec<_>>().join(" and ").as_str() {
        "" => "for all callers together".to_owned(),
        names => format!("for each {names}"),
    }
}

fn when(when: &When, f: &mut Formatter<'_>) -> fmt::Result {
    let When { models, paths, tiers, apis } = when;
    let lists = [
        ("models", models.iter().map(ToString::to_string).collect::<Vec<_>>()),
        ("paths", paths.iter().map(ToString::to_string).collect()),
        ("tiers", tiers.clone()),
        ("APIs", apis.iter().map(|api| api_word(*api).to_owned()).collect()),
    ];
    for (what, names) in lists.iter().filter(|(_, names)| !names.is_empty()) {
        writeln!(f, "  Only for these {what}: {}.", names.join(", "))?;
    }
    Ok(())
}

pub(crate) const fn api_word(api: Api) -> &'static str {
    match api {
        Api::OpenAiChat => "openai_chat",
        Api::OpenAiCompletions => "openai_completions",
        Api::OpenAiEmbeddings => "openai_embeddings",
        Api::OpenAiResponses => "openai_responses",
        Api::AnthropicMessages => "anthropic_messages",
        Api::RequestOnly => "request_only",
        Api::Free => "free",
    }
}

fn overshoots(
    config: &FilterConfig,
    limit: &LimitRule,
    tiers: &[(String, Tier)],
    f: &mut Formatter<'_>,
) -> fmt::Result {
    match limit.mode {
        Mode::Shadow => return writeln!(f, "  Can be overshot without bound, since it refuses nothing."),
        Mode::Enforce => {}
    }
    if limit.unit == Unit::Requests {
        return match &config.store.counter {
            None => writeln!(f, "  Can never be overshot: a request is counted before it passes."),
            Some(counter) => outage(counter, f),
        };
    }
    for (path, tier) in tiers.iter().filter(|(_, tier)| limit.limit(*tier).quota != Quota::Suspended) {
        let of = path.strip_prefix('.').map(|tier| format!(" by tier {tier}")).unwrap_or_default();
        match overshoot::worst(config, limit, *tier) {
            Some(worst) => writeln!(f, "  Can be overshot{of} by at most {worst}.")?,
            None if counts_output(limit.unit) => {
                writeln!(f, "  Answers cannot overshoot it{of}: they are held in full.")?;
            }
            None => writeln!(f, "  Answers cannot overshoot it{of}: they are not counted.")?,
        }
    }
    if let Some(counter) = &config.store.counter {
        outage(counter, f)?;
    }
    if overshoot::estimates(config, limit) {
        writeln!(
            f,
            "  Prompts of models without a public tokenizer are estimated: what they really cost above it comes on top."
        )?;
    }
    Ok(())
}

/// What passes while the counter service is away.
fn outage(counter: &CounterRules, f: &mut Formatter<'_>) -> fmt::Result {
    let gateways = counter.gateways;
    match counter.on_outage {
        OnOutage::Local => writeln!(
            f,
            "  While the counter service is away: by at most once the limit more, 1/{gateways} of it by each of {gateways} gateways."
        ),
        OnOutage::Allow => {
            writeln!(f, "  While the counter service is away: without bound, since everything passes.")
        }
        OnOutage::Deny => {
            writeln!(f, "  While the counter service is away: not at all, since nothing passes.")
        }
    }
}

/// Patterns of which the same is known share a line.
fn models(config: &FilterConfig, f: &mut Formatter<'_>) -> fmt::Result {
    let mut lines: Vec<(Vec<&str>, String)> = Vec::new();
    for rule in config.models.iter().filter(|rule| rule.pattern.as_str() != "*") {
        let known = model(rule);
        match lines.iter_mut().find(|(_, line)| *line == known) {
            Some((patterns, _)) => patterns.push(rule.pattern.as_str()),
            None => lines.push((vec![rule.pattern.as_str()], known)),
        }
    }
    writeln!(f, "Models (of several matches the first in the policy decides):")?;
    for (patterns, known) in lines {
        writeln!(f, "  {}: {known}", patterns.join(", "))?;
    }
    writeln!(f, "  any other: {}", model(&config.unknown_model))
}

fn model(rule: &ModelRule) -> String {
    let alias = rule.alias.as_ref().map(|alias| format!("as {alias}, ")).unwrap_or_default();
    let (default, most) = (grouped(rule.default_output.count()), grouped(rule.max_output.count()));
    let counted = counting(rule);
    let mut known = format!(
        "{alias}{counted}; an answer is held at {default} tokens unless the request caps it, at most {most}"
    );
    if rule.weights != Weights::NONE {
        known += &format!("; {}", weights(&rule.weights));
    }
    if let Some(price) = &rule.price {
        known += &format!("; {}", dollars(price.rate()));
        if let Some(step) = price.step() {
            known += &format!(
                ", and {} with more than {} tokens of input",
                dollars(step.rate),
                grouped(step.input.count())
            );
        }
    }
    known
}

/// What the kinds of token count for, where that is not the same for all.
fn weights(weights: &Weights) -> String {
    let Rate { input, cached, written, output } = weights.rate();
    let all_alike = [cached, written, output] == [input; 3];
    let [input, cached, written, output] = [input, cached, written, output].map(decimal);
    if all_alike {
        return format!("a token counts for {input}");
    }
    format!(
        "a token counts for {input}, for {cached} from a cache, for {written} written to one, for {output} as output"
    )
}

fn dollars(rate: Rate) -> String {
    let Rate { input, cached, written, output } = rate;
    let [input, cached, written, output] = [input, cached, written, output].map(decimal);
    format!(
        "a million tokens cost {input} dollars, {cached} from a cache, {written} written to one, {output} as output"
    )
}

/// A rate in tokens, or in dollars per million.
fn decimal(rate: u64) -> String {
    let text = format!("{}.{:012}", rate / ONE, rate % ONE);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// How the prompts of a model are counted.
pub(crate) fn counting(rule: &ModelRule) -> String {
    match rule.tokenizer {
        Tokenizer::Exact(vocabulary) => format!("counted with {}", vocabulary_word(vocabulary)),
        Tokenizer::Like { vocabulary, factor_milli } => {
            format!("estimated as {} × {}", vocabulary_word(vocabulary), thousandths(factor_milli))
        }
        Tokenizer::Characters { per_token_milli } => {
            format!("estimated as one token for {} characters", thousandths(per_token_milli))
        }
    }
}

const fn vocabulary_word(vocabulary: Vocabulary) -> &'static str {
    match vocabulary {
        Vocabulary::O200kBase => "o200k_base",
        Vocabulary::Cl100kBase => "cl100k_base",
    }
}

fn rest(config: &FilterConfig, f: &mut Formatter<'_>) -> fmt::Result {
    let hold = &config.hold;
    let share = match hold.max_share_milli {
        1000 => "all".to_owned(),
        milli => thousandths(milli),
    };
    writeln!(
        f,
        "All limits of a request are charged at once or not at all; a request refused by one costs nothing in the others."
    )?;
    writeln!(
        f,
        "One request holds at most {share} of an account, and at most {} output tokens; answers (`n`) beyond those are not held, and their cost comes on top of the bounds above.",
        grouped(hold.max_output.count())
    )?;
    let end = match hold.on_lease_end {
        OnLeaseEnd::Charge => "counts as spent",
        OnLeaseEnd::Release => {
            "is given back, whatever was spent (a proxy that dies with open requests forgets their cost)"
        }
    };
    writeln!(f, "A hold that nobody settles within {} {end}.", hold.lease)?;
    writeln!(
        f,
        "What an answer costs beyond its hold is charged while it streams; the next request meets the fuller account."
    )?;
    let unreadable = match config.body.unreadable {
        Unreadable::Estimate => "estimated by its size",
        Unreadable::Refuse => "refused",
    };
    let max = grouped(config.body.max as u64);
    writeln!(
        f,
        "A body above {max} bytes or compressed is refused; one that the host cannot show is {unreadable}."
    )?;
    let usage = match config.response.usage {
        UsageOption::Inject => "Streams are asked for their usage, and the extra chunk is hidden.",
        UsageOption::Leave => {
            "Streams are not asked for their usage; without it they are charged by what was seen."
        }
    };
    writeln!(f, "{usage}")?;
    let families: Vec<&str> = config
        .response
        .headers
        .iter()
        .map(|family| match family {
            HeaderFamily::TokenLimit => "token_limit",
            HeaderFamily::OpenAi => "openai",
            HeaderFamily::Anthropic => "anthropic",
            HeaderFamily::Ietf => "ietf",
        })
        .collect();
    let families = if families.is_empty() { "none".to_owned() } else { families.join(", ") };
    writeln!(f, "Headers on answers: {families}.")?;
    if let Some(path) = &config.response.budget_path {
        writeln!(f, "A caller reads its own accounts at {path}.")?;
    }
    let namespace = &config.namespace;
    match &config.store.counter {
        None => writeln!(
            f,
            "Accounts live in namespace {namespace} in this proxy's memory: each proxy process has its own, and a restart forgets them."
        ),
        Some(counter) => writeln!(
            f,
            "Accounts live in namespace {namespace} at the counter service behind {}, which is waited for {} at most.",
            counter.target, counter.timeout
        ),
    }
}

/// `1,234,567`, `1,234.50`.
pub(crate) fn figure(figure: Figure) -> String {
    let text = figure.to_string();
    let (whole, cents) = text.split_at(text.find('.').unwrap_or(text.len()));
    whole.parse().map(grouped).unwrap_or_default() + cents
}

/// `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn thousandths(milli: u64) -> String {
    let text = format!("{}.{:03}", milli / 1000, milli % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

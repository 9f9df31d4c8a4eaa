//! What answers teach of models, in shared memory: one record a rule of the policy, which every worker adds
//! to and reads between requests.
//!
//! Nothing hangs on any one record: without it a model is not corrected. So a swap that is lost is not tried
//! again but at the next tick, and what cannot be read is begun anew. Keys are made by
//! [`LearnedStore::open`], for the reason that shards are.

use std::cell::Cell;

use sha2::{Digest as _, Sha256};
use tollgate_budget::Tokens;

use super::{SharedData, SharedDataError, Stored};
use crate::config::{FilterConfig, Tokenizer, Vocabulary};
use crate::estimate::learned::{Correction, Course, Known, Learned};

/// What all workers know of the models in one namespace, and what this one has still to tell.
#[derive(Debug)]
pub struct LearnedStore<S> {
    shared: S,
    rules: Vec<Rule>,
}

/// A rule whose models are not counted exactly.
#[derive(Debug)]
struct Rule {
    /// Its index in the policy.
    model: usize,
    pattern: String,
    key: String,
    /// Since the last swap that went through.
    fresh: Cell<Learned>,
}

/// What came of sharing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum News {
    /// From now on the model is corrected by this.
    Correct { model: usize, by: Correction },
    /// What was known of the model could not be read.
    BegunAnew { model: usize },
    /// The host refused; the rest was not asked for.
    Failed,
}

impl<S: SharedData> LearnedStore<S> {
    /// Makes what is missing of the policy's records. To be called before there is traffic.
    pub fn open(shared: S, config: &FilterConfig) -> Result<Self, SharedDataError> {
        let rules: Vec<Rule> =
            (0..=config.models.len()).filter_map(|model| Rule::of(model, config)).collect();
        for rule in &rules {
            if shared.load(&rule.key)?.is_none() {
                shared.store(&rule.key, &Known::default().encode(), None)?;
            }
        }
        Ok(Self { shared, rules })
    }

    /// An answer's lesson, kept until the next [`share`](Self::share).
    pub fn learn(&self, model: usize, estimated: Tokens, reported: Tokens) {
        if let Some(rule) = self.rules.iter().find(|rule| rule.model == model) {
            rule.fresh.set(rule.fresh.get().merged(Learned::from_answer(estimated, reported)));
        }
    }

    /// Tells the others what was learned here since, and here what the others have.
    pub fn share(&self) -> Vec<News> {
        let mut news = Vec::with_capacity(self.rules.len());
        for rule in &self.rules {
            if self.share_rule(rule, &mut news).is_err() {
                news.push(News::Failed);
                break;
            }
        }
        news
    }

    fn share_rule(&self, rule: &Rule, news: &mut Vec<News>) -> Result<(), SharedDataError> {
        // Gone with the virtual machines that shared it; whoever opens it next begins anew.
        let Some((bytes, cas)) = self.shared.load(&rule.key)? else { return Ok(()) };
        let (known, readable) = match Known::decode(&bytes) {
            Ok(known) => (known, true),
            Err(_) => (Known::default(), false),
        };
        let fresh = rule.fresh.get();
        let mut by = known.correction();
        if fresh != Learned::NOTHING || !readable {
            let (after, course) = known.with(fresh);
            match self.shared.store(&rule.key, &after.encode(), Some(cas))? {
                Stored::Written => {
                    rule.fresh.set(Learned::NOTHING);
                    by = after.correction();
                    if !readable {
                        news.push(News::BegunAnew { model: rule.model });
                    }
                    rule.warn_if_off(course, by);
                }
                Stored::Conflict => {}
            }
        }
        news.push(News::Correct { model: rule.model, by });
        Ok(())
    }
}

impl Rule {
    /// `None` where the model's own tokenizer counts. What was learned of one tokenizer or factor says nothing
    /// of another, and two policies that differ in it may serve side by side while one replaces the other.
    fn of(model: usize, config: &FilterConfig) -> Option<Self> {
        let rule = config.model_rule(model);
        let (kind, milli) = match rule.tokenizer {
            Tokenizer::Exact(_) => return None,
            Tokenizer::Like { vocabulary: Vocabulary::O200kBase, factor_milli } => (0_u8, factor_milli),
            Tokenizer::Like { vocabulary: Vocabulary::Cl100kBase, factor_milli } => (1, factor_milli),
            Tokenizer::Characters { per_token_milli } => (2, per_token_milli),
        };
        let pattern = rule.pattern.as_str().to_owned();
        let words = [[kind].as_slice(), &milli.to_le_bytes(), pattern.as_bytes()].concat();
        let hash = Sha256::digest(words);
        let name = u64::from_be_bytes(*hash.first_chunk().unwrap_or(&[0; 8]));
        let key = format!("tollgate/{}/learned/{name:016x}", config.namespace);
        Some(Self { model, pattern, key, fresh: Cell::default() })
    }

    /// One worker finds it, by the swap that took the count over the mark.
    fn warn_if_off(&self, course: Course, by: Correction) {
        match course {
            Course::Steady => {}
            Course::Left => log::warn!(
                "tollgate: the tokenizer of model `{}` is off: providers report {}.{:03} times what it counts, \
                 and holds are corrected by that",
                self.pattern,
                by.milli() / 1000,
                by.milli() % 1000
            ),
        }
    }
}

//! Answers by index, for what is carried from one stage of a request to the next.

use super::compile::METADATA;
use super::pattern::RequestPath;
use super::{Api, FilterConfig, Glob, LimitRule, ModelRule, Per, Source, Target, Tier, TierStanding, When};

impl FilterConfig {
    /// Names the rule that decides for a model; [`FilterConfig::model_rule`] finds it again.
    pub fn model_index(&self, name: &str) -> usize {
        self.models.iter().position(|rule| rule.matches(name)).unwrap_or(self.models.len())
    }

    pub fn model_rule(&self, index: usize) -> &ModelRule {
        self.models.get(index).unwrap_or(&self.unknown_model)
    }

    /// Names the attribute of the subject, where the policy has it.
    pub fn attribute(&self, name: &str) -> Option<usize> {
        self.subject.iter().position(|attribute| attribute.name == name)
    }

    /// The tier of a subject that names none.
    pub fn default_tier(&self) -> Tier {
        let index = self.tiers.as_ref().map_or(0, |tiers| tiers.default);
        Tier { index, standing: TierStanding::Known }
    }

    /// What a limit's conditions look at.
    pub fn target<'a>(&'a self, path: &'a RequestPath, api: Api, model: &'a str, tier: Tier) -> Target<'a> {
        Target { path, api, model, tier: self.tier_name(tier) }
    }

    /// Whether a limit may look at requests of a tier.
    pub fn is_under(&self, limit: &LimitRule, tier: Tier) -> bool {
        let name = self.tier_name(tier);
        limit.when.tiers.is_empty() || limit.when.tiers.iter().any(|tier| name == Some(tier))
    }

    /// The rules that may decide for a model that the limit looks at.
    pub fn models_met<'a>(&'a self, limit: &'a LimitRule) -> impl Iterator<Item = &'a ModelRule> {
        met(&self.models, &limit.when)
    }

    /// Headers that name the caller to us and are not the upstream's business.
    pub fn stripped_headers(&self) -> impl Iterator<Item = &str> {
        let sources = self.subject.iter().flat_map(|attribute| &attribute.sources);
        sources.filter_map(|source| match source {
            Source::Header { name, strip: true, .. } => Some(name.as_str()),
            Source::Header { strip: false, .. } | Source::Bearer | Source::Metadata { .. } => None,
        })
    }

    /// The parts of a property that a policy wrote: namespace and keys.
    pub fn metadata_parts(&self, property: usize) -> impl Iterator<Item = &str> {
        let path = self.metadata.get(property).map_or("", String::as_str);
        path.split('\0').skip(METADATA.len())
    }
}

/// The rules that may decide for a model that a limit with this condition looks at.
pub(super) fn met<'a>(models: &'a [ModelRule], when: &'a When) -> impl Iterator<Item = &'a ModelRule> {
    let decides = |i: usize, rule: &ModelRule, glob: &Glob| {
        let taken = models.iter().take(i).any(|earlier| earlier.matches(glob.as_str()));
        (glob.overlaps(&rule.pattern) && !taken)
            || rule.alias.as_ref().is_some_and(|alias| glob.matches(alias))
    };
    let met = move |(i, rule): &(usize, &ModelRule)| {
        when.models.is_empty() || when.models.iter().any(|glob| decides(*i, rule, glob))
    };
    models.iter().enumerate().filter(met).map(|(_, rule)| rule)
}

impl LimitRule {
    /// Whether the request's model decides if the limit applies, or in which account.
    pub fn depends_on_model(&self) -> bool {
        !self.when.models.is_empty() || self.per.contains(&Per::Model)
    }
}

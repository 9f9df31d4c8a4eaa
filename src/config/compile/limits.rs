//! The limits, and the tiers that their amounts name.

use tollgate_budget::{Amount, Mode, Unit, Window};

use super::{Place, Problems, check_name, path_pattern, quotable, raw};
use crate::config::lookup::met;
use crate::config::number::Quantity;
use crate::config::problems::listed;
use crate::config::raw::{AmountChoice, Policy};
use crate::config::read::{List, Table};
use crate::config::{Absent, Amounts, Attribute, Glob, LimitRule, ModelRule, Per, Tiers, When};

/// Every limit is one account of every request, all decided in one atomic step.
const MAX_LIMITS: usize = 32;
/// Tiers are labels of metrics.
const MAX_TIERS: usize = 16;
/// The attribute by which amounts are told apart.
const TIER: &str = "tier";
/// Of a list that may have an entry for every model there is.
const SHOWN_NAMES: usize = 4;

pub(super) fn limits(
    policy: &Policy,
    subject: &[Attribute],
    models: &[ModelRule],
    at: Place<'_>,
    problems: &mut Problems,
) -> (Option<Tiers>, Vec<LimitRule>) {
    let none = List::default();
    let list = policy.limits.as_ref().unwrap_or(&none);
    if list.0.len() > MAX_LIMITS {
        problems.add(at, format!("{} limits are more than {MAX_LIMITS}", list.0.len()));
    }
    check_names(list, at, problems);
    let tiers = tiers(list, subject, at, problems);
    let scope = Scope { subject, tiers: tiers.as_ref(), models };
    let rules = list.read_items().filter_map(|(i, raw)| scope.limit(raw, at.item(i), problems)).collect();
    (tiers, rules)
}

fn check_names(list: &List<raw::Limit>, at: Place<'_>, problems: &mut Problems) {
    for (i, limit) in list.read_items() {
        let item = at.item(i);
        let at = item.key("name");
        let Some(name) = &limit.name else {
            problems.add_unless_touched(at, "missing; accounts, metrics and refusals are named by it");
            continue;
        };
        check_name(name, at, problems);
        let same = |&(_, other): &(usize, &raw::Limit)| other.name.as_ref() == Some(name);
        if let Some((first, _)) = list.read_items().take_while(|(j, _)| *j < i).find(same) {
            problems.add(at, format!("`{}` is the name of limits[{first}] already", quotable(name)));
        }
    }
}

/// The tiers of the first amount that names some; the other limits are held to them.
fn tiers(
    list: &List<raw::Limit>,
    subject: &[Attribute],
    at: Place<'_>,
    problems: &mut Problems,
) -> Option<Tiers> {
    let by_amount = list.read_items().find_map(|(i, limit)| match &limit.amount {
        Some(AmountChoice::PerTier(table)) => Some((i, names(table))).filter(|(_, names)| !names.is_empty()),
        Some(AmountChoice::Same(_)) | None => None,
    });
    let by_condition = list.read_items().find_map(|(i, limit)| {
        let tiers = limit.when.as_ref()?.tiers.as_ref()?;
        tiers.read_items().next().map(|_| i)
    });
    let (first, key) = match (&by_amount, by_condition) {
        (Some((i, _)), _) => (*i, "amount"),
        (None, Some(i)) => (i, "when"),
        (None, None) => return None,
    };
    let item = at.item(first);
    let at = item.key(key);
    let tier = Place::Document.key("subject");
    let tier = tier.key(TIER);
    let Some(attribute) = subject.iter().position(|attribute| attribute.name == TIER) else {
        if !problems.touched(tier) {
            problems.add(at, "names tiers, but `subject` does not define the attribute `tier`");
        }
        return None;
    };
    let Some(Absent::Default(default)) = subject.get(attribute).map(|attribute| &attribute.absent) else {
        problems.add_unless_touched(
            tier,
            "needs a `default` that is one of the tiers: a value outside them counts as it",
        );
        return None;
    };
    let names = match by_amount {
        Some((_, names)) => names,
        None => conditional_names(list, default),
    };
    if names.len() > MAX_TIERS {
        problems.add(at, format!("{} tiers are more than {MAX_TIERS}", names.len()));
    }
    let Some(default) = names.iter().position(|name| name == default) else {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let problem = format!(
            "`{}` is a tier without an amount; the amounts name {}",
            quotable(default),
            listed(&names)
        );
        problems.add(tier.key("default"), problem);
        return None;
    };
    Some(Tiers { attribute, names, default })
}

fn names(table: &Table<Quantity>) -> Vec<String> {
    table.0.iter().map(|(name, _)| name.clone()).collect()
}

/// Where no amount names tiers, those are told apart that some `when` asks for.
fn conditional_names(list: &List<raw::Limit>, default: &str) -> Vec<String> {
    let conditions = list.read_items().filter_map(|(_, limit)| limit.when.as_ref()?.tiers.as_ref());
    let mut names = vec![default.to_owned()];
    for (_, name) in conditions.flat_map(|tiers| tiers.read_items()) {
        if let Err(place) = names.binary_search(name) {
            names.insert(place, name.clone());
        }
    }
    names
}

/// What a limit may refer to.
struct Scope<'a> {
    subject: &'a [Attribute],
    tiers: Option<&'a Tiers>,
    models: &'a [ModelRule],
}

impl Scope<'_> {
    fn limit(&self, raw: &raw::Limit, at: Place<'_>, problems: &mut Problems) -> Option<LimitRule> {
        let per = self.per(raw.per.as_ref(), at.key("per"), problems);
        let when = self.when(raw.when.as_ref(), at.key("when"), problems);
        if raw.unit.is_none() {
            problems.add_unless_touched(at.key("unit"), "missing; write `unit: tokens` or `unit: requests`");
        }
        if raw.unit == Some(Unit::Usd) {
            self.check_prices(&when, at.key("unit"), problems);
        }
        let window = match &raw.window {
            // A unit that is not built yet may need none.
            None if problems.touched(at.key("unit")) => None,
            _ => window(raw, at.key("window"), problems),
        };
        let amount = self.amounts(raw, at.key("amount"), problems);
        Some(LimitRule {
            name: raw.name.clone()?,
            per,
            unit: raw.unit?,
            window: window?,
            amount: amount?,
            when,
            mode: raw.mode.unwrap_or(Mode::Enforce),
        })
    }

    /// A model without a price would cost nothing, or anything.
    fn check_prices(&self, when: &When, at: Place<'_>, problems: &mut Problems) {
        let priceless = met(self.models, when).filter(|rule| rule.price.is_none());
        let names: Vec<String> = priceless.map(|rule| quotable(rule.pattern.as_str())).collect();
        // A price that was refused is not missing.
        if names.is_empty() || problems.touched(Place::Document.key("models")) {
            return;
        }
        let shown: Vec<&str> = names.iter().map(String::as_str).take(SHOWN_NAMES).collect();
        let others = match names.len() - shown.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let problem = format!(
            "dollars need the price of every model that the limit can meet; none has `{}`{others}",
            shown.join("`, `")
        );
        problems.add(at, problem);
    }

    fn per(&self, raw: Option<&List<String>>, at: Place<'_>, problems: &mut Problems) -> Vec<Per> {
        let Some(list) = raw else {
            problems.add_unless_touched(
                at,
                "missing; write `per: [tenant]`, or `per: []` for one account for all",
            );
            return Vec::new();
        };
        let mut parts = Vec::new();
        for (i, name) in list.read_items() {
            match self.part(name) {
                Some(part) if parts.contains(&part) => {
                    problems.add(at.item(i), format!("`{}` stands in the list already", quotable(name)));
                }
                Some(part) => parts.push(part),
                None if problems.touched(Place::Document.key("subject").key(name)) => {}
                None => {
                    let known: Vec<&str> = self
                        .subject
                        .iter()
                        .map(|attribute| attribute.name.as_str())
                        .chain([Per::MODEL])
                        .collect();
                    let problem = format!(
                        "`subject` does not define `{}`; what would do: {}",
                        quotable(name),
                        listed(&known)
                    );
                    problems.add(at.item(i), problem);
                }
            }
        }
        parts
    }

    fn part(&self, name: &str) -> Option<Per> {
        if name == Per::MODEL {
            return Some(Per::Model);
        }
        self.subject.iter().position(|attribute| attribute.name == name).map(Per::Attribute)
    }

    fn amounts(&self, raw: &raw::Limit, at: Place<'_>, problems: &mut Problems) -> Option<Amounts> {
        // Without a unit the bound is unknown; the unit's own problem is reported.
        let unit = raw.unit.unwrap_or(Unit::Requests);
        match &raw.amount {
            None => {
                problems.add_unless_touched(at, "missing; write how much, such as `amount: 90000`");
                None
            }
            Some(AmountChoice::Same(count)) => amount(*count, unit, at, problems).map(Amounts::Same),
            Some(AmountChoice::PerTier(table)) => self.per_tier(table, unit, at, problems),
        }
    }

    fn per_tier(
        &self,
        table: &Table<Quantity>,
        unit: Unit,
        at: Place<'_>,
        problems: &mut Problems,
    ) -> Option<Amounts> {
        if table.0.is_empty() {
            problems.add(at, "no tier has an amount; write a number, or one for each tier");
        }
        for (name, _) in table.0.iter().filter(|(name, _)| name.is_empty() || name.len() > super::MAX_NAME) {
            problems.add(at.key(name), format!("the name of a tier has 1 to {} bytes", super::MAX_NAME));
        }
        let amounts: Vec<Option<Amount>> =
            table.0.iter().map(|(name, count)| amount((*count)?, unit, at.key(name), problems)).collect();
        let tiers = self.tiers?;
        for name in tiers.names.iter().filter(|name| !table.0.iter().any(|(tier, _)| tier == *name)) {
            problems
                .add(at, format!("the tier `{}` has no amount here, but in another limit", quotable(name)));
        }
        for (name, _) in table.0.iter().filter(|(name, _)| !tiers.names.contains(name)) {
            let known: Vec<&str> = tiers.names.iter().map(String::as_str).collect();
            let problem = format!(
                "`{}` is not one of the tiers of the other limits: {}",
                quotable(name),
                listed(&known)
            );
            problems.add(at.key(name), problem);
        }
        // Both are sorted by name and name the same tiers.
        amounts.into_iter().collect::<Option<_>>().map(Amounts::PerTier)
    }

    fn when(&self, raw: Option<&raw::Conditions>, at: Place<'_>, problems: &mut Problems) -> When {
        let Some(raw) = raw else { return When::default() };
        let paths = at.key("paths");
        let tiers = at.key("tiers");
        for (i, name) in raw.tiers.iter().flat_map(List::read_items) {
            if self.tiers.is_some_and(|known| !known.names.contains(name)) {
                problems.add(tiers.item(i), format!("`{}` is a tier without an amount", quotable(name)));
            }
        }
        When {
            models: raw
                .models
                .iter()
                .flat_map(List::read_items)
                .map(|(_, name)| Glob(name.clone()))
                .collect(),
            paths: raw
                .paths
                .iter()
                .flat_map(List::read_items)
                .filter_map(|(i, path)| path_pattern(path, paths.item(i), problems))
                .collect(),
            tiers: raw.tiers.iter().flat_map(List::read_items).map(|(_, name)| name.clone()).collect(),
            apis: raw.apis.iter().flat_map(List::read_items).map(|(_, api)| *api).collect(),
        }
    }
}

fn amount(quantity: Quantity, unit: Unit, at: Place<'_>, problems: &mut Problems) -> Option<Amount> {
    let units = match unit {
        Unit::Tokens | Unit::RawTokens | Unit::InputTokens | Unit::OutputTokens | Unit::Requests => {
            quantity.whole(at, problems)?.saturating_mul(unit.scale())
        }
        Unit::Usd => quantity.billionths(at, problems)?,
    };
    let amount = Amount::new(units);
    if amount.is_none() {
        let most = unit.whole_floor(Amount::MAX);
        problems.add(at, format!("found {quantity}, expected {most} at most (4 × 10^15 internal units)"));
    }
    amount
}

fn window(raw: &raw::Limit, at: Place<'_>, problems: &mut Problems) -> Option<Window> {
    const WANTED: &str = "write one of `{sliding: 60s}`, `{fixed: 60s}` and `{bucket: 60s, burst: 1000}`";
    let Some(raw::WindowChoice(kinds)) = &raw.window else {
        problems.add_unless_touched(at, format!("missing; {WANTED}"));
        return None;
    };
    let burst = burst(kinds.burst, raw.unit, at.key("burst"), problems);
    if kinds.burst.is_some() && kinds.bucket.is_none() {
        problems.add_unless_touched(at.key("bucket"), "missing; `burst` goes with `bucket`");
    }
    match (kinds.sliding, kinds.fixed, kinds.bucket) {
        (Some(span), None, None) => Some(Window::Sliding(span)),
        (None, Some(span), None) => Some(Window::Fixed(span)),
        (None, None, Some(period)) => Some(Window::Bucket { period, burst }),
        (None, None, None) => {
            problems.add_unless_touched(at, format!("says not how long; {WANTED}"));
            None
        }
        (_, _, _) => {
            problems.add(at, format!("two windows at once; {WANTED}"));
            None
        }
    }
}

fn burst(
    raw: Option<Quantity>,
    unit: Option<Unit>,
    at: Place<'_>,
    problems: &mut Problems,
) -> Option<Amount> {
    let quantity = raw?;
    if quantity.is_zero() {
        problems.add(at, "a bucket that holds nothing admits nothing; to suspend, write `amount: 0`");
    }
    amount(quantity, unit?, at, problems)
}

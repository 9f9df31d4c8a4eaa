//! What a message asks for, put together from steps of the store.
//!
//! A hold over several slots is taken slot by slot. What was taken first is given back before a refusal or an
//! error is told; a give-back that is lost ends with its lease. Slots that few share come first, so that what
//! is taken for nothing is taken where nobody else wants it.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use futures_util::future::join_all;
use tollgate_budget::wire::{self, Close, Outcome, Purpose, Renewed};
use tollgate_budget::{
    AccountKey, Amount, Decision, Grant, HoldId, Reason, Refusal, Span, Standing, Timestamp, Window,
};

use crate::clock::{Clock, Stopwatch};
use crate::metrics::{Decided, Metrics};
use crate::problem::Problem;
use crate::store::{Charge, Entry, Kept, LimitName, Page, Part, Reserved, Slot, Step, Store, StoreError};

/// Year 2255 in milliseconds, the ledger's last moment: longer spans are no spans.
const SPAN_MOST: Span = Span::from_millis(9_000_000_000_000);

/// Accounts on one page of the list, unless the caller asks for fewer.
pub const PAGE_MOST: usize = 1000;

#[derive(Debug)]
pub struct Service<S> {
    store: S,
    clock: Clock,
    metrics: Metrics,
}

impl<S: Store> Service<S> {
    pub fn new(store: S, clock: Clock) -> Self {
        Self { store, clock, metrics: Metrics::default() }
    }

    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub fn store(&self) -> &S {
        &self.store
    }

    /// Takes every charge, or none; or only says what would be.
    pub async fn hold(self: &Arc<Self>, hold: &wire::Hold) -> Result<Decision, Problem> {
        let now = (self.clock)();
        let parts = Parts::of(hold)?;
        let decision = match hold.purpose {
            Purpose::Take => self.take(hold.id, &parts, now).await?,
            Purpose::Check => {
                self.metrics.decided(Decided::Checked);
                return Ok(self.check(&parts, now).await?);
            }
        };
        self.metrics.decided(match &decision {
            Reserved { decision: Decision::Granted(_), opened: true } => Decided::Granted,
            Reserved { decision: Decision::Granted(_), opened: false } => Decided::Repeated,
            Reserved { decision: Decision::Refused(refusal), .. } => match refusal.reason {
                Reason::NotYet { .. } => Decided::NotYet,
                Reason::Never { .. } => Decided::Never,
                Reason::Suspended => Decided::Suspended,
            },
            Reserved { decision: Decision::AlreadySettled, .. } => Decided::AlreadySettled,
        });
        Ok(decision.decision)
    }

    async fn take(
        self: &Arc<Self>,
        id: HoldId,
        parts: &Parts,
        now: Timestamp,
    ) -> Result<Reserved, StoreError> {
        let mut granted = Granted::default();
        let mut opened = parts.0.is_empty();
        for (place, part) in parts.0.iter().enumerate() {
            let taken = parts.0.get(..place).unwrap_or_default();
            match self.step(self.store.reserve(&part.slot, &part.part, now)).await {
                Ok(Reserved { decision: Decision::Granted(grant), opened: here }) => {
                    opened |= here;
                    granted.add(part, grant);
                }
                Ok(Reserved { decision: Decision::Refused(refusal), .. }) => {
                    self.give_back(id, taken, now).await;
                    let rest = parts.0.get(place + 1..).unwrap_or_default();
                    let refusal = self.gravest(part.told(refusal), rest, now).await;
                    return Ok(Reserved { decision: Decision::Refused(refusal), opened: false });
                }
                Ok(settled @ Reserved { decision: Decision::AlreadySettled, .. }) => {
                    self.give_back(id, taken, now).await;
                    return Ok(settled);
                }
                Err(error) => {
                    // The step may have been done all the same. The caller has waited long enough, and settles
                    // or withdraws by itself: what is given back here is only sooner.
                    let taken = parts.0.get(..=place).unwrap_or_default();
                    self.give_back_later(id, taken, now);
                    return Err(error);
                }
            }
        }
        Ok(Reserved { decision: Decision::Granted(granted.grant()), opened })
    }

    async fn check(&self, parts: &Parts, now: Timestamp) -> Result<Decision, StoreError> {
        let mut gravest: Option<Refusal> = None;
        let mut shadow_over = Vec::new();
        for part in &parts.0 {
            match self.step(self.store.weigh(&part.slot, &part.part, now)).await? {
                Ok(over) => shadow_over.extend(over.into_iter().map(|index| part.index(index))),
                Err(refusal) => {
                    let refusal = part.told(refusal);
                    gravest = Some(gravest.map_or(refusal, |other| other.graver(refusal)));
                }
            }
        }
        if let Some(refusal) = gravest {
            return Ok(Decision::Refused(refusal));
        }
        let mut standings = Granted { shadow_over, ..Granted::default() };
        for part in &parts.0 {
            let asked: Vec<_> =
                part.part.charges.iter().map(|charge| (charge.name.clone(), charge.limit)).collect();
            let found = self.step(self.store.standings(&part.slot, &asked, now)).await?;
            standings.add(part, Grant { standings: found, shadow_over: Vec::new() });
        }
        Ok(Decision::Granted(standings.grant()))
    }

    /// The refusal that decides, when the slots not yet asked are weighed as well: a wait must be long enough
    /// for all. A slot that cannot answer does not undo what another has refused.
    async fn gravest(&self, first: Refusal, rest: &[SlotPart], now: Timestamp) -> Refusal {
        let weighed = rest.iter().map(|part| async move {
            let weighed = self.step(self.store.weigh(&part.slot, &part.part, now)).await;
            weighed.ok()?.err().map(|refusal| part.told(refusal))
        });
        join_all(weighed).await.into_iter().flatten().fold(first, Refusal::graver)
    }

    fn give_back_later(self: &Arc<Self>, id: HoldId, taken: &[SlotPart], now: Timestamp) {
        let slots: Vec<Slot> = taken.iter().map(|part| part.slot.clone()).collect();
        let service = Arc::clone(self);
        tokio::spawn(async move { service.give_back_slots(id, slots.iter(), now).await });
    }

    async fn give_back(&self, id: HoldId, taken: &[SlotPart], now: Timestamp) {
        self.give_back_slots(id, taken.iter().map(|part| &part.slot), now).await;
    }

    async fn give_back_slots(&self, id: HoldId, slots: impl Iterator<Item = &Slot>, now: Timestamp) {
        let released = slots.map(|slot| self.step(self.store.release(slot, id, now)));
        for result in join_all(released).await {
            if result.is_err() {
                self.metrics.give_back_lost();
            }
        }
    }

    /// Ends holds. In the order of the batch.
    pub async fn settle(&self, batch: &[wire::Settlement]) -> Result<Vec<Outcome>, Problem> {
        let now = (self.clock)();
        if batch.len() > wire::BATCH_MOST {
            return Err(too_many("a batch", wire::BATCH_MOST));
        }
        let mut all = Vec::with_capacity(batch.len());
        for settlement in batch {
            all.push(entries_by_slot(settlement)?);
        }
        let settled = batch.iter().zip(&all).map(|(settlement, slots)| async move {
            let each = slots.iter().map(|(slot, entries)| async move {
                let step = self.store.settle(slot, settlement.id, settlement.close, entries, now);
                let settled = self.step(step).await?;
                if settlement.close == Close::Settle {
                    let debt = settled.postings.iter().map(|posting| posting.debt.units());
                    self.metrics.owed(debt.fold(0, u64::saturating_add));
                }
                Ok::<_, StoreError>(Outcome::from(settled.outcome))
            });
            let each = join_all(each).await;
            // Of what several slots say, the one farthest from "nothing was done".
            let outcome = each.into_iter().map(|each| each.unwrap_or(Outcome::Failed)).max();
            let outcome = outcome.unwrap_or(Outcome::Unknown);
            self.metrics.settled(outcome);
            outcome
        });
        Ok(join_all(settled).await)
    }

    /// Renews leases and raises stakes. In the order of the batch.
    pub async fn renew(&self, batch: &[wire::Renewal]) -> Result<Vec<Renewed>, Problem> {
        let now = (self.clock)();
        if batch.len() > wire::BATCH_MOST {
            return Err(too_many("a batch", wire::BATCH_MOST));
        }
        let mut all = Vec::with_capacity(batch.len());
        for renewal in batch {
            check_span(renewal.lease)?;
            all.push(totals_by_slot(renewal)?);
        }
        let renewed = batch.iter().zip(&all).map(|(renewal, slots)| async move {
            let each = slots.iter().map(|(slot, totals)| async move {
                let step = self.store.renew(slot, renewal.id, renewal.lease, totals, now);
                self.step(step).await.map_or(Renewed::Failed, Renewed::from)
            });
            let each = join_all(each).await;
            let outcome = each.into_iter().max().unwrap_or(Renewed::NotOpen);
            self.metrics.renewed(outcome);
            outcome
        });
        Ok(join_all(renewed).await)
    }

    /// How accounts stand, in the order asked.
    pub async fn standings(&self, asked: &[wire::Account]) -> Result<Vec<Standing>, Problem> {
        let now = (self.clock)();
        if asked.len() > wire::ACCOUNTS_MOST {
            return Err(too_many("a question", wire::ACCOUNTS_MOST));
        }
        let each = asked.iter().map(|account| async move {
            check_window(account.window)?;
            let asked = [(account.account.limit().to_owned(), account.limit())];
            let slot = Slot::of(&account.account);
            let found = self.step(self.store.standings(&slot, &asked, now)).await?;
            found.first().copied().ok_or(Problem::Store(StoreError::Nonsense))
        });
        join_all(each).await.into_iter().collect()
    }

    pub async fn account(&self, key: &AccountKey) -> Result<Option<Kept>, Problem> {
        let kept = self.timed(self.store.slot(&Slot::of(key), (self.clock)())).await?;
        Ok(kept.into_iter().find(|kept| kept.account == *key))
    }

    pub async fn accounts(&self, prefix: &str, limit: usize, cursor: Option<&str>) -> Result<Page, Problem> {
        let limit = limit.clamp(1, PAGE_MOST);
        Ok(self.timed(self.store.accounts(prefix, limit, cursor, (self.clock)())).await?)
    }

    pub async fn set_amount(&self, key: &AccountKey, amount: Option<Amount>) -> Result<(), Problem> {
        let slot = Slot::of(key);
        let set = self.store.set_amount(&slot, key.limit(), amount, (self.clock)());
        Ok(self.timed(set).await?)
    }

    pub async fn ready(&self) -> Result<(), Problem> {
        Ok(self.timed(self.store.ready()).await?)
    }

    /// One round of the sweeper.
    pub async fn sweep(&self) {
        match self.store.sweep((self.clock)()).await {
            Ok(swept) => {
                self.metrics.leases_ended(swept.leases_ended);
                self.metrics.swept(swept.slots, swept.open_holds);
            }
            Err(error) => {
                self.metrics.store_failed(&error);
                self.metrics.sweep_failed();
            }
        }
    }

    async fn step<T>(
        &self,
        step: impl Future<Output = Result<Step<T>, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let Step { result, leases_ended } = self.timed(step).await?;
        self.metrics.leases_ended(leases_ended);
        Ok(result)
    }

    async fn timed<T>(
        &self,
        step: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let watch = Stopwatch::start();
        let result = step.await;
        self.metrics.store_answered(watch.elapsed());
        result.inspect_err(|error| self.metrics.store_failed(error))
    }
}

/// A hold, cut into slots.
struct Parts(Vec<SlotPart>);

struct SlotPart {
    slot: Slot,
    part: Part,
    /// Where the part's charges stand in the hold.
    places: Vec<usize>,
}

impl Parts {
    fn of(hold: &wire::Hold) -> Result<Self, Problem> {
        check_span(hold.lease)?;
        if hold.charges.len() > wire::ACCOUNTS_MOST {
            return Err(too_many("a hold", wire::ACCOUNTS_MOST));
        }
        let mut parts: Vec<SlotPart> = Vec::new();
        for (place, charge) in hold.charges.iter().enumerate() {
            check_window(charge.window)?;
            let slot = Slot::of(&charge.account);
            let part = match parts.iter().position(|part| part.slot == slot) {
                Some(found) => found,
                None => {
                    parts.push(SlotPart::new(slot, hold));
                    parts.len() - 1
                }
            };
            if let Some(part) = parts.get_mut(part) {
                part.places.push(place);
                part.part.charges.push(Charge {
                    name: charge.account.limit().to_owned(),
                    limit: charge.limit(),
                    cost: charge.cost,
                    largest: charge.largest,
                    mode: charge.mode,
                });
            }
        }
        parts.sort_by(|one, other| {
            other.slot.attributes().cmp(&one.slot.attributes()).then_with(|| one.slot.cmp(&other.slot))
        });
        Ok(Self(parts))
    }
}

impl SlotPart {
    fn new(slot: Slot, hold: &wire::Hold) -> Self {
        let wire::Hold { id, policy, lease, on_lease_end, .. } = *hold;
        let part = Part { id, policy, charges: Vec::new(), lease, on_lease_end };
        Self { slot, part, places: Vec::new() }
    }

    fn index(&self, index: usize) -> usize {
        self.places.get(index).copied().unwrap_or(index)
    }

    fn told(&self, refusal: Refusal) -> Refusal {
        Refusal { charge: self.index(refusal.charge), ..refusal }
    }
}

/// What has been granted so far, by the place in the hold.
#[derive(Default)]
struct Granted {
    standings: BTreeMap<usize, Standing>,
    shadow_over: Vec<usize>,
}

impl Granted {
    fn add(&mut self, part: &SlotPart, grant: Grant) {
        self.standings.extend(part.places.iter().copied().zip(grant.standings));
        self.shadow_over.extend(grant.shadow_over.into_iter().map(|index| part.index(index)));
    }

    fn grant(mut self) -> Grant {
        self.shadow_over.sort_unstable();
        Grant { standings: self.standings.into_values().collect(), shadow_over: self.shadow_over }
    }
}

fn entries_by_slot(settlement: &wire::Settlement) -> Result<BTreeMap<Slot, Vec<Entry>>, Problem> {
    if settlement.entries.len() > wire::ACCOUNTS_MOST {
        return Err(too_many("a settlement", wire::ACCOUNTS_MOST));
    }
    let mut slots: BTreeMap<Slot, Vec<Entry>> = BTreeMap::new();
    for entry in &settlement.entries {
        check_window(entry.window)?;
        let (name, limit, spent) = (entry.account.limit().to_owned(), entry.limit(), entry.spent);
        slots.entry(Slot::of(&entry.account)).or_default().push(Entry { name, limit, spent });
    }
    Ok(slots)
}

type Totals = Vec<(LimitName, Amount)>;

fn totals_by_slot(renewal: &wire::Renewal) -> Result<BTreeMap<Slot, Totals>, Problem> {
    if renewal.stakes.len() > wire::ACCOUNTS_MOST {
        return Err(too_many("a renewal", wire::ACCOUNTS_MOST));
    }
    let mut slots: BTreeMap<Slot, Totals> = BTreeMap::new();
    for stake in &renewal.stakes {
        let totals = slots.entry(Slot::of(&stake.account)).or_default();
        totals.extend(stake.total.map(|total| (stake.account.limit().to_owned(), total)));
    }
    Ok(slots)
}

fn check_window(window: Window) -> Result<(), Problem> {
    check_span(window.span())
}

fn check_span(span: Span) -> Result<(), Problem> {
    if span == Span::ZERO || span > SPAN_MOST {
        let most = SPAN_MOST.as_millis();
        return Err(Problem::Malformed(format!("a span is from 1 to {most} milliseconds")));
    }
    Ok(())
}

fn too_many(what: &str, most: usize) -> Problem {
    Problem::TooLarge(format!("{what} has at most {most} items").into())
}

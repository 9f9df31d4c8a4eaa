//! Accounts in Redis: one hash a slot, changed by scripts that write the ledger's arithmetic once more. No
//! arithmetic here: this builds arguments, reads answers, and bounds how long both may take.
//!
//! A call that was not answered may have been carried out. It is sent again once if its connection broke,
//! within the same deadline; every step is idempotent, so that the second does no harm.

mod link;
mod reply;
mod target;

use std::time::Duration;

use futures_util::future::join_all;
use redis::Script;
use tollgate_budget::wire::Close;
use tollgate_budget::{
    Amount, Decision, Found, Full, Grant, HoldId, Limit, Mode, OnLeaseEnd, Outcome, Reason, Refusal, Span,
    Standing, Timestamp, Window,
};

use super::{
    Entry, Kept, LimitName, Page, Part, Posting, Prefix, Reserved, Settled, Slot, Step, Store, StoreError,
    Swept,
};
use link::{Link, Question};
use reply::Reply;
pub use target::Target;

/// Keys that one step of a walk through Redis looks at.
const KEYS_PER_LOOK: usize = 100;

/// Steps of a walk for one page: a prefix that fits nothing must not walk through all of Redis in one request.
const LOOKS_PER_PAGE: usize = 20;

/// The sweeper rests this long after each look, which bounds its part of Redis to some percent of a core.
const SWEEPER_RESTS: Duration = Duration::from_millis(200);

const CLOCK: &str = include_str!("redis/clock.lua");
const ACCOUNT: &str = include_str!("redis/account.lua");
const BOOK: &str = include_str!("redis/book.lua");
const TERMS: &str = include_str!("redis/terms.lua");
const RESERVE: &str = include_str!("redis/reserve.lua");
const SETTLE: &str = include_str!("redis/settle.lua");
const RENEW: &str = include_str!("redis/renew.lua");
const LOOK: &str = include_str!("redis/look.lua");

#[derive(Debug)]
pub struct RedisStore {
    link: Link,
    scripts: Scripts,
    timeout: Duration,
    /// Whether scripts are told the time.
    #[cfg(feature = "test-clock")]
    told: bool,
}

#[derive(Debug)]
struct Scripts {
    reserve: Script,
    settle: Script,
    renew: Script,
    look: Script,
}

impl Scripts {
    fn new(clock: &str) -> Self {
        let script = |parts: &[&str]| Script::new(&[&[clock, ACCOUNT, BOOK], parts].concat().concat());
        Self {
            reserve: script(&[TERMS, RESERVE]),
            settle: script(&[SETTLE]),
            renew: script(&[RENEW]),
            look: script(&[TERMS, LOOK]),
        }
    }
}

impl RedisStore {
    /// Does not connect yet: a service must start while Redis is away. `timeout` bounds each step.
    pub fn new(target: Target, timeout: Duration) -> Result<Self, StoreError> {
        Ok(Self {
            link: Link::new(&target, timeout)?,
            scripts: Scripts::new(CLOCK),
            timeout,
            #[cfg(feature = "test-clock")]
            told: false,
        })
    }

    /// Goes by the time that each step is told, as a model does.
    #[cfg(feature = "test-clock")]
    pub fn with_clock_of_test(target: Target, timeout: Duration) -> Result<Self, StoreError> {
        let store = Self::new(target, timeout)?;
        Ok(Self { scripts: Scripts::new(include_str!("redis/clock_of_test.lua")), told: true, ..store })
    }

    /// The hash under which Redis knows the script that takes a hold, once it has been called: a benchmark calls
    /// it without the service.
    pub fn reserve_script(&self) -> &str {
        self.scripts.reserve.get_hash()
    }

    async fn run(
        &self,
        script: &Script,
        slot: &Slot,
        args: Args,
        now: Timestamp,
    ) -> Result<Reply, StoreError> {
        #[cfg(feature = "test-clock")]
        let args = if self.told { args.number(now.as_millis()) } else { args };
        let _ = now;
        let mut call = script.prepare_invoke();
        for part in ["book", "due", "done"] {
            call.key(format!("tg:{{{slot}}}:{part}"));
        }
        for arg in &args.0 {
            call.arg(arg.as_slice());
        }
        match tokio::time::timeout(self.timeout, self.link.ask(Question::Script(&call))).await {
            Ok(answer) => Reply::new(answer?),
            Err(_) => {
                self.link.gave_up();
                Err(StoreError::Slow)
            }
        }
    }

    async fn list(&self, slot: &Slot, now: Timestamp) -> Result<Vec<Kept>, StoreError> {
        let mut reply = self.run(&self.scripts.look, slot, Args::new("list"), now).await?;
        reply.number()?;
        let mut all = Vec::new();
        while !reply.is_over() {
            let name = reply.text()?;
            let limit = reply.limit()?;
            let amount_set = reply.optional_amount()?;
            let standing = reply.standing()?;
            let account = slot.account(&name).ok_or(StoreError::Nonsense)?;
            all.push(Kept { account, limit, amount_set, standing });
        }
        all.sort_by(|one, other| one.account.cmp(&other.account));
        Ok(all)
    }

    /// One look at the keys of a prefix: the slots found, and where to go on.
    async fn look(&self, prefix: &str, from: &str) -> Result<(Vec<Slot>, Option<String>), StoreError> {
        let pattern = format!("tg:{{{prefix}*}}:book");
        let looked = tokio::time::timeout(self.timeout, self.link.scan(&pattern, from, KEYS_PER_LOOK));
        let (keys, next) = looked.await.map_err(|_| StoreError::Slow)??;
        let slot = |key: &String| {
            let name = key.strip_prefix("tg:{")?.strip_suffix("}:book")?;
            Some(Slot(name.to_owned()))
        };
        Ok((keys.iter().filter_map(slot).collect(), next))
    }
}

impl Store for RedisStore {
    async fn reserve(&self, slot: &Slot, part: &Part, now: Timestamp) -> Result<Step<Reserved>, StoreError> {
        let args = Args::new("take").part(part);
        let mut reply = self.run(&self.scripts.reserve, slot, args, now).await?;
        let leases_ended = reply.number()?;
        let word = reply.number()?;
        let decision = match word {
            0 | 1 => {
                let standings: Result<_, _> = part.charges.iter().map(|_| reply.standing()).collect();
                Decision::Granted(Grant { standings: standings?, shadow_over: reply.indexes()? })
            }
            2 => Decision::Refused(reply.refusal()?),
            3 => Decision::AlreadySettled,
            4 => return Err(reply.full()),
            _ => return Err(StoreError::Nonsense),
        };
        Ok(Step { result: Reserved { decision, opened: word == 0 }, leases_ended })
    }

    async fn weigh(
        &self,
        slot: &Slot,
        part: &Part,
        now: Timestamp,
    ) -> Result<Step<Result<Vec<usize>, Refusal>>, StoreError> {
        let args = Args::new("check").part(part);
        let mut reply = self.run(&self.scripts.reserve, slot, args, now).await?;
        let leases_ended = reply.number()?;
        let result = match reply.number()? {
            0 => Ok(reply.indexes()?),
            2 => Err(reply.refusal()?),
            _ => return Err(StoreError::Nonsense),
        };
        Ok(Step { result, leases_ended })
    }

    async fn settle(
        &self,
        slot: &Slot,
        id: HoldId,
        close: Close,
        entries: &[Entry],
        now: Timestamp,
    ) -> Result<Step<Settled>, StoreError> {
        let how = match close {
            Close::Settle => "settle",
            Close::Withdraw => "withdraw",
        };
        let args = entries.iter().fold(Args::new(how).id(id).count(entries.len()), |args, entry| {
            args.text(&entry.name).limit(&entry.limit).number(entry.spent.units())
        });
        let mut reply = self.run(&self.scripts.settle, slot, args, now).await?;
        let leases_ended = reply.number()?;
        let outcome = match reply.number()? {
            0 => Outcome::Closed,
            1 => Outcome::CorrectedAfterLease,
            2 => Outcome::Unknown,
            3 => Outcome::Duplicate,
            4 => return Err(reply.full()),
            _ => return Err(StoreError::Nonsense),
        };
        let mut postings = Vec::new();
        while !reply.is_over() {
            postings.push(Posting {
                name: reply.text()?,
                before: reply.amount()?,
                spent: reply.amount()?,
                refunded: reply.amount()?,
                debt: reply.amount()?,
            });
        }
        Ok(Step { result: Settled { outcome, postings }, leases_ended })
    }

    async fn release(&self, slot: &Slot, id: HoldId, now: Timestamp) -> Result<Step<Found>, StoreError> {
        let args = Args::new("release").id(id).count(0);
        let mut reply = self.run(&self.scripts.settle, slot, args, now).await?;
        let leases_ended = reply.number()?;
        let result = match reply.number()? {
            0 => Found::Open,
            1..=3 => Found::NotOpen,
            _ => return Err(StoreError::Nonsense),
        };
        Ok(Step { result, leases_ended })
    }

    async fn renew(
        &self,
        slot: &Slot,
        id: HoldId,
        lease: Span,
        totals: &[(LimitName, Amount)],
        now: Timestamp,
    ) -> Result<Step<Found>, StoreError> {
        let args = Args::default().id(id).number(lease.as_millis()).count(totals.len());
        let args = totals.iter().fold(args, |args, (name, total)| args.text(name).number(total.units()));
        let mut reply = self.run(&self.scripts.renew, slot, args, now).await?;
        let leases_ended = reply.number()?;
        let result = if reply.number()? == 1 { Found::Open } else { Found::NotOpen };
        Ok(Step { result, leases_ended })
    }

    async fn standings(
        &self,
        slot: &Slot,
        asked: &[(LimitName, Limit)],
        now: Timestamp,
    ) -> Result<Step<Vec<Standing>>, StoreError> {
        let args = Args::new("standings").count(asked.len());
        let args = asked.iter().fold(args, |args, (name, limit)| args.text(name).limit(limit));
        let mut reply = self.run(&self.scripts.look, slot, args, now).await?;
        let leases_ended = reply.number()?;
        let result: Result<_, _> = asked.iter().map(|_| reply.standing()).collect();
        Ok(Step { result: result?, leases_ended })
    }

    async fn set_amount(
        &self,
        slot: &Slot,
        name: &str,
        amount: Option<Amount>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let args = Args::new("set").text(name).optional(amount);
        self.run(&self.scripts.look, slot, args, now).await.map(|_| ())
    }

    async fn slot(&self, slot: &Slot, now: Timestamp) -> Result<Vec<Kept>, StoreError> {
        self.list(slot, now).await
    }

    async fn accounts(
        &self,
        prefix: &str,
        limit: usize,
        cursor: Option<&str>,
        now: Timestamp,
    ) -> Result<Page, StoreError> {
        // A prefix is looked for in keys as a pattern, in which these would mean something else.
        if prefix.contains(['*', '?', '[', ']', '\\']) {
            return Ok(Page::default());
        }
        let prefix = Prefix::new(prefix);
        let mut page = Page { accounts: Vec::new(), cursor: Some(cursor.unwrap_or(Link::FIRST).to_owned()) };
        for _ in 0..LOOKS_PER_PAGE {
            let Some(from) = &page.cursor else { break };
            if page.accounts.len() >= limit {
                break;
            }
            let (slots, next) = self.look(&prefix.slot, from).await?;
            for kept in join_all(slots.iter().map(|slot| self.list(slot, now))).await {
                page.accounts.extend(kept?.into_iter().filter(|kept| prefix.covers(&kept.account)));
            }
            page.cursor = next;
        }
        Ok(page)
    }

    async fn sweep(&self, now: Timestamp) -> Result<Swept, StoreError> {
        let mut swept = Swept::default();
        let mut cursor = Some(Link::FIRST.to_owned());
        while let Some(from) = cursor {
            let (slots, next) = self.look("", &from).await?;
            swept.slots += slots.len() as u64;
            let visits = slots.iter().map(|slot| self.run(&self.scripts.look, slot, Args::new("sweep"), now));
            for visit in join_all(visits).await {
                let mut reply = visit?;
                swept.leases_ended += reply.number()?;
                swept.open_holds += reply.number()?;
            }
            cursor = next;
            if cursor.is_some() {
                tokio::time::sleep(SWEEPER_RESTS).await;
            }
        }
        Ok(swept)
    }

    async fn ready(&self) -> Result<(), StoreError> {
        let ping = tokio::time::timeout(self.timeout, self.link.ping());
        ping.await.map_err(|_| StoreError::Slow)?
    }
}

/// Arguments of a script, as it wants them.
#[derive(Debug, Default)]
struct Args(Vec<Vec<u8>>);

impl Args {
    fn new(word: &str) -> Self {
        Self::default().text(word)
    }

    fn text(mut self, text: &str) -> Self {
        self.0.push(text.as_bytes().to_vec());
        self
    }

    fn number(mut self, number: u64) -> Self {
        self.0.push(number.to_string().into_bytes());
        self
    }

    fn count(self, count: usize) -> Self {
        self.number(count as u64)
    }

    fn optional(self, amount: Option<Amount>) -> Self {
        match amount {
            Some(amount) => self.number(amount.units()),
            None => self.text("-1"),
        }
    }

    /// Sixteen bytes, highest first: sorted ids are sorted numbers.
    fn id(mut self, id: HoldId) -> Self {
        self.0.push(id.to_bits().to_be_bytes().to_vec());
        self
    }

    fn limit(self, limit: &Limit) -> Self {
        let (kind, burst) = match limit.window {
            Window::Sliding(_) => (0, None),
            Window::Fixed(_) => (1, None),
            Window::Bucket { period: _, burst } => (2, burst),
        };
        self.number(kind)
            .number(limit.window.span().as_millis())
            .number(limit.quota.amount().units())
            .optional(burst)
    }

    fn part(self, part: &Part) -> Self {
        let how = match part.on_lease_end {
            OnLeaseEnd::Charge => 0,
            OnLeaseEnd::Release => 1,
        };
        let head = self.id(part.id).number(u64::from(part.policy)).number(part.lease.as_millis()).number(how);
        part.charges.iter().fold(head.count(part.charges.len()), |args, charge| {
            let mode = match charge.mode {
                Mode::Enforce => 0,
                Mode::Shadow => 1,
            };
            args.text(&charge.name)
                .limit(&charge.limit)
                .number(charge.cost.units())
                .number(charge.largest.units())
                .number(mode)
        })
    }
}

impl Reply {
    fn refusal(&mut self) -> Result<Refusal, StoreError> {
        let charge = self.index()?;
        let (word, value) = (self.number()?, self.number()?);
        let reason = match word {
            0 => Reason::NotYet { retry_after: Span::from_millis(value) },
            1 => Reason::Never { largest: Amount::saturating(value) },
            2 => Reason::Suspended,
            _ => return Err(StoreError::Nonsense),
        };
        Ok(Refusal { charge, reason, standing: self.standing()? })
    }

    fn full(&mut self) -> StoreError {
        match self.optional() {
            Ok(None) => StoreError::Full(Full::Holds),
            Ok(Some(index)) => usize::try_from(index)
                .map_or(StoreError::Nonsense, |index| StoreError::Full(Full::Accounts { index })),
            Err(error) => error,
        }
    }
}

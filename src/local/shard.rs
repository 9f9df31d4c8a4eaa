//! One shard: a ledger's bytes under one key, changed in one atomic step.

use std::fmt;

use tollgate_budget::{Capacity, Full, ImageError, Ledger, Memory, Span};

use super::{SharedData, SharedDataError, Stored};

/// Accounts a shard keeps before idle ones are forgotten and, when all are in use, the overflow account
/// stands in. A record takes some 100 bytes and every step copies them all: a shard stays below 16 KiB, and
/// 256 shards carry 30,000 accounts in use at a time.
pub const ACCOUNTS_PER_SHARD: usize = 128;

/// Holds a shard keeps, open or past their lease. One account that everybody shares puts all streams of the
/// proxy into one shard; at 70 bytes each these are some 300 KiB.
pub const HOLDS_PER_SHARD: usize = 4096;

/// Limits that can have an overflow account in use. More than any policy has.
pub const OVERFLOW_ACCOUNTS: usize = 1024;

/// How often a step is tried. Each failure means that another worker's step went through; with four workers
/// on one key every twentieth fails, and 64 in a row mean that something else is wrong.
pub const MAX_CAS_ATTEMPTS: u32 = 64;

/// A process settles its own holds once, so nothing settled is remembered. A hold whose lease has ended can
/// still be settled by a stream that could not renew it.
const MEMORY: Memory = Memory { settled: Span::ZERO, ended: Span::from_secs(600) };

/// Heads the meta record: the layout of the keys; the number of shards follows.
const META_MAGIC: [u8; 4] = *b"TGM\x01";

/// A store that cannot decide. The request is answered 503 or as the policy says, and counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StoreError {
    Host(SharedDataError),
    /// The shard's key is gone, with the virtual machines that shared it.
    Missing {
        shard: u32,
    },
    /// Somebody else has written into the shard's key.
    Unreadable {
        shard: u32,
        why: ImageError,
    },
    /// Other workers were faster every time.
    Contended {
        shard: u32,
    },
    Full {
        shard: u32,
        full: Full,
    },
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(error) => error.fmt(f),
            Self::Missing { shard } => write!(f, "shard {shard} is not in the shared memory"),
            Self::Unreadable { shard, why } => write!(f, "shard {shard} cannot be read: {why}"),
            Self::Contended { shard } => {
                write!(f, "shard {shard} was changed by others {MAX_CAS_ATTEMPTS} times in a row")
            }
            Self::Full { shard, full: Full::Holds } => {
                write!(f, "shard {shard} has no room for one more hold beside its {HOLDS_PER_SHARD}")
            }
            Self::Full { shard, full: Full::Accounts { index: _ } } => {
                write!(f, "shard {shard} has no room for one more overflow account")
            }
        }
    }
}

impl std::error::Error for StoreError {}

/// Why a namespace of the shared memory cannot be used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OpenError {
    Host(SharedDataError),
    /// No shards, or more than keys can be made for.
    Shards {
        asked: u32,
    },
    /// Made with another number of shards: accounts would be looked for where they are not.
    OtherShards {
        asked: u32,
        found: u32,
    },
    /// Made by another version, or not by us.
    OtherVersion,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(error) => error.fmt(f),
            Self::Shards { asked } => write!(f, "{asked} shards are not between 1 and {SHARDS_MOST}"),
            Self::OtherShards { asked, found } => write!(
                f,
                "the shared memory of this vm_id has {found} shards and the policy asks for {asked}: \
                 keep {found}, or use another vm_id or namespace"
            ),
            Self::OtherVersion => f.write_str(
                "the shared memory of this vm_id was written by another version: \
                 use another vm_id or namespace",
            ),
        }
    }
}

impl std::error::Error for OpenError {}

/// Keys are made one by one at start, and a lookup costs microseconds each.
pub const SHARDS_MOST: u32 = 4096;

#[derive(Debug)]
pub(super) struct Shards<S> {
    shared: S,
    /// By shard; the last is that of the overflow accounts.
    keys: Vec<String>,
    shards: u32,
}

impl<S: SharedData> Shards<S> {
    pub(super) fn open(shared: S, namespace: &str, shards: u32) -> Result<Self, OpenError> {
        if !(1..=SHARDS_MOST).contains(&shards) {
            return Err(OpenError::Shards { asked: shards });
        }
        let keys: Vec<String> = (0..=shards).map(|shard| format!("tollgate/{namespace}/{shard}")).collect();
        let meta = format!("tollgate/{namespace}/meta");
        let opened = Self { shared, keys, shards };
        if !opened.is_made(&meta)? {
            opened.make(&meta).map_err(OpenError::Host)?;
        }
        Ok(opened)
    }

    pub(super) fn of(&self, tag: u64) -> u32 {
        u32::try_from(tag % u64::from(self.shards)).unwrap_or_default()
    }

    pub(super) fn overflow(&self) -> u32 {
        self.shards
    }

    /// Loads, changes and stores, again if another worker was faster. What changes nothing is not stored.
    pub(super) fn step<T>(
        &self,
        shard: u32,
        mut change: impl FnMut(&mut Ledger) -> T,
    ) -> Result<T, StoreError> {
        let key = self.key(shard)?;
        for _ in 0..MAX_CAS_ATTEMPTS {
            let loaded = self.shared.load(key).map_err(StoreError::Host)?;
            let (before, cas) = loaded.ok_or(StoreError::Missing { shard })?;
            let mut ledger = self.read(shard, &before)?;
            let result = change(&mut ledger);
            let after = ledger.encode();
            if after == before {
                return Ok(result);
            }
            match self.shared.store(key, &after, Some(cas)).map_err(StoreError::Host)? {
                Stored::Written => return Ok(result),
                Stored::Conflict => {}
            }
        }
        Err(StoreError::Contended { shard })
    }

    pub(super) fn peek(&self, shard: u32) -> Result<Ledger, StoreError> {
        let loaded = self.shared.load(self.key(shard)?).map_err(StoreError::Host)?;
        let (bytes, _) = loaded.ok_or(StoreError::Missing { shard })?;
        self.read(shard, &bytes)
    }

    fn read(&self, shard: u32, bytes: &[u8]) -> Result<Ledger, StoreError> {
        let capacity = self.capacity(shard);
        // Emptied on purpose: the host has no delete, so this is how an operator's tool may start a shard anew.
        if bytes.is_empty() {
            return Ok(Ledger::new(capacity, MEMORY));
        }
        Ledger::decode(bytes, capacity, MEMORY).map_err(|why| StoreError::Unreadable { shard, why })
    }

    fn capacity(&self, shard: u32) -> Capacity {
        let accounts = if shard == self.overflow() { OVERFLOW_ACCOUNTS } else { ACCOUNTS_PER_SHARD };
        Capacity { accounts, holds: HOLDS_PER_SHARD }
    }

    fn key(&self, shard: u32) -> Result<&str, StoreError> {
        let index = usize::try_from(shard).unwrap_or(usize::MAX);
        self.keys.get(index).map(String::as_str).ok_or(StoreError::Missing { shard })
    }

    fn is_made(&self, meta: &str) -> Result<bool, OpenError> {
        let Some((bytes, _)) = self.shared.load(meta).map_err(OpenError::Host)? else { return Ok(false) };
        if bytes.is_empty() {
            return Ok(false);
        }
        let shards = bytes.strip_prefix(&META_MAGIC).and_then(|shards| <[u8; 4]>::try_from(shards).ok());
        match shards.map(u32::from_le_bytes) {
            Some(found) if found == self.shards => Ok(true),
            Some(found) => Err(OpenError::OtherShards { asked: self.shards, found }),
            None => Err(OpenError::OtherVersion),
        }
    }

    /// The meta record comes last: whoever finds it need not look for the shards. One that exists is kept.
    fn make(&self, meta: &str) -> Result<(), SharedDataError> {
        for key in &self.keys {
            if self.shared.load(key)?.is_none() {
                let empty = Ledger::new(Capacity { accounts: 0, holds: 0 }, MEMORY).encode();
                self.shared.store(key, &empty, None)?;
            }
        }
        let record = [META_MAGIC, self.shards.to_le_bytes()].concat();
        self.shared.store(meta, &record, None)?;
        Ok(())
    }
}

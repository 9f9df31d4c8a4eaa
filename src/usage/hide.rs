//! Keeps the usage chunk that only we asked for from the client.
//!
//! An event is held back only while it may still turn out to be that chunk; every other byte passes in
//! the callback in which it came.

/// Whether the usage chunk is ours or the client's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HideUsage {
    /// We asked for it: the client must not see it.
    Hide,
    Keep,
}

/// What the client is to see of a chunk.
#[must_use = "a chunk that is not replaced shows the client what was to be hidden"]
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Passed {
    AsIs,
    /// These bytes in its place, perhaps none.
    Instead(Vec<u8>),
}

/// A usage chunk is a few hundred bytes; one that grows beyond this passes, whatever it turns out to be.
const MOST_HELD: usize = 64 * 1024;

/// What is held back of the event that is being read.
#[derive(Debug)]
pub(super) struct Gate {
    hide: HideUsage,
    event: Event,
    held: Vec<u8>,
    /// Events that grew beyond what is held back.
    too_large: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Event {
    /// None has begun.
    Between,
    Undecided,
    Passing,
}

/// One chunk on its way through the gate. Positions are offsets into it.
#[derive(Debug)]
pub(super) struct Passage<'a> {
    gate: &'a mut Gate,
    chunk: &'a [u8],
    /// All before this is in `out`, or hidden, unless the chunk is still untouched.
    from: usize,
    /// Where the undecided event begins in this chunk.
    open: usize,
    out: Option<Vec<u8>>,
}

impl Gate {
    pub(super) const fn new(hide: HideUsage) -> Self {
        Self { hide, event: Event::Between, held: Vec::new(), too_large: 0 }
    }

    pub(super) const fn too_large(&self) -> u64 {
        self.too_large
    }

    pub(super) const fn held(&self) -> usize {
        self.held.len()
    }

    pub(super) const fn pass<'a>(&'a mut self, chunk: &'a [u8]) -> Passage<'a> {
        Passage { gate: self, chunk, from: 0, open: 0, out: None }
    }

    /// The stream ended inside an event, which is the usage chunk or is not.
    pub(super) fn last(&mut self, verdict: Verdict) -> Vec<u8> {
        self.event = Event::Between;
        let held = std::mem::take(&mut self.held);
        match verdict {
            Verdict::Hide => Vec::new(),
            Verdict::Pass => held,
        }
    }
}

/// What is to become of a finished event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    Pass,
    Hide,
}

impl Passage<'_> {
    /// The first byte of a line that belongs to an event, and is not a comment before it, stands at `at`.
    pub(super) const fn begin(&mut self, at: usize) {
        if matches!((self.gate.hide, self.gate.event), (HideUsage::Hide, Event::Between)) {
            self.gate.event = Event::Undecided;
            self.open = at;
        }
    }

    /// The event is known not to be the usage chunk.
    pub(super) fn release(&mut self) {
        if self.gate.event == Event::Undecided {
            self.gate.event = Event::Passing;
            if !self.gate.held.is_empty() {
                // Held bytes come before all of this chunk, so nothing of it is out yet.
                self.out = Some(std::mem::take(&mut self.gate.held));
            }
        }
    }

    /// The event ended; its last byte stands before `end`. Returns what became of it.
    pub(super) fn end(&mut self, end: usize, verdict: Verdict) -> Verdict {
        let verdict = if self.gate.event == Event::Undecided { verdict } else { Verdict::Pass };
        match verdict {
            Verdict::Hide => {
                self.gate.held = Vec::new();
                self.drop_until(self.open, end);
            }
            Verdict::Pass => self.release(),
        }
        self.gate.event = Event::Between;
        verdict
    }

    /// Hides what stands from `start` up to `end`.
    pub(super) fn drop_until(&mut self, start: usize, end: usize) {
        let before = self.chunk.get(self.from..start).unwrap_or_default();
        self.out.get_or_insert_default().extend_from_slice(before);
        self.from = end;
    }

    pub(super) fn close(mut self) -> Passed {
        if self.gate.event == Event::Undecided {
            let own = self.chunk.get(self.open..).unwrap_or_default();
            self.drop_until(self.open, self.chunk.len());
            self.gate.held.extend_from_slice(own);
            if self.gate.held.len() > MOST_HELD {
                self.gate.event = Event::Passing;
                self.gate.too_large += 1;
                self.out.get_or_insert_default().append(&mut self.gate.held);
                self.gate.held = Vec::new();
            }
        }
        match self.out {
            None => Passed::AsIs,
            Some(mut out) => {
                out.extend_from_slice(self.chunk.get(self.from..).unwrap_or_default());
                Passed::Instead(out)
            }
        }
    }
}

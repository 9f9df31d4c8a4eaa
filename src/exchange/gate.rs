//! What all exchanges of one worker share.

use std::cell::{Cell, RefCell};

use crate::config::{FilterConfig, HeaderHold};
use crate::estimate::memo::TextMemo;
use crate::plan::Limits;

/// One per worker and policy.
#[derive(Debug)]
pub struct Gate {
    pub config: FilterConfig,
    pub(super) limits: Limits,
    pub(super) memo: RefCell<TextMemo>,
    /// What this worker has learned of its host, where the policy leaves it to us.
    holding: Cell<Holding>,
}

/// Whether the host shows bodies while it holds their headers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Holding {
    /// Not seen yet.
    Unknown,
    Works,
    /// The body comes only once the headers are gone.
    Fails,
}

/// Whether a request's headers are held while its body is read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Headers {
    /// Until the decision.
    Hold,
    /// For as long as it takes to tell whether this host can.
    Try,
    LetGo,
}

impl Gate {
    /// `memo_key` from the host's randomness.
    pub fn new(config: FilterConfig, memo_key: [u8; 16]) -> Self {
        Self {
            limits: Limits::of(&config),
            memo: RefCell::new(TextMemo::new(memo_key)),
            holding: Cell::new(Holding::Unknown),
            config,
        }
    }

    pub(super) fn headers(&self) -> Headers {
        match (self.config.header_hold, self.holding.get()) {
            (HeaderHold::Hold, _) | (HeaderHold::Auto, Holding::Works) => Headers::Hold,
            (HeaderHold::Auto, Holding::Unknown) => Headers::Try,
            (HeaderHold::None, _) | (HeaderHold::Auto, Holding::Fails) => Headers::LetGo,
        }
    }

    pub(super) fn learn(&self, holding: Holding) {
        // One body that came while its headers were held proves the host; a slow client proves nothing.
        if self.holding.get() != Holding::Works {
            self.holding.set(holding);
        }
    }
}

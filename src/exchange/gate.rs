//! What all exchanges of one worker share.

use std::cell::{Cell, RefCell};

use crate::config::{FilterConfig, HeaderHold};
use crate::estimate::learned::Correction;
use crate::estimate::memo::TextMemo;
use crate::plan::Limits;
use crate::remote::Service;

/// One per worker and policy.
#[derive(Debug)]
pub struct Gate {
    pub config: FilterConfig,
    pub(super) limits: Limits,
    pub(super) memo: RefCell<TextMemo>,
    /// Where the policy keeps its budgets at the counter service.
    pub service: Option<Service>,
    /// What this worker has learned of its host, where the policy leaves it to us.
    holding: Cell<Holding>,
    /// What all workers have learned of the models, as it was last looked up; by the index of their rules.
    corrections: Vec<Cell<Correction>>,
}

/// Whether the host shows bodies while it holds their headers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Holding {
    /// Not seen yet; so often a body came just after its headers were let go.
    Unknown {
        late: u8,
    },
    Works,
    /// The body comes only once the headers are gone.
    Fails,
}

/// One body that comes just after its headers were let go may have been sent just then by a slow client. So
/// many in a row, and none while its headers were held, are the host's doing.
const LATE_BODIES: u8 = 3;

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
            service: config.store.counter.as_ref().map(|_| Service::default()),
            holding: Cell::new(Holding::Unknown { late: 0 }),
            corrections: vec![Cell::new(Correction::NONE); config.models.len().saturating_add(1)],
            config,
        }
    }

    /// From now on requests for the model are held by this.
    pub fn correct(&self, model: usize, by: Correction) {
        if let Some(correction) = self.corrections.get(model) {
            correction.set(by);
        }
    }

    pub(super) fn correction(&self, model: usize) -> Correction {
        self.corrections.get(model).map_or(Correction::NONE, Cell::get)
    }

    pub(super) fn headers(&self) -> Headers {
        match (self.config.header_hold, self.holding.get()) {
            (HeaderHold::Hold, _) | (HeaderHold::Auto, Holding::Works) => Headers::Hold,
            (HeaderHold::Auto, Holding::Unknown { late: _ }) => Headers::Try,
            (HeaderHold::None, _) | (HeaderHold::Auto, Holding::Fails) => Headers::LetGo,
        }
    }

    /// A body came while its headers were held, which proves the host once and for all.
    pub(super) fn shows_bodies(&self) {
        self.holding.set(Holding::Works);
    }

    /// A body came just after its headers were let go.
    pub(super) fn showed_a_body_late(&self) {
        if let Holding::Unknown { late } = self.holding.get() {
            let late = late.saturating_add(1);
            self.holding.set(if late < LATE_BODIES { Holding::Unknown { late } } else { Holding::Fails });
        }
    }
}

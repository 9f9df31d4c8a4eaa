//! The host's shared memory, as far as budgets need it.

use std::fmt;

/// A key's version; the host changes it with every write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cas(pub u32);

/// Whether a write took place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stored {
    Written,
    /// Somebody else has written since the version was read.
    Conflict,
}

/// The host's status for a call that it could not carry out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SharedDataError {
    pub status: u32,
}

impl fmt::Display for SharedDataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the host answers shared data with status {}", self.status)
    }
}

/// Keys and values that all workers of the proxy see.
pub trait SharedData {
    /// Nothing for a key that was never written. A value may be empty and still have a version.
    fn load(&self, key: &str) -> Result<Option<(Vec<u8>, Cas)>, SharedDataError>;

    /// Writes if the version is still `cas`, or whatever it is without one. On a missing key it always writes.
    fn store(&self, key: &str, value: &[u8], cas: Option<Cas>) -> Result<Stored, SharedDataError>;
}

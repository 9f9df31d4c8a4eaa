//! A problem in a policy: where, and what would do.

use std::fmt;

/// What was found and what would do, and where.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct ConfigError {
    /// `limits[2].window.sliding`; empty for the document as a whole.
    pub path: String,
    pub problem: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.problem),
            path => write!(f, "{path}: {}", self.problem),
        }
    }
}

impl std::error::Error for ConfigError {}

//! Bytes → [`FilterConfig`], or every problem at once. The only door.

mod error;
pub mod pattern;
mod types;

pub use error::ConfigError;
pub use pattern::{Glob, PathPattern, RequestPath, Segment};
pub use types::*;

/// JSON text, as every host delivers it. An error names all problems of the policy, each with its path.
pub fn from_slice(_bytes: &[u8]) -> Result<FilterConfig, Vec<ConfigError>> {
    Err(Vec::new())
}

impl FilterConfig {
    /// As [`from_slice`].
    pub fn from_slice(bytes: &[u8]) -> Result<Self, Vec<ConfigError>> {
        from_slice(bytes)
    }
}

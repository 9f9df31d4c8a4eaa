//! What can be wrong with a body. Never carries a byte of it.

use std::error::Error;
use std::fmt;

/// Why a body cannot be metered: always the caller's fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BodyError {
    Empty,
    /// Not JSON from this byte on; literals like `NaN`, lone surrogates and trailing data included.
    NotJson {
        offset: usize,
    },
    NotUtf8 {
        offset: usize,
    },
    NotAnObject,
    TooDeep,
    TooManyParts,
    /// A value of a kind that the field cannot have.
    WrongType {
        field: &'static str,
    },
    /// Many requests in one body, which may be of many models.
    Batch,
    /// Given twice, where no reading is the safe one.
    Duplicate {
        field: &'static str,
    },
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("The request has no body."),
            Self::NotJson { offset } => write!(f, "The body is not valid JSON (at byte {offset})."),
            Self::NotUtf8 { offset } => write!(f, "The body is not valid UTF-8 (at byte {offset})."),
            Self::NotAnObject => f.write_str("The body is not a JSON object."),
            Self::TooDeep => f.write_str("The body is nested too deeply."),
            Self::TooManyParts => f.write_str("The body has too many messages or content parts."),
            Self::Batch => f.write_str("Batches are not metered here. Send their requests one by one."),
            Self::WrongType { field } => write!(f, "'{field}' has a value of the wrong type."),
            Self::Duplicate { field } => write!(f, "'{field}' is given more than once."),
        }
    }
}

impl Error for BodyError {}

//! The status codes of the ABI, numbered as the real host numbers them.

/// What a hostcall returns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub enum Status {
    Ok = 0,
    NotFound = 1,
    BadArgument = 2,
    SerializationFailure = 3,
    ParseFailure = 4,
    InvalidMemoryAccess = 6,
    Empty = 7,
    CasMismatch = 8,
    InternalFailure = 10,
    Unimplemented = 12,
}

/// The levels of `proxy_log`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[repr(u32)]
pub enum LogLevel {
    Trace = 0,
    Debug = 1,
    Info = 2,
    Warn = 3,
    Error = 4,
    Critical = 5,
}

impl LogLevel {
    pub(crate) fn from_wire(level: u32) -> Option<Self> {
        [Self::Trace, Self::Debug, Self::Info, Self::Warn, Self::Error, Self::Critical]
            .into_iter()
            .find(|known| *known as u32 == level)
    }
}

/// One line that the module logged, or wrote to its standard streams.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LogLine {
    pub level: LogLevel,
    /// The context whose callback ran; 1 is the root.
    pub context: u32,
    pub at_ms: u64,
    pub message: String,
}

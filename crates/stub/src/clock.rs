//! The wall clock, which sender and receiver of a stream share on one machine.

#[expect(clippy::disallowed_methods, reason = "a benchmark asks when bytes really left and came")]
pub fn nanoseconds() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

//! Points in time as RFC 3339 writes them.

use tollgate_budget::Timestamp;

/// The last second that a year of four digits has.
const LAST: u64 = 253_402_300_799;

/// `2026-01-01T00:00:00Z`; a part of a second counts as a whole one, so that nobody comes back too early.
pub(super) fn rfc3339(at: Timestamp) -> String {
    let seconds = at.as_millis().div_ceil(1000).min(LAST);
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of a count of days since 1970. The idea is Howard Hinnant's (`civil_from_days`): a year
/// that begins in March has its leap day at its end, and 400 such years always have the same length.
const fn civil(days: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    /// From the first of March of the year 0 to 1970.
    const BEFORE_1970: u64 = 719_468;
    let days = days + BEFORE_1970;
    let (era, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Five months from March on have 153 days, again and again.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let table = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (1_767_225_600, "2026-01-01T00:00:00Z"),
            (1_835_438_645, "2028-02-29T12:04:05Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (LAST, "9999-12-31T23:59:59Z"),
            (LAST + 1, "9999-12-31T23:59:59Z"),
            (u64::MAX / 1000, "9999-12-31T23:59:59Z"),
        ];
        for (seconds, date) in table {
            assert_eq!(rfc3339(Timestamp::from_millis(seconds * 1000)), date);
        }
        assert_eq!(rfc3339(Timestamp::from_millis(1)), "1970-01-01T00:00:01Z");
        let days: Vec<_> = (0..146_097).map(civil).collect();
        assert!(days.windows(2).all(|two| two[0] < two[1]), "no day comes twice");
        assert_eq!(civil(146_097), (2370, 1, 1));
    }
}

//! Samples of a load, and what is told of them.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Requests sent, whatever became of them.
    pub count: u64,
    /// Of these, without a whole answer.
    pub errors: u64,
    pub statuses: BTreeMap<u16, u64>,
    pub seconds: f64,
    pub latency_us: Spread,
    pub first_byte_us: Spread,
    /// From the stub's write to our read, for streams with stamps.
    pub chunk_delay_us: Spread,
}

/// In microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Spread {
    pub count: usize,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub max: f64,
}

/// Nanoseconds, unsorted.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    statuses: BTreeMap<u16, u64>,
    errors: u64,
    latency: Vec<u64>,
    first_byte: Vec<u64>,
    chunks: Vec<u64>,
}

impl Samples {
    pub(super) fn failed(&mut self) {
        self.errors += 1;
    }

    pub(super) fn answered(&mut self, status: u16, after: Duration) {
        *self.statuses.entry(status).or_default() += 1;
        self.latency.push(nanoseconds(after));
    }

    pub(super) fn first_byte(&mut self, after: Duration) {
        self.first_byte.push(nanoseconds(after));
    }

    pub(super) fn chunk(&mut self, delay: u64) {
        self.chunks.push(delay);
    }

    pub(super) fn add(&mut self, other: Self) {
        self.errors += other.errors;
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        self.latency.extend(other.latency);
        self.first_byte.extend(other.first_byte);
        self.chunks.extend(other.chunks);
    }

    pub(super) fn report(self, took: Duration) -> Report {
        Report {
            count: self.statuses.values().sum::<u64>() + self.errors,
            errors: self.errors,
            statuses: self.statuses,
            seconds: took.as_secs_f64(),
            latency_us: Spread::of(self.latency),
            first_byte_us: Spread::of(self.first_byte),
            chunk_delay_us: Spread::of(self.chunks),
        }
    }
}

impl Spread {
    fn of(mut nanoseconds: Vec<u64>) -> Self {
        nanoseconds.sort_unstable();
        let at = |hundredths: usize| {
            let place = (nanoseconds.len() * hundredths).div_ceil(100).saturating_sub(1);
            #[expect(clippy::cast_precision_loss, reason = "nobody measures half a year to the nanosecond")]
            let microseconds = nanoseconds.get(place).copied().unwrap_or_default() as f64 / 1000.0;
            microseconds
        };
        Self { count: nanoseconds.len(), p50: at(50), p90: at(90), p99: at(99), max: at(100) }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_sample_below_which_so_many_lie() {
        let spread = Spread::of((1..=200).rev().map(|n| n * 1000).collect());
        assert_eq!((spread.p50, spread.p90, spread.p99, spread.max), (100.0, 180.0, 198.0, 200.0));
        let one = Spread::of(vec![7000]);
        assert_eq!((one.p50, one.p99), (7.0, 7.0));
        assert_eq!(Spread::of(vec![]).p50, 0.0);
    }
}

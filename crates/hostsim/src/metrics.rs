//! Metrics of one process by name; ids belong to a VM and are new at every definition (F46, F47).

use std::collections::BTreeMap;

use crate::status::Status;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Metric {
    pub kind: Kind,
    /// Of a counter or a gauge.
    pub value: u64,
    /// Of a histogram.
    pub samples: Vec<u64>,
}

/// The ids that one VM holds.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    names: BTreeMap<u32, String>,
    last: u32,
}

/// An id tells its kind in its two low bits.
const KIND_BITS: u32 = 2;

impl Kind {
    fn from_wire(kind: u32) -> Option<Self> {
        match kind {
            0 => Some(Self::Counter),
            1 => Some(Self::Gauge),
            2 => Some(Self::Histogram),
            _ => None,
        }
    }
}

pub(crate) type Metrics = BTreeMap<String, Metric>;

impl Ids {
    pub(crate) fn define(&mut self, all: &mut Metrics, kind: u32, name: String) -> Result<u32, Status> {
        let known = Kind::from_wire(kind).ok_or(Status::BadArgument)?;
        let metric = all.entry(name.clone()).or_insert(Metric { kind: known, value: 0, samples: vec![] });
        // Envoy keeps a name per kind; two kinds under one name are a mistake worth failing on.
        if metric.kind != known {
            return Err(Status::BadArgument);
        }
        self.last += 1;
        let id = (self.last << KIND_BITS) | kind;
        self.names.insert(id, name);
        Ok(id)
    }

    /// How many definitions this VM has made: never per request (F47).
    pub(crate) fn count(&self) -> usize {
        self.names.len()
    }

    fn find<'m>(&self, all: &'m mut Metrics, id: u32) -> Result<&'m mut Metric, Status> {
        self.names.get(&id).and_then(|name| all.get_mut(name)).ok_or(Status::NotFound)
    }

    pub(crate) fn increment(&self, all: &mut Metrics, id: u32, by: i64) -> Result<(), Status> {
        let metric = self.find(all, id)?;
        match metric.kind {
            Kind::Counter if by > 0 => metric.value = metric.value.wrapping_add(by.unsigned_abs()),
            Kind::Counter | Kind::Histogram => return Err(Status::BadArgument),
            Kind::Gauge => metric.value = metric.value.wrapping_add_signed(by),
        }
        Ok(())
    }

    pub(crate) fn record(&self, all: &mut Metrics, id: u32, value: u64) -> Result<(), Status> {
        let metric = self.find(all, id)?;
        match metric.kind {
            Kind::Counter => metric.value = metric.value.wrapping_add(value),
            Kind::Gauge => metric.value = value,
            Kind::Histogram => metric.samples.push(value),
        }
        Ok(())
    }

    pub(crate) fn value(&self, all: &mut Metrics, id: u32) -> Result<u64, Status> {
        let metric = self.find(all, id)?;
        match metric.kind {
            Kind::Counter | Kind::Gauge => Ok(metric.value),
            Kind::Histogram => Err(Status::BadArgument),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_definition_gives_the_same_value_under_a_new_id() {
        let (mut all, mut ids) = (Metrics::new(), Ids::default());
        let first = ids.define(&mut all, 0, "c".into()).unwrap();
        let second = ids.define(&mut all, 0, "c".into()).unwrap();
        assert_ne!(first, second);
        assert_eq!(ids.increment(&mut all, first, 3), Ok(()));
        assert_eq!(ids.value(&mut all, second), Ok(3));
        assert_eq!(ids.increment(&mut all, first, 0), Err(Status::BadArgument));
        assert_eq!(ids.increment(&mut all, first, -1), Err(Status::BadArgument));
    }

    #[test]
    fn a_gauge_wraps_below_zero_and_a_histogram_cannot_be_read() {
        let (mut all, mut ids) = (Metrics::new(), Ids::default());
        let gauge = ids.define(&mut all, 1, "g".into()).unwrap();
        assert_eq!(ids.increment(&mut all, gauge, -1), Ok(()));
        assert_eq!(ids.value(&mut all, gauge), Ok(u64::MAX));
        let histogram = ids.define(&mut all, 2, "h".into()).unwrap();
        assert_eq!(ids.record(&mut all, histogram, 7), Ok(()));
        assert_eq!(ids.value(&mut all, histogram), Err(Status::BadArgument));
        assert_eq!(all["h"].samples, [7]);
        assert_eq!(ids.value(&mut all, 4000), Err(Status::NotFound));
    }
}

//! The proxy's shared data as the local store sees it.

use super::calls::{self, HostError};
use crate::local::{Cas, SharedData, SharedDataError, Stored};

/// One space for all workers of a proxy whose plugins share a `vm_id`.
#[derive(Debug)]
pub(super) struct HostSharedData;

impl SharedData for HostSharedData {
    fn load(&self, key: &str) -> Result<Option<(Vec<u8>, Cas)>, SharedDataError> {
        let (value, cas) = calls::shared_data(key).map_err(|_| SharedDataError)?;
        Ok(value.map(|value| (value, Cas::new(cas))))
    }

    fn store(&self, key: &str, value: &[u8], cas: Option<Cas>) -> Result<Stored, SharedDataError> {
        match calls::set_shared_data(key, value, cas.map_or(0, Cas::get)) {
            Ok(()) => Ok(Stored::Written),
            Err(HostError::CasMismatch) => Ok(Stored::Conflict),
            Err(HostError::NotFound | HostError::Status(_)) => Err(SharedDataError),
        }
    }
}

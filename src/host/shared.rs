//! The proxy's shared data as the local store sees it.

use super::calls::{self, HostError};
use crate::local::{Cas, SharedData, SharedDataError, Stored};

const UNCONDITIONAL: u32 = 0;

/// One space for all workers of a proxy whose plugins share a `vm_id`.
#[derive(Debug)]
pub(super) struct HostSharedData;

impl SharedData for HostSharedData {
    fn load(&self, key: &str) -> Result<Option<(Vec<u8>, Cas)>, SharedDataError> {
        let found = calls::shared_data(key).map_err(failed)?;
        Ok(found.map(|(value, cas)| (value, Cas(cas))))
    }

    fn store(&self, key: &str, value: &[u8], cas: Option<Cas>) -> Result<Stored, SharedDataError> {
        match calls::set_shared_data(key, value, cas.map_or(UNCONDITIONAL, |cas| cas.0)) {
            Ok(()) => Ok(Stored::Written),
            Err(HostError::CasMismatch) => Ok(Stored::Conflict),
            Err(error @ (HostError::NotFound | HostError::Status(_))) => Err(failed(error)),
        }
    }
}

const fn failed(error: HostError) -> SharedDataError {
    SharedDataError { status: error.status() }
}

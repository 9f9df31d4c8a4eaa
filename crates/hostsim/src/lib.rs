//! Test-only proxy.

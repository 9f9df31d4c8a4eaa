//! Exact token counting on static tables.

//! What can go wrong with a module: it does not load, it does not start, it traps.

use std::fmt;

/// The module cannot be run here at all.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum LoadError {
    /// Not WebAssembly, or not valid.
    Invalid(String),
    /// Imports that no host of ABI 0.2.1 offers, as `module.name`.
    UnknownImports(Vec<String>),
    /// The marker export `proxy_abi_version_0_2_1` is missing.
    NoAbi,
}

/// The VM came up, but the plugin refused to run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum StartError {
    VmStartRefused,
    /// `on_configure` returned false: Envoy then refuses to start, or rejects the update.
    ConfigureRefused,
    Trap(Trap),
}

/// The module stopped inside a callback. Its VM is dead from here on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Trap {
    /// The export that was running.
    pub callback: &'static str,
    pub message: String,
    /// The last line logged as critical: the SDK's panic hook puts the panic there.
    pub panic: Option<String>,
}

impl fmt::Display for LoadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(why) => write!(out, "not a valid module: {why}"),
            Self::UnknownImports(names) => write!(out, "unknown imports: {}", names.join(", ")),
            Self::NoAbi => out.write_str("no export proxy_abi_version_0_2_1"),
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::VmStartRefused => out.write_str("on_vm_start returned false"),
            Self::ConfigureRefused => out.write_str("on_configure returned false"),
            Self::Trap(trap) => trap.fmt(out),
        }
    }
}

impl fmt::Display for Trap {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} trapped: {}", self.callback, self.message)?;
        match &self.panic {
            Some(panic) => write!(out, " ({panic})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for LoadError {}
impl std::error::Error for StartError {}
impl std::error::Error for Trap {}

impl From<Trap> for StartError {
    fn from(trap: Trap) -> Self {
        Self::Trap(trap)
    }
}

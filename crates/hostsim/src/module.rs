//! The compiled module, checked against what a host offers before anything runs.

use wasmi::{Config, Engine};

use crate::error::LoadError;
use crate::imports::Imports;

/// Translated once; cheap to clone, and any number of processes run it.
#[derive(Clone, Debug)]
pub struct Module {
    pub(crate) engine: Engine,
    pub(crate) code: wasmi::Module,
}

/// The version of the ABI this host speaks.
const ABI: &str = "proxy_abi_version_0_2_1";

impl Module {
    /// Takes a `.wasm`, or the text format.
    pub fn load(bytes: impl AsRef<[u8]>) -> Result<Self, LoadError> {
        let engine = Engine::new(Config::default().consume_fuel(true));
        let code =
            wasmi::Module::new(&engine, bytes.as_ref()).map_err(|why| LoadError::Invalid(why.to_string()))?;
        let known = Imports::new(&engine);
        let unknown: Vec<String> = code
            .imports()
            .filter(|import| !known.offers(import.module(), import.name()))
            .map(|import| format!("{}.{}", import.module(), import.name()))
            .collect();
        if !unknown.is_empty() {
            return Err(LoadError::UnknownImports(unknown));
        }
        if code.get_export(ABI).is_none() {
            return Err(LoadError::NoAbi);
        }
        Ok(Self { engine, code })
    }

    pub fn exports(&self) -> Vec<String> {
        self.code.exports().map(|export| export.name().to_owned()).collect()
    }
}

/// Every import of a module as `module.name`, known to this host or not; empty when it does not parse.
pub fn imports(bytes: &[u8]) -> Vec<String> {
    let engine = Engine::default();
    let Ok(code) = wasmi::Module::new(&engine, bytes) else { return Vec::new() };
    code.imports().map(|import| format!("{}.{}", import.module(), import.name())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test program loads it once and runs it from every thread.
    #[test]
    fn a_module_is_shared_between_threads() {
        fn shared<T: Send + Sync + Clone>() {}
        shared::<Module>();
    }

    #[test]
    fn an_import_no_host_offers_is_named() {
        let text = r#"(module
            (import "env" "proxy_log" (func (param i32 i32 i32) (result i32)))
            (import "env" "proxy_teleport" (func))
            (import "wasi_snapshot_preview1" "sock_accept" (func))
            (func (export "proxy_abi_version_0_2_1")))"#;
        let expected = vec!["env.proxy_teleport".into(), "wasi_snapshot_preview1.sock_accept".into()];
        assert_eq!(Module::load(text).unwrap_err(), LoadError::UnknownImports(expected));
        assert_eq!(imports(text.as_bytes()).len(), 3);
        assert_eq!(Module::load("(module)").unwrap_err(), LoadError::NoAbi);
        assert!(matches!(Module::load("(modul)"), Err(LoadError::Invalid(_))));
    }
}

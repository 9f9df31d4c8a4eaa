//! WASI, as far as Rust's library leans on it.

use tollgate_hostsim::{LogLevel, Module, Process, VmOptions};

/// Prints the environment, draws four random bytes into the log, and exits when it is ticked.
const SOURCE: &str = r#"(module
    (import "env" "proxy_log" (func $log (param i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "environ_get" (func $environ (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (memory (export "memory") 1)
    (data (i32.const 0) "\64\00\00\00\05\00\00\00")
    (func (export "proxy_abi_version_0_2_1"))
    (func (export "_initialize")
        (drop (call $environ (i32.const 16) (i32.const 100)))
        (drop (call $write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 32)))
        (drop (call $random (i32.const 40) (i32.const 8)))
        (drop (call $log (i32.const 0) (i32.const 40) (i32.const 8))))
    (func (export "proxy_on_tick") (param i32) (call $exit (i32.const 3))))"#;

#[test]
fn the_environment_is_the_plugins_and_randomness_is_the_seeds() {
    let module = Module::load(SOURCE).unwrap();
    let drawn = |seed| {
        let process = Process::new(&module).seeded(seed);
        let environment = vec![("KEY".into(), "x".into())];
        let vm = process.vm(VmOptions { environment, ..VmOptions::default() });
        vm.start().unwrap();
        assert_eq!(vm.messages(LogLevel::Error), ["KEY=x"]);
        vm.messages(LogLevel::Trace)
    };
    assert_eq!(drawn(1), drawn(1));
    assert_ne!(drawn(1), drawn(2));
}

#[test]
fn an_exit_is_a_trap() {
    let vm = Process::new(&Module::load(SOURCE).unwrap()).vm(VmOptions::default());
    vm.start().unwrap();
    assert!(vm.tick().unwrap_err().message.contains("proc_exit(3)"));
}

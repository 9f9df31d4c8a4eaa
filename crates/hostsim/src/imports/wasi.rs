//! The part of WASI preview 1 that Envoy's host offers and Rust's library imports.

use wasmi::Caller;

use super::memory::{read, write, write_u32, write_u64};
use super::{Cx, Fault, Imports, system};
use crate::state::HostState;
use crate::status::LogLevel;

const MODULE: &str = "wasi_snapshot_preview1";

/// WASI's error numbers.
mod errno {
    pub(super) const OK: u32 = 0;
    pub(super) const BAD_DESCRIPTOR: u32 = 8;
    pub(super) const FAULT: u32 = 21;
    pub(super) const NOT_SUPPORTED: u32 = 58;
}

const STDOUT: u32 = 1;
const STDERR: u32 = 2;
const REALTIME: u32 = 0;
const MONOTONIC: u32 = 1;

/// Links functions that answer with an error number.
macro_rules! wasi {
    ($imports:expr; $($name:ident($($argument:ident: $word:ty),*) $act:expr;)*) => {$(
        $imports.linker.func_wrap(
            MODULE,
            stringify!($name),
            |mut cx: Caller<'_, HostState>, $($argument: $word),*| -> Result<u32, wasmi::Error> {
                let act: fn(&mut Cx<'_>, $($word),*) -> Result<u32, Fault> = $act;
                answer(act(&mut cx, $($argument),*))
            },
        ).expect("every function is linked once");
        $imports.names.insert((MODULE, stringify!($name)));
    )*};
}

pub(super) fn link(imports: &mut Imports) {
    wasi! { imports;
        fd_write(fd: u32, parts: u32, count: u32, to: u32) fd_write;
        environ_sizes_get(to_count: u32, to_size: u32) environ_sizes_get;
        environ_get(to: u32, text: u32) environ_get;
        args_sizes_get(to_count: u32, to_size: u32) |cx, to_count, to_size| {
            write_u32(cx, to_count, 0)?;
            write_u32(cx, to_size, 0)?;
            Ok(errno::OK)
        };
        args_get(to: u32, text: u32) |_, _, _| Ok(errno::OK);
        clock_time_get(clock: u32, precision: u64, to: u32) clock_time_get;
        random_get(to: u32, size: u32) |cx, to, size| {
            let bytes = cx.data_mut().random.fill(size as usize);
            write(cx, to, &bytes)?;
            Ok(errno::OK)
        };
        sched_yield() |_| Ok(errno::OK);
        fd_close(fd: u32) |_, _| Ok(errno::NOT_SUPPORTED);
        fd_fdstat_get(fd: u32, to: u32) fd_fdstat_get;
        fd_seek(fd: u32, offset: i64, whence: u32, to: u32) |_, _, _, _, _| Ok(errno::NOT_SUPPORTED);
        fd_read(fd: u32, parts: u32, count: u32, to: u32) |_, _, _, _, _| Ok(errno::NOT_SUPPORTED);
        fd_prestat_get(fd: u32, to: u32) |_, _, _| Ok(errno::BAD_DESCRIPTOR);
        fd_prestat_dir_name(fd: u32, to: u32, size: u32) |_, _, _, _| Ok(errno::BAD_DESCRIPTOR);
        poll_oneoff(wanted: u32, to: u32, count: u32, to_count: u32) |_, _, _, _, _| Ok(errno::NOT_SUPPORTED);
    }
    let exit = |_: Caller<'_, HostState>, code: i32| -> Result<(), wasmi::Error> {
        Err(wasmi::Error::new(format!("the module called proc_exit({code})")))
    };
    imports.linker.func_wrap(MODULE, "proc_exit", exit).expect("every function is linked once");
    imports.names.insert((MODULE, "proc_exit"));
}

fn answer(outcome: Result<u32, Fault>) -> Result<u32, wasmi::Error> {
    match outcome {
        Ok(number) => Ok(number),
        Err(Fault::Status(_)) => Ok(errno::FAULT),
        Err(Fault::Trap(error)) => Err(error),
    }
}

fn fd_write(cx: &mut Cx<'_>, fd: u32, parts: u32, count: u32, to: u32) -> Result<u32, Fault> {
    let level = match fd {
        STDOUT => LogLevel::Info,
        STDERR => LogLevel::Error,
        _ => return Ok(errno::BAD_DESCRIPTOR),
    };
    let mut text = Vec::new();
    for nth in 0..count {
        let at = word(cx, parts + nth * 8)?;
        let size = word(cx, parts + nth * 8 + 4)?;
        text.extend(read(cx, at, size)?);
    }
    write_u32(cx, to, text.len() as u32)?;
    let text = String::from_utf8_lossy(&text).trim_end_matches('\n').to_owned();
    if !text.is_empty() {
        system::record(cx, level, text);
    }
    Ok(errno::OK)
}

fn word(cx: &Cx<'_>, at: u32) -> Result<u32, Fault> {
    let bytes = read(cx, at, 4)?;
    Ok(bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte)))
}

fn environ_sizes_get(cx: &mut Cx<'_>, to_count: u32, to_size: u32) -> Result<u32, Fault> {
    let lines = environment(cx);
    write_u32(cx, to_count, lines.len() as u32)?;
    write_u32(cx, to_size, lines.iter().map(|line| line.len() as u32).sum())?;
    Ok(errno::OK)
}

fn environ_get(cx: &mut Cx<'_>, mut to: u32, mut text: u32) -> Result<u32, Fault> {
    for line in environment(cx) {
        write_u32(cx, to, text)?;
        write(cx, text, line.as_bytes())?;
        to += 4;
        text += line.len() as u32;
    }
    Ok(errno::OK)
}

fn environment(cx: &Cx<'_>) -> Vec<String> {
    cx.data().options.environment.iter().map(|(name, value)| format!("{name}={value}\0")).collect()
}

fn clock_time_get(cx: &mut Cx<'_>, clock: u32, _precision: u64, to: u32) -> Result<u32, Fault> {
    let (wall_ns, steady_ns) = {
        let world = cx.data().world.borrow();
        (world.wall_ns, world.steady_ns)
    };
    let now = match clock {
        REALTIME => wall_ns,
        MONOTONIC => steady_ns,
        _ => return Ok(errno::NOT_SUPPORTED),
    };
    write_u64(cx, to, now)?;
    Ok(errno::OK)
}

/// The standard streams are character devices; there is no other descriptor.
fn fd_fdstat_get(cx: &mut Cx<'_>, fd: u32, to: u32) -> Result<u32, Fault> {
    const CHARACTER_DEVICE: u8 = 2;
    const SIZE: usize = 24;
    if fd > STDERR {
        return Ok(errno::BAD_DESCRIPTOR);
    }
    let mut stat = [0; SIZE];
    stat[0] = CHARACTER_DEVICE;
    write(cx, to, &stat)?;
    Ok(errno::OK)
}

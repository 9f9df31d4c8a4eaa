//! Log, time, ticks, contexts.

use super::memory::{read, read_text, write_u32, write_u64};
use super::{Cx, Outcome};
use crate::state::{ROOT, Shutdown, Tick};
use crate::status::{LogLevel, LogLine, Status};

pub(super) fn proxy_log(cx: &mut Cx<'_>, level: u32, text: u32, size: u32) -> Outcome {
    let level = LogLevel::from_wire(level).ok_or(Status::BadArgument)?;
    let message = read_text(cx, text, size)?;
    record(cx, level, message);
    Ok(())
}

pub(super) fn record(cx: &mut Cx<'_>, level: LogLevel, message: String) {
    let host = cx.data_mut();
    let at_ms = host.world.borrow().now_ms();
    host.records.log.push(LogLine { level, context: host.context(), at_ms, message });
}

pub(super) fn proxy_get_log_level(cx: &mut Cx<'_>, to: u32) -> Outcome {
    let level = cx.data().options.log_level;
    write_u32(cx, to, level as u32)
}

pub(super) fn proxy_get_current_time_nanoseconds(cx: &mut Cx<'_>, to: u32) -> Outcome {
    let now = cx.data().world.borrow().wall_ns;
    write_u64(cx, to, now)
}

pub(super) fn proxy_set_tick_period_milliseconds(cx: &mut Cx<'_>, period: u32) -> Outcome {
    let host = cx.data_mut();
    let period_ns = u64::from(period) * 1_000_000;
    let due_ns = host.world.borrow().steady_ns + period_ns;
    host.tick = (period > 0).then_some(Tick { period_ns, due_ns });
    Ok(())
}

/// A context that has gone is refused, and the caller stays who it was (F50).
pub(super) fn proxy_set_effective_context(cx: &mut Cx<'_>, context: u32) -> Outcome {
    let host = cx.data_mut();
    if context != ROOT && !host.streams.contains_key(&context) {
        return Err(Status::BadArgument.into());
    }
    host.effective = Some(context);
    Ok(())
}

pub(super) fn proxy_done(cx: &mut Cx<'_>) -> Outcome {
    let host = cx.data_mut();
    if host.shutdown != Shutdown::Pending {
        return Err(Status::NotFound.into());
    }
    host.shutdown = Shutdown::Done;
    Ok(())
}

/// None is offered: what a filter does without them is what must be tested (F62).
pub(super) fn proxy_call_foreign_function(
    cx: &mut Cx<'_>,
    name: u32,
    name_size: u32,
    _arguments: u32,
    _arguments_size: u32,
    _to: u32,
    _to_size: u32,
) -> Outcome {
    read(cx, name, name_size)?;
    Err(Status::NotFound.into())
}

//! The hostcalls of ABI 0.2.1 and the part of WASI that Envoy's host offers.

mod buffers;
mod calls;
mod headers;
mod memory;
mod metrics;
mod properties;
mod queues;
mod shared;
mod streams;
mod system;
mod wasi;

use std::collections::BTreeSet;

use wasmi::{Caller, Engine, Linker};

use crate::state::HostState;
use crate::status::Status;

/// The host's end of one hostcall.
type Cx<'a> = Caller<'a, HostState>;

/// A hostcall either answers with a status or takes the VM down.
enum Fault {
    Status(Status),
    Trap(wasmi::Error),
}

type Outcome = Result<(), Fault>;

impl From<Status> for Fault {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<wasmi::Error> for Fault {
    fn from(error: wasmi::Error) -> Self {
        Self::Trap(error)
    }
}

pub(crate) struct Imports {
    pub(crate) linker: Linker<HostState>,
    names: BTreeSet<(&'static str, &'static str)>,
}

/// Links functions whose names are the hostcalls' names.
macro_rules! hostcalls {
    ($imports:expr; $($module:ident::$name:ident($($argument:ident: $word:ty),*);)*) => {$(
        $imports.linker.func_wrap(
            "env",
            stringify!($name),
            |mut cx: Caller<'_, HostState>, $($argument: $word),*| -> Result<u32, wasmi::Error> {
                answer(&mut cx, stringify!($name), |cx| $module::$name(cx, $($argument),*))
            },
        ).expect("every hostcall is linked once");
        $imports.names.insert(("env", stringify!($name)));
    )*};
}

impl Imports {
    pub(crate) fn new(engine: &Engine) -> Self {
        let mut imports = Self { linker: Linker::new(engine), names: BTreeSet::new() };
        imports.link_hostcalls();
        imports.link_unimplemented();
        wasi::link(&mut imports);
        imports
    }

    pub(crate) fn offers(&self, module: &str, name: &str) -> bool {
        self.names.contains(&(module, name))
    }

    fn link_hostcalls(&mut self) {
        hostcalls! { self;
            system::proxy_log(level: u32, text: u32, size: u32);
            system::proxy_get_log_level(to: u32);
            system::proxy_get_current_time_nanoseconds(to: u32);
            system::proxy_set_tick_period_milliseconds(period: u32);
            system::proxy_set_effective_context(context: u32);
            system::proxy_done();
            system::proxy_call_foreign_function(name: u32, name_size: u32, arguments: u32, arguments_size: u32, to: u32, to_size: u32);
            buffers::proxy_get_buffer_bytes(kind: u32, start: u32, most: u32, to: u32, to_size: u32);
            buffers::proxy_set_buffer_bytes(kind: u32, start: u32, replaced: u32, from: u32, size: u32);
            headers::proxy_get_header_map_pairs(kind: u32, to: u32, to_size: u32);
            headers::proxy_set_header_map_pairs(kind: u32, from: u32, size: u32);
            headers::proxy_get_header_map_value(kind: u32, name: u32, name_size: u32, to: u32, to_size: u32);
            headers::proxy_add_header_map_value(kind: u32, name: u32, name_size: u32, value: u32, value_size: u32);
            headers::proxy_replace_header_map_value(kind: u32, name: u32, name_size: u32, value: u32, value_size: u32);
            headers::proxy_remove_header_map_value(kind: u32, name: u32, name_size: u32);
            properties::proxy_get_property(path: u32, path_size: u32, to: u32, to_size: u32);
            properties::proxy_set_property(path: u32, path_size: u32, value: u32, value_size: u32);
            shared::proxy_get_shared_data(key: u32, key_size: u32, to: u32, to_size: u32, to_cas: u32);
            shared::proxy_set_shared_data(key: u32, key_size: u32, value: u32, value_size: u32, cas: u32);
            queues::proxy_register_shared_queue(name: u32, name_size: u32, to: u32);
            queues::proxy_resolve_shared_queue(vm_id: u32, vm_id_size: u32, name: u32, name_size: u32, to: u32);
            queues::proxy_enqueue_shared_queue(queue: u32, item: u32, item_size: u32);
            queues::proxy_dequeue_shared_queue(queue: u32, to: u32, to_size: u32);
            streams::proxy_continue_stream(side: u32);
            streams::proxy_close_stream(side: u32);
            streams::proxy_send_local_response(code: u32, details: u32, details_size: u32, body: u32, body_size: u32, headers: u32, headers_size: u32, grpc: i32);
            calls::proxy_http_call(cluster: u32, cluster_size: u32, headers: u32, headers_size: u32, body: u32, body_size: u32, trailers: u32, trailers_size: u32, timeout: u32, to: u32);
            metrics::proxy_define_metric(kind: u32, name: u32, name_size: u32, to: u32);
            metrics::proxy_increment_metric(metric: u32, by: i64);
            metrics::proxy_record_metric(metric: u32, value: u64);
            metrics::proxy_get_metric(metric: u32, to: u32);
        }
    }

    /// gRPC is in the ABI and no part of any test here.
    fn link_unimplemented(&mut self) {
        hostcalls! { self;
            unimplemented::proxy_grpc_call(a: u32, b: u32, c: u32, d: u32, e: u32, f: u32, g: u32, h: u32, i: u32, j: u32, k: u32, l: u32);
            unimplemented::proxy_grpc_stream(a: u32, b: u32, c: u32, d: u32, e: u32, f: u32, g: u32, h: u32, i: u32);
            unimplemented::proxy_grpc_send(a: u32, b: u32, c: u32, d: u32);
            unimplemented::proxy_grpc_cancel(a: u32);
            unimplemented::proxy_grpc_close(a: u32);
            unimplemented::proxy_get_status(a: u32, b: u32, c: u32);
        }
    }
}

/// Counts the call, asks the capability restriction, and turns the outcome into a status.
fn answer<'a>(
    cx: &mut Cx<'a>,
    name: &'static str,
    act: impl FnOnce(&mut Cx<'a>) -> Outcome,
) -> Result<u32, wasmi::Error> {
    let host = cx.data_mut();
    *host.records.hostcalls.entry(name).or_default() += 1;
    if host.options.denied.iter().any(|denied| denied == name) {
        return Ok(Status::InternalFailure as u32);
    }
    match act(cx) {
        Ok(()) => Ok(Status::Ok as u32),
        Err(Fault::Status(status)) => Ok(status as u32),
        Err(Fault::Trap(error)) => Err(error),
    }
}

mod unimplemented {
    use super::{Cx, Outcome};
    use crate::status::Status;

    macro_rules! refuse {
        ($($name:ident($($argument:ident),*);)*) => {$(
            #[allow(clippy::too_many_arguments, reason = "the ABI's own signature")]
            pub(super) fn $name(_: &mut Cx<'_>, $(_: refuse!(@word $argument)),*) -> Outcome {
                Err(Status::Unimplemented.into())
            }
        )*};
        (@word $argument:ident) => { u32 };
    }

    refuse! {
        proxy_grpc_call(a, b, c, d, e, f, g, h, i, j, k, l);
        proxy_grpc_stream(a, b, c, d, e, f, g, h, i);
        proxy_grpc_send(a, b, c, d);
        proxy_grpc_cancel(a);
        proxy_grpc_close(a);
        proxy_get_status(a, b, c);
    }
}

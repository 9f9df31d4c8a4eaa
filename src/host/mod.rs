//! The proxy's side: callbacks become inputs, effects become hostcalls. Decides nothing.

mod calls;
mod clock;
mod http;
mod root;
mod service;
mod shared;
mod worker;

proxy_wasm::main! {{
    proxy_wasm::set_log_level(proxy_wasm::types::LogLevel::Warn);
    proxy_wasm::set_root_context(|context| Box::new(root::Root::new(context)));
}}

//! The floor under every figure of `make bench`: a module that the host calls as often as it calls
//! Tollgate, and that does nothing. Empty except for the wasm target.
#![cfg(target_arch = "wasm32")]

use proxy_wasm::{
    traits::{Context, HttpContext, RootContext},
    types::{Action, ContextType, LogLevel},
};

proxy_wasm::main! {{
    proxy_wasm::set_log_level(LogLevel::Warn);
    proxy_wasm::set_root_context(|_| Box::new(Nothing));
}}

struct Nothing;

impl Context for Nothing {}

impl RootContext for Nothing {
    fn create_http_context(&self, _: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Self))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

/// Spelt out, though the defaults do the same: these four calls are what is measured.
impl HttpContext for Nothing {
    fn on_http_request_headers(&mut self, _: usize, _: bool) -> Action {
        Action::Continue
    }

    fn on_http_request_body(&mut self, _: usize, _: bool) -> Action {
        Action::Continue
    }

    fn on_http_response_headers(&mut self, _: usize, _: bool) -> Action {
        Action::Continue
    }

    fn on_http_response_body(&mut self, _: usize, _: bool) -> Action {
        Action::Continue
    }
}

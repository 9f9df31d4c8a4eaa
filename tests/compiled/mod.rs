//! What only the module can show: what it asks of a host, how much memory and work it takes, and that no
//! host and no input makes it trap.

mod abuse;
mod footprint;
mod work;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tollgate_hostsim::imports;

use crate::common::proxy::compiled::{CompiledProxy, module_bytes};
use crate::common::proxy::{Proxy, Stream};
use crate::common::requests::Ask;
use crate::flows::{launch, merged, tokens};

/// Everything the module may ask of a host. A new line here is a new demand on every host there is.
const ALLOWED: &str = include_str!("allowed-imports.txt");

#[test]
fn the_module_asks_of_its_host_exactly_what_the_list_allows() {
    let asked: BTreeSet<String> = imports(&module_bytes()).into_iter().collect();
    let allowed: BTreeSet<String> = ALLOWED.lines().map(str::to_owned).collect();
    assert_eq!(asked, allowed);
}

/// Room for any prompt.
fn roomy() -> Value {
    merged(tokens(4_000_000_000), json!({"hold": {"max_output_tokens": 1000}}))
}

fn user(text: &str) -> Ask {
    Ask::new(10).with("messages", json!([{"role": "user", "content": text}]))
}

/// English of so many bytes that repeats nothing near.
fn prose(bytes: usize) -> String {
    const WORDS: [&str; 16] = [
        "harbour", " the", " quick", "ferry", " 17", " leaves", ", when", " morning", " Ünder", " tide",
        ".\n", " of", " (see", " note)", " and", " boats",
    ];
    let mut text = String::new();
    let mut state = 1_u64;
    while text.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        text.push_str(WORDS[usize::try_from(state >> 60).unwrap()]);
    }
    text
}

/// Instructions that one exchange up to its decision takes.
fn fuel(proxy: &CompiledProxy, ask: &Ask) -> u64 {
    let vm = proxy.vm(0);
    vm.reset_fuel();
    let seen = ask.send(proxy).seen();
    assert!(seen.passed() || seen.client.status().is_some());
    vm.fuel_used()
}

fn roomy_proxy() -> CompiledProxy {
    launch(&roomy())
}

#[test]
fn a_series_is_defined_once_however_often_it_counts() {
    let proxy = CompiledProxy::launch(&crate::common::proxy::Setup::new(&tokens(1_000_000)));
    let exchange = || crate::common::requests::answer(&Ask::new(10).send(&proxy), 9, 1);
    exchange();
    let defined = proxy.vm(0).metric_definitions();
    (0..50).for_each(|_| exchange());
    assert_eq!(proxy.vm(0).metric_definitions(), defined);
}

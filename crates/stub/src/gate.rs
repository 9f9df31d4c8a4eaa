//! Gates: requests that wait until a test lets them go.
//!
//! With a delay, a test of what happens *while* answers are under way is a race against the
//! machine. Behind a gate they are under way until the test has seen enough.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;

#[derive(Clone, Debug, Default)]
pub struct Gates(Arc<Mutex<HashMap<String, watch::Sender<Gate>>>>);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Gate {
    Shut,
    Open,
}

impl Gates {
    /// Returns once the gate is open, which it then stays.
    pub async fn pass(&self, name: &str) {
        let mut gate = self.with(name, watch::Sender::subscribe);
        // An error means that the gate is gone, and with it the reason to wait.
        let _ = gate.wait_for(|state| *state == Gate::Open).await;
    }

    pub fn open(&self, name: &str) {
        self.with(name, |gate| gate.send_replace(Gate::Open));
    }

    pub fn waiting(&self, name: &str) -> usize {
        self.with(name, watch::Sender::receiver_count)
    }

    fn with<T>(&self, name: &str, act: impl FnOnce(&watch::Sender<Gate>) -> T) -> T {
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        act(gates.entry(name.to_owned()).or_insert_with(|| watch::Sender::new(Gate::Shut)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_gate_holds_until_it_is_opened_and_then_lets_everyone_pass() {
        let gates = Gates::default();
        let held = tokio::spawn({
            let gates = gates.clone();
            async move { gates.pass("a").await }
        });
        while gates.waiting("a") == 0 {
            tokio::task::yield_now().await;
        }
        assert!(!held.is_finished());
        gates.open("a");
        held.await.unwrap();
        gates.pass("a").await;
        assert_eq!(gates.waiting("a"), 0);
    }
}

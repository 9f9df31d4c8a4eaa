//! Flags and environment → [`Settings`], or every problem at once.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::store::redis::Target;
use crate::tokens::Tokens;

/// A token that can be guessed is none: sixteen characters are 64 bits even if they are only hexadecimal.
pub const TOKEN_LEN_LEAST: usize = 16;

/// What was asked for, as text.
#[derive(Clone, Debug, Default)]
pub struct Raw {
    pub listen: String,
    /// `memory`, or the URL of a Redis.
    pub store: String,
    /// Certificates to trust when the connection to Redis is encrypted, as PEM.
    pub store_authorities: Option<Vec<u8>>,
    pub store_timeout_ms: u64,
    pub drain_ms: u64,
    pub tokens: Tokens,
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub listen: SocketAddr,
    pub store: StoreSettings,
    pub tokens: Tokens,
    /// How long requests under way may take once the service is told to stop.
    pub drain: Duration,
}

#[derive(Clone, Debug)]
pub enum StoreSettings {
    Memory,
    Redis { target: Target, timeout: Duration },
}

/// A setting that cannot be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SettingError {
    /// The flag.
    pub path: &'static str,
    pub problem: String,
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.problem)
    }
}

impl std::error::Error for SettingError {}

impl Settings {
    pub fn read(raw: Raw) -> Result<Self, Vec<SettingError>> {
        let mut errors = Vec::new();
        let mut tell = |path, problem: String| errors.push(SettingError { path, problem });
        let listen: Option<SocketAddr> = match raw.listen.parse() {
            Ok(address) => Some(address),
            Err(_) => {
                tell("--listen", "expected an address and a port, as in `127.0.0.1:8081`".to_owned());
                None
            }
        };
        let Tokens { gateway, administrator } = &raw.tokens;
        for (path, token) in [(GATEWAY, gateway), (ADMINISTRATOR, administrator)] {
            if token.as_ref().is_some_and(|token| !is_token(token)) {
                let problem = format!(
                    "expected {TOKEN_LEN_LEAST} or more printable characters without spaces, since it is all that keeps others out"
                );
                tell(path, problem);
            }
        }
        if gateway.is_some() && gateway == administrator {
            tell(ADMINISTRATOR, "the same as the gateways' token, which then opens everything".to_owned());
        }
        if let Some(listen) = listen
            && !listen.ip().is_loopback()
        {
            for (path, token) in [(GATEWAY, gateway), (ADMINISTRATOR, administrator)] {
                if token.is_none() {
                    let problem =
                        format!("must be set to listen on {listen}: others than this machine can reach it");
                    tell(path, problem);
                }
            }
        }
        let timeout = Duration::from_millis(raw.store_timeout_ms);
        if timeout.is_zero() {
            tell("--store-timeout-ms", "expected one millisecond at least".to_owned());
        }
        let store = match raw.store.as_str() {
            "memory" => Some(StoreSettings::Memory),
            url => match Target::parse(url) {
                Ok(target) => {
                    let target = match raw.store_authorities {
                        Some(pem) => target.trusting(pem),
                        None => target,
                    };
                    Some(StoreSettings::Redis { target, timeout })
                }
                Err(problem) => {
                    tell("--store", format!("neither `memory` nor a Redis: {problem}"));
                    None
                }
            },
        };
        match (listen, store) {
            (Some(listen), Some(store)) if errors.is_empty() => {
                let drain = Duration::from_millis(raw.drain_ms);
                Ok(Self { listen, store, tokens: raw.tokens, drain })
            }
            (_, _) => Err(errors),
        }
    }
}

/// Where the tokens come from: flags would show in the list of processes.
pub const GATEWAY: &str = "TOLLGATE_TOKEN";
pub const ADMINISTRATOR: &str = "TOLLGATE_ADMIN_TOKEN";

fn is_token(token: &str) -> bool {
    token.len() >= TOKEN_LEN_LEAST && token.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(listen: &str, gateway: Option<&str>, administrator: Option<&str>) -> Raw {
        let tokens =
            Tokens { gateway: gateway.map(str::to_owned), administrator: administrator.map(str::to_owned) };
        let (listen, store) = (listen.to_owned(), "memory".to_owned());
        Raw { listen, store, tokens, store_timeout_ms: 40, ..Raw::default() }
    }

    const ONE: Option<&str> = Some("0123456789abcdef");
    const OTHER: Option<&str> = Some("fedcba9876543210");

    #[test]
    fn nobody_else_is_listened_to_without_both_tokens() {
        assert!(Settings::read(raw("127.0.0.1:8081", None, None)).is_ok());
        assert!(Settings::read(raw("[::1]:8081", None, None)).is_ok());
        assert!(Settings::read(raw("0.0.0.0:8081", ONE, OTHER)).is_ok());
        for (gateway, administrator, missing) in [
            (None, None, &[GATEWAY, ADMINISTRATOR][..]),
            (ONE, None, &[ADMINISTRATOR]),
            (None, ONE, &[GATEWAY]),
        ] {
            let errors = Settings::read(raw("0.0.0.0:8081", gateway, administrator)).unwrap_err();
            let paths: Vec<_> = errors.iter().map(|error| error.path).collect();
            assert_eq!(paths, missing);
        }
    }

    #[test]
    fn every_problem_is_told_at_once() {
        let mut bad = raw("localhost", Some("short"), Some("with spaces in it, though long"));
        bad.store = "mercury".to_owned();
        let errors = Settings::read(bad).unwrap_err();
        let paths: Vec<_> = errors.iter().map(|error| error.path).collect();
        assert_eq!(paths, ["--listen", GATEWAY, ADMINISTRATOR, "--store"]);
        let errors = Settings::read(raw("127.0.0.1:1", ONE, ONE)).unwrap_err();
        assert_eq!(errors[0].path, ADMINISTRATOR);
    }
}

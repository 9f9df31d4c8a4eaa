//! `tollgate check`: the filter's own door, and what it thinks of a policy, in words.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use tollgate::config::{ConfigError, FilterConfig};

use crate::input::{self, Policy};
use crate::{summary, warnings};

/// Problems and warnings to `err`, one a line; the summary to `out` when there are no problems.
pub(crate) fn run(path: &Path, out: &mut impl Write, err: &mut impl Write) -> io::Result<ExitCode> {
    let policies = match input::policies(path, input::read(path)?) {
        Ok(policies) => policies,
        Err(error) => {
            writeln!(err, "{error}")?;
            return Ok(ExitCode::FAILURE);
        }
    };
    let mut code = ExitCode::SUCCESS;
    for policy in &policies {
        match FilterConfig::from_slice(&policy.json) {
            Ok(config) => {
                for warning in warnings::all(&config) {
                    writeln!(err, "warning: {}", placed(policy, &warning))?;
                }
                write!(out, "{}", summary::Summary(&config))?;
            }
            Err(problems) => {
                code = ExitCode::FAILURE;
                for problem in &problems {
                    writeln!(err, "{}", placed(policy, problem))?;
                }
            }
        }
    }
    Ok(code)
}

/// With the policy's own place in a larger document before the path.
fn placed(policy: &Policy, error: &ConfigError) -> ConfigError {
    let dot = if policy.place.is_empty() || error.path.is_empty() { "" } else { "." };
    ConfigError { path: format!("{}{dot}{}", policy.place, error.path), problem: error.problem.clone() }
}

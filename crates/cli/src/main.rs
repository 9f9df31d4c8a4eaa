//! `tollgate`: check a policy, count a request, serve the counter. Wiring only; what is enforced is decided in the library.

mod check;
mod count;
mod input;
mod overshoot;
mod serve;
mod summary;
mod warnings;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tollgate::chat::Dialect;

/// Token budgets for LLM gateways.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check a policy: every problem with its path, or in plain words what it enforces
    Check {
        /// YAML or JSON; an Envoy configuration that loads the filter will do; `-` for standard input
        policy: PathBuf,
    },
    /// Count the tokens of a request
    Count {
        /// What the request is spelt for, by the word of a policy's routes, such as `anthropic_messages`
        #[arg(long, default_value = "openai_chat", value_parser = count::dialect)]
        api: Dialect,
        /// The model to count for, instead of the one that the request names
        #[arg(long)]
        model: Option<String>,
        /// Count by this policy's table of models and its holds
        #[arg(long)]
        policy: Option<PathBuf>,
        /// The request's body, as JSON; `-` for standard input
        request: PathBuf,
    },
    /// Answer gateways that share their budgets: one account for all of them, in memory or in Redis
    Serve(serve::Flags),
    /// Print the policy's JSON Schema
    #[command(hide = true)]
    Schema,
}

fn main() -> ExitCode {
    let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
    let done = match Cli::parse().command {
        Command::Check { policy } => check::run(&policy, &mut out, &mut err),
        Command::Count { api: dialect, model, policy, request } => {
            count::run(&count::Question { dialect, model, policy, request }, &mut out, &mut err)
        }
        Command::Serve(flags) => serve::run(flags, &mut out, &mut err),
        Command::Schema => schema(&mut out),
    };
    match done {
        Ok(code) => code,
        // Whoever reads us has closed the pipe; there is nobody left to tell.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(err, "tollgate: {error}");
            ExitCode::from(2)
        }
    }
}

fn schema(out: &mut impl Write) -> io::Result<ExitCode> {
    serde_json::to_writer_pretty(&mut *out, &tollgate::config::schema())?;
    writeln!(out)?;
    Ok(ExitCode::SUCCESS)
}

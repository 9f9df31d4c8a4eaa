//! `tollgate serve`: flags and environment become settings, and the service runs until it is asked to end.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use tollgate_counter::Tokens;
use tollgate_counter::settings::{ADMINISTRATOR, GATEWAY, Raw, Settings};
use tollgate_counter::shutdown;

/// Gateways wait 50 ms unless their policy says otherwise, and should be told what is wrong before they give up.
const STORE_TIMEOUT_MS: u64 = 40;

/// Longer than any answer takes; orchestrators wait three times as long before they kill.
const DRAIN_MS: u64 = 10_000;

/// Tokens come from the environment only: TOLLGATE_TOKEN for gateways, TOLLGATE_ADMIN_TOKEN for administration.
#[derive(Args, Debug)]
#[command(after_help = "Environment:
  TOLLGATE_TOKEN        the bearer token that gateways send
  TOLLGATE_ADMIN_TOKEN  the one that opens accounts and amounts as well
Without them everybody who reaches the address may do everything, so it must be a loopback address.")]
pub(crate) struct Flags {
    /// Where to listen; port 0 takes a free one, which is printed
    #[arg(long, env = "TOLLGATE_LISTEN", default_value = "127.0.0.1:8081", value_name = "ADDRESS")]
    listen: String,
    /// `memory`, or `redis://[user:password@]host[:port]`, `redis+sentinel://host,host/master`,
    /// `redis+cluster://host,host`; `rediss…` encrypts
    #[arg(
        long,
        env = "TOLLGATE_STORE",
        hide_env_values = true,
        default_value = "memory",
        value_name = "URL"
    )]
    store: String,
    /// A file of certificates to trust instead of the machine's, for `rediss…`
    #[arg(long, env = "TOLLGATE_STORE_CA", value_name = "PEM")]
    store_ca: Option<PathBuf>,
    /// How long one step of the store may take
    #[arg(long, default_value_t = STORE_TIMEOUT_MS, value_name = "MS")]
    store_timeout_ms: u64,
    /// How long requests under way may take once the service is asked to end
    #[arg(long, default_value_t = DRAIN_MS, value_name = "MS")]
    drain_ms: u64,
}

pub(crate) fn run(flags: Flags, out: &mut impl Write, err: &mut impl Write) -> io::Result<ExitCode> {
    let Flags { listen, store, store_ca, store_timeout_ms, drain_ms } = flags;
    let store_authorities = store_ca.as_deref().map(crate::input::read).transpose()?;
    let token = |name| std::env::var(name).ok();
    let tokens = Tokens { gateway: token(GATEWAY), administrator: token(ADMINISTRATOR) };
    let raw = Raw { listen, store, store_authorities, store_timeout_ms, drain_ms, tokens };
    let settings = match Settings::read(raw) {
        Ok(settings) => settings,
        Err(errors) => {
            for error in errors {
                writeln!(err, "tollgate: {error}")?;
            }
            return Ok(ExitCode::FAILURE);
        }
    };
    let runtime = tokio::runtime::Runtime::new()?;
    let mut told = Ok(());
    let served = runtime.block_on(shutdown::run(settings, |address| {
        told = writeln!(out, "listening on http://{address}").and_then(|()| out.flush());
    }));
    told?;
    match served {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            writeln!(err, "tollgate: {error}")?;
            Ok(ExitCode::FAILURE)
        }
    }
}

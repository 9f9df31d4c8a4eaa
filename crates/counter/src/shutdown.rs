//! From start to end: serve, and end without losing what is under way.

use std::future::{Future, IntoFuture};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;

use crate::clock;
use crate::http;
use crate::service::Service;
use crate::settings::{Settings, StoreSettings};
use crate::store::memory::MemoryStore;
use crate::store::redis::RedisStore;
use crate::store::{Store, StoreError};
use crate::tokens::Tokens;

/// Rounds of the sweeper begin this far apart: a lease that ends is told about as soon as it matters to a
/// dashboard, and not sooner.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// Why the service does not run.
#[derive(Debug)]
pub enum ServeError {
    /// The address cannot be listened on.
    Listen(SocketAddr, io::Error),
    /// The store cannot be used as it was described.
    Store(StoreError),
    Io(io::Error),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(address, error) => write!(f, "{address} cannot be listened on: {error}"),
            Self::Store(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ServeError {}

/// The whole service, until the process is asked to end. `listening` is told where, once it answers.
pub async fn run(settings: Settings, listening: impl FnOnce(SocketAddr)) -> Result<(), ServeError> {
    let Settings { listen, store, tokens, drain } = settings;
    let listener = TcpListener::bind(listen).await.map_err(|error| ServeError::Listen(listen, error))?;
    listening(listener.local_addr().map_err(ServeError::Io)?);
    let stop = asked().map_err(ServeError::Io)?;
    let served = match store {
        StoreSettings::Memory => {
            let service = Service::new(MemoryStore::default(), clock::system);
            serve(listener, Arc::new(service), tokens, stop, drain).await
        }
        StoreSettings::Redis { target, timeout } => {
            let store = RedisStore::new(target, timeout).map_err(ServeError::Store)?;
            let service = Service::new(store, clock::system);
            serve(listener, Arc::new(service), tokens, stop, drain).await
        }
    };
    served.map_err(ServeError::Io)
}

/// Serves until told to stop, and then until all that was asked has been answered, or `drain` has passed.
pub async fn serve<S: Store>(
    listener: TcpListener,
    service: Arc<Service<S>>,
    tokens: Tokens,
    stop: impl Future<Output = ()> + Send + 'static,
    drain: Duration,
) -> io::Result<()> {
    let sweeper = tokio::spawn(sweep(Arc::clone(&service)));
    let (stopping, stopped) = oneshot::channel();
    let listener = listener.tap_io(|socket| {
        // Answers are small and waited for. A socket that will not be told so still works.
        let _ = socket.set_nodelay(true);
    });
    let serving = axum::serve(listener, http::router(service, tokens)).with_graceful_shutdown(async move {
        stop.await;
        let _ = stopping.send(());
    });
    let late = async move {
        let _ = stopped.await;
        tokio::time::sleep(drain).await;
    };
    let result = tokio::select! {
        result = serving.into_future() => result,
        () = late => Ok(()),
    };
    sweeper.abort();
    result
}

async fn sweep<S: Store>(service: Arc<Service<S>>) {
    let mut rounds = tokio::time::interval(SWEEP_EVERY);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        service.sweep().await;
    }
}

/// Until somebody asks the process to end.
fn asked() -> io::Result<impl Future<Output = ()> + Send> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    })
}

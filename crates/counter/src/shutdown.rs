//! From start to end: serve, and end without losing what is under way.

use std::future::{Future, IntoFuture};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;

use crate::http;
use crate::service::Service;
use crate::store::Store;
use crate::tokens::Tokens;

/// Rounds of the sweeper begin this far apart: a lease that ends is told about as soon as it matters to a
/// dashboard, and not sooner.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// Serves until told to stop, and then until all that was asked has been answered, or `drain` has passed.
pub async fn serve<S: Store>(
    listener: TcpListener,
    service: Service<S>,
    tokens: Tokens,
    stop: impl Future<Output = ()> + Send + 'static,
    drain: Duration,
) -> io::Result<()> {
    let service = Arc::new(service);
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
pub async fn asked() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = term.recv() => Ok(()),
        _ = int.recv() => Ok(()),
    }
}

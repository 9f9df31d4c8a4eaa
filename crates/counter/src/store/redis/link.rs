//! The connection to Redis: one, shared by all, made again when it breaks. It pipelines by itself whatever is
//! asked at the same time.

use std::fmt;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisError, RedisResult, ScriptInvocation,
    ServerErrorKind, Value, from_redis_value,
};
use tokio::sync::Mutex;

use crate::store::StoreError;

/// Where Redis is.
#[derive(Clone)]
pub enum Target {
    /// `redis://user:password@host:port/database`.
    Single(String),
}

/// Without the password that a URL may carry.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single(_) => f.write_str("Single"),
        }
    }
}

/// What may be asked.
#[derive(Clone, Copy)]
pub(super) enum Question<'a> {
    Script(&'a ScriptInvocation<'a>),
    Command(&'a Cmd),
}

impl Question<'_> {
    async fn ask(self, connection: &mut MultiplexedConnection) -> RedisResult<Value> {
        match self {
            // By its hash; a Redis that does not know it is given the text.
            Self::Script(call) => call.invoke_async(connection).await,
            Self::Command(command) => command.query_async(connection).await,
        }
    }
}

pub(super) struct Link {
    client: Client,
    config: AsyncConnectionConfig,
    /// Numbered, so that of many calls that see it break only the first throws it away.
    current: Mutex<(u64, Option<MultiplexedConnection>)>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}

impl Link {
    /// Where a walk through all keys begins.
    pub(super) const FIRST: &'static str = "0";

    pub(super) fn new(target: Target, timeout: Duration) -> Result<Self, StoreError> {
        let Target::Single(url) = target;
        let client = Client::open(url).map_err(|error| told(&error))?;
        // The store has its own time limit on every step; that of the crate would say the same once more.
        let config =
            AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(Some(timeout));
        Ok(Self { client, config, current: Mutex::new((0, None)) })
    }

    /// Asks, and once more on a new connection if the old one broke.
    pub(super) async fn ask(&self, question: Question<'_>) -> Result<Value, StoreError> {
        let (number, mut connection) = self.connection().await?;
        match question.ask(&mut connection).await {
            Err(error) if is_lost(&error) => self.lost(number).await,
            result => return result.map_err(|error| told(&error)),
        }
        let (number, mut connection) = self.connection().await?;
        let result = question.ask(&mut connection).await;
        if let Err(error) = &result
            && is_lost(error)
        {
            self.lost(number).await;
        }
        result.map_err(|error| told(&error))
    }

    /// One step of a walk through all keys that fit a pattern.
    pub(super) async fn scan(
        &self,
        pattern: &str,
        from: &str,
        count: usize,
    ) -> Result<(Vec<String>, Option<String>), StoreError> {
        let from: u64 = from.parse().map_err(|_| StoreError::Cursor)?;
        let mut scan = redis::cmd("SCAN");
        scan.arg(from).arg("MATCH").arg(pattern).arg("COUNT").arg(count);
        let answer = self.ask(Question::Command(&scan)).await?;
        let (next, keys): (u64, Vec<String>) = from_redis_value(answer).map_err(|_| StoreError::Nonsense)?;
        Ok((keys, (next != 0).then(|| next.to_string())))
    }

    pub(super) async fn ping(&self) -> Result<(), StoreError> {
        self.ask(Question::Command(&redis::cmd("PING"))).await.map(|_| ())
    }

    async fn connection(&self) -> Result<(u64, MultiplexedConnection), StoreError> {
        let mut current = self.current.lock().await;
        if let (number, Some(connection)) = &*current {
            return Ok((*number, connection.clone()));
        }
        // All others wait here meanwhile, each no longer than its own time.
        let made = self.client.get_multiplexed_async_connection_with_config(&self.config).await;
        let made = made.map_err(|error| told(&error))?;
        *current = (current.0 + 1, Some(made.clone()));
        Ok((current.0, made))
    }

    async fn lost(&self, number: u64) {
        let mut current = self.current.lock().await;
        if current.0 == number {
            current.1 = None;
        }
    }
}

/// Whether another connection might do better: this one broke, or leads to what is no master any more.
fn is_lost(error: &RedisError) -> bool {
    let kind = error.kind();
    kind == ErrorKind::Io
        || error.is_connection_dropped()
        || kind == ErrorKind::Server(ServerErrorKind::ReadOnly)
        || kind == ErrorKind::Server(ServerErrorKind::MasterDown)
}

fn told(error: &RedisError) -> StoreError {
    if error.is_timeout() {
        return StoreError::Slow;
    }
    if error.is_io_error() || error.is_connection_dropped() {
        return StoreError::Away;
    }
    if let Some(code) = error.code() {
        return StoreError::Unwilling(code.to_owned());
    }
    let kind = error.kind();
    if kind == ErrorKind::AuthenticationFailed {
        StoreError::Unwilling("AUTH".to_owned())
    } else if kind == ErrorKind::Parse || kind == ErrorKind::UnexpectedReturnType {
        StoreError::Nonsense
    } else {
        StoreError::Away
    }
}

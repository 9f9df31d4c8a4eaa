//! The connection to Redis: one, shared by all, made again when it breaks or leads to what is no master any
//! more. It pipelines by itself whatever is asked at the same time.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
use redis::sentinel::SentinelClient;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisError, RedisResult, ScriptInvocation,
    ServerErrorKind, Value, from_redis_value,
};
use tokio::sync::Mutex;

use super::target::{Kind, Target};
use crate::store::StoreError;

/// Of a command in a cluster, within its deadline: once for a slot that has moved, once more for a node that
/// is gone.
const CLUSTER_RETRIES: u32 = 2;

/// Milliseconds between them; a deadline is not much longer.
const CLUSTER_RETRY_WAIT: u64 = 10;

/// Questions in a row without an answer after which the connection is made again: whoever was at its other end
/// may be gone without a word, and only a new one finds whoever took its place.
const UNANSWERED_MOST: u32 = 8;

pub(super) struct Link {
    source: Source,
    config: AsyncConnectionConfig,
    /// Numbered, so that of many calls that see it break only the first throws it away.
    current: Mutex<(u64, Option<Connection>)>,
    /// Questions in a row that were given up.
    unanswered: AtomicU32,
}

enum Source {
    Single(Box<Client>),
    Sentinel(Box<Mutex<SentinelClient>>),
    Cluster(Box<ClusterClient>),
}

#[derive(Clone)]
enum Connection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// What may be asked.
#[derive(Clone, Copy)]
pub(super) enum Question<'a> {
    Script(&'a ScriptInvocation<'a>),
    Command(&'a Cmd),
    /// Of one node of a cluster.
    Node(&'a Cmd, &'a Node),
}

/// A master of a cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Node {
    id: String,
    host: String,
    port: u16,
}

impl Question<'_> {
    async fn ask(self, connection: &mut Connection) -> RedisResult<Value> {
        // A script is called by its hash; a Redis that does not know it is given the text.
        match (self, connection) {
            (Self::Script(call), Connection::Single(connection)) => call.invoke_async(connection).await,
            (Self::Script(call), Connection::Cluster(connection)) => call.invoke_async(connection).await,
            (Self::Command(command) | Self::Node(command, _), Connection::Single(connection)) => {
                command.query_async(connection).await
            }
            (Self::Command(command), Connection::Cluster(connection)) => {
                command.query_async(connection).await
            }
            (Self::Node(command, Node { host, port, id: _ }), Connection::Cluster(connection)) => {
                let node = SingleNodeRoutingInfo::ByAddress { host: host.clone(), port: *port };
                connection.route_command(command.clone(), RoutingInfo::SingleNode(node)).await
            }
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}

impl Link {
    /// Where a walk through all keys begins.
    pub(super) const FIRST: &'static str = "0";

    pub(super) fn new(target: &Target, timeout: Duration) -> Result<Self, StoreError> {
        let source = source(target, timeout).map_err(|error| told(&error))?;
        // The store has its own time limit on every step; that of the crate would say the same once more.
        let config =
            AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(Some(timeout));
        Ok(Self { source, config, current: Mutex::new((0, None)), unanswered: AtomicU32::new(0) })
    }

    /// A question was given up after its time.
    pub(super) fn gave_up(&self) {
        self.unanswered.fetch_add(1, Ordering::Relaxed);
    }

    /// Asks, and once more on a new connection if the old one broke.
    pub(super) async fn ask(&self, question: Question<'_>) -> Result<Value, StoreError> {
        let (number, mut connection) = self.connection().await?;
        match question.ask(&mut connection).await {
            Err(error) if is_lost(&error) => self.lost(number).await,
            result => {
                self.unanswered.store(0, Ordering::Relaxed);
                return result.map_err(|error| told(&error));
            }
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

    /// One step of a walk through all keys that fit a pattern. A cursor is a number, and in a cluster the
    /// node that it means something to.
    pub(super) async fn scan(
        &self,
        pattern: &str,
        from: &str,
        count: usize,
    ) -> Result<(Vec<String>, Option<String>), StoreError> {
        let (number, node) = from.split_once('@').unwrap_or((from, ""));
        let number: u64 = number.parse().map_err(|_| StoreError::Cursor)?;
        let mut scan = redis::cmd("SCAN");
        scan.arg(number).arg("MATCH").arg(pattern).arg("COUNT").arg(count);
        let (node, rest) = match &self.source {
            Source::Single(_) | Source::Sentinel(_) => (None, Vec::new()),
            Source::Cluster(_) => {
                // In the order of their ids, so that a walk goes on where it was when nodes come and go.
                let mut left = self.masters().await?.into_iter().filter(|master| master.id.as_str() >= node);
                let Some(first) = left.next() else { return Ok((Vec::new(), None)) };
                (Some(first), left.collect())
            }
        };
        let question = node.as_ref().map_or(Question::Command(&scan), |node| Question::Node(&scan, node));
        let answer = self.ask(question).await?;
        let (next, keys): (u64, Vec<String>) = from_redis_value(answer).map_err(|_| StoreError::Nonsense)?;
        let cursor = |number: u64, node: &Option<Node>| match node {
            None => number.to_string(),
            Some(node) => format!("{number}@{}", node.id),
        };
        let next = match (next, rest.into_iter().next()) {
            (0, None) => None,
            (0, another) => Some(cursor(0, &another)),
            (next, _) => Some(cursor(next, &node)),
        };
        Ok((keys, next))
    }

    pub(super) async fn ping(&self) -> Result<(), StoreError> {
        self.ask(Question::Command(&redis::cmd("PING"))).await.map(|_| ())
    }

    /// A cluster's masters, by their ids.
    async fn masters(&self) -> Result<Vec<Node>, StoreError> {
        let mut command = redis::cmd("CLUSTER");
        command.arg("NODES");
        let answer = self.ask(Question::Command(&command)).await?;
        let text: String = from_redis_value(answer).map_err(|_| StoreError::Nonsense)?;
        let mut masters: Vec<Node> = text.lines().filter_map(master).collect();
        masters.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(masters)
    }

    async fn connection(&self) -> Result<(u64, Connection), StoreError> {
        let mut current = self.current.lock().await;
        if self.unanswered.load(Ordering::Relaxed) >= UNANSWERED_MOST {
            self.unanswered.store(0, Ordering::Relaxed);
            current.1 = None;
        }
        if let (number, Some(connection)) = &*current {
            return Ok((*number, connection.clone()));
        }
        // All others wait here meanwhile, each no longer than its own time.
        let made = self.connect().await.map_err(|error| told(&error))?;
        *current = (current.0 + 1, Some(made.clone()));
        Ok((current.0, made))
    }

    async fn connect(&self) -> RedisResult<Connection> {
        match &self.source {
            Source::Single(client) => {
                let connection = client.get_multiplexed_async_connection_with_config(&self.config).await?;
                Ok(Connection::Single(connection))
            }
            Source::Sentinel(client) => {
                let mut client = client.lock().await;
                let connection = client.get_async_connection_with_config(&self.config).await?;
                Ok(Connection::Single(connection))
            }
            Source::Cluster(client) => Ok(Connection::Cluster(client.get_async_connection().await?)),
        }
    }

    async fn lost(&self, number: u64) {
        let mut current = self.current.lock().await;
        // A cluster's connection mends itself, node by node; a new one would lose what is under way to the others.
        let mends_itself = matches!(current.1, Some(Connection::Cluster(_)));
        if current.0 == number && !mends_itself {
            current.1 = None;
        }
    }
}

fn source(target: &Target, timeout: Duration) -> RedisResult<Source> {
    if target.is_encrypted() {
        // It is no error that somebody has chosen one before.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let mut nodes = target.nodes()?;
    Ok(match target.kind() {
        Kind::Single { .. } => {
            let only = nodes.pop().ok_or((ErrorKind::InvalidClientConfig, "no node"))?;
            Source::Single(Box::new(target.client(only)?))
        }
        Kind::Sentinel { master } => Source::Sentinel(Box::new(Mutex::new(target.sentinels(master)?))),
        Kind::Cluster => {
            let mut builder = ClusterClient::builder(nodes)
                .retries(CLUSTER_RETRIES)
                .min_retry_wait(CLUSTER_RETRY_WAIT)
                .max_retry_wait(CLUSTER_RETRY_WAIT)
                .connection_timeout(timeout)
                .response_timeout(timeout);
            if let Some(tls) = target.tls() {
                builder = builder.tls(tls);
            }
            if let Some(certificates) = target.certificates() {
                builder = builder.certs(certificates);
            }
            Source::Cluster(Box::new(builder.build()?))
        }
    })
}

/// `id host:port@bus,name flags …`, as `CLUSTER NODES` tells one.
fn master(line: &str) -> Option<Node> {
    let mut words = line.split(' ');
    let (id, address, flags) = (words.next()?, words.next()?, words.next()?);
    let is_master =
        flags.split(',').any(|flag| flag == "master") && !flags.split(',').any(|flag| flag == "fail");
    let (address, _) = address.split_once('@')?;
    let (host, port) = address.rsplit_once(':')?;
    let node = Node { id: id.to_owned(), host: host.to_owned(), port: port.parse().ok()? };
    is_master.then_some(node)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masters_are_found_in_what_a_cluster_tells() {
        let node = |id: &str, host: &str| Node { id: id.into(), host: host.into(), port: 7001 };
        for (line, expected) in [
            ("a1 127.0.0.1:7001@17001 myself,master - 0 0 1 connected 0-5460", Some(node("a1", "127.0.0.1"))),
            ("b2 ::1:7001@17001,name master - 0 0 1 connected", Some(node("b2", "::1"))),
            ("c3 127.0.0.1:7001@17001 slave a1 0 0 1 connected", None),
            ("d4 127.0.0.1:7001@17001 master,fail - 0 0 1 disconnected", None),
            ("", None),
        ] {
            assert_eq!(master(line), expected, "{line}");
        }
    }
}

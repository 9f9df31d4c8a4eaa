//! Where Redis is, as text: a URL with one server, the sentinels of a master, or some nodes of a cluster.
//!
//! `redis://user:password@host:port/database`, `redis+sentinel://…@host:port,host:port/master`,
//! `redis+cluster://…@host:port,host:port`; with `rediss` the connection is encrypted. User and password are
//! percent-encoded; either may be left out.

use std::fmt;

use percent_encoding::percent_decode_str;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, RedisResult,
    TlsCertificates, TlsMode,
};

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

#[derive(Clone, Eq, PartialEq)]
pub struct Target {
    kind: Kind,
    nodes: Vec<Node>,
    username: Option<String>,
    password: Option<String>,
    encrypted: bool,
    /// Certificates that are trusted instead of the machine's, as PEM.
    authorities: Option<Vec<u8>>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Single { database: i64 },
    Sentinel { master: String },
    Cluster,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Node {
    host: String,
    port: u16,
}

/// Without name and password.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, nodes, encrypted, .. } = self;
        write!(f, "{kind:?} {nodes:?} {}", if *encrypted { "encrypted" } else { "plain" })
    }
}

impl Target {
    /// What is wrong with the text, if anything, without repeating it: it may carry a password.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (scheme, rest) = text.split_once("://").ok_or("expected `redis://host:port`")?;
        let (scheme, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        let encrypted = match scheme {
            "redis" => false,
            "rediss" => true,
            _ => return Err("expected it to begin with `redis` or `rediss`"),
        };
        // The last one: a password that was not encoded may have another.
        let (user, rest) = rest.rsplit_once('@').map_or((None, rest), |(user, rest)| (Some(user), rest));
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (kind, port) = match kind {
            "" if path.is_empty() => (Kind::Single { database: 0 }, PORT),
            "" => {
                let database = path.parse().map_err(|_| "expected the number of a database after the `/`")?;
                (Kind::Single { database }, PORT)
            }
            "sentinel" if path.is_empty() => return Err("expected the master's name after a `/`"),
            "sentinel" => (Kind::Sentinel { master: path.to_owned() }, SENTINEL_PORT),
            "cluster" if path.is_empty() => (Kind::Cluster, PORT),
            "cluster" => return Err("a cluster has no databases: expected nothing after the nodes"),
            _ => return Err("expected `+sentinel`, `+cluster` or nothing after `redis`"),
        };
        let nodes: Vec<Node> = hosts
            .split(',')
            .map(|host| Node::parse(host, port))
            .collect::<Option<_>>()
            .ok_or("expected `host:port`, several with commas between them")?;
        if nodes.len() > 1 && matches!(kind, Kind::Single { .. }) {
            return Err(
                "several nodes are a cluster or sentinels: write `redis+cluster` or `redis+sentinel`",
            );
        }
        let (username, password) = match user.map(|user| user.split_once(':').unwrap_or((user, ""))) {
            None => (None, None),
            Some((username, password)) => (decoded(username)?, decoded(password)?),
        };
        Ok(Self { kind, nodes, username, password, encrypted, authorities: None })
    }

    /// Trusts these certificates instead of the machine's.
    #[must_use]
    pub fn trusting(self, pem: Vec<u8>) -> Self {
        Self { authorities: Some(pem), ..self }
    }

    pub(super) const fn kind(&self) -> &Kind {
        &self.kind
    }

    pub(super) const fn is_encrypted(&self) -> bool {
        self.encrypted
    }

    pub(super) const fn tls(&self) -> Option<TlsMode> {
        if self.encrypted { Some(TlsMode::Secure) } else { None }
    }

    pub(super) fn certificates(&self) -> Option<TlsCertificates> {
        let root_cert = Some(self.authorities.clone()?);
        Some(TlsCertificates { client_tls: None, root_cert })
    }

    /// Every node with what it wants to hear first.
    pub(super) fn nodes(&self) -> RedisResult<Vec<ConnectionInfo>> {
        let mut redis = RedisConnectionInfo::default();
        if let Some(username) = &self.username {
            redis = redis.set_username(username);
        }
        if let Some(password) = &self.password {
            redis = redis.set_password(password);
        }
        if let Kind::Single { database } = self.kind {
            redis = redis.set_db(database);
        }
        let info =
            |address: ConnectionAddr| Ok(address.into_connection_info()?.set_redis_settings(redis.clone()));
        self.addresses().map(info).collect()
    }

    fn addresses(&self) -> impl Iterator<Item = ConnectionAddr> {
        self.nodes.iter().map(|Node { host, port }| {
            let (host, port) = (host.clone(), *port);
            if self.encrypted {
                ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
            } else {
                ConnectionAddr::Tcp(host, port)
            }
        })
    }

    pub(super) fn client(&self, node: ConnectionInfo) -> RedisResult<Client> {
        match self.certificates().filter(|_| self.encrypted) {
            Some(certificates) => Client::build_with_tls(node, certificates),
            None => Client::open(node),
        }
    }

    /// Sentinels are asked with the same name and password as Redis.
    pub(super) fn sentinels(&self, master: &str) -> RedisResult<SentinelClient> {
        let mut builder = SentinelClientBuilder::new(self.addresses(), master, SentinelServerType::Master)?;
        if let Some(username) = &self.username {
            builder =
                builder.set_client_to_redis_username(username).set_client_to_sentinel_username(username);
        }
        if let Some(password) = &self.password {
            builder =
                builder.set_client_to_redis_password(password).set_client_to_sentinel_password(password);
        }
        if self.encrypted {
            builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
            builder = builder.set_client_to_sentinel_tls_mode(TlsMode::Secure);
            if let Some(certificates) = self.certificates() {
                builder = builder.set_client_to_redis_certificates(certificates.clone());
                builder = builder.set_client_to_sentinel_certificates(certificates);
            }
        }
        builder.build()
    }
}

impl Node {
    fn parse(text: &str, default: u16) -> Option<Self> {
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (host, port) = rest.split_once(']')?;
            (host, port.strip_prefix(':'))
        } else {
            text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)))
        };
        let port = port.map_or(Some(default), |port| port.parse().ok())?;
        (!host.is_empty()).then(|| Self { host: host.to_owned(), port })
    }
}

/// Nothing is no name and no password.
fn decoded(text: &str) -> Result<Option<String>, &'static str> {
    let text = percent_decode_str(text).decode_utf8().map_err(|_| "name and password must be UTF-8")?;
    Ok((!text.is_empty()).then(|| text.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        for (text, expected) in [
            ("redis://localhost", "Single { database: 0 } [Node { host: \"localhost\", port: 6379 }] plain"),
            ("rediss://r:1/3", "Single { database: 3 } [Node { host: \"r\", port: 1 }] encrypted"),
            ("redis://[::1]:7", "Single { database: 0 } [Node { host: \"::1\", port: 7 }] plain"),
            (
                "redis+sentinel://a,b:2/main",
                "Sentinel { master: \"main\" } [Node { host: \"a\", port: 26379 }, Node { host: \"b\", port: 2 }] plain",
            ),
            ("rediss+cluster://a", "Cluster [Node { host: \"a\", port: 6379 }] encrypted"),
        ] {
            assert_eq!(format!("{:?}", Target::parse(text).unwrap()), expected);
        }
        let target = Target::parse("redis://tollgate:p%40ss%2Fword@h").unwrap();
        assert_eq!(target.username.as_deref(), Some("tollgate"));
        assert_eq!(target.password.as_deref(), Some("p@ss/word"));
        assert!(!format!("{target:?}").contains("ss/word"));
        let target = Target::parse("redis://:secret@h").unwrap();
        assert_eq!((target.username, target.password.as_deref()), (None, Some("secret")));
    }

    #[test]
    fn what_is_no_target_is_refused() {
        for text in [
            "memory",
            "http://h",
            "redis://",
            "redis://h:port",
            "redis://h/main",
            "redis://a,b",
            "redis+sentinel://a",
            "redis+cluster://a/0",
            "redis+proxy://a",
            "redis://[::1",
            "redis://u:%ff@h",
        ] {
            assert!(Target::parse(text).is_err(), "{text}");
        }
    }
}

//! How the host is configured, as far as a filter can notice.

use crate::status::LogLevel;

/// What Envoy does with a `Pause` from a headers callback (facts F1–F4).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Profile {
    /// `allow_on_headers_stop_iteration: true`: headers wait, body callbacks come, and the
    /// first `Continue` from a body callback lets the headers go.
    #[default]
    EnvoyHold,
    /// The default of Envoy: everything waits, and no body callback comes until resumed.
    EnvoyNoHold,
}

/// Envoy's `per_connection_buffer_limit_bytes` when nobody sets it (F6).
pub const DEFAULT_BODY_LIMIT: usize = 1 << 20;

/// Where Envoy's runtime stops a growing memory (F58).
pub const DEFAULT_MEMORY_LIMIT: usize = 1 << 30;

/// What one VM is started with.
#[derive(Clone, Debug)]
pub struct VmOptions {
    /// The plugin's configuration, readable in `on_configure` only.
    pub config: Vec<u8>,
    pub vm_config: Vec<u8>,
    /// The scope of shared data and queues (F37).
    pub vm_id: String,
    pub root_id: String,
    pub plugin_name: String,
    pub profile: Profile,
    /// What a paused body may grow to, in either direction.
    pub body_limit: usize,
    pub environment: Vec<(String, String)>,
    /// Told by `proxy_get_log_level`; every line is captured whatever it is.
    pub log_level: LogLevel,
    pub memory_limit: usize,
    /// The most one callback may burn; beyond it the callback traps.
    pub fuel_limit: Option<u64>,
    /// Hostcalls forbidden by a capability restriction: they answer `InternalFailure` (F60).
    pub denied: Vec<String>,
    /// Properties every context of this VM sees, by dotted path.
    pub properties: Vec<(String, Vec<u8>)>,
}

impl Default for VmOptions {
    fn default() -> Self {
        Self {
            config: Vec::new(),
            vm_config: Vec::new(),
            vm_id: "tollgate".into(),
            root_id: "tollgate".into(),
            plugin_name: "tollgate".into(),
            profile: Profile::default(),
            body_limit: DEFAULT_BODY_LIMIT,
            environment: Vec::new(),
            log_level: LogLevel::Info,
            memory_limit: DEFAULT_MEMORY_LIMIT,
            fuel_limit: None,
            denied: Vec::new(),
            properties: Vec::new(),
        }
    }
}

impl VmOptions {
    pub fn new(config: impl AsRef<[u8]>) -> Self {
        Self { config: config.as_ref().to_vec(), ..Self::default() }
    }

    #[must_use]
    pub fn profile(self, profile: Profile) -> Self {
        Self { profile, ..self }
    }

    #[must_use]
    pub fn body_limit(self, body_limit: usize) -> Self {
        Self { body_limit, ..self }
    }

    #[must_use]
    pub fn vm_id(self, vm_id: &str) -> Self {
        Self { vm_id: vm_id.into(), ..self }
    }

    #[must_use]
    pub fn fuel_limit(self, most: u64) -> Self {
        Self { fuel_limit: Some(most), ..self }
    }

    #[must_use]
    pub fn deny(mut self, hostcall: &str) -> Self {
        self.denied.push(hostcall.into());
        self
    }

    #[must_use]
    pub fn property(mut self, path: &str, value: impl AsRef<[u8]>) -> Self {
        self.properties.push((path.into(), value.as_ref().to_vec()));
        self
    }
}

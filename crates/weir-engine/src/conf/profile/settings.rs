//! What the configuration says of tracing as a whole: for the recorder, the sampler, the watchers and the exporters.

use std::time::Duration;

use weir_rt::net::SockAddr;
use weir_trace::TraceLevel;

use super::admin_host::AdminHost;
use crate::conf::Configuration;

/// Settings of the process, of the `http` block or outside of it; see [`Configuration::trace`].
#[derive(Clone, Debug, Default)]
pub struct TraceSettings {
    /// `trace level=`; `None`: as the program that has the server inside wants it, which is full by default.
    pub level: Option<TraceLevel>,
    /// `trace keep=`: trees retained, over all workers.
    pub(crate) keep: Option<usize>,
    /// `trace sample=` of the `http` block: which requests are recorded at level `sampled`.
    pub(crate) sample: Option<u32>,
    pub(crate) cpu: Option<u32>,
    pub(crate) blocked: Option<Option<u64>>,
    pub(crate) admin: Vec<AdminLine>,
    pub(crate) hosts: Vec<AdminHost>,
    /// `metrics_locations`
    pub(crate) metrics_locations: Option<usize>,
}

/// An `admin` line: where the server responds to queries about itself.
#[derive(Clone, Debug)]
pub struct AdminLine {
    /// The address: a unix socket, loopback, or any other with a token.
    pub address: SockAddr,
    /// `token=`: the secret that a request must show; `None`: none is required.
    pub token: Option<String>,
}

impl TraceSettings {
    /// The number of trace trees that are retained, over all workers (`trace keep=`); 1000 by default.
    #[must_use]
    pub fn keep(&self) -> usize {
        self.keep.unwrap_or(KEEP)
    }

    /// `profile_cpu`: samples a second of CPU time and worker; 0 is off; 99 by default.
    #[must_use]
    pub fn cpu_hz(&self) -> u32 {
        self.cpu.unwrap_or(CPU_HZ)
    }

    /// `profile_blocked`: after how long a turn of the loop is a stall; `None` is off; 10 ms by default.
    #[must_use]
    pub fn blocked(&self) -> Option<Duration> {
        self.blocked.unwrap_or(Some(BLOCKED_MS)).map(Duration::from_millis)
    }

    /// The `admin` lines, in order.
    #[must_use]
    pub fn admin(&self) -> &[AdminLine] {
        &self.admin
    }

    /// The `admin_host` lines, in order: other servers that this one's page shows.
    #[must_use]
    pub fn hosts(&self) -> &[AdminHost] {
        &self.hosts
    }

    /// `metrics_locations`: how many locations have series of their own in `/metrics`; 200 by default.
    #[must_use]
    pub fn metrics_locations(&self) -> usize {
        self.metrics_locations.unwrap_or(METRICS_LOCATIONS)
    }

    const DEFAULT: TraceSettings = TraceSettings {
        level: None,
        keep: None,
        sample: None,
        cpu: None,
        blocked: None,
        admin: Vec::new(),
        hosts: Vec::new(),
        metrics_locations: None,
    };
}

impl Configuration {
    /// The settings of tracing for the whole server.
    #[must_use]
    pub fn trace(&self) -> &TraceSettings {
        static DEFAULT: TraceSettings = TraceSettings::DEFAULT;
        self.shared().unwrap_or(&DEFAULT)
    }
}

const KEEP: usize = 1000;
/// Not a divisor of what runs a hundred or a thousand times a second, and below any kernel's tick.
const CPU_HZ: u32 = 99;
const BLOCKED_MS: u64 = 10;
/// At 300 to 400 lines each some 70,000 lines, or 8 MB: what a scrape every 15 s can still carry.
const METRICS_LOCATIONS: usize = 200;

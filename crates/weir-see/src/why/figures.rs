//! What detectors look at: numbers of one window.

use weir_engine::worker::HandshakeFault;

/// All figures.
#[derive(Clone, Debug, Default)]
pub(crate) struct WhyFigures {
    /// How long the window was.
    pub(crate) seconds: f64,
    pub(crate) workers: Vec<WorkerLoad>,
    /// Handlers, filters and scripts that take the processor.
    pub(crate) modules: Vec<ModuleLoad>,
    /// Turns that took too long and ended in the window, or have not ended.
    pub(crate) stalls: Vec<StallLoad>,
    pub(crate) upstreams: Vec<UpstreamLoad>,
    pub(crate) files: FileLoad,
    pub(crate) listeners: Vec<ListenerLoad>,
    /// Locations with responses that are errors.
    pub(crate) errors: Vec<ErrorLoad>,
    /// Accepts that found no free descriptor.
    pub(crate) no_descriptor: u64,
    /// Connections, and how many the workers may have together.
    pub(crate) connections: (u64, u64),
    /// Certificates that are not good, those first that end first; some of very many.
    pub(crate) certificates: Vec<CertificateLoad>,
    /// How many more there are of them.
    pub(crate) more_certificates: usize,
    pub(crate) handshakes: HandshakeLoad,
    /// Zones of limits in which something had to make room.
    pub(crate) zones: Vec<ZoneLoad>,
    /// Lines of logs that were lost.
    pub(crate) lost_lines: u64,
    /// What the error log says of that last; empty where it says nothing.
    pub(crate) lost_why: String,
}

/// A zone of shared memory that is full.
#[derive(Clone, Debug, Default)]
pub(crate) struct ZoneLoad {
    /// The directive and the name: `limit_req_zone perip`.
    pub(crate) name: String,
    pub(crate) size: u64,
    /// How often something had to make room.
    pub(crate) dropped: u64,
}

/// A certificate of servers.
#[derive(Clone, Debug)]
pub(crate) struct CertificateLoad {
    /// Its servers.
    pub(crate) names: String,
    pub(crate) file: String,
    /// Where it is written.
    pub(crate) line: String,
    pub(crate) age: CertificateAge,
    /// Seconds until it ends, or until its time begins; below 0 of one that has expired.
    pub(crate) left_s: i64,
}

/// TLS handshakes of clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct HandshakeLoad {
    pub(crate) complete: u64,
    /// Why others failed, and how many.
    pub(crate) faults: Vec<(HandshakeFault, u64)>,
    /// The server's name that most of those asked for that failed last; empty where none stands out.
    pub(crate) name: String,
}

/// A worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkerLoad {
    pub(crate) worker: u16,
    /// Share of the time in which it ran on a core.
    pub(crate) busy: f64,
    /// Share of the time in which it could run and had no core.
    pub(crate) run_queue: f64,
    /// What its Lua VM's collector took, in nanoseconds.
    pub(crate) gc_ns: u64,
    pub(crate) connections: u64,
    /// Turns that were late because it had no core.
    pub(crate) late: u64,
}

/// A handler, filter or script, in all locations that it runs in.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModuleLoad {
    /// Where most of its time went.
    pub(crate) location: String,
    /// In how many others it runs as well.
    pub(crate) others: usize,
    /// `gzip`, `log_by_lua`.
    pub(crate) name: String,
    pub(crate) work: ModuleWork,
    /// The chunk of Lua in which it begins: a file, or `log_by_lua(weir.conf:20)`.
    pub(crate) script: String,
    /// On the processor, in nanoseconds, without what the collector of Lua took in it.
    pub(crate) ns: u64,
    /// Requests that it ran for; 0 where none are counted.
    pub(crate) requests: u64,
    /// Where its directive is written.
    pub(crate) line: String,
    /// The line of a script that was seen most often; empty where none stands out.
    pub(crate) hottest: String,
    /// A setting that makes it dear or cheap.
    pub(crate) setting: Option<FilterSetting>,
}

/// What a module does, by what can be said of its taking much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ModuleWork {
    /// The content itself comes from it: that it takes most is as it should be.
    #[default]
    Content,
    /// A script makes the content.
    Script,
    /// What is done besides: filters, handlers of other phases, timers.
    Besides,
}

/// A setting in force at a location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilterSetting {
    pub(crate) directive: &'static str,
    pub(crate) value: String,
    /// `file:line`; empty where it is the default.
    pub(crate) place: String,
    /// What would be cheaper, in words; what else could be done where nothing is.
    pub(crate) cheaper: &'static str,
}

/// Why a turn took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StallCause {
    /// It ran all the time.
    Computes,
    /// A Lua VM's collector ran.
    Collects,
    /// A call slept.
    Sleeps,
    /// A call waited for a lock.
    Locked,
    /// A call waited for a disk.
    Disk,
    /// It had no core.
    NoCore,
}

impl WhyFigures {
    /// What all workers ran on the processor, in nanoseconds.
    pub(crate) fn used_ns(&self) -> u64 {
        (self.workers.iter().map(|worker| worker.busy).sum::<f64>() * self.seconds * 1e9) as u64
    }
}

impl StallCause {
    /// Whether the thread slept.
    pub(crate) fn sleeps(self) -> bool {
        matches!(self, StallCause::Sleeps | StallCause::Locked | StallCause::Disk)
    }
}

/// A turn that took too long.
#[derive(Clone, Debug)]
pub(crate) struct StallLoad {
    pub(crate) location: String,
    /// The function, and the line of Lua.
    pub(crate) by: String,
    /// The line of the script alone.
    pub(crate) line: String,
    pub(crate) cause: StallCause,
    pub(crate) ns: u64,
    /// Requests that had to wait, and how long together.
    pub(crate) waited: u64,
    pub(crate) waited_ns: u64,
}

/// An upstream.
#[derive(Clone, Debug, Default)]
pub(crate) struct UpstreamLoad {
    pub(crate) name: String,
    pub(crate) peers: Vec<PeerLoad>,
}

/// A peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeerLoad {
    pub(crate) name: String,
    pub(crate) requests: u64,
    pub(crate) responses: u64,
    /// Half of the responses came sooner, in microseconds.
    pub(crate) p50_us: u64,
    /// Tries without a response that could be used.
    pub(crate) faults: u64,
    pub(crate) refused: u64,
    pub(crate) reset: u64,
    pub(crate) repeated: u64,
    /// It is left out, for this reason.
    pub(crate) out: Option<String>,
}

/// The threads for files.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FileLoad {
    /// Operations that ended.
    pub(crate) done: u64,
    /// What they and those that run took, in nanoseconds.
    pub(crate) ns: u64,
    pub(crate) running: u64,
    /// How long those that run have run on average, in nanoseconds.
    pub(crate) oldest_ns: u64,
}

/// A location's errors.
#[derive(Clone, Debug, Default)]
pub(crate) struct ErrorLoad {
    pub(crate) location: String,
    /// All of its responses.
    pub(crate) responses: u64,
    /// Of them those of 500 and above.
    pub(crate) failed: u64,
    /// Of them those of 400 to 499.
    pub(crate) refused: u64,
    /// The status of most of these, if that is one of those that are counted one by one.
    pub(crate) status: Option<u16>,
    /// What the error log says most often of its requests; empty where it says nothing.
    pub(crate) message: String,
    /// The `file:line` in that; empty where there is none.
    pub(crate) line: String,
}

/// A listening socket.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListenerLoad {
    pub(crate) name: String,
    pub(crate) waiting: u64,
    pub(crate) room: u64,
}

/// How old a certificate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CertificateAge {
    /// Its time has not begun.
    Future,
    Good,
    /// It ends within a week, and most of its time is over.
    Soon,
    Expired,
}

impl CertificateAge {
    /// All are seconds since 1970. One that is made for a few days is renewed when a third is left, as others are.
    pub(crate) fn of(from: i64, until: i64, now: i64) -> CertificateAge {
        let left = until.saturating_sub(now);
        match () {
            () if left < 0 => CertificateAge::Expired,
            () if from > now => CertificateAge::Future,
            () if left < WEEK && left < until.saturating_sub(from) / 4 => CertificateAge::Soon,
            () => CertificateAge::Good,
        }
    }

    /// The word for it in tables.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            CertificateAge::Future => "not valid yet",
            CertificateAge::Good => "valid",
            CertificateAge::Soon => "ends soon",
            CertificateAge::Expired => "expired",
        }
    }
}

/// Seconds.
pub(super) const WEEK: i64 = 7 * 86_400;

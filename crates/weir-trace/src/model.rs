//! Small shared vocabulary: the number of a request, what a request waits for, and the records of the sampler and the watchdog.

use std::fmt;

use crate::site::Site;

/// A request's number, unique across workers and restarts by its caller's choice; `$request_id` is its hex form.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct RequestId(pub u128);

impl fmt::Display for RequestId {
    /// 32 hexadecimal digits, as nginx's `$request_id` and the trace-id of W3C Trace Context.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// What a suspended request waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum WaitKind {
    /// It is not known what for.
    #[default]
    Other,
    /// Bytes from the client: head, body, handshake.
    ClientRead,
    /// Room in the client's socket.
    ClientWrite,
    /// The connection to an upstream peer.
    UpstreamConnect,
    /// Room in the upstream peer's socket: it has not taken the request yet.
    UpstreamSend,
    /// The first byte of the upstream's response.
    UpstreamFirstByte,
    /// The rest of the upstream's response.
    UpstreamBody,
    /// A Lua cosocket.
    Cosocket,
    /// A timer: `limit_req`, `limit_rate`, `ngx.sleep`.
    Timer,
    /// Waiting for a subrequest.
    Subrequest,
    /// Waiting for a lock.
    Lock,
    /// The thread pool: a file operation, private-key work.
    ThreadPool,
    /// A name server.
    Resolver,
    /// Nothing any more: ready, but the loop was busy with others.
    Queue,
}

impl WaitKind {
    /// How many kinds there are.
    pub const COUNT: usize = 14;

    /// All kinds, by their number.
    pub const ALL: [WaitKind; WaitKind::COUNT] = [
        WaitKind::Other,
        WaitKind::ClientRead,
        WaitKind::ClientWrite,
        WaitKind::UpstreamConnect,
        WaitKind::UpstreamSend,
        WaitKind::UpstreamFirstByte,
        WaitKind::UpstreamBody,
        WaitKind::Cosocket,
        WaitKind::Timer,
        WaitKind::Subrequest,
        WaitKind::Lock,
        WaitKind::ThreadPool,
        WaitKind::Resolver,
        WaitKind::Queue,
    ];

    /// The name in trees and exports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            WaitKind::Other => "other",
            WaitKind::ClientRead => "client_read",
            WaitKind::ClientWrite => "client_write",
            WaitKind::UpstreamConnect => "upstream_connect",
            WaitKind::UpstreamSend => "upstream_send",
            WaitKind::UpstreamFirstByte => "upstream_first_byte",
            WaitKind::UpstreamBody => "upstream_body",
            WaitKind::Cosocket => "cosocket",
            WaitKind::Timer => "timer",
            WaitKind::Subrequest => "subrequest",
            WaitKind::Lock => "lock",
            WaitKind::ThreadPool => "thread_pool",
            WaitKind::Resolver => "resolver",
            WaitKind::Queue => "queue",
        }
    }

    /// The kind of that number; unknown numbers are [`WaitKind::Other`].
    #[must_use]
    pub fn from_code(code: u16) -> WaitKind {
        WaitKind::ALL.get(usize::from(code)).copied().unwrap_or_default()
    }
}

/// One CPU sample, as the signal handler leaves it: the reader gives addresses their names.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CpuSample {
    /// When it was taken, in ticks.
    pub time: u64,
    /// Where the worker was: attributes the sample even if the walk of the stack failed.
    pub site: Site,
    /// Whose request it ran.
    pub request: RequestId,
    /// State of the Lua VM (interpreter, compiled, garbage collection, …); 0 outside of Lua.
    pub vm_state: u8,
    /// Innermost first: native addresses, and Lua frames tagged as such.
    pub frames: Vec<u64>,
}

/// A turn of the loop that took longer than allowed, found by the watchdog.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LoopStall {
    /// When the turn began, in ticks.
    pub start: u64,
    /// How long it took, in ticks.
    pub duration: u64,
    /// The location whose request ran; [`Site::NONE`] if that is not known.
    pub route: Site,
    /// The thread's state as the kernel names it: `R`, `S`, `D`; 0 until it was looked at.
    pub state: u8,
    /// The system call it was in, if any. One that was interrupted goes on as `restart_syscall`: the stack shows which
    /// it was.
    pub syscall: Option<u32>,
    /// The kernel function it slept in, if any.
    pub wait_channel: String,
    /// Its turn is over, and what was lost in it is known.
    pub is_over: bool,
    /// Of it, ticks asleep in calls that block; known once it is over.
    pub asleep: u64,
    /// Of it, ticks ready and without a core; known once it is over.
    pub no_core: u64,
    /// The stack, the site and the request.
    pub sample: CpuSample,
    /// Requests that were ready meanwhile, with the ticks each lost to it.
    pub victims: Vec<(RequestId, u64)>,
    /// What became of connections meanwhile; `None` where there is no other worker.
    pub connections: Option<StallConnections>,
}

/// Connections of a worker that is in a turn that takes too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StallConnections {
    /// Number of connections that went on at other workers: they had waited in its queue, or were parked.
    pub handed_on: u64,
    /// Came meanwhile, and were dealt to other workers.
    pub dealt_elsewhere: u64,
    /// Number of connections that had to wait for the end of the turn if they had something to do: open, or still in
    /// its queue.
    pub stayed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_numbers_agree() {
        for (code, kind) in WaitKind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, code);
            assert_eq!(WaitKind::from_code(code as u16), *kind);
        }
        assert_eq!(WaitKind::from_code(999), WaitKind::Other);
    }
}

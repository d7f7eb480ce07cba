//! Weir's runtime: one thread per core, io_uring or epoll behind one completion-shaped interface.
//!
//! A [`Runtime`] belongs to the thread that made it, and so does everything made inside its `block_on`: tasks,
//! [`Stream`]s, [`Listener`]s, [`Timer`]s are `!Send` and share nothing with other threads; a [`RuntimeHandle`] is the way
//! in from those. Nothing on the path of a request takes a lock, an atomic or an allocation:
//!
//! * a waker is two words that name the task ([`spawn`] boxes a future once, per connection);
//! * operations belong to the socket, so the futures of [`Stream`] may be dropped at any time and lose nothing;
//! * received bytes lie in pooled buffers ([`RecvBuf`]) that idle connections do not hold;
//! * output is a queue of [`OutputChunk`]s that leave by one system call per turn, file ranges by sendfile(2);
//! * a [`Timer`] is pushed out by one store.
//!
//! The free functions use the thread's running runtime and panic outside one.

pub mod alarm;
pub mod blocking;
mod calls;
pub mod clock;
mod core_account;
pub mod crash;
mod crash_state;
pub mod datagrams;
mod driver;
mod executor;
pub mod file;
mod heap;
mod held;
mod inbox;
mod kernel_meter;
mod kernel_prices;
mod kernel_work;
mod layer;
mod listener;
mod local;
mod loop_memory;
mod loop_state;
pub mod net;
pub mod notify;
mod output;
pub mod packets;
pub mod poller;
mod pool;
pub mod process;
mod recv_buf;
mod request_runs;
mod runtime;
pub mod sampler;
mod shared_rings;
mod shell;
pub mod signal;
pub mod small_write;
mod socket;
mod stats;
mod stream;
mod sys;
mod task;
mod thread_watch;
mod timeout;
#[allow(dead_code, reason = "the wheel is complete as a data structure; its tests use all of it")]
mod timer_wheel;
mod timers;
pub mod zone_memory;

pub use core_account::OffCore;
pub use driver::{DriverChoice, DriverKind, probe_io_uring};
pub use file::FileHandle;
pub use heap::Heap;
pub use held::HeldMemory;
pub use layer::{OpenOutcome, StreamLayer};
pub use listener::Listener;
pub use loop_memory::{LoopMemory, TASK_PLACE};
pub use net::SockAddr;
pub use output::{LONG_RECEIVE, OutputChunk, SendError};
pub use recv_buf::RecvBuf;
pub use request_runs::{request_rests, request_runs};
pub use runtime::{
    Runtime, RuntimeHandle, RuntimeOptions, USUAL_RECEIVE, asking_device, at_round_end, blocking, buffers,
    computing, epoch, lost_core, now_ms, receives_itself, remote, renew_time, spawn, try_now_ms, turn_stamp,
    unix_time, yield_now,
};
pub(crate) use runtime::{turn, wrote_small_file};
pub use shared_rings::{MappedRings, NOTES, RingPosition, SharedRingWriter, SharedRings, UnsettledRecord};
pub use socket::SocketAccount;
pub use stats::{LoopSnapshot, LoopStats};
pub use stream::{PeerClosed, RecvOutcome, Stream};
pub use task::{TaskId, set_panic_hook};
pub use thread_watch::{ThreadState, ThreadWatch, thread_id};
pub use timeout::{Timer, sleep};

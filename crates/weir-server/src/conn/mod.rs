//! Connections' tasks: from the socket that was accepted to the requests on it.

pub mod accept;
pub(crate) mod begin;
pub(crate) mod dealer;
pub(crate) mod flows;
pub mod h1;
pub(crate) mod h2;
pub(crate) mod h3;
pub(crate) mod head;
mod linger;
pub(crate) mod own_socket;
pub(crate) mod parked;
mod proxy;
pub(crate) mod quic;
mod section;
pub(crate) mod session;
pub(crate) mod sharing;
mod stream_task;

use weir_engine::transport::ClientConnection;
use weir_rt::process::inherit::SECRET_BYTES;

/// The secret of which the keys of stateless resets and tokens are made, if no `quic_host_key` is given. Processes that are forked
/// from this one, once it was called, have the same, so that clients of one that crashed learn from the next one that their
/// connections are gone, and begin again at once.
pub fn quic_secret() -> &'static [u8; SECRET_BYTES] {
    quic::settings::own_secret()
}

/// Takes the secret of the process that this one follows; too late once there is one.
pub fn inherit_quic_secret(secret: [u8; SECRET_BYTES]) {
    quic::settings::inherit_secret(secret);
}

/// Starts the task of `connection`, which knows from then on how many bytes it takes.
fn spawn(connection: &ClientConnection, task: impl Future<Output = ()> + 'static) {
    connection.task_bytes.set(size_of_val(&task) as u32);
    weir_rt::spawn(task);
}

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
mod stream_task;

use weir_engine::transport::ClientConnection;

/// Makes the keys of stateless resets and tokens, unless they are there: processes that are forked from this one have the same, so
/// that clients of one that crashed learn from the next one that their connections are gone, and begin again at once.
pub fn share_quic_keys() {
    let _made = quic::settings::own_keys();
}

/// Starts the task of `connection`, which knows from then on how many bytes it takes.
fn spawn(connection: &ClientConnection, task: impl Future<Output = ()> + 'static) {
    connection.task_bytes.set(size_of_val(&task) as u32);
    weir_rt::spawn(task);
}

//! What scripts call: the functions of `ngx.*`, in a table of names, contexts and functions.

pub(crate) mod arg;
pub(crate) mod balancer;
pub(crate) mod cli;
pub(crate) mod config;
pub(crate) mod control;
pub(crate) mod coroutine;
pub(crate) mod ctx;
pub(crate) mod encode;
pub(crate) mod errlog;
pub(crate) mod events;
pub(crate) mod ffi;
pub(crate) mod header;
pub(crate) mod jit;
pub(crate) mod json;
pub(crate) mod kong;
pub(crate) mod library;
pub(crate) mod lmdb;
pub(crate) mod location;
pub(crate) mod log;
pub(crate) mod ndk;
pub(crate) mod openssl;
pub(crate) mod output;
pub(crate) mod pipe;
pub(crate) mod prelude;
pub(crate) mod process;
pub(crate) mod re;
pub(crate) mod req;
pub(crate) mod resolver;
pub(crate) mod resp;
pub(crate) mod resty;
pub(crate) mod semaphore;
pub(crate) mod session;
pub(crate) mod shared;
pub(crate) mod socket;
pub(crate) mod socket_log;
pub(crate) mod ssl;
pub(crate) mod thread;
pub(crate) mod time;
pub(crate) mod timer;
pub(crate) mod upstream;
pub(crate) mod var;
pub(crate) mod worker;
pub(crate) mod worker_thread;

use crate::run::function::ApiFunction;

pub(crate) use arg::FilterArg;
pub(crate) use control::{FilterExit, is_sent};
pub(crate) use ctx::{anchor as ctx_anchor, give as give_ctx, keep_anchored as keep_ctx, of as ctx_of};
pub(crate) use header::{relative_location, response_fields, safe_name, safe_value};
pub(crate) use log::level as log_level;
pub(crate) use output::{AHEAD, FIRST_SAID, text_of as output_text};
pub(crate) use req::method_name;
pub(crate) use shared::is_ignored as writes_are_ignored;
pub(crate) use socket::{lend_client, take_client_back};
pub(crate) use time::started;

/// All functions.
pub(crate) const TABLES: &[&[ApiFunction]] = &[
    arg::TABLE,
    req::body::TABLE,
    output::TABLE,
    control::TABLE,
    coroutine::TABLE,
    ctx::TABLE,
    encode::TABLE,
    header::TABLE,
    log::TABLE,
    re::TABLE,
    req::TABLE,
    session::TABLE,
    shared::TABLE,
    location::TABLE,
    time::TABLE,
    var::TABLE,
    worker::TABLE,
    config::TABLE,
    process::TABLE,
    resp::TABLE,
    req::header::TABLE,
    thread::TABLE,
    control::on_abort::TABLE,
    balancer::TABLE,
    resty::aes::TABLE,
    cli::TABLE,
    resty::digest::TABLE,
    errlog::TABLE,
    events::TABLE,
    events::listening::TABLE,
    ffi::TABLE,
    jit::TABLE,
    json::TABLE,
    kong::TABLE,
    library::TABLE,
    lmdb::TABLE,
    ndk::TABLE,
    openssl::TABLE,
    pipe::TABLE,
    resolver::TABLE,
    ssl::TABLES[0],
    ssl::TABLES[1],
    ssl::TABLES[2],
    ssl::TABLES[3],
    ssl::TABLES[4],
    ssl::TABLES[5],
    semaphore::TABLE,
    socket::TABLES[0],
    socket::TABLES[1],
    socket::TABLES[2],
    socket::TABLES[3],
    socket::TABLES[4],
    socket::TABLES[5],
    socket::TABLES[6],
    socket::TABLES[7],
    socket::TABLES[8],
    socket::DATAGRAMS,
    socket_log::TABLE,
    timer::TABLE,
    upstream::TABLE,
    worker_thread::TABLE,
];

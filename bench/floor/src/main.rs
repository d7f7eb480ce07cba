//! Bare event loops that answer a constant: what HTTP/1 costs at least on this machine.
//!
//! `floor epoll|io_uring PORT BODY_BYTES` listens on 127.0.0.1 and answers every request with the same 200, after one
//! parse of its head: no table of files, no timers, no log, no tasks. A complete server cannot be cheaper on the same
//! driver except by better batching, and Weir's aim is to stay within 8 % of it. `floor proxy PORT BEHIND` passes bytes to
//! 127.0.0.1:BEHIND and back.
//!
//! Clients are trusted to read (see the loops); this is a yardstick, not a server.

mod epoll;
mod http;
mod proxy;
mod uring;

use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsRawFd;
use std::{env, io, process};

use http::Answers;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [mode, port, after] = arguments.as_slice()
        && mode == "proxy"
        && let Some((port, after)) = port.parse().ok().zip(after.parse().ok())
    {
        return end(listen(port).and_then(|listener| proxy::run(&listener, after)));
    }
    let parsed = match arguments.as_slice() {
        [driver, port, body] => loop_of(driver).zip(port.parse().ok()).zip(body.parse().ok()),
        _ => None,
    };
    let Some(((run, port), body)) = parsed else {
        eprintln!("usage: floor epoll|io_uring PORT BODY_BYTES | floor proxy PORT BEHIND");
        process::exit(2);
    };
    end(listen(port).and_then(|listener| run(&listener, &Answers::new(body))));
}

fn end(served: io::Result<()>) {
    if let Err(error) = served {
        eprintln!("floor: {error}");
        process::exit(1);
    }
}

type Loop = fn(&TcpListener, &Answers) -> io::Result<()>;

fn loop_of(driver: &str) -> Option<Loop> {
    match driver {
        "epoll" => Some(epoll::run),
        "io_uring" => Some(uring::run),
        _ => None,
    }
}

/// A listener whose connections inherit TCP_NODELAY, with room for a client that connects 500 times at once.
fn listen(port: u16) -> io::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    listener.set_nonblocking(true)?;
    let one: libc::c_int = 1;
    // SAFETY: the descriptor is open; `one` outlives the call and has the size announced. listen(2) on a listening
    // socket only changes its backlog, which `std` sets to 128.
    unsafe {
        let size = size_of::<libc::c_int>() as libc::socklen_t;
        let option = (&raw const one).cast();
        libc::setsockopt(listener.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_NODELAY, option, size);
        libc::listen(listener.as_raw_fd(), 4096);
    }
    Ok(listener)
}

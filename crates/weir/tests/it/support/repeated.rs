//! Requests that repeat, with one head or with heads of their own.

use std::fs;

use weir_test::{Client, Response, Server, wait_for};

use super::inside::Running;

/// Requests for `path`, a head with each of `numbers`, on a connection that is made again where it ends; what `settled` has of each
/// response, `None` where none came.
pub(crate) fn ask<T>(
    server: &Server,
    path: &str,
    numbers: impl Iterator<Item = usize>,
    settled: impl Fn(&Response) -> T,
) -> Vec<Option<T>> {
    let mut client = server.client();
    let one = |number: usize| {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-N: {number}\r\n\r\n"));
        let response = client.try_response().ok();
        if response.as_ref().is_none_or(|response| !response.keeps_alive()) {
            client = server.client();
        }
        response.map(|response| settled(&response))
    };
    numbers.map(one).collect()
}

/// The numbers of `times` heads that are one, or of which none is that one.
pub(crate) fn numbers(alike: bool, times: usize) -> impl Iterator<Item = usize> {
    (0..times).map(move |number| if alike { 0 } else { number % 9 + 1 })
}

/// The lines of the file `log` that contain `text`, once there are `count`.
pub(crate) fn log_lines(server: &Server, log: &str, text: &str, count: usize) -> Vec<String> {
    wait_for("log lines", || {
        let all = fs::read_to_string(server.dir().path().join(log)).unwrap_or_default();
        let lines: Vec<String> = all.lines().filter(|line| line.contains(text)).map(str::to_owned).collect();
        (lines.len() >= count).then_some(lines)
    })
}

/// Whether requests are known that come to their handler at the sight of their heads, after `times` calls of `ask`, which says
/// whether its connection goes on.
pub(crate) fn comes_at_sight(running: &Running, times: usize, ask: impl Fn(&mut Client) -> bool) -> bool {
    running.on_worker(|worker| worker.trim_exchanges());
    let mut client = running.client();
    for _ in 0..times {
        if !ask(&mut client) {
            client = running.client();
        }
    }
    running.on_worker(|worker| worker.known_passes()) > 0
}

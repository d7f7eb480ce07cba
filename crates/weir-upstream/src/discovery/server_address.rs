//! Addresses of servers as they are written: resolved when the configuration is read.

use weir_conf::split_port;
use weir_rt::net::SockAddr;

use weir_engine::privileged;

/// The addresses of `host`, `host:port`, `[v6]:port` or `unix:path`, asked of the system: when the configuration is
/// read nginx waits for them, too.
///
/// # Errors
/// nginx's words: `host not found in upstream "..."`, `invalid port in upstream "..."`.
pub fn resolve(host: &str, default_port: u16) -> Result<Vec<SockAddr>, String> {
    if host.starts_with("unix:") {
        let address =
            host.parse().map_err(|_| format!("no path in the unix domain socket in upstream \"{host}\""))?;
        return Ok(vec![address]);
    }
    let (name, port) = split_port(host).map_err(|_| format!("invalid port in upstream \"{host}\""))?;
    if name.is_empty() {
        return Err(format!("no host in upstream \"{host}\""));
    }
    let port = port.unwrap_or(default_port);
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let found =
        privileged::look_up(bare, port).map_err(|_| format!("host not found in upstream \"{host}\""))?;
    let addrs: Vec<SockAddr> = found.into_iter().map(SockAddr::from).collect();
    if addrs.is_empty() { Err(format!("host not found in upstream \"{host}\"")) } else { Ok(addrs) }
}

/// The error of what [`resolve`] or [`Upstreams::named`](crate::Upstreams::named) says. A name that is not known yet is
/// no error where it is looked up later.
pub fn unresolved(message: String) -> weir_conf::Error {
    let error = weir_conf::Error::new(message);
    if !error.message.starts_with("host not found") {
        return error;
    }
    error.hint(
        "\"server NAME resolve;\" in an \"upstream\" with a \"zone\", and a \"resolver\", look it up while the server runs",
    )
}

/// Whether `host` needs a port and has none.
pub fn lacks_port(host: &str) -> bool {
    !host.starts_with("unix:") && split_port(host).is_ok_and(|(_, port)| port.is_none())
}

/// How many computed addresses a worker remembers.
pub(crate) const ADDRESSES: usize = 1024;

//! What a seed draws of TLS between the server and upstream servers: their certificates, the settings of the locations that pass
//! requests to them, and what happens to their connections.

use std::fmt::Write;
use std::io;
use std::path::Path;

use crate::downtime::{UPSTREAM_PORTS, UpstreamDown};
use crate::draw::Draw;
use crate::tls::TlsVersion;

/// Where upstream servers speak TLS. Among all upstream servers they come after those of [`UPSTREAM_PORTS`].
pub const TLS_UPSTREAM_PORTS: [u16; 2] = [9003, 9004];
/// The name that locations know them by, unless they know them by [`OTHER_NAME`].
pub const UPSTREAM_NAME: &str = "up";
/// A name that one of the certificates has.
pub const OTHER_NAME: &str = "elsewhere";

const KEY: &[u8] = include_bytes!("../data/upstream.key");
const AUTHORITY: &[u8] = include_bytes!("../data/upstream-ca.pem");
/// The file of those that locations trust.
const TRUSTED: &str = "upstream-ca.pem";

/// TLS to upstream servers.
#[derive(Clone, Debug)]
pub struct UpstreamTlsPlan {
    /// The servers, in the order of [`TLS_UPSTREAM_PORTS`].
    pub servers: Vec<TlsServerPlan>,
    /// The locations that pass requests to them, `/tls/0/` and so on.
    pub doors: Vec<TlsDoorPlan>,
    /// Of 1,000 connections so many have a fault.
    pub faults: u64,
}

/// The certificates of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamIdentity {
    /// For [`UPSTREAM_NAME`], of the authority that locations trust.
    Good,
    /// The same for [`OTHER_NAME`].
    Elsewhere,
    /// Its time is over.
    Expired,
    /// Its time has not come.
    Early,
    /// An authority of the same name has signed it, with another key.
    Unknown,
}

impl UpstreamIdentity {
    /// Certificate and key, as PEM.
    pub fn pair(self) -> (&'static [u8], &'static [u8]) {
        let certificate: &[u8] = match self {
            UpstreamIdentity::Good => include_bytes!("../data/upstream-good.pem"),
            UpstreamIdentity::Elsewhere => include_bytes!("../data/upstream-elsewhere.pem"),
            UpstreamIdentity::Expired => include_bytes!("../data/upstream-expired.pem"),
            UpstreamIdentity::Early => include_bytes!("../data/upstream-early.pem"),
            UpstreamIdentity::Unknown => include_bytes!("../data/upstream-unknown.pem"),
        };
        (certificate, KEY)
    }

    fn drawn(draw: &mut Draw) -> UpstreamIdentity {
        use UpstreamIdentity::{Early, Elsewhere, Expired, Good, Unknown};
        *draw.one_of(&[Good, Good, Good, Good, Elsewhere, Expired, Early, Unknown])
    }

    /// Whether it is a good one for who wants this name.
    fn is_good_for(self, name: &str) -> bool {
        match self {
            UpstreamIdentity::Good => name == UPSTREAM_NAME,
            UpstreamIdentity::Elsewhere => name == OTHER_NAME,
            UpstreamIdentity::Expired | UpstreamIdentity::Early | UpstreamIdentity::Unknown => false,
        }
    }
}

/// An upstream server that speaks TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsServerPlan {
    /// What it shows to those who ask for [`UPSTREAM_NAME`].
    pub named: UpstreamIdentity,
    /// What it shows to others.
    pub unnamed: UpstreamIdentity,
    /// Its versions.
    pub version: TlsVersion,
    /// It knows sessions again.
    pub resumes: bool,
    /// It says that it sends no more before it closes.
    pub notifies: bool,
}

/// A location that passes requests to servers of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsDoorPlan {
    /// `proxy_ssl_verify`.
    pub verifies: bool,
    /// `proxy_ssl_name`.
    pub name: &'static str,
    /// `proxy_ssl_server_name`.
    pub says_name: bool,
    /// `proxy_ssl_session_reuse`.
    pub reuses: bool,
    /// `proxy_ssl_protocols`.
    pub version: TlsVersion,
}

/// What happens to a connection of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsServerFault {
    /// It is closed when so many bytes have been sent.
    Cut(u64),
    /// This byte is changed on its way.
    Garbled(u64),
    /// After so many bytes nothing more comes.
    Stalls(u64),
}

impl TlsServerFault {
    /// What `draw` draws.
    pub fn drawn(draw: &mut Draw) -> TlsServerFault {
        let most = *draw.one_of(&[8, 1500, 3000, 60_000]);
        let at = draw.below(most);
        match draw.below(5) {
            0 | 1 => TlsServerFault::Cut(at),
            2 | 3 => TlsServerFault::Garbled(at),
            _ => TlsServerFault::Stalls(at),
        }
    }
}

impl UpstreamTlsPlan {
    /// What `draw` draws.
    pub fn drawn(draw: &mut Draw) -> Option<UpstreamTlsPlan> {
        draw.chance(1, 3).then(|| UpstreamTlsPlan {
            servers: TLS_UPSTREAM_PORTS.iter().map(|_| TlsServerPlan::drawn(draw)).collect(),
            doors: (0..draw.between(1, 4)).map(|_| TlsDoorPlan::drawn(draw)).collect(),
            faults: *draw.one_of(&[0, 0, 100, 400]),
        })
    }

    /// When its servers are not there, with clients that come within `span`.
    pub(crate) fn downs(draw: &mut Draw, span: u64) -> Vec<UpstreamDown> {
        if draw.chance(1, 2) {
            return Vec::new();
        }
        let mut downs = UpstreamDown::several(draw, span, TLS_UPSTREAM_PORTS.len());
        downs.iter_mut().for_each(|down| down.server += UPSTREAM_PORTS.len());
        downs
    }

    /// The servers that a location may pass requests to, by their places.
    pub(crate) fn trusted(&self, door: usize) -> Vec<usize> {
        let Some(door) = self.doors.get(door) else { return Vec::new() };
        let is_trusted = |server: &usize| self.servers.get(*server).is_some_and(|one| one.suits(door));
        (0..self.servers.len()).filter(is_trusted).collect()
    }

    /// The block `upstream`; `keepalive`: connections that are kept, 0: no line.
    pub(crate) fn block(&self, keepalive: u64) -> String {
        let mut lines = String::new();
        for port in TLS_UPSTREAM_PORTS {
            let _ = writeln!(lines, "        server 127.0.0.1:{port} max_fails=0;");
        }
        if keepalive > 0 {
            let _ = writeln!(lines, "        keepalive {keepalive};");
        }
        format!("    upstream secret {{\n{lines}    }}\n")
    }

    /// The locations; `proxied` has the lines of all locations with an upstream server.
    pub(crate) fn locations(&self, directory: &str, proxied: &str) -> String {
        let mut lines = String::new();
        for (which, door) in self.doors.iter().enumerate() {
            let settings = door.configuration(directory);
            let _ = write!(
                lines,
                "        location /tls/{which}/ {{\n            proxy_pass https://secret;\n{settings}{proxied}        }}\n"
            );
        }
        lines
    }
}

impl TlsServerPlan {
    fn drawn(draw: &mut Draw) -> TlsServerPlan {
        TlsServerPlan {
            named: UpstreamIdentity::drawn(draw),
            unnamed: UpstreamIdentity::drawn(draw),
            version: version(draw),
            resumes: draw.chance(2, 3),
            notifies: draw.chance(1, 2),
        }
    }

    /// Whether a location may pass requests to it.
    fn suits(&self, door: &TlsDoorPlan) -> bool {
        let shown = if door.says_name && door.name == UPSTREAM_NAME { self.named } else { self.unnamed };
        self.version.meets(door.version) && (!door.verifies || shown.is_good_for(door.name))
    }
}

impl TlsDoorPlan {
    fn drawn(draw: &mut Draw) -> TlsDoorPlan {
        TlsDoorPlan {
            verifies: draw.chance(2, 3),
            name: if draw.chance(1, 6) { OTHER_NAME } else { UPSTREAM_NAME },
            says_name: draw.chance(2, 3),
            reuses: draw.chance(2, 3),
            version: version(draw),
        }
    }

    /// The name that servers get to know (SNI).
    pub(crate) fn said_name(&self) -> &'static str {
        if self.says_name { self.name } else { "-" }
    }

    fn configuration(&self, directory: &str) -> String {
        let word = |on: bool| if on { "on" } else { "off" };
        let mut lines = String::new();
        let _ = writeln!(lines, "            proxy_ssl_verify {};", word(self.verifies));
        let _ = writeln!(lines, "            proxy_ssl_trusted_certificate {directory}/{TRUSTED};");
        let _ = writeln!(lines, "            proxy_ssl_name {};", self.name);
        let _ = writeln!(lines, "            proxy_ssl_server_name {};", word(self.says_name));
        let _ = writeln!(lines, "            proxy_ssl_session_reuse {};", word(self.reuses));
        let _ = writeln!(lines, "            proxy_ssl_protocols {};", self.version.protocols());
        lines
    }
}

fn version(draw: &mut Draw) -> TlsVersion {
    *draw.one_of(&[TlsVersion::Old, TlsVersion::New, TlsVersion::Any, TlsVersion::Any, TlsVersion::Any])
}

/// Writes the files that the configuration names.
///
/// # Errors
/// A file can't be written.
pub fn write_files(directory: &Path) -> io::Result<()> {
    std::fs::write(directory.join(TRUSTED), AUTHORITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_trusted_for_the_certificate_that_it_shows() {
        use UpstreamIdentity::{Early, Elsewhere, Expired, Good, Unknown};
        let door = TlsDoorPlan {
            verifies: true,
            name: UPSTREAM_NAME,
            says_name: true,
            reuses: false,
            version: TlsVersion::Any,
        };
        let quiet = TlsDoorPlan { says_name: false, ..door };
        let other = TlsDoorPlan { name: OTHER_NAME, ..door };
        let lax = TlsDoorPlan { verifies: false, ..door };
        for (named, unnamed, trusted) in [
            (Good, Elsewhere, [true, false, true, true]),
            (Expired, Good, [false, true, false, true]),
            (Early, Elsewhere, [false, false, true, true]),
            (Unknown, Unknown, [false, false, false, true]),
        ] {
            let server =
                TlsServerPlan { named, unnamed, version: TlsVersion::New, resumes: true, notifies: true };
            let suits = [door, quiet, other, lax].map(|door| server.suits(&door));
            assert_eq!(suits, trusted, "{named:?} {unnamed:?}");
            assert!(!server.suits(&TlsDoorPlan { version: TlsVersion::Old, ..lax }));
        }
    }

    #[test]
    fn seeds_draw_all_certificates_and_servers_without_tls() {
        let drawn: Vec<_> = (0..300).map(|seed| UpstreamTlsPlan::drawn(&mut Draw::new(seed))).collect();
        let text = format!("{drawn:?}");
        for word in ["None", "Good", "Elsewhere", "Expired", "Early", "Unknown", "faults: 0", "faults: 400"] {
            assert!(text.contains(word), "{word}");
        }
    }
}

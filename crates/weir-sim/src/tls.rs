//! What a seed draws of TLS: the server's settings, and what its clients do.

use std::fmt::Write;
use std::io;
use std::path::Path;

use crate::draw::Draw;

/// Who has signed the certificates of the server and of its clients.
pub const AUTHORITY: &[u8] = include_bytes!("../data/ca.pem");
const SERVER: (&[u8], &[u8]) = (include_bytes!("../data/server.pem"), include_bytes!("../data/server.key"));
const CLIENT: (&[u8], &[u8]) = (include_bytes!("../data/client.pem"), include_bytes!("../data/client.key"));
const STRANGER: (&[u8], &[u8]) =
    (include_bytes!("../data/stranger.pem"), include_bytes!("../data/stranger.key"));

/// The directory of the server, by a name that is the same in each run: it goes into the server's tickets.
const FILES: &str = "/proc/self/cwd/";

/// Where TLS is spoken.
pub const TLS_PORT: u16 = 8443;
/// Where it is, and clients must have a certificate.
pub const VERIFIED_PORT: u16 = 8444;

/// The server's settings; `None` in a plan: it speaks no TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// `ssl_protocols`.
    pub version: TlsVersion,
    /// `ssl_session_tickets`.
    pub has_tickets: bool,
    /// `ssl_session_cache shared`.
    pub has_cache: bool,
    /// `ssl_buffer_size`, bytes.
    pub buffer: u64,
}

/// Versions of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2.
    Old,
    /// TLS 1.3.
    New,
    /// Both.
    Any,
}

/// What a client shows where a certificate is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientIdentity {
    /// Nothing.
    None,
    /// A certificate that the server's authority has signed.
    Known,
    /// One that nobody has signed.
    Stranger,
}

impl ClientIdentity {
    /// Certificate and key.
    pub fn pair(self) -> Option<(&'static [u8], &'static [u8])> {
        match self {
            ClientIdentity::None => None,
            ClientIdentity::Known => Some(CLIENT),
            ClientIdentity::Stranger => Some(STRANGER),
        }
    }
}

/// What a client does of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsPlan {
    /// Its versions.
    pub version: TlsVersion,
    /// Its certificate.
    pub identity: ClientIdentity,
    /// Whom it wants to speak with; the server is `sim`.
    pub name: &'static str,
    /// It connects where a certificate is wanted.
    pub is_verified: bool,
    /// It goes on with a session that another one of its kind had.
    pub resumes: bool,
    /// It closes when it has sent so many bytes.
    pub cut: Option<u64>,
    /// The byte that is changed on its way.
    pub garbled: Option<u64>,
    /// It says that it sends no more before it closes.
    pub notifies: bool,
}

impl TlsSettings {
    /// What `draw` draws.
    pub fn drawn(draw: &mut Draw) -> Option<TlsSettings> {
        draw.chance(1, 3).then(|| TlsSettings {
            version: *draw.one_of(&[TlsVersion::Old, TlsVersion::New, TlsVersion::Any, TlsVersion::Any]),
            has_tickets: draw.chance(1, 2),
            has_cache: draw.chance(1, 2),
            buffer: *draw.one_of(&[1000, 4096, 16_384]),
        })
    }

    /// Lines of `http`, and of the two servers.
    pub fn configuration(&self) -> (String, String, String) {
        let word = |on: bool| if on { "on" } else { "off" };
        let protocols = self.protocols();
        let mut http = String::new();
        let _ = writeln!(http, "    ssl_certificate {FILES}server.pem;");
        let _ = writeln!(http, "    ssl_certificate_key {FILES}server.key;");
        let _ = writeln!(http, "    ssl_protocols {protocols};");
        let _ = writeln!(http, "    ssl_session_tickets {};", word(self.has_tickets));
        let cache = if self.has_cache { "shared:sessions:1m" } else { "off" };
        let _ = writeln!(http, "    ssl_session_cache {cache};");
        let _ = writeln!(http, "    ssl_buffer_size {};", self.buffer);
        let first = format!("        listen 127.0.0.1:{TLS_PORT} ssl;\n");
        let second = format!(
            "        listen 127.0.0.1:{VERIFIED_PORT} ssl;\n        ssl_verify_client on;\n        \
             ssl_client_certificate {FILES}ca.pem;\n"
        );
        (http, first, second)
    }

    /// Lines of a server of `stream`.
    pub(crate) fn session_server(&self) -> String {
        let tickets = if self.has_tickets { "on" } else { "off" };
        let cache = if self.has_cache { "shared:of_sessions:1m" } else { "off" };
        format!(
            "ssl_certificate {FILES}server.pem; ssl_certificate_key {FILES}server.key; ssl_protocols {}; \
             ssl_session_tickets {tickets}; ssl_session_cache {cache};",
            self.protocols()
        )
    }

    fn protocols(&self) -> &'static str {
        self.version.protocols()
    }
}

impl TlsVersion {
    /// As `ssl_protocols` has them.
    pub(crate) fn protocols(self) -> &'static str {
        match self {
            TlsVersion::Old => "TLSv1.2",
            TlsVersion::New => "TLSv1.3",
            TlsVersion::Any => "TLSv1.2 TLSv1.3",
        }
    }

    /// Whether the two have a version in common.
    pub(crate) fn meets(self, other: TlsVersion) -> bool {
        self == other || [self, other].contains(&TlsVersion::Any)
    }
}

impl TlsPlan {
    /// What `draw` draws of a client.
    pub fn drawn(draw: &mut Draw) -> TlsPlan {
        TlsPlan {
            version: *draw.one_of(&[TlsVersion::Old, TlsVersion::New, TlsVersion::Any, TlsVersion::Any]),
            identity: *draw.one_of(&[ClientIdentity::None, ClientIdentity::Known, ClientIdentity::Stranger]),
            name: if draw.chance(1, 12) { "other" } else { "sim" },
            is_verified: draw.chance(1, 3),
            resumes: draw.chance(3, 4),
            cut: draw.chance(1, 8).then(|| draw.below(1500)),
            garbled: draw.chance(1, 12).then(|| draw.below(800)),
            notifies: draw.chance(1, 2),
        }
    }

    /// Where it connects.
    pub fn port(&self) -> u16 {
        if self.is_verified { VERIFIED_PORT } else { TLS_PORT }
    }

    /// Whether the handshake, or what follows it, may fail.
    pub fn may_fail(&self, server: &TlsSettings) -> bool {
        !self.fits(server) || self.garbled.is_some() || self.cut.is_some() || !self.is_let_in()
    }

    /// Whether there can be a connection.
    pub fn fits(&self, server: &TlsSettings) -> bool {
        self.version.meets(server.version) && self.name == "sim"
    }

    /// Whether it may be served.
    pub fn is_let_in(&self) -> bool {
        !self.is_verified || self.identity == ClientIdentity::Known
    }
}

/// Writes the files that the configuration names.
///
/// # Errors
/// A file can't be written.
pub fn write_files(directory: &Path) -> io::Result<()> {
    std::fs::write(directory.join("server.pem"), SERVER.0)?;
    std::fs::write(directory.join("server.key"), SERVER.1)?;
    std::fs::write(directory.join("ca.pem"), AUTHORITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_clients_are_let_in_where_certificates_are_wanted() {
        let server =
            TlsSettings { version: TlsVersion::New, has_tickets: true, has_cache: true, buffer: 4096 };
        let plan = |version, identity, is_verified| TlsPlan {
            version,
            identity,
            name: "sim",
            is_verified,
            resumes: true,
            cut: None,
            garbled: None,
            notifies: true,
        };
        for (version, identity, is_verified, may_fail, is_let_in) in [
            (TlsVersion::Any, ClientIdentity::Known, true, false, true),
            (TlsVersion::New, ClientIdentity::None, false, false, true),
            (TlsVersion::Old, ClientIdentity::Known, true, true, true),
            (TlsVersion::Any, ClientIdentity::None, true, true, false),
            (TlsVersion::Any, ClientIdentity::Stranger, true, true, false),
        ] {
            let plan = plan(version, identity, is_verified);
            assert_eq!((plan.may_fail(&server), plan.is_let_in()), (may_fail, is_let_in), "{plan:?}");
        }
    }

    #[test]
    fn seeds_draw_servers_with_tls_and_without() {
        let drawn: Vec<_> = (0..100).map(|seed| TlsSettings::drawn(&mut Draw::new(seed))).collect();
        assert!(drawn.iter().any(Option::is_none) && drawn.iter().any(Option::is_some));
    }
}

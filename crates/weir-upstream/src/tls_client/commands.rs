//! `ssl_conf_command` and its like: OpenSSL's commands (SSL_CONF_cmd(3)), those that mean something here.

use weir_conf::{Error, LineCx, Result};
use weir_tls::suites::{self, ProtocolVersions};
use weir_tls::{SignatureLimits, select_signatures};

use super::values::{absolute, warn_of_groups};

/// Which side of TLS commands are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsSide {
    /// `ssl_conf_command`
    Server,
    /// `proxy_ssl_conf_command` and its like
    Client,
}

/// What the commands of a block ask for. As in nginx they come after all other directives, wherever they are written, and a
/// block with commands of its own has none of those of the blocks around it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TlsCommands {
    /// `CipherString`
    pub ciphers: Option<String>,
    /// `Ciphersuites`
    pub ciphersuites: Option<String>,
    /// `Groups`, `Curves`, `ECDHParameters`
    pub groups: Option<String>,
    /// `SignatureAlgorithms`: the numbers of the schemes.
    signatures: Option<Vec<u16>>,
    /// `ClientSignatureAlgorithms`
    client_signatures: Option<Vec<u16>>,
    /// `Protocol`: the versions that it takes to those of the directive, and away from them.
    tls12: Option<bool>,
    tls13: Option<bool>,
    /// `MinProtocol` and `MaxProtocol`, as versions are numbered in records; 0: no bound.
    least: u16,
    most: u16,
    /// `Options ServerPreference`
    pub server_preference: Option<bool>,
    /// `Options PrioritizeChaCha`
    pub prioritize_chacha: Option<bool>,
    /// `Options SessionTicket`
    pub session_tickets: Option<bool>,
    /// `NumTickets`
    pub tickets_sent: Option<usize>,
    /// `Certificate`: a path.
    certificate: Option<String>,
    /// `PrivateKey`: a path.
    key: Option<String>,
    /// `VerifyMode Peer`
    pub verifies_peer: bool,
}

impl TlsCommands {
    /// Reads a line; the last of several for one thing counts.
    ///
    /// # Errors
    /// nginx's `SSL_CONF_cmd(…) failed`: there is no such command here, or its value selects nothing.
    pub fn add(&mut self, side: TlsSide, line: &mut LineCx<'_>) -> Result {
        // In any letter case, as in OpenSSL's own files.
        let name = line.arg(0).to_ascii_lowercase();
        let owned = line.arg(1).to_owned();
        let value = owned.as_str();
        match name.as_str() {
            "ciphersuites" => {
                checked(line, suites::select_tls13(value))?;
                for name in suites::lacking_tls13(value) {
                    line.warn_arg(1, format!("the cipher suite \"{name}\" can't be had"));
                }
                self.ciphersuites = Some(value.to_owned());
            }
            "cipherstring" => {
                checked(line, suites::select(value))?;
                self.ciphers = Some(value.to_owned());
            }
            "groups" | "curves" | "ecdhparameters" => self.set_groups(&name, line)?,
            "signaturealgorithms" => self.signatures = Some(signatures(line)?),
            "clientsignaturealgorithms" => self.client_signatures = Some(signatures(line)?),
            "minprotocol" => self.least = version(line)?,
            "maxprotocol" => self.most = version(line)?,
            "protocol" => self.set_protocols(line)?,
            "certificate" => self.certificate = Some(absolute(line, 1)),
            "privatekey" => self.key = Some(absolute(line, 1)),
            "options" => {
                let mut words = value.split(',').map(str::trim);
                words.try_for_each(|word| self.set_option(side, word, line))?;
            }
            "numtickets" => {
                // Clients send none, whatever the number.
                let count = value.parse().ok().filter(|count| *count <= MOST_TICKETS);
                self.tickets_sent =
                    Some(count.ok_or_else(|| failed_command(line, "this is no number of tickets"))?);
            }
            "verifymode" if side == TlsSide::Client && value == "Peer" => self.verifies_peer = true,
            _ => return Err(failed_command(line, "there is no such command here")),
        }
        Ok(())
    }

    fn set_groups(&mut self, name: &str, line: &mut LineCx<'_>) -> Result {
        // OpenSSL's word for its own choice, in any letter case.
        let value = line.arg(1);
        let automatic = value.strip_prefix('+').unwrap_or(value).eq_ignore_ascii_case("automatic");
        if name == "ecdhparameters" && automatic {
            self.groups = Some("auto".to_owned());
            return Ok(());
        }
        checked(line, suites::select_groups(line.arg(1)))?;
        warn_of_groups(line, 1);
        self.groups = Some(line.arg(1).to_owned());
        Ok(())
    }

    /// `Protocol`: versions to take to those of the directive, or away from them with a minus.
    fn set_protocols(&mut self, line: &mut LineCx<'_>) -> Result {
        let list = line.arg(1).to_owned();
        for word in list.split(',').map(str::trim) {
            let (name, on) = signed(word);
            match name.to_ascii_lowercase().as_str() {
                "all" => (self.tls12, self.tls13) = (Some(on), Some(on)),
                "tlsv1.2" => self.tls12 = Some(on),
                "tlsv1.3" => self.tls13 = Some(on),
                "sslv3" | "tlsv1" | "tlsv1.1" if on => {
                    let why = format!("\"{name}\" can't be had: there are TLSv1.2 and TLSv1.3");
                    line.warn_arg(1, why);
                }
                "sslv2" | "sslv3" | "tlsv1" | "tlsv1.1" => {}
                _ => return Err(failed_command(line, "this is no list of versions of TLS")),
            }
        }
        Ok(())
    }

    /// One word of `Options`; a minus takes it back.
    fn set_option(&mut self, side: TlsSide, word: &str, line: &mut LineCx<'_>) -> Result {
        let (name, on) = signed(word);
        match (name.to_ascii_lowercase().as_str(), side) {
            ("serverpreference", TlsSide::Server) => self.server_preference = Some(on),
            ("prioritizechacha", TlsSide::Server) => self.prioritize_chacha = Some(on),
            ("sessionticket", _) => self.session_tickets = Some(on),
            // What only servers do is nothing to a client.
            ("serverpreference" | "prioritizechacha" | "canames" | "antireplay", TlsSide::Client) => {}
            ("ktls", _) => {
                if on {
                    line.warn_arg(1, "\"KTLS\" has no effect: records are made in the server".to_owned());
                }
            }
            (name, _) if ALWAYS.contains(&(name, on)) || NO_MATTER.contains(&name) => {}
            _ => return Err(failed_command(line, &format!("there is no option \"{word}\" here"))),
        }
        Ok(())
    }

    /// The versions that are left of those that the directive has, or has by default.
    ///
    /// # Errors
    /// None is left.
    pub fn protocols(
        &self,
        written: Option<ProtocolVersions>,
    ) -> std::result::Result<ProtocolVersions, String> {
        let written = written.unwrap_or_default();
        let (tls12, tls13) = (self.tls12.unwrap_or(written.tls12), self.tls13.unwrap_or(written.tls13));
        let within = |version: u16| self.least <= version && (self.most == 0 || version <= self.most);
        let left = ProtocolVersions { tls12: tls12 && within(TLS12), tls13: tls13 && within(TLS13) };
        match left.tls12 || left.tls13 {
            true => Ok(left),
            false => {
                Err("MinProtocol, MaxProtocol and Protocol leave neither TLSv1.2 nor TLSv1.3".to_owned())
            }
        }
    }

    /// What signatures are limited to.
    pub fn signatures(&self, side: TlsSide) -> SignatureLimits {
        let all = self.signatures.as_deref();
        // Keys of servers sign, and keys of clients, for which there may be a list of its own.
        let clients = self.client_signatures.as_deref().or(all);
        let (own, peer) = match side {
            TlsSide::Server => (all, clients),
            TlsSide::Client => (clients, all),
        };
        SignatureLimits { own: own.map(Into::into), peer: peer.map(Into::into) }
    }

    /// The paths of a certificate and its key, which take the place of those that directives name.
    ///
    /// # Errors
    /// Only one of the two is named.
    pub fn certificate(&self) -> std::result::Result<Option<(&str, &str)>, String> {
        match (&self.certificate, &self.key) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
            (Some(_), None) => Err("the command \"Certificate\" needs \"PrivateKey\" beside it".to_owned()),
            (None, Some(_)) => Err("the command \"PrivateKey\" needs \"Certificate\" beside it".to_owned()),
        }
    }
}

fn checked<T, E: std::fmt::Display>(line: &LineCx<'_>, value: std::result::Result<T, E>) -> Result<T> {
    value.map_err(|error| failed_command(line, &error.to_string()))
}

fn signatures(line: &mut LineCx<'_>) -> Result<Vec<u16>> {
    let list = line.arg(1);
    let read = checked(line, select_signatures(list))?;
    for word in read.lacking {
        line.warn_arg(1, format!("the signature algorithm \"{word}\" can't be had"));
    }
    Ok(read.schemes)
}

/// A version's number; OpenSSL takes these words in this case only.
fn version(line: &LineCx<'_>) -> Result<u16> {
    match line.arg(1) {
        "None" => Ok(0),
        "SSLv3" => Ok(0x300),
        "TLSv1" => Ok(0x301),
        "TLSv1.1" => Ok(0x302),
        "TLSv1.2" => Ok(TLS12),
        "TLSv1.3" => Ok(TLS13),
        _ => Err(failed_command(line, "this is no version of TLS")),
    }
}

/// A word without its sign, and whether it is on.
fn signed(word: &str) -> (&str, bool) {
    match word.strip_prefix('-') {
        Some(name) => (name, false),
        None => (word.strip_prefix('+').unwrap_or(word), true),
    }
}

/// A command that can't be followed.
fn failed_command(line: &LineCx<'_>, why: &str) -> Error {
    let (name, value) = (line.arg(0), line.arg(1));
    line.fail(format!("SSL_CONF_cmd(\"{name}\", \"{value}\") failed (SSL: {why})"))
}

/// What is so anyway: rustls does not renegotiate nor compress, keys of the exchange are used once, each resumption has a key
/// exchange, early data is taken once, records look as middleboxes want them, and clients are told whose certificates are
/// wanted.
const ALWAYS: [(&str, bool); 11] = [
    ("norenegotiation", true),
    ("unsafelegacyrenegotiation", false),
    ("unsafelegacyserverconnect", false),
    ("noresumptiononrenegotiation", true),
    ("compression", false),
    ("ecdhsingle", true),
    ("dhsingle", true),
    ("extendedmastersecret", true),
    ("allownodhekex", false),
    ("antireplay", true),
    ("middleboxcompat", true),
];

/// What is about suites with CBC and peers of the last century only, on or off.
const NO_MATTER: [&str; 3] = ["encryptthenmac", "emptyfragments", "bugs"];

/// Tickets after one handshake: each costs a random number and a few hundred bytes.
const MOST_TICKETS: usize = 255;
const TLS12: u16 = 0x303;
const TLS13: u16 = 0x304;

#[cfg(test)]
mod tests {
    use super::*;

    const ONLY_12: ProtocolVersions = ProtocolVersions { tls12: true, tls13: false };

    #[test]
    fn versions_are_those_of_the_directive_within_the_bounds() {
        let left = |least, most, tls12, tls13| {
            let commands = TlsCommands { least, most, tls12, tls13, ..TlsCommands::default() };
            commands.protocols(Some(ONLY_12)).map(|left| (left.tls12, left.tls13)).ok()
        };
        assert_eq!(left(0, 0, None, None), Some((true, false)));
        assert_eq!(left(0, 0, None, Some(true)), Some((true, true)), "one more");
        assert_eq!(left(0x301, TLS12, None, Some(true)), Some((true, false)));
        assert_eq!(left(TLS13, 0, None, Some(true)), Some((false, true)));
        assert_eq!(left(0, 0, Some(false), Some(true)), Some((false, true)));
        for (least, most, tls12) in
            [(TLS13, 0, None), (0, 0x302, None), (TLS13, TLS12, None), (0, 0, Some(false))]
        {
            assert_eq!(left(least, most, tls12, None), None);
        }
    }

    #[test]
    fn lists_of_signatures_are_for_keys_and_for_peers() {
        let commands = TlsCommands {
            signatures: Some(vec![1]),
            client_signatures: Some(vec![2]),
            ..TlsCommands::default()
        };
        let numbers = |side| {
            let SignatureLimits { own, peer } = commands.signatures(side);
            (own.map(|list| list[0]), peer.map(|list| list[0]))
        };
        assert_eq!(numbers(TlsSide::Server), (Some(1), Some(2)));
        assert_eq!(numbers(TlsSide::Client), (Some(2), Some(1)));
    }

    #[test]
    fn half_a_pair_is_refused() {
        let pair = |certificate: Option<&str>, key: Option<&str>| {
            let owned = |name: Option<&str>| name.map(str::to_owned);
            let commands =
                TlsCommands { certificate: owned(certificate), key: owned(key), ..TlsCommands::default() };
            commands.certificate().map(|pair| pair.is_some())
        };
        assert_eq!((pair(None, None), pair(Some("a"), Some("b"))), (Ok(false), Ok(true)));
        assert!(pair(Some("a"), None).is_err() && pair(None, Some("b")).is_err());
    }
}

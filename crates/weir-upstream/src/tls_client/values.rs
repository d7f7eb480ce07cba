//! Values of directives that both sides of TLS have: `ssl_...` of servers and `..._ssl_...` of upstreams.

use weir_conf::{LineCx, Result, parse_time_s};
use weir_tls::suites::{self, ProtocolVersions};

use super::cache::CertificateCacheLimits;
use super::files;

/// Argument `i`, counted from 0, as a path relative to the configuration's directory. An empty name, and one with a
/// prefix of its own (`data:`, `engine:`), is unchanged.
pub fn absolute(line: &LineCx<'_>, i: usize) -> String {
    let name = line.arg(i);
    if files::is_no_path(name) {
        return name.to_owned();
    }
    line.paths().conf_prefix.join(name).to_string_lossy().into_owned()
}

/// Reads `ssl_protocols`, in any letter case. TLS 1.1 and older do not exist here: each is logged as a warning.
///
/// # Errors
/// A word that is not a protocol, a line that leaves neither TLS 1.2 nor TLS 1.3, or a second such directive in a
/// block.
pub fn protocols(slot: &mut Option<ProtocolVersions>, line: &mut LineCx<'_>) -> Result {
    let mut wanted = ProtocolVersions { tls12: false, tls13: false };
    for i in 0..line.args().len() {
        // In any case, as nginx has it.
        match line.arg(i).to_ascii_lowercase().as_str() {
            "tlsv1.2" => wanted.tls12 = true,
            "tlsv1.3" => wanted.tls13 = true,
            "sslv2" | "sslv3" | "tlsv1" | "tlsv1.1" => {
                let message = format!("\"{}\" can't be had: there are TLSv1.2 and TLSv1.3", line.arg(i));
                line.warn_arg(i, message);
            }
            _ => return Err(line.invalid_value(i)),
        }
    }
    if !wanted.tls12 && !wanted.tls13 {
        return Err(line.fail("none of these protocols can be had: there are TLSv1.2 and TLSv1.3"));
    }
    line.once(slot, wanted)
}

/// Reads a list of ciphers in OpenSSL's format (`ssl_ciphers`).
///
/// # Errors
/// nginx's `SSL_CTX_set_cipher_list(…) failed` for a list that selects nothing, or a second such directive in a block.
pub fn ciphers(slot: &mut Option<String>, line: &mut LineCx<'_>) -> Result {
    let list = line.arg(0);
    suites::select(list).map_err(|error| {
        line.fail_arg(0, format!("SSL_CTX_set_cipher_list(\"{list}\") failed {}", files::ssl(&error)))
    })?;
    line.once(slot, list.to_owned())
}

/// Logs a warning for each key exchange group in argument `i`, counted from 0, that does not exist here; the others are
/// used.
pub fn warn_of_groups(line: &mut LineCx<'_>, i: usize) {
    let list = line.arg(i).to_owned();
    for name in suites::lacking_groups(&list) {
        line.warn_arg(i, format!("the group \"{name}\" can't be had: there are {}", suites::THERE_ARE));
    }
}

/// Reads `ssl_certificate_cache off | max=N [valid=time] [inactive=time]`: how many certificates at most, and times in
/// seconds, by default 60 and 10.
///
/// # Errors
/// nginx's `invalid parameter`, a line without `max`, or a second such directive in a block.
pub fn certificate_cache(slot: &mut Option<Option<CertificateCacheLimits>>, line: &mut LineCx<'_>) -> Result {
    let mut keep = CertificateCacheLimits { max: 0, valid: 60, inactive: 10 };
    for i in 0..line.args().len() {
        let invalid = || line.invalid_parameter(i);
        match line.arg(i).split_once('=') {
            None if line.arg(i) == "off" => return line.once(slot, None),
            Some(("max", n)) => keep.max = n.parse().ok().filter(|n| *n > 0).ok_or_else(invalid)?,
            Some(("valid", time)) => keep.valid = parse_time_s(time.as_bytes()).ok_or_else(invalid)?,
            Some(("inactive", time)) => keep.inactive = parse_time_s(time.as_bytes()).ok_or_else(invalid)?,
            _ => return Err(invalid()),
        }
    }
    if keep.max == 0 {
        return Err(line.fail("\"ssl_certificate_cache\" must have the \"max\" parameter"));
    }
    line.once(slot, Some(keep))
}

/// `ssl_alpn protocol ...`
///
/// # Errors
/// A name that no protocol can have.
pub fn alpn_protocols(slot: &mut Option<Vec<Vec<u8>>>, line: &mut LineCx<'_>) -> Result {
    let is_wrong = |name: &[u8]| name.is_empty() || name.len() > 255;
    if let Some(at) = line.args().iter().position(|word| is_wrong(word.bytes())) {
        let message = format!("invalid protocol \"{}\": a name has 1 to 255 bytes", line.arg(at));
        return Err(line.fail_arg(at, message));
    }
    let protocols = line.args().iter().map(|word| word.bytes().to_vec()).collect();
    line.once(slot, protocols)
}

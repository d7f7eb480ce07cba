//! `ssl_conf_command`: OpenSSL's commands, those that mean something here.

use weir_conf::{LineCx, Result};

use super::settings::SslConf;
use weir_upstream::tls_client::values::{algorithms, failed_command};

/// What is so anyway: rustls does not renegotiate nor compress, and keys of the exchange are used once.
const ALWAYS: [&str; 7] = [
    "NoRenegotiation",
    "-UnsafeLegacyRenegotiation",
    "NoResumptionOnRenegotiation",
    "-Compression",
    "ECDHSingle",
    "DHSingle",
    "ExtendedMasterSecret",
];

/// `ssl_conf_command name value`
pub(super) fn conf_command(c: &mut SslConf, line: &mut LineCx<'_>) -> Result {
    let set = c.set();
    if algorithms([&mut set.ciphers, &mut set.ciphersuites, &mut set.curves], line)? {
        return Ok(());
    }
    if !line.arg(0).eq_ignore_ascii_case("Options") {
        return Err(failed_command(line, "there is no such command here"));
    }
    // As in OpenSSL a list, in any letter case.
    let list = line.arg(1).to_owned();
    list.split(',').try_for_each(|option| options(c, line, option.trim()))
}

/// One of `Options`; a minus takes it back.
fn options(c: &mut SslConf, line: &mut LineCx<'_>, option: &str) -> Result {
    let (name, on) = match option.strip_prefix('-') {
        Some(name) => (name, false),
        None => (option.strip_prefix('+').unwrap_or(option), true),
    };
    let set = c.set();
    match name.to_ascii_lowercase().as_str() {
        "serverpreference" => set.prefer_server_ciphers = Some(on),
        "prioritizechacha" => set.prioritize_chacha = Some(on),
        "sessionticket" => set.session_tickets = Some(on),
        "ktls" => {
            if on {
                line.warn_arg(1, "\"KTLS\" has no effect: records are made in the server".to_owned());
            }
        }
        _ if ALWAYS.iter().any(|it| it.eq_ignore_ascii_case(option)) => {}
        _ => return Err(failed_command(line, &format!("there is no option \"{option}\" here"))),
    }
    Ok(())
}

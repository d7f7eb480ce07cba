//! Alerts of peers (RFC 8446, section 6) in OpenSSL 3's words, which logs are searched for.

use rustls::AlertDescription;

/// The record of a fatal alert.
#[must_use]
pub const fn fatal_alert(description: u8) -> [u8; 7] {
    [ALERT, 3, 3, 0, 2, FATAL, description]
}

/// The same before a version is agreed upon: of the version that a ClientHello's record has.
pub(crate) const fn early_fatal_alert(description: u8) -> [u8; 7] {
    [ALERT, 3, 1, 0, 2, FATAL, description]
}

/// The type of a record with an alert.
const ALERT: u8 = 21;
/// The level of an alert that ends the connection.
const FATAL: u8 = 2;

/// `sslv3 alert handshake failure:SSL alert number 40`
pub(crate) fn text(alert: AlertDescription) -> String {
    let number = u8::from(alert);
    let name =
        NAMES.iter().find(|(known, _)| *known == number).map_or("unknown alert type", |(_, name)| name);
    format!("{name}:SSL alert number {number}")
}

/// OpenSSL's number of the reason, where it is one of its library for TLS.
pub(crate) fn reason(alert: AlertDescription) -> u32 {
    1000 + u32::from(u8::from(alert))
}

const NAMES: &[(u8, &str)] = &[
    (0, "sslv3 alert close notify"),
    (10, "sslv3 alert unexpected message"),
    (20, "sslv3 alert bad record mac"),
    (21, "tlsv1 alert decryption failed"),
    (22, "tlsv1 alert record overflow"),
    (30, "sslv3 alert decompression failure"),
    (40, "sslv3 alert handshake failure"),
    (41, "sslv3 alert no certificate"),
    (42, "sslv3 alert bad certificate"),
    (43, "sslv3 alert unsupported certificate"),
    (44, "sslv3 alert certificate revoked"),
    (45, "sslv3 alert certificate expired"),
    (46, "sslv3 alert certificate unknown"),
    (47, "sslv3 alert illegal parameter"),
    (48, "tlsv1 alert unknown ca"),
    (49, "tlsv1 alert access denied"),
    (50, "tlsv1 alert decode error"),
    (51, "tlsv1 alert decrypt error"),
    (60, "tlsv1 alert export restriction"),
    (70, "tlsv1 alert protocol version"),
    (71, "tlsv1 alert insufficient security"),
    (80, "tlsv1 alert internal error"),
    (86, "tlsv1 alert inappropriate fallback"),
    (90, "tlsv1 alert user cancelled"),
    (100, "tlsv1 alert no renegotiation"),
    (109, "tlsv13 alert missing extension"),
    (110, "tlsv1 unsupported extension"),
    (111, "tlsv1 certificate unobtainable"),
    (112, "tlsv1 unrecognized name"),
    (113, "tlsv1 bad certificate status response"),
    (114, "tlsv1 bad certificate hash value"),
    (115, "tlsv1 alert unknown psk identity"),
    (116, "tlsv13 alert certificate required"),
    (120, "tlsv1 alert no application protocol"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_have_openssls_words() {
        assert_eq!(
            text(AlertDescription::HandshakeFailure),
            "sslv3 alert handshake failure:SSL alert number 40"
        );
        assert_eq!(text(AlertDescription::from(99)), "unknown alert type:SSL alert number 99");
        assert_eq!(reason(AlertDescription::NoApplicationProtocol), 0x460);
    }
}

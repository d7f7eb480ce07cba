//! Passwords as password files keep them: in the clear, hashed as crypt(3) does, or in a form of Apache's.
//!
//! A hash in a form that is not known here (yescrypt, `$y$`, among others) fits no password.

mod crypt;
mod des;
pub(crate) mod sha1;

use weir_http::base64;

/// Whether testing a password against `stored` takes so long that it must not happen in the loop: a hash of thousands
/// of rounds takes milliseconds.
pub(crate) fn is_slow(stored: &[u8]) -> bool {
    !stored.starts_with(b"{")
}

/// Whether `password` is the one that was stored. As to crypt(3), a password ends at its first NUL.
pub(crate) fn is_right(password: &[u8], stored: &[u8]) -> bool {
    let password = password.split(|byte| *byte == 0).next().unwrap_or_default();
    if let Some(plain) = stored.strip_prefix(b"{PLAIN}") {
        return same(password, plain);
    }
    for (prefix, salted) in [(&b"{SHA}"[..], false), (b"{SSHA}", true)] {
        if let Some(text) = stored.strip_prefix(prefix) {
            return sha1(password, text, salted);
        }
    }
    if stored.starts_with(b"$2") {
        let stored = std::str::from_utf8(stored).unwrap_or_default();
        return bcrypt::verify(password, stored).unwrap_or(false);
    }
    let made = match stored {
        [b'$', ..] => crypt::hash(password, stored),
        _ => des::hash(password, stored),
    };
    made.is_some_and(|made| same(&made, stored))
}

/// RFC 2307 section 5.3's `{SHA}`, and `{SSHA}` with the salt after the digest: both base64.
fn sha1(password: &[u8], text: &[u8], salted: bool) -> bool {
    // nginx compares texts: without its padding this is another one.
    let Some(decoded) = base64::decode(text).filter(|_| text.len().is_multiple_of(4)) else { return false };
    match decoded.split_at_checked(sha1::SIZE) {
        Some((digest, salt)) if salted || salt.is_empty() => {
            same(&sha1::digest(&[password, salt].concat()), digest)
        }
        _ => false,
    }
}

/// Compares in a time that does not reveal where the first difference is.
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

/// The digits of crypt(3).
const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Made by libxcrypt and OpenSSL.
    const RIGHT: [&str; 12] = [
        "{PLAIN}password",
        "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=",
        "{SSHA}yI6cZwQadOA1e+/f+T+H3eCQQhRzYWx0",
        "{SSHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=",
        "sa3tHJ3/KuYvI",
        "$1$salt$qJH7.N4xYta3aEG/dfqo/0",
        "$apr1$salt$Xxd1irWT9ycqoYxGFn4cb.",
        "$5$salt$Gcm6FsVtF/Qa77ZKD.iwsJlCVPY0XSMgLJL0Hnww/c1",
        "$5$rounds=1234$saltstring$6CvzkXXBNwSeyFTFU4FssCsmptfI62PLoNiCLwuPWfD",
        "$6$salt$IxDD3jeSOb5eB1CX5LBsqZFVkJdido3OUILO5Ifz5iwMuTS4XMS130MTSuDDl3aCI6WouIL9AjRbLCelDCy.g.",
        "$2b$05$abcdefghijklmnopqrstuuWG29KuyeAicPCJODk1zjyGvyQUU2awu",
        "$2y$05$abcdefghijklmnopqrstuuWG29KuyeAicPCJODk1zjyGvyQUU2awu",
    ];

    #[test]
    fn every_form_knows_its_password_and_no_other() {
        let wrong = |password: &str, stored: &str| {
            assert!(!is_right(password.as_bytes(), stored.as_bytes()), "{stored}");
        };
        for stored in &RIGHT {
            assert!(is_right(b"password", stored.as_bytes()), "{stored}");
            assert!(is_right(b"password\0more", stored.as_bytes()), "{stored}");
            wrong("Password", stored);
            wrong("", stored);
            wrong("passwor", stored);
            wrong("password", &stored[..stored.len() - 1]);
        }
    }

    #[test]
    fn no_password_is_too_short_or_too_long() {
        let long = "0123456789".repeat(9) + "0";
        for (password, stored) in [
            ("", "saFLGt/QKS6yw"),
            (&*long, "saqF/CZC4O2vA"),
            ("", "$1$salt$UsdFqFVB.FsuinRDK5eE.."),
            (&long, "$1$salt$jlBZXrUJzfVGDTJEQyTsM."),
            ("", "$5$salt$HrcUzzoef72uxM/YhTU5BAi419Fblqlq//zyM.rIOG0"),
            (&long, "$5$salt$MCRpnDtKGBvwwk4.bnCCy0AaTuZQKv3oKjKEgcdBks1"),
            (
                &long,
                "$6$salt$YzPnLQyYAcptg4OqtIx7WyyZ16rWSKjvG3D5mw/2GPcHMe/B53J/d4JEBRKrMCxOZ2IYxYN.hzY0i7t25td0g/",
            ),
            ("", "$2b$05$abcdefghijklmnopqrstuu0oImNDIy4flhldV9YqunRgBAePKmw7m"),
            (&long, "$2b$05$abcdefghijklmnopqrstuuLkMZtUsVwf9Ptg/wgiNv8ZhtnAHnix."),
        ] {
            assert!(is_right(password.as_bytes(), stored.as_bytes()), "{stored}");
        }
    }

    #[test]
    fn what_is_no_hash_fits_no_password() {
        for stored in [
            "",
            "*",
            "!x",
            "ab",
            "a",
            "{PLAIN}",
            "{SHA}",
            "{SHA}Zm9vCg==",
            "{SHA}_____Mm5Pz8GgiULbPgzG37mj9g=",
            "{SSHA}Zm9vCg==",
            "{SSHA}_____wQadOA1e+/f+T+H3eCQQhRzYWx0",
            "$1$",
            "$apr1$",
            "$5$",
            "$6$",
            "$2b$",
            "$9$abc",
            "$6$rounds=10$salt$x",
            "$6$rounds=$salt$x",
            "*0",
            "password",
        ] {
            assert!(!is_right(b"password", stored.as_bytes()), "{stored}");
        }
        assert!(is_right(b"", b"{PLAIN}"));
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(password in "\\PC{0,80}", stored in "(\\$[1256a]|\\$apr1|\\{SS?HA\\})?[$./0-9A-Za-z]{0,30}") {
            is_right(password.as_bytes(), stored.as_bytes());
        }
    }
}

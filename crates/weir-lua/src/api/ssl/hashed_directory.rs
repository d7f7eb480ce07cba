//! Directories of certificates as `openssl rehash` names them, by hashes of their subjects: OpenSSL opens one when it looks for an
//! issuer. Here all of them are read when a script has a store that looks into the directory.

use std::path::Path;

use weir_tls::TrustStore;
use weir_tls::certificate;

/// Files that are read of one directory; the others are left out.
const MOST_FILES: usize = 4096;
/// Of one file: more than any certificate has.
const MOST_BYTES: u64 = 1 << 20;

/// Adds the certificates and revocation lists of `directory`. What can't be read is as if it were not there, as with OpenSSL.
pub(super) fn read(directory: &Path, into: &mut TrustStore) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten().take(MOST_FILES) {
        let Some(kind) = entry.file_name().to_str().and_then(kind_of) else { continue };
        let path = entry.path();
        // A pipe is not waited for.
        if !std::fs::metadata(&path).is_ok_and(|about| about.is_file() && about.len() <= MOST_BYTES) {
            continue;
        }
        let Ok(text) = std::fs::read(&path) else { continue };
        match kind {
            HashedFile::Certificates => {
                into.certificates.extend(certificate::chain(&text).unwrap_or_default());
            }
            HashedFile::Lists => into.crls.extend(certificate::crls(&text).unwrap_or_default()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HashedFile {
    Certificates,
    Lists,
}

/// What a file of this name holds: eight hexadecimal digits, a dot, `r` for lists, a number.
fn kind_of(name: &str) -> Option<HashedFile> {
    let (hash, number) = name.split_once('.')?;
    let (kind, number) = match number.strip_prefix('r') {
        Some(number) => (HashedFile::Lists, number),
        None => (HashedFile::Certificates, number),
    };
    let is_hash = hash.len() == 8 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_hash && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_their_names() {
        for (name, kind) in [
            ("5ed36f99.0", Some(HashedFile::Certificates)),
            ("5ed36f99.12", Some(HashedFile::Certificates)),
            ("5ed36f99.r0", Some(HashedFile::Lists)),
            ("5ed36f99", None),
            ("5ed36f99.", None),
            ("5ed36f99.r", None),
            ("5ed36f9.0", None),
            ("5ed36f9g.0", None),
            ("5ed36f99.0.bak", None),
            ("ca-certificates.crt", None),
        ] {
            assert_eq!(kind_of(name), kind, "{name}");
        }
    }

    #[test]
    fn what_cant_be_read_is_left_out() {
        let place = std::env::temp_dir().join(format!("weir-hashed-{}", std::process::id()));
        std::fs::create_dir_all(place.join("33333333.0")).expect("a directory");
        let key = rcgen::KeyPair::generate().expect("a key");
        let text = rcgen::CertificateParams::default().self_signed(&key).expect("signed").pem();
        for (name, text) in
            [("11111111.0", text.as_str()), ("11111111.1", "x"), ("other.pem", &text), ("22222222.r0", "x")]
        {
            std::fs::write(place.join(name), text).expect("written");
        }
        let mut trust = TrustStore { certificates: Vec::new(), crls: Vec::new() };
        read(&place, &mut trust);
        read(&place.join("nowhere"), &mut trust);
        assert_eq!((trust.certificates.len(), trust.crls.len()), (1, 0));
        std::fs::remove_dir_all(&place).expect("removed");
    }
}

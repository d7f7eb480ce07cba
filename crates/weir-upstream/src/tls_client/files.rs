//! Certificates, keys and lists from the files that directives name, with nginx's messages for what is wrong with them.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_rt::file::O_NONBLOCK;
use weir_tls::pkcs11::{self, KeyUri};
use weir_tls::{Certificate, Error, certificate, key};

use weir_engine::privileged;

/// How files are read: when a configuration is built, or later by a worker.
pub(crate) type ReadFile = fn(&Path) -> io::Result<Vec<u8>>;

/// Reads a file while the configuration is built, which may be one that only root may read.
pub const BUILDING: ReadFile = privileged::read;

/// Reads a file for a handshake, whose client may have chosen its name: nothing that is waited for, or has no end.
pub(crate) const SERVING: ReadFile = |path| {
    let file = File::options().read(true).custom_flags(O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut content = Vec::new();
    file.take(MOST + 1).read_to_end(&mut content)?;
    match content.len() as u64 > MOST {
        true => Err(io::Error::other("it is too large")),
        false => Ok(content),
    }
};

/// Bytes of a certificate with its chain, or of a key, that a handshake reads: a hundred times what is usual.
const MOST: u64 = 1 << 20;

/// When a key is made of what its file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyMaking {
    /// When it is read.
    Now,
    /// When it is used, if it can be known now that it fits.
    Late,
}

/// A certificate with its key; `data:` before a name means that what follows is the content.
pub struct CertificateSource<'s> {
    /// The certificate's file, with its chain.
    pub certificate: &'s str,
    /// The path of the key's file.
    pub key: &'s str,
    /// What encrypted keys may be opened with.
    pub passwords: &'s [Vec<u8>],
}

impl CertificateSource<'_> {
    /// Reads the certificate and its key from the files.
    ///
    /// # Errors
    /// What is wrong, in nginx's words.
    pub fn certificate(
        &self,
        read: ReadFile,
        making: KeyMaking,
        ocsp: Option<Vec<u8>>,
    ) -> Result<Certificate, String> {
        let (name, key) = (self.certificate, self.key);
        let text = content(read, name)
            .map_err(|why| format!("cannot load certificate \"{name}\": BIO_new_file() failed {why}"))?;
        let chain = certificate::chain(&text).map_err(|error| {
            format!("cannot load certificate \"{name}\": PEM_read_bio_X509_AUX() failed {}", ssl(&error))
        })?;
        let failed =
            |error: Error| format!("SSL_CTX_use_PrivateKey(\"{}\") failed {}", shown(key), ssl(&error));
        if key.starts_with(DEVICE) {
            let private = device_key(read, key, &chain)?;
            return Ok(Certificate::new(chain, private, ocsp).map_err(failed)?.in_device());
        }
        let private = private_key(read, key, self.passwords, making)?;
        let made = match making {
            KeyMaking::Now => Certificate::new(chain, private, ocsp),
            KeyMaking::Late => Certificate::new_late(chain, private, ocsp),
        };
        made.map_err(failed)
    }
}

/// A name that is not of a file, and so not relative to a directory.
pub fn is_no_path(name: &str) -> bool {
    name.is_empty() || ["data:", "engine:", "store:", DEVICE].iter().any(|prefix| name.starts_with(prefix))
}

const DEVICE: &str = "pkcs11:";

/// A key's name as it may be in a log: without the query of a device's key, where a PIN may be.
fn shown(name: &str) -> &str {
    match name.starts_with(DEVICE) {
        true => name.split('?').next().unwrap_or(name),
        false => name,
    }
}

/// The certificate whose key a device has; `uri` is its name, `pkcs11:...`. Asks the device, which may take its time.
///
/// # Errors
/// What is wrong, in nginx's words.
pub fn device_certificate(
    chain: Vec<certificate::CertificateDer<'static>>,
    uri: &str,
) -> Result<Certificate, String> {
    let fail = |why: String| format!("cannot load certificate key \"{}\": {why}", shown(uri));
    if chain.is_empty() || !uri.starts_with(DEVICE) {
        return Err(fail("it is no name of a device's key".to_owned()));
    }
    let key = device_key(SERVING, uri, &chain)?;
    Ok(Certificate::new(chain, key, None).map_err(|error| fail(error.to_string()))?.in_device())
}

/// The key of the first of `chain` in a device.
fn device_key(
    read: ReadFile,
    name: &str,
    chain: &[certificate::CertificateDer<'static>],
) -> Result<Arc<dyn key::SigningKey>, String> {
    let fail = |why: String| format!("cannot load certificate key \"{}\": {why}", shown(name));
    let mut uri = KeyUri::parse(name).map_err(|error| fail(error.to_string()))?;
    if let Some(path) = uri.pin_source() {
        let pin = read(path).map_err(|error| {
            let errno = error.raw_os_error().unwrap_or(0);
            let why = weir_rt::file::errno_text(errno);
            fail(format!("open() \"{}\" failed ({errno}: {why})", path.display()))
        })?;
        uri = uri.with_pin(&pin).map_err(|error| fail(error.to_string()))?;
    }
    pkcs11::key(uri, &chain[0]).map_err(|error| fail(error.to_string()))
}

fn private_key(
    read: ReadFile,
    name: &str,
    passwords: &[Vec<u8>],
    making: KeyMaking,
) -> Result<Arc<dyn key::SigningKey>, String> {
    let fail = |why: String| format!("cannot load certificate key \"{name}\": {why}");
    if let Some(engine) = name.strip_prefix("engine:") {
        let form = "keys in devices are named pkcs11:token=...;object=...?module-path=...&pin-source=file";
        return Err(fail(format!("there are no engines (\"{engine}\"); {form}")));
    }
    if name.starts_with("store:") {
        return Err(fail("there are no key stores of OpenSSL's".to_owned()));
    }
    let text = content(read, name).map_err(|why| fail(format!("BIO_new_file() failed {why}")))?;
    let made = match making {
        KeyMaking::Now => key::read(&text, passwords),
        KeyMaking::Late => key::read_late(&text, passwords),
    };
    made.map_err(|error| fail(format!("PEM_read_bio_PrivateKey() failed {}", ssl(&error))))
}

fn content(read: ReadFile, name: &str) -> Result<Vec<u8>, String> {
    if let Some(data) = name.strip_prefix("data:") {
        return Ok(data.as_bytes().to_vec());
    }
    let path = PathBuf::from(name);
    read(&path).map_err(|error| cannot_open(&path, &error))
}

/// The certificates of a file that are trusted.
///
/// # Errors
/// As [`CertificateSource::certificate`].
pub fn trusted(read: ReadFile, path: &Path) -> Result<Vec<certificate::CertificateDer<'static>>, String> {
    let fail = |why: String| format!("SSL_CTX_load_verify_locations(\"{}\") failed {why}", path.display());
    let text = read(path).map_err(|error| fail(cannot_open(path, &error)))?;
    certificate::chain(&text).map_err(|error| fail(ssl(&error)))
}

/// The revocation lists of a file; certificates may be beside them.
///
/// # Errors
/// As [`CertificateSource::certificate`].
pub fn crls(read: ReadFile, path: &Path) -> Result<Vec<Vec<u8>>, String> {
    let fail = |why: String| format!("X509_LOOKUP_load_file(\"{}\") failed {why}", path.display());
    let text = read(path).map_err(|error| fail(cannot_open(path, &error)))?;
    certificate::crls(&text).map_err(|error| fail(ssl(&error)))
}

/// The lines of a file of passwords.
///
/// # Errors
/// As [`CertificateSource::certificate`].
pub fn passwords(read: ReadFile, path: &Path) -> Result<Vec<Vec<u8>>, String> {
    let text = read(path).map_err(|error| {
        let errno = error.raw_os_error().unwrap_or(0);
        format!("open() \"{}\" failed ({errno}: {})", path.display(), weir_rt::file::errno_text(errno))
    })?;
    // nginx's buffer; no password is as long.
    if text.split(|b| *b == b'\n').any(|line| line.len() >= 4096) {
        return Err(format!("too long line in \"{}\"", path.display()));
    }
    let lines = text.split(|b| *b == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    Ok(lines.filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect())
}

/// The error as OpenSSL's messages in nginx's log show it: `(SSL: error:0480006C:PEM routines::…)`.
pub fn ssl(error: &Error) -> String {
    let text = error.to_string();
    if let Some(reason) = error.reason() {
        return format!("(SSL: error:{:08X}:SSL routines::{text})", 0x0a00_0000 + reason);
    }
    let code = match text.as_str() {
        "key values mismatch" => "error:05800074:x509 certificate routines::",
        text if text.starts_with("no start line") => "error:0480006C:PEM routines::",
        text if text.starts_with("bad decrypt") => "error:1C800064:Provider routines::",
        text if text.starts_with("no cipher match") => "error:0A0000B9:SSL routines::",
        _ => "",
    };
    format!("(SSL: {code}{})", text.replacen("no start line: ", "no start line:", 1))
}

/// nginx's message for a file that can't be opened, in OpenSSL's words.
pub fn cannot_open(path: &Path, error: &io::Error) -> String {
    let Some(errno) = error.raw_os_error() else {
        return format!("(SSL: {error}: {})", path.display());
    };
    let (text, path) = (weir_rt::file::errno_text(errno), path.display());
    let end = if errno == 2 {
        " error:10000080:BIO routines::no such file"
    } else {
        " error:10080002:BIO routines::system lib"
    };
    format!(
        "(SSL: error:{:08X}:system library::{text}:calling fopen({path}, r){end})",
        0x8000_0000u32 | errno as u32
    )
}

//! Names of keys in devices: `pkcs11:token=...;object=...?module-path=...` (RFC 7512).

use std::path::{Path, PathBuf};

use crate::error::{Error, content};

/// Which key is meant, and how it is reached. What is `None` may be anything.
#[derive(Clone, Default, PartialEq, Eq)]
#[cfg_attr(not(feature = "pkcs11"), allow(dead_code, reason = "nobody asks a device"))]
pub struct KeyUri {
    /// `token`: the label of the token.
    pub(super) token: Option<String>,
    /// `serial` of the token.
    pub(super) serial: Option<String>,
    /// `manufacturer` of the token.
    pub(super) manufacturer: Option<String>,
    /// `model` of the token.
    pub(super) model: Option<String>,
    /// `slot-id`
    pub(super) slot: Option<u64>,
    /// `object`: the label of the key.
    pub(super) object: Option<Vec<u8>>,
    /// `id` of the key.
    pub(super) id: Option<Vec<u8>>,
    /// `module-path`: the device's library.
    pub(super) module: PathBuf,
    /// `pin-value`
    pub(super) pin: Option<String>,
    source: Option<PathBuf>,
}

impl KeyUri {
    /// Reads a `pkcs11:` URI (RFC 7512).
    ///
    /// # Errors
    /// An attribute is unknown, wrong, or lacks. What is said has no PIN in it.
    pub fn parse(text: &str) -> Result<KeyUri, Error> {
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| content("not a PKCS#11 URI"))?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (mut uri, mut module) = (KeyUri::default(), None);
        for attribute in path.split(';').filter(|it| !it.is_empty()) {
            uri.path_attribute(attribute)?;
        }
        for attribute in query.split('&').filter(|it| !it.is_empty()) {
            let (name, value) = pair(attribute)?;
            match name {
                "module-path" => module = Some(PathBuf::from(utf8(name, value)?)),
                "pin-value" => uri.pin = Some(utf8(name, value)?),
                "pin-source" => {
                    let source = utf8(name, value)?;
                    let path = source.strip_prefix("file:").unwrap_or(&source);
                    uri.source = Some(PathBuf::from(path.strip_prefix("//").unwrap_or(path)));
                }
                other => return Err(unknown(other)),
            }
        }
        uri.module = module.ok_or_else(|| content("the PKCS#11 URI has no module-path"))?;
        if uri.pin.is_some() && uri.source.is_some() {
            return Err(content("the PKCS#11 URI has both pin-value and pin-source"));
        }
        if uri.object.is_none() && uri.id.is_none() {
            return Err(content("the PKCS#11 URI names no key: it needs object or id"));
        }
        Ok(uri)
    }

    fn path_attribute(&mut self, attribute: &str) -> Result<(), Error> {
        let (name, value) = pair(attribute)?;
        match name {
            "token" => self.token = Some(utf8(name, value)?),
            "serial" => self.serial = Some(utf8(name, value)?),
            "manufacturer" => self.manufacturer = Some(utf8(name, value)?),
            "model" => self.model = Some(utf8(name, value)?),
            "slot-id" => {
                let number = utf8(name, value)?.parse();
                self.slot = Some(number.map_err(|_| content("slot-id of the PKCS#11 URI is no number"))?);
            }
            "object" => self.object = Some(value),
            "id" => self.id = Some(value),
            "type" if value == b"private" => {}
            "type" => return Err(content("type of the PKCS#11 URI is not \"private\"")),
            other => return Err(unknown(other)),
        }
        Ok(())
    }

    /// `pin-source` (RFC 7512): the file whose first line is the PIN. `None` when the URI has no such attribute.
    pub fn pin_source(&self) -> Option<&Path> {
        self.source.as_deref()
    }

    /// With the PIN that is in the first line of `file`.
    ///
    /// # Errors
    /// It is no text.
    pub fn with_pin(self, file: &[u8]) -> Result<KeyUri, Error> {
        let line = file.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let pin = utf8("pin-source", line.strip_suffix(b"\r").unwrap_or(line).to_vec())?;
        Ok(KeyUri { pin: Some(pin), ..self })
    }
}

/// Without the PIN.
impl std::fmt::Debug for KeyUri {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let object = self.object.as_deref().map(String::from_utf8_lossy);
        write!(f, "Uri({:?}, {:?}, {object:?})", self.module, self.token)
    }
}

fn pair(attribute: &str) -> Result<(&str, Vec<u8>), Error> {
    let (name, value) =
        attribute.split_once('=').ok_or_else(|| content("an attribute of the PKCS#11 URI has no value"))?;
    let value = unescaped(value)
        .ok_or_else(|| content(format!("\"{name}\" of the PKCS#11 URI is not percent-encoded")))?;
    Ok((name, value))
}

fn unknown(name: &str) -> Error {
    content(format!("the attribute \"{name}\" of the PKCS#11 URI is unknown"))
}

fn utf8(name: &str, value: Vec<u8>) -> Result<String, Error> {
    String::from_utf8(value).map_err(|_| content(format!("\"{name}\" of the PKCS#11 URI is no text")))
}

fn unescaped(text: &str) -> Option<Vec<u8>> {
    let (mut out, mut bytes) = (Vec::new(), text.bytes());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let digit = |b: u8| (b as char).to_digit(16);
                let high = digit(bytes.next()?)?;
                (high << 4 | digit(bytes.next()?)?) as u8
            }
            plain => plain,
        });
    }
    Some(out)
}

const SCHEME: &str = "pkcs11:";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_are_named_by_token_and_object() {
        let uri = KeyUri::parse(
            "pkcs11:token=a%20b;object=my-key;id=%01%ff;type=private;slot-id=7?module-path=/lib/x.so&pin-value=12%3B",
        )
        .expect("a name");
        assert_eq!((uri.token.as_deref(), uri.object.as_deref()), (Some("a b"), Some(&b"my-key"[..])));
        assert_eq!((uri.id.as_deref(), uri.slot), (Some(&[1, 0xff][..]), Some(7)));
        assert_eq!((uri.module.to_str(), uri.pin.as_deref()), (Some("/lib/x.so"), Some("12;")));
        assert!(!format!("{uri:?}").contains("12"), "PINs are not shown");
    }

    #[test]
    fn pins_may_come_from_a_file() {
        for source in ["file:/etc/pin", "file:///etc/pin", "/etc/pin"] {
            let uri =
                KeyUri::parse(&format!("pkcs11:id=%01?module-path=/x&pin-source={source}")).expect("a name");
            assert_eq!(uri.pin_source(), Some(Path::new("/etc/pin")), "{source}");
            assert_eq!(uri.with_pin(b"1234\r\nmore").expect("text").pin.as_deref(), Some("1234"));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, words) in [
            ("pkcs11:object=a", "no module-path"),
            ("pkcs11:?module-path=/x", "needs object or id"),
            ("pkcs11:object=a;colour=red?module-path=/x", "\"colour\""),
            ("pkcs11:object=a?module-path=/x&pin-value=1&pin-source=/y", "both"),
            ("pkcs11:object=%4?module-path=/x", "percent-encoded"),
            ("pkcs11:object=a;type=cert?module-path=/x", "private"),
            ("pkcs11:object?module-path=/x", "no value"),
        ] {
            let error = KeyUri::parse(text).expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "pkcs11:[ -~]{0,60}") {
            let _ = KeyUri::parse(&text);
        }
    }
}

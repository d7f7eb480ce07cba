//! What a ClientHello says, read from its bytes.

use crate::suites;

/// What a ClientHello says. Numbers are those of the IANA registries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HelloFields {
    /// The client's random bytes.
    pub random: [u8; 32],
    /// Versions offered, in order (0x0304 is TLS 1.3); one for a client without `supported_versions`.
    pub versions: Vec<u16>,
    /// The session identifier.
    pub session_id: Vec<u8>,
    /// Cipher suites offered, in order.
    pub cipher_suites: Vec<u16>,
    /// The name of the wanted server (SNI), in lower case; `None` without that extension.
    pub server_name: Option<String>,
    /// Protocols offered.
    pub alpn: Vec<Vec<u8>>,
    /// Key exchange groups offered, in order of preference.
    pub groups: Vec<u16>,
    /// Signature schemes offered, in order.
    pub signature_schemes: Vec<u16>,
    /// All extensions as they came, in one piece: most handshakes look at none of them.
    extensions: Vec<u8>,
}

impl HelloFields {
    /// Reads a message (RFC 8446, section 4.1.2; RFC 5246, section 7.4.1.2); `None`: malformed.
    pub fn parse(message: &[u8]) -> Option<HelloFields> {
        let mut r = HelloReader(message);
        let version = r.u16()?;
        let random = <[u8; 32]>::try_from(r.take(32)?).ok()?;
        let session_id = r.bytes8()?.to_vec();
        let cipher_suites = numbers(r.bytes16()?)?;
        r.bytes8()?;
        let mut fields = HelloFields { random, session_id, cipher_suites, ..HelloFields::default() };
        if !r.0.is_empty() {
            fields.extensions = r.bytes16()?.to_vec();
            fields.read_extensions()?;
        }
        if fields.extension_of(VERSIONS).is_none() {
            fields.versions.push(version);
        }
        r.0.is_empty().then_some(fields)
    }

    /// The fields without the list of extensions, which takes most of the memory.
    #[must_use]
    pub fn without_extensions(self) -> HelloFields {
        HelloFields { extensions: Vec::new(), ..self }
    }

    /// All extensions in order, numbers and contents.
    pub fn extensions(&self) -> impl Iterator<Item = (u16, &[u8])> {
        let mut rest = HelloReader(&self.extensions);
        std::iter::from_fn(move || Some((rest.u16()?, rest.bytes16()?)))
    }

    /// The content of the first extension with the number `kind`; `None` when the client sent none.
    pub fn extension_of(&self, kind: u16) -> Option<&[u8]> {
        self.extensions().find(|(other, _)| *other == kind).map(|(_, content)| content)
    }

    /// The server name the client asks for (`server_name`, RFC 6066, section 3), in the case of letters it was sent in.
    /// `None` when the extension is absent or holds no host name.
    pub fn name_as_sent(&self) -> Option<&[u8]> {
        let mut list = HelloReader(HelloReader(self.extension_of(SERVER_NAME)?).bytes16()?);
        let (kind, name) = (list.u8()?, list.bytes16()?);
        (kind == 0).then_some(name)
    }

    /// Versions of `supported_versions` (RFC 8446, section 4.2.1); `None`: the extension did not come.
    pub fn supported_versions(&self) -> Option<&[u16]> {
        self.extension_of(VERSIONS).map(|_| &self.versions[..])
    }

    /// A client that wants the state of certificates in the handshake (`status_request`, RFC 6066, section 8).
    pub fn wants_status(&self) -> bool {
        self.extension_of(STATUS).is_some()
    }

    /// Whether the first cipher suite that is known at all is ChaCha20: the client has no AES in hardware.
    pub(crate) fn begins_with_chacha(&self) -> bool {
        let known = |suite: &&u16| suites::known_suite(**suite).is_some();
        self.cipher_suites.iter().find(known).is_some_and(|suite| suites::is_chacha(*suite))
    }

    fn read_extensions(&mut self) -> Option<()> {
        let extensions = std::mem::take(&mut self.extensions);
        let mut rest = HelloReader(&extensions);
        while !rest.0.is_empty() {
            self.extension(rest.u16()?, rest.bytes16()?)?;
        }
        self.extensions = extensions;
        Some(())
    }

    fn extension(&mut self, kind: u16, content: &[u8]) -> Option<()> {
        let mut r = HelloReader(content);
        match kind {
            SERVER_NAME => self.server_name = server_name(r.bytes16()?)?,
            GROUPS => self.groups = numbers(r.bytes16()?)?,
            SIGNATURES => self.signature_schemes = numbers(r.bytes16()?)?,
            VERSIONS => self.versions = numbers(r.bytes8()?)?,
            ALPN => {
                let mut list = HelloReader(r.bytes16()?);
                while !list.0.is_empty() {
                    self.alpn.push(list.bytes8()?.to_vec());
                }
            }
            _ => {}
        }
        Some(())
    }
}

const SERVER_NAME: u16 = 0;
const STATUS: u16 = 5;
const GROUPS: u16 = 10;
const SIGNATURES: u16 = 13;
const ALPN: u16 = 16;
const VERSIONS: u16 = 43;

/// The host name of a list of names (RFC 6066, section 3); what can be no name of a host counts as none.
fn server_name(list: &[u8]) -> Option<Option<String>> {
    let mut r = HelloReader(list);
    while !r.0.is_empty() {
        let (kind, name) = (r.u8()?, r.bytes16()?);
        if kind == 0 {
            let name = name.strip_suffix(b".").unwrap_or(name);
            let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
            // No empty label, which could lead a file's path upwards, and no longer than names are (OpenSSL: 255).
            let labels = name.split(|b| *b == b'.').all(|label| !label.is_empty());
            let good = labels && name.len() <= 255 && name.iter().all(plain);
            return Some(good.then(|| String::from_utf8_lossy(name).to_ascii_lowercase()));
        }
    }
    Some(None)
}

fn numbers(list: &[u8]) -> Option<Vec<u16>> {
    let pairs = list.chunks_exact(2);
    pairs.remainder().is_empty().then(|| pairs.map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect())
}

struct HelloReader<'b>(&'b [u8]);

impl<'b> HelloReader<'b> {
    fn take(&mut self, n: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|b| b[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|b| u16::from_be_bytes([b[0], b[1]]))
    }

    /// Bytes after their length of one byte.
    fn bytes8(&mut self) -> Option<&'b [u8]> {
        let len = self.u8()?;
        self.take(usize::from(len))
    }

    /// Bytes after their length of two bytes.
    fn bytes16(&mut self) -> Option<&'b [u8]> {
        let len = self.u16()?;
        self.take(usize::from(len))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A hello with a name, two protocols and TLS 1.3.
    pub(crate) fn message() -> Vec<u8> {
        let mut m = vec![3, 3];
        m.extend([7; 32]);
        m.extend([2, 0xaa, 0xbb]);
        m.extend([0, 4, 0x13, 0x01, 0xc0, 0x2b]);
        m.extend([1, 0]);
        let mut ext = vec![0, 0, 0, 10, 0, 8, 0, 0, 5];
        ext.extend(b"Ex.de");
        ext.extend([0, 16, 0, 14, 0, 12, 2, b'h', b'2', 8]);
        ext.extend(b"http/1.1");
        ext.extend([0, 43, 0, 3, 2, 3, 4, 0x0a, 0x0a, 0, 0]);
        m.extend((ext.len() as u16).to_be_bytes());
        m.extend(ext);
        m
    }

    #[test]
    fn everything_is_read() {
        let fields = HelloFields::parse(&message()).expect("well formed");
        assert_eq!(fields.versions, [0x0304]);
        assert_eq!(fields.supported_versions(), Some(&[0x0304][..]));
        assert_eq!((fields.random, fields.name_as_sent()), ([7; 32], Some(&b"Ex.de"[..])));
        assert!(!fields.wants_status());
        assert_eq!(fields.session_id, [0xaa, 0xbb]);
        assert_eq!(fields.cipher_suites, [0x1301, 0xc02b]);
        assert_eq!(fields.server_name.as_deref(), Some("ex.de"));
        assert_eq!(fields.alpn, [b"h2".to_vec(), b"http/1.1".to_vec()]);
        assert_eq!(fields.extension_of(0x0a0a), Some(&[][..]));
    }

    #[test]
    fn what_names_no_host_counts_as_no_name() {
        let said = |name: &[u8]| {
            let mut list = vec![0, (name.len() >> 8) as u8, name.len() as u8];
            list.extend(name);
            server_name(&list).expect("well formed")
        };
        assert_eq!(said(b"A.example.com.").as_deref(), Some("a.example.com"));
        assert_eq!(said(&[b'a'; 255]).map(|name| name.len()), Some(255));
        for no_host in [
            &b"../x"[..],
            b"a/b",
            b"a\0b",
            b"%2e",
            b"..",
            "…".as_bytes(),
            b"",
            b".",
            b".a",
            b"a..b",
            &[b'a'; 256],
        ] {
            assert_eq!(said(no_host), None, "{:?}", String::from_utf8_lossy(no_host));
        }
    }

    proptest! {
        #[test]
        fn any_message_is_read(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            HelloFields::parse(&bytes);
        }

        #[test]
        fn a_hello_with_a_wrong_byte_is_read(at in 0usize..100, byte in any::<u8>()) {
            let mut message = message();
            let at = at % message.len();
            message[at] = byte;
            if let Some(fields) = HelloFields::parse(&message) {
                fields.name_as_sent();
                fields.supported_versions();
            }
        }
    }
}

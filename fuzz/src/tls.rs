//! What TLS peers and configurations bring: hellos, certificates, keys.

use weir_tls::quic::{InitialProgress, InitialReader};
use weir_tls::{HelloAcceptor, HelloFields, certificate, facts, key, ocsp};

/// A ClientHello, as records and as a message; the outcome does not depend on how the bytes are cut.
pub fn hello(data: &[u8]) {
    HelloFields::parse(data);
    let mut out = Vec::new();
    let whole = HelloAcceptor::default().handle(data, &mut out).map(|hello| hello.map(|hello| hello.fields));
    let mut acceptor = HelloAcceptor::default();
    let mut pieces = Ok(None);
    for byte in data.chunks(1) {
        pieces = acceptor.handle(byte, &mut Vec::new()).map(|hello| hello.map(|hello| hello.fields));
        if !matches!(pieces, Ok(None)) {
            break;
        }
    }
    assert_eq!(whole, pieces);
}

/// A client's first datagrams of QUIC, and the frames of such packets, two bytes of length before each.
pub fn initial(data: &[u8]) {
    InitialReader::new().push(data);
    let (mut sealed, mut plain) = (InitialReader::new(), InitialReader::new());
    let mut rest = data;
    while let Some((length, after)) = rest.split_first_chunk() {
        let (piece, after) = after.split_at(usize::from(u16::from_be_bytes(*length)).min(after.len()));
        rest = after;
        sealed.push(piece);
        let progress = plain.push_payload(piece);
        if let InitialProgress::Hello(_) = progress {
            assert_eq!(plain.push_payload(piece), progress, "the same frames say the same");
        }
    }
}

/// Certificates and keys: everything that is asked of them.
pub fn certificate(data: &[u8]) {
    let _ = key::read(data, &[b"password".to_vec()]);
    let chain = certificate::chain(data).unwrap_or_default();
    for der in chain.iter().map(|der| der.as_ref()).chain([data]) {
        facts::subject(der);
        facts::issuer_oneline(der);
        facts::serial(der);
        facts::valid_until(der);
        facts::days_left(der, 1_800_000_000);
        weir_tls::matches_host(der, "a.example.com");
    }
    let trust = weir_tls::TrustStore {
        certificates: chain.clone(),
        crls: certificate::crls(data).unwrap_or_default(),
    };
    let _ =
        weir_tls::chain::check(&chain, &trust, 1, weir_tls::chain::CertificatePurpose::Client, 1_800_000_000);
}

/// An answer about a certificate, which is that of [`CERTIFICATE`]: it is read, and none of it is believed.
pub fn ocsp(data: &[u8]) {
    let chain = certificate::chain(CERTIFICATE).expect("a certificate");
    let own = &chain[0];
    for signer in [ocsp::OcspSigner::Any, ocsp::OcspSigner::Issuer] {
        assert!(
            ocsp::check_response(data, own, own, &chain, signer, 1_800_000_000).is_err(),
            "nobody has signed it"
        );
    }
    ocsp::responder(data);
    ocsp::id(data, own);
    ocsp::issuer(data, &chain);
}

/// A name of a key in a device.
pub fn pkcs11_uri(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(uri) = weir_tls::pkcs11::KeyUri::parse(&text) {
        let _ = uri.with_pin(data);
    }
}

/// The frame of a good answer, with nothing in it that is signed.
pub const OCSP: &[u8] = b"\x30\x23\x0a\x01\x00\xa0\x1e\x30\x1c\x06\x09\x2b\x06\x01\x05\x05\x07\x30\x01\x01\x04\x0f\x30\x0d\x30\x03\xa2\x01\x00\x30\x02\x06\x00\x03\x02\x00\x00";

/// A hello of 46 bytes with a name.
pub const HELLO: &[u8] = b"\x16\x03\x01\x00\x3a\x01\x00\x00\x36\x03\x0300112233445566778899aabbccddeeff\x00\x00\x02\x13\x01\x01\x00\x00\x0b\x00\x00\x00\x07\x00\x05\x00\x00\x02a.";

/// An Initial packet with that hello, sealed.
pub const INITIAL: &[u8] = b"\
    \xca\x00\x00\x00\x01\x08\x83\x94\xc8\xf0\x3e\x51\x57\x08\x00\x00\x40\x52\x6a\xa9\x8d\x2e\x46\xb4\x51\
    \xe0\x9b\x7c\xa3\x11\xc0\xa5\x7f\xa5\xf7\xb9\x45\xf1\x11\x23\x24\xca\x9e\x65\x21\x2d\x86\x41\x87\x56\
    \xa3\x1f\x61\xd5\x6e\x17\x87\x0d\x20\x6f\x12\x3c\x1a\x71\x27\xfb\x13\xe5\xe5\x74\xe9\x02\x63\xd7\x31\
    \xe3\xbd\x76\xa1\xdd\xd0\x89\x50\x47\x4c\xf4\xde\x0f\xe5\x06\xe7\x7f\x0e\x1a\xa0\x7b\xec\x3d\x09\x45";

/// Frames with it: in two packets, the second part first.
pub const INITIAL_FRAMES: &[u8] = b"\x00\x21\x01\x06\x1e\x1ccddeeff\x00\x00\x02\x13\x01\x01\x00\x00\x0b\x00\x00\x00\x07\x00\x05\x00\x00\x02a.\x00\x00\x22\x06\x00\x1e\x01\x00\x00\x36\x03\x0300112233445566778899aabb\x00";

/// A certificate of two names, signed by itself.
pub const CERTIFICATE: &[u8] = b"\
-----BEGIN CERTIFICATE-----\n\
MIIB4DCCAYWgAwIBAgIUc5CE9PiXfUVwyjnTNTBqRBY9LDEwCgYIKoZIzj0EAwIw\n\
NDELMAkGA1UEBhMCREUxDTALBgNVBAoMBGEsIGIxFjAUBgNVBAMMDWEuZXhhbXBs\n\
ZS5jb20wHhcNMjYxMTIxMTUwMjI0WhcNMzYxMTE4MTUwMjI0WjA0MQswCQYDVQQG\n\
EwJERTENMAsGA1UECgwEYSwgYjEWMBQGA1UEAwwNYS5leGFtcGxlLmNvbTBZMBMG\n\
ByqGSM49AgEGCCqGSM49AwEHA0IABNaLRxht5c3Mb68nVbJYjHXuX/SOmw4gzrzp\n\
NwX5OYZa1njlHM+jHpgQOClbspGRLoR2puAfk/hJ9T+cWwzqsiSjdTBzMB0GA1Ud\n\
DgQWBBSIxTxi8w/Ot9JH+b/g+FXXgKzTMTAfBgNVHSMEGDAWgBSIxTxi8w/Ot9JH\n\
+b/g+FXXgKzTMTAPBgNVHRMBAf8EBTADAQH/MCAGA1UdEQQZMBeCDWEuZXhhbXBs\n\
ZS5jb22CBiouYi5kZTAKBggqhkjOPQQDAgNJADBGAiEAthwpe0++RoRF5NuPlWA4\n\
pj1mfebglbvQV2QjuPsqYd4CIQDAdEvPRZiw+1VV3LMToqfeC0ylg3cUZ63FHc3b\n\
KfQHjA==\n\
-----END CERTIFICATE-----";

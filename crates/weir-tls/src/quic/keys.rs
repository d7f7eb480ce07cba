//! The keys that outlive connections: of stateless resets, by which a server ends a connection that it has lost (RFC 9000,
//! section 10.3), and of tokens, which show that a client receives at its address (section 8.1).

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::{hkdf, hmac};
use quinn_proto::crypto::{HandshakeTokenKey, HmacKey};

/// See the module. All workers share them.
#[derive(Clone)]
pub struct QuicKeys {
    reset: Arc<hmac::Key>,
    token: Arc<hkdf::Prk>,
}

impl QuicKeys {
    /// Keys out of a secret of any length, as the content of a file (`quic_host_key`): the same for each process that has it.
    pub fn from_host_key(secret: &[u8]) -> QuicKeys {
        let host = hkdf::Salt::new(hkdf::HKDF_SHA256, b"weir quic host key").extract(secret);
        let reset = hmac::Key::new(hmac::HMAC_SHA256, &derived(&host, b"stateless reset"));
        let token = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, &derived(&host, b"token"));
        QuicKeys { reset: Arc::new(reset), token: Arc::new(token) }
    }

    /// What stateless resets are computed with.
    pub fn reset_key(&self) -> Arc<dyn HmacKey> {
        self.reset.clone()
    }

    /// What tokens are sealed with, of Retry packets and of later connections.
    pub fn token_key(&self) -> Arc<dyn HandshakeTokenKey> {
        self.token.clone()
    }
}

fn derived(host: &hkdf::Prk, purpose: &[u8]) -> [u8; 32] {
    let mut key = [0; 32];
    let info = [purpose];
    let expanded = host.expand(&info, hkdf::HKDF_SHA256).and_then(|it| it.fill(&mut key));
    expanded.expect("as much as the hash gives is not too much");
    key
}

impl fmt::Debug for QuicKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QuicKeys")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reset(keys: &QuicKeys) -> [u8; 32] {
        let mut signature = [0; 32];
        keys.reset_key().sign(b"an ID", &mut signature);
        signature
    }

    fn sealed(keys: &QuicKeys) -> Vec<u8> {
        let mut token = b"an address".to_vec();
        keys.token_key().aead_from_hkdf(b"a nonce").seal(&mut token, b"").expect("short");
        token
    }

    #[test]
    fn a_host_key_gives_the_same_keys_always_and_another_gives_others() {
        let (one, same, other) =
            (QuicKeys::from_host_key(b"a"), QuicKeys::from_host_key(b"a"), QuicKeys::from_host_key(b"b"));
        assert_eq!((reset(&one), sealed(&one)), (reset(&same), sealed(&same)));
        assert_ne!(reset(&one), reset(&other));
        assert_ne!(sealed(&one), sealed(&other));
        let mut token = sealed(&one);
        let opened = same.token_key().aead_from_hkdf(b"a nonce").open(&mut token, b"").map(|it| it.to_vec());
        assert_eq!(opened.expect("of the same key"), b"an address");
        let (first, second) = (QuicKeys::from_host_key(b"one"), QuicKeys::from_host_key(b"two"));
        assert_ne!(reset(&first), reset(&second));
    }
}

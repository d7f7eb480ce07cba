//! Keys of resets and tokens.

use weir_tls::quic::QuicKeys;

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
    let (first, second) = (QuicKeys::random().expect("random"), QuicKeys::random().expect("random"));
    assert_ne!(reset(&first), reset(&second));
}

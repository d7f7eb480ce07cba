//! The group secp521r1, which rustls leaves out: ECDH over aws-lc (RFC 8446, section 4.2.8.2). It is offered only where a
//! configuration names it: no usual client needs it, and it costs some six times as much as prime256v1.

use aws_lc_rs::agreement::{ECDH_P521, EphemeralPrivateKey, PublicKey, UnparsedPublicKey, agree_ephemeral};
use aws_lc_rs::rand::SystemRandom;
use rustls::crypto::{ActiveKeyExchange, SharedSecret, SupportedKxGroup};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, PeerMisbehaved};

/// secp521r1
pub(crate) static SECP521R1: &dyn SupportedKxGroup = &P521Group;

#[derive(Debug)]
struct P521Group;

impl SupportedKxGroup for P521Group {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let private = EphemeralPrivateKey::generate(&ECDH_P521, &SystemRandom::new())
            .map_err(|_| Error::FailedToGetRandomBytes)?;
        let public = private.compute_public_key().map_err(|_| Error::FailedToGetRandomBytes)?;
        Ok(Box::new(P521Exchange { private, public }))
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::secp521r1
    }
}

/// An exchange that has begun.
struct P521Exchange {
    private: EphemeralPrivateKey,
    public: PublicKey,
}

impl ActiveKeyExchange for P521Exchange {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        let invalid = || Error::from(PeerMisbehaved::InvalidKeyShare);
        // TLS has uncompressed points only; the library would take others, too. Whether it is on the curve is found there.
        if peer.first() != Some(&4) {
            return Err(invalid());
        }
        let peer = UnparsedPublicKey::new(&ECDH_P521, peer);
        agree_ephemeral(self.private, peer, (), |secret| Ok(SharedSecret::from(secret)))
            .map_err(|()| invalid())
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::secp521r1
    }

    fn pub_key(&self) -> &[u8] {
        self.public.as_ref()
    }
}

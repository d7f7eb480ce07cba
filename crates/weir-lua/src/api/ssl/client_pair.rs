//! A certificate and its key, parsed by `ngx.ssl`, for a socket that shows them to a server.

use std::rc::Rc;

use weir_tls::Certificate;

use crate::api::ssl::parsed::{CertificateChain, PrivateKey};
use crate::luajit::state::LuaState;

/// See the module.
pub(crate) struct ClientPair {
    chain: Rc<CertificateChain>,
    key: Rc<PrivateKey>,
}

impl ClientPair {
    /// Both together.
    ///
    /// # Errors
    /// They don't fit, or a device does not have the key.
    pub(crate) async fn certificate(&self) -> Result<Certificate, String> {
        self.chain.with(&self.key).await
    }
}

impl ClientPair {
    /// As [`ClientPair::certificate`], at once.
    ///
    /// # Errors
    /// They don't fit, or the key is a device's, which is to be waited for.
    pub(crate) fn certificate_now(&self) -> Result<Certificate, String> {
        self.chain.with_now(&self.key)
    }
}

/// The pair at these places of the stack, if it is one.
pub(crate) fn client_pair(l: LuaState, certificate: i32, key: i32) -> Option<ClientPair> {
    Some(ClientPair { chain: l.owned(certificate)?, key: l.owned(key)? })
}

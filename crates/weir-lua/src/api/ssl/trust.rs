//! What scripts trust instead of the configuration's certificates: what a store of OpenSSL's holds, which `weir.ssl_objects` has read.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use weir_tls::TrustStore;
use weir_tls::certificate::CertificateDer;

use crate::api::ssl::hashed_directory;
use crate::luajit::state::LuaState;
use crate::run::function::{ApiFunction, CallDone, function};

/// What scripts have of a store.
pub(crate) struct ScriptTrust(pub(crate) Arc<TrustStore>);

pub(super) const TABLE: &[ApiFunction] = &[function("_ssl.trust_store", 0, |l| {
    let certificates = list(l, 1).into_iter().map(CertificateDer::from).collect();
    let mut trust = TrustStore { certificates, crls: list(l, 2) };
    for directories in list(l, 3) {
        for directory in String::from_utf8_lossy(&directories).split(':') {
            hashed_directory::read(Path::new(directory), &mut trust);
        }
    }
    l.push_owned(Rc::new(ScriptTrust(Arc::new(trust))), c"weir.trust_store");
    Ok(CallDone::Results(1))
})];

/// The texts of the list at `at`.
fn list(l: LuaState, at: i32) -> Vec<Vec<u8>> {
    let mut texts = Vec::new();
    loop {
        l.raw_get_index(at, texts.len() + 1);
        let text = l.bytes(-1).map(<[u8]>::to_vec);
        l.pop(1);
        match text {
            Some(text) => texts.push(text),
            None => return texts,
        }
    }
}

//! OpenSSL behind `ffi.C`: which names it has, and where it is looked for.
//!
//! OpenResty's nginx is linked with OpenSSL, so that a script finds its functions by `ffi.C`. Weir's TLS is another library,
//! whose names are its own. A script that looks for a name of OpenSSL's has the system's library loaded.

use weir_sys::library::OPENSSL;

use crate::run::function::{ApiFunction, CallDone, expect_string, function};
use crate::run::lend;
use crate::vm::settings::OpensslPlace;

pub(super) const TABLE: &[ApiFunction] = &[
    function("_openssl.has", 0, |l| {
        let name = expect_string(&l, 1, "has")?;
        l.push_boolean(is_exported(&name));
        Ok(CallDone::Results(1))
    }),
    function("_openssl.libraries", 0, |l| {
        l.new_table(2 * OPENSSL.len(), 0);
        let names = OPENSSL.iter().flat_map(|(crypto, ssl)| [crypto, ssl]);
        for (at, name) in names.enumerate() {
            l.push_bytes(name.as_bytes());
            l.raw_set_index(-2, at + 1);
        }
        Ok(CallDone::Results(1))
    }),
    function("_openssl.place", 0, |l| {
        match lend::vm(|vm| vm.main_conf.openssl.clone()) {
            None | Some(OpensslPlace::System) => l.push_boolean(true),
            Some(OpensslPlace::Off) => l.push_boolean(false),
            Some(OpensslPlace::File(path)) => l.push_bytes(path.as_bytes()),
        }
        Ok(CallDone::Results(1))
    }),
];

/// Whether `name` is one of OpenSSL 3's functions or variables.
fn is_exported(name: &[u8]) -> bool {
    NAMES.binary_search_by(|known| known.as_bytes().cmp(name)).is_ok()
}

/// The names of `names.txt`, in order; `conformance/openssl-names` makes it of a library.
static NAMES: std::sync::LazyLock<Vec<&str>> =
    std::sync::LazyLock::new(|| include_str!("names.txt").lines().collect());

#[cfg(test)]
mod tests {
    use super::{NAMES, is_exported};

    #[test]
    fn names_are_in_order_and_are_openssls() {
        assert!(NAMES.is_sorted() && NAMES.len() > 5000, "{}", NAMES.len());
        for name in ["OBJ_sn2nid", "EVP_PKEY_new", "SSL_CTX_new", "OPENSSL_init_ssl", "RAND_bytes"] {
            assert!(is_exported(name.as_bytes()), "{name}");
        }
        for name in ["", "OBJ_sn2nid2", "getpid", "EVP_", "zzz"] {
            assert!(!is_exported(name.as_bytes()), "{name}");
        }
    }
}

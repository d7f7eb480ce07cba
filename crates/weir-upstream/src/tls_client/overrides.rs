//! TLS toward servers as a script wants it for its request, in place of what the location says.
//!
//! What it changes makes another [`ClientTls`] of the location's. A worker remembers those that it has made, so that requests with
//! the same wishes share connections, and a wish costs a request a few comparisons.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use weir_tls::{Certificate, TrustStore};

use weir_engine::exchange::Exchange;

use super::client::ClientTls;

/// What a script has said of the TLS toward servers, as a request's [state](Exchange::state), which an internal redirect loses;
/// `None`: as the location says.
#[derive(Clone, Default)]
pub struct TlsOverrides {
    /// The certificate that servers are shown.
    pub certificate: Option<Certificate>,
    /// Whom their certificates must come from, where they are verified.
    pub trust: Option<Arc<TrustStore>>,
    /// Whether they are verified.
    pub verify: Option<bool>,
    /// Over how many others.
    pub depth: Option<usize>,
    /// Names of hosts, one of which a server's certificate may have in place of the location's, separated by spaces.
    pub hosts: Option<Arc<str>>,
    /// As `hosts`, of URIs.
    pub uris: Option<Arc<str>>,
    /// A session's server is spoken to without TLS.
    pub plain: bool,
}

impl PartialEq for TlsOverrides {
    fn eq(&self, other: &TlsOverrides) -> bool {
        let TlsOverrides { certificate, trust, verify, depth, hosts, uris, plain } = self;
        let certificates = match (certificate, &other.certificate) {
            (Some(one), Some(other)) => one.is_same(other),
            (one, other) => one.is_none() && other.is_none(),
        };
        let trusts = match (trust, &other.trust) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        certificates
            && trusts
            && plain == &other.plain
            && (verify, depth, hosts, uris) == (&other.verify, &other.depth, &other.hosts, &other.uris)
    }
}

impl TlsOverrides {
    fn is_empty(&self) -> bool {
        *self == TlsOverrides::default()
    }
}

/// One that was made.
struct DerivedTls {
    base: Weak<ClientTls>,
    overrides: TlsOverrides,
    made: Arc<ClientTls>,
}

thread_local! {
    /// The one that was asked for last is first.
    static DERIVED: RefCell<Vec<DerivedTls>> = const { RefCell::new(Vec::new()) };
}

/// How many a worker remembers. The one that was not asked for longest makes room.
const MOST: usize = 256;

/// What `x` uses where its location has `base`.
pub(super) fn of(base: &Arc<ClientTls>, x: &Exchange) -> Arc<ClientTls> {
    let Some(overrides) = x.state_if::<TlsOverrides>().filter(|own| !own.is_empty()) else {
        return base.clone();
    };
    let known = DERIVED.with_borrow_mut(|all| {
        let is = |one: &DerivedTls| one.base.as_ptr() == Arc::as_ptr(base) && one.overrides == *overrides;
        let at = all.iter().position(is)?;
        all[..=at].rotate_right(1);
        Some(all[0].made.clone())
    });
    known.unwrap_or_else(|| match base.with(overrides) {
        Ok(made) => remembered(base, overrides, Arc::new(made)),
        Err(message) => {
            x.log_error(&format_args!("{message} while overriding TLS of upstream"));
            base.clone()
        }
    })
}

fn remembered(base: &Arc<ClientTls>, overrides: &TlsOverrides, made: Arc<ClientTls>) -> Arc<ClientTls> {
    DERIVED.with_borrow_mut(|all| {
        // Those of configurations that are over.
        all.retain(|one| one.base.strong_count() > 0);
        all.truncate(MOST - 1);
        let derived =
            DerivedTls { base: Arc::downgrade(base), overrides: overrides.clone(), made: made.clone() };
        all.insert(0, derived);
    });
    made
}

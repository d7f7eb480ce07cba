//! TLS of upstream servers: rustls as a server, with the simulation's clock and random numbers.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, ServerSessionMemoryCache};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, ServerConnection};

use weir_sim::draw::Draw;
use weir_sim::upstream_tls::{
    TlsServerFault, TlsServerPlan, UPSTREAM_NAME, UpstreamIdentity, UpstreamTlsPlan,
};

use super::channel::{ChannelFaults, TlsChannel};
use super::tls::{self, SimTime};

/// The upstream servers that speak TLS.
#[derive(Debug, Default)]
pub(super) struct TlsServers {
    servers: Vec<(TlsServerPlan, Arc<ServerConfig>)>,
    faults: u64,
}

impl TlsServers {
    /// Those of a plan.
    pub(super) fn new(plan: Option<&UpstreamTlsPlan>) -> Option<TlsServers> {
        let Some(plan) = plan else { return Some(TlsServers::default()) };
        let made = |server: &TlsServerPlan| Some((*server, Arc::new(configuration(server)?)));
        let servers = plan.servers.iter().map(made).collect::<Option<Vec<_>>>()?;
        Some(TlsServers { servers, faults: plan.faults })
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.servers.len()
    }

    /// The channel of a connection to a server at `now` of the simulation's nanoseconds.
    pub(super) fn accept(&self, server: usize, now: u64, draw: &mut Draw) -> Option<TlsChannel> {
        let (plan, config) = self.servers.get(server)?;
        SimTime::set(now);
        let mut connection = ServerConnection::new(config.clone()).ok()?;
        connection.set_buffer_limit(None);
        let fault = draw.chance(self.faults, 1000).then(|| TlsServerFault::drawn(draw));
        let mut faults = ChannelFaults { notifies: plan.notifies, ..ChannelFaults::default() };
        match fault {
            Some(TlsServerFault::Cut(at)) => faults.cut = Some(at),
            Some(TlsServerFault::Garbled(at)) => faults.garbled = Some(at),
            Some(TlsServerFault::Stalls(at)) => faults.stall = Some(at),
            None => (),
        }
        Some(TlsChannel::of_server(connection, faults))
    }
}

/// The certificates of a server: which one it shows follows from the name that it is asked for.
#[derive(Debug)]
struct ShownKeys {
    named: Arc<CertifiedKey>,
    unnamed: Arc<CertifiedKey>,
}

impl ResolvesServerCert for ShownKeys {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let is_named = hello.server_name() == Some(UPSTREAM_NAME);
        Some(if is_named { self.named.clone() } else { self.unnamed.clone() })
    }
}

fn configuration(plan: &TlsServerPlan) -> Option<ServerConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = |identity: UpstreamIdentity| {
        let (certificate, key) = identity.pair();
        let chain = vec![CertificateDer::from_pem_slice(certificate).ok()?];
        let key = provider.key_provider.load_private_key(PrivateKeyDer::from_pem_slice(key).ok()?).ok()?;
        Some(Arc::new(CertifiedKey::new(chain, key)))
    };
    let keys = ShownKeys { named: key(plan.named)?, unnamed: key(plan.unnamed)? };
    let builder = ServerConfig::builder_with_details(provider, Arc::new(SimTime));
    let builder = builder.with_protocol_versions(&tls::versions(plan.version)).ok()?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::new(keys));
    config.session_storage = match plan.resumes {
        true => ServerSessionMemoryCache::new(32),
        false => Arc::new(NoServerSessionStorage {}),
    };
    Some(config)
}

//! Scripts of handshakes with servers: `proxy_ssl_certificate_by_lua`, `proxy_ssl_verify_by_lua`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use weir_engine::Exchange;
use weir_engine::log::Level;
use weir_engine::phase::LocalFuture;
use weir_tls::VerifyProblem;
use weir_upstream::tls_client::{Met, Shown, UpstreamHandler};

use crate::api::ssl::parsed::{self, Chain};
use crate::api::ssl::ssl::{self, noted};
use crate::api::ssl::{OVER, Wishes};
use crate::api::{Done, Function, Outcome, Raise, expect_number, fail, function};
use crate::hooks::phases::{Home, Settings};
use crate::hooks::tls::clients::{Sources, goes_on};
use crate::luajit::state::State;
use crate::run::drive::drive;
use crate::run::lend;
use crate::run::op::End;
use crate::run::run::Run;
use crate::vm::chunk::{Chunk, Source};
use crate::vm::phase::Phase;

/// The scripts of a location.
pub(crate) struct UpstreamScripts {
    home: Home,
    settings: Settings,
    certificate: Option<Chunk>,
    verify: Option<Chunk>,
    judges_alone: bool,
}

/// A handshake with a server, for the script that runs.
#[derive(Default)]
struct Toward {
    wishes: RefCell<Wishes>,
    /// The version, where that is known.
    version: Option<&'static str>,
    /// Behind the handshake.
    met: Option<Met>,
    /// The verdict, by OpenSSL's number; 0: the certificate will do.
    result: Cell<u16>,
}

/// The handshake that a request's script runs for.
#[derive(Default)]
struct Current(pub(crate) Option<Rc<Toward>>);

impl UpstreamScripts {
    pub(crate) fn new(home: &Home, settings: Settings, sources: &Sources) -> UpstreamScripts {
        let chunk = |source: &Option<Source>| source.clone().map(Chunk::new);
        UpstreamScripts {
            home: home.clone(),
            settings,
            certificate: chunk(&sources.shown),
            verify: chunk(&sources.verify),
            judges_alone: sources.judges_alone.unwrap_or(false),
        }
    }

    /// Runs a script to its end; whether the handshake goes on.
    async fn run(&self, x: &mut Exchange, phase: Phase, chunk: &Chunk, toward: &Rc<Toward>) -> bool {
        x.state::<Current>().0 = Some(toward.clone());
        let begun = self.home.vm(x).and_then(|vm| {
            chunk.push(&vm, Some(x)).map_err(|unloaded| unloaded.message)?;
            Ok(Run::new(&vm, phase, false))
        });
        let end = match begun {
            Ok(mut run) => drive(&mut run, x, &self.settings).await,
            Err(message) => {
                x.log(Level::Error, &message);
                Some(End::Error)
            }
        };
        x.state::<Current>().0 = None;
        goes_on(x, phase, end.as_ref())
    }

    async fn shown(&self, x: &mut Exchange, version: Option<&'static str>) -> Result<Shown, ()> {
        let Some(chunk) = &self.certificate else { return Ok(Shown::default()) };
        let toward = Rc::new(Toward { version, ..Toward::default() });
        if !self.run(x, Phase::ProxySslCertificate, chunk, &toward).await {
            return Err(());
        }
        let Wishes { chains, keys, cleared, .. } = toward.wishes.take();
        match parsed::certificates(&chains, &keys).await {
            Ok(made) => {
                Ok(Shown { cleared: cleared || made.is_none(), certificates: made.unwrap_or_default() })
            }
            Err(message) => {
                x.log(Level::Error, &message);
                Err(())
            }
        }
    }

    async fn judged(&self, x: &mut Exchange, met: Met) -> Result<Result<(), VerifyProblem>, ()> {
        let Some(chunk) = &self.verify else { return Ok(met.verdict) };
        let result = met.verdict.err().map_or(0, |problem| problem.code);
        let version = Some(met.version);
        let toward = Toward { version, met: Some(met), result: Cell::new(result), ..Toward::default() };
        let toward = Rc::new(toward);
        match self.run(x, Phase::ProxySslVerify, chunk, &toward).await {
            true => Ok(VerifyProblem::of(toward.result.get()).map_or(Ok(()), Err)),
            false => Err(()),
        }
    }
}

impl UpstreamHandler for UpstreamScripts {
    fn certificate<'x>(
        &'x self,
        x: &'x mut Exchange,
        version: Option<&'static str>,
    ) -> LocalFuture<'x, Result<Shown, ()>> {
        Box::pin(self.shown(x, version))
    }

    fn abandoned(&self, x: &mut Exchange) {
        x.state::<Current>().0 = None;
        let label = Phase::ProxySslCertificate.label();
        x.log(Level::Debug, &format_args!("{label}: cert cb aborted"));
    }

    fn verify<'x>(
        &'x self,
        x: &'x mut Exchange,
        met: Met,
    ) -> LocalFuture<'x, Result<Result<(), VerifyProblem>, ()>> {
        Box::pin(self.judged(x, met))
    }

    fn judges_alone(&self) -> bool {
        self.judges_alone
    }
}

pub(crate) const TABLE: &[Function] = &[
    function("_ssl.proxy_clear_certs", 0, |l| {
        wish(l, |wishes| {
            wishes.clear();
            Ok(())
        })
    }),
    function("_ssl.proxy_set_der_cert", 0, |l| {
        let chain = ssl::der_cert(l)?;
        wish(l, |wishes| {
            wishes.add_chain(chain.ok_or(ssl::NO_CERTIFICATE)?);
            Ok(())
        })
    }),
    function("_ssl.proxy_set_der_priv_key", 0, |l| {
        let key = ssl::der_key(l)?;
        wish(l, |wishes| wishes.add_key(key.ok_or(ssl::NO_KEY)?))
    }),
    function("_ssl.proxy_set_cert", 0, |l| {
        let chain = ssl::cert(l)?;
        wish(l, |wishes| {
            wishes.add_chain(chain.ok_or(ssl::INVALID_CHAIN)?);
            Ok(())
        })
    }),
    function("_ssl.proxy_set_priv_key", 0, |l| {
        let key = ssl::key(l)?;
        wish(l, |wishes| wishes.add_key(key.ok_or(ssl::INVALID_KEY)?))
    }),
    function("_ssl.proxy_version", 0, |l| {
        match current()?.map(|toward| toward.version) {
            Some(Some("TLSv1.3")) => l.push_number(f64::from(0x0304)),
            Some(Some(_)) => l.push_number(f64::from(0x0303)),
            Some(None) => return fail(l, "the version is not agreed upon yet"),
            None => return fail(l, OVER),
        }
        Ok(Done::Results(1))
    }),
    function("_ssl.proxy_set_verify_result", 0, |l| {
        let toward = verifying()?;
        toward.result.set(expect_number(l, 1, "set_verify_result")? as u16);
        l.push_boolean(true);
        Ok(Done::Results(1))
    }),
    function("_ssl.proxy_verify_result", 0, |l| {
        l.push_number(f64::from(verifying()?.result.get()));
        Ok(Done::Results(1))
    }),
    function("_ssl.proxy_verify_cert", 0, |l| {
        let peer = verifying()?.met.as_ref().map(|met| met.peer.clone());
        match peer.and_then(Chain::new) {
            Some(chain) => ssl::push_chain(l, Rc::new(chain)),
            None => fail(l, "no certificate of the server"),
        }
    }),
];

/// The handshake that the running script is for, if it is for one.
fn current() -> Result<Option<Rc<Toward>>, Raise> {
    lend::exchange(|x| x.state_if::<Current>().and_then(|current| current.0.clone()))
}

fn wish(l: State, note: impl FnOnce(&mut Wishes) -> Result<(), &'static str>) -> Outcome {
    let toward = current()?.filter(|_| lend::phase() == Phase::ProxySslCertificate);
    noted(l, toward.as_ref().map(|toward| &toward.wishes), note)
}

/// The handshake of `proxy_ssl_verify_by_lua`, the only place where its functions may be called.
fn verifying() -> Result<Rc<Toward>, Raise> {
    let toward = current()?.filter(|_| lend::phase() == Phase::ProxySslVerify);
    toward.ok_or_else(|| Raise::text("API disabled in the current context"))
}

//! Requests that are passed on at the sight of their heads.
//!
//! Where nothing but the content handler of a location has to do with a request, and what that makes of it follows from the head
//! ([`known`](super::known)), the next request with these bytes is neither read nor brought through the phases: the handler gets
//! what it has made before ([`Handler::handle_again`](crate::phase::Handler::handle_again)), which of a script is nothing: it runs
//! for each request. All that comes after that, the response above all, is made as ever.

use std::any::Any;
use std::rc::Rc;

use weir_sys::probe;
use weir_trace::{ConnectionStep, Site};

use super::{ServeWait, known, phases};
use crate::exchange::{ConnectionFacts, Exchange, KnownCourse, KnownPass, KnownScope, known_heads};
use crate::phase::Phase;
use crate::progress::Progress;
use crate::read;
use crate::request_head::ClientJudge;
use crate::transport::wire::ClientWire;
use crate::transport::{Transport, keepalive};
use crate::variable::ValueBasis;

impl Exchange {
    /// Whether it is of use to say what is made of the request ([`Exchange::is_passed_alike`]).
    #[inline]
    pub fn is_pass_wanted(&self) -> bool {
        matches!((&self.known, &self.transport), (KnownCourse::Wanted, Transport::H1(_)))
    }

    /// Says that `made` is what the content handler that is asked now makes of the request, and that this follows from `basis`.
    #[cold]
    pub fn is_passed_alike(&mut self, basis: ValueBasis, made: Rc<dyn Any>) {
        self.known = KnownCourse::Open;
        if basis == ValueBasis::Request || !follows(self) {
            return;
        }
        let facts = || ConnectionFacts::of(&self.connection);
        let connection = (basis == ValueBasis::Connection).then(facts);
        known_heads::keep_pass(self, KnownPass { scope: KnownScope::of(self), connection, made });
    }
}

/// Whether requests with the head of `x` come to its content handler as it did.
fn follows(x: &Exchange) -> bool {
    known::leads_alike(x)
        && x.plan.content.is_some()
        && x.plan.between(Phase::Rewrite, Phase::Content).is_empty()
        && !x.internal
        && !x.request.head.connection.upgrade
}

/// Serves the request whose head the input of `wire` begins with by where that leads, if that is known; `None`: it is not, and
/// nothing was done.
#[inline(never)]
pub(super) fn try_at_sight<J: ClientJudge>(
    x: &mut Exchange,
    wire: &ClientWire,
) -> Option<Progress<(), ServeWait>> {
    let mut input = wire.input.borrow_mut();
    let (pass, length) = known_heads::find_pass(x, input.bytes())?;
    pass.begin::<J>(x)?;
    input.consume(length);
    drop(input);
    Some(pass.run(x))
}

impl KnownPass {
    /// Makes `x`, of which nothing was looked at but that its head is that of this, the request that it is; `None`: it is none for
    /// this, and nothing was done.
    #[inline]
    fn begin<J: ClientJudge>(&self, x: &mut Exchange) -> Option<()> {
        let fits = !x.connection.debug
            && !probe::traces_begin()
            && self.connection.as_ref().is_none_or(|facts| facts.fit(&x.connection));
        if !fits || !self.scope.enter::<J>(x) {
            return None;
        }
        known_heads::fill(x);
        x.nth = x.connection.requests.get() + 1;
        x.connection.requests.set(x.nth);
        x.worker.counters.requests.add(1);
        x.worker.counters.writing.add(1);
        x.keep_alive = x.request.head.keep_alive() && keepalive::possible(x);
        Some(())
    }

    /// Serves `x`, which has begun, as far as that goes without waiting.
    #[inline]
    fn run(&self, x: &mut Exchange) -> Progress<(), ServeWait> {
        read::start(x);
        x.plan = self.scope.plan.clone();
        x.opening = false;
        x.routed();
        keepalive::update(x);
        let passed = [Site::step(ConnectionStep::VirtualServer), Site::phase(Phase::FindConfig as u8)];
        x.trace().mark_and_pass(Site::step(ConnectionStep::Parse), passed);
        super::try_from(x, |x| phases::try_content_again(x, &self.made))
    }
}

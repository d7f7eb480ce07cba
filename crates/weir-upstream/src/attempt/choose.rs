//! The choice of the next peer.

use std::rc::Rc;

use crate::block::balancer_hook::BalancerChoice;
use crate::peer::balance::TriedPeers;
use crate::protocol::OutgoingRequest;
use crate::request::attempt_state::Attempt;
use crate::tls_client::TlsOverrides;
use crate::worker_side::guided_choice::HookedBalancer;
use crate::worker_side::local_upstream::{LocalUpstream, PeerLease};
use weir_engine::exchange::Exchange;
use weir_engine::phase::Verdict;

impl Attempt {
    /// A server to ask, by the upstream's chooser if it has one.
    pub(crate) fn choose(
        &mut self,
        x: &mut Exchange,
        upstream: &Rc<LocalUpstream>,
        tried: &mut TriedPeers,
    ) -> Result<Option<PeerLease>, Verdict> {
        match &upstream.guided {
            None => Ok(upstream.pick(x, tried)),
            Some(_) if std::mem::take(&mut self.decided.nobody) => Ok(None),
            Some(guided) => self.ask_guide(x, upstream, guided, tried),
        }
    }

    fn ask_guide(
        &mut self,
        x: &mut Exchange,
        upstream: &Rc<LocalUpstream>,
        guided: &HookedBalancer,
        tried: &mut TriedPeers,
    ) -> Result<Option<PeerLease>, Verdict> {
        self.decided.asked += 1;
        let mut choice = BalancerChoice {
            servers: &guided.servers,
            asked: self.decided.asked,
            left: self.left,
            limit: self.up.settings.next_tries,
            has_servers: upstream.count() > 0,
            failure: self.decided.failure,
            peer: None,
            host: None,
            more_tries: 0,
            timeouts: [None; 3],
            keep: None,
            tls: None,
            can_tls: self.secure.is_some() || self.decided.plain,
            local: None,
            lane: None,
            recreate: false,
        };
        guided.guide.choose(x, &mut choice)?;
        self.apply(x, guided, &mut choice)?;
        self.decided.named = choice.peer.is_some();
        if let Some(peer) = choice.peer {
            self.left = self.left.saturating_add_signed(choice.more_tries);
            let peer = match (choice.local, choice.lane.or_else(|| upstream.lane(x))) {
                (None, None) => peer,
                (local, lane) => guided.servers.bound(&peer, local, lane),
            };
            peer.chosen(crate::peer::balance::now());
            return Ok(Some(upstream.lease(peer)));
        }
        Ok(upstream.pick(x, tried))
    }

    /// Puts what was decided about the try into force, but for the server.
    fn apply(
        &mut self,
        x: &mut Exchange,
        guided: &HookedBalancer,
        choice: &mut BalancerChoice<'_>,
    ) -> Result<(), Verdict> {
        self.decided.keep = choice.keep;
        if choice.timeouts != [None; 3] {
            for (limit, new) in self.decided.limits.iter_mut().zip(choice.timeouts) {
                *limit = new.or(*limit);
            }
            let base = self.decided.base.get_or_insert_with(|| self.up.clone());
            self.up = guided.timed(base, self.decided.limits);
        }
        match choice.tls {
            None => {}
            Some(false) => self.decided.plain |= self.secure.take().is_some(),
            Some(true) => self.secure = self.up.protocol.secure(x),
        }
        // The chooser may have changed what it was.
        if self.secure.is_some() && x.state_if::<TlsOverrides>().is_some() {
            self.secure = self.up.protocol.secure(x);
        }
        if let (Some(host), Some(secure)) = (&choice.host, &mut self.secure) {
            secure.rename(host);
        }
        if choice.recreate {
            let mut head = std::mem::take(&mut self.out.head);
            head.clear();
            self.out = OutgoingRequest { head, ..OutgoingRequest::default() };
            self.up.protocol.request(x, &mut self.out)?;
        }
        Ok(())
    }
}

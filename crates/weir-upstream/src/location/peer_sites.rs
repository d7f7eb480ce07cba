//! Where the time of a try goes: each server that the configuration names has a site of its own in each location.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use weir_trace::{Site, SiteKind, SiteTable};

use crate::peer::Peer;
use weir_engine::name_map::NameMap;
use weir_engine::plan::PlanBuilder;

/// The sites of one location's servers, on one worker. Servers have the names that they have in the configuration, so
/// that a name keeps its site when its addresses change.
#[derive(Clone)]
pub struct PeerSites {
    /// For servers that have none of their own: those that are computed for a request, since clients may name as many
    /// as they like.
    others: Site,
    location: Rc<str>,
    known: RefCell<NameMap<Site>>,
    /// The one that was asked for last: mostly the next one, too.
    last: RefCell<Option<(Arc<Peer>, Site)>>,
}

impl PeerSites {
    /// For the location of `plan`; `module` names what has no site of its own.
    #[must_use]
    pub fn new(plan: &PlanBuilder<'_>, module: &'static str) -> PeerSites {
        PeerSites {
            others: plan.site(SiteKind::UpstreamTry, module),
            location: plan.name().clone(),
            known: RefCell::default(),
            last: RefCell::default(),
        }
    }

    /// The site of the server that `lease` is for. The first try of each takes the table's lock and allocates.
    pub(crate) fn of(&self, peer: &Arc<Peer>) -> Site {
        if let Some((last, site)) = &*self.last.borrow()
            && Arc::ptr_eq(last, peer)
        {
            return *site;
        }
        let site = self.find(&peer.server);
        *self.last.borrow_mut() = Some((peer.clone(), site));
        site
    }

    /// The site of servers that are computed for a request.
    pub(crate) fn of_computed(&self) -> Site {
        self.others
    }

    fn find(&self, name: &str) -> Site {
        if let Some(&site) = self.known.borrow().get(name.as_bytes()) {
            return site;
        }
        let mut known = self.known.borrow_mut();
        if known.len() >= MOST {
            return self.others;
        }
        let site = SiteTable::global().intern(SiteKind::UpstreamTry, &self.location, name);
        known.insert(name.as_bytes().into(), site);
        site
    }
}

/// More servers of one location share a site: all sites together are 65,535.
const MOST: usize = 256;

//! A balancer of a module on one worker.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::block::balancer_hook::{BalancerHook, BalancerServers, WorkerBalancerHook};
use crate::config::directives::UpstreamSettings;
use crate::location::upstream_location::UpstreamLocation;

/// An upstream's chooser on one worker.
pub(crate) struct HookedBalancer {
    pub(crate) guide: Box<dyn WorkerBalancerHook>,
    pub(crate) servers: BalancerServers,
    /// Locations with the time limits that a chooser has set.
    timed: RefCell<Vec<TimedLocation>>,
}

/// What a location asks servers with, and the same with other time limits.
struct TimedLocation {
    of: Rc<UpstreamLocation>,
    limits: [Option<u64>; 3],
    with: Rc<UpstreamLocation>,
}

impl HookedBalancer {
    pub(crate) fn new(guides: &dyn BalancerHook) -> HookedBalancer {
        HookedBalancer {
            guide: guides.on_worker(),
            servers: BalancerServers::default(),
            timed: RefCell::default(),
        }
    }

    /// `up` with these limits where there are any.
    pub(crate) fn timed(&self, up: &Rc<UpstreamLocation>, limits: [Option<u64>; 3]) -> Rc<UpstreamLocation> {
        let mut timed = self.timed.borrow_mut();
        if let Some(known) = timed.iter().find(|one| Rc::ptr_eq(&one.of, up) && one.limits == limits) {
            return known.with.clone();
        }
        let [connect, send, read] = limits;
        let settings = UpstreamSettings {
            connect_timeout: connect.unwrap_or(up.settings.connect_timeout),
            send_timeout: send.unwrap_or(up.settings.send_timeout),
            read_timeout: read.unwrap_or(up.settings.read_timeout),
            ..UpstreamSettings::clone(&up.settings)
        };
        let with = UpstreamLocation {
            protocol: up.protocol.clone(),
            settings: Arc::new(settings),
            sites: up.sites.clone(),
        };
        if timed.len() >= LINES {
            timed.clear();
        }
        let with = Rc::new(with);
        timed.push(TimedLocation { of: up.clone(), limits, with: with.clone() });
        with
    }
}

/// Locations with limits of their own that a worker remembers of one upstream.
const LINES: usize = 64;

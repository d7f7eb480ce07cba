//! Exchanges of no request: what runs by itself (a timer, a hook of a handshake) has its lines in the error log, its
//! trace and its place among what is in flight as requests have.

use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::{Rc, Weak};

use weir_trace::Site;

use super::Exchange;
use super::role::ExchangeRole;
use crate::plan::Plan;
use crate::plan::server::VirtualServer;
use crate::transport::ClientConnection;
use crate::worker::BackgroundEntry;
use crate::worker::generation::ConfigurationLink;

/// What an exchange is that is not of a request.
pub struct StandaloneRun {
    /// What it is of, as lines of the error log have it: `ngx.timer`.
    pub context: &'static str,
    /// What counts and traces have it under, in the place of a location.
    pub(crate) route: Site,
    /// The worker does not end before it.
    _busy: BackgroundEntry,
}

impl StandaloneRun {
    /// What is counted under `route`, and runs as long as its worker is `busy` with it.
    pub(crate) fn new(context: &'static str, route: Site, busy: BackgroundEntry) -> StandaloneRun {
        StandaloneRun { context, route, _busy: busy }
    }
}

/// Whose settings hold for what runs by itself, and for which client it does.
#[derive(Clone)]
pub struct RunOrigin {
    /// The client's connection, or that of no client
    /// ([`ConfigurationLink::nobody`](crate::worker::generation::ConfigurationLink::nobody)).
    pub connection: Rc<ClientConnection>,
    /// The virtual server.
    pub server: Rc<VirtualServer>,
    /// The location's plan, whose settings hold.
    pub plan: Rc<Plan>,
}

impl RunOrigin {
    /// Of a connection that has no request (yet).
    pub fn of(connection: &Rc<ClientConnection>) -> RunOrigin {
        let server = connection.server();
        RunOrigin { connection: connection.clone(), plan: server.plan.clone(), server }
    }
}

/// The origin of what no client has caused; a value that a worker keeps with its configuration.
#[derive(Default)]
pub(crate) struct NobodysOrigin(RefCell<Weak<RunOrigin>>);

impl ConfigurationLink {
    /// The origin of what no client has caused: the settings of `http`. `None` once nothing may begin there any more.
    pub fn nobody(&self) -> Option<Rc<RunOrigin>> {
        self.nobodys().0.borrow().upgrade()
    }

    /// Makes `origin` what [`ConfigurationLink::nobody`] gives, as long as it is held elsewhere.
    pub(crate) fn set_nobody(&self, origin: &Rc<RunOrigin>) {
        self.nobodys().0.replace(Rc::downgrade(origin));
    }

    fn nobodys(&self) -> Rc<NobodysOrigin> {
        let Ok(origin) = self.local(|| Ok::<_, Infallible>(Rc::default()));
        origin
    }
}

/// What is retained of a request's connection for work that outlives the request.
#[derive(Default)]
struct RememberedConnection(Option<Rc<ClientConnection>>);

impl Exchange {
    /// What the exchange is of, if it is not of a request.
    pub fn is_alone(&self) -> Option<&StandaloneRun> {
        if let ExchangeRole::Alone(alone) = &self.role { Some(alone) } else { None }
    }

    /// What counts and traces have it under: its location, or what runs.
    #[inline]
    pub(crate) fn route(&self) -> Site {
        self.is_alone().map_or(self.plan.route, |alone| alone.route)
    }

    /// The origin of what this request starts and may be outlived by.
    pub fn leave_origin(&mut self) -> RunOrigin {
        let (server, plan) = (self.server.clone(), self.plan.clone());
        let known = match self.role {
            ExchangeRole::Alone(_) => Some(self.connection.clone()),
            _ => self.own_lasting::<RememberedConnection>().0.clone(),
        };
        let connection = known.unwrap_or_else(|| {
            let left = Rc::new(self.connection.copy(&self.worker));
            self.own_lasting::<RememberedConnection>().0 = Some(left.clone());
            left
        });
        RunOrigin { connection, server, plan }
    }
}

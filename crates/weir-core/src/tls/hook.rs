//! Handlers between the ClientHello and the choice of certificates. They may wait: no byte of the handshake has been
//! answered yet.

use std::rc::Rc;

use weir_tls::{Certificate, HelloFields};

use crate::conn::Connection;
use crate::phase::LocalFuture;
use crate::plan::{Plan, PlanBuilder};

/// What a handler makes of a ClientHello.
#[derive(Debug)]
pub enum HelloVerdict {
    /// The next handler is asked, and at last the server's certificates are used.
    Declined,
    /// These certificates are used, whatever the server has.
    Certificates(Vec<Certificate>),
    /// The handshake is refused (`unrecognized_name`).
    Reject,
}

/// A module's handler of ClientHellos, of the server that the name in them chose.
pub trait HelloHandler {
    /// Looks at what the client said, extensions included.
    fn handle<'h>(
        &'h self,
        connection: &'h Rc<Connection>,
        hello: &'h HelloFields,
    ) -> LocalFuture<'h, HelloVerdict>;
}

/// A handler in a plan.
struct Entry(Box<dyn HelloHandler>);

impl PlanBuilder<'_> {
    /// Adds a handler of ClientHellos; of a server's plan only. It is asked if handshakes can be completed there.
    pub fn client_hello(&mut self, handler: impl HelloHandler + 'static) {
        self.keep(Entry(Box::new(handler)));
    }
}

/// Asks the handlers of `plan` in turn.
pub(super) async fn ask(plan: &Plan, connection: &Rc<Connection>, hello: &HelloFields) -> HelloVerdict {
    for Entry(handler) in plan.all_kept::<Entry>() {
        match handler.handle(connection, hello).await {
            HelloVerdict::Declined => {}
            verdict => return verdict,
        }
    }
    HelloVerdict::Declined
}

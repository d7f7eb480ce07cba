//! `mirror`: sends copies of requests to other locations and discards their responses (nginx's
//! `ngx_http_mirror_module`).

use weir_conf::names::{ANY, FLAG, ONE};
use weir_conf::{Directive, LineCx, Result};
use weir_engine::phase::LocalFuture;
use weir_engine::plan::PlanBuilder;
use weir_engine::rehearsed::HandlerRehearsal;
use weir_engine::subrequest::{PrepareHook, SubrequestBody, SubrequestOptions, VariableShare};
use weir_engine::{Exchange, Handler, Module, Phase, Verdict, inherit};

use crate::rules::{limit_conn, limit_req};

/// The module `mirror`.
pub struct Mirror;

impl Module for Mirror {
    const NAME: &'static str = "mirror";
    type Conf = MirrorConf;
    const DIRECTIVES: &'static [Directive<MirrorConf>] = &[
        Directive::new("mirror", ANY, ONE, MirrorConf::add)
            .syntax("mirror uri | off")
            .default("off")
            .doc("Sends a copy of each request, as a background subrequest, to this URI; its response is discarded."),
        Directive::<MirrorConf>::new("mirror_request_body", ANY, FLAG, |conf, line| {
            line.flag(&mut conf.body)
        })
        .syntax("mirror_request_body on | off")
        .default("on")
        .doc("Includes the request's body in the copies; it is then read before the request is processed."),
    ];

    fn inherit(conf: &mut MirrorConf, parent: &MirrorConf) {
        inherit!(conf, parent, uris, body);
    }

    fn install(conf: &MirrorConf, plan: &mut PlanBuilder<'_>) {
        if let Some(uris) = conf.uris.as_ref().filter(|uris| !uris.is_empty()) {
            let uris = uris.iter().map(|uri| uri.as_slice().into()).collect();
            plan.handler(
                Phase::Precontent,
                Self::NAME,
                MirrorCopies { uris, body: conf.body != Some(false) },
            );
        }
    }
}

/// The settings of one block.
#[derive(Default)]
pub struct MirrorConf {
    /// Empty for `off`.
    uris: Option<Vec<Vec<u8>>>,
    body: Option<bool>,
}

impl MirrorConf {
    fn add(&mut self, line: &mut LineCx<'_>) -> Result {
        match (line.bytes(0), &mut self.uris) {
            (b"off", None) => self.uris = Some(Vec::new()),
            (b"off", Some(_)) => return Err(line.refuse("is duplicate")),
            (_, Some(uris)) if uris.is_empty() => return Err(line.refuse("is duplicate")),
            (uri, uris) => uris.get_or_insert_default().push(uri.to_vec()),
        }
        Ok(())
    }
}

struct MirrorCopies {
    uris: Box<[Box<[u8]>]>,
    body: bool,
}

impl Handler for MirrorCopies {
    fn rehearsal(&self, _x: &mut Exchange) -> HandlerRehearsal {
        HandlerRehearsal::Pass
    }

    fn handle(&self, x: &mut Exchange) -> Verdict {
        if x.is_subrequest() {
            return Verdict::Declined;
        }
        if self.body && x.body.is_pending() {
            return Verdict::Wait;
        }
        self.start(x)
    }

    fn wait<'x>(&'x self, x: &'x mut Exchange) -> LocalFuture<'x, Verdict> {
        Box::pin(async {
            match x.read_body().await {
                Ok(()) => self.start(x),
                Err(error) => Verdict::Status(error.status()),
            }
        })
    }
}

impl MirrorCopies {
    fn start(&self, x: &mut Exchange) -> Verdict {
        let args = x.args().to_vec();
        for uri in &self.uris {
            let body = if self.body { SubrequestBody::Parent } else { SubrequestBody::None };
            let method = x.request.head.method;
            let prepare = counted_already(x);
            let options = SubrequestOptions {
                method,
                share: VariableShare::Copy,
                body,
                head_only: true,
                prepare,
                ..Default::default()
            };
            x.background(uri, &args, options);
        }
        Verdict::Declined
    }
}

/// A copy does not count again where its request did (`limit_req`, `limit_conn`): as in nginx, where the limits of a
/// mirror's own location count what no other has counted.
fn counted_already(x: &Exchange) -> PrepareHook {
    let (requests, connections) = (limit_req::is_counted(x), limit_conn::is_counted(x));
    if !requests && !connections {
        return PrepareHook::default();
    }
    PrepareHook(Some(Box::new(move |copy| {
        if requests {
            limit_req::count_no_more(copy);
        }
        if connections {
            limit_conn::count_no_more(copy);
        }
    })))
}

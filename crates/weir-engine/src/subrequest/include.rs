//! Subrequests beside their request: included in its output, or captured while others run.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use weir_http::Method;

use super::{
    ParentShare, SubrequestBody, SubrequestCall, SubrequestOptions, SubrequestTarget, captured, child,
};
use crate::exchange::ChangedVariables;
use crate::exchange::family::{AliveCount, ChildOutlet, ChildTurn, RunningChild, SubrequestFamily};
use crate::exchange::{Exchange, FamilyState};
use crate::phase::{LocalFuture, Phase};
use crate::plan::included::{CapturedResponse, IncludedRequest, PendingCapture};
use crate::transport::Transport;

/// What a waited subrequest leaves for its parent: itself, to take the variables from.
type FinishedChild = Rc<RefCell<Option<Box<Exchange>>>>;

/// The response to a subrequest; 500 where none was made.
fn answered(result: &PendingCapture) -> CapturedResponse {
    result.take().unwrap_or_else(|| CapturedResponse { status: 500, ..CapturedResponse::default() })
}

impl Exchange {
    /// Makes subrequests possible in this response's body; called by header filters whose body filters include some.
    pub fn includes(&mut self) {
        self.family.get_or_insert_default();
    }

    /// As [`Exchange::subrequests`], all at once, while the request goes on: the future holds nothing of it. Dropping it
    /// gives them up.
    pub fn subrequests_beside(
        &mut self,
        calls: Vec<SubrequestCall>,
    ) -> LocalFuture<'static, Vec<CapturedResponse>> {
        let family = Rc::new(SubrequestFamily::default());
        let mut results: Vec<PendingCapture> = Vec::with_capacity(calls.len());
        for SubrequestCall { uri, args, options } in calls {
            results.push(self.begin_capture(&family, &uri, &args, options));
        }
        let shared = self.shared.clone();
        Box::pin(async move {
            let idle = family.changed(SubrequestFamily::is_idle);
            family.attend(&shared, shared.waiting(Box::pin(idle))).await;
            results.iter().map(answered).collect()
        })
    }

    /// Makes the subrequests of `calls`, which run at the same time, a few at most, and gives what
    /// they responded with, in order. Each has copies of this request's variables (or none, as its options say), and
    /// what they set there is lost.
    pub async fn subrequests(&mut self, calls: Vec<SubrequestCall>) -> Vec<CapturedResponse> {
        let family = Rc::new(SubrequestFamily::default());
        let mut results: Vec<PendingCapture> = Vec::with_capacity(calls.len());
        let shared = self.shared.clone();
        for SubrequestCall { uri, args, options } in calls {
            let room = family.changed(SubrequestFamily::has_room);
            family.attend(&shared, shared.waiting(Box::pin(room))).await;
            results.push(self.begin_capture(&family, &uri, &args, options));
        }
        let idle = family.changed(SubrequestFamily::is_idle);
        family.attend(&shared, shared.waiting(Box::pin(idle))).await;
        results.iter().map(answered).collect()
    }

    /// Lets a subrequest run with the others of `family`; where its response will be.
    fn begin_capture(
        &mut self,
        family: &SubrequestFamily,
        uri: &[u8],
        args: &[u8],
        options: SubrequestOptions,
    ) -> PendingCapture {
        let result = PendingCapture::default();
        let Some((x, alive)) = self.child(uri, args, options, ChildTurn::New) else { return result };
        let (own, place) = (x.shared.clone(), result.clone());
        let future = Box::pin(async move {
            let mut x = x;
            *place.borrow_mut() = Some(run_captured(&mut x, Phase::ServerRewrite).await);
            let worker = x.worker.clone();
            worker.give_exchange(x);
            drop(alive);
        });
        family.start(RunningChild { future, shared: own, open: Vec::new() });
        result
    }

    /// A subrequest's exchange, not yet run; none where that would be one too many, which is logged.
    fn child(
        &mut self,
        uri: &[u8],
        args: &[u8],
        options: SubrequestOptions,
        turn: ChildTurn,
    ) -> Option<(Box<Exchange>, AliveCount)> {
        if self.is_nested_too_deep(uri) {
            return None;
        }
        let common: Rc<FamilyState> = self.family_state().clone();
        let Some(alive) = AliveCount::new(&common, turn) else {
            let uri = String::from_utf8_lossy(uri);
            self.log_error(&format_args!("request reference counter overflow while processing \"{uri}\""));
            return None;
        };
        let (x, _) = child(self, SubrequestTarget { uri, args }, options, ParentShare::Beside);
        x.shared.become_branch(&self.shared);
        x.recorded.set(x.shared.is_on());
        Some((x, alive))
    }

    /// Begins what a filter asked for. What is to be waited for, if anything.
    pub(crate) fn begin_include(
        &mut self,
        family: &SubrequestFamily,
        mut include: IncludedRequest,
    ) -> Option<AwaitedInclude> {
        let again = include.again.take();
        if again.is_some() {
            (include.uri, include.args) = (self.uri().to_vec(), self.args().to_vec());
            include.method = Some(self.request.head.method);
        }
        let options = SubrequestOptions {
            method: include.method.unwrap_or(Method::Get),
            body: include.body.map_or(SubrequestBody::Parent, SubrequestBody::Bytes),
            ..SubrequestOptions::default()
        };
        let before = include.wait.then(|| (self.variables.clone(), self.arena.mark()));
        let turn = if again.is_some() { ChildTurn::Again } else { ChildTurn::New };
        let child = self.child(&include.uri, &include.args, options, turn);
        let Some((mut x, alive)) = child else {
            include.refused.set(true);
            return None;
        };
        let from = if again.is_some() { Phase::Content } else { Phase::ServerRewrite };
        if let Some(prepare) = again {
            self.repeat_in(&mut x);
            prepare(&mut x);
        }
        let wait = include.wait || include.into.is_some();
        let outlet = include.into.is_none().then(|| {
            let stub = include.stub.map(|chain| (chain, self.response.content_type.clone()));
            family.outlet(stub)
        });
        match (&outlet, &mut x.transport) {
            (Some(outlet), transport) => *transport = Transport::Splice(outlet.clone()),
            (None, Transport::Capture(capture)) => capture.limited = true,
            (None, _) => {}
        }
        let (done, left) = (Rc::new(Cell::new(false)), FinishedChild::default());
        let waited = wait.then(|| AwaitedInclude { done: done.clone(), left: left.clone(), before });
        let shared = x.shared.clone();
        let ended = ChildEnd { outlet, done };
        let future = Box::pin(async move {
            let mut x = x;
            let captured = run_captured(&mut x, from).await;
            if let Some(into) = &include.into {
                *into.borrow_mut() = Some(captured);
            }
            if include.wait {
                *left.borrow_mut() = Some(x);
            } else {
                let worker = x.worker.clone();
                worker.give_exchange(x);
            }
            drop((ended, alive));
        });
        family.start(RunningChild { future, shared, open: Vec::new() });
        waited
    }

    /// What led this request to its location leads the child there, too.
    pub(super) fn repeat_in(&self, x: &mut Exchange) {
        x.plan = self.plan.clone();
        x.captures = self.captures.clone();
        x.valid_location = self.valid_location;
        x.add_uri_to_alias = self.add_uri_to_alias;
        x.request.uri_is_plain = self.request.uri_is_plain;
    }

    /// Takes over what the subrequest that was waited for did to variables.
    pub(crate) fn end_include(&mut self, waited: AwaitedInclude) {
        let Some(mut child) = waited.left.take() else { return };
        if let Some((before, mark)) = waited.before {
            let Exchange { variables, arena, .. } = self;
            variables.take_changes(
                arena,
                ChangedVariables { now: &child.variables, arena: &child.arena, before: &before, mark },
            );
        }
        let worker = child.worker.clone();
        child.variables.clear();
        worker.give_exchange(child);
    }
}

/// A subrequest that a filter waits for.
pub(crate) struct AwaitedInclude {
    done: Rc<Cell<bool>>,
    left: FinishedChild,
    before: Option<(crate::exchange::VariableValues, u32)>,
}

impl AwaitedInclude {
    pub(crate) fn is_done(&self) -> bool {
        self.done.get()
    }
}

/// Notifies the parent that a child is over, however it ended.
struct ChildEnd {
    outlet: Option<Rc<ChildOutlet>>,
    done: Rc<Cell<bool>>,
}

impl Drop for ChildEnd {
    fn drop(&mut self) {
        self.done.set(true);
        if let Some(outlet) = &self.outlet {
            outlet.end();
        }
    }
}

/// Runs a child. Boxed inside: children make children.
async fn run_captured(x: &mut Exchange, from: Phase) -> CapturedResponse {
    let run: LocalFuture<'_, ()> = Box::pin(super::run_child(x, from));
    run.await;
    captured(x)
}

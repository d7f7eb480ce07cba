//! Subrequests that run beside their request, and the order in which their responses go out.
//!
//! A [`SubrequestFamily`] belongs to one exchange. Its children are futures inside the request's own task: each has an exchange
//! with an arena of its own, so nothing is borrowed from the parent, and dropping the request gives all of them up. What
//! the parent says after a child waits in a queue until the child has responded; a child whose turn has not come runs
//! until [`AHEAD`] bytes of its response are there and is paused then, so a page of any number of includes holds a
//! bounded amount of memory.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use weir_trace::Site;

use super::{FamilyState, SharedPart};
use crate::body::BodyChain;
use crate::progress::LocalFuture;
use crate::text::Text;

/// One exchange's children, and its output as far as it waits for theirs.
#[derive(Default)]
pub(crate) struct SubrequestFamily {
    queue: RefCell<VecDeque<OutputItem>>,
    running: RefCell<Vec<RunningChild>>,
    /// Something happened that another part of the family may wait for.
    stirred: Rc<Cell<bool>>,
}

/// A piece of the output.
enum OutputItem {
    Data(BodyChain),
    Child(Rc<ChildOutlet>),
}

/// Where a child's response goes: the parent takes it when its turn comes.
pub struct ChildOutlet {
    chain: RefCell<BodyChain>,
    ended: Cell<bool>,
    total: Cell<u64>,
    stirred: Rc<Cell<bool>>,
    /// What is said instead of an error or of nothing, and its media type.
    pub(crate) stub: RefCell<Option<(BodyChain, Option<Text>)>>,
}

/// A child that runs.
pub(crate) struct RunningChild {
    pub(crate) future: LocalFuture<'static, ()>,
    /// The child's own trace, and what is open in it.
    pub(crate) shared: Rc<SharedPart>,
    pub(crate) open: Vec<Site>,
}

/// What a subrequest is among those of its request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildTurn {
    /// One of its own: a request may have so many.
    New,
    /// The request itself once more. Those come one after the other, and may be any number.
    Again,
}

/// Counts one subrequest that is alive.
pub(crate) struct AliveCount(Rc<FamilyState>);

impl AliveCount {
    /// `None`: the request has as many subrequests as one may have.
    pub(crate) fn new(common: &Rc<FamilyState>, turn: ChildTurn) -> Option<AliveCount> {
        if common.made.get() >= MADE || common.alive.get() >= ALIVE {
            return None;
        }
        common.made.set(common.made.get() + u32::from(turn == ChildTurn::New));
        common.alive.set(common.alive.get() + 1);
        Some(AliveCount(common.clone()))
    }
}

impl Drop for AliveCount {
    fn drop(&mut self) {
        self.0.alive.set(self.0.alive.get() - 1);
    }
}

impl SubrequestFamily {
    /// Runs `main`, a part of the parent, and the children beside it until `main` is done.
    pub(crate) async fn attend<T>(&self, shared: &Rc<SharedPart>, main: impl Future<Output = T>) -> T {
        let mut main = pin!(main);
        poll_fn(|cx| {
            loop {
                self.stirred.set(false);
                if let Poll::Ready(value) = main.as_mut().poll(cx) {
                    return Poll::Ready(value);
                }
                self.poll_children(cx, shared);
                if !self.stirred.get() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    fn poll_children(&self, cx: &mut Context<'_>, shared: &Rc<SharedPart>) {
        let mut running = std::mem::take(&mut *self.running.borrow_mut());
        let before = running.len();
        running.retain_mut(|child| {
            let RunningChild { future, shared: own, open, .. } = child;
            shared.branch(own, open, || future.as_mut().poll(cx)).is_pending()
        });
        if running.len() < before {
            self.stirred.set(true);
        }
        let mut slot = self.running.borrow_mut();
        // Those that were begun meanwhile come after them.
        running.append(&mut slot);
        *slot = running;
    }

    /// An outlet for a child whose response comes next.
    pub(crate) fn outlet(&self, stub: Option<(BodyChain, Option<Text>)>) -> Rc<ChildOutlet> {
        let outlet = Rc::new(ChildOutlet {
            chain: RefCell::default(),
            ended: Cell::new(false),
            total: Cell::new(0),
            stirred: self.stirred.clone(),
            stub: RefCell::new(stub),
        });
        self.queue.borrow_mut().push_back(OutputItem::Child(outlet.clone()));
        outlet
    }

    pub(crate) fn start(&self, child: RunningChild) {
        self.running.borrow_mut().push(child);
        self.stirred.set(true);
    }

    /// What the parent says next. The end of all is not said here, since children may still have to say something.
    pub(crate) fn push(&self, mut chain: BodyChain) {
        chain.last = false;
        if chain.is_empty() && !chain.flush {
            return;
        }
        self.queue.borrow_mut().push_back(OutputItem::Data(chain));
    }

    /// What can go out now.
    pub(crate) fn take(&self) -> Option<BodyChain> {
        let mut queue = self.queue.borrow_mut();
        loop {
            match queue.front_mut()? {
                OutputItem::Data(chain) => {
                    let chain = std::mem::take(chain);
                    queue.pop_front();
                    return Some(chain);
                }
                OutputItem::Child(outlet) => {
                    if let Some(chain) = outlet.take() {
                        return Some(chain);
                    }
                    if !outlet.ended.get() {
                        return None;
                    }
                }
            }
            queue.pop_front();
        }
    }

    /// Until something can go out or `until` holds.
    pub(crate) async fn changed(&self, until: impl Fn(&SubrequestFamily) -> bool) {
        poll_fn(|_| if self.has_output() || until(self) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn has_output(&self) -> bool {
        match self.queue.borrow().front() {
            None => false,
            Some(OutputItem::Data(_)) => true,
            Some(OutputItem::Child(outlet)) => outlet.ended.get() || outlet.has_data(),
        }
    }

    /// Everything has been sent and nothing runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.borrow().is_empty() && self.running.borrow().is_empty()
    }

    /// There is room for another child, and for what the parent says.
    pub(crate) fn has_room(&self) -> bool {
        let said = |item: &OutputItem| match item {
            OutputItem::Data(chain) => chain.len(),
            OutputItem::Child(_) => 0,
        };
        self.running.borrow().len() < TOGETHER
            && self.queue.borrow().iter().map(said).sum::<u64>() <= crate::filter::ROOM
    }

    /// Drops all children.
    pub(crate) fn clear(&self) {
        self.queue.borrow_mut().clear();
        let running = std::mem::take(&mut *self.running.borrow_mut());
        drop(running);
    }
}

impl ChildOutlet {
    /// Takes a part of the child's response, and waits while too much of it is here.
    pub(crate) async fn put(&self, chain: &mut BodyChain) {
        // The end of the child's response is not that of the parent's.
        chain.last = false;
        self.total.set(self.total.get() + chain.len());
        self.chain.borrow_mut().append(chain);
        self.stirred.set(true);
        poll_fn(|_| if self.chain.borrow().len() < AHEAD { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// The child has ended; one that said nothing says its stub.
    pub(crate) fn end(&self) {
        if self.total.get() == 0
            && let Some((mut stub, _)) = self.stub.take()
        {
            self.chain.borrow_mut().append(&mut stub);
        }
        self.ended.set(true);
        self.stirred.set(true);
    }

    /// Bytes that came so far.
    pub(crate) fn total(&self) -> u64 {
        self.total.get()
    }

    fn has_data(&self) -> bool {
        let chain = self.chain.borrow();
        !chain.is_empty() || chain.flush
    }

    fn take(&self) -> Option<BodyChain> {
        self.has_data().then(|| {
            self.stirred.set(true);
            self.chain.take()
        })
    }
}

/// Bytes of a response that may be there before its turn.
const AHEAD: u64 = 8 * 1024;
/// Children of one exchange that run at a time.
const TOGETHER: usize = 16;
/// Subrequests of one request that run at a time, at any depth: an include of itself, several times over, ends here.
const ALIVE: u32 = 512;
/// Subrequests of one request in all. (nginx allows some 64,000 at a time.)
const MADE: u32 = 10_000;

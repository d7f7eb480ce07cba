//! Lines of scripts as sites of traces: where a script is while it waits.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use weir_rt::sampler::StackFrame;
use weir_trace::{Site, SiteKind, SiteTable};

#[cfg(lua_walk)]
use crate::luajit::stack_walk::{number_of, stack_of};
use crate::luajit::state::LuaState;
use crate::vm::key_hash::FoldedState;

/// The sites of the lines of one VM at which scripts have waited, found without a lock when they wait there again.
#[derive(Default)]
pub(crate) struct WaitSites {
    known: RefCell<HashMap<StackFrame, Site, FoldedState>>,
    /// Whole stacks, by the number that a walk gives them.
    stacks: RefCell<HashMap<u64, Rc<[Site]>, FoldedState>>,
}

impl WaitSites {
    /// Where a coroutine that has yielded is, outermost line first. The API's own part in Lua is left out, and a line
    /// that is there more than once (recursion) is at its first place.
    pub(crate) fn sites(&self, l: LuaState) -> Rc<[Site]> {
        let number = number_of(l);
        if let Some(sites) = self.stacks.borrow().get(&number) {
            return sites.clone();
        }
        let sites: Rc<[Site]> = self.look_up(l).into();
        let mut stacks = self.stacks.borrow_mut();
        if stacks.len() < MOST {
            stacks.insert(number, sites.clone());
        }
        sites
    }

    fn look_up(&self, l: LuaState) -> Vec<Site> {
        let mut sites = Vec::new();
        for frame in stack_of(l).into_iter().filter(|frame| matches!(frame, StackFrame::Lua { .. })) {
            if let Some(site) = self.site(frame).filter(|site| !sites.contains(site)) {
                sites.push(site);
            }
        }
        sites.truncate(DEEPEST);
        sites.reverse();
        sites
    }

    /// `None` for lines of the API's own.
    fn site(&self, frame: StackFrame) -> Option<Site> {
        if let Some(site) = self.known.borrow().get(&frame) {
            return Some(*site).filter(|site| !site.is_none());
        }
        let site = match frame.lua_name() {
            Some(name) if !name.starts_with("ngx/") => intern(&name),
            _ => Site::NONE,
        };
        let mut known = self.known.borrow_mut();
        if known.len() < MOST {
            known.insert(frame, site);
        }
        Some(site).filter(|site| !site.is_none())
    }
}

/// The line's site. Programs that make up chunks must not use up the numbers of sites, which are the process's.
fn intern(name: &str) -> Site {
    if NAMED.load(Relaxed) >= MOST {
        return Site::OTHER;
    }
    NAMED.fetch_add(1, Relaxed);
    SiteTable::global().intern(SiteKind::LuaResume, "", name)
}

#[cfg(not(lua_walk))]
fn stack_of(_: LuaState) -> Vec<StackFrame> {
    Vec::new()
}

#[cfg(not(lua_walk))]
fn number_of(_: LuaState) -> u64 {
    0
}

/// Lines that were given a number, those that had it from another VM included.
static NAMED: AtomicUsize = AtomicUsize::new(0);

/// Lines that get sites of their own, and stacks that are remembered.
const MOST: usize = 4096;
/// Lines of a stack that are shown, the innermost ones.
const DEEPEST: usize = 12;

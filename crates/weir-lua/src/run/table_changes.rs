//! Tables that scripts make larger, in the traces of `weir trace --deep`: which line, from which size to which, how often and
//! how long. LuaJIT says so (`luajit/tables.h`) as long as a request that records so much has lent itself to a script.

use std::cell::RefCell;
use std::collections::HashMap;

use weir_engine::Exchange;
use weir_engine::deep_traces::{self, TableChange};
use weir_engine::exchange::DeepTrace;
use weir_rt::clock;
use weir_rt::sampler::{GuestStep, StackFrame};
use weir_trace::Site;

use crate::luajit::stack_walk::lines_here;
use crate::luajit::sys::{self, RawState, RawTableChange, TableHooks};
use crate::vm::key_hash::FoldedState;

/// While it lives the thread's tables are watched, if the request records so much. The one before is in force again after it.
pub(crate) struct TablesWatch(Option<Option<DeepTrace>>);

impl TablesWatch {
    /// For a script that this request, if there is one, lends itself to.
    #[inline(always)]
    pub(crate) fn begin(x: Option<&Exchange>) -> TablesWatch {
        match (deep_traces::is_asked(), x) {
            (true, Some(x)) => TablesWatch(Some(watch(x.deep_trace()))),
            _ => TablesWatch(None),
        }
    }
}

impl Drop for TablesWatch {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(before) = self.0.take() {
            watch(before);
        }
    }
}

/// Where the thread's changes go from here on, and where they went.
#[cold]
#[inline(never)]
fn watch(trace: Option<DeepTrace>) -> Option<DeepTrace> {
    let hooks = if trace.is_some() { &raw const HOOKS } else { std::ptr::null() };
    // SAFETY: the functions live for ever.
    unsafe { sys::weir_lua_watch_tables(hooks) };
    WATCHED.replace(trace)
}

static HOOKS: TableHooks = TableHooks { clock: ticks, changed };

extern "C" fn ticks() -> u64 {
    clock::ticks()
}

/// A table was changed. Nothing in here is Lua's, so that no script runs and nothing is raised; a panic ends the process.
extern "C" fn changed(l: *mut RawState, change: *const RawTableChange) {
    // SAFETY: `tables.h` lends it.
    let change = unsafe { &*change };
    let sizes = TableChange { array: change.array, hash: change.hash };
    let mut step = GuestStep::default();
    // SAFETY: LuaJIT says so from the function that changes the table, which a script of this thread has called.
    let lines = unsafe { lines_here(l, change.frame, &mut step) };
    let site = SITES.with_borrow_mut(|sites| sites.site(lines, sizes));
    WATCHED.with_borrow(|watched| {
        if let Some(trace) = watched {
            trace.ran(site, change.since, change.until);
        }
    });
}

thread_local! {
    static WATCHED: RefCell<Option<DeepTrace>> = const { RefCell::new(None) };
    static SITES: RefCell<TableSites> = RefCell::default();
}

/// The sites of a thread's changes, found without their names.
#[derive(Default)]
struct TableSites {
    /// By the line and what became of the table; none of the API's own lines, for whose tables the script's line is charged.
    known: HashMap<(u64, TableChange), Site, FoldedState>,
}

impl TableSites {
    fn site(&mut self, lines: &[u64], change: TableChange) -> Site {
        let mut sites = lines.iter().map(|line| self.of_line(*line, change));
        sites.find(|site| !site.is_none()).unwrap_or_else(|| change.site("no line"))
    }

    fn of_line(&mut self, line: u64, change: TableChange) -> Site {
        if let Some(site) = self.known.get(&(line, change)) {
            return *site;
        }
        let site = match (StackFrame::unpack(line), StackFrame::unpack(line).lua_name()) {
            (StackFrame::Lua { .. }, Some(name)) if !name.starts_with("ngx/") => change.site(&name),
            _ => Site::NONE,
        };
        if self.known.len() < MOST {
            self.known.insert((line, change), site);
        }
        site
    }
}

/// Lines and sizes that are remembered.
const MOST: usize = 8_192;

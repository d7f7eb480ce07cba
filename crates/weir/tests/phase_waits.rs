//! Waiting in its place, at one boundary after the other, and what the trees of its requests say about it.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use weir_engine::ModuleDef;
use weir_engine::conf::{CORE_MODULES, with_core};
use weir_modules::{Index, Static};
use weir_test::{Client, DEADLINE, Driver, both_drivers};
use weir_trace::{KeptRequest, SiteTable, TraceTree, TraceWatch, TreeNode, WaitKind};

#[path = "it/support/inside.rs"]
mod inside;

use inside::{Act, BURN, PHASES, Running, ns};

static MODULES: [ModuleDef; CORE_MODULES.len() + 3] =
    with_core(&[ModuleDef::of::<Act>(), ModuleDef::of::<Index>(), ModuleDef::of::<Static>()]);

/// Every place with a time of its own, by the name of its group in the tree.
fn places() -> impl Iterator<Item = &'static str> {
    PHASES.iter().map(|phase| phase.name()).chain(["header_filter", "body_filter"])
}

fn started(driver: Driver) -> Running {
    let server = "server { listen %%ADDRESS%%; act; index index.txt;
        location /broken { error_page 404 /gone.txt; } }";
    let running = Running::start(driver, &MODULES, "", server);
    running.directory.write("index/index.txt", "the index");
    running.directory.write("gone.txt", "not there");
    running
}

/// From when this returns every request's tree arrives here.
fn watch(running: &Running) -> Receiver<KeptRequest> {
    let (watch, kept) = TraceWatch::channel(1000, |_| true);
    running.on_worker(|worker| worker.recorder.borrow_mut().watch(watch));
    kept
}

/// The tree of one request, whose response must have this body.
fn tree(running: &Running, target: &str, body: &str) -> Seen {
    let kept = watch(running);
    let mut client = running.client();
    let start = Instant::now();
    let response = client.get(target);
    let outside = start.elapsed();
    assert_eq!(response.text(), body, "{target}");
    let kept = kept.recv_timeout(DEADLINE).expect("its tree");
    Seen { tree: kept.tree().arranged(SiteTable::global()), kept, outside }
}

/// Of some requests the first that is as it should be: a busy machine takes the processor away, which is time of what
/// runs, and timers count from the beginning of a turn.
fn find(running: &Running, target: &str, good: impl Fn(&Seen) -> bool) -> Seen {
    let mut last = String::new();
    let end = Instant::now() + DEADLINE;
    while Instant::now() < end {
        let seen = tree(running, target, "content");
        if good(&seen) {
            return seen;
        }
        last = seen.text();
    }
    panic!("{target}: no such request; the last one:\n{last}");
}

/// A request as it was recorded.
struct Seen {
    tree: TraceTree,
    kept: KeptRequest,
    /// How long the client waited for the response.
    outside: Duration,
}

impl Seen {
    /// The group of that name directly below `parent`.
    fn group_in(&self, parent: u32, name: &str) -> Option<u32> {
        self.tree.children(parent).find(|&child| {
            let info = SiteTable::global().info(self.tree.nodes()[child as usize].site);
            &*info.name == name || (info.name.is_empty() && info.kind.as_str() == name)
        })
    }

    fn path(&self, path: &[&str]) -> &TreeNode {
        let found = path.iter().try_fold(0, |parent, name| self.group_in(parent, name));
        &self.tree.nodes()[found.unwrap_or_else(|| panic!("no {path:?} in\n{}", self.text())) as usize]
    }

    fn text(&self) -> String {
        weir_trace::render::tree(&self.kept.tree(), SiteTable::global(), &ns)
    }

    /// Run and wait, in nanoseconds, of each place; nothing for a place that the tree has not.
    fn times(&self) -> impl Iterator<Item = (&'static str, u64, u64)> + '_ {
        places().filter_map(|place| {
            let node = &self.tree.nodes()[self.group_in(0, place)? as usize];
            Some((place, ns(node.run), ns(node.wait)))
        })
    }
}

both_drivers! {
    /// Issue 2: a module that waits in every phase, in a header filter and in the log phase.
    fn a_wait_shows_as_wait_where_it_was_and_nowhere_else(driver) {
        let running = started(driver);
        for place in places() {
            // A response waits for what was logged meanwhile, as that the loop was blocked.
            let seen = find(&running, &format!("/x?sleep={place}&ms=60"), |seen| {
                seen.times().all(|(at, run, wait)| run < LEAST / 2 && if at == place { wait >= LEAST } else { wait == 0 })
            });
            assert_eq!(seen.times().count(), places().count(), "{}", seen.text());
            // The time after the timer and before the poll is the loop's, not the module's.
            let record = seen.kept.record();
            let of_client = record.waits[WaitKind::ClientRead as usize] + record.waits[WaitKind::ClientWrite as usize];
            assert_eq!(of_client, 0, "{}", seen.text());
            assert!(ns(record.run + record.wait()) == ns(record.total));
        }
    }

    /// All of them at once: each keeps its own, and together they are what the client saw, but for the log phase.
    fn waits_everywhere_add_up(driver) {
        let running = started(driver);
        let seen = find(&running, "/x?sleep=all&ms=60", |seen| seen.times().all(|(_, _, wait)| wait >= LEAST));
        let all = WAIT * seen.times().count() as u32;
        let total = Duration::from_nanos(ns(seen.kept.record().total));
        assert!(total >= all * 9 / 10, "{total:?}");
        assert!(seen.outside >= (all - WAIT) * 9 / 10, "{:?}", seen.outside);
    }

    fn what_a_redirect_leads_to_stands_inside_it(driver) {
        let running = started(driver);
        let paths = [&["rewrite", "act"][..], &["internal_redirect", "rewrite", "act"]];
        let seen = find(&running, "/from?sleep=rewrite&ms=60", |seen| {
            paths.iter().all(|path| ns(seen.path(path).wait) >= LEAST)
        });
        assert!(paths.iter().all(|path| seen.path(path).calls == 1), "{}", seen.text());
        seen.path(&["content", "act"]);
        seen.path(&["internal_redirect", "content", "act"]);
        seen.path(&["internal_redirect", "header_filter", "header"]);
        assert!(seen.group_in(0, "header_filter").is_none(), "{}", seen.text());
        seen.path(&["log", "act"]);
    }

    fn index_and_error_page_lead_to_another_location(driver) {
        let running = started(driver);
        let seen = tree(&running, "/index/", "the index");
        seen.path(&["content", "index"]);
        seen.path(&["internal_redirect", "content", "static"]);
        let seen = tree(&running, "/broken", "not there");
        seen.path(&["content", "act"]);
        seen.path(&["special_response"]);
        seen.path(&["internal_redirect", "find_config"]);
        seen.path(&["internal_redirect", "content", "static"]);
        assert_eq!(seen.kept.record().status, 404);
    }

    fn a_subrequest_stands_in_the_handler_that_made_it(driver) {
        let running = started(driver);
        let path = ["access", "act", "subrequest", "rewrite", "act"];
        let seen = find(&running, "/x?inner=access", |seen| ns(seen.path(&path).wait) >= LEAST);
        let inner = seen.path(&path);
        assert_eq!(seen.path(&["access"]).wait, inner.wait, "{}", seen.text());
        assert_eq!(seen.path(&["rewrite"]).wait, 0, "{}", seen.text());
    }

    /// A request that is ready while the loop is busy with another one: its time is the loop's queue.
    fn who_waits_for_the_loop_is_in_its_queue(driver) {
        let running = started(driver);
        let kept = watch(&running);
        let queued = weir_test::wait_for("a request that came with another", || {
            let mut clients: Vec<Client> = (0..8).map(|_| running.client()).collect();
            for client in &mut clients {
                client.send("GET /x?burn=access HTTP/1.1\r\nHost: h\r\n\r\n");
            }
            for client in &mut clients {
                assert_eq!(client.response().text(), "content");
            }
            let trees: Vec<KeptRequest> = (0..8).map(|_| kept.recv_timeout(DEADLINE).expect("its tree")).collect();
            trees.into_iter().find(|kept| ns(kept.record().queue()) >= BURN.as_nanos() as u64)
        });
        assert_eq!(queued.record().wait(), queued.record().queue(), "it waited for nothing else");
    }

    /// A response that is complete waits neither for its log phase nor for the next request's handler.
    fn a_complete_answer_does_not_wait(driver) {
        let running = started(driver);
        let mut client = running.client();
        client.send("GET /x?hang=log HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(client.response().text(), "content");
        let mut client = running.client();
        client.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\nGET /x?hang=access HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(client.response().text(), "content");
    }
}

/// Longer than anything else takes, so that it stands out.
const WAIT: Duration = Duration::from_millis(60);
/// Of it, in nanoseconds, what a timer of whole milliseconds gives at least.
const LEAST: u64 = 54_000_000;

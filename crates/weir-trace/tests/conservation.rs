//! No tick is lost or counted twice: random requests against a model that keeps every interval by itself.

use std::collections::BTreeMap;

use proptest::prelude::*;
use weir_trace::{
    EventKind, EventTape, Recorder, RecorderSettings, RequestRecord, Site, Trace, TraceLevel, TraceTree,
    WaitKind, tree::TreeNode,
};

#[derive(Clone, Debug)]
enum Op {
    Mark(u16),
    Enter(u16),
    Leave(u16),
    Open(u16),
    Close(u16),
    Queued(u16),
    Pass(u16),
    PassAll(u16, u16),
    MarkAndPass(u16, u16),
    OpenAndPass(u16),
    Suspend,
    Resume(u16),
    ResumeReady(u64),
    Bytes(u16, u64, u64),
    Gc(u64),
    Jit(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (1u16..9).prop_map(Op::Mark),
        3 => (1u16..9).prop_map(Op::Enter),
        3 => (1u16..9).prop_map(Op::Leave),
        2 => (1u16..9).prop_map(Op::Open),
        2 => (1u16..9).prop_map(Op::Close),
        1 => (1u16..9).prop_map(Op::Queued),
        1 => (1u16..9).prop_map(Op::Pass),
        1 => (1u16..5, 0u16..60).prop_map(|(site, count)| Op::PassAll(site, count)),
        1 => (1u16..9, 1u16..9).prop_map(|(site, behind)| Op::MarkAndPass(site, behind)),
        1 => (1u16..9).prop_map(Op::OpenAndPass),
        1 => Just(Op::Suspend),
        1 => (0u16..14).prop_map(Op::Resume),
        1 => (0u64..2_000).prop_map(Op::ResumeReady),
        1 => (1u16..9, 0u64..1 << 41, 0u64..100).prop_map(|(s, i, o)| Op::Bytes(s, i, o)),
        1 => (0u64..9).prop_map(Op::Gc),
        1 => (0u64..9).prop_map(Op::Jit),
    ]
}

/// Mostly short, sometimes longer than one event can say, sometimes a clock that goes back.
fn step() -> impl Strategy<Value = i64> {
    prop_oneof![20 => 0i64..1_000, 1 => (1i64 << 39)..(1i64 << 44), 1 => -50i64..0]
}

fn ops(length: std::ops::Range<usize>) -> impl Strategy<Value = Vec<(Op, i64)>> {
    prop::collection::vec((op(), step()), length)
}

/// What a request did, reported once to a trace and once to the model.
#[derive(Default)]
struct Model {
    open: Vec<u16>,
    suspended: bool,
    last: u64,
    run: u64,
    wait: u64,
    waits: BTreeMap<u16, u64>,
    sites: BTreeMap<u16, (u64, u64, u64)>,
    bytes: (u64, u64),
}

impl Model {
    /// Charges the interval before `now` once to every site that is open, and to `own` inside them.
    fn charge(&mut self, now: u64, own: Option<u16>, wait: bool) -> u64 {
        let ticks = now.saturating_sub(self.last);
        self.last = self.last.max(now);
        let mut sites = self.open.clone();
        sites.extend(own);
        sites.sort_unstable();
        sites.dedup();
        for site in sites {
            let sum = self.sites.entry(site).or_default();
            *(if wait { &mut sum.1 } else { &mut sum.0 }) += ticks;
        }
        *(if wait { &mut self.wait } else { &mut self.run }) += ticks;
        ticks
    }

    fn apply(&mut self, pen: &mut Pen, op: &Op, now: u64) {
        match *op {
            Op::Mark(site) => {
                pen.write(now, |tape| tape.mark(Site(site), now), |trace| trace.mark(Site(site), now));
                self.charge(now, Some(site), false);
                self.sites.entry(site).or_default().2 += 1;
            }
            Op::Enter(site) if self.open.len() < 60 => {
                pen.slowly(|trace| trace.enter(Site(site), now));
                self.charge(now, None, false);
                self.open.push(site);
                self.sites.entry(site).or_default().2 += 1;
            }
            Op::Enter(site) | Op::Leave(site) => {
                pen.slowly(|trace| trace.leave(Site(site), now));
                self.charge(now, None, false);
                self.close(site);
            }
            Op::Open(site) if self.open.len() < 60 => {
                pen.write(now, |tape| tape.open(Site(site)), |trace| trace.open(Site(site)));
                self.open.push(site);
                self.sites.entry(site).or_default().2 += 1;
            }
            Op::Open(site) | Op::Close(site) => {
                pen.write(now, |tape| tape.close(Site(site), now), |trace| trace.close(Site(site), now));
                self.charge(now, None, false);
                self.close(site);
            }
            Op::Queued(site) => {
                pen.trace.queued(&pen.tape, Site(site), now);
                let ticks = self.charge(now, Some(site), true);
                *self.waits.entry(WaitKind::Queue as u16).or_default() += ticks;
                self.sites.entry(site).or_default().2 += 1;
            }
            Op::Pass(_) | Op::PassAll(..) | Op::MarkAndPass(..) | Op::OpenAndPass(_) => {
                self.pass(pen, op, now);
            }
            Op::Suspend | Op::Resume(_) | Op::ResumeReady(_) => self.wait_or_go_on(pen, op, now),
            Op::Bytes(site, input, output) => {
                pen.slowly(|trace| trace.bytes(Site(site), input, output));
                self.bytes.0 += input;
                self.bytes.1 += output;
            }
            Op::Gc(ticks) => pen.slowly(|trace| trace.note(EventKind::Gc, Site::NONE, ticks)),
            Op::Jit(ticks) => pen.slowly(|trace| trace.note(EventKind::Jit, Site::NONE, ticks)),
        }
    }

    /// What is only counted: without a stamp of its own.
    fn pass(&mut self, pen: &mut Pen, op: &Op, now: u64) {
        match *op {
            Op::Pass(site) => {
                pen.write(now, |tape| tape.pass(Site(site)), |trace| trace.pass(Site(site)));
                self.sites.entry(site).or_default().2 += 1;
            }
            Op::PassAll(site, count) => {
                let sites = || (0..usize::from(count)).map(|nth| Site(site + nth as u16 % 4));
                pen.write(
                    now,
                    |tape| tape.pass_all(sites()),
                    |trace| sites().for_each(|site| trace.pass(site)),
                );
                sites().for_each(|site| self.sites.entry(site.0).or_default().2 += 1);
            }
            Op::MarkAndPass(site, behind) => {
                let behind_it = [Site(behind)];
                pen.write(
                    now,
                    |tape| tape.mark_and_pass(Site(site), behind_it, now),
                    |trace| trace.mark_and_pass(Site(site), behind_it, now),
                );
                self.charge(now, Some(site), false);
                self.sites.entry(site).or_default().2 += 1;
                self.sites.entry(behind).or_default().2 += 1;
            }
            Op::OpenAndPass(site) => {
                pen.write(now, |tape| tape.open(Site(site)), |trace| trace.open(Site(site)));
                pen.write(
                    now,
                    |tape| tape.close_passed(Site(site)),
                    |trace| trace.close_unstamped(Site(site), || unreachable!("nothing is inside")),
                );
                self.sites.entry(site).or_default().2 += 1;
            }
            _ => unreachable!("{op:?} passes nothing"),
        }
    }

    fn wait_or_go_on(&mut self, pen: &mut Pen, op: &Op, now: u64) {
        match *op {
            Op::Suspend => {
                pen.slowly(|trace| trace.suspend(now));
                if !self.suspended {
                    self.charge(now, None, false);
                    self.suspended = true;
                }
            }
            Op::Resume(kind) => {
                pen.slowly(|trace| {
                    trace.wait_kind(WaitKind::from_code(kind));
                    trace.resume(now);
                    trace.wait_kind(WaitKind::Other);
                });
                self.resume(now, kind);
            }
            Op::ResumeReady(before) => {
                let ready = now.saturating_sub(before);
                pen.slowly(|trace| trace.resume_ready(ready, now));
                if self.suspended {
                    self.resume(ready, WaitKind::Other as u16);
                    self.suspended = true;
                    self.resume(now, WaitKind::Queue as u16);
                }
            }
            _ => unreachable!("{op:?} is no wait"),
        }
    }

    fn close(&mut self, site: u16) {
        let depth = self.open.iter().rposition(|&open| open == site).unwrap_or(self.open.len());
        self.open.truncate(depth);
    }

    fn resume(&mut self, now: u64, kind: u16) {
        if std::mem::take(&mut self.suspended) {
            let ticks = self.charge(now, None, true);
            *self.waits.entry(kind).or_default() += ticks;
        }
    }
}

/// A trace and its tape; as an engine, it tries the tape first, at every second time.
struct Pen {
    trace: Trace,
    tape: EventTape,
}

impl Pen {
    fn write(&mut self, now: u64, quickly: impl FnOnce(&EventTape) -> bool, slowly: impl FnOnce(&mut Trace)) {
        if !(now.is_multiple_of(2) && quickly(&self.tape)) {
            self.slowly(slowly);
        }
    }

    fn slowly<R>(&mut self, change: impl FnOnce(&mut Trace) -> R) -> R {
        self.trace.take(&self.tape);
        let changed = change(&mut self.trace);
        self.tape.rewind(self.trace.last());
        changed
    }
}

fn play(ops: &[(Op, i64)], recorder: &mut Recorder) -> (Trace, Model) {
    let mut pen = Pen { trace: Trace::new(), tape: EventTape::new() };
    let mut now = 1u64 << 50;
    let mut model = Model { last: now, ..Model::default() };
    recorder.begin(&mut pen.trace, now);
    pen.tape.rewind(now);
    for (op, step) in ops {
        now = now.saturating_add_signed(*step);
        model.apply(&mut pen, op, now);
    }
    model.resume(now, WaitKind::Other as u16);
    model.charge(now, None, false);
    pen.slowly(|trace| trace.end(now));
    (pen.trace, model)
}

fn check_tree(tree: &TraceTree, trace: &Trace, model: &Model) -> Result<(), TestCaseError> {
    prop_assert_eq!((tree.root().run, tree.root().wait), (model.run, model.wait));
    let own = |part: fn(&TreeNode) -> u64| tree.nodes().iter().map(part).sum::<u64>();
    prop_assert_eq!(own(|n| n.self_run), trace.total_run());
    prop_assert_eq!(own(|n| n.self_wait), trace.total_wait());
    prop_assert_eq!((own(|n| n.bytes_in), own(|n| n.bytes_out)), model.bytes);
    for (index, node) in tree.nodes().iter().enumerate() {
        let children: Vec<&TreeNode> =
            tree.children(index as u32).map(|c| &tree.nodes()[c as usize]).collect();
        let inside: u64 = children.iter().map(|child| child.inclusive()).sum();
        prop_assert_eq!(inside + node.self_run + node.self_wait, node.inclusive());
        prop_assert_eq!(tree.waits(index as u32).map(|wait| wait.ticks).sum::<u64>(), node.self_wait);
    }
    Ok(())
}

/// Nodes that a tree holds at most.
const FULL_TREE: usize = 1024;

fn check(ops: &[(Op, i64)]) -> Result<Trace, TestCaseError> {
    let mut recorder =
        Recorder::new(0, RecorderSettings { level: TraceLevel::Full, ..RecorderSettings::default() });
    let (mut trace, model) = play(ops, &mut recorder);
    prop_assert_eq!((trace.total_run(), trace.total_wait()), (model.run, model.wait));
    for (kind, &ticks) in trace.waits().iter().enumerate() {
        prop_assert_eq!(model.waits.get(&(kind as u16)).copied().unwrap_or(0), ticks);
    }
    check_tree(&trace.tree(), &trace, &model)?;
    recorder.finish(&mut trace, RequestRecord::default());
    if trace.tree().nodes().len() >= FULL_TREE {
        // What does not fit is charged to its parent: the sums of the whole, checked above, are all that is stored.
        return Ok(trace);
    }
    recorder.settle();
    let reader = recorder.reader();
    for (&site, &(run, wait, calls)) in &model.sites {
        let totals = reader.site(Site(site)).expect("a site that was charged");
        prop_assert_eq!((totals.run.sum(), totals.wait.sum(), totals.counts.calls), (run, wait, calls));
    }
    let record = recorder.records().next().expect("every request leaves a record");
    prop_assert_eq!((record.run, record.wait()), (model.run, model.wait));
    Ok(trace)
}

proptest! {
    #[test]
    fn short_requests_keep_every_tick(ops in ops(0..60)) {
        prop_assert!(!check(&ops)?.is_folded());
    }

    #[test]
    fn known_shapes_and_new_ones_charge_alike(a in ops(0..40), b in ops(0..40), order in prop::collection::vec(any::<bool>(), 1..40)) {
        let mut recorder = Recorder::new(0, RecorderSettings::default());
        let mut expected = BTreeMap::<u16, (u64, u64, u64)>::new();
        for second in order {
            let (mut trace, model) = play(if second { &b } else { &a }, &mut recorder);
            recorder.finish(&mut trace, RequestRecord::default());
            for (site, (run, wait, calls)) in model.sites {
                let sum = expected.entry(site).or_default();
                *sum = (sum.0 + run, sum.1 + wait, sum.2 + calls);
            }
        }
        recorder.settle();
        let reader = recorder.reader();
        for (site, sum) in expected {
            let totals = reader.site(Site(site)).expect("a site that was charged");
            prop_assert_eq!((totals.run.sum(), totals.wait.sum(), totals.counts.calls), sum);
        }
    }

    #[test]
    fn merged_trees_are_sums(a in ops(0..80), b in ops(0..80)) {
        let mut recorder = Recorder::new(0, RecorderSettings::default());
        let (one, two) = (play(&a, &mut recorder).0.tree(), play(&b, &mut recorder).0.tree());
        let mut both = TraceTree::new();
        both.merge(&one);
        both.merge(&two);
        prop_assert_eq!(both.requests(), 2);
        prop_assert_eq!(both.root().run, one.root().run + two.root().run);
        prop_assert_eq!(both.root().wait, one.root().wait + two.root().wait);
        let mut alone = TraceTree::new();
        alone.merge(&one);
        prop_assert_eq!(alone, one);
    }
}

proptest! {
    // Long requests: fewer of them say as much. Longer ones could have more nodes than a tree holds, and what does not
    // fit is charged to its parent.
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn folding_keeps_every_sum(ops in ops(900..1_800)) {
        let trace = check(&ops)?;
        prop_assert!(trace.is_folded());
        prop_assert_eq!(trace.events().len(), 448);
    }
}

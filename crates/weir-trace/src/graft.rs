//! Several traces as one: what runs by turns inside a request, each with a trace of its own.

use crate::event::EventKind;
use crate::site::Site;
use crate::trace::Trace;

impl Trace {
    /// Moves into this trace what `branch`, which is suspended, has recorded since the last call: what it ran, inside the
    /// innermost open site. Its waits are left out: this trace has its own, at the same time. `open` holds, from call
    /// to call, the sites that are open in the branch; they are opened here first and closed in the end, so a site
    /// that waited counts as several calls.
    ///
    /// This trace must have been stamped when the branch was resumed.
    pub fn graft(&mut self, branch: &mut Trace, open: &mut Vec<Site>) {
        if !self.is_on() || branch.is_folded() {
            // So much in one go: it is the time of the site around, without details.
            branch.forget();
            open.clear();
            return;
        }
        for site in open.iter() {
            self.open(*site);
        }
        let mut high = 0;
        for event in branch.events() {
            let value = high << 40 | event.value();
            high = if event.kind() == EventKind::High { event.value() } else { 0 };
            match event.kind() {
                EventKind::High | EventKind::Resume => {}
                EventKind::End if event.site() == Site::NONE => {}
                kind => {
                    match kind {
                        EventKind::Begin => open.push(event.site()),
                        EventKind::End => open.truncate(event.site().outside(open, |open| *open)),
                        _ => {}
                    }
                    self.copy(kind, event.site(), value);
                }
            }
        }
        // An end closes one of a site only, with what is inside: as many as the outermost is open inside itself.
        for site in open.iter().filter(|site| Some(*site) == open.first()) {
            self.copy(EventKind::End, *site, 0);
        }
        branch.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTER: Site = Site::SUBREQUEST;
    const HANDLER: Site = Site::HEADER;
    const INNER: Site = Site::COPY;

    #[test]
    fn what_branches_ran_stands_in_the_trunk_and_its_time_is_whole() {
        let mut trunk = Trace::new();
        let mut branches = [Trace::new(), Trace::new()];
        let mut open = [Vec::new(), Vec::new()];
        trunk.begin(0);
        trunk.enter(OUTER, 5);
        let mut now = 5;
        for turn in 0..3 {
            for (branch, open) in branches.iter_mut().zip(&mut open) {
                if turn == 0 {
                    branch.begin(now);
                    branch.enter(HANDLER, now + 1);
                }
                branch.resume(now);
                branch.mark(INNER, now + 3);
                if turn == 2 {
                    branch.leave(HANDLER, now + 4);
                }
                branch.suspend(now + 5);
                trunk.graft(branch, open);
                now += 5;
            }
            trunk.suspend(now);
            now += 100;
            trunk.resume(now);
        }
        trunk.leave(OUTER, now);
        trunk.end(now + 5);
        assert_eq!(trunk.total(), 5 + 3 * (2 * 5 + 100) + 5);
        let tree = trunk.tree();
        let node = |site| tree.nodes.iter().find(|node| node.site == site).expect("it ran");
        assert_eq!((node(OUTER).run, node(OUTER).wait), (30, 300));
        assert_eq!((node(INNER).run, node(INNER).calls), (2 * (2 + 3 + 3), 6));
        assert_eq!(node(HANDLER).wait, 0);
        assert!(open.iter().all(Vec::is_empty));
    }

    #[test]
    fn a_site_inside_itself_is_closed_as_often() {
        let (mut trunk, mut branch, mut open) = (Trace::new(), Trace::new(), Vec::new());
        trunk.begin(0);
        trunk.enter(OUTER, 1);
        branch.begin(1);
        for (site, now) in [(HANDLER, 2), (INNER, 3), (HANDLER, 4)] {
            branch.enter(site, now);
        }
        branch.suspend(5);
        trunk.graft(&mut branch, &mut open);
        assert_eq!(open, [HANDLER, INNER, HANDLER]);
        assert_eq!(trunk.innermost(), OUTER);
        branch.resume(5);
        branch.leave(HANDLER, 6);
        branch.suspend(7);
        trunk.graft(&mut branch, &mut open);
        assert_eq!(open, [HANDLER, INNER]);
        assert_eq!(trunk.innermost(), OUTER);
    }
}

//! The time of one request summed by site: what the histograms count.
//!
//! The rules are those of [`Tree`](crate::Tree), without the tree: one pass over the events, no search, no allocation
//! after warm-up.

use crate::event::{Decoder, Event, EventKind};
use crate::site::Site;
use crate::tree::{MAX_DEPTH, Tree};

/// Sums by site, emptied by [`Sums::drain`].
#[derive(Debug, Default)]
pub(crate) struct Sums {
    slots: Vec<Sum>,
    /// The sites that have something in their slot.
    touched: Vec<Site>,
    frames: Vec<Frame>,
}

/// What one site got in one request. Times include what ran inside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) run: u64,
    pub(crate) wait: u64,
    pub(crate) calls: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) errors: u64,
    /// How often it is open now: a site inside itself counts its time once.
    open: u32,
    touched: bool,
}

/// An open site, with the totals at its opening.
#[derive(Clone, Copy, Debug)]
struct Frame {
    site: Site,
    run: u64,
    wait: u64,
}

impl Sums {
    /// Adds one request's events.
    pub(crate) fn take(&mut self, events: &[Event]) {
        let mut decoder = Decoder::default();
        let (mut run, mut wait, mut beyond) = (0u64, 0u64, 0u64);
        for &event in events {
            let Some((kind, site, value)) = decoder.decode(event) else { continue };
            match kind {
                EventKind::Mark => {
                    run += value;
                    self.mark(site, value);
                }
                EventKind::Begin => {
                    run += value;
                    if self.frames.len() < MAX_DEPTH { self.open(site, run, wait) } else { beyond += 1 }
                }
                EventKind::End => {
                    run += value;
                    if beyond > 0 && !site.is_none() { beyond -= 1 } else { self.close(site, run, wait) }
                }
                EventKind::Suspend => run += value,
                EventKind::Resume => wait += value,
                _ => self.remark(kind, site, value),
            }
        }
        self.close(Site::NONE, run, wait);
    }

    /// Adds a tree: what a folded trace has instead of its later events.
    pub(crate) fn take_tree(&mut self, tree: &Tree) {
        for (index, node) in tree.nodes().iter().enumerate().skip(1) {
            let inside_itself = self.is_inside_itself(tree, index);
            let slot = self.slot(node.site);
            slot.calls += node.calls;
            slot.bytes_in += node.bytes_in;
            slot.bytes_out += node.bytes_out;
            slot.errors += node.errors;
            if !inside_itself {
                slot.run += node.run;
                slot.wait += node.wait;
            }
        }
    }

    /// Hands out what every touched site got and is empty again.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(Site, &Sum)) {
        for site in self.touched.drain(..) {
            let slot = &mut self.slots[site.index()];
            each(site, slot);
            *slot = Sum::default();
        }
    }

    fn is_inside_itself(&self, tree: &Tree, index: usize) -> bool {
        let nodes = tree.nodes();
        let mut above = nodes[index].parent as usize;
        while above != 0 {
            if nodes[above].site == nodes[index].site {
                return true;
            }
            above = nodes[above].parent as usize;
        }
        false
    }

    #[inline]
    fn mark(&mut self, site: Site, run: u64) {
        let slot = self.slot(site);
        slot.calls += 1;
        if slot.open == 0 {
            slot.run += run;
        }
    }

    #[inline]
    fn open(&mut self, site: Site, run: u64, wait: u64) {
        let slot = self.slot(site);
        slot.calls += 1;
        slot.open += 1;
        self.frames.push(Frame { site, run, wait });
    }

    /// Closes down to the innermost open `site`; everything for [`Site::NONE`]; nothing if it is not open.
    #[inline]
    fn close(&mut self, site: Site, run: u64, wait: u64) {
        let depth = match self.frames.last() {
            Some(frame) if frame.site == site => self.frames.len() - 1,
            _ if site.is_none() => 0,
            _ => self.frames.iter().rposition(|frame| frame.site == site).unwrap_or(self.frames.len()),
        };
        while self.frames.len() > depth {
            let Some(frame) = self.frames.pop() else { break };
            let slot = &mut self.slots[frame.site.index()];
            slot.open -= 1;
            if slot.open == 0 {
                slot.run += run - frame.run;
                slot.wait += wait - frame.wait;
            }
        }
    }

    /// Remarks about no site are about the innermost open one; about the request itself nothing is summed here.
    fn remark(&mut self, kind: EventKind, site: Site, value: u64) {
        let site = if site.is_none() { self.frames.last().map_or(site, |frame| frame.site) } else { site };
        if site.is_none() {
            return;
        }
        let slot = self.slot(site);
        match kind {
            EventKind::BytesIn => slot.bytes_in += value,
            EventKind::BytesOut => slot.bytes_out += value,
            EventKind::Error => slot.errors += 1,
            _ => {}
        }
    }

    #[inline]
    fn slot(&mut self, site: Site) -> &mut Sum {
        if self.slots.len() <= site.index() {
            self.slots.resize((site.index() + 1).next_power_of_two(), Sum::default());
        }
        let slot = &mut self.slots[site.index()];
        if !slot.touched {
            slot.touched = true;
            self.touched.push(site);
        }
        slot
    }
}

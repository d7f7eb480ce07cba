//! Dictionaries that outlive their process: how one begins with what the process before had in it.

use std::sync::atomic::Ordering;

use crossbeam_epoch as epoch;
use weir_engine::log::{self, LogLevel};
use weir_engine::zone::{SharedZone, survival};
use weir_rt::zone_memory::RegionImage;

use crate::dict::node::{DictNode, NodeChange};
use crate::dict::survivors::{self, SurvivingEntry, TakenOver};
use crate::dict::{NEVER, STRIPES, SharedDict, chains_of, counted};

impl SharedDict {
    /// The dictionary of a zone: where the master holds memory for it, with what the process before has left in that.
    pub(crate) fn of(zone: &SharedZone, capacity: u64) -> SharedDict {
        let chains = (chains_of(capacity) * STRIPES * 8) as u64;
        // What entries of common sizes take beyond what they count for, and room for sizes that change with time.
        let length = capacity.saturating_mul(4).saturating_add(chains + (1 << 20));
        let mut dict = SharedDict::within(survival::region(zone, capacity, length), capacity);
        if let Some(image) = survival::image(zone, capacity) {
            let taken = dict.take_over(&image);
            dict.taken = Some(taken);
            taken.report(&zone.name);
        }
        dict
    }

    /// Whether it began with all that the process before had in it.
    pub(crate) fn survived(&self) -> bool {
        self.taken.is_some_and(|taken| taken.damaged == 0)
    }

    /// Takes over what a dictionary of the same size had.
    pub(super) fn take_over(&self, image: &RegionImage) -> TakenOver {
        let (guard, mut entries, mut refused) = (epoch::pin(), 0, 0);
        let damaged = survivors::read(image, chains_of(self.capacity), |entry| {
            if self.revive(entry, &guard) { entries += 1 } else { refused += 1 }
        });
        TakenOver { entries, damaged: damaged + refused }
    }

    /// Puts an entry in as it was; `false`: there is no room, or its key is there already.
    fn revive(&self, entry: SurvivingEntry<'_>, guard: &epoch::Guard) -> bool {
        let SurvivingEntry { hash, key, value, flags, expires, used } = entry;
        let stripe = self.stripe(hash);
        let value = value.at(stripe.place);
        let size = counted(key, value.size());
        let (found, head) = stripe.find(hash, key, guard);
        if found.is_some() || !self.fits(size, 0) {
            return false;
        }
        if expires != NEVER {
            self.expires.store(true, Ordering::Relaxed);
        }
        let change = NodeChange { value, flags, expires };
        let node = DictNode::new(hash, key, &change, self.number(), stripe.place);
        node.use_at(used);
        let done = stripe.insert(&head, node, guard);
        if done {
            self.sums.used.fetch_add(size, Ordering::Relaxed);
        }
        done
    }
}

impl TakenOver {
    fn report(self, name: &str) {
        let TakenOver { entries, damaged } = self;
        if entries > 0 {
            let text = format_args!("{entries} entries of dictionary \"{name}\" are there again");
            log::cycle(LogLevel::Notice, &text);
        }
        if damaged > 0 {
            let text = format_args!(
                "{damaged} parts of dictionary \"{name}\" were damaged when the process before was killed: what they \
                 held is lost"
            );
            log::cycle(LogLevel::Warn, &text);
        }
    }
}

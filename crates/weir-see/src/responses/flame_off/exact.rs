//! By the kernel's records of switches: each stretch in which a worker did not run, with its stack.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use weir_rt::OffCore;
use weir_server::housekeeping::{OffCoreStack, SwitchRecording};
use weir_trace::Site;

use super::{OffPlace, OffStacks, OffTimes};
use crate::responses::reply::ReplyFailure;

/// What is recorded while `meanwhile` runs.
pub(super) fn record(
    mut recording: SwitchRecording,
    meanwhile: impl FnOnce() -> Result<(), ReplyFailure>,
) -> Result<OffStacks, ReplyFailure> {
    super::beside(meanwhile, |done| {
        let mut stacks = OffStacks::default();
        while !done.load(Relaxed) {
            thread::sleep(EVERY);
            recording.take().into_iter().for_each(|stretch| add(&mut stacks, stretch));
        }
        stacks
    })
}

/// Waiting for events is no loss.
fn add(stacks: &mut OffStacks, OffCoreStack { sample, off, .. }: OffCoreStack) {
    if sample.parked {
        return;
    }
    let place = OffPlace {
        route: Site(sample.place.route),
        site: Site(sample.place.site),
        call: None,
        frames: sample.frames,
    };
    let OffCore { asleep_ns, no_core_ns } = off;
    stacks.add(place, OffTimes { times: 1, asleep_ns, no_core_ns });
}

/// How often is fetched what has come: rings must not overflow in between.
const EVERY: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;
    use weir_rt::sampler::StackSample;

    #[test]
    fn waiting_for_events_is_no_loss() {
        let mut stacks = OffStacks::default();
        let off = OffCore { asleep_ns: 7, no_core_ns: 1 };
        for parked in [true, false] {
            let sample = StackSample { parked, frames: vec![1], ..StackSample::default() };
            add(&mut stacks, OffCoreStack { worker: 0, sample, off });
        }
        let all: Vec<OffTimes> = stacks.0.into_values().collect();
        assert_eq!(all, [OffTimes { times: 1, asleep_ns: 7, no_core_ns: 1 }]);
    }
}

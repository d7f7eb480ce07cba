//! Where workers were while they did not run, exactly: the kernel's records of switches, beside the stacks that a thread
//! shows each time it runs again. Where the kernel does not let us there are the watchdog's samples.

use std::collections::VecDeque;
use std::io;

use weir_rt::OffCore;
use weir_rt::sampler::{self, StackSample};
use weir_sys::switches::{SwitchKind, SwitchRecorder, ThreadSwitch};

use super::{HousekeepingHandle, HousekeepingShared, lock};

/// A stretch in which a worker did not run, and where that was.
#[derive(Clone, Debug)]
pub struct OffCoreStack {
    /// The worker's number, counted from 0.
    pub worker: u16,
    /// Its stack when it ran again, as it was when it stopped.
    pub sample: StackSample,
    /// How long it did not run, and why.
    pub off: OffCore,
}

/// The switches of all workers that there are, until dropped.
pub struct SwitchRecording {
    shared: &'static HousekeepingShared,
    threads: Vec<RecordedThread>,
}

struct RecordedThread {
    worker: u16,
    recorder: SwitchRecorder,
    account: SwitchAccount,
}

impl HousekeepingHandle {
    /// Records the switches of all workers from now on.
    ///
    /// # Errors
    /// The kernel does not let us ([`SwitchRecorder::new`]); `ResourceBusy` while there is another recording.
    pub fn record_switches(&self) -> io::Result<SwitchRecording> {
        let recorder = |entry: &super::WatchedEntry| {
            let recorder = SwitchRecorder::new(entry.watched.probe.tid(), sampler::SWITCH_NUMBER)?;
            Ok(RecordedThread { worker: entry.watched.worker, recorder, account: SwitchAccount::default() })
        };
        let threads = self.shared.entries().iter().map(recorder).collect::<io::Result<Vec<_>>>()?;
        sampler::prepare_switches()?;
        if !lock(&self.shared.stacks).keep_switched() {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let recording = SwitchRecording { shared: self.shared, threads };
        super::unwind::refresh();
        recording.threads.iter().try_for_each(|thread| thread.recorder.enable())?;
        Ok(recording)
    }

    /// Why switches can't be recorded; `None` if they can.
    pub fn switches_refused(&self) -> Option<String> {
        let entries = self.shared.entries();
        let tid = entries.first().map(|entry| entry.watched.probe.tid())?;
        SwitchRecorder::new(tid, sampler::SWITCH_NUMBER).err().map(|error| error.to_string())
    }
}

impl SwitchRecording {
    /// What has come since the last time: to be called often, as what is not fetched is lost.
    pub fn take(&mut self) -> Vec<OffCoreStack> {
        // The stacks first: the switches before them have come, too.
        self.shared.gather();
        let samples = lock(&self.shared.stacks).take_switched();
        for thread in &mut self.threads {
            let mut switches = Vec::new();
            if thread.recorder.read(&mut switches) > 0 {
                thread.account.lost();
            }
            thread.account.switches.extend(switches);
        }
        let stack = |(worker, sample): (u16, StackSample)| {
            let thread = self.threads.iter_mut().find(|thread| thread.worker == worker)?;
            let off = thread.account.until(sample.time);
            Some(OffCoreStack { worker, sample, off })
        };
        samples.into_iter().filter_map(stack).filter(|stack| stack.off != OffCore::default()).collect()
    }
}

impl Drop for SwitchRecording {
    fn drop(&mut self) {
        self.threads.clear();
        lock(&self.shared.stacks).forget_switched();
    }
}

/// What the switches of a thread come to.
#[derive(Default)]
struct SwitchAccount {
    switches: VecDeque<ThreadSwitch>,
    /// When it stopped, if it does not run.
    stopped: Option<ThreadSwitch>,
    off: OffCore,
}

impl SwitchAccount {
    /// What the thread lost since this was asked last, until `time`, at which it ran.
    fn until(&mut self, time: u64) -> OffCore {
        while let Some(&switch) = self.switches.front().filter(|switch| switch.time <= time) {
            self.switches.pop_front();
            self.count(switch);
        }
        std::mem::take(&mut self.off)
    }

    fn count(&mut self, switch: ThreadSwitch) {
        if switch.kind != SwitchKind::Runs {
            self.stopped = Some(switch);
            return;
        }
        let Some(ThreadSwitch { time, kind }) = self.stopped.take() else { return };
        let ns = switch.time.saturating_sub(time);
        match kind {
            SwitchKind::Preempted => self.off.no_core_ns += ns,
            _ => self.off.asleep_ns += ns,
        }
    }

    /// Records are missing: what it did until now is not known.
    fn lost(&mut self) {
        *self = SwitchAccount::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SwitchKind::{Preempted, Runs, Sleeps};

    #[test]
    fn stretches_belong_to_the_stack_that_follows_them() {
        let mut account = SwitchAccount::default();
        let all = [
            (10, Runs),
            (20, Sleeps),
            (50, Runs),
            (60, Preempted),
            (65, Runs),
            (70, Sleeps),
            (90, Runs),
            (95, Sleeps),
        ];
        account.switches.extend(all.map(|(time, kind)| ThreadSwitch { time, kind }));
        let off = |asleep_ns, no_core_ns| OffCore { asleep_ns, no_core_ns };
        assert_eq!(account.until(15), off(0, 0));
        assert_eq!(account.until(51), off(30, 0));
        // Twice before the thread came back to its own code.
        assert_eq!(account.until(92), off(20, 5));
        assert_eq!(account.until(200), off(0, 0), "it sleeps");
        account.lost();
        account.switches.push_back(ThreadSwitch { time: 300, kind: Runs });
        assert_eq!(account.until(400), off(0, 0));
    }
}

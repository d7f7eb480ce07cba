//! The end of a server in the middle of what it does.

use weir_sim::crash::CRASHED;

use crate::kernel;

use super::{BEGIN, MICROSECOND, World};

impl World {
    /// Counts a step; whether it is the last one before the crash.
    pub(super) fn is_last_step(&mut self, now: u64) -> bool {
        let Some(crash) = self.plan.crash.filter(|_| self.is_open && !self.is_over) else { return false };
        if now < BEGIN + crash.at * MICROSECOND {
            return false;
        }
        self.steps = self.steps.saturating_sub(1);
        self.steps == 0
    }

    /// Ends the process as it is.
    pub(crate) fn crash(&mut self, now: u64) -> ! {
        self.note(format_args!("crash us={}", now / MICROSECOND));
        if let Some(disk) = &mut self.disk {
            disk.lose_power();
        }
        self.write_journal(now, self.order);
        kernel::exit(CRASHED)
    }
}

//! The behaviour of a worker while no packets arrive.

use super::{IDLE_POLLS, IDLE_SLEEP, Input, Worker};
use packet::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

impl Worker {
    /// Yields the CPU to other threads; returns the number of polls that would have been possible in that time.
    pub(super) fn yield_cpu(&mut self) -> u32 {
        let from = clock::cycles();
        self.busy.add_interval(from.saturating_sub(self.last_clock));
        std::thread::yield_now();
        // a yield of the worker's own is no poll gap
        self.last_clock = clock::cycles();
        let took = self.last_clock.wrapping_sub(from);
        if took > self.cycles_per_ms / 8 {
            // keep the interval of timers
            self.polls_to_clock = 1;
        }
        (took.saturating_mul(IDLE_POLLS.into()) / (2 * self.cycles_per_ms)).min(IDLE_POLLS.into()) as u32
    }

    /// Waits for an rx interrupt and returns true if all inputs support it; otherwise sleeps and returns false.
    pub(super) fn wait_for_interrupts(&mut self) -> bool {
        if !self.inputs.iter().all(|input| input.rx_interrupt().is_some()) {
            std::thread::sleep(IDLE_SLEEP);
            return false;
        }
        self.inputs.iter_mut().for_each(|input| input.enable_rx_interrupt(true));
        // packets that arrived before do not raise an interrupt
        if self.poll() == 0 {
            // keep the interval of timers
            let due = match self.short_interval {
                Some(interval) => self.last_short_timer + interval,
                None => self.last_timer + self.cycles_per_ms,
            };
            let due = due.saturating_sub(clock::cycles());
            let until_due = due * 1_000_000 / self.cycles_per_ms;
            let interrupts: Vec<_> = self.inputs.iter().filter_map(Input::rx_interrupt).collect();
            let mut files: Vec<_> = interrupts.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
            // errors: interrupted by a signal, and the worker polls again
            let _ = poll(&mut files, Some(&Timespec { tv_sec: 0, tv_nsec: until_due as i64 }));
            for fd in interrupts {
                // errors: no interrupt was raised
                let _ = rustix::io::read(fd, &mut [0; 8]);
            }
        }
        self.inputs.iter_mut().for_each(|input| input.enable_rx_interrupt(false));
        true
    }
}

//! What a worker does while nothing comes.

use super::{Input, NAP, PATIENCE, Worker};
use packet::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

impl Worker {
    /// Lets others have its CPU; how often it could have looked for packets meanwhile, were it alone.
    pub(super) fn give_way(&mut self) -> u32 {
        let from = clock::cycles();
        std::thread::yield_now();
        // however long that was, nobody has taken its CPU away
        self.looked = clock::cycles();
        let took = self.looked.wrapping_sub(from);
        if took > self.millisecond / 8 {
            // the graph is told the time as often as ever
            self.rounds = 1;
        }
        (took.saturating_mul(PATIENCE.into()) / (2 * self.millisecond)).min(PATIENCE.into()) as u32
    }

    /// Sleeps until somebody rings, if all inputs have bells, else for a nap; whether they have.
    pub(super) fn wait_for_bells(&mut self) -> bool {
        if !self.inputs.iter().all(|input| input.bell().is_some()) {
            std::thread::sleep(NAP);
            return false;
        }
        self.inputs.iter_mut().for_each(|input| input.ring(true));
        // for what came before nobody rings
        if self.poll() == 0 {
            // the graph is told the time as often as ever
            let due = (self.woken + self.millisecond).saturating_sub(clock::cycles());
            let until_due = due * 1_000_000 / self.millisecond;
            let bells: Vec<_> = self.inputs.iter().filter_map(Input::bell).collect();
            let mut files: Vec<_> = bells.iter().map(|bell| PollFd::new(bell, PollFlags::IN)).collect();
            // errors: a signal, after which it looks just the same
            let _ = poll(&mut files, Some(&Timespec { tv_sec: 0, tv_nsec: until_due as i64 }));
            for bell in bells {
                // errors: nobody has rung
                let _ = rustix::io::read(bell, &mut [0; 8]);
            }
        }
        self.inputs.iter_mut().for_each(|input| input.ring(false));
        true
    }
}

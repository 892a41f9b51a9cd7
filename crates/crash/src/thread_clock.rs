//! CPU time of a thread.

use std::time::Duration;

/// The CPU clock of a thread of this process, readable from other threads. It does not advance while the thread waits,
/// is stopped, or is ready to run on a CPU that others use.
#[derive(Clone, Copy, Debug)]
pub struct ThreadClock(libc::clockid_t);

impl ThreadClock {
    /// Returns the clock of the calling thread, if the system has one.
    pub fn of_this_thread() -> Option<ThreadClock> {
        let mut clock = 0;
        // SAFETY: the thread exists, as it makes the call; the clock is written to a variable of its type.
        let error = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &mut clock) };
        (error == 0).then_some(ThreadClock(clock))
    }

    /// Returns the CPU time that the thread has used, or `None` if it has ended.
    pub fn time(self) -> Option<Duration> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the time is written to a variable of its type; an unknown clock is an error.
        let error = unsafe { libc::clock_gettime(self.0, &mut time) };
        (error == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Instant;

    #[test]
    fn a_clock_advances_only_while_its_thread_runs() {
        let (to, clock) = channel();
        let (go, may_go) = channel::<()>();
        let thread = std::thread::spawn(move || {
            to.send(ThreadClock::of_this_thread().unwrap()).unwrap();
            may_go.recv().unwrap();
            let own = ThreadClock::of_this_thread().unwrap();
            let before = own.time().unwrap();
            while own.time().unwrap() < before + Duration::from_millis(20) {}
            to.send(own).unwrap();
            may_go.recv().unwrap();
        });
        let clock_of_thread = clock.recv().unwrap();
        let before = clock_of_thread.time().unwrap();
        go.send(()).unwrap();
        clock.recv().unwrap();
        assert!(clock_of_thread.time().unwrap() >= before + Duration::from_millis(20));
        go.send(()).unwrap();
        thread.join().unwrap();
        // the kernel wakes those that wait for a thread before it removes it
        let deadline = Instant::now() + Duration::from_secs(10);
        while clock_of_thread.time().is_some() {
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        }
    }
}

//! Requests to the copies of an NF, which process them in their timers: between two batches, and one at a time.

use diagnostics::Diagnostic;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Most requests that wait for a copy.
const QUEUE: usize = 16;
/// Longest wait for a copy: its timer runs every few milliseconds, unless a batch takes long.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A function that a copy calls with itself and its time. It takes tens of microseconds at most.
type Visit<T> = Box<dyn FnOnce(&mut T, Duration) + Send>;

/// Receives the requests to one copy.
pub(crate) type Visits<T> = Receiver<Visit<T>>;

/// The copies of an NF.
pub(crate) struct Copies<T: ?Sized>(Mutex<Vec<Option<SyncSender<Visit<T>>>>>);

impl<T: ?Sized> Default for Copies<T> {
    fn default() -> Self {
        Copies(Mutex::default())
    }
}

impl<T: ?Sized + 'static> Copies<T> {
    /// Adds a copy, or replaces it after a panic.
    pub(crate) fn attach(&self, copy: usize) -> Visits<T> {
        let (sender, receiver) = sync_channel(QUEUE);
        let mut copies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if copies.len() <= copy {
            copies.resize_with(copy + 1, || None);
        }
        copies[copy] = Some(sender);
        receiver
    }

    /// Returns the number of copies.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Has a copy call a function between two batches; returns the result.
    ///
    /// # Errors
    /// The copy does not exist, is busy, or has ended.
    pub(crate) fn call<R: Send + 'static>(
        &self,
        copy: usize,
        f: impl FnOnce(&mut T, Duration) -> R + Send + 'static,
    ) -> Result<R, Diagnostic> {
        let busy = |problem: &str| {
            Diagnostic::new(format!("copy {copy} of the NF {problem}"))
                .remedy("try again; if that fails, see bondstone doctor")
        };
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(copy).cloned().flatten();
        let (reply, result) = sync_channel(1);
        let visit: Visit<T> = Box::new(move |node, now| {
            // ignore errors: the thread that waited has given up
            let _ = reply.try_send(f(node, now));
        });
        match sender.map(|sender| sender.try_send(visit)) {
            Some(Ok(())) => {}
            Some(Err(TrySendError::Full(_))) => return Err(busy("has too many requests")),
            Some(Err(TrySendError::Disconnected(_))) | None => return Err(busy("is not running")),
        }
        result.recv_timeout(TIMEOUT).map_err(|_| busy("does not answer"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_called_until_it_ends() {
        let copies = Copies::<u32>::default();
        let visits = copies.attach(1);
        assert_eq!(copies.len(), 2);
        let mut node = 7;
        std::thread::scope(|scope| {
            let called = scope.spawn(|| copies.call(1, |node, now| (std::mem::replace(node, 8), now)));
            visits.recv().unwrap()(&mut node, Duration::from_secs(3));
            assert_eq!(called.join().unwrap().unwrap(), (7, Duration::from_secs(3)));
        });
        assert_eq!(node, 8);
        assert!(copies.call(0, |_, _| ()).unwrap_err().problem.contains("not running"));
        drop(visits);
        assert!(copies.call(1, |_, _| ()).unwrap_err().problem.contains("not running"));
        assert!(copies.call(9, |_, _| ()).is_err());
    }
}

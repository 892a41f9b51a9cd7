//! When memory that readers may still look at can be used again: quiescent-state reclamation.
//!
//! The writer unlinks something and [retires](Grace::retire) it: a new generation begins. A reader announces, when it holds
//! nothing of the table, the generation it has seen. What was retired may be used again when every reader has announced
//! its generation or a later one. Readers pay a load and a store per burst; the writer never waits.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a reader that looks nothing up announces: it holds nothing, whatever the generation.
const IDLE: u64 = u64::MAX;

/// A counter on cache lines of its own (two: processors fetch lines in pairs).
#[repr(align(128))]
#[derive(Default)]
struct Line(AtomicU64);

#[derive(Default)]
pub(crate) struct Grace {
    generation: Line,
    readers: Mutex<Vec<Arc<Line>>>,
}

impl Grace {
    fn readers(&self) -> MutexGuard<'_, Vec<Arc<Line>>> {
        // The list is whole whenever it can be seen: a poisoned lock changes nothing.
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For what was unlinked before this call: the generation that readers must have seen.
    pub(crate) fn retire(&self) -> u64 {
        self.generation.0.fetch_add(1, Ordering::Release) + 1
    }

    /// What was retired with this generation or an earlier one can be used again.
    pub(crate) fn passed(&self) -> u64 {
        // Pairs with the fence in `enter`: either that reader's announcement is seen here, or it sees what was unlinked.
        fence(Ordering::SeqCst);
        self.readers().iter().map(|seen| seen.0.load(Ordering::Acquire)).min().unwrap_or(IDLE)
    }

    /// Readers there are.
    pub(crate) fn reader_count(&self) -> usize {
        self.readers().len()
    }

    /// A new reader's part.
    pub(crate) fn register(&self) -> Pass {
        let mut readers = self.readers();
        // Under the lock: whoever found the list without this reader has unlinked before.
        let seen = Arc::new(Line(AtomicU64::new(self.generation.0.load(Ordering::Acquire))));
        readers.push(Arc::clone(&seen));
        Pass { seen, idle: false }
    }

    /// Forgets a reader. It must hold nothing of the table.
    pub(crate) fn unregister(&self, pass: &Pass) {
        self.readers().retain(|seen| !Arc::ptr_eq(seen, &pass.seen));
    }
}

/// What a reader announces by.
pub(crate) struct Pass {
    seen: Arc<Line>,
    idle: bool,
}

impl Pass {
    /// Before the first load from the table.
    #[inline(always)]
    pub(crate) fn enter(&mut self, grace: &Grace) {
        if self.idle {
            self.wake(grace);
        }
    }

    #[cold]
    fn wake(&mut self, grace: &Grace) {
        self.idle = false;
        self.seen.0.store(grace.generation.0.load(Ordering::Acquire), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// After the last load of a burst: nothing that was found is held any more.
    #[inline(always)]
    pub(crate) fn announce(&mut self, grace: &Grace) {
        // Acquire: who has seen the generation sees what was unlinked before it. Release: the burst's loads are over.
        self.seen.0.store(grace.generation.0.load(Ordering::Acquire), Ordering::Release);
    }

    /// Announces every generation to come, until the next `enter`.
    pub(crate) fn idle(&mut self) {
        self.idle = true;
        self.seen.0.store(IDLE, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_waited_for_without_readers() {
        let grace = Grace::default();
        assert!(grace.passed() >= grace.retire());
    }

    #[test]
    fn the_slowest_reader_counts() {
        let grace = Grace::default();
        let (mut a, mut b) = (grace.register(), grace.register());
        let first = grace.retire();
        a.announce(&grace);
        assert!(grace.passed() < first);
        b.announce(&grace);
        assert!(grace.passed() >= first);
        let second = grace.retire();
        b.announce(&grace);
        assert!((first..second).contains(&grace.passed()));
        grace.unregister(&a);
        assert!(grace.passed() >= second);
        assert_eq!(grace.reader_count(), 1);
    }

    #[test]
    fn an_idle_reader_is_not_waited_for_until_it_enters() {
        let grace = Grace::default();
        let mut reader = grace.register();
        reader.idle();
        assert!(grace.passed() >= grace.retire());
        reader.enter(&grace);
        let later = grace.retire();
        assert!(grace.passed() < later);
        reader.announce(&grace);
        assert!(grace.passed() >= later);
    }

    #[test]
    fn a_reader_that_comes_later_holds_nothing_from_before() {
        let grace = Grace::default();
        let earlier = grace.retire();
        let _reader = grace.register();
        assert!(grace.passed() >= earlier);
    }
}

//! Quiescent-state-based reclamation: reuse of memory that readers may still access.
//!
//! The writer unlinks something and [retires](Grace::retire) it: a new generation begins. A reader announces, when it holds
//! nothing of the table, the generation it has seen. What was retired may be used again when every reader has announced
//! its generation or a later one. Readers pay a load and a store per burst; the writer never waits.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Announcement of an idle reader: it holds no references.
const IDLE: u64 = u64::MAX;

/// A counter on cache lines of its own (two: processors fetch lines in pairs).
#[repr(align(128))]
#[derive(Default)]
struct Line(AtomicU64);

#[derive(Default)]
pub(crate) struct QsbrDomain {
    generation: Line,
    readers: Mutex<Vec<Arc<Line>>>,
}

impl QsbrDomain {
    fn readers(&self) -> MutexGuard<'_, Vec<Arc<Line>>> {
        // The list is whole whenever it can be seen: a poisoned lock changes nothing.
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the generation that readers must have passed before memory unlinked before this call can be reused.
    pub(crate) fn retire(&self) -> u64 {
        self.generation.0.fetch_add(1, Ordering::Release) + 1
    }

    /// Returns true if memory retired with this generation or an earlier one can be reused.
    pub(crate) fn quiescent_generation(&self) -> u64 {
        // Pairs with the fence in `enter`: either that reader's announcement is seen here, or it sees what was unlinked.
        fence(Ordering::SeqCst);
        self.readers().iter().map(|seen| seen.0.load(Ordering::Acquire)).min().unwrap_or(IDLE)
    }

    /// Readers there are.
    pub(crate) fn reader_count(&self) -> usize {
        self.readers().len()
    }

    /// Registers a reader.
    pub(crate) fn register(&self) -> QsbrReader {
        let mut readers = self.readers();
        // Under the lock: a writer that found the list without this reader has unlinked before.
        let seen = Arc::new(Line(AtomicU64::new(self.generation.0.load(Ordering::Acquire))));
        readers.push(Arc::clone(&seen));
        QsbrReader { seen, idle: false }
    }

    /// Forgets a reader. It must hold nothing of the table.
    pub(crate) fn unregister(&self, pass: &QsbrReader) {
        self.readers().retain(|seen| !Arc::ptr_eq(seen, &pass.seen));
    }
}

/// Announcement of a reader.
pub(crate) struct QsbrReader {
    seen: Arc<Line>,
    idle: bool,
}

impl QsbrReader {
    /// Announces a lookup, before the first load from the table.
    #[inline(always)]
    pub(crate) fn enter(&mut self, grace: &QsbrDomain) {
        if self.idle {
            self.wake(grace);
        }
    }

    #[cold]
    fn wake(&mut self, grace: &QsbrDomain) {
        self.idle = false;
        self.seen.0.store(grace.generation.0.load(Ordering::Acquire), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Announces a quiescent state, after the last load of a burst.
    #[inline(always)]
    pub(crate) fn announce(&mut self, grace: &QsbrDomain) {
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
        let grace = QsbrDomain::default();
        assert!(grace.quiescent_generation() >= grace.retire());
    }

    #[test]
    fn the_slowest_reader_counts() {
        let grace = QsbrDomain::default();
        let (mut a, mut b) = (grace.register(), grace.register());
        let first = grace.retire();
        a.announce(&grace);
        assert!(grace.quiescent_generation() < first);
        b.announce(&grace);
        assert!(grace.quiescent_generation() >= first);
        let second = grace.retire();
        b.announce(&grace);
        assert!((first..second).contains(&grace.quiescent_generation()));
        grace.unregister(&a);
        assert!(grace.quiescent_generation() >= second);
        assert_eq!(grace.reader_count(), 1);
    }

    #[test]
    fn an_idle_reader_is_not_waited_for_until_it_enters() {
        let grace = QsbrDomain::default();
        let mut reader = grace.register();
        reader.idle();
        assert!(grace.quiescent_generation() >= grace.retire());
        reader.enter(&grace);
        let later = grace.retire();
        assert!(grace.quiescent_generation() < later);
        reader.announce(&grace);
        assert!(grace.quiescent_generation() >= later);
    }

    #[test]
    fn a_reader_that_comes_later_holds_nothing_from_before() {
        let grace = QsbrDomain::default();
        let earlier = grace.retire();
        let _reader = grace.register();
        assert!(grace.quiescent_generation() >= earlier);
    }
}

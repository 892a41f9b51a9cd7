//! State of one core.

use crate::BuildContext;
use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut, Range};

/// State of one copy of an NF, and so of one core: no locks and no atomics.
///
/// It dereferences to the `T` it contains. Each copy creates its own when it is built, from its [`Share`]. It moves to
/// a core with the copy and cannot be reached from another one: it is neither `Clone` nor `Sync`.
///
/// ```
/// use graph::{BuildContext, Context, Node, PerCore};
/// use packet::Batch;
///
/// /// Allocates ports; each copy has its own part of the range.
/// struct Ports {
///     free: PerCore<Vec<u64>>,
///     allocated: PerCore<u64>,
/// }
/// impl Ports {
///     fn build(cx: &BuildContext) -> Self {
///         Ports {
///             free: PerCore::new(cx, |share| share.of(1024..65536).collect()),
///             allocated: PerCore::new(cx, |_| 0),
///         }
///     }
/// }
/// impl Node for Ports {
///     fn process(&mut self, _: &mut Context<'_>, _: u8, batch: &mut Batch) {
///         for _ in 0..batch.len() {
///             *self.allocated += u64::from(self.free.pop().is_some());
///         }
///     }
/// }
/// let copies = [0, 1].map(|copy| Ports::build(&BuildContext { copy: (copy, 2), ..Default::default() }));
/// assert_eq!(copies[0].free.len() + copies[1].free.len(), 65536 - 1024);
/// assert_eq!(copies[1].free[0], copies[0].free[copies[0].free.len() - 1] + 1);
/// ```
///
/// In a chain of operators, it moves into the closure that uses it:
/// ```
/// # use graph::{BuildContext, Operator, PerCore, frame};
/// # use wire::{Ethernet, Ipv4};
/// # let cx = BuildContext::default();
/// let mut packets = PerCore::new(&cx, |_| [0u64; 256]);
/// let counts_protocols = frame().parse::<Ethernet>().parse::<Ipv4>().transform(move |ip| {
///     packets[ip.header().protocol().0 as usize] += 1;
/// });
/// ```
///
/// It can move to another thread,
/// ```
/// # use graph::{BuildContext, PerCore};
/// let count = PerCore::new(&BuildContext::default(), |_| 7u64);
/// assert_eq!(std::thread::spawn(move || *count).join().unwrap(), 7);
/// ```
/// but two threads cannot share it:
/// ```compile_fail,E0277
/// # use graph::{BuildContext, PerCore};
/// # use std::sync::Arc;
/// let count = Arc::new(PerCore::new(&BuildContext::default(), |_| 7u64));
/// let other = Arc::clone(&count);
/// assert_eq!(std::thread::spawn(move || **other).join().unwrap(), 7);
/// ```
/// Nor can the copies of an NF share it:
/// ```compile_fail,E0277
/// # use graph::{BuildContext, PerCore};
/// let cx = BuildContext::default();
/// let shared = cx.shared(|| Ok(PerCore::new(&cx, |_| 7u64)));
/// ```
/// References into it end with the call: this counts packets,
/// ```
/// # use graph::{BuildContext, Operator, PerCore, frame};
/// let mut count = PerCore::new(&BuildContext::default(), |_| 7u64);
/// let chain = frame().transform(move |_| {
///     let now: &mut u64 = &mut count;
///     *now += 1;
/// });
/// ```
/// and this does not compile, because it keeps a reference for the next packet:
/// ```compile_fail
/// # use graph::{BuildContext, Operator, PerCore, frame};
/// let mut count = PerCore::new(&BuildContext::default(), |_| 7u64);
/// let mut kept: Option<&mut u64> = None;
/// let chain = frame().transform(move |_| {
///     let now: &mut u64 = &mut count;
///     kept = Some(now);
/// });
/// ```
pub struct PerCore<T> {
    state: T,
    /// A `Cell` is `Send` and not `Sync`.
    not_sync: PhantomData<Cell<()>>,
}

/// The index of a copy of an NF, and the number of copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Index of the copy, from 0.
    pub copy: usize,
    /// Number of copies, at least 1.
    pub copies: usize,
}

impl Share {
    /// Returns this copy's part of a range that is divided among all copies. The parts are consecutive and their
    /// lengths differ by at most one.
    pub fn of(self, whole: Range<u64>) -> Range<u64> {
        let len = whole.end.saturating_sub(whole.start);
        let bound = |n: usize| whole.start + (u128::from(len) * n as u128 / self.copies as u128) as u64;
        bound(self.copy)..bound(self.copy + 1)
    }
}

impl<T> PerCore<T> {
    /// Creates the state of the copy that `cx` describes.
    pub fn new(cx: &BuildContext, init: impl FnOnce(Share) -> T) -> Self {
        let (copy, copies) = cx.copy;
        let share = Share { copy, copies: copies.max(copy + 1) };
        PerCore { state: init(share), not_sync: PhantomData }
    }

    /// Returns the contained state.
    pub fn into_inner(self) -> T {
        self.state
    }
}

impl<T> Deref for PerCore<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.state
    }
}

impl<T> DerefMut for PerCore<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.state
    }
}

impl<T: fmt::Debug> fmt::Debug for PerCore<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PerCore").field(&self.state).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shares_are_consecutive_and_even(start in any::<u32>(), len in any::<u32>(), copies in 1..200usize) {
            let whole = u64::from(start)..u64::from(start) + u64::from(len);
            let mut next = whole.start;
            for copy in 0..copies {
                let part = Share { copy, copies }.of(whole.clone());
                prop_assert_eq!(part.start, next);
                let even = u64::from(len) / copies as u64;
                prop_assert!((even..=even + 1).contains(&(part.end - part.start)));
                next = part.end;
            }
            prop_assert_eq!(next, whole.end);
        }
    }

    #[test]
    fn divides_the_whole_u64_range() {
        let parts = [0, 1].map(|copy| Share { copy, copies: 2 }.of(0..u64::MAX));
        assert_eq!(parts, [0..u64::MAX / 2, u64::MAX / 2..u64::MAX]);
    }
}

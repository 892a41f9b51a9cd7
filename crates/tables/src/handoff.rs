//! Parcels handed from one thread to another, without a lock and without waiting on either side.
//!
//! A [`Giver`] lays [`Parcel`]s on a pile, its [`Taker`] takes the whole pile at once. A parcel is never out of reach
//! between the two: whenever the taker looks, it finds all that was given and that it has not yet taken. So a giver
//! that counts what it gave knows how far behind the taker can be, and one whose pile grows too high puts a parcel that
//! says it all [in the place](Giver::replace) of the pile. Spent parcels can go back by a second pair, and no memory is
//! allocated once there are enough of them.
//!
//! Wait-free: giving is one compare-and-swap, or two or three when the taker took or left in between; taking is a load
//! when nothing waits, otherwise a swap.
//!
//! ```
//! use tables::handoff::{self, Parcel};
//!
//! let (mut giver, mut taker) = handoff::pair();
//! std::thread::scope(|threads| {
//!     threads.spawn(|| (1..=1000).for_each(|n| assert!(giver.push(Parcel::new(n)).is_ok())));
//!     let mut next = 1;
//!     while next <= 1000 {
//!         while taker.is_waiting() {
//!             taker.take().reversed().for_each(|parcel| {
//!                 assert_eq!(*parcel, next, "each once, in the order in which they were given");
//!                 next += 1;
//!             });
//!         }
//!     }
//! });
//! ```
#![allow(unexpected_cfgs, reason = "`cfg(loom)` is set by hand, for the model test alone")]

use core::fmt;
use core::ops::{Deref, DerefMut};
use core::ptr;
#[cfg(not(loom))]
use core::sync::atomic::{AtomicPtr, Ordering};
#[cfg(loom)]
use loom::sync::Arc;
#[cfg(loom)]
use loom::sync::atomic::{AtomicPtr, Ordering};
#[cfg(not(loom))]
use std::sync::Arc;

/// What is handed over: an owned `T` with room for a place in a pile.
pub struct Parcel<T>(Box<Node<T>>);

struct Node<T> {
    /// The next one of the pile or the list that owns this one, or null.
    next: *mut Node<T>,
    value: T,
}

/// Parcels that nobody else has: a list, which as an iterator gives them away from its front.
pub struct Parcels<T> {
    /// Null if there are none.
    first: *mut Node<T>,
}

/// The side that gives.
pub struct Giver<T>(Arc<Pile<T>>);

/// The side that takes. Once it is dropped nothing more can be given.
pub struct Taker<T>(Arc<Pile<T>>);

/// On cache lines of its own (two: processors fetch lines in pairs).
#[repr(align(128))]
struct Pile<T> {
    /// Owns what waits, newest first, each but the last with the one before it as `next`. [`closed`] without a taker.
    top: AtomicPtr<Node<T>>,
}

/// Stands in a pile's place when there is no taker any more.
fn closed<T>() -> *mut Node<T> {
    const { assert!(align_of::<Node<T>>() > 1, "no node has this address") }
    ptr::without_provenance_mut(1)
}

// SAFETY: a pile moves values from the thread of its giver to that of its taker, and drops them; it gives nobody a
// reference.
unsafe impl<T: Send> Send for Pile<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Pile<T> {}
// SAFETY: it owns its value, and nobody but the owner follows `next`.
unsafe impl<T: Send> Send for Parcel<T> {}
// SAFETY: a shared parcel gives shared references to its value and to nothing else.
unsafe impl<T: Sync> Sync for Parcel<T> {}
// SAFETY: it owns its nodes.
unsafe impl<T: Send> Send for Parcels<T> {}
// SAFETY: a shared list gives shared references to its values and to nothing else.
unsafe impl<T: Sync> Sync for Parcels<T> {}

/// The two sides of an empty pile.
pub fn pair<T>() -> (Giver<T>, Taker<T>) {
    let pile = Arc::new(Pile { top: AtomicPtr::new(ptr::null_mut()) });
    (Giver(Arc::clone(&pile)), Taker(pile))
}

impl<T> Giver<T> {
    /// Whether there still is a taker.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.0.top.load(Ordering::Relaxed) != closed()
    }

    /// Gives a parcel, on top of those that wait. Says whether any do: if not, the taker has taken all that was given
    /// before.
    ///
    /// # Errors
    /// The parcel, when there is no taker any more.
    #[inline]
    pub fn push(&mut self, parcel: Parcel<T>) -> Result<bool, Parcel<T>> {
        let node = Box::into_raw(parcel.0);
        self.lay(node, node).map_err(|node| {
            // SAFETY: `lay` has given it back, and it came from a box above.
            Parcel(unsafe { Box::from_raw(node) })
        })
    }

    /// Gives a list, its first one on top, as [`push`](Giver::push) gives one.
    ///
    /// # Errors
    /// The list, when there is something in it and no taker any more.
    pub fn push_all(&mut self, parcels: Parcels<T>) -> Result<bool, Parcels<T>> {
        let first = parcels.give_up();
        if first.is_null() {
            let top = self.0.top.load(Ordering::Relaxed);
            return Ok(!top.is_null() && top != closed());
        }
        let mut last = first;
        // SAFETY: the nodes of a list are alive and its own, and the last one's `next` is null.
        while let Some(next) = ptr::NonNull::new(unsafe { (*last).next }) {
            last = next.as_ptr();
        }
        self.lay(first, last).map_err(|first| {
            // SAFETY: `lay` has given them back, and `last` was the end of the list.
            unsafe { (*last).next = ptr::null_mut() };
            Parcels { first }
        })
    }

    /// Lays owned nodes, linked from `first` to `last`, on the pile. Gives them back when it is closed.
    #[inline(always)]
    fn lay(&mut self, first: *mut Node<T>, last: *mut Node<T>) -> Result<bool, *mut Node<T>> {
        // What is loaded was stored by this giver, or is null or `closed`: it is not followed, so nothing need be
        // acquired.
        let mut below = self.0.top.load(Ordering::Relaxed);
        loop {
            if below == closed() {
                return Err(first);
            }
            // SAFETY: the caller owns the node until the exchange succeeds.
            unsafe { (*last).next = below };
            // Release: the nodes' contents go with them. The same node cannot have left the pile and come back, because
            // only this giver could have laid it there. So a failure means taken or closed, and there are at most two.
            match self.0.top.compare_exchange(below, first, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Ok(!below.is_null()),
                Err(now) => below = now,
            }
        }
    }

    /// Puts a parcel in the place of all that wait, and gives those back, newest first. The taker finds the one or the
    /// others, never neither.
    ///
    /// # Errors
    /// The parcel, when there is no taker any more.
    pub fn replace(&mut self, parcel: Parcel<T>) -> Result<Parcels<T>, Parcel<T>> {
        let node = Box::into_raw(parcel.0);
        // SAFETY: it is owned until the swap.
        unsafe { (*node).next = ptr::null_mut() };
        // Release: as in `lay`. Acquire is not needed: what comes back was given by this very giver.
        let old = self.0.top.swap(node, Ordering::Release);
        if old == closed() {
            // The taker is gone, so nobody has seen the node.
            self.0.top.store(closed(), Ordering::Relaxed);
            // SAFETY: it came from a box above, and nobody else has it.
            return Err(Parcel(unsafe { Box::from_raw(node) }));
        }
        Ok(Parcels { first: old })
    }
}

impl<T> Taker<T> {
    /// Whether something waits. Whatever was given before, as this thread knows it, is seen.
    #[inline(always)]
    pub fn is_waiting(&self) -> bool {
        !self.0.top.load(Ordering::Relaxed).is_null()
    }

    /// Takes all that waits, newest first.
    #[inline]
    pub fn take(&mut self) -> Parcels<T> {
        if !self.is_waiting() {
            return Parcels::default();
        }
        // Acquire: pairs with the exchange that laid the top, which came after those of the nodes below it.
        Parcels { first: self.0.top.swap(ptr::null_mut(), Ordering::Acquire) }
    }
}

impl<T> Drop for Taker<T> {
    fn drop(&mut self) {
        drop(Parcels { first: self.0.top.swap(closed(), Ordering::Acquire) });
    }
}

impl<T> Drop for Pile<T> {
    fn drop(&mut self) {
        #[cfg(not(loom))]
        let top = *self.top.get_mut();
        #[cfg(loom)]
        let top = self.top.with_mut(|top| *top);
        if top != closed() {
            drop(Parcels { first: top });
        }
    }
}

impl<T> Parcels<T> {
    /// The list turned round.
    pub fn reversed(self) -> Self {
        let (mut rest, mut first) = (self.give_up(), ptr::null_mut());
        while !rest.is_null() {
            // SAFETY: the nodes are alive and this list's own, each in it once.
            let next = unsafe { core::mem::replace(&mut (*rest).next, first) };
            (first, rest) = (rest, next);
        }
        Parcels { first }
    }

    fn give_up(self) -> *mut Node<T> {
        core::mem::ManuallyDrop::new(self).first
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Puts a parcel at the front.
    pub fn push(&mut self, mut parcel: Parcel<T>) {
        parcel.0.next = self.first;
        self.first = Box::into_raw(parcel.0);
    }

    /// The values, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let mut at = self.first;
        core::iter::from_fn(move || {
            // SAFETY: a node of a list that is borrowed for as long as its value, visited once.
            let node = unsafe { at.as_mut() }?;
            at = node.next;
            Some(&mut node.value)
        })
    }
}

impl<T> Default for Parcels<T> {
    fn default() -> Self {
        Parcels { first: ptr::null_mut() }
    }
}

impl<T> Iterator for Parcels<T> {
    type Item = Parcel<T>;

    #[inline]
    fn next(&mut self) -> Option<Parcel<T>> {
        if self.first.is_null() {
            return None;
        }
        // SAFETY: the list owns its nodes, which came from boxes, and this one leaves it here.
        let node = unsafe { Box::from_raw(self.first) };
        self.first = node.next;
        Some(Parcel(node))
    }
}

impl<T> Drop for Parcels<T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

impl<T> Parcel<T> {
    /// Allocates one.
    pub fn new(value: T) -> Self {
        Parcel(Box::new(Node { next: ptr::null_mut(), value }))
    }

    /// Its value.
    pub fn into_inner(self) -> T {
        self.0.value
    }
}

impl<T> Deref for Parcel<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T> DerefMut for Parcel<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Parcel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Parcel").field(&self.0.value).finish()
    }
}

macro_rules! debug {
    ($($name:ident)+) => {$(
        impl<T> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )+};
}
debug!(Giver Taker Parcels);

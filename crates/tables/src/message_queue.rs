//! MessageList handed from one thread to another, without a lock and without waiting on either side.
//!
//! A [`Sender`] lays [`Message`]s on a queue, its [`Receiver`] takes the whole queue at once. A message is never out of reach
//! between the two: whenever the receiver looks, it finds all that was given and that it has not yet taken. So a sender
//! that counts what it gave knows how far behind the receiver can be, and one whose queue grows too high puts a message that
//! says it all [in the place](Sender::replace) of the queue. Spent messages can go back by a second pair, and no memory is
//! allocated once there are enough of them.
//!
//! Wait-free: giving is one compare-and-swap, or two or three when the receiver took or left in between; taking is a load
//! when nothing waits, otherwise a swap.
//!
//! ```
//! use tables::message_queue::{self, Message};
//!
//! let (mut sender, mut receiver) = message_queue::pair();
//! std::thread::scope(|threads| {
//!     threads.spawn(|| (1..=1000).for_each(|n| assert!(sender.push(Message::new(n)).is_ok())));
//!     let mut next = 1;
//!     while next <= 1000 {
//!         while receiver.is_waiting() {
//!             receiver.take().reversed().for_each(|message| {
//!                 assert_eq!(*message, next, "each once, in the order in which they were given");
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

/// A message: an owned `T` with a link.
pub struct Message<T>(Box<Node<T>>);

struct Node<T> {
    /// The next one of the queue or the list that owns this one, or null.
    next: *mut Node<T>,
    value: T,
}

/// A list of owned messages; its iterator returns them from the front.
pub struct MessageList<T> {
    /// Null if there are none.
    first: *mut Node<T>,
}

/// The side that gives.
pub struct Sender<T>(Arc<Queue<T>>);

/// The side that takes. Once it is dropped nothing more can be given.
pub struct Receiver<T>(Arc<Queue<T>>);

/// On cache lines of its own (two: processors fetch lines in pairs).
#[repr(align(128))]
struct Queue<T> {
    /// Owns what waits, newest first, each but the last with the one before it as `next`. [`closed`] without a receiver.
    top: AtomicPtr<Node<T>>,
}

/// Stands in a queue's place when there is no receiver any more.
fn closed<T>() -> *mut Node<T> {
    const { assert!(align_of::<Node<T>>() > 1, "no node has this address") }
    ptr::without_provenance_mut(1)
}

// SAFETY: a queue moves values from the thread of its sender to that of its receiver, and drops them; it never hands out a
// reference.
unsafe impl<T: Send> Send for Queue<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Queue<T> {}
// SAFETY: it owns its value, and only the owner follows `next`.
unsafe impl<T: Send> Send for Message<T> {}
// SAFETY: a shared message gives shared references to its value and to nothing else.
unsafe impl<T: Sync> Sync for Message<T> {}
// SAFETY: it owns its nodes.
unsafe impl<T: Send> Send for MessageList<T> {}
// SAFETY: a shared list gives shared references to its values and to nothing else.
unsafe impl<T: Sync> Sync for MessageList<T> {}

/// Creates an empty queue.
pub fn pair<T>() -> (Sender<T>, Receiver<T>) {
    let queue = Arc::new(Queue { top: AtomicPtr::new(ptr::null_mut()) });
    (Sender(Arc::clone(&queue)), Receiver(queue))
}

impl<T> Sender<T> {
    /// Returns true if the receiver exists.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.0.top.load(Ordering::Relaxed) != closed()
    }

    /// Gives a message, on top of those that wait. Says whether any do: if not, the receiver has taken all that was given
    /// before.
    ///
    /// # Errors
    /// The message, when there is no receiver any more.
    #[inline]
    pub fn push(&mut self, message: Message<T>) -> Result<bool, Message<T>> {
        let node = Box::into_raw(message.0);
        self.lay(node, node).map_err(|node| {
            // SAFETY: `lay` has given it back, and it came from a box above.
            Message(unsafe { Box::from_raw(node) })
        })
    }

    /// Gives a list, its first one on top, as [`push`](Sender::push) gives one.
    ///
    /// # Errors
    /// The list, when there is something in it and no receiver any more.
    pub fn push_all(&mut self, messages: MessageList<T>) -> Result<bool, MessageList<T>> {
        let first = messages.give_up();
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
            MessageList { first }
        })
    }

    /// Lays owned nodes, linked from `first` to `last`, on the queue. Gives them back when it is closed.
    #[inline(always)]
    fn lay(&mut self, first: *mut Node<T>, last: *mut Node<T>) -> Result<bool, *mut Node<T>> {
        // the loaded pointer was stored by this sender, or is null or `closed`: it is not dereferenced, so nothing need
        // be
        // acquired.
        let mut below = self.0.top.load(Ordering::Relaxed);
        loop {
            if below == closed() {
                return Err(first);
            }
            // SAFETY: the caller owns the node until the exchange succeeds.
            unsafe { (*last).next = below };
            // Release: the nodes' contents go with them. The same node cannot have left the queue and come back, because
            // only this sender could have laid it there. So a failure means taken or closed, and there are at most two.
            match self.0.top.compare_exchange(below, first, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Ok(!below.is_null()),
                Err(now) => below = now,
            }
        }
    }

    /// Puts a message in the place of all that wait, and gives those back, newest first. The receiver finds the one or the
    /// others, never neither.
    ///
    /// # Errors
    /// The message, when there is no receiver any more.
    pub fn replace(&mut self, message: Message<T>) -> Result<MessageList<T>, Message<T>> {
        let node = Box::into_raw(message.0);
        // SAFETY: it is owned until the swap.
        unsafe { (*node).next = ptr::null_mut() };
        // Release: as in `lay`. Acquire is not needed: what comes back was given by this very sender.
        let old = self.0.top.swap(node, Ordering::Release);
        if old == closed() {
            // The receiver is gone, so the node was never seen.
            self.0.top.store(closed(), Ordering::Relaxed);
            // SAFETY: it came from a box above, and there is no other reference.
            return Err(Message(unsafe { Box::from_raw(node) }));
        }
        Ok(MessageList { first: old })
    }
}

impl<T> Receiver<T> {
    /// Returns true if messages are waiting, of those sent before as far as this thread can observe.
    #[inline(always)]
    pub fn is_waiting(&self) -> bool {
        !self.0.top.load(Ordering::Relaxed).is_null()
    }

    /// Takes all that waits, newest first.
    #[inline]
    pub fn take(&mut self) -> MessageList<T> {
        if !self.is_waiting() {
            return MessageList::default();
        }
        // Acquire: pairs with the exchange that laid the top, which came after those of the nodes below it.
        MessageList { first: self.0.top.swap(ptr::null_mut(), Ordering::Acquire) }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        drop(MessageList { first: self.0.top.swap(closed(), Ordering::Acquire) });
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        #[cfg(not(loom))]
        let top = *self.top.get_mut();
        #[cfg(loom)]
        let top = self.top.with_mut(|top| *top);
        if top != closed() {
            drop(MessageList { first: top });
        }
    }
}

impl<T> MessageList<T> {
    /// Reverses the list.
    pub fn reversed(self) -> Self {
        let (mut rest, mut first) = (self.give_up(), ptr::null_mut());
        while !rest.is_null() {
            // SAFETY: the nodes are alive and this list's own, each in it once.
            let next = unsafe { core::mem::replace(&mut (*rest).next, first) };
            (first, rest) = (rest, next);
        }
        MessageList { first }
    }

    fn give_up(self) -> *mut Node<T> {
        core::mem::ManuallyDrop::new(self).first
    }

    /// Returns true if the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Puts a message at the front.
    pub fn push(&mut self, mut message: Message<T>) {
        message.0.next = self.first;
        self.first = Box::into_raw(message.0);
    }

    /// Returns an iterator over mutable values.
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

impl<T> Default for MessageList<T> {
    fn default() -> Self {
        MessageList { first: ptr::null_mut() }
    }
}

impl<T> Iterator for MessageList<T> {
    type Item = Message<T>;

    #[inline]
    fn next(&mut self) -> Option<Message<T>> {
        if self.first.is_null() {
            return None;
        }
        // SAFETY: the list owns its nodes, which came from boxes, and this one leaves it here.
        let node = unsafe { Box::from_raw(self.first) };
        self.first = node.next;
        Some(Message(node))
    }
}

impl<T> Drop for MessageList<T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

impl<T> Message<T> {
    /// Allocates one.
    pub fn new(value: T) -> Self {
        Message(Box::new(Node { next: ptr::null_mut(), value }))
    }

    /// Returns its value.
    pub fn into_inner(self) -> T {
        self.0.value
    }
}

impl<T> Deref for Message<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T> DerefMut for Message<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Message<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Message").field(&self.0.value).finish()
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
debug!(Sender Receiver MessageList);

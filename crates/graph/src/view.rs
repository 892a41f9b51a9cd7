//! A packet seen through the headers parsed so far.

use core::hint::cold_path;
use core::marker::PhantomData;
use packet::{Meta, MetaMut};
use wire::{Ethernet, Follows, Header};

/// The headers parsed so far, innermost last.
pub trait Stack: Copy + Send + 'static {
    /// Where the bytes behind the innermost header begin and end, in a packet of `len` bytes.
    fn payload(self, len: usize) -> (usize, usize);
}

/// No header yet: the whole frame.
#[derive(Clone, Copy, Debug)]
pub struct Raw;

/// Header `H` over the headers `S`.
#[derive(Debug)]
pub struct Over<H, S> {
    below: S,
    at: u32,
    len: u32,
    end: u32,
    header: PhantomData<fn() -> H>,
}

impl<H, S: Copy> Clone for Over<H, S> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<H, S: Copy> Copy for Over<H, S> {}

impl Stack for Raw {
    #[inline(always)]
    fn payload(self, len: usize) -> (usize, usize) {
        (0, len)
    }
}

impl<H: Header, S: Stack> Stack for Over<H, S> {
    #[inline(always)]
    fn payload(self, _: usize) -> (usize, usize) {
        ((self.at + self.len) as usize, self.end as usize)
    }
}

/// A stack with at least one header.
pub trait Layered: Stack {
    /// The innermost header.
    type Header: Header;
    /// The stack without it.
    type Below: Stack;
    #[doc(hidden)]
    fn below(self) -> Self::Below;
}

impl<H: Header, S: Stack> Layered for Over<H, S> {
    type Header = H;
    type Below = S;
    #[inline(always)]
    fn below(self) -> S {
        self.below
    }
}

/// `Self` may be parsed next on a packet with the headers `S`.
#[diagnostic::on_unimplemented(
    message = "a `{Self}` header cannot come next here",
    note = "a frame begins with `Ethernet`; every other header is parsed after one that can carry it (see `wire::Follows`)"
)]
pub trait On<S: Stack>: Header {
    #[doc(hidden)]
    fn announced(bytes: &[u8], stack: S) -> bool;
}

impl On<Raw> for Ethernet {
    #[inline(always)]
    fn announced(_: &[u8], _: Raw) -> bool {
        true
    }
}

impl<H: Follows<B>, B: Header, S: Stack> On<Over<B, S>> for H {
    #[inline(always)]
    fn announced(bytes: &[u8], stack: Over<B, S>) -> bool {
        let (at, len) = (stack.at as usize, stack.len as usize);
        bytes.get(at..at + len).is_some_and(H::announced_by)
    }
}

/// Index of the innermost header in [`Has`].
pub struct Here;
/// Index of a header further out in [`Has`].
pub struct There<I>(PhantomData<I>);

/// The stack holds header `H`. The index `I` is inferred.
pub trait Has<H, I> {
    #[doc(hidden)]
    fn at(self) -> (usize, usize);
}

impl<H: Header, S: Stack> Has<H, Here> for Over<H, S> {
    #[inline(always)]
    fn at(self) -> (usize, usize) {
        (self.at as usize, self.len as usize)
    }
}

impl<H, X, S: Has<H, I>, I> Has<H, There<I>> for Over<X, S> {
    #[inline(always)]
    fn at(self) -> (usize, usize) {
        self.below.at()
    }
}

/// A packet during one operator's turn: its bytes, what is known besides, and the headers parsed so far.
///
/// Bytes and headers can be changed in place; the packet keeps its length.
pub struct View<'p, S> {
    pub(crate) meta: MetaMut<'p>,
    pub(crate) bytes: &'p mut [u8],
    pub(crate) stack: S,
}

/// `H` at `at`, where parsing has found room for it.
#[inline(always)]
fn lay<H: Header>(bytes: &[u8], at: usize) -> &H {
    H::ref_from_prefix(&bytes[at..]).expect("bytes keep their length, and parsing found room").0
}

/// As [`lay`], to change it.
#[inline(always)]
fn lay_mut<H: Header>(bytes: &mut [u8], at: usize) -> &mut H {
    H::mut_from_prefix(&mut bytes[at..]).expect("bytes keep their length, and parsing found room").0
}

impl<'p, S: Stack> View<'p, S> {
    /// What is known of the packet besides its bytes.
    #[inline(always)]
    pub fn meta(&self) -> Meta<'_> {
        self.meta.get()
    }

    /// What is known of the packet besides its bytes, to change it.
    #[inline(always)]
    pub fn meta_mut(&mut self) -> &mut MetaMut<'p> {
        &mut self.meta
    }

    /// The whole frame.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// The whole frame, to change it.
    #[inline(always)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes
    }

    /// The bytes behind the innermost header, as far as that header says they belong to it.
    #[inline(always)]
    pub fn payload(&self) -> &[u8] {
        let (from, to) = self.stack.payload(self.bytes.len());
        self.bytes.get(from..to).unwrap_or_default()
    }

    /// The bytes behind the innermost header, to change them.
    #[inline(always)]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let (from, to) = self.stack.payload(self.bytes.len());
        self.bytes.get_mut(from..to).unwrap_or_default()
    }

    /// The fixed part of any header parsed so far: `view.get::<Ethernet, _>()`.
    #[inline(always)]
    pub fn get<H: Header, I>(&self) -> &H
    where
        S: Has<H, I>,
    {
        lay(self.bytes, self.stack.at().0)
    }

    /// The fixed part of any header parsed so far, to change it.
    #[inline(always)]
    pub fn get_mut<H: Header, I>(&mut self) -> &mut H
    where
        S: Has<H, I>,
    {
        lay_mut(self.bytes, self.stack.at().0)
    }

    /// Whether the innermost header says that `H` comes next.
    #[inline(always)]
    pub fn announces<H: On<S>>(&self) -> bool {
        H::announced(self.bytes, self.stack)
    }

    /// A whole header parsed so far, options included.
    #[inline(always)]
    pub fn whole<H: Header, I>(&self) -> &[u8]
    where
        S: Has<H, I>,
    {
        let (at, len) = self.stack.at();
        self.bytes.get(at..at + len).unwrap_or_default()
    }

    #[inline(always)]
    pub(crate) fn with<T: Stack>(self, stack: T) -> View<'p, T> {
        View { meta: self.meta, bytes: self.bytes, stack }
    }

    /// Lays `H` over the bytes behind the innermost header; fails with true when it is malformed, with false when
    /// something else is announced.
    #[inline(always)]
    pub(crate) fn parse<H: On<S>>(self) -> Result<View<'p, Over<H, S>>, bool> {
        if !self.announces::<H>() {
            return Err(false);
        }
        let (at, end) = self.stack.payload(self.bytes.len());
        let Some(bytes) = self.bytes.get(at..end) else { return Err(true) };
        match H::check(bytes) {
            Ok(len) => {
                let end = at + H::extent(bytes);
                let stack =
                    Over { below: self.stack, at: at as u32, len: len as u32, end: end as u32, header: PhantomData };
                Ok(self.with(stack))
            }
            Err(_) => {
                cold_path();
                Err(true)
            }
        }
    }
}

impl<H: Header, S: Stack> View<'_, Over<H, S>> {
    /// The fixed part of the innermost header.
    #[inline(always)]
    pub fn header(&self) -> &H {
        lay(self.bytes, self.stack.at as usize)
    }

    /// The fixed part of the innermost header, to change it.
    #[inline(always)]
    pub fn header_mut(&mut self) -> &mut H {
        lay_mut(self.bytes, self.stack.at as usize)
    }
}

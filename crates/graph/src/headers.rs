//! Typed views of packets: the headers that an operator chain has parsed.

use core::hint::cold_path;
use core::marker::PhantomData;
use core::time::Duration;
use packet::{Meta, MetaMut};
use wire::{Ethernet, Follows, Header};

/// The headers parsed so far: [`Raw`], or a [`Layer`] on another stack.
pub trait HeaderStack: Copy + Send + 'static {
    /// Returns the range of the bytes after the innermost header, in a packet of `len` bytes.
    fn payload(self, len: usize) -> (usize, usize);
}

/// The empty stack: a frame of which no header is parsed.
#[derive(Clone, Copy, Debug)]
pub struct Raw;

/// Header `H` after the headers `S`.
#[derive(Debug)]
pub struct Layer<H, S> {
    below: S,
    /// Offset of the header in the frame, in bytes.
    offset: u32,
    /// Length of the header in bytes, including options.
    len: u32,
    /// Offset of the end of the header's payload.
    end: u32,
    header: PhantomData<fn() -> H>,
}

impl<H, S: Copy> Clone for Layer<H, S> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<H, S: Copy> Copy for Layer<H, S> {}

impl HeaderStack for Raw {
    #[inline(always)]
    fn payload(self, len: usize) -> (usize, usize) {
        (0, len)
    }
}

impl<H: Header, S: HeaderStack> HeaderStack for Layer<H, S> {
    #[inline(always)]
    fn payload(self, _: usize) -> (usize, usize) {
        ((self.offset + self.len) as usize, self.end as usize)
    }
}

/// A stack of at least one header.
pub trait NonEmptyStack: HeaderStack {
    /// The innermost header.
    type Header: Header;
    /// The stack without the innermost header.
    type Below: HeaderStack;
    #[doc(hidden)]
    fn below(self) -> Self::Below;
}

impl<H: Header, S: HeaderStack> NonEmptyStack for Layer<H, S> {
    type Header = H;
    type Below = S;
    #[inline(always)]
    fn below(self) -> S {
        self.below
    }
}

/// A header that can be parsed next on a packet with the headers `S`: [`Ethernet`] first, then every header that
/// [`wire::Follows`] the innermost one.
#[diagnostic::on_unimplemented(
    message = "a `{Self}` header cannot be parsed after these headers",
    note = "a frame starts with `Ethernet`; parse other headers after one that can carry them (see `wire::Follows`)"
)]
pub trait NextHeader<S: HeaderStack>: Header {
    #[doc(hidden)]
    fn is_next(bytes: &[u8], stack: S) -> bool;
}

impl NextHeader<Raw> for Ethernet {
    #[inline(always)]
    fn is_next(_: &[u8], _: Raw) -> bool {
        true
    }
}

impl<H: Follows<B>, B: Header, S: HeaderStack> NextHeader<Layer<B, S>> for H {
    #[inline(always)]
    fn is_next(bytes: &[u8], stack: Layer<B, S>) -> bool {
        let (at, len) = (stack.offset as usize, stack.len as usize);
        bytes.get(at..at + len).is_some_and(H::announced_by)
    }
}

/// Position of the innermost header, for [`HasHeader`].
pub struct Innermost;
/// Position of an outer header, for [`HasHeader`].
pub struct Outer<P>(PhantomData<P>);

/// A stack that contains header `H`. The position `P` is inferred.
pub trait HasHeader<H, P> {
    #[doc(hidden)]
    fn location(self) -> (usize, usize);
}

impl<H: Header, S: HeaderStack> HasHeader<H, Innermost> for Layer<H, S> {
    #[inline(always)]
    fn location(self) -> (usize, usize) {
        (self.offset as usize, self.len as usize)
    }
}

impl<H, X, S: HasHeader<H, P>, P> HasHeader<H, Outer<P>> for Layer<X, S> {
    #[inline(always)]
    fn location(self) -> (usize, usize) {
        self.below.location()
    }
}

/// A packet inside an operator: its bytes, its metadata, and the headers parsed so far.
///
/// Bytes and headers can be changed in place; the length of the packet cannot.
///
/// ```
/// use graph::{Operator, frame};
/// use wire::{Ethernet, Ipv4, Udp};
///
/// let echo = frame().parse::<Ethernet>().parse::<Ipv4>().parse::<Udp>().transform(|udp| {
///     let (src, dst) = (udp.header().src_port(), udp.header().dst_port()); // the innermost header
///     udp.header_mut().set_src_port(dst);
///     udp.header_mut().set_dst_port(src);
///     udp.get_mut::<Ethernet, _>().swap_addrs(); // any header parsed so far
///     udp.payload_mut().reverse();
/// });
/// ```
pub struct View<'p, S> {
    pub(crate) meta: MetaMut<'p>,
    pub(crate) bytes: &'p mut [u8],
    pub(crate) stack: S,
    /// Time of the batch.
    pub(crate) now: Duration,
}

/// Returns the header `H` at an offset where it was parsed.
#[inline(always)]
fn header_at<H: Header>(bytes: &[u8], at: usize) -> &H {
    H::ref_from_prefix(&bytes[at..]).expect("the header was parsed and the length has not changed").0
}

/// Returns the header `H` at an offset where it was parsed, mutably.
#[inline(always)]
fn header_at_mut<H: Header>(bytes: &mut [u8], at: usize) -> &mut H {
    H::mut_from_prefix(&mut bytes[at..]).expect("the header was parsed and the length has not changed").0
}

/// The reason why a header could not be parsed.
pub(crate) enum ParseError {
    /// Another header follows.
    OtherHeader,
    /// The header is truncated or inconsistent.
    Malformed,
}

impl<'p, S: HeaderStack> View<'p, S> {
    /// Returns the metadata of the packet.
    #[inline(always)]
    pub fn meta(&self) -> Meta<'_> {
        self.meta.as_meta()
    }

    /// Returns the metadata of the packet, mutably.
    #[inline(always)]
    pub fn meta_mut(&mut self) -> &mut MetaMut<'p> {
        &mut self.meta
    }

    /// Returns the time since the graph was created, the same for all packets of a batch, with a resolution of about a
    /// millisecond ([`Context::now`](crate::Context::now)). Reads no clock.
    #[inline(always)]
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Returns the bytes of the frame.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// Returns the bytes of the frame, mutably.
    #[inline(always)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes
    }

    /// Returns the payload of the innermost header, without padding after the length that the header gives.
    #[inline(always)]
    pub fn payload(&self) -> &[u8] {
        let (from, to) = self.stack.payload(self.bytes.len());
        self.bytes.get(from..to).unwrap_or_default()
    }

    /// Returns the payload of the innermost header, mutably.
    #[inline(always)]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let (from, to) = self.stack.payload(self.bytes.len());
        self.bytes.get_mut(from..to).unwrap_or_default()
    }

    /// Returns the fixed part of any header parsed so far: `view.get::<Ethernet, _>()`.
    #[inline(always)]
    pub fn get<H: Header, P>(&self) -> &H
    where
        S: HasHeader<H, P>,
    {
        header_at(self.bytes, self.stack.location().0)
    }

    /// Returns the fixed part of any header parsed so far, mutably.
    #[inline(always)]
    pub fn get_mut<H: Header, P>(&mut self) -> &mut H
    where
        S: HasHeader<H, P>,
    {
        header_at_mut(self.bytes, self.stack.location().0)
    }

    /// Returns true if `H` follows according to the type field of the innermost header.
    #[inline(always)]
    pub fn is_next<H: NextHeader<S>>(&self) -> bool {
        H::is_next(self.bytes, self.stack)
    }

    /// Returns the bytes of any header parsed so far, including options.
    #[inline(always)]
    pub fn header_bytes<H: Header, P>(&self) -> &[u8]
    where
        S: HasHeader<H, P>,
    {
        let (at, len) = self.stack.location();
        self.bytes.get(at..at + len).unwrap_or_default()
    }

    /// Returns a view of the same packet for a shorter time.
    #[inline(always)]
    pub(crate) fn reborrow(&mut self) -> View<'_, S> {
        View { meta: self.meta.reborrow(), bytes: self.bytes, stack: self.stack, now: self.now }
    }

    #[inline(always)]
    pub(crate) fn with_stack<T: HeaderStack>(self, stack: T) -> View<'p, T> {
        View { meta: self.meta, bytes: self.bytes, stack, now: self.now }
    }

    /// Parses `H` after the innermost header.
    #[inline(always)]
    pub(crate) fn parse<H: NextHeader<S>>(self) -> Result<View<'p, Layer<H, S>>, ParseError> {
        if !self.is_next::<H>() {
            return Err(ParseError::OtherHeader);
        }
        let (at, end) = self.stack.payload(self.bytes.len());
        let Some(bytes) = self.bytes.get(at..end) else { return Err(ParseError::Malformed) };
        match H::check(bytes) {
            Ok(len) => {
                let end = at + H::extent(bytes);
                let stack = Layer {
                    below: self.stack,
                    offset: at as u32,
                    len: len as u32,
                    end: end as u32,
                    header: PhantomData,
                };
                Ok(self.with_stack(stack))
            }
            Err(_) => {
                cold_path();
                Err(ParseError::Malformed)
            }
        }
    }
}

impl<H: Header, S: HeaderStack> View<'_, Layer<H, S>> {
    /// Returns the fixed part of the innermost header.
    #[inline(always)]
    pub fn header(&self) -> &H {
        header_at(self.bytes, self.stack.offset as usize)
    }

    /// Returns the fixed part of the innermost header, mutably.
    #[inline(always)]
    pub fn header_mut(&mut self) -> &mut H {
        header_at_mut(self.bytes, self.stack.offset as usize)
    }
}

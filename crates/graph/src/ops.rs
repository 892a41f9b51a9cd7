//! Operators: each does one thing to one packet; a chain of them is one fused loop over a batch.

mod compose;
mod count;
mod deparse;
mod divert;
mod filter;
mod group_by;
mod parse;
mod reject;
mod shuffle;
mod transform;

pub use compose::Composed;
pub use count::Count;
pub use deparse::Deparse;
pub use divert::Divert;
pub use filter::Filter;
pub use group_by::{Branches, GroupBy};
pub use parse::{Parse, ParseIf};
pub use reject::Reject;
pub use shuffle::{Shuffle, ShuffleTo};
pub use transform::Transform;

use crate::{Counter, Layered, On, Raw, Stack, View};
use core::marker::PhantomData;
use std::sync::Arc;

/// How a packet leaves a chain of operators early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Goes on with the batch, past the remaining operators.
    Pass,
    /// Is dropped, for the reason of this number.
    Drop(u8),
    /// Leaves by the output of this number.
    Emit(u8),
}

/// The way out for a reason. A call, and one of its own for each `Site`, so that what only dropped packets need takes no
/// registers from the others.
#[cold]
#[inline(never)]
#[allow(clippy::extra_unused_type_parameters, reason = "it makes a function for each site")]
fn dropped<Site>(reason: u8) -> Exit {
    Exit::Drop(reason)
}

/// The names that a chain's operators give to drop reasons and outputs, whose places are their numbers, and to counters.
#[derive(Debug, Default)]
pub struct Reasons {
    pub(crate) drops: Vec<&'static str>,
    pub(crate) outputs: Vec<&'static str>,
    pub(crate) counters: Vec<(&'static str, Arc<Counter>)>,
}

impl Reasons {
    /// Adds a drop reason. Two operators may give the same name; their counts are added up where they are shown.
    pub fn drop(&mut self, name: &'static str) {
        self.drops.push(name);
    }

    /// Adds a counter.
    pub fn counter(&mut self, name: &'static str, counter: &Arc<Counter>) {
        self.counters.push((name, counter.clone()));
    }

    /// The number of the output `name`.
    pub fn output(&mut self, name: &'static str) -> u8 {
        let at = self.outputs.iter().position(|n| *n == name).unwrap_or_else(|| {
            self.outputs.push(name);
            self.outputs.len() - 1
        });
        u8::try_from(at).expect("a chain of operators has fewer than 256 outputs")
    }
}

/// A chain of operators: takes a packet seen through the headers `I`, leaves it seen through [`Operator::Output`].
///
/// A packet's way through it is inlined: three operators cost as much as one closure that does all three.
pub trait Operator<I: Stack = Raw>: Send {
    /// The headers known behind it.
    type Output: Stack;

    /// Drop reasons that the chain has.
    const REASONS: u8;

    /// Names the drop reasons and outputs of the chain: [`REASONS`](Operator::REASONS) of them, in their order.
    fn name(&mut self, names: &mut Reasons);

    /// Takes one packet through the chain, whose drop reasons are numbered from `first`.
    ///
    /// # Errors
    /// The way out of a packet that does not go through to the end.
    fn run<'p>(&mut self, view: View<'p, I>, first: u8) -> Result<View<'p, Self::Output>, Exit>;

    /// Parses `H` behind the headers parsed so far. A packet that announces something else is dropped as `not_h`, one
    /// whose `H` is cut short or contradicts itself as `malformed_h`.
    ///
    /// ```
    /// # use graph::{Operator, frame};
    /// # use wire::{Ethernet, Ipv4, Tcp};
    /// let tcp_only = frame().parse::<Ethernet>().parse::<Ipv4>().parse::<Tcp>().compose();
    /// ```
    #[inline(always)]
    fn parse<H: On<Self::Output>>(self) -> Parse<H, Self>
    where
        Self: Sized,
    {
        Parse::new(self)
    }

    /// As [`parse`](Operator::parse), but a packet that announces something else passes the remaining operators
    /// untouched.
    ///
    /// ```
    /// # use graph::{Operator, frame};
    /// # use wire::{Ethernet, Ipv4};
    /// let leaves_arp_alone = frame().parse::<Ethernet>().parse_if::<Ipv4>().transform(|ip| ip.header_mut().set_ttl(9));
    /// ```
    #[inline(always)]
    fn parse_if<H: On<Self::Output>>(self) -> ParseIf<H, Self>
    where
        Self: Sized,
    {
        ParseIf::new(self)
    }

    /// Steps back out of the innermost header.
    ///
    /// ```
    /// # use graph::{Operator, frame};
    /// # use wire::{Ethernet, Ipv4};
    /// let swaps = frame().parse::<Ethernet>().parse::<Ipv4>().deparse().transform(|e| e.header_mut().swap_addrs());
    /// ```
    #[inline(always)]
    fn deparse(self) -> Deparse<Self>
    where
        Self: Sized,
        Self::Output: Layered,
    {
        Deparse::new(self)
    }

    /// Changes headers, payload or metadata.
    ///
    /// ```
    /// # use graph::{Operator, frame};
    /// # use wire::{Ethernet, Ipv4};
    /// let one_hop_on = frame().parse::<Ethernet>().parse::<Ipv4>().transform(|ip| ip.header_mut().decrement_ttl());
    /// ```
    #[inline(always)]
    fn transform<F>(self, f: F) -> Transform<Self, F>
    where
        Self: Sized,
        F: FnMut(&mut View<'_, Self::Output>) + Send,
    {
        Transform::new(self, f)
    }

    /// Keeps the packets for which `f` holds; the others are dropped for `reason`.
    ///
    /// ```
    /// # use graph::{Operator, frame};
    /// # use wire::{Ethernet, Ipv4};
    /// let fresh = frame().parse::<Ethernet>().parse::<Ipv4>().filter("ttl_expired", |ip| ip.header().ttl() > 1);
    /// ```
    #[inline(always)]
    fn filter<F>(self, reason: &'static str, f: F) -> Filter<Self, F>
    where
        Self: Sized,
        F: FnMut(&View<'_, Self::Output>) -> bool + Send,
    {
        Filter::new(self, reason, f)
    }

    /// Drops the packets for which `f` gives a reason, by its place in `reasons` (the last one for any higher place): one
    /// decision, which may have a state of its own.
    ///
    /// ```
    /// # use graph::{Operator, frame};
    /// # use std::collections::HashMap;
    /// # use wire::{Ethernet, Ipv4};
    /// let mut left = HashMap::from([([10, 0, 0, 1], 5)]);
    /// let quota = frame().parse::<Ethernet>().parse::<Ipv4>().reject(["unknown", "used_up"], move |ip| {
    ///     let Some(left) = left.get_mut(&ip.header().src().octets()) else { return Some(0) };
    ///     let over = *left == 0;
    ///     *left -= u32::from(!over);
    ///     over.then_some(1)
    /// });
    /// ```
    #[inline(always)]
    fn reject<const N: usize, F>(self, reasons: [&'static str; N], f: F) -> Reject<N, Self, F>
    where
        Self: Sized,
        F: FnMut(&View<'_, Self::Output>) -> Option<usize> + Send,
    {
        Reject::new(self, reasons, f)
    }

    /// Counts the packets for which `f` holds, under `name` among the NF's counters. Two operators may count under one name.
    ///
    /// ```
    /// # use graph::{Node, Operator, frame};
    /// # use wire::{Ethernet, Ipv4};
    /// let old = frame().parse::<Ethernet>().parse_if::<Ipv4>().count("nearly_expired", |ip| ip.header().ttl() < 3);
    /// assert_eq!(old.compose().counters()[0].0, "nearly_expired");
    /// ```
    #[inline(always)]
    fn count<F>(self, name: &'static str, f: F) -> Count<Self, F>
    where
        Self: Sized,
        F: FnMut(&View<'_, Self::Output>) -> bool + Send,
    {
        Count::new(self, name, f)
    }

    /// Sends the packets for which `f` holds out of `output`, to whatever an edge of the chain file joins to it.
    ///
    /// ```
    /// # use graph::{Node, Operator, frame};
    /// # use wire::{Ethernet, IpProtocol, Ipv4};
    /// let ip = frame().parse::<Ethernet>().parse_if::<Ipv4>();
    /// let pings_apart = ip.divert("pings", |ip| ip.header().protocol() == IpProtocol::ICMPV4).compose();
    /// assert_eq!(pings_apart.outputs(), ["out", "pings"]);
    /// ```
    #[inline(always)]
    fn divert<F>(self, output: &'static str, f: F) -> Divert<Self, F>
    where
        Self: Sized,
        F: FnMut(&View<'_, Self::Output>) -> bool + Send,
    {
        Divert::new(self, output, f)
    }

    /// Says to which core each packet goes: `f` gives a number, of which the remainder by the number of cores counts. Behind
    /// the NF the chain file begins another path with its output, on the cores of that path and with `shuffle = "noted"`;
    /// packets of one number keep their order.
    ///
    /// ```
    /// # use graph::{Operator, frame};
    /// # use wire::{Ethernet, Ipv4};
    /// let by_customer = frame().parse::<Ethernet>().parse::<Ipv4>().shuffle(|ip| (ip.header().src_bits() >> 8) as usize);
    /// ```
    #[inline(always)]
    fn shuffle<F>(self, f: F) -> Shuffle<Self, F>
    where
        Self: Sized,
        F: FnMut(&View<'_, Self::Output>) -> usize + Send,
    {
        Shuffle::new(self, f)
    }

    /// Takes each packet through the branch whose number `f` gives (the last one for any higher number); behind it the
    /// branches are merged, and packets keep their order. `branches` makes two to eight of them, each from a start that
    /// knows the headers parsed so far.
    ///
    /// ```
    /// # use graph::{Operator, frame};
    /// # use wire::{Ethernet, Ipv4, IpProtocol, Udp};
    /// let by_protocol = frame().parse::<Ethernet>().parse::<Ipv4>().group_by(
    ///     |ip| usize::from(ip.header().protocol() != IpProtocol::UDP),
    ///     |start| (
    ///         start.parse::<Udp>().filter("dns", |udp| udp.header().dst_port() != 53),
    ///         start.transform(|ip| ip.header_mut().set_ttl(64)),
    ///     ),
    /// );
    /// ```
    #[inline(always)]
    fn group_by<F, M, B>(self, f: F, branches: M) -> GroupBy<Self, F, B>
    where
        Self: Sized,
        F: FnMut(&View<'_, Self::Output>) -> usize + Send,
        M: FnOnce(Start<Self::Output>) -> B,
        B: Branches<Self::Output>,
    {
        GroupBy::new(self, f, branches(Start::default()))
    }

    /// Makes the chain a node. What comes after it owns its packets alone.
    #[inline]
    fn compose(self) -> Composed<Self>
    where
        Self: Sized + Operator<Raw>,
    {
        Composed::new(self)
    }
}

/// The beginning of a chain, or of a branch: changes nothing.
pub struct Start<S>(PhantomData<fn(S)>);

impl<S> Clone for Start<S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S> Copy for Start<S> {}

impl<S> Default for Start<S> {
    fn default() -> Self {
        Start(PhantomData)
    }
}

/// Begins a chain of operators on whole frames.
pub fn frame() -> Start<Raw> {
    Start::default()
}

impl<S: Stack> Operator<S> for Start<S> {
    type Output = S;
    const REASONS: u8 = 0;
    fn name(&mut self, _: &mut Reasons) {}
    #[inline(always)]
    fn run<'p>(&mut self, view: View<'p, S>, _: u8) -> Result<View<'p, S>, Exit> {
        Ok(view)
    }
}

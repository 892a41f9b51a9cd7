//! Operators, which process one packet each and are fused into one loop over the batch.

mod compose;
mod count;
mod deparse;
mod drop_if;
mod emit_if;
mod filter;
mod group_by;
mod meter;
mod parse;
mod shuffle;
mod transform;

pub use compose::Composed;
pub use count::Count;
pub use deparse::Deparse;
pub use drop_if::DropIf;
pub use emit_if::EmitIf;
pub use filter::Filter;
pub use group_by::{Branches, GroupBy};
pub use meter::{Meter, MeterSettings, MeterTable, TokenBucket};
pub use parse::{Parse, ParseIf};
pub use shuffle::{Shuffle, ShuffleTo};
pub use transform::Transform;

use crate::exit::Exit;
use crate::headers::{HeaderStack, NextHeader, NonEmptyStack, Raw, View};
use crate::named_enum::Named;
use crate::operator_trace::OperatorTrace;
use crate::stats::Counter;
use core::marker::PhantomData;
use std::sync::Arc;
use tables::flow::FlowKey;

/// Returns the exit for a drop reason. A cold function, instantiated for each `Site`, so that code for dropped packets
/// takes no registers from the common case.
#[cold]
#[inline(never)]
#[allow(clippy::extra_unused_type_parameters, reason = "instantiates the function for each site")]
fn dropped<Site>(reason: u8) -> Exit {
    Exit::Drop(reason)
}

/// The drop reasons, outputs and counters of a chain of operators.
#[derive(Debug, Default)]
pub struct OperatorNames {
    pub(crate) drops: Vec<&'static str>,
    pub(crate) outputs: Vec<&'static str>,
    pub(crate) counters: Vec<(&'static str, Arc<Counter>)>,
}

impl OperatorNames {
    /// Adds a drop reason. Operators may share a name; reports show the sum of their counts.
    pub fn drop(&mut self, name: &'static str) {
        self.drops.push(name);
    }

    /// Adds a counter.
    pub fn counter(&mut self, name: &'static str, counter: &Arc<Counter>) {
        self.counters.push((name, counter.clone()));
    }

    /// Adds an output if there is none of this name, and returns its index.
    pub fn output(&mut self, name: &'static str) -> u8 {
        let index = self.outputs.iter().position(|n| *n == name).unwrap_or_else(|| {
            self.outputs.push(name);
            self.outputs.len() - 1
        });
        u8::try_from(index).expect("a chain of operators has fewer than 256 outputs")
    }
}

/// A chain of operators, which processes a packet with the parsed headers `I` and leaves it with those of
/// [`Operator::Output`].
///
/// Start a chain with [`frame`], extend it with the methods of this trait, and turn it into a node with
/// [`compose`](Operator::compose). Operators are inlined: a chain of three costs as much as one closure that does the
/// work of all three.
///
/// ```
/// # use graph::{Node, Operator, frame};
/// # use wire::{Ethernet, Ipv4};
/// let node = frame()
///     .parse::<Ethernet>()
///     .parse::<Ipv4>()
///     .filter("ttl_expired", |ip| ip.header().ttl() > 1)
///     .transform(|ip| ip.header_mut().decrement_ttl())
///     .compose();
/// assert_eq!(node.drops().last(), Some(&"ttl_expired"));
/// ```
pub trait Operator<I: HeaderStack = Raw>: Send {
    /// The headers that are parsed after this chain.
    type Output: HeaderStack;

    /// Number of drop reasons of the chain.
    const DROP_REASONS: u8;

    /// Adds the names of the chain: [`DROP_REASONS`](Operator::DROP_REASONS) drop reasons in order, outputs and
    /// counters.
    fn register(&mut self, names: &mut OperatorNames);

    /// Processes one packet. The drop reasons of the chain are numbered from `first`.
    ///
    /// # Errors
    /// The exit of a packet that does not reach the end of the chain.
    fn run<'p>(&mut self, view: View<'p, I>, first: u8) -> Result<View<'p, Self::Output>, Exit>;

    /// As [`run`](Operator::run), and records the steps of the packet. Called while a packet is traced, so that `run` has
    /// no code for it.
    ///
    /// # Errors
    /// As [`run`](Operator::run).
    fn run_traced<'p>(
        &mut self,
        view: View<'p, I>,
        first: u8,
        trace: &mut OperatorTrace<'_>,
    ) -> Result<View<'p, Self::Output>, Exit> {
        trace.step("operator", None, view, |view| self.run(view, first))
    }

    /// Parses `H` after the headers parsed so far. Packets with another next header are dropped as `not_<h>`, packets
    /// whose `H` is truncated or inconsistent as `malformed_<h>`.
    ///
    /// ```
    /// # use graph::{Operator, frame};
    /// # use wire::{Ethernet, Ipv4, Tcp};
    /// let tcp_only = frame().parse::<Ethernet>().parse::<Ipv4>().parse::<Tcp>().compose();
    /// ```
    #[inline(always)]
    fn parse<H: NextHeader<Self::Output>>(self) -> Parse<H, Self>
    where
        Self: Sized,
    {
        Parse::new(self)
    }

    /// Parses `H` like [`parse`](Operator::parse), but packets with another next header skip the remaining operators
    /// unchanged.
    ///
    /// ```
    /// # use graph::{Operator, frame};
    /// # use wire::{Ethernet, Ipv4};
    /// let skips_arp = frame().parse::<Ethernet>().parse_if::<Ipv4>().transform(|ip| ip.header_mut().set_ttl(9));
    /// ```
    #[inline(always)]
    fn parse_if<H: NextHeader<Self::Output>>(self) -> ParseIf<H, Self>
    where
        Self: Sized,
    {
        ParseIf::new(self)
    }

    /// Returns from the innermost header to the one before it. The bytes do not change.
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
        Self::Output: NonEmptyStack,
    {
        Deparse::new(self)
    }

    /// Calls `f` to change headers, payload or metadata.
    ///
    /// ```
    /// # use graph::{Operator, frame};
    /// # use wire::{Ethernet, Ipv4};
    /// let ipv4 = frame().parse::<Ethernet>().parse::<Ipv4>();
    /// let decrements_ttl = ipv4.transform(|ip| ip.header_mut().decrement_ttl());
    /// ```
    #[inline(always)]
    fn transform<F>(self, f: F) -> Transform<Self, F>
    where
        Self: Sized,
        F: FnMut(&mut View<'_, Self::Output>) + Send,
    {
        Transform::new(self, f)
    }

    /// Keeps the packets for which `f` returns true and drops the others for `reason`.
    ///
    /// ```
    /// # use graph::{Operator, frame};
    /// # use wire::{Ethernet, Ipv4};
    /// let not_expired = frame().parse::<Ethernet>().parse::<Ipv4>().filter("ttl_expired", |ip| ip.header().ttl() > 1);
    /// ```
    #[inline(always)]
    fn filter<F>(self, reason: &'static str, f: F) -> Filter<Self, F>
    where
        Self: Sized,
        F: FnMut(&View<'_, Self::Output>) -> bool + Send,
    {
        Filter::new(self, reason, f)
    }

    /// Drops the packets for which `f` returns a reason, a variant of an enum declared by
    /// [`named_enum!`](crate::named_enum).
    ///
    /// ```
    /// # use graph::{Operator, frame};
    /// # use std::collections::HashMap;
    /// # use wire::{Ethernet, Ipv4};
    /// graph::named_enum! {
    ///     enum Drop {
    ///         UnknownSource = "unknown_source",
    ///         OverQuota = "over_quota",
    ///     }
    /// }
    ///
    /// let mut quota = HashMap::from([([10, 0, 0, 1], 5)]);
    /// let limit = frame().parse::<Ethernet>().parse::<Ipv4>().drop_if(move |ip| {
    ///     let Some(left) = quota.get_mut(&ip.header().src().octets()) else { return Some(Drop::UnknownSource) };
    ///     let over = *left == 0;
    ///     *left -= u32::from(!over);
    ///     over.then_some(Drop::OverQuota)
    /// });
    /// ```
    #[inline(always)]
    fn drop_if<R: Named, F>(self, f: F) -> DropIf<R, Self, F>
    where
        Self: Sized,
        F: FnMut(&View<'_, Self::Output>) -> Option<R> + Send,
    {
        DropIf::new(self, f)
    }

    /// Limits the rate of the packets of each key, which `key` returns, by token buckets. Packets for which the bucket
    /// has not enough tokens are dropped as `meter_exceeded`, those of new keys that find the table full as
    /// `meter_full`. The counter `meter_keys` has the number of keys in the table.
    ///
    /// Time is that of the batch ([`View::now`]), so a bucket gets its tokens about once a millisecond: one smaller
    /// than two milliseconds of the rate passes less than the rate. Each copy of an NF has its own buckets:
    /// [`Nf::SPREAD`](crate::Nf::SPREAD) has to send all packets of a key to one copy.
    ///
    /// ```
    /// # use graph::{MeterSettings, MeterTable, Node, Operator, Rate, frame};
    /// # use wire::{Ethernet, Ipv4};
    /// let settings = MeterSettings { rate: Rate::Bits(10e6), burst: 50, keys: 10_000 };
    /// let sources = MeterTable::new(&settings)?;
    /// let node = frame()
    ///     .parse::<Ethernet>()
    ///     .parse_if::<Ipv4>()
    ///     .meter(sources, |ip| u64::from(ip.header().src_bits()))
    ///     .compose();
    /// assert_eq!(node.drops()[3..], ["meter_exceeded", "meter_full"]);
    /// # Ok::<(), diagnostics::Diagnostic>(())
    /// ```
    #[inline(always)]
    fn meter<K, F>(self, table: MeterTable<K>, key: F) -> Meter<Self, K, F>
    where
        Self: Sized,
        K: FlowKey,
        F: FnMut(&View<'_, Self::Output>) -> K + Send,
    {
        Meter::new(self, table, key)
    }

    /// Counts the packets for which `f` returns true in the counter `name` of the node. Operators may share a counter
    /// name.
    ///
    /// ```
    /// # use graph::{Node, Operator, frame};
    /// # use wire::{Ethernet, Ipv4};
    /// let counts = frame().parse::<Ethernet>().parse_if::<Ipv4>().count("nearly_expired", |ip| ip.header().ttl() < 3);
    /// assert_eq!(counts.compose().counters()[0].0, "nearly_expired");
    /// ```
    #[inline(always)]
    fn count<F>(self, name: &'static str, f: F) -> Count<Self, F>
    where
        Self: Sized,
        F: FnMut(&View<'_, Self::Output>) -> bool + Send,
    {
        Count::new(self, name, f)
    }

    /// Emits the packets for which `f` returns true to `output`, one of [`Nf::OUTPUTS`](crate::Nf::OUTPUTS).
    ///
    /// ```
    /// # use graph::{Node, Operator, frame};
    /// # use wire::{Ethernet, IpProtocol, Ipv4};
    /// let ip = frame().parse::<Ethernet>().parse_if::<Ipv4>();
    /// let separates_pings = ip.emit_if("pings", |ip| ip.header().protocol() == IpProtocol::ICMPV4).compose();
    /// assert_eq!(separates_pings.outputs(), ["out", "pings"]);
    /// ```
    #[inline(always)]
    fn emit_if<F>(self, output: &'static str, f: F) -> EmitIf<Self, F>
    where
        Self: Sized,
        F: FnMut(&View<'_, Self::Output>) -> bool + Send,
    {
        EmitIf::new(self, output, f)
    }

    /// Chooses the core of each packet: core number `f(packet) % cores` of the path that continues from the output of
    /// the NF with `shuffle = "metadata"` in the chain file. Packets with the same number stay in order.
    ///
    /// ```
    /// # use graph::{Operator, frame};
    /// # use wire::{Ethernet, Ipv4};
    /// let ipv4 = frame().parse::<Ethernet>().parse::<Ipv4>();
    /// let by_customer = ipv4.shuffle(|ip| (ip.header().src_bits() >> 8) as usize);
    /// ```
    #[inline(always)]
    fn shuffle<F>(self, f: F) -> Shuffle<Self, F>
    where
        Self: Sized,
        F: FnMut(&View<'_, Self::Output>) -> usize + Send,
    {
        Shuffle::new(self, f)
    }

    /// Processes each packet with branch number `f(packet)`, or the last branch for larger numbers. The branches merge
    /// after the operator and packets stay in order. `branches` returns a tuple of two to eight chains, each built on
    /// the start that it is given.
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

    /// Turns the chain into a node.
    #[inline]
    fn compose(self) -> Composed<Self>
    where
        Self: Sized + Operator<Raw>,
    {
        Composed::new(self)
    }
}

/// The start of a chain or branch, which changes nothing.
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

/// Starts a chain of operators on whole frames. See [`Operator`].
pub fn frame() -> Start<Raw> {
    Start::default()
}

impl<S: HeaderStack> Operator<S> for Start<S> {
    type Output = S;
    const DROP_REASONS: u8 = 0;
    fn register(&mut self, _: &mut OperatorNames) {}
    #[inline(always)]
    fn run<'p>(&mut self, view: View<'p, S>, _: u8) -> Result<View<'p, S>, Exit> {
        Ok(view)
    }

    fn run_traced<'p>(&mut self, view: View<'p, S>, _: u8, _: &mut OperatorTrace<'_>) -> Result<View<'p, S>, Exit> {
        Ok(view)
    }
}

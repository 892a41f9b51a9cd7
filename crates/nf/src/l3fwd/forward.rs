//! The way of most packets: plain, to a neighbour that is known.

use super::adjacency::Kind;
use super::config::Config;
use super::fib::Fib;
use super::icmp::Limiter;
use super::neighbours::Waiting;
use super::tables::Reader;
use core::hint::cold_path;
use graph::{Counter, Context, Node};
use packet::{BURST, Batch, Packet};
use std::sync::Arc;
use std::time::Duration;
use wire::flow::FiveTuple;
use wire::{EtherType, Ethernet, Ipv4, Ipv6, MacAddr};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Why the router drops packets; [`DROPS`] has the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Reason {
    MalformedEthernet,
    OtherMac,
    NotIp,
    MalformedArp,
    MalformedIp,
    BadChecksum,
    Martian,
    Multicast,
    LinkBroadcast,
    DirectedBroadcast,
    SourceRoute,
    TtlExpired,
    TooBig,
    Fragmented,
    NoRoute,
    Unreachable,
    Blackhole,
    NeighbourSilent,
    NeighbourQueueFull,
    NeighbourTableFull,
    Answered,
    NoFragmentBuffer,
}

/// Names of [`Reason`], in its order.
const DROPS: [&str; 22] = [
    "malformed_ethernet",
    "other_mac",
    "not_ip",
    "malformed_arp",
    "malformed_ip",
    "bad_checksum",
    "martian",
    "multicast",
    "link_broadcast",
    "directed_broadcast",
    "source_route",
    "ttl_expired",
    "too_big",
    "fragmented",
    "no_route",
    "unreachable",
    "blackhole",
    "neighbour_silent",
    "neighbour_queue_full",
    "neighbour_table_full",
    "answered",
    "no_fragment_buffer",
];

/// How often it looks after what waits.
const TICK: Duration = Duration::from_millis(10);

/// One copy of the router.
pub(super) struct Router {
    pub(super) config: Config,
    pub(super) fib: Arc<Fib>,
    routes: Reader,
    /// Whether it is the copy that looks after what all share.
    pub(super) first: bool,
    pub(super) waiting: Waiting,
    pub(super) icmp: Limiter,
    pub(super) counts: Counts,
    slow: Batch,
    /// Whether the last batch was of plain IPv6 packets alone: the next one most likely is, too.
    six: bool,
}

/// What the router counts besides packets and drops.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) icmp_sent: Arc<Counter>,
    pub(super) icmp_limited: Arc<Counter>,
    pub(super) asked: Arc<Counter>,
    pub(super) no_buffer: Arc<Counter>,
    pub(super) hosts: Arc<Counter>,
}

/// The headers of a plain IPv4 packet.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Plain4 {
    ethernet: Ethernet,
    ip: Ipv4,
}

/// The headers of a plain IPv6 packet.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Plain6 {
    ethernet: Ethernet,
    ip: Ipv6,
}

/// Bytes in front of the IP header.
pub(super) const LINK: usize = size_of::<Ethernet>();

/// What is in a batch: plain IPv4 packets alone, plain IPv6 packets alone, or anything.
const ALL4: u8 = 0;
const ALL6: u8 = 1;
const MIXED: u8 = 2;

/// What a packet asks for beyond being rewritten.
#[derive(Clone, Copy)]
enum Way {
    /// A closer look.
    Slow,
    /// Another output than most of its batch.
    By(u8),
}

impl Router {
    pub(super) fn new(config: Config, fib: Arc<Fib>, copy: usize) -> Self {
        let routes = fib.reader();
        Router {
            waiting: Waiting::new(config.queue),
            icmp: Limiter::new(config.icmp_rate),
            config,
            fib,
            routes,
            first: copy == 0,
            counts: Counts::default(),
            slow: Batch::new(),
            six: false,
        }
    }

    /// The adjacency of one destination, a group's member chosen by the packet's flow.
    pub(super) fn route4(&mut self, dst: u32, frame: &[u8]) -> u32 {
        let mut value = [0];
        self.routes.look_up4(&[dst], &mut value);
        self.choose(value[0], frame)
    }

    /// As [`route4`](Self::route4).
    pub(super) fn route6(&mut self, dst: u128, frame: &[u8]) -> u32 {
        let mut value = [0];
        self.routes.look_up6(&[dst], &mut value);
        self.choose(value[0], frame)
    }

    fn choose(&self, value: u32, frame: &[u8]) -> u32 {
        choose(&self.fib, value, frame)
    }

    pub(super) fn drop(&mut self, cx: &mut Context<'_>, reason: Reason, packet: Packet) {
        cx.drop(reason as u8, packet);
    }
}

/// The value of the flow's member, where `value` stands for a group.
#[cold]
fn choose(fib: &Fib, value: u32, frame: &[u8]) -> u32 {
    let seen = fib.adjacency(value).load();
    match seen.kind() {
        Kind::Group => fib.member(seen.group(), FiveTuple::of_frame(frame).map_or(0, |t| t.hash())),
        _ => value,
    }
}

/// The destination of an IPv4 packet with which nothing is wrong or special (RFC 1812 §5.2.2, §5.3.7).
#[inline(always)]
fn plain4(frame: &[u8], mac: MacAddr) -> Option<u32> {
    let (h, _) = Plain4::ref_from_prefix(frame).ok()?;
    // five loads for all that is asked: fields one by one would be loaded again for the sum
    let words = words(&h.ip);
    let [version, _, total @ ..] = words[0].to_le_bytes();
    let [ttl, ..] = words[2].to_le_bytes();
    let [first, ..] = words[3].to_le_bytes();
    let total = usize::from(u16::from_be_bytes(total));
    let fine = h.ethernet.ether_type() == EtherType::IPV4
        && h.ethernet.dst() == mac
        && version == 0x45
        // a length below wraps and is too long
        && total.wrapping_sub(size_of::<Ipv4>()) <= frame.len() - size_of::<Plain4>()
        && ttl > 1
        && first.wrapping_sub(1) < 0xdf
        && first != 127
        && sums_up(words);
    fine.then(|| u32::from_be(words[4].to_le()))
}

/// A header without options, in little-endian words.
#[inline(always)]
fn words(ip: &Ipv4) -> [u32; 5] {
    let (words, _) = ip.as_bytes().as_chunks();
    core::array::from_fn(|n| u32::from_le_bytes(words[n]))
}

/// Whether the checksum of a header without options is right (RFC 1071).
#[inline(always)]
fn sums_up(words: [u32; 5]) -> bool {
    let sum = words.into_iter().map(u64::from).sum::<u64>();
    // folded it would be 0xffff: 1 << 16 leaves 1, and the sum is not 0, for a version is in it
    sum.is_multiple_of(0xffff)
}

/// The destination of an IPv6 packet with which nothing is wrong or special (RFC 8200 §3, RFC 4291 §2.5).
#[inline(always)]
fn plain6(frame: &[u8], mac: MacAddr) -> Option<u128> {
    let (h, _) = Plain6::ref_from_prefix(frame).ok()?;
    let ip = &h.ip;
    let src = u128::from_be_bytes(ip.src_octets());
    let fine = h.ethernet.ether_type() == EtherType::IPV6
        && h.ethernet.dst() == mac
        && ip.version() == 6
        && usize::from(ip.payload_length()) <= frame.len() - LINK - size_of::<Ipv6>()
        && ip.hop_limit() > 1
        // most begin with neither 00, nor fe, nor ff
        && (ip.src_octets()[0].wrapping_sub(1) < 0xfd || usual6(src));
    fine.then(|| u128::from_be_bytes(ip.dst_octets()))
}

/// Neither multicast, nor link-local, nor unspecified, nor loopback.
#[cold]
fn usual6(src: u128) -> bool {
    src >> 120 != 0xff && src >> 118 != 0xfe80 >> 6 && src > 1
}

impl Node for Router {
    fn drops(&self) -> &[&'static str] {
        &DROPS
    }

    fn outputs(&self) -> &[&'static str] {
        &["local"]
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        let c = &self.counts;
        Counter::named([
            ("icmp_sent", &c.icmp_sent),
            ("icmp_limited", &c.icmp_limited),
            ("asked", &c.asked),
            ("no_buffer", &c.no_buffer),
            ("hosts", &c.hosts),
        ])
    }

    fn process(&mut self, cx: &mut Context<'_>, input: u8, batch: &mut Batch) {
        let Some(face) = self.config.faces.get(usize::from(input)) else {
            return batch.clear();
        };
        let mac = face.mac;
        let n = batch.len();
        if self.six {
            cold_path();
            if let Some(main) = self.all6(cx, batch, mac) {
                return self.settle(cx, input, main);
            }
        }
        let mut addresses = [0; BURST];
        let (mut odd, mut at) = (0u32, 0);
        batch.for_each(
            #[inline(always)]
            |packet| {
                match plain4(packet.data(), mac) {
                    Some(dst) => addresses[at & (BURST - 1)] = dst,
                    None => odd |= 1 << at,
                }
                at += 1;
            },
        );
        let mut values = [0; BURST];
        let main = if odd == 0 {
            self.routes.look_up4(&addresses[..n], &mut values[..n]);
            self.rewrite::<ALL4>(cx, batch, &values, odd, 0)
        } else {
            self.mixed(cx, batch, mac, (&addresses, &mut values), odd)
        };
        self.settle(cx, input, main);
    }

    fn interval(&self) -> Option<Duration> {
        Some(TICK)
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        self.look_after(cx);
        // what it has looked up it has used: it holds up nobody while no packet of an IP version comes
        self.routes.idle();
        if self.first
            && let Some(hosts) = self.fib.hosts()
        {
            self.counts.hosts.set(hosts);
        }
    }
}

impl Router {
    /// Sends the batch on by the output `main`, if it has one, and looks closer at what was set aside.
    #[inline(always)]
    fn settle(&mut self, cx: &mut Context<'_>, input: u8, main: u8) {
        if main != 0 {
            cx.leave_by(main);
        }
        if !self.slow.is_empty() {
            self.rest(cx, input);
        }
    }

    /// Rewrites a batch of plain IPv6 packets alone, as [`rewrite`](Self::rewrite) does; none, and no change, where it has
    /// others.
    #[inline(never)]
    fn all6(&mut self, cx: &mut Context<'_>, batch: &mut Batch, mac: MacAddr) -> Option<u8> {
        let n = batch.len();
        let mut addresses = [0; BURST];
        let (mut odd, mut at) = (0u32, 0);
        batch.for_each(
            #[inline(always)]
            |packet| {
                match plain6(packet.data(), mac) {
                    Some(dst) => addresses[at & (BURST - 1)] = dst,
                    None => odd |= 1 << at,
                }
                at += 1;
            },
        );
        if odd != 0 {
            self.six = false;
            return None;
        }
        let mut values = [0; BURST];
        self.routes.look_up6(&addresses[..n], &mut values[..n]);
        Some(self.rewrite::<ALL6>(cx, batch, &values, 0, 0))
    }

    /// As [`rewrite`](Self::rewrite), of a batch in which the bits of `odd` say which packets are not plain IPv4 packets.
    #[inline(never)]
    fn mixed(
        &mut self,
        cx: &mut Context<'_>,
        batch: &mut Batch,
        mac: MacAddr,
        (addresses, values): (&[u32; BURST], &mut [u32; BURST]),
        odd: u32,
    ) -> u8 {
        let n = batch.len();
        let all = u32::MAX >> (BURST - n);
        let mut addresses6 = [0; BURST];
        let (mut v6, mut at) = (0u32, 0);
        batch.for_each(
            #[inline(always)]
            |packet| {
                if odd >> at & 1 != 0
                    && let Some(dst) = plain6(packet.data(), mac)
                {
                    addresses6[at & (BURST - 1)] = dst;
                    v6 |= 1 << at;
                }
                at += 1;
            },
        );
        if odd != all {
            self.routes.look_up4(&addresses[..n], &mut values[..n]);
        }
        if v6 != 0 {
            let mut values6 = [0; BURST];
            self.routes.look_up6(&addresses6[..n], &mut values6[..n]);
            if v6 == all {
                self.six = true;
                return self.rewrite::<ALL6>(cx, batch, &values6, 0, 0);
            }
            for i in (0..n).filter(|i| v6 >> i & 1 != 0) {
                values[i] = values6[i];
            }
        }
        self.rewrite::<MIXED>(cx, batch, values, odd & !v6, v6)
    }

    /// Rewrites the plain packets whose neighbour is known, sets the others aside, and emits those that do not go where the
    /// first goes; the output of those that stay, or 0. Where anything is in the batch, the bits of `odd` say which packets
    /// are not plain, and those of `v6` which are plain IPv6 packets.
    #[inline(always)]
    fn rewrite<const WHAT: u8>(
        &mut self,
        cx: &mut Context<'_>,
        batch: &mut Batch,
        values: &[u32; BURST],
        odd: u32,
        v6: u32,
    ) -> u8 {
        let Router { fib, slow, .. } = self;
        let adjacencies = fib.adjacencies();
        let (mut at, mut main) = (0, 0);
        batch.extract_if(
            #[inline(always)]
            |packet| {
                let i = at & (BURST - 1);
                at += 1;
                let four = match WHAT {
                    ALL4 => true,
                    ALL6 => false,
                    _ => v6 >> i & 1 == 0,
                };
                if WHAT == MIXED && odd >> i & 1 != 0 {
                    return Some(Way::Slow);
                }
                let value = values[i];
                let mut seen = adjacencies.get(value as usize).unwrap_or(&adjacencies[0]).load();
                let frame = packet.data_mut();
                if !seen.is_resolved() {
                    seen = fib.adjacency(choose(fib, value, frame)).load();
                    if !seen.is_resolved() {
                        return Some(Way::Slow);
                    }
                }
                if frame.len() - LINK > seen.mtu() {
                    cold_path();
                    return Some(Way::Slow);
                }
                if four {
                    let Ok((h, _)) = Plain4::mut_from_prefix(frame) else { return Some(Way::Slow) };
                    h.ip.decrement_ttl();
                } else {
                    let Ok((h, _)) = Plain6::mut_from_prefix(frame) else { return Some(Way::Slow) };
                    h.ip.decrement_hop_limit();
                }
                let Some(front) = frame.first_chunk_mut() else { return Some(Way::Slow) };
                seen.rewrite(front);
                let output = seen.output();
                if main == 0 {
                    main = output;
                }
                (output != main).then_some(Way::By(output))
            },
            #[inline(always)]
            |way, packet| match way {
                Way::By(output) => cx.emit(output, packet),
                Way::Slow => slow.push(packet).unwrap_or_else(drop),
            },
        );
        main
    }

    /// Packets that ask for a closer look, one by one.
    #[cold]
    fn rest(&mut self, cx: &mut Context<'_>, input: u8) {
        for packet in self.slow.drain() {
            self.closer(cx, usize::from(input), packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::checksum;

    #[test]
    fn headers_sum_up_where_their_checksum_is_right() {
        let mut state = 88_172_645_463_325_252u64;
        for n in 0..100_000u32 {
            let mut bytes = [0; 20];
            for word in bytes.chunks_exact_mut(4) {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                // zeros and ones as well
                let random = [(state >> 32) as u32, 0, u32::MAX, (state >> 60) as u32][state as usize >> 20 & 3];
                word.copy_from_slice(&random.to_be_bytes());
            }
            bytes[0] = 0x45;
            if n % 4 != 0 {
                bytes[10..12].fill(0);
                let sum = checksum::of(&bytes);
                bytes[10..12].copy_from_slice(&sum.wrapping_add((n % 4 == 1).into()).to_be_bytes());
            }
            let header = Ipv4::ref_from_bytes(&bytes).unwrap();
            assert_eq!(sums_up(words(header)), checksum::of(&bytes) == 0, "{bytes:02x?}");
        }
    }
}

//! Inputs that several targets share: frames that pass the parser of the first header.

use libfuzzer_sys::arbitrary::{Arbitrary, Result, Unstructured};
use packet::{BURST, Batch, HeapPool, Pool as _};
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;
use wire::build::{self, Frame, Ip, Network, Transport, V6};
use wire::{EtherType, IpProtocol, MacAddr, TcpFlags, ipv4, tcp};

/// A frame from the fuzzer.
pub struct FuzzedFrame {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// True for TCP or UDP over IP, or ARP, with valid lengths and checksums.
    pub well_formed: bool,
}

impl<'a> Arbitrary<'a> for FuzzedFrame {
    /// Half of the frames are raw bytes; the others are built from fuzzed fields, and some of those are mutated in one
    /// place.
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        if u.ratio(1, 2)? {
            let len = u.int_in_range(0..=200)?.min(u.len());
            return Ok(FuzzedFrame { bytes: u.bytes(len)?.to_vec(), well_formed: false });
        }
        let mut made = build_frame(u)?;
        match u.int_in_range(0..=3)? {
            0 => made.bytes.truncate(u.int_in_range(0..=made.bytes.len())?),
            1 => {
                let at = u.choose_index(made.bytes.len())?;
                made.bytes[at] = u.arbitrary()?;
            }
            _ => return Ok(made),
        }
        Ok(FuzzedFrame { well_formed: false, ..made })
    }
}

/// Replaces, truncates or mutates a frame with a probability of 3/16; returns the frame, and true if it was changed.
pub fn maybe_mutate(u: &mut Unstructured<'_>, mut frame: Vec<u8>) -> Result<(Vec<u8>, bool)> {
    match u.int_in_range(0..=15u8)? {
        0 => frame = FuzzedFrame::arbitrary(u)?.bytes,
        1 => frame.truncate(u.int_in_range(0..=frame.len())?),
        2 => {
            let at = u.choose_index(frame.len())?;
            frame[at] = u.arbitrary()?;
        }
        _ => return Ok((frame, false)),
    }
    Ok((frame, true))
}

/// Returns the frame with DSCP, ECN field and header checksum of IP set to 0: what NFs that mark packets leave unchanged.
pub fn without_traffic_class(mut frame: Vec<u8>) -> Vec<u8> {
    let ether_type = |at: usize| Some(EtherType(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?])));
    let mut at = 12;
    while ether_type(at).is_some_and(EtherType::is_vlan) {
        at += 4;
    }
    match (ether_type(at), frame.get_mut(at + 2..)) {
        (Some(EtherType::IPV4), Some([_, class, _, _, _, _, _, _, _, _, high, low, ..])) => {
            (*class, *high, *low) = (0, 0, 0);
        }
        (Some(EtherType::IPV6), Some([first, second, ..])) => {
            *first &= 0xf0;
            *second &= 0x0f;
        }
        _ => {}
    }
    frame
}

/// Batches for a node with two inputs.
pub struct Batches {
    /// One for each input.
    pub batches: [Batch; 2],
    /// Number of packets.
    pub packets: u64,
    /// Number of packets that were [changed](maybe_mutate).
    pub mutated: u64,
}

impl Batches {
    /// Fills the batches with up to half a burst of packets from `next`, which returns input and frame; some are
    /// changed.
    ///
    /// # Panics
    /// The pool has no buffer for an unchanged frame.
    pub fn fill<'a>(
        u: &mut Unstructured<'a>,
        pool: &Arc<HeapPool>,
        next: impl Fn(&mut Unstructured<'a>) -> Result<(u8, Vec<u8>)>,
    ) -> Result<Self> {
        let mut it = Batches { batches: [Batch::new(), Batch::new()], packets: 0, mutated: 0 };
        for _ in 0..u.int_in_range(1..=BURST / 2)? {
            let (input, frame) = next(u)?;
            let (frame, mutated) = maybe_mutate(u, frame)?;
            // a replaced frame may be longer than a buffer
            if let Some(packet) = pool.alloc_from(&frame) {
                it.packets += 1;
                it.mutated += u64::from(mutated);
                it.batches[usize::from(input)].push(packet).expect("a burst fits into a batch");
            } else {
                assert!(mutated, "the pool is larger than the number of held packets");
            }
            if mutated && u.is_empty() {
                break;
            }
        }
        Ok(it)
    }
}

fn build_frame(u: &mut Unstructured<'_>) -> Result<FuzzedFrame> {
    let (src, dst, sport, dport): ([u8; 4], [u8; 4], u16, u16) = u.arbitrary()?;
    let (far, near) = ((u128::from(u32::from_be_bytes(src)) << 96).to_be_bytes(), [dst; 4].concat());
    let near = <[u8; 16]>::try_from(near).unwrap_or_default();
    let kind = u.int_in_range(0..=6)?;
    let bytes = match kind {
        0 => with_v4(u, build::udp4(src, dst, sport, dport)),
        1 => with_tcp(u, build::tcp4(src, dst, sport, dport)).and_then(|f| with_v4(u, f)),
        2 => with_v6(u, build::udp6(far, near, sport, dport)),
        3 => with_tcp(u, build::tcp6(far, near, sport, dport)).and_then(|f| with_v6(u, f)),
        4 => finish(u, build::arp_request(src, dst)),
        5 => with_v4(u, build::ipv4(src, dst, IpProtocol(sport as u8))),
        _ => with_v6(u, build::ipv6(far, near, IpProtocol(sport as u8))),
    };
    Ok(FuzzedFrame { bytes: bytes?, well_formed: kind < 5 })
}

fn with_tcp<N: Ip>(u: &mut Unstructured<'_>, frame: Frame<N, tcp::Repr>) -> Result<Frame<N, tcp::Repr>> {
    let (flags, seq, ack, window, scale): (u8, u32, u32, u16, Option<u8>) = u.arbitrary()?;
    let list = scale.map(tcp::TcpOption::WindowScale);
    let options = tcp::options(list.as_slice()).unwrap_or_default();
    Ok(frame.flags(TcpFlags(flags)).seq(seq).ack(ack).window(window).tcp_options(options))
}

fn with_v4<T: Transport<ipv4::Repr>>(u: &mut Unstructured<'_>, frame: Frame<ipv4::Repr, T>) -> Result<Vec<u8>> {
    let (ttl, dscp, id, alert): (u8, u8, u16, Option<u16>) = u.arbitrary()?;
    let list = alert.map(ipv4::Ipv4Option::RouterAlert);
    let options = ipv4::options(list.as_slice()).unwrap_or_default();
    let mut frame = frame.ttl(ttl).dscp(dscp & 63).id(id).ip_options(options).payload(payload(u)?);
    if u.ratio(1, 8)? {
        frame = frame.fragment(u.int_in_range(0..=0x1fff)? << 3, u.arbitrary()?);
    }
    finish(u, frame)
}

fn with_v6<T: Transport<V6>>(u: &mut Unstructured<'_>, frame: Frame<V6, T>) -> Result<Vec<u8>> {
    let (hops, class, label): (u8, u8, u32) = u.arbitrary()?;
    let mut frame = frame.ttl(hops).traffic_class(class).flow_label(label & 0xf_ffff).payload(payload(u)?);
    for _ in 0..u.int_in_range(0..=3)? {
        let kinds = [IpProtocol::HOP_BY_HOP, IpProtocol::DESTINATION_OPTIONS, IpProtocol::AH, IpProtocol::MOBILITY];
        let (kind, body): (_, [u8; 12]) = (*u.choose(&kinds)?, u.arbitrary()?);
        frame = frame.extension(kind, &body);
    }
    if u.ratio(1, 8)? {
        frame = frame.fragment(u.arbitrary()?, u.arbitrary()?, u.arbitrary()?);
    }
    finish(u, frame)
}

fn payload<'a>(u: &mut Unstructured<'a>) -> Result<&'a [u8]> {
    let len = u.int_in_range(0..=40)?.min(u.len());
    u.bytes(len)
}

fn finish<N: Network, T: Transport<N>>(u: &mut Unstructured<'_>, mut frame: Frame<N, T>) -> Result<Vec<u8>> {
    for _ in 0..u.int_in_range(0..=2)? {
        let tpid = if u.arbitrary()? { EtherType::VLAN } else { EtherType::QINQ };
        frame = frame.tag(tpid, u.int_in_range(0..=7)?, u.arbitrary()?, u.int_in_range(0..=4095)?);
    }
    let pad = if u.arbitrary()? { 60 } else { 0 };
    Ok(frame.src_mac(MacAddr(u.arbitrary()?)).pad_to(pad).to_vec())
}

/// Parses a value in its textual form; checks that an error message is neither empty nor too long.
pub fn parse_text<T: FromStr<Err: Display>>(text: &str) -> Option<T> {
    match text.parse() {
        Ok(value) => Some(value),
        Err(error) => {
            let message = T::Err::to_string(&error);
            assert!(!message.is_empty() && message.len() <= 8 * text.len() + 4000, "{message:?}");
            None
        }
    }
}

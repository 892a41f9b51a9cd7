//! What several targets need: frames that get past the first header.

use libfuzzer_sys::arbitrary::{Arbitrary, Result, Unstructured};
use packet::{BURST, Batch, HeapPool, Pool as _};
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;
use wire::build::{self, Frame, Ip, Network, Transport, V6};
use wire::{EtherType, IpProtocol, MacAddr, TcpFlags, ipv4, tcp};

/// A frame, and whether it is known to be well-formed.
pub struct Made {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Whether it is TCP or UDP over IP, or ARP, with every length and checksum right.
    pub sound: bool,
}

impl<'a> Arbitrary<'a> for Made {
    /// Half of the frames are raw bytes, the rest are built from fuzzed fields, some of them broken in one place.
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        if u.ratio(1, 2)? {
            let len = u.int_in_range(0..=200)?.min(u.len());
            return Ok(Made { bytes: u.bytes(len)?.to_vec(), sound: false });
        }
        let mut made = built(u)?;
        match u.int_in_range(0..=3)? {
            0 => made.bytes.truncate(u.int_in_range(0..=made.bytes.len())?),
            1 => {
                let at = u.choose_index(made.bytes.len())?;
                made.bytes[at] = u.arbitrary()?;
            }
            _ => return Ok(made),
        }
        Ok(Made { sound: false, ..made })
    }
}

/// A frame as it is or, three times in sixteen, another one in its place, cut or bent; whether it is no longer what it was.
pub fn perhaps_bent(u: &mut Unstructured<'_>, mut frame: Vec<u8>) -> Result<(Vec<u8>, bool)> {
    match u.int_in_range(0..=15u8)? {
        0 => frame = Made::arbitrary(u)?.bytes,
        1 => frame.truncate(u.int_in_range(0..=frame.len())?),
        2 => {
            let at = u.choose_index(frame.len())?;
            frame[at] = u.arbitrary()?;
        }
        _ => return Ok((frame, false)),
    }
    Ok((frame, true))
}

/// Batches for a node with two inputs.
pub struct Batches {
    /// For each input.
    pub batches: [Batch; 2],
    /// Packets in them.
    pub packets: u64,
    /// Those of them that are [no longer what they were](perhaps_bent).
    pub bent: u64,
}

impl Batches {
    /// Half a burst at the most of what `next` makes, each with the number of its input, some of them bent.
    ///
    /// # Panics
    /// The pool is empty.
    pub fn fill<'a>(
        u: &mut Unstructured<'a>,
        pool: &Arc<HeapPool>,
        next: impl Fn(&mut Unstructured<'a>) -> Result<(u8, Vec<u8>)>,
    ) -> Result<Self> {
        let mut it = Batches { batches: [Batch::new(), Batch::new()], packets: 0, bent: 0 };
        for _ in 0..u.int_in_range(1..=BURST / 2)? {
            let (input, frame) = next(u)?;
            let (frame, bent) = perhaps_bent(u, frame)?;
            // what is bent may be longer than a buffer
            if let Some(packet) = pool.alloc_from(&frame) {
                it.packets += 1;
                it.bent += u64::from(bent);
                it.batches[usize::from(input)].push(packet).expect("a burst");
            } else {
                assert!(bent, "the pool has more packets than are held");
            }
            if bent && u.is_empty() {
                break;
            }
        }
        Ok(it)
    }
}

fn built(u: &mut Unstructured<'_>) -> Result<Made> {
    let (src, dst, sport, dport): ([u8; 4], [u8; 4], u16, u16) = u.arbitrary()?;
    let (far, near) = ((u128::from(u32::from_be_bytes(src)) << 96).to_be_bytes(), [dst; 4].concat());
    let near = <[u8; 16]>::try_from(near).unwrap_or_default();
    let kind = u.int_in_range(0..=6)?;
    let bytes = match kind {
        0 => with_v4(u, build::udp4(src, dst, sport, dport)),
        1 => with_tcp(u, build::tcp4(src, dst, sport, dport)).and_then(|f| with_v4(u, f)),
        2 => with_v6(u, build::udp6(far, near, sport, dport)),
        3 => with_tcp(u, build::tcp6(far, near, sport, dport)).and_then(|f| with_v6(u, f)),
        4 => outside(u, build::arp_request(src, dst)),
        5 => with_v4(u, build::ipv4(src, dst, IpProtocol(sport as u8))),
        _ => with_v6(u, build::ipv6(far, near, IpProtocol(sport as u8))),
    };
    Ok(Made { bytes: bytes?, sound: kind < 5 })
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
    outside(u, frame)
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
    outside(u, frame)
}

fn payload<'a>(u: &mut Unstructured<'a>) -> Result<&'a [u8]> {
    let len = u.int_in_range(0..=40)?.min(u.len());
    u.bytes(len)
}

fn outside<N: Network, T: Transport<N>>(u: &mut Unstructured<'_>, mut frame: Frame<N, T>) -> Result<Vec<u8>> {
    for _ in 0..u.int_in_range(0..=2)? {
        let tpid = if u.arbitrary()? { EtherType::VLAN } else { EtherType::QINQ };
        frame = frame.tag(tpid, u.int_in_range(0..=7)?, u.arbitrary()?, u.int_in_range(0..=4095)?);
    }
    let pad = if u.arbitrary()? { 60 } else { 0 };
    Ok(frame.src_mac(MacAddr(u.arbitrary()?)).pad_to(pad).to_vec())
}

/// A value as a user writes it; what is refused is told in a message that a terminal can show.
pub fn read<T: FromStr<Err: Display>>(text: &str) -> Option<T> {
    match text.parse() {
        Ok(value) => Some(value),
        Err(why) => {
            let said = T::Err::to_string(&why);
            assert!(!said.is_empty() && said.len() <= 8 * text.len() + 4000, "{said:?}");
            None
        }
    }
}

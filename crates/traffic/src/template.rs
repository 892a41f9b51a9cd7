//! Frames made in advance: for each size a head, for each flow its addresses, ports and checksum parts.
//!
//! To write a frame is to copy the head, put in the flow, the probe and one or two checksums that are added up from
//! parts, and to copy the rest of the payload. VLAN tags and tunnels are copied in front of that, and flows that differ in
//! MAC addresses get theirs last; frames without these do not pay for them. UDP over IPv4 goes without a checksum; UDP over IPv6 and TCP carry the
//! right one. The payload is the bytes 0, 1, 2, ... 255, 0, ..., with the probe over its first 18.

use std::sync::Arc;

use wire::checksum::Pseudo;
use wire::{IpProtocol, TcpFlags, build};

use crate::flows::{FlowSettings, Flows, Table, Transport, V4, V6, native_sum};
use crate::probe::{self, Probe};
use crate::random::scramble;
use crate::size::{FCS, FrameSize, Mix};
use crate::stack::{FIRST_PORT, FlowField, Stack};

/// Content of a payload.
pub(crate) static PATTERN: [u8; FrameSize::MAX.with_fcs() as usize] = {
    let mut bytes = [0; FrameSize::MAX.with_fcs() as usize];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = at as u8;
        at += 1;
    }
    bytes
};

/// A frame of the mix is too small for its headers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "frames of {size} bytes cannot hold {stack}{probe}; the smallest that can have {needed} bytes including FCS",
    probe = if *.probe { " and a probe" } else { "" }
)]
pub struct TooSmall {
    /// The size at fault.
    pub size: FrameSize,
    /// The headers.
    pub stack: Stack,
    /// True if frames carry a probe.
    pub probe: bool,
    /// Smallest size that will do, bytes including the frame check sequence.
    pub needed: u16,
}

/// Error of a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// A size is too small.
    #[error(transparent)]
    Small(#[from] TooSmall),
    /// Stack and flows are not for each other.
    #[error("the stack {stack} does not go with flows of {flows}; make both alike")]
    Unlike {
        /// The stack asked for.
        stack: Stack,
        /// Kind of flow set.
        flows: Stack,
    },
}

/// Bytes of an Ethernet header.
const ETHERNET_LEN: usize = 14;

/// Returns the bytes in front of the payload; the longest are TCP over IPv6.
pub(crate) const fn headers(v4: bool, tcp: bool) -> usize {
    ETHERNET_LEN + if v4 { 20 } else { 40 } + if tcp { 20 } else { 8 }
}

/// Heads are long enough for all headers and a probe, and as long as the smallest frame.
const HEAD: usize = headers(false, true) + probe::LEN;

/// Starts on a cache line, as the frames do that it is copied to.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Size {
    head: [u8; HEAD],
    /// Bytes of the frame in its buffer.
    pub(crate) len: usize,
    /// Sums, native order, of the IPv4 header and of the rest that the transport checksum covers, flow and probe left
    /// out.
    ip_sum: u16,
    sum: u16,
}

/// Frames of a [`Mix`] of sizes for a set of [`Flows`].
#[derive(Clone, Debug)]
pub struct Template {
    flows: Flows,
    /// None where there is `extra`, which then contains them.
    sizes: Box<[Size]>,
    tcp: bool,
    probe: bool,
    /// Offset of the payload.
    payload: usize,
    /// Bytes that depend on flow and probe, or belong to the smallest frame.
    head: usize,
    extra: Option<Box<Extra>>,
}

/// Headers beyond Ethernet, IP and transport.
#[derive(Clone, Debug)]
struct Extra {
    sizes: Box<[Size]>,
    /// Offset of the frame with IP and transport, whose Ethernet header is then overwritten by the other headers.
    shift: usize,
    /// For each size what stands in front.
    fronts: Box<[Box<[u8]>]>,
    /// Addresses of each flow, where they differ.
    macs: Option<Arc<[[u8; 12]]>>,
    /// Their offset.
    macs_at: usize,
    /// Field of a tunnel that differs between flows.
    flow_field: Option<FlowField>,
}

impl Template {
    /// Prepares the frames of `mix` for `flows`, with room for a probe if `probe`.
    ///
    /// # Errors
    /// [`TooSmall`] if a size of the mix cannot hold the headers, or headers and probe.
    pub fn new(flows: &Flows, mix: &Mix, probe: bool) -> Result<Self, TooSmall> {
        Self::build(flows, mix, probe, &stack_of(flows))
    }

    /// As [`new`](Self::new), with other headers. The MAC addresses of `flows` are those of the frames within a tunnel, and
    /// where flows do not differ in them also the tunnel's; the source port or flow label of the tunnel is another for each
    /// flow.
    ///
    /// # Errors
    /// See [`TemplateError`].
    pub fn stacked(flows: &Flows, mix: &Mix, probe: bool, stack: &Stack) -> Result<Self, TemplateError> {
        let plain = stack_of(flows);
        if (stack.ipv6, stack.tcp) != (plain.ipv6, plain.tcp) {
            return Err(TemplateError::Unlike { stack: stack.clone(), flows: plain });
        }
        Ok(Self::build(flows, mix, probe, stack)?)
    }

    fn build(flows: &Flows, mix: &Mix, probe: bool, stack: &Stack) -> Result<Self, TooSmall> {
        let (v4, tcp) = (!stack.ipv6, stack.tcp);
        let bytes = headers(v4, tcp) + if probe { probe::LEN } else { 0 };
        let head = bytes.max(FrameSize::MIN.without_fcs());
        let shift = stack.overhead();
        let needed = (shift + head) as u16 + FCS;
        let (src, dst) = (flows.settings().src_mac, flows.settings().dst_mac);
        let mut fronts = Vec::new();
        let mut size = |size: FrameSize| {
            if size.with_fcs() < needed {
                return Err(TooSmall { size, stack: stack.clone(), probe, needed });
            }
            let within = size.without_fcs() - shift;
            fronts.push(stack.front(src, dst, within - ETHERNET_LEN).into());
            let mut made = Size::new(flows.settings(), v4, within, probe, TcpFlags::ACK | TcpFlags::PSH);
            made.len += shift;
            Ok(made)
        };
        let mut sizes: Box<[Size]> = mix.entries().iter().map(|(bytes, _)| size(*bytes)).collect::<Result<_, _>>()?;
        let is_extra = shift != 0 || flows.fronts().is_some();
        let extra = is_extra.then(|| Extra {
            sizes: std::mem::take(&mut sizes),
            shift,
            fronts: fronts.into(),
            macs: flows.fronts().cloned(),
            macs_at: stack.macs_at(),
            flow_field: stack.flow_field(),
        });
        let extra = extra.map(Box::new);
        Ok(Self {
            flows: flows.clone(),
            sizes,
            tcp,
            probe,
            payload: shift + headers(v4, tcp),
            head: shift + head,
            extra,
        })
    }

    /// Returns the offset of the payload, where the probe starts.
    pub fn probe_at(&self) -> usize {
        self.payload
    }

    /// Returns the flows.
    pub fn flows(&self) -> &Flows {
        &self.flows
    }

    /// Bytes of a frame with the mix's size number `size` in its buffer, without frame check sequence; 0 if there is
    /// no such size.
    #[inline(always)]
    pub fn frame_len(&self, size: usize) -> usize {
        self.sizes.get(size).map_or_else(|| self.extra_len(size), |size| size.len)
    }

    #[cold]
    fn extra_len(&self, size: usize) -> usize {
        self.extra.as_ref().and_then(|extra| extra.sizes.get(size)).map_or(0, |size| size.len)
    }

    /// Writes the frame with the mix's size number `size` of flow number `flow` to the front of `frame`. The probe is
    /// left out unless the template was made with one.
    ///
    /// Returns the frame's length in bytes, without frame check sequence; 0, and nothing is written, if there is no
    /// such size or flow or if `frame` is shorter.
    #[inline(always)]
    pub fn fill(&self, size: usize, flow: u32, probe: Probe, frame: &mut [u8]) -> usize {
        let len = self.fill_head(size, flow, probe, frame);
        if len > self.head {
            let pattern = self.head - self.payload;
            frame[self.head..len].copy_from_slice(&PATTERN[pattern..pattern + len - self.head]);
        }
        len
    }

    /// As [`fill`](Self::fill), but leaves everything behind headers and probe as it is: for buffers that hold a frame
    /// of this template already, of this size or a larger one, and unmodified since.
    #[inline(always)]
    pub fn fill_head(&self, size: usize, flow: u32, probe: Probe, frame: &mut [u8]) -> usize {
        let Some(size) = self.sizes.get(size).filter(|size| size.len <= frame.len()) else {
            return self.fill_extra(size, flow, probe, frame).unwrap_or(0);
        };
        self.fill_plain(size, flow, probe, frame).unwrap_or(0)
    }

    #[cold]
    fn fill_extra(&self, size: usize, flow: u32, probe: Probe, frame: &mut [u8]) -> Option<usize> {
        let extra = self.extra.as_ref()?;
        let (of_size, front) = (extra.sizes.get(size)?, extra.fronts.get(size)?);
        let frame = frame.get_mut(..of_size.len)?;
        let len = self.fill_plain(of_size, flow, probe, frame.get_mut(extra.shift..)?)?;
        frame.get_mut(..front.len())?.copy_from_slice(front);
        if let Some(macs) = &extra.macs {
            put(frame, extra.macs_at, *macs.get(flow as usize)?);
        }
        let hash = scramble(flow.into());
        match extra.flow_field {
            None => {}
            Some(FlowField::Port(at)) => put(frame, at, (FIRST_PORT | hash as u16).to_be_bytes()),
            Some(FlowField::Label(at)) => put(frame, at, (6 << 28 | hash as u32 & 0xf_ffff).to_be_bytes()),
        }
        Some(len)
    }

    #[inline(always)]
    fn fill_plain(&self, size: &Size, flow: u32, probe: Probe, frame: &mut [u8]) -> Option<usize> {
        match (self.flows.table(), self.tcp, self.probe) {
            (Table::V4(flows), false, true) => v4::<60, true, false>(size, flows.get(flow as usize)?, probe, frame),
            (Table::V4(flows), false, false) => v4::<60, false, false>(size, flows.get(flow as usize)?, probe, frame),
            (Table::V4(flows), true, true) => v4::<72, true, true>(size, flows.get(flow as usize)?, probe, frame),
            (Table::V4(flows), true, false) => v4::<60, false, true>(size, flows.get(flow as usize)?, probe, frame),
            (Table::V6(flows), false, true) => v6::<80, true, false>(size, flows.get(flow as usize)?, probe, frame),
            (Table::V6(flows), false, false) => v6::<62, false, false>(size, flows.get(flow as usize)?, probe, frame),
            (Table::V6(flows), true, true) => v6::<92, true, true>(size, flows.get(flow as usize)?, probe, frame),
            (Table::V6(flows), true, false) => v6::<74, false, true>(size, flows.get(flow as usize)?, probe, frame),
        }
    }
}

/// Returns the kind of flow set.
fn stack_of(flows: &Flows) -> Stack {
    let tcp = flows.settings().transport == Transport::Tcp;
    Stack { ipv6: !flows.is_ipv4(), tcp, ..Stack::default() }
}

#[inline(always)]
pub(crate) fn put<const N: usize>(frame: &mut [u8], at: usize, bytes: [u8; N]) {
    frame[at..at + N].copy_from_slice(&bytes);
}

#[inline(always)]
fn put_probe(frame: &mut [u8], at: usize, (first, second, third): (u64, u64, u16)) {
    put(frame, at, first.to_le_bytes());
    put(frame, at + 8, second.to_le_bytes());
    put(frame, at + 16, third.to_le_bytes());
}

#[inline(always)]
pub(crate) fn v4<const N: usize, const PROBE: bool, const TCP: bool>(
    size: &Size,
    flow: &V4,
    probe: Probe,
    frame: &mut [u8],
) -> Option<usize> {
    let frame: &mut [u8; N] = frame.first_chunk_mut()?;
    *frame = *size.head.first_chunk()?;
    put(frame, 24, probe::fold_two(size.ip_sum, flow.address_sum).to_ne_bytes());
    put(frame, 26, flow.bytes);
    let at = headers(true, TCP);
    let words = probe.words();
    if PROBE {
        put_probe(frame, at, words);
    }
    if TCP {
        let sum = u64::from(size.sum) + u64::from(flow.sum) + if PROBE { probe::sum(words) } else { 0 };
        put(frame, 34 + 16, probe::fold(sum).to_ne_bytes());
    }
    Some(size.len)
}

#[inline(always)]
pub(crate) fn v6<const N: usize, const PROBE: bool, const TCP: bool>(
    size: &Size,
    flow: &V6,
    probe: Probe,
    frame: &mut [u8],
) -> Option<usize> {
    let frame: &mut [u8; N] = frame.first_chunk_mut()?;
    *frame = *size.head.first_chunk()?;
    put(frame, 22, flow.bytes);
    let at = headers(false, TCP);
    let words = probe.words();
    if PROBE {
        put_probe(frame, at, words);
    }
    let sum = u64::from(size.sum) + u64::from(flow.sum) + if PROBE { probe::sum(words) } else { 0 };
    let sum = probe::fold(sum);
    if TCP {
        put(frame, 54 + 16, sum.to_ne_bytes());
    } else {
        put(frame, 54 + 6, if sum == 0 { [0xff; 2] } else { sum.to_ne_bytes() });
    }
    Some(size.len)
}

impl Size {
    /// Returns a frame of no flow and no probe, and what it adds to the checksums.
    pub(crate) fn new(settings: &FlowSettings, v4: bool, len: usize, probe: bool, flags: TcpFlags) -> Self {
        let tcp = settings.transport == Transport::Tcp;
        let at = headers(v4, tcp);
        let mut payload = PATTERN[..len - at].to_vec();
        if probe {
            payload[..probe::LEN].fill(0);
        }
        let (a4, a6) = ([0; 4], [0; 16]);
        let (src, dst, ttl) = (settings.src_mac, settings.dst_mac, settings.ttl);
        macro_rules! bytes {
            ($frame:expr) => {
                $frame.src_mac(src).dst_mac(dst).ttl(ttl).payload(&payload).to_vec()
            };
        }
        let mut frame = match (v4, tcp) {
            (true, false) => bytes!(build::udp4(a4, a4, 0, 0).dont_fragment()),
            (true, true) => bytes!(build::tcp4(a4, a4, 0, 0).dont_fragment().flags(flags)),
            (false, false) => bytes!(build::udp6(a6, a6, 0, 0)),
            (false, true) => bytes!(build::tcp6(a6, a6, 0, 0).flags(flags)),
        };
        if v4 {
            frame[24..26].fill(0);
        }
        let transport = at - if tcp { 20 } else { 8 };
        let field = transport + if tcp { 16 } else { 6 };
        frame[field..field + 2].fill(0);
        let protocol = if tcp { IpProtocol::TCP } else { IpProtocol::UDP };
        let pseudo =
            if v4 { Pseudo::v4(a4.into(), a4.into(), protocol) } else { Pseudo::v6(a6.into(), a6.into(), protocol) };
        let mut head = [0; HEAD];
        let known = len.min(HEAD);
        head[..known].copy_from_slice(&frame[..known]);
        Self {
            len,
            ip_sum: if v4 { native_sum(&frame[14..34]) } else { 0 },
            sum: probe::partial(pseudo.sum(&frame[transport..])),
            head,
        }
    }
}

#[cfg(test)]
mod tests;

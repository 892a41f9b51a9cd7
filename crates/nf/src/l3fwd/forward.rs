//! Fast path: forwarding of plain packets to resolved neighbours.

use super::counters::{CounterId, DropReason};
use super::fib::adjacency::AdjacencyKind;
use super::headers::{ETHERNET_LEN, Plain4, Plain6, plain4, plain4_if, plain6};
use super::ports::OUTPUTS;
use super::ports::PortInterfaces;
use super::router::Router;
use core::hint::cold_path;
use graph::{BoundedTable, Context, Counter, InvalidState, Named, Node, StateReader, StateWriter};
use packet::{BURST, Batch};
use std::any::Any;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;
use wire::{MacAddr, flow};
use zerocopy::FromBytes;

/// Interval at which held packets and neighbours are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Contents of a batch: only plain IPv4 packets, only plain IPv6 packets, or any.
const IPV4_ONLY: u8 = 0;
const IPV6_ONLY: u8 = 1;
const MIXED: u8 = 2;

/// A packet that does not leave with its batch.
#[derive(Clone, Copy)]
enum Exception {
    /// It needs the slow path.
    SlowPath,
    /// It leaves by another output.
    Output(u8),
}

impl Node for Router {
    fn drops(&self) -> &[&'static str] {
        DropReason::NAMES
    }

    fn outputs(&self) -> &[&'static str] {
        OUTPUTS
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        let mut counters = self.counters.named();
        counters.extend(self.punt.counters());
        counters
    }

    fn gauges(&self) -> Vec<&'static str> {
        vec![CounterId::HostRoutes.name(), CounterId::InstalledRoutes.name()]
    }

    fn bounded_tables(&self) -> Vec<BoundedTable> {
        // counts of copies are added up
        if self.maintains_shared { vec![self.neighbours.clone()] } else { vec![] }
    }

    fn process(&mut self, cx: &mut Context<'_>, input: u8, batch: &mut Batch) {
        let interface = match self.config.ports.get(usize::from(input)) {
            Some(PortInterfaces::One(interface)) => &self.config.interfaces[*interface],
            Some(PortInterfaces::Several(_)) => return self.process_shared(cx, input, batch),
            None => return self.inject(cx, input, batch),
        };
        let (mac, vrf) = (interface.mac, interface.vrf);
        let n = batch.len();
        if self.expect_ipv6 {
            cold_path();
            if let Some(main) = self.process_ipv6_only(cx, batch, mac, vrf) {
                return self.finish_batch(cx, input, main);
            }
        }
        let mut addresses = [0; BURST];
        let (mut not_plain, mut at) = (0u64, 0);
        batch.for_each(
            #[inline(always)]
            |packet| {
                match plain4(packet.data(), mac) {
                    Some(dst) => addresses[at & (BURST - 1)] = dst,
                    None => not_plain |= 1 << at,
                }
                at += 1;
            },
        );
        let mut values = [0; BURST];
        let main = if not_plain == 0 {
            self.routes.look_up4(vrf, &addresses[..n], &mut values[..n]);
            cx.explain(|| self.explanation(vrf, Ipv4Addr::from(addresses[0]).into(), values[0]));
            self.rewrite::<IPV4_ONLY>(cx, batch, &values, not_plain, 0)
        } else {
            self.process_mixed(cx, batch, (mac, vrf), (&addresses, &mut values), not_plain)
        };
        self.finish_batch(cx, input, main);
    }

    fn take_over(&mut self, old: &mut dyn Any) {
        if let Some(old) = old.downcast_mut::<Router>() {
            self.take_over_queues(old);
        }
    }

    fn save(&mut self, state: &mut StateWriter) {
        if self.maintains_shared {
            self.fib.control().save(&self.config.interfaces, state);
        }
    }

    fn restore(&mut self, state: &mut StateReader<'_>) -> Result<(), InvalidState> {
        self.fib.control().restore(&self.fib, &self.config.interfaces, state)
    }

    fn interval(&self) -> Option<Duration> {
        Some(POLL_INTERVAL)
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        self.poll_neighbours(cx);
        // no looked-up value is in use now: a copy that receives no packets must not delay reclamation
        self.routes.idle();
        if self.maintains_shared {
            self.fib.set_now(cx.now());
            if let Some(host_routes) = self.fib.host_routes() {
                self.counters[CounterId::HostRoutes].set(host_routes);
            }
            self.counters[CounterId::InstalledRoutes].set(self.fib.installed_routes() as u64);
            if let Some(neighbours) = self.fib.neighbour_count() {
                self.neighbours.entries.set(neighbours as u64);
            }
        }
    }
}

impl Router {
    /// Processes packets from a port of several interfaces.
    #[inline(never)]
    fn process_shared(&mut self, cx: &mut Context<'_>, input: u8, batch: &mut Batch) {
        let Some(PortInterfaces::Several(macs)) = self.config.ports.get(usize::from(input)) else { return };
        let (n, all) = (batch.len(), batch.mask());
        let (mut addresses, mut vrfs, mut unknown) = ([0; BURST], [0; BURST], 0u64);
        let (mut not_plain, mut at) = (0u64, 0);
        batch.for_each(
            #[inline(always)]
            |packet| {
                let (i, frame) = (at & (BURST - 1), packet.data());
                at += 1;
                match macs.get(dst_mac(frame)) {
                    Some(found) => vrfs[i] = found.vrf,
                    None => unknown |= 1 << i,
                }
                match plain4_if(frame, |_| true) {
                    Some(dst) => addresses[i] = dst,
                    None => not_plain |= 1 << i,
                }
            },
        );
        not_plain |= unknown;
        let mut values = [0; BURST];
        if not_plain != all {
            self.routes.look_up4_in_vrfs(&vrfs, &addresses, &mut values[..n]);
        }
        let mut v6 = 0;
        if not_plain & !unknown != 0 {
            let mut addresses6 = [0; BURST];
            v6 = plain_ipv6(batch, not_plain & !unknown, dst_mac, &mut addresses6);
            let mut values6 = [0; BURST];
            self.routes.look_up6_in_vrfs(&vrfs, &addresses6, &mut values6[..n]);
            for i in (0..n).filter(|i| v6 >> i & 1 != 0) {
                values[i] = values6[i];
            }
        }
        if not_plain & 1 == 0 {
            let dst = Ipv4Addr::from(addresses[0]);
            cx.explain(|| self.explanation(vrfs[0].into(), dst.into(), values[0]));
        }
        let main = match not_plain {
            0 => self.rewrite::<IPV4_ONLY>(cx, batch, &values, 0, 0),
            _ if v6 == all => self.rewrite::<IPV6_ONLY>(cx, batch, &values, 0, 0),
            _ => self.rewrite::<MIXED>(cx, batch, &values, not_plain & !v6, v6),
        };
        self.finish_batch(cx, input, main);
    }

    /// Sends the batch to the output `main`, unless it is 0, and passes the exceptions to the slow path.
    #[inline(always)]
    fn finish_batch(&mut self, cx: &mut Context<'_>, input: u8, main: u8) {
        if main != 0 {
            cx.set_output(main);
        }
        if !self.exceptions.is_empty() {
            self.process_exceptions(cx, input);
        }
    }

    /// Returns the route to an address for which an adjacency was found, for a trace.
    #[cold]
    fn explanation(&self, vrf: usize, address: IpAddr, adjacency: u32) -> String {
        format!("{address}: {}", self.fib.describe(vrf, address, adjacency))
    }

    /// Rewrites a batch of plain IPv6 packets as [`rewrite`](Self::rewrite) does. Returns `None` and changes nothing if
    /// the batch has other packets.
    #[inline(never)]
    fn process_ipv6_only(&mut self, cx: &mut Context<'_>, batch: &mut Batch, mac: MacAddr, vrf: usize) -> Option<u8> {
        let n = batch.len();
        let mut addresses = [0; BURST];
        let (mut not_plain, mut at) = (0u64, 0);
        batch.for_each(
            #[inline(always)]
            |packet| {
                match plain6(packet.data(), mac) {
                    Some(dst) => addresses[at & (BURST - 1)] = dst,
                    None => not_plain |= 1 << at,
                }
                at += 1;
            },
        );
        if not_plain != 0 {
            self.expect_ipv6 = false;
            return None;
        }
        let mut values = [0; BURST];
        self.routes.look_up6(vrf, &addresses[..n], &mut values[..n]);
        cx.explain(|| self.explanation(vrf, Ipv6Addr::from(addresses[0]).into(), values[0]));
        Some(self.rewrite::<IPV6_ONLY>(cx, batch, &values, 0, 0))
    }

    /// As [`rewrite`](Self::rewrite), for a batch with other than plain IPv4 packets, which `not_plain` contains as a
    /// mask.
    #[inline(never)]
    fn process_mixed(
        &mut self,
        cx: &mut Context<'_>,
        batch: &mut Batch,
        (mac, vrf): (MacAddr, usize),
        (addresses, values): (&[u32; BURST], &mut [u32; BURST]),
        not_plain: u64,
    ) -> u8 {
        let n = batch.len();
        let all = batch.mask();
        let mut addresses6 = [0; BURST];
        let v6 = plain_ipv6(batch, not_plain, |_| mac, &mut addresses6);
        if not_plain != all {
            self.routes.look_up4(vrf, &addresses[..n], &mut values[..n]);
        }
        if v6 != 0 {
            let mut values6 = [0; BURST];
            self.routes.look_up6(vrf, &addresses6[..n], &mut values6[..n]);
            if v6 == all {
                self.expect_ipv6 = true;
                return self.rewrite::<IPV6_ONLY>(cx, batch, &values6, 0, 0);
            }
            for i in (0..n).filter(|i| v6 >> i & 1 != 0) {
                values[i] = values6[i];
            }
        }
        self.rewrite::<MIXED>(cx, batch, values, not_plain & !v6, v6)
    }

    /// Rewrites the plain packets to resolved neighbours, moves the others to the exceptions, and emits those with
    /// another output than the first. Returns the output of the packets that remain in the batch, or 0. In a mixed
    /// batch `not_plain` is the mask of packets that are not plain, and `v6` that of plain IPv6 packets.
    #[inline(always)]
    fn rewrite<const CONTENTS: u8>(
        &mut self,
        cx: &mut Context<'_>,
        batch: &mut Batch,
        values: &[u32; BURST],
        not_plain: u64,
        v6: u64,
    ) -> u8 {
        let Router { fib, exceptions, .. } = self;
        let adjacencies = fib.adjacencies();
        let (mut at, mut main) = (0, 0);
        batch.extract_if(
            #[inline(always)]
            |packet| {
                let i = at & (BURST - 1);
                at += 1;
                let is_ipv4 = match CONTENTS {
                    IPV4_ONLY => true,
                    IPV6_ONLY => false,
                    _ => v6 >> i & 1 == 0,
                };
                if CONTENTS == MIXED && not_plain >> i & 1 != 0 {
                    return Some(Exception::SlowPath);
                }
                let value = values[i];
                let mut adjacency = adjacencies.get(value as usize).unwrap_or(&adjacencies[0]).load();
                let frame = packet.data_mut();
                if !adjacency.is_resolved() {
                    if adjacency.kind() == AdjacencyKind::Group {
                        adjacency = fib.adjacency(fib.member(adjacency.group(), flow::symmetric_hash(frame))).load();
                    }
                    if !adjacency.is_resolved() {
                        return Some(Exception::SlowPath);
                    }
                }
                if frame.len() - ETHERNET_LEN > adjacency.mtu() {
                    cold_path();
                    return Some(Exception::SlowPath);
                }
                if is_ipv4 {
                    let Ok((h, _)) = Plain4::mut_from_prefix(frame) else { return Some(Exception::SlowPath) };
                    h.ip.decrement_ttl();
                } else {
                    let Ok((h, _)) = Plain6::mut_from_prefix(frame) else { return Some(Exception::SlowPath) };
                    h.ip.decrement_hop_limit();
                }
                let Some(front) = frame.first_chunk_mut() else { return Some(Exception::SlowPath) };
                adjacency.rewrite(front);
                let output = adjacency.output();
                if main == 0 {
                    main = output;
                }
                (output != main).then_some(Exception::Output(output))
            },
            #[inline(always)]
            |exception, packet| match exception {
                Exception::Output(output) => cx.emit(output, packet),
                Exception::SlowPath => exceptions.push(packet).unwrap_or_else(drop),
            },
        );
        main
    }

    /// Passes the exceptions to the slow path, one by one.
    #[cold]
    fn process_exceptions(&mut self, cx: &mut Context<'_>, input: u8) {
        for packet in self.exceptions.drain() {
            let port = &self.config.ports[usize::from(input)];
            match port.receiver(&self.config.interfaces, packet.data()) {
                Some(interface) => self.slow_path(cx, interface, packet),
                None => self.drop(cx, DropReason::OtherMac, packet),
            }
        }
    }
}

/// Returns the destination MAC address of a frame, the broadcast address if it is too short.
#[inline(always)]
fn dst_mac(frame: &[u8]) -> MacAddr {
    frame.first_chunk().map_or(MacAddr::BROADCAST, |dst| MacAddr(*dst))
}

/// Returns the mask of the plain IPv6 packets in `mask` to the MAC addresses that `mac` returns for their frames, and sets
/// their destinations.
#[inline(always)]
fn plain_ipv6(batch: &mut Batch, mask: u64, mac: impl Fn(&[u8]) -> MacAddr, destinations: &mut [u128; BURST]) -> u64 {
    let (mut v6, mut at) = (0u64, 0);
    batch.for_each(
        #[inline(always)]
        |packet| {
            let frame = packet.data();
            if mask >> at & 1 != 0
                && let Some(dst) = plain6(frame, mac(frame))
            {
                destinations[at & (BURST - 1)] = dst;
                v6 |= 1 << at;
            }
            at += 1;
        },
    );
    v6
}

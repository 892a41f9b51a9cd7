//! Parsing and inspection of application protocols with the packets of a flow.

use super::decode::{Packet, TCP, UDP};
use super::flow::{Flow, FlowAction};
use super::stream::Tap;
use super::{Alert, Engine, Input, Verdict, app, worse};
use crate::ids::app::AppFlow;
use std::time::Duration;

/// Largest number of bytes that wait for an acknowledgement.
const MAX_UNACKNOWLEDGED: usize = 64 << 10;

impl Engine {
    /// Returns true if bytes of a flow are parsed.
    pub(super) fn parses_app(&self, flow: &Flow) -> bool {
        self.rule_set.app.used && flow.app.as_ref().is_none_or(|app| app.is_active())
    }

    /// Parses the bytes that a packet acknowledges; in prevent mode those that it contains.
    pub(super) fn parse_app(&mut self, packet: &Packet<'_>, flow: &mut Flow, direction: usize) {
        if !self.parses_app(flow) || !packet.has_flow() || !packet.valid {
            return;
        }
        let options = self.app.options;
        let ports = [packet.src_port, packet.dst_port];
        let statistics = &self.app.statistics;
        let mut new = || Box::new(AppFlow::new(ports, statistics.clone()));
        match packet.protocol {
            UDP if !packet.payload.is_empty() => {
                let app = flow.app.get_or_insert_with(&mut new);
                app.datagram(direction, packet.payload, options);
                flow.app_protocol = app.protocol();
            }
            TCP => {
                let (flags, ack) = (packet.tcp_flags(), packet.field32(8));
                for side in [direction, 1 - direction] {
                    let own = side == direction;
                    let all = own && self.options.prevent || flags & 4 != 0;
                    let acknowledged = !own && flags & 16 != 0;
                    let stream = &mut flow.streams[side];
                    let nothing = stream.tap.bytes.is_empty() && !stream.tap.gap;
                    if nothing && (!flow.ended[side] || flow.app.is_none()) {
                        continue;
                    }
                    let due = all || acknowledged || stream.tap.gap || stream.tap.bytes.len() > MAX_UNACKNOWLEDGED;
                    if !due {
                        continue;
                    }
                    let up_to = (acknowledged && !all && !stream.tap.gap).then_some(ack);
                    let bytes = stream.take_tapped(up_to);
                    let ended = flow.ended[side] && stream.tap.bytes.is_empty() && !stream.is_waiting();
                    let gap = stream.tap.gap;
                    let app = flow.app.get_or_insert_with(&mut new);
                    if !bytes.is_empty() {
                        app.feed(side, &bytes, options);
                    }
                    if gap {
                        app.abandon();
                    } else if ended {
                        app.end(side, options);
                    }
                    flow.app_protocol = app.protocol();
                }
            }
            _ => {}
        }
    }

    /// Inspects the messages that have changed: those of the packet's direction, at a reset those of both.
    pub(super) fn inspect_messages(
        &mut self,
        now: Duration,
        packet: &Packet<'_>,
        flow: &mut Flow,
        direction: usize,
        alerts: &mut Vec<Alert>,
    ) -> Verdict {
        let verdict = self.inspect_side(now, packet, true, flow, direction, alerts);
        if packet.is_tcp() && packet.valid && packet.tcp_flags() & 4 != 0 {
            let other = app::rest_packet(flow, 1 - direction);
            return worse(verdict, self.inspect_side(now, &other, false, flow, 1 - direction, alerts));
        }
        verdict
    }

    fn inspect_side(
        &mut self,
        now: Duration,
        packet: &Packet<'_>,
        is_packet: bool,
        flow: &mut Flow,
        direction: usize,
        alerts: &mut Vec<Alert>,
    ) -> Verdict {
        let Some(mut app) = flow.app.take() else { return Verdict::Forward };
        let (mut verdict, mut inspected) = (Verdict::Forward, false);
        while flow.action == FlowAction::Inspect
            && let Some(mut message) = app.next(direction, self.app.options)
        {
            inspected = true;
            message.prepare();
            let mut matched = std::mem::take(&mut message.matched);
            let input = Input {
                is_packet,
                added: true,
                chunk: None,
                repeated: 0,
                chunk_end: 0,
                matched: &matched,
                to_client: message.to_client,
                established: flow.is_established(packet.protocol == TCP),
                ip_only: false,
                message: Some(&message),
                is_first_detected: false,
            };
            verdict = worse(verdict, self.evaluate(now, packet, flow, input, alerts));
            matched.append(&mut self.app.matched);
            message.matched = matched;
            app.put_back(direction, message);
        }
        if inspected {
            app.inspected();
        }
        if !app.is_active() && app.is_idle() {
            flow.streams.iter_mut().for_each(|stream| stream.tap = Tap::default());
        }
        flow.app = Some(app);
        verdict
    }

    /// Parses and inspects the rest of both directions.
    pub(super) fn finish_app(&mut self, now: Duration, flow: &mut Flow, alerts: &mut Vec<Alert>) {
        if !self.rule_set.app.used
            || flow.streams.iter().all(|stream| stream.tap.bytes.is_empty()) && flow.app.is_none()
        {
            return;
        }
        let (options, statistics) = (self.app.options, &self.app.statistics);
        let ports = flow.ends.map(|(_, port)| port);
        let app = flow.app.get_or_insert_with(|| Box::new(AppFlow::new(ports, statistics.clone())));
        for side in 0..2 {
            let bytes = flow.streams[side].take_tapped(None);
            app.feed(side, &bytes, options);
        }
        (0..2).for_each(|side| app.end(side, options));
        flow.app_protocol = app.protocol();
        for side in 0..2 {
            let packet = app::rest_packet(flow, side);
            self.inspect_side(now, &packet, false, flow, side, alerts);
        }
    }
}

#[cfg(test)]
mod tests;

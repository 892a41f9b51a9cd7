//! Records of flows in IPFIX (RFC 7011, RFC 5103) with the names of applications (RFC 6759).

use super::flow_record::{FlowRecord, RoundTripTime};
use super::keys::Endpoints;
use crate::dpi::Application;
use crate::export::ipfix::{Field, Records, Template};
use std::net::IpAddr;

const BYTES: Field = Field::new(1, 8);
const PACKETS: Field = Field::new(2, 8);
const PROTOCOL: Field = Field::new(4, 1);
const TCP_FLAGS: Field = Field::new(6, 2);
const SOURCE_PORT: Field = Field::new(7, 2);
const SOURCE_IPV4: Field = Field::new(8, 4);
const DESTINATION_PORT: Field = Field::new(11, 2);
const DESTINATION_IPV4: Field = Field::new(12, 4);
const SOURCE_IPV6: Field = Field::new(27, 16);
const DESTINATION_IPV6: Field = Field::new(28, 16);
const SOURCE_MAC: Field = Field::new(56, 6);
const VLAN: Field = Field::new(58, 2);
const DESTINATION_MAC: Field = Field::new(80, 6);
const APPLICATION_ID: Field = Field::new(95, 4);
const APPLICATION_NAME: Field = Field::new(96, APPLICATION_NAME_LEN as u16);
const END_REASON: Field = Field::new(136, 1);
const START: Field = Field::new(152, 8);
const END: Field = Field::new(153, 8);
const ETHERNET_TYPE: Field = Field::new(256, 2);
const SELECTOR: Field = Field::new(302, 8);
const SELECTOR_ALGORITHM: Field = Field::new(304, 2);
const SAMPLING_INTERVAL: Field = Field::new(305, 4);
const SAMPLING_SPACE: Field = Field::new(306, 4);
/// CLIENT_NW_LATENCY_MS and SERVER_NW_LATENCY_MS of ntop: half the round-trip time, in milliseconds.
const CLIENT_LATENCY: Field = Field::new(123, 4).of_enterprise(35_632);
const SERVER_LATENCY: Field = Field::new(124, 4).of_enterprise(35_632);
/// TCP_HANDSHAKE_RTT_USEC of FastIP: the round-trip time between client and server, in microseconds.
const HANDSHAKE_RTT: Field = Field::new(200, 4).of_enterprise(33_610);
const APPLICATION_NAME_LEN: usize = 16;

/// Indices of the templates.
const IPV4: usize = 0;
const IPV6: usize = 1;
const FRAMES: usize = 2;
const APPLICATIONS: usize = 3;
const SAMPLING: usize = 4;
/// Number of the only selector.
const SELECTOR_ID: u64 = 1;
/// "Systematic count-based sampling" (IANA, PSAMP parameters; RFC 5475 §5.1).
const SYSTEMATIC_COUNT: u16 = 1;
/// Classification engine of applications that the exporter's maker defines, "USER-Defined" (RFC 6759 §4.1).
const USER_DEFINED: u32 = 6;

/// Reason for the end of a flow, flowEndReason (IANA IPFIX registry, 136).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndReason {
    Idle = 1,
    Active = 2,
    Closed = 3,
    Forced = 4,
    LackOfResources = 5,
}

/// A flow that is exported.
pub(super) struct ExportedFlow {
    /// Ends of the flow in the direction of the first packet.
    pub(super) endpoints: Endpoints,
    pub(super) flow: FlowRecord,
    /// Times of the first and last packet, in milliseconds since the Unix epoch.
    pub(super) times: [u64; 2],
    pub(super) reason: EndReason,
}

/// Templates and encoding of flows.
#[derive(Clone, Copy)]
pub(super) struct FlowRecords {
    pub(super) has_biflows: bool,
    /// One of this number of packets is counted.
    pub(super) sample: u32,
}

impl FlowRecords {
    /// Returns true if round-trip times are known: of both directions, and of all packets.
    pub(super) fn has_rtt(&self) -> bool {
        self.has_biflows && self.sample == 1
    }
}

impl Records for FlowRecords {
    type Record = ExportedFlow;

    fn templates(&self) -> Vec<Template> {
        let selector = (self.sample > 1).then_some(SELECTOR);
        let rtt = [CLIENT_LATENCY, SERVER_LATENCY, HANDSHAKE_RTT];
        let fields = |keys: &[Field], more: &[Field], counts: &[Field]| {
            let reverse = counts.iter().filter(|_| self.has_biflows).map(|field| field.reverse());
            let counts = counts.iter().copied().chain(reverse);
            keys.iter().chain(&[START, END, END_REASON]).chain(more).copied().chain(selector).chain(counts).collect()
        };
        let of_ip = |source: Field, destination: Field| {
            let keys = [source, destination, SOURCE_PORT, DESTINATION_PORT, PROTOCOL];
            let mut fields: Vec<Field> = fields(&keys, &[APPLICATION_ID], &[PACKETS, BYTES, TCP_FLAGS]);
            fields.extend(rtt.iter().filter(|_| self.has_rtt()));
            fields
        };
        let of_frames = fields(&[SOURCE_MAC, DESTINATION_MAC, ETHERNET_TYPE, VLAN], &[], &[PACKETS, BYTES]);
        let mut templates = vec![
            Template { id: 256, fields: of_ip(SOURCE_IPV4, DESTINATION_IPV4), scope: 0 },
            Template { id: 257, fields: of_ip(SOURCE_IPV6, DESTINATION_IPV6), scope: 0 },
            Template { id: 260, fields: of_frames, scope: 0 },
            Template { id: 258, fields: vec![APPLICATION_ID, APPLICATION_NAME], scope: 1 },
        ];
        if self.sample > 1 {
            let fields = vec![SELECTOR, SELECTOR_ALGORITHM, SAMPLING_INTERVAL, SAMPLING_SPACE];
            templates.push(Template { id: 259, fields, scope: 1 });
        }
        templates
    }

    fn encode(&self, ExportedFlow { endpoints, flow, times, reason }: &ExportedFlow, out: &mut Vec<u8>) -> usize {
        let template = match endpoints {
            Endpoints::Ip(tuple) => {
                for address in [tuple.src, tuple.dst] {
                    match address {
                        IpAddr::V4(address) => out.extend(address.octets()),
                        IpAddr::V6(address) => out.extend(address.octets()),
                    }
                }
                out.extend(tuple.src_port.to_be_bytes());
                out.extend(tuple.dst_port.to_be_bytes());
                out.push(tuple.protocol.0);
                if tuple.src.is_ipv4() { IPV4 } else { IPV6 }
            }
            Endpoints::Frame(key) => {
                out.extend(key.0);
                FRAMES
            }
        };
        out.extend(times.iter().flat_map(|time| time.to_be_bytes()));
        out.push(*reason as u8);
        if template != FRAMES {
            out.extend(application_id(flow.application).to_be_bytes());
        }
        if self.sample > 1 {
            out.extend(SELECTOR_ID.to_be_bytes());
        }
        let directions = flow.directions().into_iter().zip(flow.tcp_flags());
        for (counts, tcp_flags) in directions.take(1 + usize::from(self.has_biflows)) {
            out.extend(counts.packets.to_be_bytes());
            out.extend(counts.bytes.to_be_bytes());
            if template != FRAMES {
                out.extend(u16::from(tcp_flags).to_be_bytes());
            }
        }
        if template != FRAMES && self.has_rtt() {
            let RoundTripTime { client, server } = flow.rtt();
            let half_ms = |us: Option<u32>| us.map_or(0, |us| us.saturating_add(1000) / 2000);
            let both = client.zip(server).map_or(0, |(client, server)| client.saturating_add(server));
            out.extend([half_ms(client), half_ms(server), both].iter().flat_map(|time| time.to_be_bytes()));
        }
        template
    }

    fn options(&self) -> Vec<(usize, Vec<u8>)> {
        let names = Application::ALL.iter().map(|application| {
            let mut record = application_id(application.number()).to_be_bytes().to_vec();
            record.extend(application.name().bytes().take(APPLICATION_NAME_LEN));
            record.resize(4 + APPLICATION_NAME_LEN, 0);
            (APPLICATIONS, record)
        });
        let sampling = (self.sample > 1).then(|| {
            let mut record = SELECTOR_ID.to_be_bytes().to_vec();
            record.extend(SYSTEMATIC_COUNT.to_be_bytes());
            record.extend(1u32.to_be_bytes());
            record.extend((self.sample - 1).to_be_bytes());
            (SAMPLING, record)
        });
        names.chain(sampling).collect()
    }
}

/// Returns the applicationId of an application (RFC 6759 §4): engine and number.
fn application_id(number: u16) -> u32 {
    USER_DEFINED << 24 | u32::from(number)
}

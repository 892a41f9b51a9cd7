//! Records of NAT events (RFC 8158).

use super::record::{Event, Record, RecordKind};
use crate::export::ipfix::{Field, Records, Template};
use std::net::IpAddr;
use std::time::SystemTime;

const TIME: Field = Field::new(323, 8);
const EVENT: Field = Field::new(230, 1);
const PROTOCOL: Field = Field::new(4, 1);
const INSIDE4: Field = Field::new(8, 4);
const INSIDE6: Field = Field::new(27, 16);
const INSIDE_PORT: Field = Field::new(7, 2);
const EXTERNAL: Field = Field::new(225, 4);
const EXTERNAL_PORT: Field = Field::new(227, 2);
/// Destination address: before translation if that is IPv4, after translation if the subscriber has IPv6.
const OUTSIDE: Field = Field::new(12, 4);
const POST_NAT_OUTSIDE: Field = Field::new(226, 4);
const OUTSIDE_PORT: Field = Field::new(11, 2);
const FIRST_PORT: Field = Field::new(361, 2);
const LAST_PORT: Field = Field::new(362, 2);

impl RecordKind {
    fn fields(self) -> &'static [Field] {
        match (self.blocks, self.ipv6) {
            (false, false) => {
                &[TIME, EVENT, PROTOCOL, INSIDE4, INSIDE_PORT, EXTERNAL, EXTERNAL_PORT, OUTSIDE, OUTSIDE_PORT]
            }
            (false, true) => {
                &[TIME, EVENT, PROTOCOL, INSIDE6, INSIDE_PORT, EXTERNAL, EXTERNAL_PORT, POST_NAT_OUTSIDE, OUTSIDE_PORT]
            }
            (true, false) => &[TIME, EVENT, INSIDE4, EXTERNAL, FIRST_PORT, LAST_PORT],
            (true, true) => &[TIME, EVENT, INSIDE6, EXTERNAL, FIRST_PORT, LAST_PORT],
        }
    }

    /// Returns the value of natEvent (RFC 8158 §4.2).
    fn event(self, started: bool) -> u8 {
        let begin = match (self.blocks, self.ipv6) {
            (false, false) => 4,
            (false, true) => 6,
            (true, _) => 16,
        };
        begin + u8::from(!started)
    }
}

impl Records for RecordKind {
    type Record = Record;

    fn templates(&self) -> Vec<Template> {
        let id = 256 + u16::from(self.ipv6) + 2 * u16::from(self.blocks);
        vec![Template { id, fields: self.fields().to_vec(), scope: 0 }]
    }

    fn encode(&self, record: &Record, out: &mut Vec<u8>) -> usize {
        let millis = record.at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
        out.extend(millis.to_be_bytes());
        let inside = |out: &mut Vec<u8>| match record.inside {
            IpAddr::V4(a) => out.extend(a.octets()),
            IpAddr::V6(a) => out.extend(a.octets()),
        };
        match &record.event {
            Event::Session(s) => {
                out.extend([self.event(s.created), s.flow.protocol]);
                inside(out);
                out.extend(s.flow.src_port.to_be_bytes());
                out.extend(s.external.0.to_be_bytes());
                out.extend(s.external.1.to_be_bytes());
                out.extend(s.flow.dst.to_be_bytes());
                out.extend(s.flow.dst_port.to_be_bytes());
            }
            Event::Block(b) => {
                out.push(self.event(b.allocated));
                inside(out);
                out.extend(b.external.to_be_bytes());
                out.extend(b.ports.0.to_be_bytes());
                out.extend(b.ports.1.to_be_bytes());
            }
        }
        0
    }
}

//! The largest flows or addresses.

use super::flow_record::{DirectionCounts, RoundTripTime};
use super::heavy_hitters::{HeavyHitter, HeavyHitters};
use super::keys::Endpoints;
use super::settings::TopBy;
use graph::{Row, StatsTable};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;
use wire::IpProtocol;
use wire::flow::FiveTuple;

/// Smallest number of keys of which the largest are found.
const MIN_KEYS: usize = 1024;

/// Columns of the statistics table.
const FLOW_COLUMNS: [&str; 10] = [
    "bytes",
    "error",
    "packets",
    "source",
    "port",
    "destination",
    "port",
    "protocol",
    "client_rtt_us",
    "server_rtt_us",
];
/// Number of columns of flows without round-trip times.
const WITHOUT_RTT: usize = 8;
const SOURCE_COLUMNS: [&str; 4] = ["bytes", "error", "packets", "source"];
const DESTINATION_COLUMNS: [&str; 4] = ["bytes", "error", "packets", "destination"];

/// Counters by key.
enum Keys {
    Flows(HeavyHitters<FiveTuple, RoundTripTime>),
    Sources(HeavyHitters<IpAddr, ()>),
    Destinations(HeavyHitters<IpAddr, ()>),
}

/// Counts flows or addresses, and publishes the largest.
pub(super) struct TopFlows {
    keys: Keys,
    rows: usize,
    pub(super) table: Arc<StatsTable>,
}

impl TopFlows {
    /// Returns an empty list of at most `rows` rows.
    pub(super) fn new(by: TopBy, rows: usize, has_rtt: bool) -> Self {
        let capacity = rows.max(MIN_KEYS);
        let (keys, columns): (Keys, &'static [&'static str]) = match by {
            TopBy::Flow => {
                let columns = if has_rtt { FLOW_COLUMNS.len() } else { WITHOUT_RTT };
                (Keys::Flows(HeavyHitters::new(capacity)), &FLOW_COLUMNS[..columns])
            }
            TopBy::Source => (Keys::Sources(HeavyHitters::new(capacity)), &SOURCE_COLUMNS),
            TopBy::Destination => (Keys::Destinations(HeavyHitters::new(capacity)), &DESTINATION_COLUMNS),
        };
        TopFlows { keys, rows, table: Arc::new(StatsTable::new(columns, rows)) }
    }

    /// Counts packets of a flow with IP addresses: those of its direction, and those of the opposite one.
    pub(super) fn add(&mut self, endpoints: Endpoints, directions: [DirectionCounts; 2], rtt: RoundTripTime) {
        let Endpoints::Ip(tuple) = endpoints else { return };
        match &mut self.keys {
            Keys::Flows(flows) => {
                let [bytes, packets] = [directions.map(|d| d.bytes), directions.map(|d| d.packets)];
                // a connection that continues after its flow has ended has no handshake
                flows.add(tuple, bytes.iter().sum(), packets.iter().sum(), |known| {
                    *known = RoundTripTime { client: rtt.client.or(known.client), server: rtt.server.or(known.server) };
                });
            }
            Keys::Sources(hosts) => add_both(hosts, [tuple.src, tuple.dst], directions),
            Keys::Destinations(hosts) => add_both(hosts, [tuple.dst, tuple.src], directions),
        }
    }

    /// Publishes the largest, largest first.
    pub(super) fn publish(&self) {
        let mut rows = match &self.keys {
            Keys::Flows(flows) => self.largest(flows, |t, rtt| {
                let protocol = match t.protocol {
                    IpProtocol::TCP => "tcp".to_owned(),
                    IpProtocol::UDP => "udp".to_owned(),
                    IpProtocol::ICMPV4 => "icmp".to_owned(),
                    IpProtocol::ICMPV6 => "icmpv6".to_owned(),
                    other => other.0.to_string(),
                };
                let time = |us: Option<u32>| us.map_or_else(|| "-".to_owned(), |us| us.to_string());
                vec![
                    t.src.to_string(),
                    t.src_port.to_string(),
                    t.dst.to_string(),
                    t.dst_port.to_string(),
                    protocol,
                    time(rtt.client),
                    time(rtt.server),
                ]
            }),
            Keys::Sources(hosts) | Keys::Destinations(hosts) => self.largest(hosts, |host, ()| vec![host.to_string()]),
        };
        rows.iter_mut().for_each(|(_, row)| row.truncate(self.table.columns().len()));
        self.table.publish(rows);
    }

    fn largest<K: Copy + Eq + Hash + Ord, V: Copy + Default>(
        &self,
        keys: &HeavyHitters<K, V>,
        cells: impl Fn(&K, V) -> Vec<String>,
    ) -> Vec<Row> {
        let mut all: Vec<_> = keys.iter().collect();
        all.sort_unstable_by(|(a, x), (b, y)| (y.bytes, b).cmp(&(x.bytes, a)));
        all.truncate(self.rows);
        let row = |(key, counter): &(K, HeavyHitter<V>)| {
            let counts = [counter.bytes, counter.error, counter.packets].map(|count| count.to_string());
            (counter.bytes, counts.into_iter().chain(cells(key, counter.value)).collect())
        };
        all.iter().map(row).collect()
    }
}

/// Counts the packets of both directions for one host each.
fn add_both(hosts: &mut HeavyHitters<IpAddr, ()>, addresses: [IpAddr; 2], directions: [DirectionCounts; 2]) {
    for (address, DirectionCounts { packets, bytes }) in addresses.into_iter().zip(directions) {
        if packets != 0 {
            hosts.add(address, bytes, packets, |()| ());
        }
    }
}

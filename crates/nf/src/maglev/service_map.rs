//! Look-up of services and of reply rewrites by address and port.

mod endpoint_map;

use super::config::{Config, Endpoint};
use super::connection::Connection;
use super::destination::{Reply, endpoint_key};
use diagnostics::Diagnostic;
use endpoint_map::EndpointMap;
use foldhash::HashMap;
use std::net::IpAddr;

/// Virtual addresses and the sources of replies.
pub(super) struct ServiceMap {
    /// Numbers of IPv4 virtual addresses.
    pub(super) vips4: EndpointMap,
    /// Numbers of reply rewrites by IPv4 source.
    pub(super) replies4: EndpointMap,
    pub(super) vips: HashMap<Endpoint, u32>,
    pub(super) replies: HashMap<Endpoint, u32>,
    /// First virtual address with an IP address.
    pub(super) addresses: HashMap<IpAddr, u32>,
    /// Virtual address of packets without ports from a backend of NAT services, unless it is ambiguous.
    pub(super) sources: HashMap<IpAddr, Option<IpAddr>>,
    pub(super) reply_rewrites: Vec<Reply>,
    /// Index of the first destination, and service, of each virtual address.
    pub(super) vip: Vec<(u32, u32)>,
    /// Destinations of all virtual addresses, in the order of the backends of their services.
    pub(super) destinations: Box<[Connection]>,
}

impl ServiceMap {
    pub(super) fn new(config: &Config, destinations: &[Connection]) -> Result<Self, Diagnostic> {
        let mut vip = vec![];
        let mut next = 0;
        for v in &config.vips {
            vip.push((next, v.service as u32));
            next += config.services[v.service].backends.len() as u32;
        }
        let (mut reply_rewrites, mut replies, mut sources) = (vec![], HashMap::default(), HashMap::default());
        // rewrites have the same numbers in every copy
        for (endpoint, vip) in config.sorted_replies()? {
            replies.insert(endpoint, reply_rewrites.len() as u32);
            reply_rewrites.push(Reply::new((endpoint.0, endpoint.1), (vip.0, vip.1)));
            let source = sources.entry(endpoint.0).or_insert(Some(vip.0));
            source.take_if(|address| *address != vip.0);
        }
        let vips: HashMap<_, _> = config.vips.iter().enumerate().map(|(n, v)| (v.endpoint, n as u32)).collect();
        let mut addresses = HashMap::default();
        for (n, v) in config.vips.iter().enumerate() {
            addresses.entry(v.endpoint.0).or_insert(n as u32);
        }
        let ipv4_map = |endpoints: &HashMap<_, u32>| {
            let keys: Vec<_> =
                endpoints.iter().filter_map(|(endpoint, n)| Some((endpoint_key(*endpoint)?, *n))).collect();
            EndpointMap::new(keys.into_iter())
        };
        let (vips4, replies4) = (ipv4_map(&vips), ipv4_map(&replies));
        Ok(ServiceMap {
            vips4,
            replies4,
            vips,
            replies,
            addresses,
            sources,
            reply_rewrites,
            vip,
            destinations: destinations.into(),
        })
    }
}

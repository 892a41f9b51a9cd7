//! The router's rows: tables, destinations, and the same for C.

use crate::fixture::{self, Fresh, Random, mask, packet_to};
use crate::rows::{Pair, node_in};
use anyhow::Context;
use core::ffi::c_void;
use core::net::Ipv4Addr;
use flate2::read::GzDecoder;
use graph::BuildCx;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use wire::{MacAddr, checksum};

/// Next hops of the routes, in turn.
const HOPS: u32 = 1000;
/// Their network, which no route and no destination lies in.
const NETWORK: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const LENGTH: u8 = 20;
/// The router's own MAC address: that to which the benchmark's packets are sent.
const MAC: MacAddr = wire::build::DST_MAC;
/// Destinations that go round.
const LIST: usize = 1 << 22;

unsafe extern "C" {
    fn native_router_new(
        addresses: *const u32,
        lengths: *const u8,
        values: *const u32,
        n: u32,
        adjacencies: *const [u64; 2],
        mac: *const u8,
    ) -> *mut c_void;
    fn native_router_free(router: *mut c_void);
}

/// IPv4 routes.
pub(crate) struct Table {
    name: String,
    routes: Vec<(u32, u8)>,
}

/// A router in C. Its adjacencies live as long as it does.
pub(crate) struct Native {
    raw: *mut c_void,
    _adjacencies: Vec<[u64; 2]>,
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: made by native_router_new, and nothing else has it.
        unsafe { native_router_free(self.raw) }
    }
}

impl Native {
    pub(crate) fn state(&self) -> *mut c_void {
        self.raw
    }
}

/// Whether a router forwards to it: no martian, and not on the next hops' network.
fn usual(address: u32) -> bool {
    let first = address >> 24;
    first != 0 && first != 127 && first < 224 && address & mask(LENGTH) != NETWORK
}

impl Table {
    /// 16,000 random routes: /16 to /24, and one in fifty longer.
    pub(crate) fn random() -> Table {
        let mut random = Random(0x9e37_79b9);
        let mut routes = vec![];
        while routes.len() < 16_000 {
            let len =
                if random.next().is_multiple_of(50) { 25 + random.next() % 8 } else { 16 + random.next() % 9 } as u8;
            let address = ((1 + random.next() % 223) << 24 | random.next() & 0xff_ffff) & mask(len);
            if usual(address) {
                routes.push((address, len));
            }
        }
        Table { name: "router 16k routes".into(), routes }
    }

    /// The real table, if it is there.
    pub(crate) fn real() -> anyhow::Result<Option<Table>> {
        let data = std::env::var_os("BONDSTONE_DATA").map_or_else(|| PathBuf::from("../shared/data"), PathBuf::from);
        let path = data.join("routes/prefixes.txt.gz");
        let Ok(file) = File::open(&path) else {
            println!("skipped: the real table is not there ({})", path.display());
            return Ok(None);
        };
        let mut routes = vec![];
        for line in BufReader::new(GzDecoder::new(file)).lines() {
            let line = line.with_context(|| path.display().to_string())?;
            let Some((address, len)) = line.trim().split_once('/') else { continue };
            let (Ok(address), Ok(len)) = (address.parse::<Ipv4Addr>(), len.parse::<u8>()) else { continue };
            if usual(address.to_bits()) {
                routes.push((address.to_bits(), len));
            }
        }
        Ok(Some(Table { name: format!("router {}k routes", routes.len() / 1000), routes }))
    }

    /// The router with this table, whose file is put into `folder`.
    pub(crate) fn pair(&self, folder: &Path) -> anyhow::Result<Pair> {
        let file = folder.join(format!("routes{}.txt", self.routes.len()));
        let mut out = std::io::BufWriter::new(File::create(&file)?);
        for (address, len) in &self.routes {
            writeln!(out, "{}/{len}", Ipv4Addr::from_bits(*address))?;
        }
        out.flush()?;
        let hop = |n: u32| Ipv4Addr::from_bits(NETWORK + 2 + n);
        let via: Vec<_> = (0..HOPS).map(|n| format!("\"{}\"", hop(n))).collect();
        let macs: Vec<_> = (0..HOPS).map(|n| format!("\"{}\" = \"{}\"", hop(n), mac(n))).collect();
        let settings = format!(
            "interface.a = {{ addresses = [\"{}/{LENGTH}\"], mac = \"{MAC}\" }}\nroutes = {:?}\nvia = [{}]\nneighbour = {{ {} }}\n",
            Ipv4Addr::from_bits(NETWORK + 1),
            file,
            via.join(", "),
            macs.join(", ")
        );
        let nodes = move || vec![node_in("l3fwd", &settings, &BuildCx::default())];
        Ok(Pair {
            name: self.name.clone(),
            nodes: Box::new(nodes),
            native: fixture::native_router,
            cells: None,
            passes: usize::MAX,
            agree: None,
        })
    }

    /// The same router in C.
    pub(crate) fn native(&self) -> anyhow::Result<Native> {
        let adjacencies: Vec<[u64; 2]> = core::iter::once([0, 0]).chain((0..HOPS).map(adjacency)).collect();
        let (addresses, lengths): (Vec<u32>, Vec<u8>) = self.routes.iter().copied().unzip();
        let values: Vec<u32> = (0..self.routes.len() as u32).map(|n| 1 + n % HOPS).collect();
        // SAFETY: three arrays of that length, and the adjacencies live as long as the router.
        let raw = unsafe {
            native_router_new(
                addresses.as_ptr(),
                lengths.as_ptr(),
                values.as_ptr(),
                addresses.len() as u32,
                adjacencies.as_ptr(),
                MAC.0.as_ptr(),
            )
        };
        anyhow::ensure!(!raw.is_null(), "rte_fib does not take the routes");
        Ok(Native { raw, _adjacencies: adjacencies })
    }

    /// Destinations inside random routes: a list that goes round, of so many different ones.
    pub(crate) fn destinations(&self, flows: usize) -> Vec<Fresh> {
        let mut random = Random(0xb0d5_704e);
        let flows: Vec<Fresh> = core::iter::repeat_with(|| {
            let (address, len) = self.routes[random.next() as usize % self.routes.len()];
            address | random.next() & !mask(len)
        })
        .filter(|address| usual(*address))
        .take(flows)
        .map(fresh())
        .collect();
        list(|| flows[random.next() as usize % flows.len()])
    }
}

/// A list of destinations to go round.
pub(crate) fn list(next: impl FnMut() -> Fresh) -> Vec<Fresh> {
    core::iter::repeat_with(next).take(LIST).collect()
}

fn mac(hop: u32) -> MacAddr {
    let [.., a, b] = hop.to_be_bytes();
    MacAddr([2, 9, 9, 9, a, b])
}

/// As the C router has it.
fn adjacency(hop: u32) -> [u64; 2] {
    let (dst, src) = (mac(hop).0, MAC.0);
    let [low, high] = 1500u16.to_le_bytes();
    [
        u64::from_le_bytes([dst[0], dst[1], dst[2], dst[3], dst[4], dst[5], src[0], src[1]]),
        u64::from_le_bytes([src[2], src[3], src[4], src[5], 1, 1, low, high]),
    ]
}

/// What the source writes into a packet for a destination.
pub(crate) fn fresh() -> impl FnMut(u32) -> Fresh {
    let frame = packet_to([0; 4]);
    let mut head: [u8; 20] = *frame[14..].first_chunk().expect("an IPv4 header");
    move |dst| {
        head[10..12].fill(0);
        head[16..20].copy_from_slice(&dst.to_be_bytes());
        let sum = checksum::of(&head).to_be_bytes();
        Fresh { ttl_protocol_checksum: u32::from_le_bytes([head[8], head[9], sum[0], sum[1]]), dst: dst.to_be() }
    }
}

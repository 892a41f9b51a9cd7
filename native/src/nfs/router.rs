//! Routers of both IP versions: route tables, destinations, and their C baselines.

pub(crate) mod host_routes;
pub(crate) mod ipv4;
pub(crate) mod ipv6;

use crate::fixture::{CLoop, Random};
use crate::fresh::{self, Destinations, FreshFields};
use crate::pair::{Pair, node_in};
use anyhow::Context;
use core::ffi::c_void;
use core::fmt::Display;
use core::str::FromStr;
use flate2::read::GzDecoder;
use graph::BuildContext;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use wire::MacAddr;

/// Number of next hops, which routes use in turn.
const NEXT_HOPS: u32 = 1000;
/// MAC address of the router, the destination of the benchmark's packets.
pub(crate) const MAC: MacAddr = wire::build::DST_MAC;

/// Address type of a router.
pub(crate) trait Version: Copy + Display + FromStr + 'static {
    /// Prefix of row names.
    const NAME: &'static str;
    /// Number of random routes.
    const ROUTES: usize = 16_000;
    /// Setting `table` of the router.
    const TABLE: &'static str = "lpm";
    /// True if an Internet routing table is measured as well.
    const HAS_INTERNET_TABLE: bool = true;
    /// Prefix length of the network of the next hops, which contains no route and no destination.
    const LENGTH: u8;
    /// C baseline.
    const NATIVE: CLoop;
    /// Fields that are written into a packet for a destination.
    type Fresh: FreshFields;

    /// Returns address number `n` in the network of the next hops.
    fn neighbour(n: u32) -> Self;

    /// Returns true if the address is neither a martian nor in the network of the next hops.
    fn is_routable(self) -> bool;

    /// Returns a random route.
    fn route(random: &mut Random) -> (Self, u8);

    /// Returns a random address of a prefix.
    fn random_address(self, len: u8, random: &mut Random) -> Self;

    /// Returns a function that computes the fields for a destination.
    fn fresh() -> impl FnMut(Self) -> Self::Fresh;

    /// Returns whole bursts of valid and malformed frames, some of them to routed addresses, which `to` returns.
    fn frames(to: impl FnMut() -> Self) -> Vec<Vec<u8>>;

    /// Creates the router in C, and returns it with the function that frees it; null if DPDK rejects the routes. The
    /// router keeps a reference to `adjacencies`.
    fn native(routes: &[(Self, u8)], values: &[u32], adjacencies: &[[u64; 2]]) -> (*mut c_void, Free);
}

/// Function that frees a router in C.
pub(crate) type Free = unsafe extern "C" fn(*mut c_void);

/// Route table.
pub(crate) struct RouteTable<A> {
    name: String,
    routes: Vec<(A, u8)>,
}

/// A router in C with its adjacencies.
pub(crate) struct Native {
    raw: *mut c_void,
    free: Free,
    _adjacencies: Vec<[u64; 2]>,
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: created together with this function, and freed once.
        unsafe { (self.free)(self.raw) }
    }
}

impl Native {
    pub(crate) fn state(&self) -> *mut c_void {
        self.raw
    }
}

impl<A: Version> RouteTable<A> {
    /// Returns the tables whose names contain `only`.
    pub(crate) fn selected(only: &str) -> anyhow::Result<Vec<RouteTable<A>>> {
        let mut all = vec![RouteTable::random()];
        // the name of the Internet table contains its size, which is known after reading the file: it may be one of
        // these
        let mut numbers = only.split(|c: char| !c.is_ascii_digit());
        if A::HAS_INTERNET_TABLE && numbers.any(|number| name::<A>(number).contains(only)) {
            all.extend(RouteTable::internet()?);
        }
        all.retain(|table| table.name.contains(only));
        Ok(all)
    }

    /// Returns a table of random routes.
    fn random() -> RouteTable<A> {
        let mut random = Random(0x9e37_79b9);
        let mut routes = vec![];
        while routes.len() < A::ROUTES {
            let (address, len) = A::route(&mut random);
            if address.is_routable() {
                routes.push((address, len));
            }
        }
        RouteTable { name: name::<A>(routes.len() / 1000), routes }
    }

    /// Returns the Internet routing table, if its file exists.
    fn internet() -> anyhow::Result<Option<RouteTable<A>>> {
        let data = std::env::var_os("BONDSTONE_DATA").map_or_else(|| PathBuf::from("../shared/data"), PathBuf::from);
        let path = data.join("routes/prefixes.txt.gz");
        let Ok(file) = File::open(&path) else {
            println!("skipped: Internet routing table: {} not found", path.display());
            return Ok(None);
        };
        let mut routes = vec![];
        for line in BufReader::new(GzDecoder::new(file)).lines() {
            let line = line.with_context(|| path.display().to_string())?;
            let Some((address, len)) = line.trim().split_once('/') else { continue };
            let (Ok(address), Ok(len)) = (address.parse::<A>(), len.parse::<u8>()) else { continue };
            if address.is_routable() {
                routes.push((address, len));
            }
        }
        Ok(Some(RouteTable { name: name::<A>(routes.len() / 1000), routes }))
    }

    /// Returns the router with this table, whose file is written to `folder`.
    pub(crate) fn pair(&self, folder: &Path) -> anyhow::Result<Pair> {
        let file = folder.join(format!("routes{}.txt", self.routes.len()));
        let mut out = std::io::BufWriter::new(File::create(&file)?);
        for (address, len) in &self.routes {
            writeln!(out, "{address}/{len}")?;
        }
        out.flush()?;
        let hop = |n: u32| A::neighbour(2 + n);
        let via: Vec<_> = (0..NEXT_HOPS).map(|n| format!("\"{}\"", hop(n))).collect();
        let macs: Vec<_> = (0..NEXT_HOPS).map(|n| format!("\"{}\" = \"{}\"", hop(n), mac(n))).collect();
        let settings = format!(
            "table = {:?}\ninterface.a = {{ addresses = [\"{}/{}\"], mac = \"{MAC}\" }}\nroutes = {:?}\nvia = [{}]\nneighbour = {{ {} }}\n",
            A::TABLE,
            A::neighbour(1),
            A::LENGTH,
            file,
            via.join(", "),
            macs.join(", ")
        );
        let nodes = move || vec![node_in("l3fwd", &settings, &BuildContext::default())];
        Ok(Pair::new(&self.name, Box::new(nodes), A::NATIVE))
    }

    /// Returns the C baseline with this table.
    pub(crate) fn native(&self) -> anyhow::Result<Native> {
        let adjacencies: Vec<[u64; 2]> = core::iter::once([0, 0]).chain((0..NEXT_HOPS).map(adjacency)).collect();
        let values: Vec<u32> = (0..self.routes.len() as u32).map(|n| 1 + n % NEXT_HOPS).collect();
        let (raw, free) = A::native(&self.routes, &values, &adjacencies);
        anyhow::ensure!(!raw.is_null(), "{}: DPDK rejects the routes", self.name);
        Ok(Native { raw, free, _adjacencies: adjacencies })
    }

    /// Returns a list of `flows` different destinations in random routes.
    pub(crate) fn destinations(&self, flows: usize) -> Box<dyn Destinations> {
        let mut random = Random(0xb0d5_704e);
        let flows: Vec<_> = self.routed_addresses(&mut random).take(flows).map(A::fresh()).collect();
        fresh::list(|| flows[random.next() as usize % flows.len()])
    }

    /// Returns valid and malformed frames, some of them to destinations in random routes.
    pub(crate) fn frames(&self) -> Vec<Vec<u8>> {
        let mut random = Random(0x0dd5);
        let mut addresses = self.routed_addresses(&mut random);
        A::frames(|| addresses.next().expect("unbounded"))
    }

    /// Returns routable addresses in random routes.
    fn routed_addresses(&self, random: &mut Random) -> impl Iterator<Item = A> {
        core::iter::repeat_with(|| {
            let (address, len) = self.routes[random.next() as usize % self.routes.len()];
            address.random_address(len, random)
        })
        .filter(|address| address.is_routable())
    }
}

/// Returns the name of the row for a number of routes in thousands.
fn name<A: Version>(thousands: impl Display) -> String {
    format!("{} {thousands}k routes", A::NAME)
}

fn mac(hop: u32) -> MacAddr {
    let [.., a, b] = hop.to_be_bytes();
    MacAddr([2, 9, 9, 9, a, b])
}

/// Returns an adjacency in the format of the C routers.
fn adjacency(hop: u32) -> [u64; 2] {
    let (dst, src) = (mac(hop).0, MAC.0);
    let [low, high] = 1500u16.to_le_bytes();
    [
        u64::from_le_bytes([dst[0], dst[1], dst[2], dst[3], dst[4], dst[5], src[0], src[1]]),
        u64::from_le_bytes([src[2], src[3], src[4], src[5], 1, 1, low, high]),
    ]
}

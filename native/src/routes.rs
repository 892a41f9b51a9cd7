//! The rows of routers, of either IP version: tables, destinations, and the same for C.

use crate::fixture::{CLoop, Random};
use crate::fresh::{self, Destinations, Refresh};
use crate::rows::{Pair, node_in};
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

/// Next hops of the routes, in turn.
const HOPS: u32 = 1000;
/// The router's own MAC address: that to which the benchmark's packets are sent.
pub(crate) const MAC: MacAddr = wire::build::DST_MAC;

/// An IP version, by its addresses.
pub(crate) trait Version: Copy + Display + FromStr + 'static {
    /// What the names of its rows begin with.
    const NAME: &'static str;
    /// Random routes of a table.
    const ROUTES: usize = 16_000;
    /// What holds routes to single addresses, as the router's settings have it.
    const TABLE: &'static str = "lpm";
    /// Whether there is a real table of such routes.
    const REAL: bool = true;
    /// Length of the next hops' network, which no route and no destination lies in.
    const LENGTH: u8;
    /// The router in C.
    const NATIVE: CLoop;
    /// What a packet for a destination gets.
    type Fresh: Refresh;

    /// The address with this number in the next hops' network.
    fn neighbour(n: u32) -> Self;

    /// Whether a router forwards to it: no martian, and not on the next hops' network.
    fn is_usual(self) -> bool;

    /// A random route, usual or not.
    fn route(random: &mut Random) -> (Self, u8);

    /// A random address below a prefix.
    fn below(self, len: u8, random: &mut Random) -> Self;

    /// What the source writes into a packet for a destination.
    fn fresh() -> impl FnMut(Self) -> Self::Fresh;

    /// Frames of every sort, whole bursts, some of them to the addresses that `to` gives, which are routed.
    fn frames(to: impl FnMut() -> Self) -> Vec<Vec<u8>>;

    /// The router in C, and what ends it; null when DPDK does not take the routes. It keeps `adjacencies`.
    fn native(routes: &[(Self, u8)], values: &[u32], adjacencies: &[[u64; 2]]) -> (*mut c_void, Free);
}

/// Ends a router in C.
pub(crate) type Free = unsafe extern "C" fn(*mut c_void);

/// Routes.
pub(crate) struct Table<A> {
    name: String,
    routes: Vec<(A, u8)>,
}

/// A router in C. Its adjacencies live as long as it does.
pub(crate) struct Native {
    raw: *mut c_void,
    free: Free,
    _adjacencies: Vec<[u64; 2]>,
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: made together with what ends it, and nothing else has it.
        unsafe { (self.free)(self.raw) }
    }
}

impl Native {
    pub(crate) fn state(&self) -> *mut c_void {
        self.raw
    }
}

impl<A: Version> Table<A> {
    /// The tables whose names hold `only`.
    pub(crate) fn wanted(only: &str) -> anyhow::Result<Vec<Table<A>>> {
        let mut all = vec![Table::random()];
        // the real one's name has a number that only its file can tell: may it be one of these?
        let mut numbers = only.split(|c: char| !c.is_ascii_digit());
        if A::REAL && numbers.any(|number| name::<A>(number).contains(only)) {
            all.extend(Table::real()?);
        }
        all.retain(|table| table.name.contains(only));
        Ok(all)
    }

    /// Random routes.
    fn random() -> Table<A> {
        let mut random = Random(0x9e37_79b9);
        let mut routes = vec![];
        while routes.len() < A::ROUTES {
            let (address, len) = A::route(&mut random);
            if address.is_usual() {
                routes.push((address, len));
            }
        }
        Table { name: name::<A>(routes.len() / 1000), routes }
    }

    /// The real table, if it is there.
    fn real() -> anyhow::Result<Option<Table<A>>> {
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
            let (Ok(address), Ok(len)) = (address.parse::<A>(), len.parse::<u8>()) else { continue };
            if address.is_usual() {
                routes.push((address, len));
            }
        }
        Ok(Some(Table { name: name::<A>(routes.len() / 1000), routes }))
    }

    /// The router with this table, whose file is put into `folder`.
    pub(crate) fn pair(&self, folder: &Path) -> anyhow::Result<Pair> {
        let file = folder.join(format!("routes{}.txt", self.routes.len()));
        let mut out = std::io::BufWriter::new(File::create(&file)?);
        for (address, len) in &self.routes {
            writeln!(out, "{address}/{len}")?;
        }
        out.flush()?;
        let hop = |n: u32| A::neighbour(2 + n);
        let via: Vec<_> = (0..HOPS).map(|n| format!("\"{}\"", hop(n))).collect();
        let macs: Vec<_> = (0..HOPS).map(|n| format!("\"{}\" = \"{}\"", hop(n), mac(n))).collect();
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

    /// The same router in C.
    pub(crate) fn native(&self) -> anyhow::Result<Native> {
        let adjacencies: Vec<[u64; 2]> = core::iter::once([0, 0]).chain((0..HOPS).map(adjacency)).collect();
        let values: Vec<u32> = (0..self.routes.len() as u32).map(|n| 1 + n % HOPS).collect();
        let (raw, free) = A::native(&self.routes, &values, &adjacencies);
        anyhow::ensure!(!raw.is_null(), "{}: DPDK does not take the routes", self.name);
        Ok(Native { raw, free, _adjacencies: adjacencies })
    }

    /// Destinations inside random routes: a list that goes round, of so many different ones.
    pub(crate) fn destinations(&self, flows: usize) -> Box<dyn Destinations> {
        let mut random = Random(0xb0d5_704e);
        let flows: Vec<_> = self.inside(&mut random).take(flows).map(A::fresh()).collect();
        fresh::list(|| flows[random.next() as usize % flows.len()])
    }

    /// Frames of every sort, some of them to destinations inside random routes.
    pub(crate) fn frames(&self) -> Vec<Vec<u8>> {
        let mut random = Random(0x0dd5);
        let mut inside = self.inside(&mut random);
        A::frames(|| inside.next().expect("there is always one more"))
    }

    /// Usual addresses inside random routes.
    fn inside(&self, random: &mut Random) -> impl Iterator<Item = A> {
        core::iter::repeat_with(|| {
            let (address, len) = self.routes[random.next() as usize % self.routes.len()];
            address.below(len, random)
        })
        .filter(|address| address.is_usual())
    }
}

/// Name of the row with so many thousand routes.
fn name<A: Version>(thousands: impl Display) -> String {
    format!("{} {thousands}k routes", A::NAME)
}

fn mac(hop: u32) -> MacAddr {
    let [.., a, b] = hop.to_be_bytes();
    MacAddr([2, 9, 9, 9, a, b])
}

/// As the C routers have it.
fn adjacency(hop: u32) -> [u64; 2] {
    let (dst, src) = (mac(hop).0, MAC.0);
    let [low, high] = 1500u16.to_le_bytes();
    [
        u64::from_le_bytes([dst[0], dst[1], dst[2], dst[3], dst[4], dst[5], src[0], src[1]]),
        u64::from_le_bytes([src[2], src[3], src[4], src[5], 1, 1, low, high]),
    ]
}

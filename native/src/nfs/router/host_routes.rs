//! Routes to single IPv4 addresses: exact match, compared with `rte_hash`.

use crate::fixture::{self, CLoop, Random};
use crate::fresh::Fresh;
use crate::nfs::router::ipv4::native_router;
use crate::nfs::router::{Free, Version};
use core::ffi::c_void;
use core::fmt;
use core::net::{AddrParseError, Ipv4Addr};
use core::str::FromStr;

/// An address with a host route.
#[derive(Clone, Copy)]
pub(crate) struct Host(Ipv4Addr);

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Host {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, AddrParseError> {
        text.parse().map(Host)
    }
}

impl Version for Host {
    const NAME: &'static str = "router exact";
    const ROUTES: usize = 1_000_000;
    const TABLE: &'static str = "exact";
    const HAS_INTERNET_TABLE: bool = false;
    const LENGTH: u8 = Ipv4Addr::LENGTH;
    const NATIVE: CLoop = fixture::native_router_exact;
    type Fresh = Fresh;

    fn neighbour(n: u32) -> Host {
        Host(Ipv4Addr::neighbour(n))
    }

    fn is_routable(self) -> bool {
        self.0.is_routable()
    }

    fn route(random: &mut Random) -> (Host, u8) {
        (Host(Ipv4Addr::from_bits((1 + random.next() % 223) << 24 | random.next() & 0xff_ffff)), 32)
    }

    fn random_address(self, _: u8, _: &mut Random) -> Host {
        self
    }

    fn fresh() -> impl FnMut(Host) -> Fresh {
        let mut fresh = Ipv4Addr::fresh();
        move |host| fresh(host.0)
    }

    fn frames(mut to: impl FnMut() -> Host) -> Vec<Vec<u8>> {
        Ipv4Addr::frames(move || to().0)
    }

    fn native(routes: &[(Host, u8)], values: &[u32], adjacencies: &[[u64; 2]]) -> (*mut c_void, Free) {
        native_router(routes.iter().map(|(host, len)| (host.0, *len)), values, adjacencies, true)
    }
}

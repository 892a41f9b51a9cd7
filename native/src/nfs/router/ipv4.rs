//! IPv4 routes and destinations.

use crate::fixture::{self, CLoop, Random, mask};
use crate::fresh::{self, Fresh};
use crate::nfs::router::{Free, MAC, Version};
use crate::verify;
use core::ffi::{c_int, c_void};
use core::net::Ipv4Addr;

/// Network of the next hops.
const NETWORK: u32 = u32::from_be_bytes([198, 18, 0, 0]);

unsafe extern "C" {
    fn native_router_new(
        addresses: *const u32,
        lengths: *const u8,
        values: *const u32,
        n: u32,
        adjacencies: *const [u64; 2],
        mac: *const u8,
        exact: c_int,
    ) -> *mut c_void;
    fn native_router_free(router: *mut c_void);
}

impl Version for Ipv4Addr {
    const NAME: &'static str = "router";
    const LENGTH: u8 = 20;
    const NATIVE: CLoop = fixture::native_router;
    type Fresh = Fresh;

    fn neighbour(n: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(NETWORK + n)
    }

    fn is_routable(self) -> bool {
        let [first, ..] = self.octets();
        first != 0 && first != 127 && first < 224 && self.to_bits() & mask(Self::LENGTH) != NETWORK
    }

    /// Returns a /16 to /24, or one time in fifty a longer prefix.
    fn route(random: &mut Random) -> (Ipv4Addr, u8) {
        let len = if random.next().is_multiple_of(50) { 25 + random.next() % 8 } else { 16 + random.next() % 9 } as u8;
        let address = (1 + random.next() % 223) << 24 | random.next() & 0xff_ffff;
        (Ipv4Addr::from_bits(address & mask(len)), len)
    }

    fn random_address(self, len: u8, random: &mut Random) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.to_bits() | random.next() & !mask(len))
    }

    fn fresh() -> impl FnMut(Ipv4Addr) -> Fresh {
        fresh::fresh()
    }

    fn frames(_: impl FnMut() -> Ipv4Addr) -> Vec<Vec<u8>> {
        verify::frames()
    }

    fn native(routes: &[(Ipv4Addr, u8)], values: &[u32], adjacencies: &[[u64; 2]]) -> (*mut c_void, Free) {
        native_router(routes.iter().copied(), values, adjacencies, false)
    }
}

/// Creates a router in C, with `exact` for routes to single addresses only, and returns it with the function that frees
/// it.
pub(crate) fn native_router(
    routes: impl Iterator<Item = (Ipv4Addr, u8)>,
    values: &[u32],
    adjacencies: &[[u64; 2]],
    exact: bool,
) -> (*mut c_void, Free) {
    let (addresses, lengths): (Vec<u32>, Vec<u8>) = routes.map(|(a, len)| (a.to_bits(), len)).unzip();
    assert_eq!(values.len(), addresses.len(), "one value per route");
    // SAFETY: three arrays of that length, which are copied, and adjacencies, which the caller keeps.
    let router = unsafe {
        native_router_new(
            addresses.as_ptr(),
            lengths.as_ptr(),
            values.as_ptr(),
            addresses.len() as u32,
            adjacencies.as_ptr(),
            MAC.0.as_ptr(),
            exact.into(),
        )
    };
    (router, native_router_free)
}

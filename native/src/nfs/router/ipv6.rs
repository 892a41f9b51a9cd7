//! IPv6 routes, destinations and malformed frames.

use crate::fixture::{self, CLoop, Random};
use crate::fresh::{self, Fresh6};
use crate::nfs::router::{Free, MAC, Version};
use crate::verify;
use core::ffi::c_void;
use core::net::Ipv6Addr;
use wire::build;

/// Network of the next hops (RFC 5180 §8).
const NETWORK: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0);

unsafe extern "C" {
    fn native_router6_new(
        addresses: *const [u8; 16],
        lengths: *const u8,
        values: *const u32,
        n: u32,
        adjacencies: *const [u64; 2],
        mac: *const u8,
    ) -> *mut c_void;
    fn native_router6_free(router: *mut c_void);
}

/// Returns the mask of a prefix length.
fn mask(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

fn bits(random: &mut Random) -> u128 {
    (0..4).fold(0, |bits, _| bits << 32 | u128::from(random.next()))
}

impl Version for Ipv6Addr {
    const NAME: &'static str = "router6";
    const LENGTH: u8 = 64;
    const NATIVE: CLoop = fixture::native_router6;
    type Fresh = Fresh6;

    fn neighbour(n: u32) -> Ipv6Addr {
        Ipv6Addr::from_bits(NETWORK.to_bits() + u128::from(n))
    }

    /// Global unicast addresses are in 2000::/3 (RFC 4291 §2.4).
    fn is_routable(self) -> bool {
        let bits = self.to_bits();
        bits >> 125 == 1 && bits & mask(Self::LENGTH) != NETWORK.to_bits()
    }

    /// Returns a /32 to /64 in 2000::/3.
    fn route(random: &mut Random) -> (Ipv6Addr, u8) {
        let len = 32 + (random.next() % 33) as u8;
        (Ipv6Addr::from_bits((1 << 125 | bits(random) >> 3) & mask(len)), len)
    }

    fn random_address(self, len: u8, random: &mut Random) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.to_bits() | bits(random) & !mask(len))
    }

    fn fresh() -> impl FnMut(Ipv6Addr) -> Fresh6 {
        fresh::fresh6()
    }

    fn frames(to: impl FnMut() -> Ipv6Addr) -> Vec<Vec<u8>> {
        [verify::frames(), frames(to)].concat()
    }

    fn native(routes: &[(Ipv6Addr, u8)], values: &[u32], adjacencies: &[[u64; 2]]) -> (*mut c_void, Free) {
        let (addresses, lengths): (Vec<[u8; 16]>, Vec<u8>) = routes.iter().map(|(a, len)| (a.octets(), *len)).unzip();
        assert_eq!(values.len(), addresses.len(), "one value per route");
        // SAFETY: three arrays of that length, which are copied, and adjacencies, which the caller keeps.
        let router = unsafe {
            native_router6_new(
                addresses.as_ptr(),
                lengths.as_ptr(),
                values.as_ptr(),
                addresses.len() as u32,
                adjacencies.as_ptr(),
                MAC.0.as_ptr(),
            )
        };
        (router, native_router6_free)
    }
}

/// Returns two bursts of valid and malformed IPv6 frames. Their sources have no route, so that no errors are sent.
fn frames(mut to: impl FnMut() -> Ipv6Addr) -> Vec<Vec<u8>> {
    let from = Ipv6Addr::new(0xfd, 0, 0, 0, 0, 0, 0, 1);
    let address = |text: &str| text.parse::<Ipv6Addr>().expect("an address");
    let sources = ["::", "::1", "::2", "0:0:0:1::", "fe7f::1", "fe80::1", "febf:ffff::1", "fec0::1"].map(address);
    let unrouted = ["::1", "4000::1", "fd00::1", "fe80::1", "fec0::1", "ff02::1", "ff0e::1"].map(address);
    let mut all = vec![];
    for n in 0..8u16 {
        let at = usize::from(n);
        let hops = [0, 1, 2, 64, 128, 255, 1, 17][at];
        let payload = vec![n as u8; 3 * at];
        let udp = |src, dst| build::udp6(src, dst, 1000 + n, 53).payload(&payload);
        all.push(udp(from, to()).ttl(hops).to_vec());
        all.push(udp(from, to()).ttl(hops + 2).pad_to(80).to_vec());
        all.push(udp(sources[at], to()).to_vec());
        all.push(if n < 7 { udp(from, unrouted[at]) } else { udp(address("ff02::1"), to()) }.to_vec());
        // invalid lengths, versions and flow labels
        let mut invalid = udp(from, to()).to_vec();
        match n {
            6 => invalid[19] += 1,
            7 => invalid[19] -= 1,
            _ => invalid[14 + at] ^= 0x1f,
        }
        all.push(invalid);
        // truncated, in a different header each time
        let mut cut = udp(from, to()).to_vec();
        cut.truncate(8 + 7 * at);
        all.push(cut);
        // to another MAC address, or of another protocol
        let mut other = udp(from, to()).to_vec();
        other[[0, 1, 2, 3, 4, 5, 12, 13][at]] ^= 1;
        all.push(other);
        // around the MTU of 1,500 bytes
        all.push(build::udp6(from, to(), 1000 + n, 53).payload(&vec![n as u8; 1500 - 48 - 4 + at]).to_vec());
    }
    assert_eq!(all.len(), 64);
    all
}

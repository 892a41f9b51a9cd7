//! Random prefixes that do not overlap.

use std::net::Ipv4Addr;

use crate::random::Random;

/// A prefix and its length.
pub(crate) type Prefix = (Ipv4Addr, u8);

/// Networks in which no prefix lies: what is not routed, what next hops and services use, what packets come from.
const NOT: [(Ipv4Addr, u8); 8] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(224, 0, 0, 0), 3),
];

/// `count` prefixes, at most 100,000, of /16 to /24 with each length as likely where there is room. Of none is another
/// a part, so every address within belongs to it alone.
pub(crate) fn random(count: u32, random: &mut Random) -> Vec<Prefix> {
    // A bit for each /24.
    let mut taken = vec![false; 1 << 24];
    for (net, len) in NOT {
        let first = (net.to_bits() >> 8) as usize;
        taken[first..first + (1 << (24_u8.saturating_sub(len)))].fill(true);
    }
    let mut all = Vec::with_capacity(count as usize);
    let mut refused = 0;
    while all.len() < count as usize {
        // Small prefixes fit where large ones find no room.
        let shortest = 16 + (refused / 1000_u64).min(8);
        let len = shortest + random.below(25 - shortest);
        let nets = 1_usize << (24 - len);
        let first = random.below(1 << len) as usize * nets;
        let place = &mut taken[first..first + nets];
        if place.contains(&true) {
            refused += 1;
            continue;
        }
        place.fill(true);
        all.push((Ipv4Addr::from_bits((first << 8) as u32), len as u8));
    }
    all
}

/// Returns a random address of a prefix, not its first or last.
pub(crate) fn host((net, len): Prefix, random: &mut Random) -> Ipv4Addr {
    let hosts = 1_u64 << (32 - len.clamp(8, 30));
    Ipv4Addr::from_bits(net.to_bits() + 1 + random.below(hosts - 2) as u32)
}

//! Look-ups by a worker, in the tables of all VRFs.

use super::host_routes::{self, HostRoutes};
use core::array;
use packet::BURST;
use tables::cuckoo::{self, Key, Key48, Key144};
use tables::{lpm4, lpm6};

/// Readers of the tables of all VRFs.
pub(crate) struct Readers {
    prefixes: Box<[(lpm4::Reader, lpm6::Reader)]>,
    hosts: Option<Box<host_routes::Reader>>,
}

impl Readers {
    /// Returns readers of the tables of each VRF.
    pub(in crate::l3fwd::fib) fn new(
        prefixes: impl Iterator<Item = (lpm4::Reader, lpm6::Reader)>,
        hosts: Option<&HostRoutes>,
    ) -> Self {
        Readers { prefixes: prefixes.collect(), hosts: hosts.map(|hosts| Box::new(hosts.reader())) }
    }

    /// Looks up at most a burst of addresses in a VRF; `values` receives those of the longest matching prefixes, or 0.
    #[inline(always)]
    pub(crate) fn look_up4(&mut self, vrf: usize, addresses: &[u32], values: &mut [u32]) {
        let prefixes = &mut self.prefixes[vrf].0;
        match &mut self.hosts {
            None => prefixes.look_up(addresses, values),
            Some(hosts) => {
                let key = |i: usize| Key48::vrf_ipv4(vrf as u16, addresses[i]);
                let missing = look_up_hosts(&mut hosts.v4, key, values);
                look_up_some(missing, addresses, values, |addresses, values| prefixes.look_up(addresses, values));
            }
        }
    }

    /// As [`look_up4`](Self::look_up4).
    #[inline(always)]
    pub(crate) fn look_up6(&mut self, vrf: usize, addresses: &[u128], values: &mut [u32]) {
        let prefixes = &mut self.prefixes[vrf].1;
        match &mut self.hosts {
            None => prefixes.look_up(addresses, values),
            Some(hosts) => {
                let key = |i: usize| Key144::vrf_ipv6(vrf as u16, addresses[i]);
                let missing = look_up_hosts(&mut hosts.v6, key, values);
                look_up_some(missing, addresses, values, |addresses, values| prefixes.look_up(addresses, values));
            }
        }
    }

    /// As [`look_up4`](Self::look_up4) for as many addresses as there are values, each in a VRF of its own.
    #[inline(always)]
    pub(crate) fn look_up4_in_vrfs(&mut self, vrfs: &[u8; BURST], addresses: &[u32; BURST], values: &mut [u32]) {
        let missing = match &mut self.hosts {
            None => first(values.len()),
            Some(hosts) => {
                let key = |i: usize| Key48::vrf_ipv4(vrfs[i].into(), addresses[i]);
                look_up_hosts(&mut hosts.v4, key, values)
            }
        };
        // tables of different VRFs: their loads overlap only if they are fetched before
        ones(missing).for_each(|i| self.prefixes[usize::from(vrfs[i])].0.prefetch(addresses[i]));
        ones(missing).for_each(|i| values[i] = self.prefixes[usize::from(vrfs[i])].0.look_up_one(addresses[i]));
    }

    /// As [`look_up4_in_vrfs`](Self::look_up4_in_vrfs).
    #[inline(always)]
    pub(crate) fn look_up6_in_vrfs(&mut self, vrfs: &[u8; BURST], addresses: &[u128; BURST], values: &mut [u32]) {
        let missing = match &mut self.hosts {
            None => first(values.len()),
            Some(hosts) => {
                let key = |i: usize| Key144::vrf_ipv6(vrfs[i].into(), addresses[i]);
                look_up_hosts(&mut hosts.v6, key, values)
            }
        };
        ones(missing).for_each(|i| self.prefixes[usize::from(vrfs[i])].1.prefetch(addresses[i]));
        ones(missing).for_each(|i| values[i] = self.prefixes[usize::from(vrfs[i])].1.look_up_one(addresses[i]));
    }

    /// Declares that no looked-up value is in use until the next look-up.
    pub(crate) fn idle(&mut self) {
        for (v4, v6) in &mut self.prefixes {
            v4.idle();
            v6.idle();
        }
    }
}

/// Returns a mask of the first `n` places of a burst.
#[inline(always)]
fn first(n: usize) -> u64 {
    1u64.checked_shl(n as u32).map_or(u64::MAX, |bit| bit - 1)
}

/// Returns the places in a mask.
#[inline(always)]
fn ones(mut mask: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let at = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (at < BURST).then_some(at)
    })
}

/// Looks up keys, one for each of `values`, in an exact-match table. Returns the mask of those that it does not contain.
#[inline(never)]
fn look_up_hosts<K: Key + Default>(exact: &mut cuckoo::Reader<K>, key: impl Fn(usize) -> K, values: &mut [u32]) -> u64 {
    let n = values.len().min(BURST);
    let keys: [K; BURST] = array::from_fn(|i| if i < n { key(i) } else { K::default() });
    let mut found = [None; BURST];
    exact.get_batch(&keys[..n], &mut found[..n]);
    let mut missing = 0;
    for (i, (value, found)) in values.iter_mut().zip(&found[..n]).enumerate() {
        match found {
            Some(found) => *value = (*found).into(),
            None => missing |= 1 << i,
        }
    }
    missing
}

/// Looks up the addresses in a mask by `look_up`.
#[inline(always)]
fn look_up_some<A: Copy + Default>(
    mask: u64,
    addresses: &[A],
    values: &mut [u32],
    look_up: impl FnOnce(&[A], &mut [u32]),
) {
    if mask == 0 {
        return;
    }
    let (mut some, mut found, mut n) = ([A::default(); BURST], [0; BURST], 0);
    for i in ones(mask) {
        some[n & (BURST - 1)] = addresses[i];
        n += 1;
    }
    look_up(&some[..n], &mut found[..n]);
    ones(mask).zip(found).for_each(|(i, value)| values[i] = value);
}

//! Shares from which `top` and `doctor --running` warn.

use runtime::Occupancy;

/// Share of the entries of a table above which new ones are about to be refused or to evict others.
const TABLE: f64 = 0.9;
/// Share of the buffers of the packet pool above which ports are about to receive nothing.
const POOL: f64 = 0.9;
/// Busy share from which a worker has no time left; clocks are read some microseconds apart.
const BUSY: f64 = 0.995;

/// Returns true if a table is almost full.
pub(crate) fn is_table_full(table: Occupancy) -> bool {
    table.share() > TABLE
}

/// Returns true if the packet pool is almost empty.
pub(crate) fn is_pool_empty(pool: Occupancy) -> bool {
    pool.share() > POOL
}

/// Returns true if a worker is busy all the time.
pub(crate) fn is_saturated(busy: f64) -> bool {
    busy >= BUSY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_begin_above_nine_tenths() {
        let of = |used| Occupancy { used, capacity: 1000 };
        assert_eq!([900, 901].map(|n| (is_table_full(of(n)), is_pool_empty(of(n)))), [(false, false), (true, true)]);
        assert!(!is_table_full(Occupancy::default()) && !is_pool_empty(Occupancy::default()));
        assert_eq!([0.99, 0.996, 1.0].map(is_saturated), [false, true, true]);
    }
}

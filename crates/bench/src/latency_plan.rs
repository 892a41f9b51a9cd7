//! At which loads to measure latency.

/// Shares of the throughput unless told otherwise: a little, half, and where queues build up.
pub const SHARES: [f64; 4] = [0.1, 0.5, 0.8, 0.9];

/// A load to measure latency at.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// Share of the throughput.
    pub share: f64,
    /// Packets a second.
    pub load_pps: f64,
}

/// Loads at `shares` of a throughput, whole packets a second, in rising order.
///
/// RFC 2544 §26.2 wants latency at the throughput itself (share 1.0), where it says more of the depth of queues than of
/// the device; CSIT measures at 0, 10, 50 and 90 % of the partial drop rate. Shares that make less than `min_pps`, are
/// above 1.0 or come twice are left out: latency under overload is that of a full queue.
pub fn plan(throughput_pps: f64, shares: &[f64], min_pps: f64) -> Vec<Point> {
    let mut shares: Vec<f64> = shares.iter().copied().filter(|share| *share > 0.0 && *share <= 1.0).collect();
    shares.sort_by(f64::total_cmp);
    let points = shares.into_iter().map(|share| Point { share, load_pps: (throughput_pps * share).floor() });
    let mut points: Vec<Point> =
        points.filter(|point| point.load_pps >= min_pps.max(1.0) && point.load_pps.is_finite()).collect();
    points.dedup_by(|later, earlier| later.load_pps == earlier.load_pps);
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_throughput() {
        let loads = |throughput, shares: &[f64], min| {
            plan(throughput, shares, min).into_iter().map(|point| point.load_pps).collect::<Vec<_>>()
        };
        assert_eq!(loads(10e6, &SHARES, 1000.0), [1e6, 5e6, 8e6, 9e6]);
        assert_eq!(loads(10e6, &[0.9, 0.1, 0.1, 0.0, -1.0, 1.1, f64::NAN, 1.0], 1.0), [1e6, 9e6, 10e6]);
        assert_eq!(loads(5000.0, &SHARES, 1000.0), [2500.0, 4000.0, 4500.0]);
        assert!(plan(0.0, &SHARES, 1.0).is_empty());
        assert!(plan(f64::INFINITY, &SHARES, 1.0).is_empty());
    }
}

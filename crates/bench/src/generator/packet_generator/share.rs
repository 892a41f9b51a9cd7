//! The share of a load that one of several generator cores sends.

use crate::trial::Phase;

/// Packets of a burst at high rates, as in [`traffic::Pace::new`].
pub(super) const BURST: f64 = 8.0;
/// Sequence numbers remembered for each stream. More than on one core, as probes that a preempted core has received are
/// tracked when it runs again: 70 ms at 14.88 Mpps.
pub(super) const WINDOW: usize = 1 << 20;

/// Returns the share of a phase of one core, given by its index and the number of cores. The shares of all cores have the
/// packets of the phase.
pub(super) fn share_of(phase: &Phase, (core, cores): (usize, usize)) -> Phase {
    if cores == 1 {
        return *phase;
    }
    // rounded as in a schedule
    let packets = (phase.load_pps * phase.duration_s + 1e-6).floor() as u64;
    let (core, cores) = (core as u64, cores as u64);
    let own = packets / cores + u64::from(core < packets % cores);
    let load_pps = phase.load_pps / cores as f64;
    Phase { load_pps, duration_s: own as f64 / load_pps }
}

/// Returns the ticks by which the bursts of a core leave later than those of the first, so that the bursts of all cores
/// are evenly spaced.
pub(super) fn core_offset(phases: &[Phase], core: usize, cores: usize, hz: u64) -> u64 {
    let load_pps = phases.first().map_or(1.0, |phase| phase.load_pps) / cores as f64;
    // as in a schedule, packets are at most 1 µs early
    let burst = BURST.min(1.0 + (load_pps * 1e-6).floor());
    (burst / load_pps * core as f64 / cores as f64 * hz as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_the_packets_of_the_load() {
        for (load_pps, duration_s, cores) in [(1000.0, 1.0, 3), (14.88e6, 0.05, 2), (7.0, 1.0, 7), (123_457.0, 0.33, 4)]
        {
            let phase = Phase { load_pps, duration_s };
            let packets = |core| {
                let share = share_of(&phase, (core, cores));
                assert!((share.load_pps * cores as f64 - load_pps).abs() < 1e-6 * load_pps);
                (share.load_pps * share.duration_s + 1e-6).floor() as u64
            };
            let all: Vec<u64> = (0..cores).map(packets).collect();
            assert_eq!(all.iter().sum::<u64>(), (load_pps * duration_s + 1e-6).floor() as u64, "{all:?}");
            assert!(all.iter().max().unwrap() - all.iter().min().unwrap() <= 1, "{all:?}");
        }
    }

    #[test]
    fn bursts_of_cores_are_evenly_spaced() {
        let offsets = |load_pps| {
            let phases = [Phase { load_pps, duration_s: 1.0 }];
            [0, 1, 2, 3].map(|core| core_offset(&phases, core, 4, 1_000_000_000))
        };
        // one packet each 10 ms
        assert_eq!(offsets(100.0), [0, 10_000_000, 20_000_000, 30_000_000]);
        // bursts of 8 on each core, one burst each 0.2 µs
        assert_eq!(offsets(40e6), [0, 200, 400, 600]);
    }
}

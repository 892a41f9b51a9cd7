//! Expected results of searches on simulated DUTs.

use super::{Noise, Simulated, draw};
use crate::search::Goal;
use crate::search::SearchKind;

/// Number of equally likely capacities that represent the noise.
const NOISE_STEPS: u32 = 128;

impl Simulated {
    /// Returns the probability that a trial with one load loses more than a share `allowed` of its packets in the
    /// generator or the DUT, without stalls and host interference.
    pub fn loss_probability(&self, load_pps: f64, duration_s: f64, allowed: f64) -> f64 {
        let intended = (load_pps * duration_s + 1e-6).floor().max(1.0);
        let sent = (load_pps.min(self.generator_pps) * duration_s + 1e-6).floor().min(intended);
        let spare = allowed * intended - (intended - sent);
        let chance = |capacity: f64| {
            let excess = (load_pps.min(self.generator_pps) - capacity) * duration_s - self.buffer as f64;
            let lost = if excess > 1e-6 { (excess - 1e-6).ceil().max(1.0) } else { 0.0 };
            let left = (spare + 1e-9).floor() - lost;
            if left < 0.0 {
                return 1.0;
            }
            let holds = |k: f64| {
                if k < 0.0 { 0.0 } else { draw::at_most(k as u64, (sent - lost).max(0.0) as u64, self.loss_ratio) }
            };
            1.0 - (1.0 - self.flaw_share) * holds(left) - self.flaw_share * holds(left - 1.0)
        };
        match self.noise {
            Noise::None => chance(self.capacity_pps),
            Noise::Modes(share) => 0.5 * (chance(self.capacity_pps) + chance(self.capacity_pps * (1.0 - share))),
            Noise::Uniform(share) => {
                let at = |n: u32| {
                    self.capacity_pps * (1.0 + share * (2.0 * (f64::from(n) + 0.5) / f64::from(NOISE_STEPS) - 1.0))
                };
                (0..NOISE_STEPS).map(|n| chance(at(n))).sum::<f64>() / f64::from(NOISE_STEPS)
            }
            Noise::Normal(sigma) => {
                // equal steps from −5 to 5 standard deviations
                let (mut sum, width) = (0.0, 10.0 / f64::from(NOISE_STEPS));
                for n in 0..NOISE_STEPS {
                    let x = -5.0 + width * f64::from(n);
                    let weight = draw::phi(x + width) - draw::phi(x);
                    sum += weight * chance((self.capacity_pps * (1.0 + sigma * (x + width / 2.0))).max(0.0));
                }
                sum.clamp(0.0, 1.0)
            }
        }
    }

    /// Returns the probability that a load meets a goal in trials of the final duration.
    pub fn meets_probability(&self, goal: &Goal, load_pps: f64) -> f64 {
        let trials = (goal.sum_s() / goal.final_s() - 1e-9).ceil().max(1.0);
        let bad = (trials * goal.exceed_ratio() + 1e-9).floor();
        draw::at_most(bad as u64, trials as u64, self.loss_probability(load_pps, goal.final_s(), goal.loss_ratio()))
    }

    /// Returns the probability that a load meets a goal in a search of this kind, with trials of the final duration.
    pub fn meets_probability_in(&self, kind: SearchKind, goal: &Goal, load_pps: f64) -> f64 {
        let SearchKind::Verified { attempts, max_lost, .. } = kind else {
            return self.meets_probability(goal, load_pps);
        };
        let intended = (load_pps * goal.final_s()).max(1.0);
        let most = max_lost.map_or(1.0, |most| (most as f64 / intended).max(goal.loss_ratio()));
        let bad = self.loss_probability(load_pps, goal.final_s(), goal.loss_ratio());
        let again = (bad - self.loss_probability(load_pps, goal.final_s(), most)).max(0.0);
        // low loss in the first trial, or after trials that may be repeated
        (0..attempts).map(|before| again.powf(f64::from(before)) * (1.0 - bad)).sum()
    }

    /// Returns the highest whole load up to `max_pps` that meets a goal in a search with at least this probability; 0
    /// if there is none.
    pub fn expected_throughput(&self, kind: SearchKind, goal: &Goal, probability: f64, max_pps: f64) -> f64 {
        let (mut low, mut high) = (0.0_f64, max_pps.floor() + 1.0);
        while high - low > 1.0 {
            let middle = ((low + high) / 2.0).floor();
            if self.meets_probability_in(kind, goal, middle) >= probability { low = middle } else { high = middle }
        }
        low
    }
}

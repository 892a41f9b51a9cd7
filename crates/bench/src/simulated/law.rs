//! What a simulated device ought to be found to do.

use super::{Noise, Simulated, draw};
use crate::goal::Goal;
use crate::search::SearchKind;

/// Into how many equally likely capacities the noise is cut.
const CUTS: u32 = 128;

impl Simulated {
    /// The probability that a trial of one load misses more than a share `allowed` of its packets, of the generator's doing
    /// or the device's. Stalls and the machine's gaps are left out.
    pub fn chance_of_loss(&self, load_pps: f64, duration_s: f64, allowed: f64) -> f64 {
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
                let at =
                    |n: u32| self.capacity_pps * (1.0 + share * (2.0 * (f64::from(n) + 0.5) / f64::from(CUTS) - 1.0));
                (0..CUTS).map(|n| chance(at(n))).sum::<f64>() / f64::from(CUTS)
            }
            Noise::Normal(sigma) => {
                // Cut evenly from −5 to 5 standard deviations.
                let (mut sum, width) = (0.0, 10.0 / f64::from(CUTS));
                for n in 0..CUTS {
                    let x = -5.0 + width * f64::from(n);
                    let weight = draw::phi(x + width) - draw::phi(x);
                    sum += weight * chance((self.capacity_pps * (1.0 + sigma * (x + width / 2.0))).max(0.0));
                }
                sum.clamp(0.0, 1.0)
            }
        }
    }

    /// The probability that a load is found to meet a goal by trials of its final length.
    pub fn chance_to_hold(&self, goal: &Goal, load_pps: f64) -> f64 {
        let trials = (goal.sum_s() / goal.final_s() - 1e-9).ceil().max(1.0);
        let bad = (trials * goal.exceed_ratio() + 1e-9).floor();
        draw::at_most(bad as u64, trials as u64, self.chance_of_loss(load_pps, goal.final_s(), goal.loss_ratio()))
    }

    /// The probability that a load is found to meet a goal by a search of this kind, as far as trials of final length decide.
    pub fn chance_by(&self, kind: SearchKind, goal: &Goal, load_pps: f64) -> f64 {
        let SearchKind::Verified { tries, most_lost, .. } = kind else { return self.chance_to_hold(goal, load_pps) };
        let intended = (load_pps * goal.final_s()).max(1.0);
        let most = most_lost.map_or(1.0, |most| (most as f64 / intended).max(goal.loss_ratio()));
        let bad = self.chance_of_loss(load_pps, goal.final_s(), goal.loss_ratio());
        let again = (bad - self.chance_of_loss(load_pps, goal.final_s(), most)).max(0.0);
        // Good at the first try, or after so many that may be repeated.
        (0..tries).map(|before| again.powf(f64::from(before)) * (1.0 - bad)).sum()
    }

    /// The highest whole load up to `max_pps` that a search finds to meet a goal with a probability of at least `chance`; 0
    /// for none.
    pub fn holds_up_to(&self, kind: SearchKind, goal: &Goal, chance: f64, max_pps: f64) -> f64 {
        let (mut low, mut high) = (0.0_f64, max_pps.floor() + 1.0);
        while high - low > 1.0 {
            let middle = ((low + high) / 2.0).floor();
            if self.chance_by(kind, goal, middle) >= chance { low = middle } else { high = middle }
        }
        low
    }
}

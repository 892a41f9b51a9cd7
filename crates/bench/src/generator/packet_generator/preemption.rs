//! Preemption of the generator and the device, and the loss that it excuses.

use crate::trial::Trial;
use packet::clock;
use runtime::{OffCpuMeter, PollTimes};
use std::time::Duration;

/// Time during which the generator's thread was preempted, ticks.
pub(super) struct PreemptionMeter {
    /// Shortest gap between two updates that counts.
    threshold: u64,
    pub(super) last: u64,
    off_cpu: OffCpuMeter,
    off_cpu_sum: u64,
    off_cpu_max: u64,
    gap_sum: u64,
}

impl PreemptionMeter {
    pub(super) fn new() -> PreemptionMeter {
        let off_cpu = OffCpuMeter::start();
        PreemptionMeter {
            threshold: clock::hz() / 20_000,
            last: clock::cycles(),
            off_cpu,
            off_cpu_sum: 0,
            off_cpu_max: 0,
            gap_sum: 0,
        }
    }

    #[inline(always)]
    pub(super) fn update(&mut self, now: u64) {
        if now - self.last > self.threshold {
            self.record(now);
        }
        self.last = now;
    }

    #[cold]
    fn record(&mut self, now: u64) {
        let (off_cpu, gap) = (self.off_cpu.lap(now), now - self.last);
        self.off_cpu_sum += off_cpu;
        self.off_cpu_max = self.off_cpu_max.max(off_cpu.min(gap));
        self.gap_sum += gap;
    }

    /// Returns the times of the thread, whose longest gap was `gap_max_ns`.
    pub(super) fn times(&self, gap_max_ns: u64) -> PollTimes {
        let time = |ticks: u64| Duration::from_secs_f64(ticks as f64 / clock::hz() as f64);
        PollTimes {
            gap_max: Duration::from_nanos(gap_max_ns),
            gap_sum: time(self.gap_sum),
            off_cpu: time(self.off_cpu_sum),
            off_cpu_max: time(self.off_cpu_max),
        }
    }
}

/// Returns true if host interference may have caused all loss that the DUT did not cause in any case: packets lost, if the
/// generator was preempted for longer than a queue of `queue_size` packets lasts, or the DUT for half of that; packets
/// unsent, if the generator was preempted for longer than a packet may be late; and no more of them than are sent in the
/// time of preemption.
///
/// A long batch of the DUT is not preemption, whatever the gap. The generator's loop is a reference: unless the DUT
/// [works in it](super::DutStatus::works_in_generator), no iteration takes long, and a gap proves that the host did not
/// run it, also where steal time is not reported.
pub(super) fn loss_is_host_interference(
    trial: &Trial,
    load_pps: f64,
    queue_size: u32,
    works_in_generator: bool,
    generator_limit_ns: u64,
) -> bool {
    let queue_lasts = Duration::from_secs_f64(f64::from(queue_size) / load_pps);
    let PollTimes { gap_max, gap_sum, off_cpu, off_cpu_max } = trial.generator;
    let (longest, sum) = if works_in_generator { (off_cpu_max, off_cpu) } else { (gap_max, gap_sum) };
    // the backlog is processed in addition to new packets
    let sent_in = |time: Duration| 2.0 * load_pps * f64::from(trial.directions) * time.as_secs_f64();
    let unsent = trial.unsent - trial.unsent_no_buffer;
    let lost = trial.lost + trial.unsent_no_buffer - trial.lost_by_dut();
    let unsent_is_excused = longest > Duration::from_nanos(generator_limit_ns) && unsent as f64 <= sent_in(sum);
    // half a queue of packets arrived meanwhile, and the rest of the gap alone would not have filled the queue
    let PollTimes { gap_max: dut_gap, off_cpu_max: dut_off_cpu, .. } = trial.dut;
    let dut_was_preempted = dut_off_cpu > queue_lasts / 2 && dut_gap.saturating_sub(dut_off_cpu) < queue_lasts;
    let was_preempted = dut_was_preempted || longest > queue_lasts;
    let lost_is_excused = was_preempted && lost as f64 <= sent_in(sum + trial.dut.off_cpu);
    (unsent != 0 || lost != 0) && (unsent == 0 || unsent_is_excused) && (lost == 0 || lost_is_excused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_preemption_excuses_loss() {
        let ms = Duration::from_millis;
        let idle = PollTimes::default();
        let gap = PollTimes { gap_max: ms(5), gap_sum: ms(5), ..idle };
        let preempted = PollTimes { off_cpu: ms(5), off_cpu_max: ms(5), ..gap };
        let judge_with = |works_in_generator, lost, dropped_by_nfs, generator, dut| {
            let trial = Trial { directions: 1, lost, dropped_by_nfs, generator, dut, ..Trial::default() };
            loss_is_host_interference(&trial, 1e6, 1024, works_in_generator, 2_000_000)
        };
        let judge = |lost, dropped_by_nfs, generator, dut| judge_with(false, lost, dropped_by_nfs, generator, dut);
        assert!(!judge(0, 0, idle, preempted), "no loss");
        assert!(!judge(3000, 0, idle, gap), "a long batch of the DUT");
        assert!(judge(3000, 0, idle, preempted) && judge(3000, 0, preempted, idle));
        assert!(judge(3000, 0, gap, idle), "the generator has no long iterations");
        assert!(!judge_with(true, 3000, 0, gap, idle), "the DUT may have worked in the generator");
        assert!(judge_with(true, 3000, 0, preempted, idle));
        let late = PollTimes { gap_max: Duration::from_micros(2500), gap_sum: Duration::from_micros(2500), ..idle };
        assert!(
            !judge(3000, 0, PollTimes { gap_max: Duration::from_micros(900), ..late }, gap),
            "queues last for 1 ms"
        );
        let unsent = |unsent, lost, generator| {
            let trial = Trial { directions: 1, unsent, lost, generator, ..Trial::default() };
            loss_is_host_interference(&trial, 1e5, 1024, false, 2_000_000)
        };
        assert!(unsent(100, 0, late) && !unsent(100, 0, idle) && !unsent(1000, 0, late));
        assert!(!unsent(100, 1, late), "the generator was away for less than a queue lasts, so the DUT lost it");
        assert!(!judge(20_000, 0, idle, preempted), "more than was sent in the time");
        assert!(!judge(3000, 3000, idle, preempted), "dropped by NFs");
        assert!(judge(3000, 2999, idle, preempted));
        let stalled = PollTimes { gap_max: ms(7), ..preempted };
        assert!(!judge(3000, 0, idle, stalled), "without preemption the gap would have been 2 ms");
        let short = Duration::from_micros(400);
        let often = PollTimes { gap_max: short, off_cpu_max: short, ..preempted };
        assert!(!judge(3000, 0, often, often), "queues last for 1 ms");
    }
}

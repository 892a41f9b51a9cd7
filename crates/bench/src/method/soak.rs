//! Soak test: one load for hours.

use super::accumulate::LatencyAccumulator;
use super::displacement::DisplacementAccumulator;
use super::procedure::{MethodContext, Procedure, format_seconds};
use super::{MethodOutput, Thoroughness};
use crate::trial::{TrialInput, TrialOutput};
use report::{Axis, Quantity, Series, limit};

/// Total duration, quick and standard, seconds.
const DURATIONS_S: (f64, f64) = (10.0, 7200.0);
/// Longest total duration: a week, seconds.
const MAX_DURATION_S: f64 = 604_800.0;
/// Duration of a slice, seconds. Each slice is a trial, so that progress is reported meanwhile.
const SLICE_S: f64 = 60.0;
/// Maximum number of slices.
const MAX_SLICES: f64 = 1000.0;

/// Highest load at which payloads are verified, packets per second: above it the generator may have no time for it.
const MAX_VERIFIED_PPS: f64 = 2e6;

#[derive(Default)]
pub(super) struct Soak {
    started: usize,
    /// Packets lost and packets due in each bin.
    bins: Vec<(u64, u64)>,
    /// For each bin, true if its trial had host interference.
    host_interference: Vec<bool>,
    lost: u64,
    sent: u64,
    unsent: u64,
    interfered_trials: usize,
    latencies: LatencyAccumulator,
    duplicate: u64,
    reordered: u64,
    corrupt: u64,
    late: u64,
    /// Trials whose payloads were not verified.
    unverified_trials: usize,
    displaced: DisplacementAccumulator,
}

/// Partition of a soak into trials.
struct Slices {
    count: usize,
    duration_s: f64,
    bins: usize,
}

impl Slices {
    fn of(context: &MethodContext) -> Slices {
        let default_s = context.settings.select(DURATIONS_S.0, DURATIONS_S.1);
        let whole_s = context.settings.soak_s.unwrap_or(default_s).clamp(0.001, MAX_DURATION_S);
        // a tenth of the total or a minute, longer if there would be too many slices
        let slice_s = (whole_s / 10.0).clamp(1.0, SLICE_S).max(whole_s / MAX_SLICES);
        let slices = (whole_s / slice_s).round().max(1.0);
        let slice_s = whole_s / slices;
        // one second each, unless a curve cannot contain that many points
        let max_bins = (limit::POINTS as f64 / slices).floor();
        Slices { count: slices as usize, duration_s: slice_s, bins: slice_s.round().clamp(1.0, max_bins) as usize }
    }

    fn bin_s(&self) -> f64 {
        self.duration_s / self.bins as f64
    }
}

impl Procedure for Soak {
    const NAME: &'static str = "soak";
    const STANDARD: Option<&'static str> = None;
    const QUESTION: &'static str = "Is a load forwarded without loss for hours?";
    const DURATION_S: (f64, f64) = (12.0, 7400.0);
    const RETRIES_INTERFERED_TRIALS: bool = false;

    fn next(&mut self, context: &MethodContext) -> Option<TrialInput> {
        let cut = Slices::of(context);
        (self.started < cut.count).then(|| {
            self.started += 1;
            let load_pps = context.load_at_share(context.settings.soak_share);
            let payload = load_pps <= MAX_VERIFIED_PPS;
            TrialInput {
                loss_bins: cut.bins,
                displacement: true,
                verify_payload: payload,
                ..TrialInput::constant(load_pps, cut.duration_s)
            }
        })
    }

    fn record(&mut self, _: &MethodContext, _: &TrialInput, output: TrialOutput) {
        let trial = &output.trial;
        self.lost += trial.lost;
        self.sent += trial.sent;
        self.unsent += trial.unsent;
        self.interfered_trials += usize::from(trial.host_interference);
        self.latencies.record(&output);
        self.duplicate += trial.duplicate;
        self.reordered += trial.reordered;
        self.corrupt += trial.corrupt;
        self.late += trial.late;
        self.unverified_trials += usize::from(!output.payload_verified);
        self.displaced.record(&output);
        let bins = output.losses.as_ref().map_or_else(|| vec![(trial.lost, trial.sent)], |losses| losses.bins.clone());
        self.host_interference.extend(bins.iter().map(|_| trial.host_interference));
        self.bins.extend(bins);
    }

    /// Returns 0: all trials are parts of one load.
    fn pause_s(_: Thoroughness) -> f64 {
        0.0
    }

    fn report(&self, context: &MethodContext, output: &mut MethodOutput) {
        let cut = Slices::of(context);
        let bin_s = cut.bin_s();
        let load_pps = context.load_at_share(context.settings.soak_share);
        let deviations = &mut output.deviations;
        deviations.push(format!(
            "not defined by a standard: {} at {} % of the throughput in {} trials of {}, each after the previous one \
             has drained",
            format_seconds(cut.duration_s * cut.count as f64),
            (context.settings.soak_share * 1e3).round() / 10.0,
            cut.count,
            format_seconds(cut.duration_s)
        ));
        if context.settings.thoroughness == Thoroughness::Quick && context.settings.soak_s.is_none() {
            deviations.push(format!(
                "{} where the standard form lasts {}",
                format_seconds(DURATIONS_S.0),
                format_seconds(DURATIONS_S.1)
            ));
        }
        if self.interfered_trials != 0 {
            deviations.push(format!("{} trials had host interference; their loss counts", self.interfered_trials));
        }
        if self.unsent != 0 {
            deviations.push(format!("the generator left {} packets unsent; they do not count as lost", self.unsent));
        }
        if (bin_s - 1.0).abs() > 1e-3 {
            deviations.push(format!("the quantity \"worst second\" covers {}", format_seconds(bin_s)));
        }
        if self.unverified_trials != 0 {
            deviations.push(format!(
                "in {} trials only sequence numbers were checked for corruption; verifying payloads requires \
                 synthetic traffic of at most {:.0} Mpps",
                self.unverified_trials,
                MAX_VERIFIED_PPS / 1e6
            ));
        }
        if self.sent == 0 {
            return;
        }
        let share = |(lost, due): &(u64, u64)| *lost as f64 / (*due).max(1) as f64;
        let worst = self.bins.iter().map(share).fold(0.0, f64::max);
        let longest = self.bins.split(|(lost, _)| *lost != 0).map(<[_]>::len).max().unwrap_or(0);
        let quantities = &mut output.quantities;
        quantities.push(Quantity::new("duration", "s", self.bins.len() as f64 * bin_s));
        quantities.push(Quantity::new("load", "pps", load_pps));
        quantities.push(Quantity::new("lost", "frames", self.lost as f64));
        quantities.push(Quantity::new("loss", "ratio", self.lost as f64 / self.sent as f64));
        quantities.push(Quantity::new("worst second", "ratio", worst));
        quantities.push(Quantity::new("longest time without loss", "s", longest as f64 * bin_s));
        for (name, count) in [
            ("duplicates", self.duplicate),
            ("reordered", self.reordered),
            ("corrupt", self.corrupt),
            ("late", self.late),
        ] {
            quantities.push(Quantity::new(name, "frames", count as f64));
        }
        quantities.extend(self.displaced.quantities());
        let others = self.bins.iter().zip(&self.host_interference).filter(|(_, machine)| !**machine);
        let own: u64 = others.map(|((lost, _), _)| lost).sum();
        if self.interfered_trials != 0 {
            quantities.push(Quantity::new("lost in trials without host interference", "frames", own as f64));
        }
        output.latency.extend(self.latencies.entry(load_pps, context.throughput_pps));
        let axis = |name: &str, unit: &str| Axis { name: name.to_owned(), unit: unit.to_owned() };
        let point = |(i, bin): (usize, &(u64, u64))| [(i as f64 + 0.5) * bin_s, share(bin)];
        output.series.push(Series {
            name: "loss over time".to_owned(),
            x: axis("time", "s"),
            y: axis("loss ratio of the packets due", "ratio"),
            points: self.bins.iter().enumerate().map(point).collect(),
        });
        output.series.extend(self.displaced.series());
    }
}

#[cfg(test)]
mod tests {
    use crate::method::{MethodOutput, MethodSettings, Thoroughness, run, start};
    use crate::simulated::{Fault, PacketLevelDut};
    use crate::{Goal, Limits};
    use traffic::Mix;

    fn soaked(device: PacketLevelDut, throughput_pps: f64) -> MethodOutput {
        let settings = MethodSettings::new(Thoroughness::Quick, Goal::quick(), Limits::new(1e3, 1e7).unwrap());
        let settings = MethodSettings { throughput_pps: Some(throughput_pps), soak_s: Some(0.02), ..settings };
        let mut method = start("soak", &settings).unwrap();
        let mut device = device;
        run(&mut *method, &mut device, |_| true, |_| ()).unwrap();
        method.output()
    }

    #[test]
    fn counts_reordering_duplicates_and_corruption() {
        let device = || PacketLevelDut::new(3e6, 100, 1000, &Mix::imix()).unwrap();
        let of = |output: &MethodOutput, name: &str| {
            let found = output.quantities.iter().find(|q| q.name == name);
            found.unwrap_or_else(|| panic!("no {name}: {:?}", output.quantities)).value
        };
        let swapped = soaked(device().with_fault(Fault::Reorder { every: 10 }), 1e6);
        let sent = swapped.trials[0].sent as f64;
        assert!((of(&swapped, "reordered") - sent / 10.0).abs() <= 1.0);
        assert!((of(&swapped, "displaced") - 0.2).abs() < 1e-3, "each swap moves two");
        assert_eq!((of(&swapped, "largest lateness"), of(&swapped, "largest earliness")), (1.0, 1.0));
        assert_eq!((of(&swapped, "3-reordered (RFC 4737)"), of(&swapped, "displaced by more than 64")), (0.0, 0.0));
        let density = swapped.series.iter().find(|s| s.name.contains("RFC 5236")).unwrap();
        assert_eq!(density.points.iter().map(|[places, _]| *places).collect::<Vec<_>>(), [-1.0, 0.0, 1.0]);
        assert!((density.points.iter().map(|[_, share]| share).sum::<f64>() - 1.0).abs() < 1e-9);
        let spoilt =
            soaked(device().with_fault(Fault::Corrupt { every: 100 }).with_fault(Fault::Duplicate { every: 50 }), 1e6);
        let sent = spoilt.trials[0].sent as f64;
        assert!((of(&spoilt, "corrupt") - sent / 100.0).abs() <= sent / 100.0 + 1.0 && of(&spoilt, "corrupt") > 0.0);
        assert!(of(&spoilt, "duplicates") > 0.0 && of(&spoilt, "lost") > 0.0);
        assert!(!spoilt.series.iter().any(|s| s.name.contains("RFC 5236") && s.points.len() > 9));
        // payloads are not verified at high rates, which is reported
        let said = |output: &MethodOutput| output.deviations.iter().any(|d| d.contains("only sequence numbers"));
        assert!(!said(&swapped) && said(&soaked(device(), 2.9e6)));
    }
}

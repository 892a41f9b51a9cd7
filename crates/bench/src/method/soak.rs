//! A load for hours: does it stay without loss?

use super::course::{Known, Plan, time};
use super::displaced::Displaced;
use super::measured::Latencies;
use super::{Findings, Form};
use crate::bed::{Ask, Seen};
use report::{Axis, Quantity, Series, limit};

/// Length, quick and standard, seconds.
const LENGTHS_S: (f64, f64) = (10.0, 7200.0);
/// Longest, seconds: a week.
const LONGEST_S: f64 = 604_800.0;
/// A part of it that is a trial of its own, so that something is told meanwhile, seconds; and most such parts.
const SLICE_S: f64 = 60.0;
const SLICES: f64 = 1000.0;

/// Up to this load payloads are compared: for more the generator may have no time, packets a second.
const COMPARED_PPS: f64 = 2e6;

#[derive(Default)]
pub(super) struct Soak {
    asked: usize,
    /// Lost and due, bin after bin.
    bins: Vec<(u64, u64)>,
    /// Bins of trials in which the machine was in the way.
    machine: Vec<bool>,
    lost: u64,
    sent: u64,
    unsent: u64,
    spoilt: usize,
    latencies: Latencies,
    duplicate: u64,
    reordered: u64,
    corrupt: u64,
    late: u64,
    /// Trials whose payloads were not compared.
    uncompared: usize,
    displaced: Displaced,
}

/// How a soak is cut up.
struct Cut {
    slices: usize,
    slice_s: f64,
    bins: usize,
}

impl Cut {
    fn of(known: &Known) -> Cut {
        let usual = known.settings.pick(LENGTHS_S.0, LENGTHS_S.1);
        let whole_s = known.settings.soak_s.unwrap_or(usual).clamp(0.001, LONGEST_S);
        // A tenth, or a minute; more where that makes too many.
        let wanted_s = (whole_s / 10.0).clamp(1.0, SLICE_S).max(whole_s / SLICES);
        let slices = (whole_s / wanted_s).round().max(1.0);
        let slice_s = whole_s / slices;
        // A second each, as far as all of them fit into a curve.
        let most = (limit::POINTS as f64 / slices).floor();
        Cut { slices: slices as usize, slice_s, bins: slice_s.round().clamp(1.0, most) as usize }
    }

    fn bin_s(&self) -> f64 {
        self.slice_s / self.bins as f64
    }
}

impl Plan for Soak {
    const NAME: &'static str = "soak";
    const STANDARD: Option<&'static str> = None;
    const REPEATS: bool = false;

    fn next(&mut self, known: &Known) -> Option<Ask> {
        let cut = Cut::of(known);
        (self.asked < cut.slices).then(|| {
            self.asked += 1;
            let load_pps = known.load(known.settings.soak_share);
            // to have order watched costs next to nothing where loss is watched over time
            let payload = load_pps <= COMPARED_PPS;
            Ask { loss_bins: cut.bins, order: true, payload, ..Ask::load(load_pps, cut.slice_s) }
        })
    }

    fn tell(&mut self, _: &Known, _: &Ask, seen: Seen) {
        let trial = &seen.trial;
        self.lost += trial.lost;
        self.sent += trial.sent;
        self.unsent += trial.unsent;
        self.spoilt += usize::from(trial.machine);
        self.latencies.take(&seen);
        self.duplicate += trial.duplicate;
        self.reordered += trial.reordered;
        self.corrupt += trial.corrupt;
        self.late += trial.late;
        self.uncompared += usize::from(!seen.payload);
        self.displaced.take(&seen);
        let bins = seen.losses.as_ref().map_or_else(|| vec![(trial.lost, trial.sent)], |losses| losses.bins.clone());
        self.machine.extend(bins.iter().map(|_| trial.machine));
        self.bins.extend(bins);
    }

    /// None: it is one load.
    fn rest_s(_: Form) -> f64 {
        0.0
    }

    fn sum_up(&self, known: &Known, findings: &mut Findings) {
        let cut = Cut::of(known);
        let bin_s = cut.bin_s();
        let load_pps = known.load(known.settings.soak_share);
        let says = &mut findings.deviations;
        says.push(format!(
            "no standard defines it: {} at {} % of the throughput in {} trials of {}, each after the one before is through",
            time(cut.slice_s * cut.slices as f64),
            (known.settings.soak_share * 1e3).round() / 10.0,
            cut.slices,
            time(cut.slice_s)
        ));
        if known.settings.form == Form::Quick && known.settings.soak_s.is_none() {
            says.push(format!("{} where the standard form has {}", time(LENGTHS_S.0), time(LENGTHS_S.1)));
        }
        if self.spoilt != 0 {
            says.push(format!("in {} trials the machine was in the way; their loss counts as well", self.spoilt));
        }
        if self.unsent != 0 {
            says.push(format!("the generator left {} packets unsent; they are not among those lost", self.unsent));
        }
        if (bin_s - 1.0).abs() > 1e-3 {
            says.push(format!("the worst second is the worst {}", time(bin_s)));
        }
        if self.uncompared != 0 {
            says.push(format!(
                "in {} trials only numbers were checked for damage, not all of the payload, for which packets have to be the \
                 generator's own and {:.0} Mpps at most",
                self.uncompared,
                COMPARED_PPS / 1e6
            ));
        }
        if self.sent == 0 {
            return;
        }
        let share = |(lost, due): &(u64, u64)| *lost as f64 / (*due).max(1) as f64;
        let worst = self.bins.iter().map(share).fold(0.0, f64::max);
        let longest = self.bins.split(|(lost, _)| *lost != 0).map(<[_]>::len).max().unwrap_or(0);
        let quantities = &mut findings.quantities;
        quantities.push(Quantity::new("soaked", "s", self.bins.len() as f64 * bin_s));
        quantities.push(Quantity::new("load", "pps", load_pps));
        quantities.push(Quantity::new("lost", "frames", self.lost as f64));
        quantities.push(Quantity::new("loss", "ratio", self.lost as f64 / self.sent as f64));
        quantities.push(Quantity::new("worst second", "ratio", worst));
        quantities.push(Quantity::new("longest time without loss", "s", longest as f64 * bin_s));
        for (name, count) in [
            ("came twice", self.duplicate),
            ("reordered", self.reordered),
            ("damaged", self.corrupt),
            ("too late to count", self.late),
        ] {
            quantities.push(Quantity::new(name, "frames", count as f64));
        }
        quantities.extend(self.displaced.quantities());
        let others = self.bins.iter().zip(&self.machine).filter(|(_, machine)| !**machine);
        let own: u64 = others.map(|((lost, _), _)| lost).sum();
        if self.spoilt != 0 {
            quantities.push(Quantity::new("lost while the machine was not in the way", "frames", own as f64));
        }
        findings.latency.extend(self.latencies.entry(load_pps, known.throughput_pps));
        let axis = |name: &str, unit: &str| Axis { name: name.to_owned(), unit: unit.to_owned() };
        let point = |(i, bin): (usize, &(u64, u64))| [(i as f64 + 0.5) * bin_s, share(bin)];
        findings.series.push(Series {
            name: "loss over time".to_owned(),
            x: axis("time", "s"),
            y: axis("lost of the packets due", "ratio"),
            points: self.bins.iter().enumerate().map(point).collect(),
        });
        findings.series.extend(self.displaced.series());
    }
}

#[cfg(test)]
mod tests {
    use crate::method::{Findings, Form, Settings, by_name, carry_out};
    use crate::simulated::{Fault, Virtual};
    use crate::{Goal, Limits};
    use traffic::Mix;

    fn soaked(device: Virtual, throughput_pps: f64) -> Findings {
        let settings = Settings::new(Form::Quick, Goal::quick(), Limits::new(1e3, 1e7).unwrap());
        let settings = Settings { throughput_pps: Some(throughput_pps), soak_s: Some(0.02), ..settings };
        let mut method = by_name("soak", &settings).unwrap();
        let mut device = device;
        carry_out(&mut *method, &mut device, |_| true, |_| ()).unwrap();
        method.findings()
    }

    #[test]
    fn order_copies_and_damage_are_told() {
        let device = || Virtual::new(3e6, 100, 1000, &Mix::imix()).unwrap();
        let of = |findings: &Findings, name: &str| {
            let found = findings.quantities.iter().find(|q| q.name == name);
            found.unwrap_or_else(|| panic!("no {name}: {:?}", findings.quantities)).value
        };
        let swapped = soaked(device().with(Fault::Reorder { every: 10 }), 1e6);
        let sent = swapped.trials[0].sent as f64;
        assert!((of(&swapped, "reordered") - sent / 10.0).abs() <= 1.0);
        assert!((of(&swapped, "displaced") - 0.2).abs() < 1e-3, "each swap moves two");
        assert_eq!((of(&swapped, "latest by"), of(&swapped, "earliest by")), (1.0, 1.0));
        assert_eq!(
            (of(&swapped, "behind 3 or more later ones"), of(&swapped, "displaced by more than 64")),
            (0.0, 0.0)
        );
        let density = swapped.series.iter().find(|s| s.name.contains("RFC 5236")).unwrap();
        assert_eq!(density.points.iter().map(|[places, _]| *places).collect::<Vec<_>>(), [-1.0, 0.0, 1.0]);
        assert!((density.points.iter().map(|[_, share]| share).sum::<f64>() - 1.0).abs() < 1e-9);
        let spoilt = soaked(device().with(Fault::Corrupt { every: 100 }).with(Fault::Duplicate { every: 50 }), 1e6);
        let sent = spoilt.trials[0].sent as f64;
        assert!((of(&spoilt, "damaged") - sent / 100.0).abs() <= sent / 100.0 + 1.0 && of(&spoilt, "damaged") > 0.0);
        assert!(of(&spoilt, "came twice") > 0.0 && of(&spoilt, "lost") > 0.0);
        assert!(!spoilt.series.iter().any(|s| s.name.contains("RFC 5236") && s.points.len() > 9));
        // fast ones leave no time to compare payloads, and it is said
        let said = |findings: &Findings| findings.deviations.iter().any(|d| d.contains("all of the payload"));
        assert!(!said(&swapped) && said(&soaked(device(), 2.9e6)));
    }
}

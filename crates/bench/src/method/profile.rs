//! Streams whose rates change from second to second, as a script says.

use super::course::{Known, Plan};
use super::measured::Latencies;
use super::{Findings, Form};
use crate::bed::{Ask, Second, Seen, StreamSeen};
use crate::search::LimitedBy;
use report::{Axis, Quantity, Series, Summary, limit};

/// What a profile comes to, for who asks for a trial of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Outline {
    /// Packets a second of all streams, on average.
    pub mean_pps: f64,
    /// Length.
    pub seconds: u32,
}

/// One trial of the profile of [`Settings::profile`](super::Settings::profile).
#[derive(Default)]
pub(super) struct Profile {
    asked: bool,
    streams: Vec<StreamSeen>,
    /// All streams together.
    seconds: Vec<Second>,
    loss_ratio: f64,
    forwarded_pps: f64,
    machine: bool,
    latencies: Latencies,
}

impl Plan for Profile {
    const NAME: &'static str = "profile";
    const STANDARD: Option<&'static str> = None;
    const NEEDS_THROUGHPUT: bool = false;
    const REPEATS: bool = false;

    fn rest_s(_: Form) -> f64 {
        0.0
    }

    fn next(&mut self, known: &Known) -> Option<Ask> {
        let Outline { mean_pps, seconds } = known.settings.profile?;
        (!std::mem::replace(&mut self.asked, true))
            .then(|| Ask { profile: true, ..Ask::load(mean_pps, f64::from(seconds)) })
    }

    fn tell(&mut self, _: &Known, _: &Ask, seen: Seen) {
        self.latencies.take(&seen);
        self.loss_ratio = seen.trial.loss_ratio();
        self.forwarded_pps = seen.trial.forwarding_pps();
        self.machine = seen.trial.machine;
        let longest = seen.streams.iter().map(|stream| stream.seconds.len()).max().unwrap_or(0);
        self.seconds = vec![Second::default(); longest];
        for stream in &seen.streams {
            self.seconds.iter_mut().zip(&stream.seconds).for_each(|(sum, second)| *sum = sum.plus(*second));
        }
        self.streams = seen.streams;
    }

    fn sum_up(&self, known: &Known, findings: &mut Findings) {
        let says = &mut findings.deviations;
        says.push(
            "no standard defines it: one trial without a pause, in which rates are as the script says".to_owned(),
        );
        let Some(Outline { mean_pps, .. }) = known.settings.profile.filter(|_| !self.seconds.is_empty()) else {
            return;
        };
        let all = self.seconds.iter().copied().fold(Second::default(), Second::plus);
        let holds = self.loss_ratio <= known.settings.goal.loss_ratio();
        findings.summary = Summary {
            lower_pps: if holds { mean_pps } else { 0.0 },
            upper_pps: (!holds && !self.machine).then_some(mean_pps),
            conditional_pps: Some(self.forwarded_pps),
        };
        findings.limited_by = match () {
            () if holds => LimitedBy::MaxLoad,
            () if self.machine => LimitedBy::Machine,
            () if all.unsent != 0 => LimitedBy::Generator,
            () => LimitedBy::Device,
        };
        if self.machine {
            says.push("the machine was in the way; what was lost then counts as well".to_owned());
        }
        if all.unsent != 0 {
            says.push(format!("the generator left {} packets unsent; they are not among those lost", all.unsent));
        }
        let share = |second: &Second| second.lost() as f64 / second.sent.max(1) as f64;
        let lossy = self.seconds.iter().filter(|second| second.lost() != 0).count();
        let quantities = &mut findings.quantities;
        quantities.push(Quantity::new("lasted", "s", self.seconds.len() as f64));
        quantities.push(Quantity::new("offered on average", "pps", mean_pps));
        let highest = self.seconds.iter().map(|second| second.intended).max().unwrap_or(0);
        quantities.push(Quantity::new("offered in the busiest second", "pps", highest as f64));
        quantities.push(Quantity::new("lost", "frames", all.lost() as f64));
        quantities.push(Quantity::new("loss of packets sent", "ratio", share(&all)));
        quantities.push(Quantity::new("worst second", "ratio", self.seconds.iter().map(share).fold(0.0, f64::max)));
        quantities.push(Quantity::new("seconds with loss", "s", lossy as f64));
        findings.latency.extend(self.latencies.entry(mean_pps, 0.0));
        let axis = |name: &str, unit: &str| Axis { name: name.to_owned(), unit: unit.to_owned() };
        let curve = |name: &str, y: Axis, of: fn(&Second) -> u64| Series {
            name: format!("{name} over time"),
            x: axis("time", "s"),
            y,
            points: self.seconds.iter().enumerate().map(|(n, s)| [n as f64 + 0.5, of(s) as f64]).collect(),
        };
        findings.series.push(curve("offered", axis("packets intended", "pps"), |s| s.intended));
        findings.series.push(curve("received", axis("packets received of those sent then", "pps"), |s| s.received));
        findings.series.push(curve("lost", axis("packets lost of those sent then", "frames"), Second::lost));
        findings.streams.clone_from(&self.streams);
        let told = self.streams.iter().map(|stream| stream.seconds.len()).sum::<usize>();
        if told > limit::STREAM_SECONDS {
            findings.deviations.push("the seconds of single streams are not kept: there are too many".to_owned());
            findings.streams.iter_mut().for_each(|stream| stream.seconds = vec![stream.sum()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed::{Bed, BedError};
    use crate::method::{Method, Settings, by_name, carry_out};
    use crate::search::Limits;
    use crate::trial::Trial;
    use crate::{Goal, method};

    /// Loses what is above a rate.
    struct Device(Vec<Vec<u64>>, u64);

    impl Bed for Device {
        fn trial(&mut self, ask: &Ask) -> Result<Seen, BedError> {
            assert!(ask.profile && ask.phases.len() == 1);
            let mut trial =
                Trial { load_pps: ask.phases[0].load_pps, duration_s: ask.duration_s(), ..Trial::default() };
            let mut streams = vec![];
            for rates in &self.0 {
                let second = |n: &u64| Second { intended: *n, sent: *n, unsent: 0, received: (*n).min(self.1) };
                let seen = StreamSeen { seconds: rates.iter().map(second).collect(), delays: None };
                let sum = seen.sum();
                trial.intended += sum.intended;
                trial.sent += sum.sent;
                trial.received += sum.received;
                trial.lost += sum.lost();
                streams.push(seen);
            }
            Ok(Seen { trial, streams, ..Seen::default() })
        }
    }

    fn found(rates: &[&[u64]], most: u64) -> Findings {
        let seconds = rates[0].len() as u32;
        let sum: u64 = rates.iter().flat_map(|rates| rates.iter()).sum();
        let settings = Settings::new(Form::Quick, Goal::quick(), Limits::new(1e3, 1e7).unwrap());
        let profile = Some(Outline { mean_pps: sum as f64 / f64::from(seconds), seconds });
        let mut method: Box<dyn Method> = by_name("profile", &Settings { profile, ..settings }).unwrap();
        let mut device = Device(rates.iter().map(|rates| rates.to_vec()).collect(), most);
        carry_out(&mut *method, &mut device, |_| true, |_| ()).unwrap();
        method.findings()
    }

    #[test]
    fn seconds_of_all_streams_add_up() {
        let found = found(&[&[10, 0, 30], &[5, 500, 5]], 100);
        assert_eq!(found.trials.len(), 1);
        let points = |n: usize| found.series[n].points.iter().map(|p| p[1] as u64).collect::<Vec<_>>();
        assert_eq!((points(0), points(1)), (vec![15, 500, 35], vec![15, 100, 35]));
        assert_eq!((points(2), found.series[2].points[1][0]), (vec![0, 400, 0], 1.5));
        let of = |name: &str| found.quantities.iter().find(|q| q.name == name).unwrap().value;
        assert_eq!((of("lost"), of("worst second"), of("seconds with loss")), (400.0, 0.8, 1.0));
        assert_eq!((found.limited_by, found.summary.lower_pps), (LimitedBy::Device, 0.0));
        assert_eq!(found.streams.len(), 2);
    }

    #[test]
    fn without_loss_the_profile_holds() {
        let found = found(&[&[10, 0, 30]], 100);
        assert_eq!((found.limited_by, found.summary.upper_pps), (LimitedBy::MaxLoad, None));
        assert!((found.summary.lower_pps - 40.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn so_many_seconds_of_single_streams_are_not_kept() {
        let long = vec![1; 10_000];
        let found = found(&[&long, &long, &long], 100);
        assert!(found.streams.iter().all(|stream| stream.seconds.len() == 1 && stream.sum().received == 10_000));
        assert!(found.deviations.iter().any(|d| d.contains("not kept")));
    }

    #[test]
    fn it_needs_a_profile() {
        let settings = Settings::new(Form::Quick, Goal::quick(), Limits::new(1e3, 1e7).unwrap());
        assert!(matches!(by_name("profile", &settings), Err(method::Refused::Profile)));
    }
}

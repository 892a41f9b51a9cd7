//! Streams whose rates change every second, as a script specifies.

use super::accumulate::LatencyAccumulator;
use super::procedure::{DEFAULT_PROPERTIES, MethodContext, Procedure};
use super::properties::{LoadChoice, Properties, RequiredTraffic};
use super::{MethodOutput, Thoroughness};
use crate::search::LimitedBy;
use crate::trial::{SecondCounts, StreamOutput, TrialInput, TrialOutput};
use report::{Axis, Quantity, Series, Summary, limit};

/// Mean rate and duration of a profile.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ProfileSummary {
    /// Mean rate of all streams together, packets per second.
    pub mean_pps: f64,
    /// Duration in seconds.
    pub seconds: u32,
}

/// One trial of the profile of [`MethodSettings::profile`](super::MethodSettings::profile).
#[derive(Default)]
pub(super) struct Profile {
    started: bool,
    streams: Vec<StreamOutput>,
    /// Counts of all streams together, per second.
    seconds: Vec<SecondCounts>,
    loss_ratio: f64,
    forwarded_pps: f64,
    host_interference: bool,
    latencies: LatencyAccumulator,
}

impl Procedure for Profile {
    const NAME: &'static str = "profile";
    const STANDARD: Option<&'static str> = None;
    const QUESTION: &'static str = "What happens to streams whose rates change every second, as a script specifies?";
    const DURATION_S: (f64, f64) = (60.0, 60.5);
    const PROPERTIES: Properties = Properties {
        load: LoadChoice::Profile,
        traffic: RequiredTraffic::Profile,
        requires_rate: false,
        ..DEFAULT_PROPERTIES
    };
    const NEEDS_THROUGHPUT: bool = false;
    const RETRIES_INTERFERED_TRIALS: bool = false;

    fn pause_s(_: Thoroughness) -> f64 {
        0.0
    }

    fn next(&mut self, context: &MethodContext) -> Option<TrialInput> {
        let ProfileSummary { mean_pps, seconds } = context.settings.profile?;
        (!std::mem::replace(&mut self.started, true))
            .then(|| TrialInput { profile: true, ..TrialInput::constant(mean_pps, f64::from(seconds)) })
    }

    fn record(&mut self, _: &MethodContext, _: &TrialInput, output: TrialOutput) {
        self.latencies.record(&output);
        self.loss_ratio = output.trial.loss_ratio();
        self.forwarded_pps = output.trial.forwarding_pps();
        self.host_interference = output.trial.host_interference;
        let longest = output.streams.iter().map(|stream| stream.seconds.len()).max().unwrap_or(0);
        self.seconds = vec![SecondCounts::default(); longest];
        for stream in &output.streams {
            self.seconds.iter_mut().zip(&stream.seconds).for_each(|(sum, second)| *sum = sum.plus(*second));
        }
        self.streams = output.streams;
    }

    fn report(&self, context: &MethodContext, output: &mut MethodOutput) {
        let deviations = &mut output.deviations;
        deviations.push("not defined by a standard: one trial without pauses, with the rates of the script".to_owned());
        let Some(ProfileSummary { mean_pps, .. }) = context.settings.profile.filter(|_| !self.seconds.is_empty())
        else {
            return;
        };
        let all = self.seconds.iter().copied().fold(SecondCounts::default(), SecondCounts::plus);
        let holds = self.loss_ratio <= context.settings.goal.loss_ratio();
        output.summary = Summary {
            lower_pps: if holds { mean_pps } else { 0.0 },
            upper_pps: (!holds && !self.host_interference).then_some(mean_pps),
            conditional_pps: Some(self.forwarded_pps),
        };
        output.limited_by = match () {
            () if holds => LimitedBy::MaxLoad,
            () if self.host_interference => LimitedBy::HostInterference,
            () if all.unsent != 0 => LimitedBy::Generator,
            () => LimitedBy::Device,
        };
        if self.host_interference {
            deviations.push("the trial had host interference; its loss counts".to_owned());
        }
        if all.unsent != 0 {
            deviations.push(format!("the generator left {} packets unsent; they do not count as lost", all.unsent));
        }
        let share = |second: &SecondCounts| second.lost() as f64 / second.sent.max(1) as f64;
        let lossy = self.seconds.iter().filter(|second| second.lost() != 0).count();
        let quantities = &mut output.quantities;
        quantities.push(Quantity::new("duration", "s", self.seconds.len() as f64));
        quantities.push(Quantity::new("mean offered rate", "pps", mean_pps));
        let highest = self.seconds.iter().map(|second| second.intended).max().unwrap_or(0);
        quantities.push(Quantity::new("highest offered rate in a second", "pps", highest as f64));
        quantities.push(Quantity::new("lost", "frames", all.lost() as f64));
        quantities.push(Quantity::new("loss ratio of packets sent", "ratio", share(&all)));
        quantities.push(Quantity::new("worst second", "ratio", self.seconds.iter().map(share).fold(0.0, f64::max)));
        quantities.push(Quantity::new("seconds with loss", "s", lossy as f64));
        output.latency.extend(self.latencies.entry(mean_pps, 0.0));
        let axis = |name: &str, unit: &str| Axis { name: name.to_owned(), unit: unit.to_owned() };
        let curve = |name: &str, y: Axis, of: fn(&SecondCounts) -> u64| Series {
            name: format!("{name} over time"),
            x: axis("time", "s"),
            y,
            points: self.seconds.iter().enumerate().map(|(n, s)| [n as f64 + 0.5, of(s) as f64]).collect(),
        };
        output.series.push(curve("offered", axis("packets intended", "pps"), |s| s.intended));
        output
            .series
            .push(curve("received", axis("received of the packets sent in that second", "pps"), |s| s.received));
        output.series.push(curve(
            "lost",
            axis("lost of the packets sent in that second", "frames"),
            SecondCounts::lost,
        ));
        output.streams.clone_from(&self.streams);
        let recorded = self.streams.iter().map(|stream| stream.seconds.len()).sum::<usize>();
        if recorded > limit::STREAM_SECONDS {
            output.deviations.push("counts per second of single streams are not stored: there are too many".to_owned());
            output.streams.iter_mut().for_each(|stream| stream.seconds = vec![stream.sum()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::{Method, MethodSettings, run, start};
    use crate::search::Limits;
    use crate::trial::Trial;
    use crate::trial::{Measurer, MeasurerError};
    use crate::{Goal, method};

    /// Drops packets above a rate.
    struct Device(Vec<Vec<u64>>, u64);

    impl Measurer for Device {
        fn trial(&mut self, input: &TrialInput) -> Result<TrialOutput, MeasurerError> {
            assert!(input.profile && input.phases.len() == 1);
            let mut trial =
                Trial { load_pps: input.phases[0].load_pps, duration_s: input.duration_s(), ..Trial::default() };
            let mut streams = vec![];
            for rates in &self.0 {
                let second = |n: &u64| SecondCounts { intended: *n, sent: *n, unsent: 0, received: (*n).min(self.1) };
                let output = StreamOutput { seconds: rates.iter().map(second).collect(), delays: None };
                let sum = output.sum();
                trial.intended += sum.intended;
                trial.sent += sum.sent;
                trial.received += sum.received;
                trial.lost += sum.lost();
                streams.push(output);
            }
            Ok(TrialOutput { trial, streams, ..TrialOutput::default() })
        }
    }

    fn found(rates: &[&[u64]], most: u64) -> MethodOutput {
        let seconds = rates[0].len() as u32;
        let sum: u64 = rates.iter().flat_map(|rates| rates.iter()).sum();
        let settings = MethodSettings::new(Thoroughness::Quick, Goal::quick(), Limits::new(1e3, 1e7).unwrap());
        let profile = Some(ProfileSummary { mean_pps: sum as f64 / f64::from(seconds), seconds });
        let mut method: Box<dyn Method> = start("profile", &MethodSettings { profile, ..settings }).unwrap();
        let mut device = Device(rates.iter().map(|rates| rates.to_vec()).collect(), most);
        run(&mut *method, &mut device, |_| true, |_| ()).unwrap();
        method.output()
    }

    #[test]
    fn adds_up_the_seconds_of_all_streams() {
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
    fn meets_the_goal_without_loss() {
        let found = found(&[&[10, 0, 30]], 100);
        assert_eq!((found.limited_by, found.summary.upper_pps), (LimitedBy::MaxLoad, None));
        assert!((found.summary.lower_pps - 40.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn too_many_stream_seconds_are_summed_up() {
        let long = vec![1; 10_000];
        let found = found(&[&long, &long, &long], 100);
        assert!(found.streams.iter().all(|stream| stream.seconds.len() == 1 && stream.sum().received == 10_000));
        assert!(found.deviations.iter().any(|d| d.contains("not stored")));
    }

    #[test]
    fn needs_a_profile() {
        let settings = MethodSettings::new(Thoroughness::Quick, Goal::quick(), Limits::new(1e3, 1e7).unwrap());
        assert!(matches!(start("profile", &settings), Err(method::MethodError::MissingProfile)));
    }
}

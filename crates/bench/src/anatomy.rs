//! Parts of the latency of traced probes.
//!
//! Generator, workers and sandboxed processes record the time-stamp counter when a probe of a sample passes them. The
//! records of a probe, in the order of their times, follow each other as its path allows; the time between two of them is
//! a part of its latency. Workers of the host are trusted. Records of a sandbox count only between the times at which the
//! host sent the probe into it and received it again, and only if they describe a path.

use crate::generator::packet_generator::ProbeTimes;
use report::{LatencyAnatomy, LatencyPart, PartKind};
use runtime::{ProbePoint, ProbeRecord};
use sandbox::{SandboxProbes, TracedProbes};
use std::collections::HashMap;

/// Probes that are traced at each load: enough for the 99th percentile, and few enough for the queues of the workers.
const PROBES: f64 = 2000.0;

/// Returns the number of packets of which one is traced on average, at a load for a duration in seconds.
pub(crate) fn trace_interval(load_pps: f64, duration_s: f64) -> u64 {
    (load_pps * duration_s / PROBES).ceil() as u64
}

/// Parts of the latency of traced probes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Anatomy {
    /// In the order in which they were passed first.
    parts: Vec<PartTimes>,
    /// Latencies of all probes, nanoseconds.
    latencies_ns: Vec<u64>,
    residual_max_ns: u64,
    lost: u64,
    incomplete: u64,
    invalid: u64,
}

/// Times of all probes in a part.
#[derive(Clone, PartialEq, Debug)]
struct PartTimes {
    kind: PartKind,
    name: String,
    /// Of the probes that passed it, nanoseconds.
    times_ns: Vec<u64>,
}

/// Reason why the path of a probe is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unknown {
    /// A record is missing.
    Incomplete,
    /// Records contradict each other.
    Invalid,
}

/// A part of the latency of one probe, in cycles.
type Step = (PartKind, String, u64);

/// The last place of a probe.
#[derive(Clone, Copy)]
struct Last<'a> {
    /// None for the departure from the generator.
    record: Option<&'a ProbeRecord>,
    cycles: u64,
}

/// Records of probes, in the order of their times.
type Records<'a> = HashMap<u64, Vec<&'a ProbeRecord>>;

fn by_probe(records: &[ProbeRecord]) -> Records<'_> {
    let mut all = Records::new();
    for record in records {
        all.entry(record.probe).or_default().push(record);
    }
    all.values_mut().for_each(|own| own.sort_by_key(|record| record.cycles));
    all
}

/// Finds the paths of probes.
struct Paths<'a> {
    host: Records<'a>,
    sandboxes: Vec<(&'a SandboxProbes, Option<Records<'a>>)>,
}

impl<'a> Paths<'a> {
    fn new(traced: &'a TracedProbes) -> Paths<'a> {
        let sandbox = |own: &'a SandboxProbes| (own, own.records.as_deref().map(by_probe));
        Paths { host: by_probe(&traced.host), sandboxes: traced.sandboxes.iter().map(sandbox).collect() }
    }

    /// Returns the steps of a probe from its departure.
    fn steps(&self, times: &ProbeTimes, (stamp, arrived): (u64, u64)) -> Result<Vec<Step>, Unknown> {
        if !(times.due <= stamp && stamp <= times.sent && times.sent <= arrived) {
            return Err(Unknown::Invalid);
        }
        let mut steps = vec![(PartKind::Generator, String::new(), times.sent - times.due)];
        let host = self.host.get(&times.probe).map_or(&[][..], Vec::as_slice);
        let last = Last { record: None, cycles: times.sent };
        let last = self.walk(last, host, None, &mut steps)?;
        let Some(ProbeRecord { point: ProbePoint::Sent, name, .. }) = last.record else {
            return Err(Unknown::Incomplete);
        };
        let returned = arrived.checked_sub(last.cycles).ok_or(Unknown::Invalid)?;
        steps.push((PartKind::Queue, name.clone(), returned));
        Ok(steps)
    }

    /// Adds the steps between records of the host, or of a sandbox; returns the last place.
    fn walk(
        &self,
        mut last: Last<'a>,
        records: &[&'a ProbeRecord],
        sandbox: Option<&'a SandboxProbes>,
        steps: &mut Vec<Step>,
    ) -> Result<Last<'a>, Unknown> {
        use ProbePoint::{Entered, Left, Received, Sent};
        let owner = || sandbox.map_or(String::new(), |sandbox| sandbox.name.clone());
        for record in records {
            let time = record.cycles.checked_sub(last.cycles).ok_or(Unknown::Invalid)?;
            match (last.record.map(|record| record.point), record.point) {
                (None, Received) => steps.push((PartKind::Queue, record.name.clone(), time)),
                (Some(Received | Left), Entered | Sent) => steps.push((PartKind::Switch, owner(), time)),
                // a link may pass packets on in the worker
                (Some(Sent), Entered) if self.crossed(last).is_none() => {
                    steps.push((PartKind::Switch, owner(), time));
                }
                (Some(Entered), Left) if last.record.is_some_and(|entered| entered.name == record.name) => {
                    // an NF that the host adds in front of a sandbox is a part of the switch
                    let is_internal = self.sandboxes.iter().any(|(own, _)| own.host_names.contains(&record.name));
                    let (kind, name) =
                        if is_internal { (PartKind::Switch, owner()) } else { (PartKind::Nf, record.name.clone()) };
                    steps.push((kind, name, time));
                }
                (Some(Sent), Received) => match sandbox {
                    None => self.cross(last, record, steps)?,
                    Some(_) => steps.push((PartKind::Queue, owner(), time)),
                },
                _ => return Err(Unknown::Incomplete),
            }
            last = Last { record: Some(record), cycles: record.cycles };
        }
        Ok(last)
    }

    /// Returns the sandbox that a probe was sent into.
    fn crossed(&self, sent: Last<'_>) -> Option<&(&'a SandboxProbes, Option<Records<'a>>)> {
        self.sandboxes.iter().find(|(own, _)| sent.record.is_some_and(|record| own.host_names.contains(&record.name)))
    }

    /// Adds the steps between sending and receiving on the host: in a sandbox, or in a link.
    fn cross(&self, sent: Last<'a>, received: &'a ProbeRecord, steps: &mut Vec<Step>) -> Result<(), Unknown> {
        let time = received.cycles - sent.cycles;
        let Some((sandbox, records)) = self.crossed(sent) else {
            steps.push((PartKind::Queue, received.name.clone(), time));
            return Ok(());
        };
        let Some(records) = records else {
            steps.push((PartKind::Crossing, sandbox.name.clone(), time));
            return Ok(());
        };
        let within = |record: &&&ProbeRecord| (sent.cycles..=received.cycles).contains(&record.cycles);
        let inner: Vec<&ProbeRecord> =
            records.get(&received.probe).into_iter().flatten().filter(within).copied().collect();
        let (Some((first, rest)), Some(last)) = (inner.split_first(), inner.last()) else {
            return Err(Unknown::Incomplete);
        };
        if (first.point, last.point) != (ProbePoint::Received, ProbePoint::Sent) {
            return Err(Unknown::Incomplete);
        }
        steps.push((PartKind::Crossing, format!("into {}", sandbox.name), first.cycles - sent.cycles));
        let entered = Last { record: Some(first), cycles: first.cycles };
        let left = self.walk(entered, rest, Some(sandbox), steps)?;
        steps.push((PartKind::Crossing, format!("out of {}", sandbox.name), received.cycles - left.cycles));
        Ok(())
    }
}

impl Anatomy {
    /// Returns the parts of the latency of probes that the generator has sent.
    pub(crate) fn of(generator: &[ProbeTimes], traced: &TracedProbes) -> Anatomy {
        let (paths, mut anatomy) = (Paths::new(traced), Anatomy::default());
        for times in generator {
            let Some(arrival) = times.arrival else {
                anatomy.lost += 1;
                continue;
            };
            match paths.steps(times, arrival) {
                Ok(steps) => anatomy.add_probe(steps, arrival.1 - times.due),
                Err(Unknown::Incomplete) => anatomy.incomplete += 1,
                Err(Unknown::Invalid) => anatomy.invalid += 1,
            }
        }
        anatomy
    }

    /// Adds a probe with its steps and its latency, in cycles.
    fn add_probe(&mut self, steps: Vec<Step>, latency: u64) {
        let mut own: Vec<Option<u64>> = vec![None; self.parts.len()];
        for (kind, name, cycles) in steps {
            let part = self.part(kind, &name);
            own.resize(self.parts.len(), None);
            *own[part].get_or_insert(0) += cycles;
        }
        let mut sum_ns = 0;
        for (part, cycles) in self.parts.iter_mut().zip(own) {
            if let Some(ns) = cycles.map(nanoseconds) {
                sum_ns += ns;
                part.times_ns.push(ns);
            }
        }
        let latency_ns = nanoseconds(latency);
        self.latencies_ns.push(latency_ns);
        self.residual_max_ns = self.residual_max_ns.max(latency_ns.abs_diff(sum_ns));
    }

    /// Returns the index of a part, which is added if it is new.
    fn part(&mut self, kind: PartKind, name: &str) -> usize {
        let known = self.parts.iter().position(|part| part.kind == kind && part.name == name);
        known.unwrap_or_else(|| {
            self.parts.push(PartTimes { kind, name: name.to_owned(), times_ns: vec![] });
            self.parts.len() - 1
        })
    }

    /// Adds the probes of another trial.
    pub(crate) fn add(&mut self, other: &Anatomy) {
        for PartTimes { kind, name, times_ns } in &other.parts {
            let part = self.part(*kind, name);
            self.parts[part].times_ns.extend(times_ns);
        }
        self.latencies_ns.extend(&other.latencies_ns);
        self.residual_max_ns = self.residual_max_ns.max(other.residual_max_ns);
        self.lost += other.lost;
        self.incomplete += other.incomplete;
        self.invalid += other.invalid;
    }

    /// Returns the entry of a result document.
    pub(crate) fn document(&self, load_pps: f64, throughput_pps: f64) -> LatencyAnatomy {
        let probes = self.latencies_ns.len() as u64;
        let mean = |times_ns: &[u64]| times_ns.iter().sum::<u64>() as f64 / probes.max(1) as f64;
        let part = |PartTimes { kind, name, times_ns }: &PartTimes| {
            let [p50_ns, p99_ns] = percentiles(times_ns);
            let (name, probes) = (name.clone(), times_ns.len() as u64);
            LatencyPart { kind: *kind, name, probes, mean_ns: mean(times_ns), p50_ns, p99_ns }
        };
        let [p50_ns, p99_ns] = percentiles(&self.latencies_ns);
        LatencyAnatomy {
            load_pps,
            share_of_throughput: (throughput_pps > 0.0).then(|| load_pps / throughput_pps),
            probes,
            lost: self.lost,
            incomplete: self.incomplete,
            invalid: self.invalid,
            mean_ns: mean(&self.latencies_ns),
            p50_ns,
            p99_ns,
            residual_max_ns: self.residual_max_ns as f64,
            parts: self.parts.iter().map(part).take(report::limit::NODES).collect(),
        }
    }
}

/// Returns the median and the 99th percentile, if at least ten values lie beyond.
fn percentiles(values: &[u64]) -> [Option<f64>; 2] {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    [50, 99].map(|percent| {
        let rank = (sorted.len() * percent).div_ceil(100);
        (sorted.len() >= rank + 10).then(|| sorted[rank.saturating_sub(1)] as f64)
    })
}

/// Converts cycles of the time-stamp counter to whole nanoseconds.
fn nanoseconds(cycles: u64) -> u64 {
    (cycles as f64 * 1e9 / packet::clock::hz() as f64).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use ProbePoint::{Entered, Left, Received, Sent};
    use proptest::prelude::*;

    const PROBE: u64 = 7;

    fn record(cycles: u64, point: ProbePoint, name: &str) -> ProbeRecord {
        ProbeRecord { probe: PROBE, cycles, point, name: name.to_owned() }
    }

    fn sandbox(records: Option<Vec<ProbeRecord>>) -> SandboxProbes {
        SandboxProbes { name: "box".to_owned(), host_names: vec!["cross".to_owned(), "spread".to_owned()], records }
    }

    /// Places on the path from a port through an NF, a link, and a sandbox with an NF, with the time before each and the
    /// part that this time belongs to.
    const PATH: [(bool, ProbePoint, &str, &str); 15] = [
        (false, Received, "lan", "queue lan"),
        (false, Entered, "fw", "switch"),
        (false, Left, "fw", "NF fw"),
        (false, Sent, "between", "switch"),
        (false, Received, "between", "queue between"),
        (false, Entered, "spread", "switch"),
        (false, Left, "spread", "switch"),
        (false, Sent, "cross", "switch"),
        (true, Received, "cross", "crossing into box"),
        (true, Entered, "nat", "switch box"),
        (true, Left, "nat", "NF nat"),
        (true, Sent, "cross", "switch box"),
        (false, Received, "cross", "crossing out of box"),
        (false, Entered, "fw", "switch"),
        (false, Left, "fw", "NF fw"),
    ];

    /// Returns the records of the host and of the sandbox, the times of the generator, and the cycles of each part.
    fn path(times: &[u64]) -> (Vec<ProbeRecord>, Vec<ProbeRecord>, ProbeTimes, HashMap<String, u64>) {
        let (mut host, mut inside, mut parts) = (vec![], vec![], HashMap::new());
        let (due, mut now) = (1000, 1000 + times[0]);
        parts.insert("generator".to_owned(), times[0]);
        let sent = now;
        let last = (false, Sent, "wan", "switch");
        for ((is_inside, point, name, part), time) in PATH.into_iter().chain([last]).zip(&times[1..]) {
            now += time;
            if is_inside { &mut inside } else { &mut host }.push(record(now, point, name));
            *parts.entry(part.to_owned()).or_default() += time;
        }
        now += times[17];
        parts.insert("queue wan".to_owned(), times[17]);
        (host, inside, ProbeTimes { probe: PROBE, due, sent, arrival: Some((due, now)) }, parts)
    }

    proptest! {
        #[test]
        fn parts_are_those_of_the_path_and_add_up(
            times in prop::collection::vec(0_u64..100_000, 18),
            seed in any::<u64>(),
        ) {
            let (mut host, inside, generator, expected) = path(&times);
            // workers are read one after the other
            host.rotate_left(if times[5] == 0 { 0 } else { seed as usize % 2 * 4 });
            let traced = TracedProbes { host, sandboxes: vec![sandbox(Some(inside))] };
            let document = Anatomy::of(&[generator], &traced).document(1e6, 2e6);
            prop_assert_eq!((document.probes, document.incomplete, document.invalid), (1, 0, 0));
            prop_assert_eq!(document.share_of_throughput, Some(0.5));
            let labels: HashMap<String, f64> = document.parts.iter().map(|p| (p.label(), p.mean_ns)).collect();
            prop_assert_eq!(labels.len(), expected.len());
            for (label, cycles) in expected {
                prop_assert_eq!(labels.get(&label).copied(), Some(nanoseconds(cycles) as f64), "{}", label);
            }
            prop_assert!(document.residual_max_ns <= document.parts.len() as f64);
        }

        #[test]
        fn records_of_a_sandbox_change_only_the_time_in_it(
            times in prop::collection::vec(1_u64..1000, 18),
            forged in prop::collection::vec((0_u64..30_000, 0_u8..4, prop::bool::ANY), 0..12),
        ) {
            let (host, _, generator, _) = path(&times);
            let forge = |(cycles, point, is_port): (u64, u8, bool)| {
                let point = [Received, Entered, Left, Sent][usize::from(point)];
                record(cycles, point, if is_port { "cross" } else { "nat" })
            };
            let traced = TracedProbes { host, sandboxes: vec![sandbox(Some(forged.into_iter().map(forge).collect()))] };
            let document = Anatomy::of(&[generator], &traced).document(1e6, 0.0);
            prop_assert_eq!(document.probes + document.incomplete + document.invalid, 1);
            let is_inside = |part: &&LatencyPart| part.label().ends_with("box") || part.label() == "NF nat";
            let inside: f64 = document.parts.iter().filter(is_inside).map(|part| part.mean_ns).sum();
            // between sending into the sandbox and receiving from it
            let true_ns = nanoseconds(times[9..14].iter().sum()) as f64;
            prop_assert!(document.probes == 0 || (inside - true_ns).abs() <= document.parts.len() as f64);
        }
    }

    #[test]
    fn probes_without_a_path_are_counted() {
        let times = [10; 18];
        let (host, inside, generator, _) = path(&times);
        let of = |host: Vec<ProbeRecord>, generator: ProbeTimes, inside| {
            let traced = TracedProbes { host, sandboxes: vec![sandbox(inside)] };
            let d = Anatomy::of(&[generator], &traced).document(1e6, 0.0);
            [d.probes, d.lost, d.incomplete, d.invalid]
        };
        let lost = ProbeTimes { arrival: None, ..generator };
        assert_eq!(of(host.clone(), lost, Some(inside.clone())), [0, 1, 0, 0]);
        for missing in 0..host.len() {
            let mut host = host.clone();
            let removed = host.remove(missing);
            // as if the link had passed it on in the worker
            let is_hidden = removed.point == Received && removed.name == "between";
            let expected = if is_hidden { [1, 0, 0, 0] } else { [0, 0, 1, 0] };
            assert_eq!(of(host, generator, Some(inside.clone())), expected, "{missing}");
        }
        assert_eq!(of(host.clone(), generator, Some(vec![])), [0, 0, 1, 0]);
        // a VM is one part
        assert_eq!(of(host.clone(), generator, None), [1, 0, 0, 0]);
        let early = ProbeTimes { arrival: Some((generator.due - 1, u64::MAX)), ..generator };
        assert_eq!(of(host.clone(), early, Some(inside.clone())), [0, 0, 0, 1]);
        let backwards = ProbeTimes { arrival: Some((generator.due, generator.sent)), ..generator };
        assert_eq!(of(host, backwards, Some(inside)), [0, 0, 0, 1]);
    }

    #[test]
    fn percentiles_need_ten_values_beyond() {
        assert_eq!(percentiles(&[]), [None, None]);
        assert_eq!(percentiles(&(1..=19).collect::<Vec<_>>()), [None, None]);
        assert_eq!(percentiles(&(1..=1000).rev().collect::<Vec<_>>()), [Some(500.0), Some(990.0)]);
    }
}

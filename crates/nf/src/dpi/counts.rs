//! Counts of flows, packets and bytes by application and by group of hosts.

use super::application::{Application, UNKNOWN};
use super::detector::Flow;
use graph::Row;

/// Columns of the statistics table.
pub(super) const COLUMNS: [&str; 4] = ["bytes", "packets", "flows", "application"];
/// Outcomes that are applications, 0 for unknown, and those that are groups.
const APPLICATIONS: usize = 256;
const GROUPS: usize = 256;

/// Number of an application or of a group of hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Outcome(u16);

impl Outcome {
    /// Number of outcomes.
    pub(super) const COUNT: usize = APPLICATIONS + GROUPS;

    /// Returns the outcome of an application, 0 for unknown.
    pub(super) fn application(number: u8) -> Outcome {
        Outcome(number.into())
    }

    /// Returns the outcome of a group, 0 for none.
    pub(super) fn group(number: u8) -> Outcome {
        Outcome(APPLICATIONS as u16 + u16::from(number))
    }

    /// Returns its index, below [`COUNT`](Outcome::COUNT).
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

#[derive(Clone, Copy, Default, Debug)]
struct Count {
    flows: u64,
    packets: u64,
    bytes: u64,
}

/// Counts by outcome.
pub(super) struct Counts(Box<[Count; Outcome::COUNT]>);

impl Default for Counts {
    fn default() -> Self {
        Counts(Box::new([Count::default(); Outcome::COUNT]))
    }
}

impl Counts {
    /// Counts a packet of a flow that is decided.
    #[inline(always)]
    pub(super) fn add(&mut self, application: u8, group: u8, bytes: usize) {
        self.add_all(application, group, Count { flows: 0, packets: 1, bytes: bytes as u64 });
    }

    /// Counts a flow with its packets so far.
    pub(super) fn decide(&mut self, flow: &Flow) {
        let count = Count { flows: 1, packets: flow.packets.into(), bytes: flow.bytes.into() };
        self.add_all(flow.application, flow.group, count);
    }

    #[inline(always)]
    fn add_all(&mut self, application: u8, group: u8, count: Count) {
        let add = |to: &mut Count| {
            to.flows += count.flows;
            to.packets += count.packets;
            to.bytes += count.bytes;
        };
        if let Some(to) = self.0.get_mut(Outcome::application(application).index()) {
            add(to);
        }
        if group != 0
            && let Some(to) = self.0.get_mut(Outcome::group(group).index())
        {
            add(to);
        }
    }

    /// Returns the rows of the statistics table: applications, and groups by name.
    pub(super) fn rows(&self, groups: &[String]) -> Vec<Row> {
        let applications = Application::ALL.iter().map(|it| (Outcome::application(it.number() as u8), it.name()));
        let unknown = [(Outcome::application(0), UNKNOWN)];
        let groups = groups.iter().zip(1..).map(|(name, number)| (Outcome::group(number), &**name));
        let all = unknown.into_iter().chain(applications).chain(groups);
        let counts = all.filter_map(|(outcome, name)| self.0.get(outcome.index()).map(|count| (count, name)));
        let row = |(count, name): (&Count, &str)| {
            let numbers = [count.bytes, count.packets, count.flows].map(|number| number.to_string());
            (count.bytes, numbers.into_iter().chain([name.to_owned()]).collect())
        };
        counts.filter(|(count, _)| count.flows != 0).map(row).collect()
    }
}

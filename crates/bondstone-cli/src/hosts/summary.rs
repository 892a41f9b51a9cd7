//! The summary of a run on several hosts.

use crate::table::{Table, count};
use config::{Host, Hosts};
use runtime::{Summary, Totals};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Counts of all hosts and of the links between them, from summaries that may be invalid.
#[derive(Serialize)]
pub(crate) struct HostsSummary<'a> {
    file: String,
    /// True if the counts of every host add up.
    balanced: bool,
    hosts: BTreeMap<&'a str, Box<Summary>>,
    links: Vec<LinkSummary<'a>>,
    /// Errors of the run, and those of hosts with their names.
    errors: Vec<String>,
    /// Hosts in the order of the paths.
    #[serde(skip)]
    order: Vec<(&'a str, &'a str)>,
}

/// Packets on a link between two hosts, in one direction.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct LinkSummary<'a> {
    name: &'a str,
    from: &'a str,
    to: &'a str,
    /// Packets that the first host sent; none if it has no summary.
    sent: Option<u64>,
    /// Packets that the second host received; none if it has no summary.
    received: Option<u64>,
    /// By how many packets fewer were received than sent.
    lost: Option<u64>,
    /// By how many packets more were received than sent, such as those of the kernel.
    foreign: Option<u64>,
}

/// Returns true if every packet is accounted for; the counts may be any numbers.
fn is_balanced(totals: &Totals) -> bool {
    let Totals { received, created, sent, held, dropped } = *totals;
    let sum = |all: &[u64]| all.iter().map(|n| u128::from(*n)).sum::<u128>();
    sum(&[received, created]) == sum(&[sent, held, dropped])
}

impl<'a> HostsSummary<'a> {
    /// Returns the summary of the hosts, in their order; a host without one has not begun or was lost.
    pub(super) fn of(
        file: &Path,
        hosts: &'a Hosts,
        summaries: Vec<Option<Box<Summary>>>,
        mut errors: Vec<String>,
    ) -> HostsSummary<'a> {
        let named = hosts.hosts.iter().map(|host| host.name.as_str()).zip(summaries);
        let of_hosts: BTreeMap<&str, Box<Summary>> =
            named.filter_map(|(name, summary)| Some((name, summary?))).collect();
        for (name, summary) in &of_hosts {
            let of_host = |error: &String| format!("host {name}: {}", sandbox::printable(error));
            errors.extend(summary.errors.iter().map(of_host));
        }
        let port = |host: &str, port: &str| of_hosts.get(host)?.ports.iter().find(|of| of.name == port);
        let port = &port;
        let links = hosts.links.iter().flat_map(|link| {
            link.crossings().map(move |(from, to)| {
                let sent = port(from, &link.name).map(|port| port.sent);
                let received = port(to, &link.name).map(|port| port.received);
                let both = sent.zip(received);
                let lost = both.map(|(sent, received)| sent.saturating_sub(received));
                let foreign = both.map(|(sent, received)| received.saturating_sub(sent));
                LinkSummary { name: &link.name, from, to, sent, received, lost, foreign }
            })
        });
        let order = hosts.hosts.iter().map(|Host { name, remote, .. }| (name.as_str(), remote.host.as_str()));
        HostsSummary {
            file: file.display().to_string(),
            balanced: of_hosts.values().all(|summary| is_balanced(&summary.totals)),
            links: links.collect(),
            order: order.collect(),
            hosts: of_hosts,
            errors,
        }
    }

    /// Returns true if the counts add up and there were no errors.
    pub(crate) fn is_sound(&self) -> bool {
        self.balanced && self.errors.is_empty()
    }

    /// Returns the summary as text without control characters other than line ends, with `text` of each host.
    pub(crate) fn text(&self, text: impl Fn(&Summary) -> String) -> String {
        let mut out = String::new();
        let columns = ["host", "received", "created", "sent", "held", "dropped", "accounting"];
        let mut totals = Table::new(&columns);
        for (name, address) in &self.order {
            let Some(summary) = self.hosts.get(name) else {
                totals.row([name, "-", "-", "-", "-", "-", "no summary"].map(str::to_owned));
                continue;
            };
            out += &format!("\nhost {name} ({address}):\n{}\n", text(summary));
            let Totals { received, created, sent, held, dropped } = summary.totals;
            let verdict = if is_balanced(&summary.totals) { "balanced" } else { "does not add up" };
            let counts = [received, created, sent, held, dropped].map(count);
            totals.row([&(*name).to_owned()].into_iter().chain(&counts).chain([&verdict.to_owned()]).cloned());
        }
        let mut links = Table::new(&["link", "from", "to", "sent", "received", "lost", "foreign"]);
        for LinkSummary { name, from, to, sent, received, lost, foreign } in &self.links {
            let counts = [*sent, *received, *lost, *foreign].map(|n| n.map_or_else(|| "-".to_owned(), count));
            links.row([name, from, to].into_iter().map(|text| (*text).to_owned()).chain(counts));
        }
        out += &format!("\n{totals}\n{links}\n");
        out.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::PortSummary;

    const FILE: &str = "bondstone = 1\nhost.a.ssh = \"a\"\nhost.b.ssh = \"b\"\n\
        link.wire = { a = \"af_packet:eth1\", b = \"af_packet:eth2\" }\n\
        port.in = { device = \"null\", host = \"a\" }\nport.out = { device = \"null\", host = \"b\" }\n\
        chain = [{ path = [\"in\", \"count\", \"out\"] }]\n";

    fn summary(received: u64, sent: u64, wire: [u64; 2]) -> Summary {
        let wire = PortSummary { name: "wire".to_owned(), received: wire[0], sent: wire[1], ..Default::default() };
        let totals = Totals { received, sent, ..Totals::default() };
        Summary { totals, ports: vec![wire], balanced: true, file: "x\u{1b}[2J".to_owned(), ..Default::default() }
    }

    #[test]
    fn counts_links_and_does_not_trust_hosts() {
        let hosts = Hosts::parse(FILE, Path::new("two.toml"), &nf::registry()).unwrap().unwrap();
        let boxed = |summary: Option<&Summary>| summary.cloned().map(Box::new);
        let of = |a: Option<&Summary>, b: Option<&Summary>| -> (bool, [Option<u64>; 4], String) {
            let all = HostsSummary::of(Path::new("two.toml"), &hosts, vec![boxed(a), boxed(b)], vec![]);
            let LinkSummary { name, from, to, sent, received, lost, foreign } = all.links[0];
            assert_eq!((all.links.len(), name, from, to), (1, "wire", "a", "b"));
            (all.is_sound(), [sent, received, lost, foreign], all.text(|summary| summary.file.clone()))
        };
        let (a, b) = (summary(100, 100, [0, 100]), summary(97, 97, [97, 0]));
        let (sound, counts, text) = of(Some(&a), Some(&b));
        assert_eq!((sound, counts), (true, [100, 97, 3, 0].map(Some)));
        assert!(text.contains("host a (a)") && !text.contains('\u{1b}'), "{text}");
        // it reports that it is balanced
        let invalid = Summary { totals: Totals { received: u64::MAX, created: 2, ..a.totals }, ..b.clone() };
        assert!(!of(Some(&a), Some(&invalid)).0);
        let failed = Summary { errors: vec!["x\ny".to_owned()], ..b };
        assert!(!of(Some(&a), Some(&failed)).0);
        let (_, counts, text) = of(None, Some(&summary(5, 5, [5, 0])));
        assert!(counts == [None, Some(5), None, None] && text.contains("no summary"), "{text}");
    }
}

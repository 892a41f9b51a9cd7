//! Assigns ports and NFs to the hosts of a file, and selects the part of one host.

use super::checker::Checker;
use super::sandboxes::nf_of;
use crate::device::Device;
use crate::file::{self, Edge, File};
use crate::hosts::{HostLink, Layout};
use crate::partition::unused_name;
use crate::plan::NfConfig;
use remote::RemoteHost;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use toml::Spanned;

/// Largest number of hosts.
const MAX_HOSTS: usize = 64;

/// The host of each port and NF.
type Assignment = BTreeMap<String, String>;

/// Returns a name or text with the span of another.
fn like<T>(at: &Spanned<String>, value: T) -> Spanned<T> {
    Spanned::new(at.span(), value)
}

/// A file that is being split at the links between hosts.
struct Split<'a> {
    /// Host whose part is selected.
    host: &'a str,
    of: Assignment,
    links: Vec<HostLink>,
    nfs: &'a [NfConfig],
    names: BTreeSet<String>,
    chains: Vec<Spanned<file::Chain>>,
    edges: Vec<Edge>,
}

impl Checker<'_> {
    /// Reduces a file to the part of a host; returns all its hosts and links.
    pub(super) fn select_host(&mut self, host: Option<&str>, file: &mut File, nfs: &mut Vec<NfConfig>) -> Layout {
        let before = self.errors.len();
        let mut hosts = self.hosts(file);
        let links = self.host_links(file, nfs);
        let of = self.assign(file, nfs);
        let Some(host) = host else {
            if let (Some(first), true) = (file.host.keys().next(), self.errors.len() == before) {
                let remedy =
                    "use run, check or plan, or a scenario with kind = \"hosts\"; this command is for one host";
                self.error(first.span(), first.get_ref(), "the file describes several hosts", remedy);
            }
            return self.discard(file, nfs, before);
        };
        if !hosts.iter().any(|(name, _)| name == host) && self.errors.len() == before {
            let names: Vec<_> = hosts.iter().map(|(name, _)| name.as_str()).collect();
            self.error(0..0, host, "the file describes no host of this name", format!("it has: {}", names.join(", ")));
        }
        if self.errors.len() != before {
            return self.discard(file, nfs, before);
        }
        let default_name = |(n, chain): (usize, &Spanned<file::Chain>)| {
            chain.get_ref().name.as_ref().map_or_else(|| format!("chain{}", n + 1), |name| name.get_ref().clone())
        };
        let names: Vec<String> = file.chain.iter().enumerate().map(default_name).collect();
        let mut split =
            Split { host, of, links, nfs, names: names.iter().cloned().collect(), chains: vec![], edges: vec![] };
        let starts: BTreeSet<String> =
            file.chain.iter().filter_map(first).map(|first| first.get_ref().clone()).collect();
        let mut order: Vec<String> = vec![];
        for (chain, name) in std::mem::take(&mut file.chain).iter().zip(&names) {
            split.chain(self, chain, name, &mut order);
        }
        split.edges(self, file, &starts);
        let Split { of, links, chains, edges, .. } = split;
        for (name, _) in file.link.iter() {
            if links.iter().any(|link| link.name == *name.get_ref() && link.is_crossed == [false; 2]) {
                let problem = "no path or edge crosses this link";
                self.error(name.span(), name.get_ref(), problem, "remove it, or give NFs or ports other hosts");
            }
        }
        for name in file.host.keys().filter(|name| !of.values().any(|host| host == name.get_ref())) {
            self.error(
                name.span(),
                name.get_ref(),
                "no port or NF is on this host",
                "remove it, or add host = \"...\"",
            );
        }
        self.incomplete |= self.errors.len() != before;
        (file.chain, file.edge) = (chains, edges);
        let is_own = |name: &str| of.get(name).is_none_or(|of| of == host);
        file.port.retain(|name, _| is_own(name.get_ref()));
        nfs.retain(|nf| is_own(&nf.name));
        for (name, devices) in &file.link {
            let used = links.iter().any(|link| link.name == *name.get_ref() && link.is_crossed != [false; 2]);
            if let (true, Some(device)) = (used, devices.get(host)) {
                file.port.insert(name.clone(), file::Port::new(device.clone()));
            }
        }
        // that of an NF or a chain on another host
        let is_elsewhere = |name: &String| {
            let is_chain =
                file.chain.iter().any(|chain| chain.get_ref().name.as_ref().is_some_and(|own| own.get_ref() == name));
            !is_chain && (!is_own(name) || names.contains(name))
        };
        file.sandbox.retain(|name, _| !is_elsewhere(name.get_ref()));
        file.traffic = file.traffic.take().filter(|traffic| match &traffic.get_ref().into {
            Some(into) => is_own(into),
            None => order.first().is_some_and(|first| first == host),
        });
        hosts.sort_by_key(|(name, _)| order.iter().position(|host| host == name).unwrap_or(usize::MAX));
        Layout { hosts, links }
    }

    /// Empties a file with errors that make others meaningless.
    fn discard(&mut self, file: &mut File, nfs: &mut Vec<NfConfig>, before: usize) -> Layout {
        if self.errors.len() != before {
            self.incomplete = true;
            *file = File::default();
            nfs.clear();
        }
        Layout::default()
    }

    /// Returns the destinations of all hosts.
    fn hosts(&mut self, file: &File) -> Vec<(String, RemoteHost)> {
        if let Some(name) = file.host.keys().nth(MAX_HOSTS) {
            self.error(
                name.span(),
                name.get_ref(),
                format!("the file has more than {MAX_HOSTS} hosts"),
                "split the file",
            );
        }
        let mut all = vec![];
        for (name, file::Host { ssh, program }) in &file.host {
            self.check_name(name.span(), name.get_ref());
            if !RemoteHost::is_valid(ssh.get_ref()) {
                self.error(ssh.span(), ssh.get_ref(), "invalid host", "write ssh = \"root@HOST\", as ssh takes it");
            }
            let program = program.clone().unwrap_or_else(|| RemoteHost::PROGRAM.to_owned());
            all.push((name.get_ref().clone(), RemoteHost { host: ssh.get_ref().clone(), program }));
        }
        all
    }

    /// Returns the links between hosts, in the order of the file.
    fn host_links(&mut self, file: &File, nfs: &[NfConfig]) -> Vec<HostLink> {
        let mut in_order: Vec<_> = file.link.iter().collect();
        in_order.sort_by_key(|(name, _)| name.span().start);
        let mut all = vec![];
        for (name, devices) in in_order {
            self.check_name(name.span(), name.get_ref());
            // an output of this name would lead to the port
            let is_output = nfs.iter().any(|nf| nf.name == *name.get_ref() || nf.outputs.contains(name.get_ref()));
            if is_output || file.port.keys().any(|port| port == name) {
                let problem = "is also the name of a port, of an NF or of an output";
                self.error(name.span(), name.get_ref(), problem, "rename one of them");
            }
            for (host, device) in devices {
                self.known_host(file, &like(device, host.clone()));
                if let Err((problem, remedy)) = Device::parse(device.get_ref(), name.get_ref()) {
                    self.error(device.span(), device.get_ref(), problem, remedy);
                }
            }
            let [a, b] = devices.keys().collect::<Vec<_>>()[..] else {
                let remedy = "write the device of each of its two hosts: HOST = \"af_packet:eth1\"";
                self.error(name.span(), name.get_ref(), format!("connects {} hosts", devices.len()), remedy);
                continue;
            };
            let ends = [a.clone(), b.clone()];
            all.push(HostLink { name: name.get_ref().clone(), ends, is_crossed: [false; 2] });
        }
        all
    }

    /// Checks that the file has a host.
    fn known_host(&mut self, file: &File, host: &Spanned<String>) {
        if !file.host.keys().any(|known| known.get_ref() == host.get_ref()) {
            let name = host.get_ref();
            self.error(host.span(), name, "is not a host", format!("declare it: [host.{name}] with ssh = \"...\""));
        }
    }

    /// Assigns each port and NF to its host: that of its key, or of its chain, or of the element before it in a path,
    /// or else of the one after it.
    fn assign(&mut self, file: &File, nfs: &[NfConfig]) -> Assignment {
        let of_ports = file.port.iter().filter_map(|(name, port)| Some((name.get_ref(), port.host.as_ref()?)));
        let of_nfs = nfs.iter().filter_map(|nf| Some((&nf.name, nf.host.as_ref()?)));
        let of_chains = file.chain.iter().filter_map(|chain| Some((chain.get_ref(), chain.get_ref().host.as_ref()?)));
        let mut of = Assignment::new();
        for (name, host) in of_ports.chain(of_nfs) {
            self.known_host(file, host);
            of.insert(name.clone(), host.get_ref().clone());
        }
        for (chain, host) in of_chains {
            self.known_host(file, host);
            for element in chain.path.get_ref() {
                of.entry(nf_of(element.get_ref()).to_owned()).or_insert_with(|| host.get_ref().clone());
            }
        }
        if file.host.is_empty() {
            return of;
        }
        let paths = file.chain.iter().flat_map(|chain| chain.get_ref().path.get_ref().windows(2));
        let steps = paths.map(|step| [&step[0], &step[1]]).chain(file.edge.iter().map(|edge| [&edge.from, &edge.to]));
        let steps: Vec<[&str; 2]> = steps.map(|step| step.map(|element| nf_of(element.get_ref()))).collect();
        let spread = |of: &mut Assignment, from: &str, to: &str| {
            let host = of.get(from).filter(|_| !of.contains_key(to)).cloned();
            host.is_some_and(|host| of.insert(to.to_owned(), host).is_none())
        };
        loop {
            let forward = steps.iter().filter(|[from, to]| spread(&mut of, from, to)).count();
            if forward == 0 && steps.iter().rev().filter(|[from, to]| spread(&mut of, to, from)).count() == 0 {
                break;
            }
        }
        let ports = file.port.keys().map(|name| (name.get_ref(), name.span()));
        let all: Vec<(&String, Range<usize>)> = ports.chain(nfs.iter().map(|nf| (&nf.name, nf.span_of("")))).collect();
        for (name, span) in all.into_iter().filter(|(name, _)| !of.contains_key(*name)) {
            self.error(span, name, "is on no host", "add host = \"...\" to it, or to a neighbour in its path");
        }
        of
    }
}

/// Returns the first element of a path.
fn first(chain: &Spanned<file::Chain>) -> Option<&Spanned<String>> {
    chain.get_ref().path.get_ref().first()
}

impl Split<'_> {
    fn host_of(&self, element: &str) -> Option<&String> {
        self.of.get(nf_of(element))
    }

    /// Returns the link by which packets cross between two hosts: the first that no others cross in this direction.
    fn cross(&mut self, checker: &mut Checker<'_>, from: &str, to: &str, at: &Spanned<String>) -> Option<String> {
        let free = self.links.iter_mut().find_map(|link| {
            let direction = link.direction(from, to).filter(|&direction| !link.is_crossed[direction])?;
            link.is_crossed[direction] = true;
            Some(link.name.clone())
        });
        if free.is_none() {
            let problem = format!("no link from host {from:?} to host {to:?} is left for the packets that cross here");
            let remedy = format!("add [link.NAME] with {from} = \"DEVICE\" and {to} = \"DEVICE\"");
            checker.error(at.span(), at.get_ref(), problem, remedy);
        }
        free
    }

    /// Adds the pieces of a chain on the selected host, and the hosts of all pieces to `order`.
    fn chain(&mut self, checker: &mut Checker<'_>, whole: &Spanned<file::Chain>, name: &str, order: &mut Vec<String>) {
        let (span, whole) = (whole.span(), whole.get_ref());
        let path = whole.path.get_ref();
        // unknown names are reported with the element before them
        let mut hosts: Vec<&String> = vec![];
        for element in path {
            hosts.extend(self.of.get(nf_of(element.get_ref())).or(hosts.last().copied()));
        }
        if hosts.len() != path.len() || path.is_empty() {
            self.chains.push(Spanned::new(span, whole.clone()));
            return;
        }
        let hosts: Vec<String> = hosts.into_iter().cloned().collect();
        let is_nf = |element: &Spanned<String>| self.nfs.iter().any(|nf| nf.name == nf_of(element.get_ref()));
        let mut runs: Vec<Range<usize>> = vec![];
        for at in 0..path.len() {
            match runs.last_mut().filter(|run| hosts[run.start] == hosts[at]) {
                Some(run) => run.end = at + 1,
                None => runs.push(at..at + 1),
            }
        }
        // the name is that of the sandbox of its NFs
        let named = runs.iter().position(|run| path[run.clone()].iter().any(is_nf)).unwrap_or(0);
        let mut entry: Option<Spanned<String>> = None;
        for (n, run) in runs.iter().enumerate() {
            let own = &hosts[run.start];
            order.extend((!order.contains(own)).then(|| own.clone()));
            let exit = runs.get(n + 1).and_then(|next| {
                let at = &path[next.start];
                Some(like(at, self.cross(checker, own, &hosts[next.start], at)?))
            });
            let name = if n == named { name.to_owned() } else { unused_name(name, n + 1, &mut self.names) };
            if own == self.host {
                let is_first = n == 0;
                let elements = path[run.clone()].iter().map(|element| self.with_input(element, &path[0], is_first));
                let elements: Vec<_> = entry.into_iter().chain(elements).chain(exit.clone()).collect();
                let rate = whole.rate.clone().filter(|_| is_first);
                let shuffle = whole.shuffle.clone().filter(|_| is_first);
                let isolation = whole.isolation.clone().filter(|_| path[run.clone()].iter().any(is_nf));
                let at = whole.name.as_ref().map_or(span.clone(), Spanned::span);
                let piece = file::Chain {
                    name: Some(Spanned::new(at, name)),
                    path: Spanned::new(whole.path.span(), elements),
                    rate,
                    shuffle,
                    isolation,
                    ..whole.clone()
                };
                self.chains.push(Spanned::new(span.clone(), piece));
            }
            entry = exit;
        }
    }

    /// Returns an element of a path; behind a link with its input, which is named like the first port of the path if it
    /// is not given.
    fn with_input(&self, element: &Spanned<String>, first: &Spanned<String>, is_first: bool) -> Spanned<String> {
        let name = element.get_ref();
        let takes_input = !is_first && self.nfs.iter().any(|nf| nf.name == *name && nf.has_interfaces());
        like(element, if takes_input { format!("{name}:{}", first.get_ref()) } else { name.clone() })
    }

    /// Adds the edges on the selected host, and the chains that continue those of others; `starts` holds the first
    /// elements of all paths.
    fn edges(&mut self, checker: &mut Checker<'_>, file: &mut File, starts: &BTreeSet<String>) {
        let mut edges = std::mem::take(&mut file.edge);
        let is_port = |name: &str| file.port.keys().any(|port| port.get_ref() == name);
        let written: BTreeSet<String> = edges.iter().map(|edge| edge.from.get_ref().clone()).collect();
        for nf in self.nfs {
            for (at, output) in nf.outputs.iter().enumerate().skip(1) {
                let from = format!("{}.{output}", nf.name);
                // building rejects duplicate names
                let is_implied = is_port(output) && !nf.outputs[..at].contains(output);
                if is_implied && !written.contains(&from) && !starts.contains(&from) {
                    let span = nf.span_of("");
                    let [from, to] = [from, output.clone()].map(|name| Spanned::new(span.clone(), name));
                    if self.host_of(from.get_ref()) != self.host_of(to.get_ref()) {
                        edges.push(Edge { from, to });
                    }
                }
            }
        }
        for edge in edges {
            let [from, to] = [&edge.from, &edge.to].map(|end| self.host_of(end.get_ref()).cloned());
            let (from, to) = match (from, to) {
                (Some(from), Some(to)) if from != to => (from, to),
                (from, to) => {
                    if from.or(to).is_none_or(|host| host == self.host) {
                        self.edges.push(edge);
                    }
                    continue;
                }
            };
            if !is_port(edge.to.get_ref()) {
                let problem = format!("is on host {to:?}, and the edge begins on host {from:?}");
                let remedy = "lead the output to a port, or put both NFs on one host";
                checker.error(edge.to.span(), edge.to.get_ref(), problem, remedy);
                continue;
            }
            let Some(link) = self.cross(checker, &from, &to, &edge.to) else { continue };
            let link = like(&edge.to, link);
            let name = like(&edge.to, unused_name(edge.to.get_ref(), 1, &mut self.names));
            if from == self.host {
                self.edges.push(Edge { to: link, ..edge });
            } else if to == self.host {
                let path = like(&edge.to, vec![link, edge.to.clone()]);
                self.chains.push(Spanned::new(edge.to.span(), file::Chain::new(name, path)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{ChainFile, Hosts, Port};
    use std::path::Path;

    /// Settings of a router with the interfaces `in` and `out`.
    const ROUTER: &str = "kind = \"l3fwd\"\ninterface.in = { addresses = [\"10.0.1.1/24\"] }\n\
                          interface.out = { addresses = [\"10.0.2.1/24\"] }\n";

    fn hosts(names: &[&str]) -> String {
        names.iter().map(|name| format!("[host.{name}]\nssh = \"root@{name}\"\n")).collect()
    }

    fn link(name: &str, [a, b]: [&str; 2]) -> String {
        format!("[link.{name}]\n{a} = \"af_packet:{name}0\"\n{b} = \"af_packet:{name}1\"\n")
    }

    fn port(name: &str, host: &str) -> String {
        format!("[port.{name}]\ndevice = \"null\"\n{host}\n")
    }

    fn parse(text: &str) -> Result<Hosts, String> {
        let text = format!("bondstone = 1\n{text}");
        let parsed = Hosts::parse(&text, Path::new("hosts.toml"), &nf::registry());
        parsed.map(Option::unwrap).map_err(|errors| errors.iter().map(|e| format!("{e}\n")).collect())
    }

    /// Returns the paths and edges of a part.
    fn paths(part: &ChainFile) -> Vec<String> {
        let paths = part.chains.iter().map(|chain| format!("{}: {}", chain.name, chain.path.join(" ")));
        paths.chain(part.edge_names.iter().map(|edge| format!("{} -> {}", edge.from, edge.to))).collect()
    }

    #[test]
    fn a_path_of_any_assignment_is_the_same_path_over_links() {
        let (elements, names) = (["in", "x", "y", "z", "out"], ["a", "b", "c"]);
        let pairs = [["a", "b"], ["a", "c"], ["b", "c"]];
        let links: String =
            pairs.iter().flat_map(|pair| [1, 2].map(|n| link(&format!("{}{n}", pair.concat()), *pair))).collect();
        for assignment in 0..3usize.pow(5) {
            let host = |n: usize| names[assignment / 3usize.pow(n as u32) % 3];
            let used: Vec<&str> = names.into_iter().filter(|name| (0..5).any(|n| host(n) == *name)).collect();
            let nf = |n: usize| format!("[nf.{}]\nkind = \"count\"\nhost = {:?}\n", elements[n], host(n));
            let both = [0, 4].map(|n| port(elements[n], &format!("host = {:?}", host(n)))).concat();
            let path = format!("[[chain]]\npath = {elements:?}\n");
            // only links that are crossed
            let mut needed = String::new();
            let steps: Vec<[&str; 2]> = (1..5).map(|n| [host(n - 1), host(n)]).filter(|[a, b]| a != b).collect();
            for (pair, both) in pairs.iter().zip(links.split_inclusive("1\"\n").collect::<Vec<_>>().chunks(2)) {
                let crossed = |from: &str, to: &str| steps.iter().filter(|step| **step == [from, to]).count();
                needed += &both[..crossed(pair[0], pair[1]).max(crossed(pair[1], pair[0]))].concat();
            }
            let text = [hosts(&used), needed, both, (1..4).map(nf).collect(), path].concat();
            let file = parse(&text).unwrap_or_else(|e| panic!("{e}{text}"));
            assert_eq!(file.hosts[0].name, host(0));
            let (mut at, mut from, mut passed) = (host(0), "in".to_owned(), vec![]);
            loop {
                let part = &file.hosts.iter().find(|of| of.name == at).unwrap().part;
                let path = &part.chains.iter().find(|chain| chain.path[0] == from).unwrap().path;
                passed.extend(path.iter().filter(|element| elements.contains(&element.as_str())).cloned());
                let end = path.last().unwrap();
                let Some(link) = file.links.iter().find(|link| link.name == *end) else { break };
                assert!(link.crossings().any(|(from, _)| from == at));
                at = link.crossings().find(|(from, _)| *from == at).unwrap().1;
                at = names.into_iter().find(|name| *name == at).unwrap();
                from = end.clone();
            }
            assert_eq!(passed, elements, "{text}");
        }
    }

    #[test]
    fn interfaces_and_edges_cross_links_as_well() {
        let text = [
            hosts(&["a", "b"]),
            link("wire", ["a", "b"]),
            port("in", "host = \"a\""),
            port("out", "host = \"b\""),
            format!("[nf.fw]\nkind = \"tee\"\n[nf.router]\nhost = \"b\"\n{ROUTER}"),
            "[[chain]]\npath = [\"in\", \"fw\", \"router\"]\nrate = \"1 Mpps\"\nname = \"up\"\n".to_owned(),
            "[[chain]]\npath = [\"out\", \"router\"]\n".to_owned(),
            "[[edge]]\nfrom = \"fw.copy\"\nto = \"log\"\n".to_owned(),
            port("log", "host = \"b\""),
            link("copies", ["a", "b"]),
        ];
        let file = parse(&text.concat()).unwrap_or_else(|e| panic!("{e}"));
        let [a, b] = [0, 1].map(|n| &file.hosts[n]);
        assert_eq!((a.name.as_str(), b.name.as_str(), b.remote.host.as_str()), ("a", "b", "root@b"));
        assert_eq!(paths(&a.part), ["up: in fw wire", "in-1: wire in", "fw.copy -> copies"]);
        let of_b = ["up-2: wire router:in", "chain2: out router", "log-1: copies log", "router.in -> wire"];
        assert_eq!(paths(&b.part), of_b);
        assert!(a.part.chains[0].class.rate.is_some() && b.part.chains[0].class.rate.is_none());
        let ports = |part: &ChainFile| {
            part.ports.iter().map(|Port { name, device, .. }| format!("{name} {device}")).collect::<Vec<_>>()
        };
        assert_eq!(ports(&a.part), ["copies af_packet:copies0", "in null", "wire af_packet:wire0"]);
        assert_eq!(ports(&b.part), ["copies af_packet:copies1", "log null", "out null", "wire af_packet:wire1"]);
        assert_eq!(file.links[0].crossings().collect::<Vec<_>>(), [("a", "b"), ("b", "a")]);
        assert_eq!(file.links[1].crossings().collect::<Vec<_>>(), [("a", "b")]);
    }

    #[test]
    fn elements_have_the_host_of_their_neighbours() {
        let chain = |path: &str| format!("[[chain]]\npath = [{path}]\n");
        let ports = ["in", "out", "back"].map(|name| port(name, "")).concat();
        let far = "[nf.far]\nkind = \"count\"\nhost = \"b\"\n[sandbox.far]\nmemory_mib = 700\n";
        let near = "[nf.near]\nkind = \"count\"\nhost = \"a\"\n";
        let text = [
            hosts(&["a", "b"]),
            link("wire", ["a", "b"]),
            ports,
            near.to_owned(),
            far.replace("host", "isolation = \"process\"\nhost"),
            chain("\"in\", \"near\", \"far\", \"ttl\", \"out\""),
            chain("\"back\", \"far:in\", \"out\""),
        ];
        let file = parse(&text.concat().replace("far:in", "count")).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(paths(&file.hosts[0].part), ["chain1: in near wire"]);
        assert_eq!(paths(&file.hosts[1].part), ["chain1-2: wire far ttl out", "chain2: back count out"]);
        let sandboxes = |n: usize| file.hosts[n].part.sandboxes.iter().map(|s| s.memory_mib).collect::<Vec<_>>();
        assert_eq!((sandboxes(0), sandboxes(1)), (vec![], vec![700]));
    }

    #[test]
    fn errors_have_a_location_and_a_remedy() {
        let two = hosts(&["a", "b"]) + &link("wire", ["a", "b"]);
        let ports = [port("in", "host = \"a\""), port("out", "host = \"b\"")].concat();
        let path = "[[chain]]\npath = [\"in\", \"count\", \"out\"]\n";
        let good = format!("{two}{ports}{path}");
        assert!(parse(&good).is_ok());
        for (from, to, words) in [
            ("ssh = \"root@a\"", "ssh = \"-oProxyCommand=x\"", "invalid host"),
            ("host = \"b\"", "host = \"c\"", "\"c\": is not a host"),
            ("b = \"af_packet:wire1\"\n", "", "connects 1 hosts"),
            ("b = \"af_packet:wire1\"", "c = \"af_packet:wire1\"", "\"c\": is not a host"),
            ("\"af_packet:wire1\"", "\"af_paket:wire1\"", "af_paket"),
            ("host = \"b\"", "host = \"a\"", "no path or edge crosses this link"),
            ("[link.wire]", "[link.in]", "is also the name of a port"),
            (&*two, &hosts(&["a", "b"]), "no link from host \"a\" to host \"b\" is left"),
            ("host = \"a\"", "", "no port or NF is on this host"),
            ("device = \"null\"", "device = \"pcap:in.pcap\"", "write an absolute path"),
            ("[host.a]", "[host.a]\nsh = 1", "unknown key"),
        ] {
            let text = good.replacen(from, to, 1);
            assert_ne!(text, good);
            let e = parse(&text).err().unwrap_or_else(|| panic!("{words}: {text}"));
            assert!(e.contains(words) && e.contains("hosts.toml:") && e.contains("help:"), "{words}: {e}");
        }
        let text = format!("bondstone = 1\n{good}");
        let read = |text: &str, host| ChainFile::parse_for(text, Path::new("hosts.toml"), host, &nf::registry());
        let error = |host| read(&text, host).err().map(|errors| errors[0].problem.clone());
        assert!(error(None).unwrap().contains("describes several hosts"));
        assert!(error(Some("c")).unwrap().contains("no host of this name"));
        assert_eq!(read(&text, Some("b")).unwrap().host.as_deref(), Some("b"));
        let one = format!("bondstone = 1\n{ports}{path}");
        assert!(read(&one, None).err().unwrap()[0].problem.contains("is not a host"));
        assert!(
            Hosts::parse(&one.replace("host = \"a\"", "").replace("host = \"b\"", ""), Path::new("x"), &nf::registry())
                .unwrap()
                .is_none()
        );
    }
}

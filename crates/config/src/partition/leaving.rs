//! The host side while packets leave sandboxes that a reload ends.

use super::{ChainSpec, Partition, PortSpec, unused_name};
use crate::plan::{ChainFile, NfConfig, NfSettings};
use diagnostics::Diagnostic;
use graph::Registry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

impl ChainFile {
    /// Plans the host side as [`ChainFile::host_side`] does, together with the chains of the host side `before` that
    /// begin with the ports `leaving`. NFs and ports that only these chains need are taken from `before`.
    ///
    /// # Errors
    /// Errors of the partition.
    pub fn host_side_and_leaving(
        &self,
        folder: &Path,
        cores: &[usize],
        addresses: &BTreeMap<String, String>,
        registry: &Registry,
        (before, leaving): (&ChainFile, &[&str]),
    ) -> Result<ChainFile, Vec<Diagnostic>> {
        let mut partition = self.host_partition(folder, cores, addresses).map_err(|d| vec![self.of_file(d)])?;
        partition.add_leaving(before, leaving);
        self.plan_host_side(&partition, registry)
    }
}

impl Partition {
    /// Adds the chains of another host side that begin with these ports, and all that they need.
    fn add_leaving(&mut self, before: &ChainFile, leaving: &[&str]) {
        let mut names: BTreeSet<String> = self.chains.iter().map(|chain| chain.name.clone()).collect();
        let mut needed: Vec<&str> = leaving.to_vec();
        while let Some(name) = needed.pop() {
            let is_known = self.ports.iter().any(|port| port.name == name) || self.nfs.iter().any(|nf| nf.name == name);
            if is_known {
                continue;
            }
            let nf = before.nfs.iter().find(|nf| nf.name == name);
            if let Some(port) = before.ports.iter().find(|port| port.name == name) {
                let declared = PortSpec::declared(port, &BTreeMap::new());
                self.ports.push(PortSpec { crosses: port.crossing_side.is_some(), ..declared });
            } else if let Some(nf) = nf {
                self.nfs.push(NfSettings { spans: vec![], ..NfSettings::of(nf) });
                let edges = before.edge_names.iter().filter(|edge| edge.nf() == name);
                self.edges.extend(edges.clone().cloned());
                needed.extend(edges.map(|edge| base(&edge.to)));
                needed.extend(ports_of_outputs(before, nf));
            }
            let begins =
                |first: &String| if nf.is_some() { first.split('.').next() == Some(name) } else { first == name };
            let is_left = nf.is_some() || leaving.contains(&name);
            for chain in before.chains.iter().filter(|chain| is_left && chain.path.first().is_some_and(begins)) {
                needed.extend(chain.path.iter().map(|element| base(element)));
                // NFs of both run on the same CPUs
                let same = self.chains.iter().find(|other| other.path.get(1..) == chain.path.get(1..));
                self.chains.push(ChainSpec {
                    cores: same.map_or(&chain.cores, |other| &other.cores).clone(),
                    on_panic: chain.on_panic,
                    shuffle: chain.path[0].contains('.').then_some(chain.shuffle),
                    class: chain.class,
                    ..ChainSpec::plain(unused_name(name, 1, &mut names), chain.path.clone(), &[])
                });
            }
        }
    }
}

/// Returns the ports that have the names of outputs of an NF.
fn ports_of_outputs<'a>(file: &'a ChainFile, nf: &'a NfConfig) -> impl Iterator<Item = &'a str> {
    file.ports.iter().map(|port| port.name.as_str()).filter(|port| nf.outputs.iter().any(|output| output == port))
}

/// Returns the port or NF of a path element or the end of an edge.
fn base(element: &str) -> &str {
    element.split([':', '.']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets that leave a removed sandbox follow the path on which they entered it, with all that it needs.
    #[test]
    fn leaving_packets_follow_the_path_of_before() {
        let registry = nf::registry();
        let read = |text: &str| {
            let ports = ["a", "b", "c"].map(|port| format!("port.{port}.device = \"null\"\n")).concat();
            let text = format!("bondstone = 1\n{ports}{text}");
            ChainFile::parse(&text, Path::new("test.toml"), &registry).unwrap_or_else(|e| panic!("{text}{e:?}"))
        };
        let nfs = "[nf.x]\nkind = \"count\"\nisolation = \"process\"\n[nf.probe]\nkind = \"tee\"\n";
        let before = read(&format!(
            "{nfs}[[chain]]\npath = [\"a\", \"x\", \"probe\", \"b\"]\n[[edge]]\nfrom = \"probe.copy\"\nto = \"c\"\n"
        ));
        let side = |file: &ChainFile| file.host_side(Path::new("/run"), &[0], &BTreeMap::new(), &registry).unwrap();
        let paths = |file: &ChainFile| file.chains.iter().map(|chain| chain.path.join(" ")).collect::<Vec<_>>();
        assert_eq!(paths(&side(&before)), ["a x-1", "x-1 probe b"]);
        let after = read("chain = [{ path = [\"a\", \"b\"] }, { path = [\"b\", \"c\"] }]");
        let both = after.host_side_and_leaving(
            Path::new("/run"),
            &[1],
            &BTreeMap::new(),
            &registry,
            (&side(&before), &["x-1"]),
        );
        let both = both.unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(paths(&both), ["a b", "b c", "x-1 probe b"]);
        assert_eq!(both.chains.iter().map(|chain| chain.cores[0]).collect::<Vec<_>>(), [1, 1, 0]);
        let port = |file: &ChainFile, name: &str| file.ports.iter().find(|port| port.name == name).cloned().unwrap();
        let [own, left] = [&both, &side(&before)].map(|file| port(file, "x-1"));
        assert_eq!((own.device, own.crossing_side), (left.device, left.crossing_side));
        assert_eq!(both.nfs.iter().map(|nf| nf.name.as_str()).collect::<Vec<_>>(), ["probe"]);
        assert_eq!(both.edge_names.len(), 1);
        // NFs that both have are those of the new file, on its CPUs
        let after = read(&format!(
            "{}[[chain]]\npath = [\"a\", \"probe\", \"b\"]\n[[edge]]\nfrom = \"probe.copy\"\nto = \"c\"\n",
            &nfs[nfs.find("[nf.probe]").unwrap()..]
        ));
        let both = after
            .host_side_and_leaving(Path::new("/run"), &[1], &BTreeMap::new(), &registry, (&side(&before), &["x-1"]))
            .unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(both.chains.iter().map(|chain| chain.cores[0]).collect::<Vec<_>>(), [1, 1]);
        assert_eq!((both.nfs.len(), both.edge_names.len()), (1, 1));
    }
}

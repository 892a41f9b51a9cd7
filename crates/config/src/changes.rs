//! The difference between two chain files.

use crate::plan::{Chain, ChainFile, NfConfig, Port};
use crate::sandbox::Sandbox;
use graph::TakeOver;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// The effect of a reload on an NF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NfChange {
    /// It runs on, with all its state.
    Kept,
    /// A new node takes over its state ([`graph::Nf::TAKES_OVER`]).
    Reconfigured,
    /// A new node starts without state.
    Rebuilt,
    /// The old file does not have it.
    Added,
    /// The new file does not have it.
    Removed,
}

/// An NF of either file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedNf {
    /// Name.
    pub name: String,
    /// Kind, in the new file if it has the NF.
    pub kind: Cow<'static, str>,
    /// The effect on it.
    pub change: NfChange,
    /// Settings that differ, if it is of the same kind in both files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<String>,
    /// State that a reconfigured NF keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeps: Option<Cow<'static, str>>,
}

/// A port or chain of either file that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// Name.
    pub name: String,
    /// True if the old file has it.
    pub before: bool,
    /// True if the new file has it.
    pub after: bool,
}

/// The difference between two chain files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// All NFs of both files: those of the new file in its order, then those that it lacks.
    pub nfs: Vec<ChangedNf>,
    /// Chains that differ.
    pub chains: Vec<Changed>,
    /// Ports that differ.
    pub ports: Vec<Changed>,
    /// Differences that need a restart, as problems.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restart: Vec<String>,
}

impl Changes {
    /// Compares two files. Files that settings name are not read: an NF with the same settings is kept.
    #[must_use]
    pub fn between(old: &ChainFile, new: &ChainFile) -> Changes {
        let edges =
            |file: &ChainFile| file.edge_names.iter().map(|e| (e.from.clone(), e.to.clone())).collect::<Vec<_>>();
        let mut nfs: Vec<ChangedNf> = new.nfs.iter().map(|nf| compare(find(&old.nfs, &nf.name), nf)).collect();
        let removed = old.nfs.iter().filter(|nf| find(&new.nfs, &nf.name).is_none());
        nfs.extend(removed.map(|nf| ChangedNf::new(nf, NfChange::Removed)));
        let ports = changed(&old.ports, &new.ports, |port| &port.name, is_same_port);
        let mut chains = changed(&old.chains, &new.chains, |chain| &chain.name, is_same_chain);
        if chains.is_empty() && edges(old) != edges(new) {
            chains.push(Changed { name: "edges".to_owned(), before: true, after: true });
        }
        let mut restart = vec![];
        let mut needs = |differs: bool, what: &str| {
            if differs {
                restart.push(format!("{what} cannot be changed by a reload"));
            }
        };
        needs(old.clock != new.clock, "clock");
        needs(old.max_frame != new.max_frame, "max_frame");
        needs(old.idle != new.idle, "idle");
        needs(sandboxes(old) != sandboxes(new), "what is in sandboxes, or leads to them,");
        for port in ports.iter().filter(|port| port.before && port.after) {
            let of =
                |file: &ChainFile| file.ports.iter().find(|other| other.name == port.name).map(|p| p.device.clone());
            needs(of(old) == of(new), &format!("port {:?}, whose device is open,", port.name));
        }
        Changes { nfs, chains, ports, restart }
    }

    /// Returns true if the files have the same effect.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Changes { nfs, chains, ports, restart } = self;
        nfs.iter().all(|nf| nf.change == NfChange::Kept) && chains.is_empty() && ports.is_empty() && restart.is_empty()
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return writeln!(f, "no changes");
        }
        for ChangedNf { name, kind, change, settings, keeps } in &self.nfs {
            let change = match change {
                NfChange::Kept => continue,
                NfChange::Reconfigured => "reconfigured",
                NfChange::Rebuilt => "rebuilt",
                NfChange::Added => "added",
                NfChange::Removed => "removed",
            };
            write!(f, "{change:<13} nf {name} ({kind})")?;
            if !settings.is_empty() {
                write!(f, ": {}", settings.join(", "))?;
            }
            match (keeps, change) {
                (Some(keeps), _) => writeln!(f, "; keeps {keeps}")?,
                (None, "rebuilt") => writeln!(f, "; starts without state")?,
                (None, _) => writeln!(f)?,
            }
        }
        for (list, what) in [(&self.chains, "chain"), (&self.ports, "port")] {
            for Changed { name, before, after } in list {
                let change = match (before, after) {
                    (false, _) => "added",
                    (_, false) => "removed",
                    _ => "changed",
                };
                writeln!(f, "{change:<13} {what} {name}")?;
            }
        }
        let kept = self.nfs.iter().filter(|nf| nf.change == NfChange::Kept).map(|nf| nf.name.as_str());
        let kept: Vec<&str> = kept.collect();
        if !kept.is_empty() {
            writeln!(f, "{:<13} nf {}", "kept", kept.join(", "))?;
        }
        self.restart.iter().try_for_each(|problem| writeln!(f, "{:<13} {problem}", "needs restart"))
    }
}

impl ChangedNf {
    fn new(nf: &NfConfig, change: NfChange) -> ChangedNf {
        ChangedNf { name: nf.name.clone(), kind: nf.kind.name.into(), change, settings: vec![], keeps: None }
    }

    /// Returns the NF as one that is built again because these settings differ.
    #[must_use]
    pub fn because(self, settings: Vec<String>, takes_over: Option<TakeOver>) -> ChangedNf {
        let fits = |take: &TakeOver| !settings.iter().any(|key| take.unless.contains(&key.as_str()));
        let keeps = takes_over.filter(fits).map(|take| take.state.into());
        let change = if keeps.is_some() { NfChange::Reconfigured } else { NfChange::Rebuilt };
        ChangedNf { settings, keeps, change, ..self }
    }
}

/// Returns what the sandboxes of a file are and run, as text.
fn sandboxes(file: &ChainFile) -> Vec<String> {
    let side = |sandbox: &Sandbox| {
        let side = file.sandbox_side(sandbox, Path::new("/run"), &BTreeMap::new()).ok()?;
        let mut side = serde_json::to_value(side).ok()?;
        // positions of settings in the file
        side.as_object_mut()?.remove("source");
        for nf in side["nfs"].as_array_mut()? {
            nf.as_object_mut()?.remove("spans");
        }
        Some(side.to_string())
    };
    let of = |s: &Sandbox| {
        let process = (&s.name, s.isolation, &s.cores, s.memory_mib, s.idle, s.transport);
        // text with indices into the file, if its side cannot be told
        let side = side(s).unwrap_or_else(|| format!("{s:?}"));
        format!("{process:?} {:?} {side}", (s.interfaces, s.queues, s.spread))
    };
    file.sandboxes.iter().map(of).collect()
}

fn find<'a>(nfs: &'a [NfConfig], name: &str) -> Option<&'a NfConfig> {
    nfs.iter().find(|nf| nf.name == name)
}

fn compare(old: Option<&NfConfig>, new: &NfConfig) -> ChangedNf {
    let Some(old) = old else { return ChangedNf::new(new, NfChange::Added) };
    if old.kind.name != new.kind.name {
        return ChangedNf::new(new, NfChange::Rebuilt);
    }
    let empty = serde_json::Map::new();
    let (before, after) = (old.settings.as_object().unwrap_or(&empty), new.settings.as_object().unwrap_or(&empty));
    let mut settings: Vec<String> =
        before.keys().chain(after.keys()).filter(|key| before.get(*key) != after.get(*key)).cloned().collect();
    settings.sort();
    settings.dedup();
    match settings.is_empty() {
        true => ChangedNf::new(new, NfChange::Kept),
        false => ChangedNf::new(new, NfChange::Rebuilt).because(settings, new.kind.takes_over),
    }
}

fn changed<T>(old: &[T], new: &[T], name: impl Fn(&T) -> &String, same: impl Fn(&T, &T) -> bool) -> Vec<Changed> {
    let find = |list: &[T], of: &T| list.iter().position(|other| name(other) == name(of));
    let of = |item: &T, before, after| Changed { name: name(item).clone(), before, after };
    let in_new = new.iter().filter_map(|item| match find(old, item) {
        None => Some(of(item, false, true)),
        Some(n) if !same(&old[n], item) => Some(of(item, true, true)),
        Some(_) => None,
    });
    let removed = old.iter().filter(|item| find(new, item).is_none()).map(|item| of(item, true, false));
    in_new.chain(removed).collect()
}

fn is_same_port(a: &Port, b: &Port) -> bool {
    let key = |p: &Port| (p.device.clone(), p.descriptors, p.repeat, p.timed, p.existing);
    key(a) == key(b) && a.sandbox == b.sandbox
}

fn is_same_chain(a: &Chain, b: &Chain) -> bool {
    let key = |c: &Chain| (c.path.clone(), c.cores.clone(), c.class, c.shuffle, c.on_panic);
    key(a) == key(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> ChainFile {
        ChainFile::parse(text, Path::new("test.toml"), &nf::registry()).unwrap_or_else(|e| panic!("{text}{e:?}"))
    }

    const TEXT: &str = "bondstone = 1\n[port.in]\ndevice = \"null\"\n[port.out]\ndevice = \"null\"\n\
        [nf.near]\nkind = \"ttl\"\n[nf.inner]\nkind = \"count\"\nisolation = \"process\"\n\
        [[chain]]\npath = [\"in\", \"near\", \"inner\", \"out\"]\n";

    #[test]
    fn only_what_runs_in_sandboxes_needs_a_restart() {
        let old = read(TEXT);
        let restart = |from: &str, to: &str| Changes::between(&old, &read(&TEXT.replace(from, to))).restart;
        assert!(restart("", "").is_empty());
        // positions and indices of the sandbox's NF change
        let longer = TEXT
            .replace("[nf.near]", "[nf.before]\nkind = \"count\"\n[nf.near]")
            .replace("\"near\", ", "\"before\", \"near\", ");
        assert!(Changes::between(&old, &read(&longer)).restart.is_empty());
        for (from, to) in [
            ("kind = \"count\"", "kind = \"ttl\""),
            ("\"process\"", "\"inproc\""),
            ("[[chain]]", "[sandbox.inner]\ncores = [0]\n[[chain]]"),
            ("[[chain]]", "[sandbox.inner]\nmemory_mib = 700\n[[chain]]"),
        ] {
            let restart = restart(from, to);
            assert!(restart.len() == 1 && restart[0].contains("sandboxes"), "{to}: {restart:?}");
        }
    }

    #[test]
    fn the_device_of_a_port_stays_as_it_was_opened() {
        let old = read(TEXT);
        let changes = |from: &str, to: &str| Changes::between(&old, &read(&TEXT.replace(from, to)));
        let port = |name: &str| Changed { name: name.to_owned(), before: true, after: true };
        let other = changes("[port.out]\ndevice = \"null\"", "[port.out]\ndevice = \"ring\"");
        assert_eq!((&other.ports[..], other.restart.len()), (&[port("out")][..], 0));
        let resized = changes("[port.out]\n", "[port.out]\ndescriptors = 256\n");
        assert!(resized.restart[0].contains("\"out\", whose device is open"), "{:?}", resized.restart);
    }
}

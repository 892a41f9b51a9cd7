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

/// A port, chain or sandbox of either file that differs.
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
    /// Sandboxes that differ: a process starts, ends, or is replaced by another one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sandboxes: Vec<Changed>,
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
        let sandboxes = changed_sandboxes(old, new);
        let compare = |nf: &NfConfig| {
            let change = compare(find(&old.nfs, &nf.name), nf);
            let (before, after) = (sandbox_of(old, &nf.name), sandbox_of(new, &nf.name));
            let has_left = before.is_some() != after.is_some();
            let is_replaced = [before, after].into_iter().flatten().any(|of| sandboxes.iter().any(|s| s.name == *of));
            match change.change {
                NfChange::Kept | NfChange::Reconfigured if has_left || is_replaced => {
                    change.rebuilt_because(if has_left { "isolation" } else { "its sandbox" })
                }
                _ => change,
            }
        };
        let mut nfs: Vec<ChangedNf> = new.nfs.iter().map(compare).collect();
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
        for Changed { name, .. } in &sandboxes {
            let has_devices = [old, new].iter().any(|file| {
                file.sandboxes.iter().any(|sandbox| sandbox.name == *name && !sandbox.passthrough.is_empty())
            });
            needs(has_devices, &format!("sandbox {name:?}, to which ports are passed through,"));
        }
        for port in ports.iter().filter(|port| port.before && port.after) {
            let of =
                |file: &ChainFile| file.ports.iter().find(|other| other.name == port.name).map(|p| p.device.clone());
            needs(of(old) == of(new), &format!("port {:?}, whose device is open,", port.name));
        }
        Changes { nfs, chains, ports, sandboxes, restart }
    }

    /// Adds a sandbox that is the same in both files and nevertheless gets another process, with the reason.
    pub fn replace_sandbox(&mut self, sandbox: &Sandbox, reason: &str) {
        self.sandboxes.push(Changed { name: sandbox.name.clone(), before: true, after: true });
        for nf in self.nfs.iter_mut().filter(|nf| sandbox.nfs.contains(&nf.name)) {
            *nf = nf.clone().rebuilt_because(reason);
        }
    }

    /// Returns true if the files have the same effect.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Changes { nfs, chains, ports, sandboxes, restart } = self;
        let is_empty = |changed: &Vec<Changed>| changed.is_empty();
        nfs.iter().all(|nf| nf.change == NfChange::Kept)
            && [chains, ports, sandboxes].into_iter().all(is_empty)
            && restart.is_empty()
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
        for (list, what) in [(&self.sandboxes, "sandbox"), (&self.chains, "chain"), (&self.ports, "port")] {
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

    /// Returns the NF as one that is built again for a reason, or because of the settings that differ.
    fn rebuilt_because(self, reason: &str) -> ChangedNf {
        let settings = if self.settings.is_empty() { vec![reason.to_owned()] } else { self.settings };
        ChangedNf { settings, keeps: None, change: NfChange::Rebuilt, ..self }
    }
}

/// Returns the name of the sandbox of an NF.
fn sandbox_of<'a>(file: &'a ChainFile, nf: &str) -> Option<&'a String> {
    file.sandboxes.iter().find(|sandbox| sandbox.nfs.iter().any(|own| own == nf)).map(|sandbox| &sandbox.name)
}

/// Returns the sandboxes that need another process.
fn changed_sandboxes(old: &ChainFile, new: &ChainFile) -> Vec<Changed> {
    let with_text = |file: &ChainFile| -> Vec<(String, String)> {
        file.sandboxes.iter().map(|sandbox| (sandbox.name.clone(), description(file, sandbox))).collect()
    };
    changed(&with_text(old), &with_text(new), |(name, _)| name, |(_, old), (_, new)| old == new)
}

/// Returns what a sandbox is and runs, as text.
fn description(file: &ChainFile, sandbox: &Sandbox) -> String {
    let side = || {
        let side = file.sandbox_side(sandbox, Path::new("/run"), &BTreeMap::new()).ok()?;
        let mut side = serde_json::to_value(side).ok()?;
        // positions of settings in the file
        side.as_object_mut()?.remove("source");
        for nf in side["nfs"].as_array_mut()? {
            nf.as_object_mut()?.remove("spans");
        }
        Some(side.to_string())
    };
    let Sandbox { isolation, cores, memory_mib, idle, transport, .. } = sandbox;
    let process = (isolation, cores, memory_mib, idle, transport);
    // text with indices into the file, if its side cannot be told
    let side = side().unwrap_or_else(|| format!("{sandbox:?}"));
    format!("{process:?} {:?} {side}", (sandbox.interfaces, sandbox.queues, sandbox.spread))
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
    let is_representor = |p: &Port| p.representor_tap().is_some();
    key(a) == key(b) && a.sandbox == b.sandbox && a.namespace == b.namespace && is_representor(a) == is_representor(b)
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
    fn sandboxes_that_differ_get_another_process() {
        let old = read(TEXT);
        let changes = |from: &str, to: &str| Changes::between(&old, &read(&TEXT.replace(from, to)));
        let none = |changes: Changes| changes.sandboxes.is_empty() && changes.restart.is_empty();
        assert!(changes("", "").is_empty());
        // positions and indices of the sandbox's NF change
        let longer = TEXT
            .replace("[nf.near]", "[nf.before]\nkind = \"count\"\n[nf.near]")
            .replace("\"near\", ", "\"before\", \"near\", ");
        assert!(none(Changes::between(&old, &read(&longer))));
        for (from, to, line) in [
            ("kind = \"count\"", "kind = \"ttl\"", "rebuilt       nf inner (ttl); starts without state"),
            (
                "[[chain]]",
                "[sandbox.inner]\ncores = [0]\n[[chain]]",
                "rebuilt       nf inner (count): its sandbox; starts",
            ),
            ("[[chain]]", "[sandbox.inner]\nmemory_mib = 700\n[[chain]]", "changed       sandbox inner"),
            ("\"process\"", "\"inproc\"", "removed       sandbox inner"),
            ("\"process\"", "\"inproc\"", "rebuilt       nf inner (count): isolation; starts without state"),
            ("kind = \"ttl\"", "kind = \"ttl\"\nisolation = \"process\"", "added         sandbox near"),
        ] {
            let changes = changes(from, to);
            assert_eq!((changes.sandboxes.len(), changes.restart.len()), (1, 0), "{to}");
            assert!(changes.to_string().contains(line), "{changes}");
        }
        let mut changes = changes("", "");
        changes.replace_sandbox(&old.sandboxes[0], "a file that it reads");
        assert!(changes.to_string().contains("nf inner (count): a file that it reads; starts"), "{changes}");
    }

    #[test]
    fn devices_in_sandboxes_stay() {
        let text = |keys: &str| {
            let text = TEXT
                .replace("[port.in]\ndevice = \"null\"", "[port.in]\ndevice = \"0000:01:00.0\"\nsandbox = \"inner\"");
            read(&format!("{}{keys}", text.replace("\"near\", \"inner\"", "\"inner\", \"near\"")))
        };
        let restart = |old: &ChainFile, new: &ChainFile| Changes::between(old, new).restart;
        let (old, new) = (text(""), text("[sandbox.inner]\ncores = [0]\n"));
        assert!(restart(&old, &old).is_empty());
        assert!(
            restart(&old, &new)[0].contains("\"inner\", to which ports are passed through"),
            "{:?}",
            restart(&old, &new)
        );
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

//! The crate, and what it depends on.

use crate::count::{Counted, spread};
use crate::source::{Followed, Root, follow, sources_under};
use crate::{BuildTime, Dependency, Error, Finding, Verdict};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId, TargetKind};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

/// Bondstone's crates that an NF crate may name. Those from the same place as the `bondstone-graph` in use, and what they
/// depend on, are no NF crates; a name alone says nothing.
const OWN: [&str; 11] = [
    "bondstone",
    "bondstone-diagnostics",
    "bondstone-graph",
    "bondstone-nf-testkit",
    "bondstone-lint",
    "bondstone-nf",
    "bondstone-packet",
    "bondstone-pcap",
    "bondstone-streams",
    "bondstone-tables",
    "bondstone-wire",
];
/// What makes a crate that of an NF: that it depends on this one, be it through others.
const NF_MARK: &str = "bondstone-graph";

/// A crate with its dependencies, but those of tests alone.
pub(crate) struct Packages {
    metadata: Metadata,
    root: PackageId,
    /// For each, what it depends on.
    edges: HashMap<PackageId, Vec<PackageId>>,
    /// All dependencies; true for those that are there for the build alone.
    reached: BTreeMap<PackageId, bool>,
    own: HashSet<PackageId>,
    /// NF crates among the dependencies.
    nf: BTreeSet<PackageId>,
}

impl Packages {
    /// Asks Cargo what is built for the machine `target`, by default this one; with further arguments for it.
    pub(crate) fn of(dir: &Path, target: Option<String>, arguments: &[&str]) -> Result<Self, Error> {
        let manifest = dir.join("Cargo.toml");
        if !manifest.is_file() {
            return Err(Error::NoCrate(dir.to_owned()));
        }
        let mut options: Vec<String> = arguments.iter().map(|&a| a.to_owned()).collect();
        // crates for other machines are not built, and need not be there
        options.extend(target.or_else(host).into_iter().flat_map(|target| ["--filter-platform".to_owned(), target]));
        let asked = MetadataCommand::new().manifest_path(&manifest).other_options(options).exec();
        let metadata = asked.map_err(|e| match e {
            cargo_metadata::Error::Io(e) if e.kind() == ErrorKind::NotFound => Error::NoCargo(e.to_string()),
            cargo_metadata::Error::CargoMetadata { stderr } => Error::Cargo(last_words(&stderr)),
            e => Error::Cargo(e.to_string()),
        })?;
        let root = match metadata.root_package() {
            Some(root) => root.id.clone(),
            None => return Err(Error::Workspace(dir.to_owned())),
        };
        Ok(Self::new(metadata, root))
    }

    fn new(metadata: Metadata, root: PackageId) -> Self {
        let nodes = metadata.resolve.iter().flat_map(|r| &r.nodes);
        let mut edges: HashMap<PackageId, Vec<PackageId>> = HashMap::new();
        let mut for_build = HashSet::new();
        for node in nodes {
            for dep in &node.deps {
                let kinds = || dep.dep_kinds.iter().map(|d| d.kind);
                if kinds().all(|kind| kind == DependencyKind::Development) {
                    continue;
                }
                if !kinds().any(|kind| kind == DependencyKind::Normal) {
                    for_build.insert((node.id.clone(), dep.pkg.clone()));
                }
                edges.entry(node.id.clone()).or_default().push(dep.pkg.clone());
            }
        }
        let macros: HashSet<_> = metadata.packages.iter().filter(|p| is_proc_macro(p)).map(|p| p.id.clone()).collect();
        let mut reached = BTreeMap::new();
        let mut waiting = vec![(root.clone(), false)];
        while let Some((id, build)) = waiting.pop() {
            for to in edges.get(&id).into_iter().flatten() {
                let build = build || macros.contains(to) || for_build.contains(&(id.clone(), to.clone()));
                // what is found by both ways counts as part of the program
                let known = reached.get(to).copied();
                if known.is_none_or(|known| known && !build) {
                    reached.insert(to.clone(), build);
                    waiting.push((to.clone(), build));
                }
            }
        }
        let own = own(&metadata, &root, &edges);
        let mut upward: HashMap<&PackageId, Vec<&PackageId>> = HashMap::new();
        edges.iter().for_each(|(from, all)| all.iter().for_each(|to| upward.entry(to).or_default().push(from)));
        let marks = metadata.packages.iter().filter(|p| p.name.as_str() == NF_MARK).map(|p| &p.id);
        let (mut marked, mut waiting) = (HashSet::new(), marks.collect::<Vec<_>>());
        while let Some(id) = waiting.pop() {
            if marked.insert(id) {
                waiting.extend(upward.get(id).into_iter().flatten().copied());
            }
        }
        let nf = reached.keys().filter(|id| marked.contains(id) && !own.contains(*id)).cloned().collect();
        Packages { metadata, root, edges, reached, own, nf }
    }

    /// Reads the sources of the NF crates.
    pub(crate) fn check_nf_crates(&self, allow: &[String]) -> Verdict {
        let root = &self.metadata[&self.root];
        let mut verdict = Verdict {
            schema: "bondstone.lint/1",
            name: root.name.to_string(),
            version: root.version.to_string(),
            ok: true,
            files: 0,
            nf_crates: vec![],
            refused: vec![],
            build_time: vec![],
            dependencies: vec![],
        };
        verdict.take(follow(&roots(root, true), &root.name, &HashSet::new()));
        verdict.build_time.extend(build_time(root));
        for package in self.reached.keys().map(|id| &self.metadata[id]) {
            verdict.build_time.extend(build_time(package));
            if self.nf.contains(&package.id) && !allow.iter().any(|a| *a == *package.name) {
                verdict.nf_crates.push(format!("{} {}", package.name, package.version));
                verdict.take(follow(&roots(package, false), &package.name, &HashSet::new()));
            }
        }
        verdict.build_time.sort_by(|a, b| (a.name.as_str(), &a.file).cmp(&(&b.name, &b.file)));
        verdict.settle();
        verdict
    }

    /// Counts unsafe code in the dependencies, and refuses their macros with unsafe code in NF crates.
    pub(crate) fn count(&self, allow: &[String], verdict: &mut Verdict) {
        let mut counted: BTreeMap<&PackageId, Counted> = BTreeMap::new();
        counted.insert(&self.root, Counted::of(&sources(&self.metadata[&self.root], true)));
        let allowed = |id: &PackageId| allow.iter().any(|a| *a == *self.metadata[id].name);
        for (id, &build_only) in &self.reached {
            let package = &self.metadata[id];
            let count = Counted::of(&sources(package, false));
            verdict.dependencies.push(Dependency {
                name: package.name.to_string(),
                version: package.version.to_string(),
                unsafe_code: count.unsafe_code,
                in_macros: count.in_macros,
                unread: count.unread,
                nf: self.nf.contains(id),
                own: self.own.contains(id) && package.name.starts_with("bondstone"),
                build_only,
                build_script: package.targets.iter().any(|t| t.kind.contains(&TargetKind::CustomBuild)),
                proc_macro: is_proc_macro(package),
                links: package.links.clone(),
            });
            counted.insert(id, count);
        }
        verdict.dependencies.sort_by(|a, b| {
            let key = |d: &Dependency| (std::cmp::Reverse(d.unsafe_code), d.name.clone(), d.version.clone());
            key(a).cmp(&key(b))
        });
        counted.iter_mut().filter(|(id, _)| allowed(id)).for_each(|(_, count)| count.trust());
        let suspect = counted.iter_mut().filter(|(id, _)| self.nf.contains(id) || ***id == self.root);
        suspect.for_each(|(_, count)| count.distrust());
        spread(counted.values_mut());
        for id in self.nf.iter().chain([&self.root]).filter(|id| !allowed(id)) {
            let package = &self.metadata[id];
            let below = self.below(id);
            let hides = |name: &str| below.iter().find_map(|from| Some((*from, counted.get(from)?.hides(name)?)));
            let crates = below.iter().copied().chain([id]).filter_map(|id| counted.get(id));
            let calling: HashSet<String> = crates.flat_map(Counted::calling).cloned().collect();
            let Followed { macros, words, .. } = follow(&roots(package, *id == self.root), &package.name, &calling);
            for (name, at) in macros {
                if let Some((from, has)) = hides(&name) {
                    let from = &self.metadata[from].name;
                    let what = format!("the macro {name}! of {from} has {has} in it, which forbid does not see");
                    let remedy = format!("write what it does in safe Rust, or read it and --allow-dependency {from}");
                    verdict.refused.push(Finding { what, remedy, ..at });
                }
            }
            for (name, at) in words {
                if let Some((from, has)) = hides(&name) {
                    let from = &self.metadata[from].name;
                    let what = format!(
                        "{name}, in the tokens of a macro, may become the macro {name}! of {from}, which has {has} in it"
                    );
                    let remedy = format!("call it something else, or read that macro and --allow-dependency {from}");
                    verdict.refused.push(Finding { what, remedy, ..at });
                }
            }
        }
        verdict.settle();
    }

    /// Everything that a crate depends on.
    fn below(&self, id: &PackageId) -> BTreeSet<&PackageId> {
        let mut below = BTreeSet::new();
        let mut waiting = vec![id];
        while let Some(id) = waiting.pop() {
            for to in self.edges.get(id).into_iter().flatten() {
                if below.insert(to) {
                    waiting.push(to);
                }
            }
        }
        below
    }

    /// Folders whose change calls for another look: those of NF crates that are not kept by Cargo.
    pub(crate) fn watched(&self) -> Vec<&Path> {
        let local = |id: &&PackageId| self.metadata[*id].source.is_none();
        let folders = self.nf.iter().filter(local).filter_map(|id| self.metadata[id].manifest_path.parent());
        folders.map(|folder| folder.as_std_path()).collect()
    }
}

impl Verdict {
    fn take(&mut self, followed: Followed) {
        self.files += followed.files;
        self.refused.extend(followed.findings);
    }

    fn settle(&mut self) {
        self.refused.sort();
        self.refused.dedup();
        self.ok = self.refused.is_empty();
    }
}

/// Where a crate comes from: a registry, a revision of a repository, or else the folder around its own.
fn place(package: &Package) -> String {
    let folder =
        || package.manifest_path.parent().and_then(|dir| dir.parent()).map_or_else(String::new, ToString::to_string);
    package.source.as_ref().map_or_else(folder, |source| source.repr.clone())
}

/// Bondstone's own crates, and what they depend on.
fn own(metadata: &Metadata, root: &PackageId, edges: &HashMap<PackageId, Vec<PackageId>>) -> HashSet<PackageId> {
    let is_mark = |id: &&PackageId| metadata[*id].name.as_str() == NF_MARK;
    // the `bondstone-graph` in use is that nearest to the crate; it is none when there are two
    let (mut level, mut seen) = (vec![root], HashSet::from([root]));
    let mut marks: Vec<&PackageId> = vec![];
    while marks.is_empty() && !level.is_empty() {
        let below = level.iter().flat_map(|id| edges.get(*id).into_iter().flatten());
        level = below.filter(|id| seen.insert(id)).collect();
        marks = level.iter().copied().filter(is_mark).collect();
    }
    if marks.is_empty() {
        // that of its workspace, to say what is Bondstone's
        marks = metadata.packages.iter().map(|p| &p.id).filter(is_mark).collect();
    }
    let [mark] = marks[..] else { return HashSet::new() };
    let home = place(&metadata[mark]);
    let ours = metadata.packages.iter().filter(|p| OWN.contains(&p.name.as_str()) && p.id != *root && place(p) == home);
    let mut own: HashSet<PackageId> = HashSet::new();
    let mut waiting: Vec<_> = ours.map(|p| &p.id).collect();
    while let Some(id) = waiting.pop() {
        if own.insert(id.clone()) {
            waiting.extend(edges.get(id).into_iter().flatten());
        }
    }
    own
}

fn is_proc_macro(package: &Package) -> bool {
    package.targets.iter().any(|t| t.kind.contains(&TargetKind::ProcMacro))
}

fn build_time(package: &Package) -> impl Iterator<Item = BuildTime> {
    package.targets.iter().filter_map(|target| {
        let what = match () {
            () if target.kind.contains(&TargetKind::CustomBuild) => "build script",
            () if target.kind.contains(&TargetKind::ProcMacro) => "procedural macro",
            () => return None,
        };
        Some(BuildTime { name: package.name.to_string(), what, file: target.src_path.clone().into() })
    })
}

/// Where a crate's sources begin: all of its targets, or those that a dependent builds.
fn roots(package: &Package, all: bool) -> Vec<Root> {
    let root = |target: &cargo_metadata::Target| {
        let of = |kinds: &[TargetKind]| target.kind.iter().any(|kind| kinds.contains(kind));
        let library = of(&[
            TargetKind::Lib,
            TargetKind::RLib,
            TargetKind::DyLib,
            TargetKind::CDyLib,
            TargetKind::StaticLib,
            TargetKind::ProcMacro,
        ]);
        let ships = library || of(&[TargetKind::Bin, TargetKind::Example]);
        let script = of(&[TargetKind::CustomBuild]);
        let wanted = all || library || script;
        wanted.then(|| Root { file: target.src_path.clone().into(), forbids: ships && (all || library), script })
    };
    package.targets.iter().filter_map(root).collect()
}

/// The sources of a crate, or of a dependency those that are built with it.
fn sources(package: &Package, all: bool) -> Vec<std::path::PathBuf> {
    let mut files = BTreeSet::new();
    for Root { file, .. } in roots(package, all) {
        // a library that lies beside the manifest would bring its tests along
        let beside = package.manifest_path.parent().is_some_and(|dir| file.parent() == Some(dir.as_std_path()));
        match file.parent() {
            Some(dir) if !beside => files.extend(sources_under(dir)),
            _ => drop(files.insert(file)),
        }
    }
    files.into_iter().collect()
}

/// This machine, as rustc calls it.
fn host() -> Option<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = Command::new(rustc).arg("-vV").output().ok()?;
    let said = String::from_utf8(said.stdout).ok()?;
    said.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned)
}

/// Of what Cargo said, the error.
fn last_words(stderr: &str) -> String {
    let error = stderr.find("error: ").map_or(stderr, |at| &stderr[at + "error: ".len()..]);
    error.trim().to_owned()
}

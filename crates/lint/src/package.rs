//! The crate and its dependencies.

use crate::count::{UnsafeCount, propagate};
use crate::source::{Followed, Root, follow, sources_under};
use crate::{BuildTime, Dependency, Error, Finding, Report};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId, TargetKind};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

/// Crates of Bondstone that NF crates depend on. Those from the same source as the `bondstone-graph` in use, and their
/// dependencies, are not NF crates; the name alone is not sufficient.
const BONDSTONE_CRATES: [&str; 11] = [
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
/// A crate that depends on this one, directly or not, is an NF crate.
const NF_MARKER: &str = "bondstone-graph";

/// A crate with its dependencies, without dev-dependencies.
pub(crate) struct Packages {
    metadata: Metadata,
    root: PackageId,
    /// Direct dependencies of each package.
    edges: HashMap<PackageId, Vec<PackageId>>,
    /// All dependencies; true for those used at build time only.
    dependencies: BTreeMap<PackageId, bool>,
    /// Packages of Bondstone and their dependencies.
    bondstone: HashSet<PackageId>,
    /// NF crates among the dependencies.
    nf: BTreeSet<PackageId>,
}

impl Packages {
    /// Resolves the dependencies for `target`, by default this host, with additional arguments for Cargo.
    pub(crate) fn resolve(dir: &Path, target: Option<String>, arguments: &[&str]) -> Result<Self, Error> {
        let manifest = dir.join("Cargo.toml");
        if !manifest.is_file() {
            return Err(Error::NoCrate(dir.to_owned()));
        }
        let mut options: Vec<String> = arguments.iter().map(|&a| a.to_owned()).collect();
        // dependencies of other targets are not built, and may not be available
        options.extend(target.or_else(host).into_iter().flat_map(|target| ["--filter-platform".to_owned(), target]));
        let output = MetadataCommand::new().manifest_path(&manifest).other_options(options).exec();
        let metadata = output.map_err(|e| match e {
            cargo_metadata::Error::Io(e) if e.kind() == ErrorKind::NotFound => Error::NoCargo(e.to_string()),
            cargo_metadata::Error::CargoMetadata { stderr } => Error::Cargo(cargo_error(&stderr)),
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
        let mut pending = vec![(root.clone(), false)];
        while let Some((id, build)) = pending.pop() {
            for to in edges.get(&id).into_iter().flatten() {
                let build = build || macros.contains(to) || for_build.contains(&(id.clone(), to.clone()));
                // a crate used in both ways counts as part of the program
                let known = reached.get(to).copied();
                if known.is_none_or(|known| known && !build) {
                    reached.insert(to.clone(), build);
                    pending.push((to.clone(), build));
                }
            }
        }
        let bondstone = bondstone_packages(&metadata, &root, &edges);
        let mut dependents: HashMap<&PackageId, Vec<&PackageId>> = HashMap::new();
        edges.iter().for_each(|(from, all)| all.iter().for_each(|to| dependents.entry(to).or_default().push(from)));
        let marks = metadata.packages.iter().filter(|p| p.name.as_str() == NF_MARKER).map(|p| &p.id);
        let (mut marked, mut pending) = (HashSet::new(), marks.collect::<Vec<_>>());
        while let Some(id) = pending.pop() {
            if marked.insert(id) {
                pending.extend(dependents.get(id).into_iter().flatten().copied());
            }
        }
        let nf = reached.keys().filter(|id| marked.contains(id) && !bondstone.contains(*id)).cloned().collect();
        Packages { metadata, root, edges, dependencies: reached, bondstone, nf }
    }

    /// Scans the sources of the NF crates.
    pub(crate) fn check_nf_crates(&self, allow: &[String]) -> Report {
        let root = &self.metadata[&self.root];
        let mut report = Report {
            schema: "bondstone.lint/2",
            name: root.name.to_string(),
            version: root.version.to_string(),
            ok: true,
            files: 0,
            nf_crates: vec![],
            findings: vec![],
            build_time: vec![],
            dependencies: vec![],
        };
        report.add(follow(&roots(root, true), &root.name, &HashSet::new()));
        report.build_time.extend(build_time(root));
        for package in self.dependencies.keys().map(|id| &self.metadata[id]) {
            report.build_time.extend(build_time(package));
            if self.nf.contains(&package.id) && !allow.iter().any(|a| *a == *package.name) {
                report.nf_crates.push(format!("{} {}", package.name, package.version));
                report.add(follow(&roots(package, false), &package.name, &HashSet::new()));
            }
        }
        report.build_time.sort_by(|a, b| (a.name.as_str(), &a.file).cmp(&(&b.name, &b.file)));
        report.finish();
        report
    }

    /// Counts unsafe code in the dependencies, and reports the use of their macros with forbidden code in NF crates.
    pub(crate) fn count(&self, allow: &[String], report: &mut Report) {
        let mut counted: BTreeMap<&PackageId, UnsafeCount> = BTreeMap::new();
        counted.insert(&self.root, UnsafeCount::count(&sources(&self.metadata[&self.root], true)));
        let allowed = |id: &PackageId| allow.iter().any(|a| *a == *self.metadata[id].name);
        for (id, &build_only) in &self.dependencies {
            let package = &self.metadata[id];
            let count = UnsafeCount::count(&sources(package, false));
            report.dependencies.push(Dependency {
                name: package.name.to_string(),
                version: package.version.to_string(),
                unsafe_code: count.unsafe_code,
                in_macros: count.in_macros,
                unreadable_files: count.unreadable_files,
                nf: self.nf.contains(id),
                bondstone: self.bondstone.contains(id) && package.name.starts_with("bondstone"),
                build_only,
                build_script: package.targets.iter().any(|t| t.kind.contains(&TargetKind::CustomBuild)),
                proc_macro: is_proc_macro(package),
                links: package.links.clone(),
            });
            counted.insert(id, count);
        }
        report.dependencies.sort_by(|a, b| {
            let key = |d: &Dependency| (std::cmp::Reverse(d.unsafe_code), d.name.clone(), d.version.clone());
            key(a).cmp(&key(b))
        });
        counted.iter_mut().filter(|(id, _)| allowed(id)).for_each(|(_, count)| count.trust());
        let suspect = counted.iter_mut().filter(|(id, _)| self.nf.contains(id) || ***id == self.root);
        suspect.for_each(|(_, count)| count.distrust());
        propagate(counted.values_mut());
        for id in self.nf.iter().chain([&self.root]).filter(|id| !allowed(id)) {
            let package = &self.metadata[id];
            let below = self.transitive_dependencies(id);
            let forbidden =
                |name: &str| below.iter().find_map(|from| Some((*from, counted.get(from)?.forbidden_in(name)?)));
            let crates = below.iter().copied().chain([id]).filter_map(|id| counted.get(id));
            let invokers: HashSet<String> = crates.flat_map(UnsafeCount::argument_invokers).cloned().collect();
            let Followed { macros, possible_macros, .. } =
                follow(&roots(package, *id == self.root), &package.name, &invokers);
            for (name, at) in macros {
                if let Some((from, code)) = forbidden(&name) {
                    let from = &self.metadata[from].name;
                    let problem = format!("the macro {name}! of {from} contains {code}, which forbid does not cover");
                    let remedy = format!("replace it by safe Rust, or review it and use --allow-dependency {from}");
                    report.findings.push(Finding { problem, remedy, ..at });
                }
            }
            for (name, at) in possible_macros {
                if let Some((from, code)) = forbidden(&name) {
                    let from = &self.metadata[from].name;
                    let problem = format!(
                        "{name} in the tokens of a macro may become the macro {name}! of {from}, which contains {code}"
                    );
                    let remedy = format!("rename it, or review that macro and use --allow-dependency {from}");
                    report.findings.push(Finding { problem, remedy, ..at });
                }
            }
        }
        report.finish();
    }

    /// Returns all direct and indirect dependencies of a crate.
    fn transitive_dependencies(&self, id: &PackageId) -> BTreeSet<&PackageId> {
        let mut below = BTreeSet::new();
        let mut pending = vec![id];
        while let Some(id) = pending.pop() {
            for to in self.edges.get(id).into_iter().flatten() {
                if below.insert(to) {
                    pending.push(to);
                }
            }
        }
        below
    }

    /// Returns the folders of NF crates from local paths, whose changes require another check.
    pub(crate) fn local_folders(&self) -> Vec<&Path> {
        let local = |id: &&PackageId| self.metadata[*id].source.is_none();
        let folders = self.nf.iter().filter(local).filter_map(|id| self.metadata[id].manifest_path.parent());
        folders.map(|folder| folder.as_std_path()).collect()
    }
}

impl Report {
    fn add(&mut self, followed: Followed) {
        self.files += followed.files;
        self.findings.extend(followed.findings);
    }

    fn finish(&mut self) {
        self.findings.sort();
        self.findings.dedup();
        self.ok = self.findings.is_empty();
    }
}

/// Returns the source of a crate: a registry, a revision of a repository, or the parent of its folder.
fn source_of(package: &Package) -> String {
    let folder =
        || package.manifest_path.parent().and_then(|dir| dir.parent()).map_or_else(String::new, ToString::to_string);
    package.source.as_ref().map_or_else(folder, |source| source.repr.clone())
}

/// Returns the packages of Bondstone and their dependencies.
fn bondstone_packages(
    metadata: &Metadata,
    root: &PackageId,
    edges: &HashMap<PackageId, Vec<PackageId>>,
) -> HashSet<PackageId> {
    let is_mark = |id: &&PackageId| metadata[*id].name.as_str() == NF_MARKER;
    // the `bondstone-graph` in use is the nearest to the crate; if there are two, it is undefined
    let (mut level, mut visited) = (vec![root], HashSet::from([root]));
    let mut marks: Vec<&PackageId> = vec![];
    while marks.is_empty() && !level.is_empty() {
        let below = level.iter().flat_map(|id| edges.get(*id).into_iter().flatten());
        level = below.filter(|id| visited.insert(id)).collect();
        marks = level.iter().copied().filter(is_mark).collect();
    }
    if marks.is_empty() {
        // fall back to the one in its workspace
        marks = metadata.packages.iter().map(|p| &p.id).filter(is_mark).collect();
    }
    let [mark] = marks[..] else { return HashSet::new() };
    let source = source_of(&metadata[mark]);
    let roots = metadata
        .packages
        .iter()
        .filter(|p| BONDSTONE_CRATES.contains(&p.name.as_str()) && p.id != *root && source_of(p) == source);
    let mut own: HashSet<PackageId> = HashSet::new();
    let mut pending: Vec<_> = roots.map(|p| &p.id).collect();
    while let Some(id) = pending.pop() {
        if own.insert(id.clone()) {
            pending.extend(edges.get(id).into_iter().flatten());
        }
    }
    own
}

fn is_proc_macro(package: &Package) -> bool {
    package.targets.iter().any(|t| t.kind.contains(&TargetKind::ProcMacro))
}

fn build_time(package: &Package) -> impl Iterator<Item = BuildTime> {
    package.targets.iter().filter_map(|target| {
        let kind = match () {
            () if target.kind.contains(&TargetKind::CustomBuild) => "build script",
            () if target.kind.contains(&TargetKind::ProcMacro) => "procedural macro",
            () => return None,
        };
        Some(BuildTime { name: package.name.to_string(), kind, file: target.src_path.clone().into() })
    })
}

/// Returns the root files of all targets, or of those that a dependent builds.
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
        let is_shipped = library || of(&[TargetKind::Bin, TargetKind::Example]);
        let script = of(&[TargetKind::CustomBuild]);
        let included = all || library || script;
        included.then(|| Root { file: target.src_path.clone().into(), forbids: is_shipped && (all || library), script })
    };
    package.targets.iter().filter_map(root).collect()
}

/// Returns the sources of a crate; of a dependency those that are built with it.
fn sources(package: &Package, all: bool) -> Vec<std::path::PathBuf> {
    let mut files = BTreeSet::new();
    for Root { file, .. } in roots(package, all) {
        // the folder of the manifest also contains tests
        let in_manifest_folder =
            package.manifest_path.parent().is_some_and(|dir| file.parent() == Some(dir.as_std_path()));
        match file.parent() {
            Some(dir) if !in_manifest_folder => files.extend(sources_under(dir)),
            _ => drop(files.insert(file)),
        }
    }
    files.into_iter().collect()
}

/// Returns the target triple of this host.
fn host() -> Option<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().ok()?;
    let output = String::from_utf8(output.stdout).ok()?;
    output.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned)
}

/// Extracts the error from the output of Cargo.
fn cargo_error(stderr: &str) -> String {
    let error = stderr.find("error: ").map_or(stderr, |at| &stderr[at + "error: ".len()..]);
    error.trim().to_owned()
}

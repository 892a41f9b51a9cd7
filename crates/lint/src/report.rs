//! The report of a check.

use serde::Serialize;
use std::fmt;
use std::path::PathBuf;

/// The report on a crate and its dependencies. As JSON: `{schema, name, version, ok, files, nf_crates, findings,
/// build_time, dependencies}`.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// `bondstone.lint/2`.
    pub schema: &'static str,
    /// Name of the crate.
    pub name: String,
    /// Its version.
    pub version: String,
    /// True if there are no findings.
    pub ok: bool,
    /// Number of source files of NF crates that were parsed.
    pub files: usize,
    /// NF crates among the dependencies that were checked, as `name version`.
    pub nf_crates: Vec<String>,
    /// Findings, sorted by file and line.
    pub findings: Vec<Finding>,
    /// Code that runs at build time.
    pub build_time: Vec<BuildTime>,
    /// Dependencies without dev-dependencies, sorted by the amount of unsafe code.
    pub dependencies: Vec<Dependency>,
}

/// Forbidden code in an NF crate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The crate.
    #[serde(rename = "crate")]
    pub name: String,
    /// The file.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The problem.
    pub problem: String,
    /// Remedy.
    pub remedy: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { name, file, line, column, problem, remedy } = self;
        write!(f, "{}:{line}:{column}: {problem}, in the NF crate {name}\n  help: {remedy}", file.display())
    }
}

/// Code that runs at build time, with the privileges of the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BuildTime {
    /// The crate.
    #[serde(rename = "crate")]
    pub name: String,
    /// `build script` or `procedural macro`.
    pub kind: &'static str,
    /// The file.
    pub file: PathBuf,
}

/// A direct or indirect dependency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Dependency {
    /// Name of the crate.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Unsafe blocks, functions, impls, traits and extern blocks in its sources, including those in macros.
    #[serde(rename = "unsafe")]
    pub unsafe_code: usize,
    /// Number of them in macros, some of which may expand in other crates.
    pub in_macros: usize,
    /// Number of source files that could not be read.
    pub unreadable_files: usize,
    /// True for an NF crate.
    pub nf: bool,
    /// True for a crate of Bondstone.
    pub bondstone: bool,
    /// True if it is used at build time only.
    pub build_only: bool,
    /// True if it has a build script.
    pub build_script: bool,
    /// True for a procedural macro.
    pub proc_macro: bool,
    /// The native library that it links.
    pub links: Option<String>,
}

/// Why the check failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The folder contains no crate.
    #[error("{}: no Cargo.toml", .0.display())]
    NoCrate(PathBuf),
    /// The folder contains a virtual workspace.
    #[error("{}: a workspace, not a crate", .0.display())]
    Workspace(PathBuf),
    /// Cargo cannot be started.
    #[error("cannot run cargo: {0}")]
    NoCargo(String),
    /// Cargo cannot resolve the dependencies.
    #[error("cargo metadata failed: {0}")]
    Cargo(String),
    /// The thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// A parser panicked.
    #[error("the parser panicked")]
    Panicked,
}

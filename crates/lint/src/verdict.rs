//! What is found.

use serde::Serialize;
use std::fmt;
use std::path::PathBuf;

/// What was found in a crate and its dependencies. As JSON: `{schema, name, version, ok, files, refused, build_time,
/// dependencies}`.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Verdict {
    /// `bondstone.lint/1`.
    pub schema: &'static str,
    /// The crate.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Whether nothing is refused.
    pub ok: bool,
    /// Source files of NF crates that were read.
    pub files: usize,
    /// NF crates among the dependencies that were held to the same, as `name version`.
    pub nf_crates: Vec<String>,
    /// What is refused, by file and line.
    pub refused: Vec<Finding>,
    /// Code that runs while the crate is built.
    pub build_time: Vec<BuildTime>,
    /// All dependencies but those of tests alone; those with most unsafe code first.
    pub dependencies: Vec<Dependency>,
}

/// Something in an NF crate that is refused.
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
    /// What it is.
    pub what: String,
    /// What mends it.
    pub remedy: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { name, file, line, column, what, remedy } = self;
        write!(f, "{}:{line}:{column}: {what}, in the NF crate {name}\n  help: {remedy}", file.display())
    }
}

/// Code that runs while the crate is built, with the rights of whoever builds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BuildTime {
    /// The crate.
    #[serde(rename = "crate")]
    pub name: String,
    /// `build script` or `procedural macro`.
    pub what: &'static str,
    /// The file.
    pub file: PathBuf,
}

/// A dependency, direct or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Dependency {
    /// The crate.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Unsafe blocks, functions, impls, traits and extern blocks in its sources, those in macros included.
    #[serde(rename = "unsafe")]
    pub unsafe_code: usize,
    /// How many of them stand in macros, of which some may expand in other crates.
    pub in_macros: usize,
    /// Source files that could not be read.
    pub unread: usize,
    /// Whether it is an NF crate.
    pub nf: bool,
    /// Whether it is Bondstone's own.
    pub own: bool,
    /// Whether it is there for the build alone.
    pub build_only: bool,
    /// Whether it has a build script.
    pub build_script: bool,
    /// Whether it is a procedural macro.
    pub proc_macro: bool,
    /// The native library that it links.
    pub links: Option<String>,
}

/// Why nothing could be said.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The folder holds no crate.
    #[error("{}: there is no Cargo.toml here", .0.display())]
    NoCrate(PathBuf),
    /// The folder holds a workspace without a crate of its own.
    #[error("{}: is a workspace, not a crate", .0.display())]
    Workspace(PathBuf),
    /// There is no Cargo.
    #[error("cargo does not run: {0}")]
    NoCargo(String),
    /// Cargo cannot tell.
    #[error("cargo cannot tell what it depends on: {0}")]
    Cargo(String),
    /// There is no thread to be had.
    #[error("no thread can be started: {0}")]
    Thread(std::io::Error),
    /// A parser panicked.
    #[error("reading the sources panicked")]
    Panicked,
}

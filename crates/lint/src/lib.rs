//! Rejects unsafe code in the crates of network functions (NFs), and counts it in their dependencies.
//!
//! NFs of several vendors share a process. They are isolated from each other by types, as long as none contains unsafe
//! code. `#![forbid(unsafe_code)]` does not guarantee that: it may be missing; it has no effect if the crate is built
//! as a dependency from a registry, where lints are capped; and it does not cover unsafe code that a macro of another
//! crate expands to. This crate therefore parses the sources of **NF crates**, which are
//!
//! * the crate to check,
//! * each of its dependencies that depends on `bondstone-graph`, directly or not, and is not part of Bondstone: from
//!   the same registry, revision or folder as the `bondstone-graph` that it uses.
//!
//! It reports (see [`Finding`]) unsafe blocks, functions, impls, traits and extern blocks, also in macros; attributes
//! that change linker symbols; assembly; attributes that weaken the lint `unsafe_code`; crate roots without
//! `#![forbid(unsafe_code)]`; sources that cannot be read or followed; and macros of dependencies that contain unsafe
//! code, assembly, an `include!`, an external module or a linker attribute, or that invoke such macros, also if they
//! are renamed or named in the tokens of another macro. For all other dependencies it counts unsafe code
//! ([`Dependency`]), and for all crates it lists the code that runs at build time ([`BuildTime`]), which is not
//! isolated.
//!
//! Safe code can still loop forever, overflow the stack, abort or exit the process, and use unbounded memory. NFs that
//! are not trusted in this respect need a sandbox.
//!
//! [`check`] is the implementation of `bondstone lint`. [`build`] is for build scripts of crates that register NFs.
#![forbid(unsafe_code)]

mod build;
mod count;
mod package;
mod report;
mod scan;
mod source;

pub use build::build;
pub use report::{BuildTime, Dependency, Error, Finding, Report};

use package::Packages;
use std::path::Path;

/// Checks the crate in the folder `dir` and its dependencies. Dependencies named in `allow` are not checked as NF
/// crates, and their macros may be used.
///
/// Runs `cargo metadata`, which may fetch dependencies, and reads sources. Nothing is built.
///
/// # Errors
/// If there is no crate, or Cargo cannot resolve its dependencies.
pub fn check(dir: &Path, allow: &[String]) -> Result<Report, Error> {
    let dir = dir.to_owned();
    let allow = allow.to_vec();
    on_large_stack(move || {
        let packages = Packages::resolve(&dir, None, &[])?;
        let mut report = packages.check_nf_crates(&allow);
        packages.count(&allow, &mut report);
        Ok(report)
    })?
}

/// Runs `f` on a thread with a large stack: parsing is recursive. Sources that overflow it abort the process, and so do
/// not pass.
fn on_large_stack<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    const STACK_SIZE: usize = 512 << 20;
    let thread = std::thread::Builder::new().stack_size(STACK_SIZE).spawn(f).map_err(Error::Thread)?;
    thread.join().map_err(|_| Error::Panicked)
}

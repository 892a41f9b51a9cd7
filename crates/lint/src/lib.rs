//! Refuses unsafe code in the crates of network functions (NFs), and counts it in what they depend on.
//!
//! NFs of several vendors share a process: each can trust the others to leave its packets and state alone as long as none
//! has unsafe code. `#![forbid(unsafe_code)]` is not enough to know that. It may be missing; it does not hold when a crate
//! is built as a dependency from a registry, where lints are capped; and it does not see the unsafe code that a macro of
//! another crate expands to. So this crate reads the sources of an **NF crate**, which is
//!
//! * the crate that is looked at,
//! * each of its dependencies that depends on `bondstone-graph`, be it through others, and is not Bondstone's own: from the
//!   same registry, revision or folder as the `bondstone-graph` that it uses.
//!
//! It refuses (see [`Finding`]) unsafe blocks, functions, impls, traits and extern blocks, in macros as well; attributes
//! that make a symbol the linker's; assembly; whatever weakens the lint `unsafe_code`; a crate root without
//! `#![forbid(unsafe_code)]`; sources that cannot be read or followed; macros of dependencies that have unsafe code in
//! them, or assembly, an `include!`, a module of a file or an attribute for the linker, or that invoke such macros, under
//! whatever name; words that a macro may put in the place of such a name. Of
//! all other dependencies it says how much unsafe code they have ([`Dependency`]), and of every crate what runs while it is
//! built ([`BuildTime`]), which is not contained at all.
//!
//! What types cannot contain, safe code can still do: loop for ever, overflow the stack, abort or exit the process, use
//! memory without bound. NFs that are not trusted with that need a process of their own.
//!
//! [`check`] is what `bondstone lint` prints. [`build`] is for `main` of the build script of a crate that registers NFs.
#![forbid(unsafe_code)]

mod build;
mod count;
mod look;
mod package;
mod source;
mod verdict;

pub use build::build;
pub use verdict::{BuildTime, Dependency, Error, Finding, Verdict};

use package::Packages;
use std::path::Path;

/// Looks at the crate in the folder `dir`, and at everything that it depends on. Dependencies named in `allow` are not held
/// to what NF crates are, and their macros may be used.
///
/// It asks `cargo metadata`, which may fetch dependencies, and reads sources. Nothing is built.
///
/// # Errors
/// When there is no crate, or Cargo cannot tell what it depends on.
pub fn check(dir: &Path, allow: &[String]) -> Result<Verdict, Error> {
    let dir = dir.to_owned();
    let allow = allow.to_vec();
    on_a_deep_stack(move || {
        let packages = Packages::of(&dir, None, &[])?;
        let mut verdict = packages.check_nf_crates(&allow);
        packages.count(&allow, &mut verdict);
        Ok(verdict)
    })?
}

/// Runs `f` on a thread with a stack for deeply nested sources: parsing is recursive. What needs more than that ends the
/// process, and so does not pass either.
fn on_a_deep_stack<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    const STACK: usize = 512 << 20;
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(f).map_err(Error::Thread)?;
    thread.join().map_err(|_| Error::Panicked)
}

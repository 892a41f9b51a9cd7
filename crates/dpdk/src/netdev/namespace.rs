//! Network namespaces (network_namespaces(7)).

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;

/// Opens a network namespace that is named as `ip netns` does (ip-netns(8)).
pub(super) fn open_namespace(name: &str) -> io::Result<File> {
    let failed = |e: io::Error| io::Error::new(e.kind(), format!("network namespace {name:?}: {e}"));
    File::open(format!("/run/netns/{name}")).map_err(failed)
}

/// Runs a function in a network namespace that is named as `ip netns` does, on a thread of its own, and returns its
/// result; without a name, in the calling thread. Sockets that it opens remain in the namespace.
///
/// # Errors
/// The namespace does not exist or cannot be entered, or the function's error.
pub fn in_namespace<T: Send>(name: Option<&str>, run: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let Some(name) = name else { return run() };
    let namespace = open_namespace(name)?;
    let enter_and_run = || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        run()
    };
    std::thread::scope(|scope| scope.spawn(enter_and_run).join())
        .unwrap_or_else(|_| Err(io::Error::other("the thread in the namespace panicked")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_namespace_is_named() {
        let error = in_namespace(Some("no-such-namespace"), || Ok(())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("network namespace \"no-such-namespace\""), "{error}");
        assert_eq!(in_namespace(None, || Ok(7)).unwrap(), 7);
    }
}

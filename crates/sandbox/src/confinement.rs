//! Confinement of sandboxed processes by the Linux kernel.

pub(crate) mod cgroup;
pub(crate) mod namespaces;
pub(crate) mod passthrough;
pub(crate) mod seccomp;

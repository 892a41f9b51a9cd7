//! The network functions in Rust and in C, and their packets.

pub(crate) mod chains;
pub(crate) mod conntrack;
pub(crate) mod firewall;
pub(crate) mod l2;
pub(crate) mod maglev;
pub(crate) mod monitor;
pub(crate) mod nat44;
pub(crate) mod police;
pub(crate) mod router;
pub(crate) mod spread;

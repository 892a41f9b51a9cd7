//! The DUT drivers, one file each; `common` holds parts that several of them use.

mod common;

pub(super) mod bondstone;
pub(super) mod bridge;
pub(super) mod command;
pub(super) mod external;
pub(super) mod hosts;
pub(super) mod ovs;
pub(super) mod router;
pub(super) mod tc;
pub(super) mod testpmd;
pub(super) mod veth_loopback;
pub(super) mod vpp;

pub(crate) use common::eal::memory_arguments;

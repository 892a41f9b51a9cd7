//! The registry of DUT drivers.

use super::context::DutError;
use super::driver::{Device, Driver};
use super::drivers::{bondstone, bridge, command, external, hosts, ovs, router, tc, testpmd, veth_loopback, vpp};
use super::remote::RemoteDevice;
use super::spec::{ChainText, CustomCommands, DutSpec, Env, Forward, Ports};
use std::path::PathBuf;

/// Drivers for scenarios, one line each.
pub static DRIVERS: &[&dyn Driver] = &[
    &bondstone::BondstoneDriver,
    &testpmd::TestpmdDriver,
    &ovs::OvsDriver,
    &vpp::VppDriver,
    &bridge::BridgeDriver,
    &router::RouterDriver,
    &router::NftablesDriver,
    &tc::TcDriver,
    &command::CommandDriver,
    &external::ExternalDriver,
    &hosts::HostsDriver,
];

/// Returns the driver of a name in scenario files.
pub fn driver(name: &str) -> Option<&'static dyn Driver> {
    DRIVERS.iter().copied().find(|driver| driver.name() == name)
}

/// Builds the device of a spec; on a remote host, a proxy for it.
///
/// # Errors
/// If no driver has the name.
pub(crate) fn device(dut: &str, spec: &DutSpec) -> Result<Box<dyn Device + Send>, DutError> {
    let loopback: &dyn Driver = &veth_loopback::VethLoopbackDriver;
    let named = |driver: &&dyn Driver| driver.name() == spec.kind;
    let driver = driver(&spec.kind).or(Some(loopback).filter(named)).ok_or_else(|| DutError {
        dut: dut.to_owned(),
        problem: format!("unknown kind of device: {:?}", spec.kind),
        remedy: "install the same version of Bondstone on both hosts".to_owned(),
    })?;
    let device = driver.device(spec);
    Ok(match &spec.remote {
        Some(host) => Box::new(RemoteDevice::new(spec, host, device)),
        None => device,
    })
}

/// Returns the spec of the device that replaces another one to calibrate generator and ports: a veth pair, or a chain
/// without NFs. None if only the user can connect the ports.
pub fn loopback(spec: &DutSpec) -> Option<DutSpec> {
    const CHAIN: &str = "bondstone = 1\nport.in.device = \"ring:in\"\nport.out.device = \"ring:out\"\n\
                         chain = [{ path = [\"in\", \"out\"] }, { path = [\"out\", \"in\"] }]\n";
    let (kind, chain) = match spec.ports {
        Ports::Devices(_) => return None,
        Ports::AfPacket | Ports::AfXdp => (veth_loopback::VethLoopbackDriver.name(), None),
        Ports::VhostUser | Ports::VirtioUser | Ports::Memif | Ports::Tap => {
            let ports = vec!["in".to_owned(), "out".to_owned()];
            let text = CHAIN.to_owned();
            let chain =
                ChainText { file: "wire.toml".into(), folder: PathBuf::new(), ports, text, has_sandboxes: false };
            (bondstone::BondstoneDriver.name(), Some(chain))
        }
    };
    Some(DutSpec {
        kind: kind.to_owned(),
        ports: spec.ports.clone(),
        cpus: spec.cpus.clone(),
        env: Env::Native,
        forward: Forward::Ports,
        chain,
        commands: CustomCommands::default(),
        interfaces: vec![],
        remote: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../../docs/reference/duts.md");

    #[test]
    fn names_are_unique_and_documented() {
        for (n, driver) in DRIVERS.iter().enumerate() {
            let name = driver.name();
            assert!(DRIVERS[..n].iter().all(|other| other.name() != name), "{name}");
            assert!(PAGE.contains(&format!("\n| `{name}` | ")), "{name} is not documented");
        }
    }

    #[test]
    fn documentation_has_the_example_driver() {
        assert!(PAGE.contains(include_str!("drivers/tc.rs")));
    }
}

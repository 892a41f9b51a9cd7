//! A veth pair between the generator's ports, to calibrate the generator without a device.

use crate::dut::context::{Description, DutContext, DutError};
use crate::dut::driver::{Device, Driver};
use crate::dut::network::{Attachment, Links};
use crate::dut::process::CommandLine;
use crate::dut::spec::{DutSpec, Ports};
use crate::dut::started::StartedDevice;
use std::path::Path;

/// Prefix of the names of the interfaces; the process id follows.
const PREFIX: &str = "bw";

pub(crate) struct VethLoopbackDriver;

impl Driver for VethLoopbackDriver {
    fn name(&self) -> &'static str {
        "wire"
    }

    fn summary(&self) -> &'static str {
        "a veth pair between the generator's ports"
    }

    fn ports(&self) -> &'static [Ports] {
        &[Ports::AfPacket, Ports::AfXdp]
    }

    fn device(&self, spec: &DutSpec) -> Box<dyn Device + Send> {
        Box::new(VethLoopback { ports: spec.ports.clone() })
    }
}

struct VethLoopback {
    ports: Ports,
}

impl Device for VethLoopback {
    fn start(&mut self, context: &mut DutContext) -> Result<StartedDevice, DutError> {
        remove_leftovers();
        let [a, b] = ["a", "b"].map(|end| format!("{PREFIX}{}{end}", std::process::id()));
        CommandLine::new("ip").args(["link", "add", &a, "type", "veth", "peer", "name", &b]).run(context)?;
        let links = Links(vec![a.clone()]);
        for end in [&a, &b] {
            CommandLine::new("ip").args(["link", "set", end, "addrgenmode", "none"]).run(context)?;
            CommandLine::new("ip").args(["link", "set", end, "arp", "off", "up"]).run(context)?;
            if let Some(mtu) = context.jumbo_mtu() {
                CommandLine::new("ip").args(["link", "set", end, "mtu", &mtu.to_string()]).run(context)?;
            }
        }
        let generator_ports = [a, b].map(|end| self.ports.generator_device(&end)).to_vec();
        let attachment = Attachment::direct(generator_ports, links);
        Ok(StartedDevice::new(context, attachment, vec![], Description::default()))
    }
}

/// Deletes interfaces of ended processes.
fn remove_leftovers() {
    for entry in std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(PREFIX).and_then(|n| n.strip_suffix('a')?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            CommandLine::new("ip").args(["link", "del", &name]).succeeds();
        }
    }
}

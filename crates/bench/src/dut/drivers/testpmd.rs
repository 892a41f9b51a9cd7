//! DPDK's testpmd, which forwards between pairs of ports, or along a chain of ports.

use super::common::{eal, sandbox_host::SandboxHost};
use crate::dut::QUEUE_SIZE;
use crate::dut::context::{Description, DutContext, DutError};
use crate::dut::driver::{Device, Driver};
use crate::dut::network::Attachment;
use crate::dut::process::{CommandLine, ContainerOptions};
use crate::dut::spec::{ChainText, DutSpec, Forward, Ports};
use crate::dut::started::StartedDevice;

pub(crate) struct TestpmdDriver;

impl Driver for TestpmdDriver {
    fn name(&self) -> &'static str {
        "testpmd"
    }

    fn summary(&self) -> &'static str {
        "DPDK's testpmd"
    }

    fn ports(&self) -> &'static [Ports] {
        &[Ports::VhostUser, Ports::VirtioUser, Ports::Memif, Ports::Tap, Ports::AfPacket, Ports::AfXdp]
    }

    fn is_switch(&self) -> bool {
        true
    }

    fn device(&self, spec: &DutSpec) -> Box<dyn Device + Send> {
        Box::new(Testpmd { ports: spec.ports.clone(), forward: spec.forward, chain: spec.chain.clone() })
    }
}

struct Testpmd {
    ports: Ports,
    forward: Forward,
    /// Chain whose sandboxes it connects.
    chain: Option<ChainText>,
}

impl Device for Testpmd {
    fn start(&mut self, context: &mut DutContext) -> Result<StartedDevice, DutError> {
        if self.chain.is_none() && !matches!(self.forward, Forward::Ports) {
            let remedy = "set forward = \"ports\", which is the default";
            return Err(context.error("forwards from port to port only", remedy));
        }
        let attachment = Attachment::new(context, &self.ports)?;
        let cpu = context.cpus().first().copied().unwrap_or(0);
        let sandboxes = self.chain.as_ref().map(|chain| SandboxHost::new(context, chain)).transpose()?;
        let mut ports = attachment.device_ports.clone();
        if let Some(sandboxes) = &sandboxes {
            ports.extend(sandboxes.sockets.iter().map(|socket| socket.display().to_string()));
            let path = sandboxes.single_path(attachment.device_ports.len()).ok_or_else(|| {
                context.error(
                    "forwards along a single path of ports only",
                    "use one chain through all sandboxes, from the first port to the second; or another switch",
                )
            })?;
            ports = path.into_iter().map(|port| ports[port].clone()).collect();
        }
        let (mut ring, mut sizes) = (String::new(), vec![]);
        if let Some(mtu) = context.jumbo_mtu() {
            let room = packet::data_room(context.traffic.longest_frame);
            ring = format!(",framesz={room},blocksz={}", 4 * room);
            sizes = vec![format!("--mbuf-size={}", room + packet::HEADROOM)];
            // the driver of packet sockets has no MTU
            sizes.extend(
                (!matches!(self.ports, Ports::AfPacket | Ports::Devices(_)))
                    .then(|| format!("--max-pkt-len={}", mtu + 18)),
            );
        }
        let device = |(n, port): (usize, &String)| match self.ports {
            Ports::VhostUser => format!("--vdev=net_vhost{n},iface={port},queues=1"),
            Ports::VirtioUser => format!("--vdev=net_virtio_user{n},path={port},queue_size={QUEUE_SIZE}"),
            Ports::Memif => format!("--vdev=net_memif{n},role=server,socket-abstract=no,socket={port}"),
            Ports::Tap => format!("--vdev=net_tap{n},iface={port}"),
            Ports::AfXdp => format!("--vdev=net_af_xdp{n},iface={port}"),
            _ => format!("--vdev=net_af_packet{n},iface={port}{ring}"),
        };
        let devices: Vec<String> = ports.iter().enumerate().map(device).collect();
        let lcores = format!("--lcores=0@{cpu},1@{cpu}");
        let mut words: Vec<String> = vec![lcores, "--no-pci".to_owned(), "--no-shconf".to_owned()];
        words.extend(eal::memory_arguments().iter().map(|&s| s.to_owned()));
        words.extend(devices);
        words.extend(["--", "--forward-mode=io", "--no-mlockall", "--total-num-mbufs=16384"].map(str::to_owned));
        words.extend(sizes);
        words.extend(sandboxes.is_some().then(|| "--port-topology=chained".to_owned()));
        let command = CommandLine::new("dpdk-testpmd").args(words);
        let mut program = attachment.start(context, "testpmd", command, &ContainerOptions::default())?;
        // printed once the ports are configured
        program.wait_until(context, "its ports", |p| p.output_tail().contains("Checking link statuses"))?;
        let version = CommandLine::new("dpdk-testpmd").args(["--version"]).run(context).ok();
        let version = version.and_then(|v| Some(v.lines().last()?.trim().to_owned())).filter(|v| !v.is_empty());
        let description = Description { version, ..Description::default() };
        let sandboxes = sandboxes.map(|sandboxes| sandboxes.start(context)).transpose()?;
        let programs = [Some(program), sandboxes].into_iter().flatten().collect();
        Ok(StartedDevice::new(context, attachment, programs, description))
    }
}

//! FD.io VPP, as a private instance.
//!
//! For 24.02 and later. Measured with VPP 26.10 built from source, on all kinds of ports; distributions do not package
//! it, so the tests use a program that imitates its responses.

use super::common::{eal, sandbox_host::SandboxHost};
use crate::dut::QUEUE_SIZE;
use crate::dut::context::{Description, DutContext, DutError};
use crate::dut::driver::{Device, Driver};
use crate::dut::network::Attachment;
use crate::dut::process::{CommandLine, ContainerOptions};
use crate::dut::spec::{ChainText, DutSpec, Env, Forward, Ports};
use crate::dut::started::StartedDevice;
use std::path::PathBuf;

/// Bridge domain of `forward = "bridge"`; interfaces without a cross-connect each get a domain of a higher number.
const BRIDGE_DOMAIN: usize = 1;

pub(crate) struct VppDriver;

impl Driver for VppDriver {
    fn name(&self) -> &'static str {
        "vpp"
    }

    fn summary(&self) -> &'static str {
        "FD.io VPP"
    }

    fn ports(&self) -> &'static [Ports] {
        &[Ports::VhostUser, Ports::Memif, Ports::AfPacket, Ports::AfXdp]
    }

    fn is_switch(&self) -> bool {
        true
    }

    fn device(&self, spec: &DutSpec) -> Box<dyn Device + Send> {
        Box::new(Vpp { ports: spec.ports.clone(), forward: spec.forward, chain: spec.chain.clone() })
    }
}

struct Vpp {
    ports: Ports,
    forward: Forward,
    /// Chain whose sandboxes it connects.
    chain: Option<ChainText>,
}

/// Socket of VPP's command line.
struct Cli(PathBuf);

impl Cli {
    fn command(&self, command: &str) -> CommandLine {
        CommandLine::new("vppctl").args(["-s", &self.0.display().to_string()]).args(command.split(' '))
    }

    /// Runs a command that prints nothing on success.
    fn set(&self, context: &mut DutContext, command: &str) -> Result<(), DutError> {
        let output = self.command(command).run(context)?;
        match output.trim() {
            "" => Ok(()),
            output => Err(rejected(context, command, output)),
        }
    }

    /// Creates an interface and returns its name.
    fn create(&self, context: &mut DutContext, command: &str) -> Result<String, DutError> {
        let output = self.command(command).run(context)?;
        match output.split_whitespace().collect::<Vec<_>>()[..] {
            [name] => Ok(name.to_owned()),
            _ => Err(rejected(context, command, output.trim())),
        }
    }
}

fn rejected(context: &DutContext, command: &str, output: &str) -> DutError {
    let remedy = "check its output; interfaces need the plugin vhost, memif, af_packet or af_xdp";
    context.error(format!("VPP rejected `{command}`: {output}"), remedy)
}

impl Vpp {
    /// Returns the startup configuration: all files in the work directory, no PCI devices.
    fn configuration(context: &DutContext) -> String {
        let work_dir = context.path("").display().to_string();
        let work_dir = work_dir.trim_end_matches('/');
        let cpu = match context.cpus() {
            [] => String::new(),
            [one] => format!("cpu {{ main-core {one} }}\n"),
            [first, others @ ..] => {
                let others = others.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
                format!("cpu {{ main-core {first} corelist-workers {others} }}\n")
            }
        };
        let plugins = ["vhost", "memif", "af_packet", "af_xdp"]
            .map(|name| format!("  plugin {name}_plugin.so {{ enable }}\n"))
            .concat();
        // by default it reserves huge pages and does not release them
        let buffers = if eal::has_huge_pages() { "" } else { "buffers { page-size default }\n" };
        format!(
            "unix {{ nodaemon nosyslog nocolor runtime-dir {work_dir} cli-listen {work_dir}/cli.sock }}\n\
             api-segment {{ prefix bondstone }}\n\
             socksvr {{ socket-name {work_dir}/api.sock }}\n\
             statseg {{ socket-name {work_dir}/stats.sock }}\n\
             {cpu}{buffers}\
             plugins {{\n  plugin default {{ disable }}\n{plugins}}}\n"
        )
    }
}

impl Device for Vpp {
    fn start(&mut self, context: &mut DutContext) -> Result<StartedDevice, DutError> {
        for name in ["vpp", "vppctl"] {
            let which = CommandLine::new("sh").args(["-c", &format!("command -v {name}")]);
            which.run_unrecorded(context).map_err(|_| context.program_error(name, &"not found"))?;
        }
        let sandboxes = self.chain.as_ref().map(|chain| SandboxHost::new(context, chain)).transpose()?;
        // its shared memory is in /dev/shm, and stays there when it is killed
        let attachment = Attachment::in_namespace(context, &self.ports)?;
        let text = Self::configuration(context);
        let file = context.path("startup.conf");
        std::fs::write(&file, &text).map_err(|e| context.file_error(&file, &e))?;
        context.record(text);
        let command = CommandLine::new("vpp").args(["-c".to_owned(), file.display().to_string()]);
        let command = match context.env() {
            Env::Native => command.prefixed(["sh", "-c", "mount -t tmpfs shm /dev/shm && exec \"$@\"", "vpp"]),
            Env::Container => command,
        };
        let mut program = attachment.start(context, "vpp", command, &ContainerOptions::default())?;
        let cli = Cli(context.path("cli.sock"));
        program.wait_until(context, "its command line", |_| cli.command("show version").succeeds())?;
        let version = cli.command("show version").run_unrecorded(context)?;

        let sockets = sandboxes.iter().flat_map(|s| &s.sockets).map(|socket| socket.display().to_string());
        let mut names = vec![];
        for (n, port) in attachment.device_ports.iter().cloned().chain(sockets).enumerate() {
            if matches!(self.ports, Ports::Devices(_)) {
                // a NIC filters frames to other addresses, and VPP does not enable promiscuous mode
                let command = CommandLine::new("ip").args(["link", "set", &port, "promisc", "on"]);
                attachment.confine(command, context).run(context)?;
            }
            let name = match self.ports {
                // memif names its interfaces and does not print the name
                Ports::Memif => {
                    cli.set(context, &format!("create memif socket id {} filename {port}", n + 1))?;
                    let ring = format!("ring-size {QUEUE_SIZE}");
                    cli.set(context, &format!("create interface memif id 0 socket-id {} {ring} master", n + 1))?;
                    format!("memif{}/0", n + 1)
                }
                Ports::VhostUser => cli.create(context, &format!("create vhost-user socket {port} server packed"))?,
                // does not print the name either
                Ports::AfXdp => {
                    let name = format!("xdp-{port}");
                    cli.set(context, &format!("create interface af_xdp host-if {port} name {name}"))?;
                    name
                }
                _ => cli.create(context, &format!("create host-interface name {port}"))?,
            };
            cli.set(context, &format!("set interface state {name} up"))?;
            names.push(name);
        }
        let hops: Vec<(usize, usize)> = match (&sandboxes, self.forward) {
            (Some(sandboxes), _) => sandboxes.hops.clone(),
            (None, Forward::Ports) => (0..names.len()).map(|n| (n, n ^ 1)).collect(),
            (None, Forward::Bridge) => vec![],
            (None, _) => {
                let problem = "this driver configures neither routes nor the table of a trace";
                return Err(context.error(problem, "set forward = \"ports\" or \"bridge\""));
            }
        };
        for (n, name) in names.iter().enumerate() {
            let command = match hops.iter().find(|(from, _)| *from == n) {
                Some((_, to)) => format!("set interface l2 xconnect {name} {}", names[*to]),
                None if hops.is_empty() => format!("set interface l2 bridge {name} {BRIDGE_DOMAIN}"),
                // an interface transmits only in L2 mode
                None => format!("set interface l2 bridge {name} {}", BRIDGE_DOMAIN + 1 + n),
            };
            cli.set(context, &command)?;
        }
        if let cpus @ 2.. = context.cpus().len() {
            context.add_remark(format!("VPP's main thread occupies one of {cpus} CPUs and forwards nothing"));
        }
        let version = version.split_whitespace().nth(1).map(str::to_owned);
        let description = Description { version, ..Description::default() };
        let sandboxes = sandboxes.map(|sandboxes| sandboxes.start(context)).transpose()?;
        let programs = [Some(program), sandboxes].into_iter().flatten().collect();
        Ok(StartedDevice::new(context, attachment, programs, description))
    }
}

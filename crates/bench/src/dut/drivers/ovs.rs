//! Open vSwitch with its userspace datapath, as a private instance.

mod routes;

use super::common::{eal, periodic, sandbox_host::SandboxHost};
use crate::dut::QUEUE_SIZE;
use crate::dut::context::{Description, DutContext, DutError};
use crate::dut::driver::{Device, Driver};
use crate::dut::network::Attachment;
use crate::dut::process::{CommandLine, ContainerOptions, Program};
use crate::dut::spec::{ChainText, DutSpec, Forward, Ports};
use crate::dut::started::StartedDevice;
use crate::trial::{Disturbance, DisturbanceReport};
use routes::RouteFlows;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use traffic::nfpa::tables;

/// The switch with DPDK in Debian and Ubuntu; elsewhere `ovs-vswitchd` may include DPDK.
const VSWITCHD_DPDK: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
/// Paths of the database schema.
const SCHEMAS: [&str; 2] =
    ["/usr/share/openvswitch/vswitch.ovsschema", "/usr/local/share/openvswitch/vswitch.ovsschema"];
/// Default of the number of flows that the datapath holds.
const MIN_FLOW_LIMIT: usize = 200_000;
/// Name of the bridge.
const BRIDGE: &str = "br0";

pub(crate) struct OvsDriver;

impl Driver for OvsDriver {
    fn name(&self) -> &'static str {
        "ovs"
    }

    fn summary(&self) -> &'static str {
        "Open vSwitch, userspace datapath"
    }

    fn ports(&self) -> &'static [Ports] {
        &[Ports::VhostUser, Ports::VirtioUser, Ports::AfPacket, Ports::AfXdp]
    }

    fn is_switch(&self) -> bool {
        true
    }

    fn forwards_as_router(&self) -> bool {
        true
    }

    fn device(&self, spec: &DutSpec) -> Box<dyn Device + Send> {
        let (routes, chain) = match (spec.forward, spec.chain.clone()) {
            (Forward::Route, chain) => (chain, None),
            (_, chain) => (None, chain),
        };
        Box::new(Ovs { ports: spec.ports.clone(), forward: spec.forward, chain, routes, run_dir: None })
    }
}

struct Ovs {
    ports: Ports,
    forward: Forward,
    /// Chain whose sandboxes it connects.
    chain: Option<ChainText>,
    /// Chain with the router as which it forwards.
    routes: Option<ChainText>,
    /// Directory of its sockets; the work directory by default.
    run_dir: Option<PathBuf>,
}

impl Ovs {
    /// Runs `ovs-vsctl` on this instance.
    fn vsctl(&self, context: &mut DutContext, words: &[&str]) -> Result<String, DutError> {
        let socket = format!("--db=unix:{}", context.path("db.sock").display());
        CommandLine::new("ovs-vsctl").args([socket.as_str(), "--timeout=20"]).args(words.iter().copied()).run(context)
    }

    /// Returns the address of the bridge's OpenFlow socket.
    fn openflow_socket(&self, context: &DutContext) -> String {
        let run_dir = self.run_dir.clone().unwrap_or_else(|| context.path(""));
        format!("unix:{}", run_dir.join(format!("{BRIDGE}.mgmt")).display())
    }

    /// Runs `ovs-ofctl` on the bridge: the command, the bridge, then `args`.
    fn ofctl(&self, context: &mut DutContext, command: &str, args: &[&str]) -> Result<String, DutError> {
        let words = ["-O", "OpenFlow13", command, &self.openflow_socket(context)];
        CommandLine::new("ovs-ofctl").args(words).args(args.iter().copied()).run(context)
    }

    fn add_ports(&self, context: &mut DutContext, ports: &[String]) -> Result<(), DutError> {
        for (n, port) in ports.iter().enumerate() {
            let request = format!("ofport_request={}", n + 1);
            let name = format!("port{n}");
            let mtu = context.jumbo_mtu().map(|mtu| format!("mtu_request={mtu}"));
            let dpdk = |device: String| vec!["type=dpdk".to_owned(), format!("options:dpdk-devargs={device}")];
            let (name, settings) = match self.ports {
                Ports::VhostUser => (&name, vec!["type=dpdkvhostuser".to_owned()]),
                Ports::VirtioUser => (&name, dpdk(format!("net_virtio_user{n},path={port},queue_size={QUEUE_SIZE}"))),
                Ports::AfXdp => (port, vec!["type=afxdp".to_owned()]),
                _ => (port, vec![]),
            };
            let mut words = vec!["add-port", BRIDGE, name, "--", "set", "interface", name, &request];
            words.extend(settings.iter().map(String::as_str));
            words.extend(mtu.as_deref());
            self.vsctl(context, &words)?;
        }
        Ok(())
    }

    fn add_flows(
        &self,
        context: &mut DutContext,
        sandboxes: Option<&SandboxHost>,
        ports: usize,
    ) -> Result<(), DutError> {
        match (sandboxes, self.forward) {
            (Some(sandboxes), _) => {
                for (from, to) in &sandboxes.hops {
                    let flow = format!("in_port={},actions=output:{}", from + 1, to + 1);
                    self.ofctl(context, "add-flow", &[&flow])?;
                }
            }
            (None, Forward::Ports) => {
                for n in 0..ports {
                    let flow = format!("in_port={},actions=output:{}", n + 1, (n ^ 1) + 1);
                    self.ofctl(context, "add-flow", &[&flow])?;
                }
            }
            (None, Forward::Bridge) => drop(self.ofctl(context, "add-flow", &["actions=normal"])?),
            (None, Forward::Table) => {
                let file = context.write_table("flows", |tables, file| tables::openflow(tables, 2, file))?;
                let file = file.ok_or_else(|| {
                    let remedy = "send an NFPA trace: trace = \"l2-1000\" in [traffic]";
                    context.error("has no table: no trace is sent", remedy)
                })?;
                self.ofctl(context, "add-flows", &[&file.display().to_string()])?;
            }
            (None, Forward::Route) => self.add_routes(context)?,
            (None, Forward::Any) => {
                let remedy = "set forward = \"ports\", \"bridge\", \"route\" or \"table\"";
                return Err(context.error("this driver needs to know how to forward", remedy));
            }
        }
        Ok(())
    }
}

impl Ovs {
    /// Adds a flow for each route of the chain's router.
    fn add_routes(&self, context: &mut DutContext) -> Result<(), DutError> {
        let remedy = "name a chain file with a router: chain = \"...\"";
        let chain = self.routes.as_ref().ok_or_else(|| context.error("has no chain", remedy))?;
        let flows = RouteFlows::new(chain)
            .map_err(|problem| context.error(format!("{}: {problem}", chain.file.display()), remedy))?;
        let (path, count) = context.write_file("flows", |file| flows.write(file))?;
        // its caches hold 200,000 flows by default, and forget those without packets for 10 s, as between trials
        let limit = format!("other_config:flow-limit={}", (2 * count).max(MIN_FLOW_LIMIT));
        self.vsctl(context, &["set", "Open_vSwitch", ".", &limit, "other_config:max-idle=3600000"])?;
        self.ofctl(context, "add-flows", &[&path.display().to_string()]).map(drop)
    }
}

impl Device for Ovs {
    fn start(&mut self, context: &mut DutContext) -> Result<StartedDevice, DutError> {
        let sandboxes = self.chain.as_ref().map(|chain| SandboxHost::new(context, chain)).transpose()?;
        // it creates interfaces, and leaves them behind when it is killed
        let mut attachment = Attachment::in_namespace(context, &self.ports)?;
        if self.ports.are_sockets() && !eal::has_huge_pages() {
            let problem = format!("needs {} free huge pages of 2 MiB", eal::REQUIRED_PAGES);
            return Err(context.error(problem, "reserve some: echo 512 > /proc/sys/vm/nr_hugepages"));
        }
        let schema = SCHEMAS
            .into_iter()
            .find(|s| Path::new(s).exists())
            .ok_or_else(|| context.error("Open vSwitch is not installed", "apt-get install openvswitch-switch-dpdk"))?;
        let switch = if Path::new(VSWITCHD_DPDK).exists() { VSWITCHD_DPDK } else { "ovs-vswitchd" };
        let work_dir = context.path("").display().to_string();
        let work_dir = work_dir.trim_end_matches('/');
        let mut environment: Vec<String> =
            ["OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"].map(|name| format!("{name}={work_dir}")).to_vec();
        self.run_dir = sandboxes.as_ref().map(|sandboxes| sandboxes.folder.clone());
        let run_dir = self.run_dir.as_ref().map_or(work_dir.to_owned(), |dir| dir.display().to_string());
        environment.push(format!("OVS_RUNDIR={run_dir}"));
        if sandboxes.is_some() {
            let port = |n: usize| format!("virtio-user:{run_dir}/port{n}");
            attachment.generator_ports = (0..attachment.device_ports.len()).map(port).collect();
        }
        let start = |context: &mut DutContext, name: &str, program: &str, words: &[&str]| {
            let pid = format!("--pidfile={}", context.path(&format!("{name}.pid")).display());
            let command = CommandLine::new("env").args(environment.clone()).args([program]).args(words.iter().copied());
            // the switch creates an interface for its bridge
            let options = ContainerOptions { creates_interfaces: name == "vswitchd", ..ContainerOptions::default() };
            attachment.start(context, name, command.args([&pid, "--no-chdir"]), &options)
        };
        let database = context.path("conf.db").display().to_string();
        CommandLine::new("ovsdb-tool").args(["create", &database, schema]).run(context)?;
        let socket = context.path("db.sock");
        let remote = format!("--remote=punix:{}", socket.display());
        let mut server: Program = start(context, "ovsdb", "ovsdb-server", &[&database, &remote])?;
        server.wait_until(context, "the database", |_| socket.exists())?;
        let mask = context.cpu_mask();
        let extra = format!("other_config:dpdk-extra=--no-pci {}", eal::memory_arguments().join(" "));
        let lcores = format!("other_config:dpdk-lcore-mask={mask}");
        let pmds = format!("other_config:pmd-cpu-mask={mask}");
        let mut words = vec!["--no-wait", "init", "--", "set", "Open_vSwitch", ".", &pmds];
        if self.ports.are_sockets() {
            // the shared pool would use all memory, also that of the generator
            let pools = "other_config:per-port-memory=true";
            words.extend(["other_config:dpdk-init=true", pools, &lcores, &extra]);
        }
        self.vsctl(context, &words)?;
        let remote = format!("unix:{}", socket.display());
        let mut program = start(context, "vswitchd", switch, &[&remote])?;
        let pid_file = context.path("vswitchd.pid");
        program.wait_until(context, "the switch", |_| pid_file.exists())?;
        let bridge = ["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev"];
        let settings = ["protocols=OpenFlow10,OpenFlow13", "fail_mode=secure"];
        self.vsctl(context, &[&bridge[..], &settings[..]].concat())?;
        let mut ports = attachment.device_ports.clone();
        let sockets = sandboxes.iter().flat_map(|sandboxes| &sandboxes.sockets);
        ports.extend(sockets.clone().map(|socket| socket.display().to_string()));
        self.add_ports(context, &ports)?;
        // it creates sockets in its own directory only
        for (n, socket) in sockets.enumerate() {
            let created = Path::new(&run_dir).join(format!("port{}", attachment.device_ports.len() + n));
            std::fs::hard_link(created, socket).map_err(|e| context.file_error(socket, &e))?;
        }
        let list = ["--columns=name,error", "--format=csv", "--no-headings", "list", "interface"];
        let interfaces = self.vsctl(context, &list)?;
        if let Some(failed) = interfaces.lines().find(|line| !line.ends_with(",[]") && !line.ends_with(",\"\"")) {
            return Err(context.error(format!("cannot open an interface: {failed}"), "check its output above"));
        }
        self.add_flows(context, sandboxes.as_ref(), attachment.device_ports.len())?;
        let output = CommandLine::new(switch).args(["--version"]).run(context).unwrap_or_default();
        let version = output.lines().next().and_then(|l| l.split(' ').next_back()).map(str::to_owned);
        let remarks = match self.ports {
            ref ports if ports.are_sockets() => vec![],
            _ => vec![
                "Open vSwitch forwards in userspace between kernel interfaces; its kernel datapath was not measured"
                    .to_owned(),
            ],
        };
        let description = Description { version, remarks, ..Description::default() };
        let sandboxes = sandboxes.map(|sandboxes| sandboxes.start(context)).transpose()?;
        let programs = [Some(server), Some(program), sandboxes].into_iter().flatten().collect();
        Ok(StartedDevice::new(context, attachment, programs, description))
    }

    fn unsupported(&self, disturbance: Disturbance) -> Option<&'static str> {
        let remedy = "a reset loses its ports; reset it by custom commands: kind = \"command\"";
        matches!(disturbance, Disturbance::Reset { .. }).then_some(remedy)
    }

    /// Changes: adds and deletes flows that no test packet matches.
    fn disturb(
        &mut self,
        _: &StartedDevice,
        context: &DutContext,
        disturbance: Disturbance,
        stop: &AtomicBool,
    ) -> Result<DisturbanceReport, DutError> {
        let Disturbance::Changes { per_second } = disturbance else { return Ok(DisturbanceReport::default()) };
        let bridge = self.openflow_socket(context);
        Ok(periodic::repeat_changes(per_second, stop, |n| {
            let flow = format!("ip,nw_dst=203.0.113.{}", n / 2 % 256);
            let words = if n.is_multiple_of(2) {
                ["add-flow".to_owned(), bridge.clone(), format!("priority=1,{flow},actions=drop")]
            } else {
                ["del-flows".to_owned(), bridge.clone(), flow]
            };
            CommandLine::new("ovs-ofctl").args(["-O", "OpenFlow13"]).args(words).succeeds()
        }))
    }
}

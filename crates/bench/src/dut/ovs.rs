//! Open vSwitch with its userspace datapath, as a private instance.

use super::attach::Attached;
use super::behind::Behind;
use super::container::Needs;
use super::plan::ChainText;
use super::program::Line;
use super::{About, Driver, DutError, Forward, Plan, Ports, Running, Site, eal, rhythm};
use crate::bed::{Act, Acted};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use traffic::nfpa::tables;

/// The program with DPDK in it, where Debian and Ubuntu put it; elsewhere `ovs-vswitchd` may have it.
const WITH_DPDK: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
/// Its tables, there and elsewhere.
const SCHEMAS: [&str; 2] =
    ["/usr/share/openvswitch/vswitch.ovsschema", "/usr/local/share/openvswitch/vswitch.ovsschema"];
/// The bridge.
const BRIDGE: &str = "br0";

pub(crate) struct Ovs {
    ports: Ports,
    forward: Forward,
    /// With NFs behind walls, between which it is the switch.
    chain: Option<ChainText>,
    /// Where it makes its sockets; the site's folder if not said.
    run: Option<PathBuf>,
}

impl Ovs {
    pub(crate) fn new(plan: &Plan) -> Ovs {
        Ovs { ports: plan.ports.clone(), forward: plan.forward, chain: plan.chain.clone(), run: None }
    }

    /// `ovs-vsctl` of this instance.
    fn configure(&self, site: &mut Site, words: &[&str]) -> Result<String, DutError> {
        let socket = format!("--db=unix:{}", site.path("db.sock").display());
        Line::new("ovs-vsctl").args([socket.as_str(), "--timeout=20"]).args(words.iter().copied()).output(site)
    }

    /// Where its bridge is told of flows.
    fn bridge(&self, site: &Site) -> String {
        let run = self.run.clone().unwrap_or_else(|| site.path(""));
        format!("unix:{}", run.join(format!("{BRIDGE}.mgmt")).display())
    }

    /// `ovs-ofctl` of its bridge: the command, then the bridge, then the rest.
    fn flows(&self, site: &mut Site, command: &str, rest: &[&str]) -> Result<String, DutError> {
        let words = ["-O", "OpenFlow13", command, &self.bridge(site)];
        Line::new("ovs-ofctl").args(words).args(rest.iter().copied()).output(site)
    }

    fn ports(&self, site: &mut Site, inner: &[String]) -> Result<(), DutError> {
        for (n, inner) in inner.iter().enumerate() {
            let request = format!("ofport_request={}", n + 1);
            let name = format!("port{n}");
            let words: Vec<&str> = match self.ports {
                Ports::VhostUser => {
                    vec!["add-port", BRIDGE, &name, "--", "set", "interface", &name, "type=dpdkvhostuser", &request]
                }
                Ports::AfXdp => {
                    vec!["add-port", BRIDGE, inner, "--", "set", "interface", inner, "type=afxdp", &request]
                }
                _ => vec!["add-port", BRIDGE, inner, "--", "set", "interface", inner, &request],
            };
            self.configure(site, &words)?;
        }
        Ok(())
    }
}

impl Driver for Ovs {
    fn start(&mut self, site: &mut Site) -> Result<Running, DutError> {
        let behind = self.chain.as_ref().map(|chain| Behind::new(site, chain)).transpose()?;
        // it makes interfaces of its own, and leaves them when it is killed
        let mut attached = Attached::apart(site, &self.ports)?;
        if self.ports == Ports::VhostUser && !eal::has_huge_pages() {
            let problem =
                format!("forwards nothing without huge pages, and fewer than {} of 2 MiB are free", eal::PAGES);
            return Err(site.wrong(problem, "reserve some: echo 512 > /proc/sys/vm/nr_hugepages"));
        }
        let schema = SCHEMAS
            .into_iter()
            .find(|s| Path::new(s).exists())
            .ok_or_else(|| site.wrong("Open vSwitch is not installed", "apt-get install openvswitch-switch-dpdk"))?;
        let switch = if Path::new(WITH_DPDK).exists() { WITH_DPDK } else { "ovs-vswitchd" };
        let folder = site.path("");
        let folder = folder.display().to_string();
        let folder = folder.trim_end_matches('/');
        let mut environment: Vec<String> =
            ["OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"].map(|name| format!("{name}={folder}")).to_vec();
        self.run = behind.as_ref().map(|behind| behind.folder.clone());
        let run = self.run.as_ref().map_or(folder.to_owned(), |run| run.display().to_string());
        environment.push(format!("OVS_RUNDIR={run}"));
        if behind.is_some() {
            let of = |n: usize| format!("virtio-user:{run}/port{n}");
            attached.outer = (0..attached.inner.len()).map(of).collect();
        }
        let start = |site: &mut Site, name: &str, program: &str, words: &[&str]| {
            let pid = format!("--pidfile={}", site.path(&format!("{name}.pid")).display());
            let line = Line::new("env").args(environment.clone()).args([program]).args(words.iter().copied());
            // the switch makes an interface for its bridge
            let needs = Needs { interfaces: name == "vswitchd", ..Needs::default() };
            attached.start(site, name, line.args([&pid, "--no-chdir"]), &needs)
        };
        let database = site.path("conf.db").display().to_string();
        Line::new("ovsdb-tool").args(["create", &database, schema]).output(site)?;
        let socket = site.path("db.sock");
        let remote = format!("--remote=punix:{}", socket.display());
        let mut server = start(site, "ovsdb", "ovsdb-server", &[&database, &remote])?;
        server.wait(site, "the database", |_| socket.exists())?;
        let mask = site.cpu_mask();
        let extra = format!("other_config:dpdk-extra=--no-pci {}", eal::memory().join(" "));
        let lcores = format!("other_config:dpdk-lcore-mask={mask}");
        let pmds = format!("other_config:pmd-cpu-mask={mask}");
        let with_dpdk = self.ports == Ports::VhostUser;
        let mut words = vec!["--no-wait", "init", "--", "set", "Open_vSwitch", ".", &pmds];
        if with_dpdk {
            // one pool for all ports takes what memory there is, also what the generator needs
            let pools = "other_config:per-port-memory=true";
            words.extend(["other_config:dpdk-init=true", pools, &lcores, &extra]);
        }
        self.configure(site, &words)?;
        let remote = format!("unix:{}", socket.display());
        let mut program = start(site, "vswitchd", switch, &[&remote])?;
        let ready = site.path("vswitchd.pid");
        program.wait(site, "the switch", |_| ready.exists())?;
        self.configure(
            site,
            &[
                "add-br",
                BRIDGE,
                "--",
                "set",
                "bridge",
                BRIDGE,
                "datapath_type=netdev",
                "protocols=OpenFlow10,OpenFlow13",
                "fail_mode=secure",
            ],
        )?;
        let mut inner = attached.inner.clone();
        let sockets = behind.iter().flat_map(|behind| &behind.sockets);
        inner.extend(sockets.clone().map(|socket| socket.display().to_string()));
        self.ports(site, &inner)?;
        // it makes sockets in its own folder only
        for (n, socket) in sockets.enumerate() {
            let made = Path::new(&run).join(format!("port{}", attached.inner.len() + n));
            std::fs::hard_link(made, socket).map_err(|e| site.file_error(socket, &e))?;
        }
        let interfaces =
            self.configure(site, &["--columns=name,error", "--format=csv", "--no-headings", "list", "interface"])?;
        if let Some(wrong) = interfaces.lines().find(|line| !line.ends_with(",[]") && !line.ends_with(",\"\"")) {
            return Err(site.wrong(format!("an interface does not open: {wrong}"), "look at what it says"));
        }
        match (&behind, self.forward) {
            (Some(behind), _) => {
                for (from, to) in &behind.hops {
                    let flow = format!("in_port={},actions=output:{}", from + 1, to + 1);
                    self.flows(site, "add-flow", &[&flow])?;
                }
            }
            (None, Forward::Ports) => {
                for n in 0..attached.inner.len() {
                    let flow = format!("in_port={},actions=output:{}", n + 1, (n ^ 1) + 1);
                    self.flows(site, "add-flow", &[&flow])?;
                }
            }
            (None, Forward::Bridge) => drop(self.flows(site, "add-flow", &["actions=normal"])?),
            (None, Forward::Table) => {
                let file = site.table("flows", |tables, file| tables::openflow(tables, 2, file))?;
                let none = || site.wrong("has no table", "send one of NFPA's traces: trace = \"l2-1000\" in [traffic]");
                let file = file.ok_or_else(none)?.display().to_string();
                self.flows(site, "add-flows", &[&file])?;
            }
            (None, Forward::Route | Forward::Any) => {
                let problem = "does not route by itself here";
                return Err(site.wrong(problem, "say forward = \"ports\", \"bridge\" or \"table\""));
            }
        }
        let said = Line::new(switch).args(["--version"]).output(site).unwrap_or_default();
        let version = said.lines().next().and_then(|l| l.split(' ').next_back()).map(str::to_owned);
        let remarks = match self.ports {
            Ports::VhostUser => vec![],
            _ => vec![
                "Open vSwitch forwards in userspace over the kernel's interfaces: its kernel datapath is another"
                    .to_owned(),
            ],
        };
        let about = About { version, remarks, ..About::default() };
        let hosts = behind.map(|behind| behind.start(site)).transpose()?;
        let programs = [Some(server), Some(program), hosts].into_iter().flatten().collect();
        Ok(Running::new(site, attached, programs, about))
    }

    fn cannot(&self, act: Act) -> Option<&'static str> {
        let remedy = "its ports would be lost; reset it by commands of your own: kind = \"command\"";
        matches!(act, Act::Reset { .. }).then_some(remedy)
    }

    /// Changes: flows that no packet of the tests matches are added and deleted in turn.
    fn act(&mut self, _: &Running, site: &Site, act: Act, stop: &AtomicBool) -> Result<Acted, DutError> {
        let Act::Changes { per_second } = act else { return Ok(Acted::default()) };
        let bridge = self.bridge(site);
        Ok(rhythm::changes(per_second, stop, |n| {
            let flow = format!("ip,nw_dst=203.0.113.{}", n / 2 % 256);
            let words = if n.is_multiple_of(2) {
                ["add-flow".to_owned(), bridge.clone(), format!("priority=1,{flow},actions=drop")]
            } else {
                ["del-flows".to_owned(), bridge.clone(), flow]
            };
            Line::new("ovs-ofctl").args(["-O", "OpenFlow13"]).args(words).succeeds()
        }))
    }
}

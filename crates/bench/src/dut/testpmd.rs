//! DPDK's testpmd, which hands packets from one port to the other, or along a line of them.

use super::attach::Attached;
use super::behind::Behind;
use super::container::Needs;
use super::plan::ChainText;
use super::program::Line;
use super::{About, Driver, DutError, Forward, Plan, Ports, Running, Site, eal};

pub(crate) struct Testpmd {
    ports: Ports,
    forward: Forward,
    /// With NFs behind walls, between which it is the switch.
    chain: Option<ChainText>,
}

impl Testpmd {
    pub(crate) fn new(plan: &Plan) -> Testpmd {
        Testpmd { ports: plan.ports.clone(), forward: plan.forward, chain: plan.chain.clone() }
    }
}

impl Driver for Testpmd {
    fn start(&mut self, site: &mut Site) -> Result<Running, DutError> {
        if self.chain.is_none() && !matches!(self.forward, Forward::Ports) {
            let remedy = "say forward = \"ports\", which is the default";
            return Err(site.wrong("only hands packets from port to port here", remedy));
        }
        let attached = Attached::new(site, &self.ports)?;
        let cpu = site.cpus().first().copied().unwrap_or(0);
        let behind = self.chain.as_ref().map(|chain| Behind::new(site, chain)).transpose()?;
        let mut inner = attached.inner.clone();
        if let Some(behind) = &behind {
            inner.extend(behind.sockets.iter().map(|socket| socket.display().to_string()));
            let line = behind.line(attached.inner.len()).ok_or_else(|| {
                let problem =
                    "hands packets on along one line of ports, and the chains of this file make another figure";
                site.wrong(
                    problem,
                    "leave one chain through all walls, from the first port to the second; or take another switch",
                )
            })?;
            inner = line.into_iter().map(|port| inner[port].clone()).collect();
        }
        let device = |(n, inner): (usize, &String)| match self.ports {
            Ports::VhostUser => format!("--vdev=net_vhost{n},iface={inner},queues=1"),
            _ => format!("--vdev=net_af_packet{n},iface={inner}"),
        };
        let devices: Vec<String> = inner.iter().enumerate().map(device).collect();
        let lcores = format!("--lcores=0@{cpu},1@{cpu}");
        let mut words: Vec<String> = vec![lcores, "--no-pci".to_owned(), "--no-shconf".to_owned()];
        words.extend(eal::memory().iter().map(|&s| s.to_owned()));
        words.extend(devices);
        words.extend(["--", "--forward-mode=io", "--no-mlockall", "--total-num-mbufs=16384"].map(str::to_owned));
        words.extend(behind.is_some().then(|| "--port-topology=chained".to_owned()));
        let mut program = attached.start(site, "testpmd", Line::new("dpdk-testpmd").args(words), &Needs::default())?;
        // it says so once its ports are set up, and then waits for links
        program.wait(site, "its ports", |p| p.said().contains("Checking link statuses"))?;
        let version = Line::new("dpdk-testpmd").args(["--version"]).output(site).ok();
        let version = version.and_then(|v| Some(v.lines().last()?.trim().to_owned())).filter(|v| !v.is_empty());
        let about = About { version, ..About::default() };
        let hosts = behind.map(|behind| behind.start(site)).transpose()?;
        Ok(Running::new(site, attached, [Some(program), hosts].into_iter().flatten().collect(), about))
    }
}

//! DPDK's testpmd, which hands packets from one port to the other.

use super::attach::Attached;
use super::program::{Line, Program};
use super::{About, Driver, DutError, Forward, Plan, Ports, Site, Started};

pub(crate) struct Testpmd {
    ports: Ports,
    forward: Forward,
    attached: Option<Attached>,
    program: Option<Program>,
}

impl Testpmd {
    pub(crate) fn new(plan: &Plan) -> Testpmd {
        Testpmd { ports: plan.ports.clone(), forward: plan.forward, attached: None, program: None }
    }
}

/// Arguments of the EAL for a DPDK program beside this one: memory of its own that both can share.
fn eal() -> &'static [&'static str] {
    // as many as the program takes, and some
    if dpdk::Memory::free_huge_pages() >= 300 {
        &["--in-memory", "--single-file-segments", "-m", "512"]
    } else {
        &["--no-huge", "-m", "512"]
    }
}

impl Driver for Testpmd {
    fn start(&mut self, site: &mut Site) -> Result<Started, DutError> {
        if !matches!(self.forward, Forward::Ports) {
            let cure = "say forward = \"ports\", which is the default";
            return Err(site.wrong("only hands packets from port to port here", cure));
        }
        let attached = Attached::new(site, &self.ports)?;
        let cpu = site.cpus().first().copied().unwrap_or(0);
        let device = |(n, inner): (usize, &String)| match self.ports {
            Ports::VhostUser => format!("--vdev=net_vhost{n},iface={inner},queues=1"),
            _ => format!("--vdev=net_af_packet{n},iface={inner}"),
        };
        let devices: Vec<String> = attached.inner.iter().enumerate().map(device).collect();
        let lcores = format!("--lcores=0@{cpu},1@{cpu}");
        let mut words: Vec<String> = vec![lcores, "--no-pci".to_owned(), "--no-shconf".to_owned()];
        words.extend(eal().iter().map(|&s| s.to_owned()));
        words.extend(devices);
        words.extend(["--", "--forward-mode=io", "--no-mlockall", "--total-num-mbufs=16384"].map(str::to_owned));
        let line = attached.line(Line::new("dpdk-testpmd").args(words), site);
        let mut program = Program::start(site, "testpmd", line)?;
        // it says so once its ports are set up, and then waits for links
        program.wait(site, "its ports", |p| p.said().contains("Checking link statuses"))?;
        self.program = Some(program);
        let version = Line::new("dpdk-testpmd").args(["--version"]).output(site).ok();
        let version = version.and_then(|v| Some(v.lines().last()?.trim().to_owned())).filter(|v| !v.is_empty());
        let about = About { version, configuration: site.notes(), remarks: vec![] };
        let devices = attached.outer.clone();
        self.attached = Some(attached);
        Ok(Started { devices, about })
    }

    fn check(&mut self) -> Result<(), DutError> {
        self.program.as_mut().map_or(Ok(()), |p| p.check("testpmd"))
    }

    fn stop(&mut self) {
        self.program = None;
        self.attached = None;
    }
}

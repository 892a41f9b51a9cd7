//! How generator and device are joined.

use super::container::{self, Container, Needs};
use super::links::Links;
use super::namespace::Namespace;
use super::program::{Line, Program};
use super::{DutError, Env, Ports, Site};

/// Joined ports.
pub(crate) struct Attached {
    /// Devices that the generator opens.
    pub(crate) outer: Vec<String>,
    /// What the device opens: sockets at which it listens, or interfaces `p0`, … in the namespace.
    pub(crate) inner: Vec<String>,
    /// Where the device has to run.
    namespace: Option<Namespace>,
    /// What else was made here for it.
    _cable: Links,
}

impl Attached {
    /// Makes what both sides need.
    ///
    /// # Errors
    /// What this machine or user lacks.
    pub(crate) fn new(site: &mut Site, ports: &Ports) -> Result<Attached, DutError> {
        let veth = |site: &mut Site, kind: &str| {
            let mut namespace = Namespace::new(site)?;
            let near = namespace.ports(site)?;
            let outer = near.iter().map(|name| format!("{kind}:{name}")).collect();
            let inner = (0..near.len()).map(|n| format!("p{n}")).collect();
            Ok(Attached { outer, inner, namespace: Some(namespace), _cable: Links::default() })
        };
        match ports {
            Ports::AfPacket | Ports::AfXdp | Ports::Devices(_) if site.env() == Env::Container => Err(site.wrong(
                format!("env = \"container\" does not go with {ports} ports: a container has none of the kernel's"),
                "say ports = \"vhost-user\", or env = \"native\"",
            )),
            Ports::VhostUser => {
                let socket = |n: usize| site.path(&format!("port{n}")).display().to_string();
                let inner: Vec<String> = (0..site.ports()).map(socket).collect();
                let outer = inner.iter().map(|path| format!("virtio-user:{path}")).collect();
                Ok(Attached { outer, inner, namespace: None, _cable: Links::default() })
            }
            Ports::AfPacket => veth(site, "af_packet"),
            Ports::AfXdp => veth(site, "af_xdp"),
            Ports::Devices(_) if !site.inner().is_empty() => {
                let mut namespace = Namespace::new(site)?;
                namespace.lend(site)?;
                let inner = site.inner().to_vec();
                Ok(Attached { inner, namespace: Some(namespace), ..Attached::outside(ports) })
            }
            Ports::Devices(_) => Ok(Attached::outside(ports)),
        }
    }

    /// Ports at whose other ends is nothing of this machine's.
    pub(crate) fn outside(ports: &Ports) -> Attached {
        let outer = match ports {
            Ports::Devices(all) => all.clone(),
            _ => vec![],
        };
        Attached::cable(outer, Links::default())
    }

    /// Ports with nothing of ours between them, but a cable perhaps.
    pub(crate) fn cable(outer: Vec<String>, cable: Links) -> Attached {
        Attached { outer, inner: vec![], namespace: None, _cable: cable }
    }

    /// As [`Attached::new`], in a namespace also where the ports need none: what else the device makes is gone with it.
    ///
    /// # Errors
    /// What this machine or user lacks.
    pub(crate) fn apart(site: &mut Site, ports: &Ports) -> Result<Attached, DutError> {
        let mut attached = Attached::new(site, ports)?;
        // a container has a namespace
        if attached.namespace.is_none() && site.env() == Env::Native {
            attached.namespace = Some(Namespace::new(site)?);
        }
        Ok(attached)
    }

    /// Starts a program of the device's where that has to run, on its CPUs.
    ///
    /// # Errors
    /// When it is not there, or no container for it.
    pub(crate) fn start(&self, site: &mut Site, name: &str, line: Line, needs: &Needs) -> Result<Program, DutError> {
        if site.env() == Env::Native {
            let line = self.line(line, site);
            return Program::start(site, name, line);
        }
        let (container, line) = Container::new(site, name, &line, needs)?;
        site.remark(container::remark(needs.interfaces));
        let line = line.on_cpus(site);
        Ok(Program::start(site, name, line)?.in_container(container))
    }

    /// A command where this program runs.
    pub(crate) fn beside(&self, program: &Program, line: Line, site: &Site) -> Line {
        match program.container() {
            Some(container) => container.exec(&line),
            None => self.line(line, site),
        }
    }

    /// A command where the device has to run, on its CPUs.
    pub(crate) fn line(&self, line: Line, site: &Site) -> Line {
        let line = line.on_cpus(site);
        match &self.namespace {
            Some(namespace) => line.within(namespace.id()),
            None => line,
        }
    }

    /// The device's interface that packets of the first direction come in by.
    pub(crate) fn entry(&self) -> &str {
        self.inner.first().map_or("p0", String::as_str)
    }

    /// The one that they go out by.
    pub(crate) fn exit(&self) -> &str {
        self.inner.get(1).map_or("p1", String::as_str)
    }

    /// Whether the namespace is still there.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) fn check(&mut self, dut: &str) -> Result<(), DutError> {
        self.namespace.as_mut().map_or(Ok(()), |n| n.check(dut))
    }

    /// The namespace.
    ///
    /// # Errors
    /// When the ports are none of the kernel's.
    pub(crate) fn kernel(&self, site: &Site) -> Result<&Namespace, DutError> {
        self.namespace.as_ref().ok_or_else(|| {
            site.wrong("forwards in the kernel, and these ports are not the kernel's", "say ports = \"af_packet\"")
        })
    }
}

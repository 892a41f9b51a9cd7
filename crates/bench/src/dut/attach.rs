//! How generator and device are joined.

use super::namespace::Namespace;
use super::program::Line;
use super::{DutError, Ports, Site};

/// Joined ports.
pub(crate) struct Attached {
    /// Devices that the generator opens.
    pub(crate) outer: Vec<String>,
    /// What the device opens: sockets at which it listens, or interfaces `p0`, … in the namespace.
    pub(crate) inner: Vec<String>,
    /// Where the device has to run.
    pub(crate) namespace: Option<Namespace>,
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
            Ok(Attached { outer, inner, namespace: Some(namespace) })
        };
        match ports {
            Ports::VhostUser => {
                let socket = |n: usize| site.path(&format!("port{n}")).display().to_string();
                let inner: Vec<String> = (0..site.ports()).map(socket).collect();
                let outer = inner.iter().map(|path| format!("virtio-user:{path}")).collect();
                Ok(Attached { outer, inner, namespace: None })
            }
            Ports::AfPacket => veth(site, "af_packet"),
            Ports::AfXdp => veth(site, "af_xdp"),
            Ports::Devices(all) => Ok(Attached { outer: all.clone(), inner: vec![], namespace: None }),
        }
    }

    /// As [`Attached::new`], in a namespace also where the ports need none: what else the device makes is gone with it.
    ///
    /// # Errors
    /// What this machine or user lacks.
    pub(crate) fn apart(site: &mut Site, ports: &Ports) -> Result<Attached, DutError> {
        let mut attached = Attached::new(site, ports)?;
        if attached.namespace.is_none() {
            attached.namespace = Some(Namespace::new(site)?);
        }
        Ok(attached)
    }

    /// A command where the device has to run, on its CPUs.
    pub(crate) fn line(&self, line: Line, site: &Site) -> Line {
        let line = line.on_cpus(site);
        match &self.namespace {
            Some(namespace) => line.within(namespace.id()),
            None => line,
        }
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

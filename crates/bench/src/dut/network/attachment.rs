//! The ports between generator and device.

use super::links::Links;
use super::namespace::Namespace;
use super::passthrough::InterfacePassthrough;
use crate::dut::context::{DutContext, DutError};
use crate::dut::process::{CommandLine, Container, ContainerOptions, Program, container_remark};
use crate::dut::spec::{Env, Ports};

/// Returns the sockets between generator and device.
pub(crate) fn sockets(context: &DutContext) -> Vec<String> {
    (0..context.ports()).map(|n| context.path(&format!("port{n}")).display().to_string()).collect()
}

/// Returns the name of an interface that the device creates on the host; the kernel removes it with the device.
fn tap_name(n: usize) -> String {
    format!("bs{}p{n}", std::process::id())
}

/// Connected ports, and the namespace that the device runs in.
pub(crate) struct Attachment {
    /// Devices that the generator opens.
    pub(crate) generator_ports: Vec<String>,
    /// Sockets of the device, or its interfaces.
    pub(crate) device_ports: Vec<String>,
    _passthrough: Option<InterfacePassthrough>,
    namespace: Option<Namespace>,
    _links: Links,
}

impl Attachment {
    /// Creates the ports.
    ///
    /// # Errors
    /// If permission is denied, an interface cannot be used, or the ports do not work with containers.
    pub(crate) fn new(context: &mut DutContext, ports: &Ports) -> Result<Attachment, DutError> {
        let opened = |names: &[String]| names.iter().map(|name| ports.generator_device(name)).collect();
        match ports {
            ports if context.env() == Env::Container && !ports.are_sockets() => Err(context.error(
                format!("env = \"container\" does not support {ports} ports: a container has no host interfaces"),
                "set ports = \"vhost-user\", or env = \"native\"",
            )),
            Ports::VhostUser | Ports::VirtioUser | Ports::Memif => {
                let device_ports = sockets(context);
                let generator_ports = opened(&device_ports);
                Ok(Attachment { device_ports, ..Attachment::direct(generator_ports, Links::default()) })
            }
            Ports::Tap => {
                let device_ports: Vec<String> = (0..context.ports()).map(tap_name).collect();
                let generator_ports = opened(&device_ports);
                context.mask_pid(std::process::id());
                Ok(Attachment { device_ports, ..Attachment::direct(generator_ports, Links::default()) })
            }
            Ports::AfPacket | Ports::AfXdp => {
                let mut namespace = Namespace::new(context)?;
                let host_ends = namespace.create_ports(context)?;
                let device_ports = (0..host_ends.len()).map(|n| format!("p{n}")).collect();
                let namespace = Some(namespace);
                Ok(Attachment { device_ports, namespace, ..Attachment::direct(opened(&host_ends), Links::default()) })
            }
            Ports::Devices(_) if !context.interfaces().is_empty() => {
                let namespace = Namespace::new(context)?;
                let passthrough = InterfacePassthrough::new(context, namespace.id())?;
                let device_ports = context.interfaces().to_vec();
                for name in &device_ports {
                    namespace.set_up(context, name)?;
                }
                let (passthrough, namespace) = (Some(passthrough), Some(namespace));
                Ok(Attachment { device_ports, _passthrough: passthrough, namespace, ..Attachment::external(ports) })
            }
            Ports::Devices(_) => Ok(Attachment::external(ports)),
        }
    }

    /// Returns ports that are connected to something outside of this machine.
    pub(crate) fn external(ports: &Ports) -> Attachment {
        let generator_ports = match ports {
            Ports::Devices(all) => all.clone(),
            _ => vec![],
        };
        Attachment::direct(generator_ports, Links::default())
    }

    /// Returns ports of the generator without a device, connected by `links` if any.
    pub(crate) fn direct(generator_ports: Vec<String>, links: Links) -> Attachment {
        Attachment { generator_ports, device_ports: vec![], _passthrough: None, namespace: None, _links: links }
    }

    /// As [`Attachment::new`], with a namespace also for ports that need none: it removes what the device leaves
    /// behind.
    ///
    /// # Errors
    /// As [`Attachment::new`].
    pub(crate) fn in_namespace(context: &mut DutContext, ports: &Ports) -> Result<Attachment, DutError> {
        let mut attachment = Attachment::new(context, ports)?;
        // a container has its own
        if attachment.namespace.is_none() && context.env() == Env::Native {
            attachment.namespace = Some(Namespace::new(context)?);
        }
        Ok(attachment)
    }

    /// Configures the interfaces that the device has created, for the generator to open.
    ///
    /// # Errors
    /// If one does not exist.
    pub(crate) fn set_up_taps(&self, context: &mut DutContext) -> Result<(), DutError> {
        for name in &self.device_ports {
            // without the IPv6 address that the kernel gave it
            for words in [&["down"][..], &["addrgenmode", "none"], &["arp", "off", "up"]] {
                CommandLine::new("ip").args(["link", "set", name]).args(words.iter().copied()).run(context)?;
            }
        }
        Ok(())
    }

    /// Starts a program of the device in its namespace or a container, on the CPUs of the device.
    ///
    /// # Errors
    /// If the program or its container cannot be started.
    pub(crate) fn start(
        &self,
        context: &mut DutContext,
        name: &str,
        command: CommandLine,
        options: &ContainerOptions,
    ) -> Result<Program, DutError> {
        if context.env() == Env::Native {
            let command = self.confine(command, context);
            return Program::start(context, name, command);
        }
        let (container, command) = Container::new(context, name, &command, options)?;
        context.add_remark(container_remark(options.creates_interfaces));
        let command = command.on_cpus(context);
        Ok(Program::start(context, name, command)?.in_container(container))
    }

    /// Returns a command that runs in the container or namespace and on the CPUs of `program`.
    pub(crate) fn confine_with(&self, program: &Program, command: CommandLine, context: &DutContext) -> CommandLine {
        match program.container() {
            Some(container) => container.exec(&command),
            None => self.confine(command, context),
        }
    }

    /// Returns a command that runs in the namespace and on the CPUs of the device.
    pub(crate) fn confine(&self, command: CommandLine, context: &DutContext) -> CommandLine {
        let command = command.on_cpus(context);
        match &self.namespace {
            Some(namespace) => command.in_namespaces_of(namespace.id()),
            None => command,
        }
    }

    /// Returns the device's interface on which packets of the first direction arrive.
    pub(crate) fn ingress(&self) -> &str {
        self.device_ports.first().map_or("p0", String::as_str)
    }

    /// Returns the device's interface on which packets of the first direction leave.
    pub(crate) fn egress(&self) -> &str {
        self.device_ports.get(1).map_or("p1", String::as_str)
    }

    /// Checks that the namespace still exists.
    ///
    /// # Errors
    /// If its process has ended.
    pub(crate) fn check(&mut self, dut: &str) -> Result<(), DutError> {
        self.namespace.as_mut().map_or(Ok(()), |n| n.check(dut))
    }

    /// Returns the namespace.
    ///
    /// # Errors
    /// If the ports are not interfaces of the kernel.
    pub(crate) fn namespace(&self, context: &DutContext) -> Result<&Namespace, DutError> {
        self.namespace.as_ref().ok_or_else(|| {
            let problem = "forwards in the kernel and needs interfaces of the kernel as ports";
            context.error(problem, "set ports = \"af_packet\"")
        })
    }
}

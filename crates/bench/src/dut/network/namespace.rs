//! An anonymous network namespace, connected to the host by veth pairs. The kernel removes it with the process in it.

use super::links::Links;
use crate::dut::context::{DutContext, DutError};
use crate::dut::process::{CommandLine, Program};

/// A network namespace, and the process that holds it.
pub(crate) struct Namespace {
    /// Host ends of the veth pairs; the kernel would delete them some time after the process has ended.
    host_ends: Links,
    holder: Program,
}

impl Namespace {
    /// Creates a namespace with a `/sys` of its own.
    ///
    /// # Errors
    /// If this user is not root.
    pub(crate) fn new(context: &mut DutContext) -> Result<Namespace, DutError> {
        if !rustix::process::geteuid().is_root() {
            return Err(context.error("cannot create a network namespace: permission denied", "run it as root"));
        }
        let script = "mount -t sysfs none /sys && echo ready && exec sleep infinity";
        let command = CommandLine::new("unshare").args(["--net", "--mount", "sh", "-c", script]);
        let mut holder = Program::start(context, "namespace", command)?;
        holder.wait_until(context, "a network namespace", |p| p.output_tail().contains("ready"))?;
        context.mask_pid(holder.id());
        let namespace = Namespace { holder, host_ends: Links::default() };
        namespace.run(context, &["ip", "link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Returns a command that runs in the namespace.
    pub(crate) fn command(&self, words: &[&str]) -> CommandLine {
        CommandLine::new(words[0]).args(words[1..].iter().copied()).in_namespaces_of(self.holder.id())
    }

    /// Runs a command in the namespace and returns its output.
    ///
    /// # Errors
    /// If it fails.
    pub(crate) fn run(&self, context: &mut DutContext, words: &[&str]) -> Result<String, DutError> {
        self.command(words).run(context)
    }

    /// Runs a command whose words contain no spaces.
    ///
    /// # Errors
    /// If it fails.
    pub(crate) fn run_text(&self, context: &mut DutContext, command: &str) -> Result<String, DutError> {
        self.run(context, &command.split(' ').collect::<Vec<_>>())
    }

    /// Writes a value to a file of the namespace's `/proc` or `/sys`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn write(&self, context: &mut DutContext, file: &str, value: &str) -> Result<(), DutError> {
        self.run(context, &["sh", "-c", &format!("echo {value} > {file}")]).map(drop)
    }

    /// Creates interfaces `p0`, `p1`, … in the namespace and returns the names of their peers on the host. Received
    /// packets are steered to the CPUs of the device (RPS) instead of the CPU that sends.
    ///
    /// # Errors
    /// If one cannot be created.
    pub(crate) fn create_ports(&mut self, context: &mut DutContext) -> Result<Vec<String>, DutError> {
        let pid = self.holder.id().to_string();
        let mut host_ends = vec![];
        for n in 0..context.ports() {
            let (inner, outer) = (format!("p{n}"), format!("bs{pid}p{n}"));
            let words = ["link", "add", &outer, "type", "veth", "peer", "name", &inner, "netns", &pid];
            CommandLine::new("ip").args(words).run(context)?;
            self.host_ends.0.push(outer.clone());
            for words in
                [vec!["link", "set", &outer, "addrgenmode", "none"], vec!["link", "set", &outer, "arp", "off", "up"]]
            {
                CommandLine::new("ip").args(words).run(context)?;
            }
            self.set_up(context, &inner)?;
            if let Some(mtu) = context.jumbo_mtu().map(|mtu| mtu.to_string()) {
                CommandLine::new("ip").args(["link", "set", &outer, "mtu", &mtu]).run(context)?;
                self.run(context, &["ip", "link", "set", &inner, "mtu", &mtu])?;
            }
            let mask = context.cpu_mask_sysfs();
            self.write(context, &format!("/sys/class/net/{inner}/queues/rx-0/rps_cpus"), &mask)?;
            host_ends.push(outer);
        }
        Ok(host_ends)
    }

    /// Brings an interface up without IPv6 addresses.
    ///
    /// # Errors
    /// If it does not exist.
    pub(crate) fn set_up(&self, context: &mut DutContext, interface: &str) -> Result<(), DutError> {
        self.run(context, &["ip", "link", "set", interface, "addrgenmode", "none"])?;
        self.run(context, &["ip", "link", "set", interface, "up"]).map(drop)
    }

    /// Returns the id of the process that holds the namespace.
    pub(crate) fn id(&self) -> u32 {
        self.holder.id()
    }

    /// Checks that the namespace still exists.
    ///
    /// # Errors
    /// If its process has ended.
    pub(crate) fn check(&mut self, dut: &str) -> Result<(), DutError> {
        self.holder.check(dut)
    }
}

//! A network namespace that no file holds, joined to this one by veth pairs: it is gone with the process in it.

use super::given::Given;
use super::links::Links;
use super::program::{Line, Program};
use super::{DutError, Site};

/// A namespace.
pub(crate) struct Namespace {
    /// The ends of its interfaces that are here: the kernel would delete them some time after its process has ended.
    near: Links,
    given: Option<Given>,
    holder: Program,
}

impl Namespace {
    /// Makes one, with a `/sys` of its own.
    ///
    /// # Errors
    /// When this user may not.
    pub(crate) fn new(site: &mut Site) -> Result<Namespace, DutError> {
        if !rustix::process::geteuid().is_root() {
            return Err(site.wrong("needs a network namespace, and this user may make none", "run it as root"));
        }
        let script = "mount -t sysfs none /sys && echo ready && exec sleep infinity";
        let line = Line::new("unshare").args(["--net", "--mount", "sh", "-c", script]);
        let mut holder = Program::start(site, "namespace", line)?;
        holder.wait(site, "a namespace", |p| p.said().contains("ready"))?;
        site.hide(holder.id());
        let namespace = Namespace { holder, near: Links::default(), given: None };
        namespace.run(site, &["ip", "link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// A command in it.
    pub(crate) fn line(&self, words: &[&str]) -> Line {
        Line::new(words[0]).args(words[1..].iter().copied()).within(self.holder.id())
    }

    /// Runs a command in it.
    ///
    /// # Errors
    /// When it fails.
    pub(crate) fn run(&self, site: &mut Site, words: &[&str]) -> Result<String, DutError> {
        self.line(words).output(site)
    }

    /// Writes a setting in it.
    ///
    /// # Errors
    /// When that cannot be.
    pub(crate) fn set(&self, site: &mut Site, file: &str, value: &str) -> Result<(), DutError> {
        self.run(site, &["sh", "-c", &format!("echo {value} > {file}")]).map(drop)
    }

    /// Interfaces `p0`, `p1`, … in it, up and without offloads; the interfaces here that are their other ends. What they
    /// receive is worked on by the site's CPUs, not by the one that sends.
    ///
    /// # Errors
    /// When one cannot be made.
    pub(crate) fn ports(&mut self, site: &mut Site) -> Result<Vec<String>, DutError> {
        let pid = self.holder.id().to_string();
        let mut outside = vec![];
        for n in 0..site.ports() {
            let (far, near) = (format!("p{n}"), format!("bs{pid}p{n}"));
            let words = ["link", "add", &near, "type", "veth", "peer", "name", &far, "netns", &pid];
            Line::new("ip").args(words).output(site)?;
            self.near.0.push(near.clone());
            for words in
                [vec!["link", "set", &near, "addrgenmode", "none"], vec!["link", "set", &near, "arp", "off", "up"]]
            {
                Line::new("ip").args(words).output(site)?;
            }
            self.run(site, &["ip", "link", "set", &far, "addrgenmode", "none"])?;
            self.run(site, &["ip", "link", "set", &far, "up"])?;
            let mask = site.cpu_groups();
            self.set(site, &format!("/sys/class/net/{far}/queues/rx-0/rps_cpus"), &mask)?;
            outside.push(near);
        }
        Ok(outside)
    }

    /// Takes in the interfaces that the site is given.
    ///
    /// # Errors
    /// When one is not there or in use.
    pub(crate) fn lend(&mut self, site: &mut Site) -> Result<(), DutError> {
        self.given = Some(Given::lend(site, self.holder.id())?);
        for name in site.inner().to_vec() {
            self.run(site, &["ip", "link", "set", &name, "addrgenmode", "none"])?;
            self.run(site, &["ip", "link", "set", &name, "up"])?;
        }
        Ok(())
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.holder.id()
    }

    /// Whether it is still there.
    ///
    /// # Errors
    /// When its process has ended.
    pub(crate) fn check(&mut self, dut: &str) -> Result<(), DutError> {
        self.holder.check(dut)
    }
}

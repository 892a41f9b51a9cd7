//! FD.io VPP, as a private instance.
//!
//! Written after its command line's source and its configuration reference (24.02 and later). No package of it could be had
//! where this was written: the tests have a program that answers as it does, and the result says so.

use super::attach::Attached;
use super::behind::Behind;
use super::container::Needs;
use super::plan::ChainText;
use super::program::{Line, absent};
use super::{About, Driver, DutError, Env, Forward, Plan, Ports, Running, Site, eal};
use std::path::PathBuf;

/// What a reader of a result has to know.
const REMARK: &str =
    "the driver of VPP was written after its documentation, and has not been run against VPP by its authors";
/// The domain of `forward = "bridge"`; interfaces that hand nothing on have each one behind it.
const DOMAIN: usize = 1;

pub(crate) struct Vpp {
    ports: Ports,
    forward: Forward,
    /// With NFs behind walls, between which it is the switch.
    chain: Option<ChainText>,
}

/// Its command line.
struct Cli(PathBuf);

impl Cli {
    fn line(&self, command: &str) -> Line {
        Line::new("vppctl").args(["-s", &self.0.display().to_string()]).args(command.split(' '))
    }

    /// What it answers: nothing, to a command that does as it is told.
    fn set(&self, site: &mut Site, command: &str) -> Result<(), DutError> {
        let said = self.line(command).output(site)?;
        match said.trim() {
            "" => Ok(()),
            said => Err(refused(site, command, said)),
        }
    }

    /// Creates an interface; its name.
    fn create(&self, site: &mut Site, command: &str) -> Result<String, DutError> {
        let said = self.line(command).output(site)?;
        match said.split_whitespace().collect::<Vec<_>>()[..] {
            [name] => Ok(name.to_owned()),
            _ => Err(refused(site, command, said.trim())),
        }
    }
}

fn refused(site: &Site, command: &str, said: &str) -> DutError {
    site.wrong(format!("`{command}`: {said}"), "look at what it says; interfaces need the plugins vhost or af_packet")
}

impl Vpp {
    pub(crate) fn new(plan: &Plan) -> Vpp {
        Vpp { ports: plan.ports.clone(), forward: plan.forward, chain: plan.chain.clone() }
    }

    /// Its configuration: nothing outside of the site's folder, no device that it was not given.
    fn configuration(site: &Site) -> String {
        let folder = site.path("");
        let folder = folder.display().to_string();
        let folder = folder.trim_end_matches('/');
        let cpu = match site.cpus() {
            [] => String::new(),
            [one] => format!("cpu {{ main-core {one} }}\n"),
            [first, rest @ ..] => {
                let rest = rest.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
                format!("cpu {{ main-core {first} corelist-workers {rest} }}\n")
            }
        };
        // it would set huge pages aside by itself, and leave them so
        let buffers = if eal::has_huge_pages() { "" } else { "buffers { page-size default }\n" };
        format!(
            "unix {{ nodaemon nosyslog nocolor runtime-dir {folder} cli-listen {folder}/cli.sock }}\n\
             api-segment {{ prefix bondstone }}\n\
             socksvr {{ socket-name {folder}/api.sock }}\n\
             statseg {{ socket-name {folder}/stats.sock }}\n\
             {cpu}{buffers}\
             plugins {{\n  plugin default {{ disable }}\n  plugin vhost_plugin.so {{ enable }}\n  \
             plugin af_packet_plugin.so {{ enable }}\n}}\n"
        )
    }
}

impl Driver for Vpp {
    fn start(&mut self, site: &mut Site) -> Result<Running, DutError> {
        for name in ["vpp", "vppctl"] {
            let found = Line::new("sh").args(["-c", &format!("command -v {name}")]);
            found.quietly(site).map_err(|_| absent(site, name, &"there is none"))?;
        }
        let behind = self.chain.as_ref().map(|chain| Behind::new(site, chain)).transpose()?;
        // its memory for other programs has names in /dev/shm, and stays there when it is killed
        let attached = Attached::apart(site, &self.ports)?;
        let text = Self::configuration(site);
        let file = site.path("startup.conf");
        std::fs::write(&file, &text).map_err(|e| site.file_error(&file, &e))?;
        site.note(text);
        let line = Line::new("vpp").args(["-c".to_owned(), file.display().to_string()]);
        let line = match site.env() {
            Env::Native => line.behind(["sh", "-c", "mount -t tmpfs shm /dev/shm && exec \"$@\"", "vpp"]),
            Env::Container => line,
        };
        let mut program = attached.start(site, "vpp", line, &Needs::default())?;
        let cli = Cli(site.path("cli.sock"));
        program.wait(site, "its command line", |_| cli.line("show version").succeeds())?;
        let version = cli.line("show version").quietly(site)?;

        let sockets = behind.iter().flat_map(|behind| &behind.sockets).map(|socket| socket.display().to_string());
        let mut names = vec![];
        for (n, inner) in attached.inner.iter().cloned().chain(sockets).enumerate() {
            let shared = self.ports == Ports::VhostUser || n >= attached.inner.len();
            if matches!(self.ports, Ports::Devices(_)) {
                // a NIC keeps what is for other addresses to itself, and VPP does not ask it for that
                let line = Line::new("ip").args(["link", "set", &inner, "promisc", "on"]);
                attached.line(line, site).output(site)?;
            }
            let command = match shared {
                true => format!("create vhost-user socket {inner} server"),
                false => format!("create host-interface name {inner}"),
            };
            let name = cli.create(site, &command)?;
            cli.set(site, &format!("set interface state {name} up"))?;
            names.push(name);
        }
        let hops: Vec<(usize, usize)> = match (&behind, self.forward) {
            (Some(behind), _) => behind.hops.clone(),
            (None, Forward::Ports) => (0..names.len()).map(|n| (n, n ^ 1)).collect(),
            (None, Forward::Bridge) => vec![],
            (None, _) => {
                let problem = "neither routes nor takes a trace's table here";
                return Err(site.wrong(problem, "say forward = \"ports\" or \"bridge\""));
            }
        };
        for (n, name) in names.iter().enumerate() {
            let command = match hops.iter().find(|(from, _)| *from == n) {
                Some((_, to)) => format!("set interface l2 xconnect {name} {}", names[*to]),
                None if hops.is_empty() => format!("set interface l2 bridge {name} {DOMAIN}"),
                // it sends only if it is a port of something
                None => format!("set interface l2 bridge {name} {}", DOMAIN + 1 + n),
            };
            cli.set(site, &command)?;
        }
        site.remark(REMARK.to_owned());
        if let more @ 2.. = site.cpus().len() {
            site.remark(format!("of {more} CPUs VPP's main thread has one, and forwards nothing on it"));
        }
        let about = About { version: version.split_whitespace().nth(1).map(str::to_owned), ..About::default() };
        let hosts = behind.map(|behind| behind.start(site)).transpose()?;
        Ok(Running::new(site, attached, [Some(program), hosts].into_iter().flatten().collect(), about))
    }
}

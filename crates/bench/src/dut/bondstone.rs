//! A chain of this program, run by a process of its own.

use super::attach::Attached;
use super::container::Needs;
use super::plan::ChainText;
use super::program::Line;
use super::{About, Driver, DutError, Plan, Ports, Running, Site, own_program, rhythm};
use crate::bed::{Act, Acted};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use toml::{Table, Value};

/// How long a change of a rule may take.
const CHANGE: Duration = Duration::from_secs(10);

pub(crate) struct Bondstone {
    ports: Ports,
    chain: Option<ChainText>,
}

/// The settings of the first firewall of a chain file.
fn firewall(table: &mut Table) -> Option<&mut Table> {
    let nfs = table.get_mut("nf")?.as_table_mut()?;
    let mut nfs = nfs.iter_mut().filter_map(|(_, nf)| nf.as_table_mut());
    nfs.find(|nf| nf.get("kind").and_then(Value::as_str) == Some("firewall"))
}

/// Has the chains of a file run on the device's CPUs.
pub(crate) fn on_its_cpus(table: &mut Table, site: &Site) {
    let cpus: Vec<Value> = site.cpus().iter().map(|&cpu| Value::Integer(cpu as i64)).collect();
    for chain in table.get_mut("chain").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(chain) = chain.as_table_mut() {
            chain.insert("cores".to_owned(), Value::Array(cpus.clone()));
        }
    }
}

fn no_chain(site: &Site) -> DutError {
    site.wrong("has no chain", "name a chain file: chain = \"...\"")
}

/// The socket by which the firewall's rules are changed.
fn socket(site: &Site) -> PathBuf {
    site.path("rules.sock")
}

/// A connection to it.
struct Rules(PathBuf, Option<BufReader<UnixStream>>);

impl Rules {
    fn connect(&mut self) -> std::io::Result<&mut BufReader<UnixStream>> {
        if self.1.is_none() {
            let stream = UnixStream::connect(&self.0)?;
            stream.set_read_timeout(Some(CHANGE))?;
            stream.set_write_timeout(Some(CHANGE))?;
            self.1 = Some(BufReader::new(stream));
        }
        self.1.as_mut().ok_or_else(|| std::io::ErrorKind::NotConnected.into())
    }

    /// Makes a change; true if it was made.
    fn make(&mut self, change: &str) -> bool {
        let mut answer = String::new();
        let said = self.connect().and_then(|stream| {
            stream.get_mut().write_all(format!("{change}\n").as_bytes())?;
            stream.read_line(&mut answer)
        });
        if said.is_err() {
            // an answer that comes late is none to the next change
            self.1 = None;
        }
        said.is_ok() && answer.trim_end() == "ok"
    }
}

impl Bondstone {
    pub(crate) fn new(plan: &Plan) -> Bondstone {
        Bondstone { ports: plan.ports.clone(), chain: plan.chain.clone() }
    }

    /// The chain file with other devices at its ports and other CPUs under its chains.
    fn text(&self, site: &Site, devices: &[String]) -> Result<String, DutError> {
        let file = self.chain.as_ref().ok_or_else(|| no_chain(site))?;
        let odd = |what: &str| site.wrong(format!("{}: {what}", file.file.display()), "look at the chain file");
        let mut table: Table = file.text.parse().map_err(|e: toml::de::Error| odd(e.message()))?;
        let ports = table.get_mut("port").and_then(Value::as_table_mut).ok_or_else(|| odd("has no ports"))?;
        if file.ports.len() != devices.len() {
            let problem = format!("has {} ports, and the generator {}", file.ports.len(), devices.len());
            return Err(odd(&problem));
        }
        for (port, device) in file.ports.iter().zip(devices) {
            let port = ports.get_mut(port).and_then(Value::as_table_mut).ok_or_else(|| odd("has no such port"))?;
            port.insert("device".to_owned(), Value::String(device.clone()));
        }
        on_its_cpus(&mut table, site);
        if let Some(firewall) = firewall(&mut table) {
            firewall.insert("control".to_owned(), Value::String(socket(site).display().to_string()));
        }
        toml::to_string(&table).map_err(|e| odd(&e.to_string()))
    }
}

impl Driver for Bondstone {
    fn start(&mut self, site: &mut Site) -> Result<Running, DutError> {
        let attached = Attached::new(site, &self.ports)?;
        let device = |inner: &String| match self.ports {
            Ports::VhostUser => format!("vhost:{inner}"),
            Ports::AfXdp => format!("af_xdp:{inner}"),
            _ => format!("af_packet:{inner}"),
        };
        let devices: Vec<String> = attached.inner.iter().map(device).collect();
        let text = self.text(site, &devices)?;
        let chain = self.chain.as_ref();
        let file = chain.ok_or_else(|| no_chain(site))?.beside(site, &text)?;
        let own = own_program(site)?;
        let from = chain.and_then(|chain| chain.folder()).and_then(|folder| folder.canonicalize().ok());
        let files = [Some(own.clone()), from].into_iter().flatten().collect();
        let needs = Needs { files, interfaces: false };
        let line = Line::new(own.display().to_string()).args(["run".to_owned(), file.display().to_string()]);
        let mut program = attached.start(site, "bondstone", line, &needs)?;
        program.wait(site, "forwarding", |p| p.said().lines().any(|l| l.starts_with("CPU ")))?;
        site.note(text);
        let version = Some(env!("CARGO_PKG_VERSION").to_owned());
        let about = About { version, ..About::default() };
        Ok(Running::new(site, attached, vec![program], about))
    }

    fn cannot(&self, act: Act) -> Option<&'static str> {
        let table = self.chain.as_ref().and_then(|chain| chain.text.parse::<Table>().ok());
        match act {
            Act::Reset { .. } => Some("measure the reset of kind = \"bridge\" or \"command\""),
            Act::Changes { .. } if table.is_some_and(|mut table| firewall(&mut table).is_some()) => None,
            Act::Changes { .. } => {
                Some("put a firewall into the chain, as [nf.NAME] with kind = \"firewall\": its rules are changed")
            }
        }
    }

    /// Changes: rules that no packet of the tests matches are put in front of those of the first firewall, and taken away, in
    /// turn.
    fn act(&mut self, _: &Running, site: &Site, act: Act, stop: &AtomicBool) -> Result<Acted, DutError> {
        let Act::Changes { per_second } = act else { return Ok(Acted::default()) };
        let wrong = |e| site.wrong(format!("its rules cannot be changed: {e}"), "look at what it says");
        let mut rules = Rules(socket(site), None);
        rules.connect().map_err(wrong)?;
        Ok(rhythm::changes(per_second, stop, |n| {
            let rule = format!("drop src 203.0.113.{}", n / 2 % 256);
            rules.make(&if n.is_multiple_of(2) { format!("add 1 {rule}") } else { format!("remove {rule}") })
        }))
    }
}

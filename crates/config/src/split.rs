//! A file with walls as several without: one for the switch, one for what is behind each wall.

use crate::check::check;
use crate::device::Device;
use crate::plan::{ChainFile, Class};
use crate::wall::{Isolation, Side, Transport, Wall};
use diagnostics::Diagnostic;
use graph::Registry;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// What stands in the place of a device that no file can name: whoever reads a [`Part`] puts that there.
const UNNAMED: &str = "null";

/// What the socket of all ways through a wall is called, as no port can be.
const RINGS: &str = ".rings";

/// The socket of a way through a wall.
fn socket(folder: &Path, wall: &Wall, port: &str) -> PathBuf {
    folder.join(&wall.name).join(format!("{port}.sock"))
}

/// The device of a way through a wall on the side where the NFs are.
fn inner(folder: &Path, wall: &Wall, port: &str, queues: usize) -> String {
    /// Bytes of a buffer: whatever a packet buffer holds goes into one.
    const ROOM: usize = 2304;
    let socket = socket(folder, wall, port);
    let socket = socket.display();
    let memif = || format!("memif:{socket},role=client,rsize={},bsize={ROOM}", Wall::QUEUE.ilog2());
    match (wall.isolation, wall.transport) {
        // told with those of its own ports
        (Isolation::Vm, _) => UNNAMED.to_owned(),
        (_, Transport::Vhost) => format!("virtio-user:{socket},queue_size={}{}", Wall::QUEUE, queued(queues, ",cq=1")),
        (_, Transport::Memif) => memif(),
        (_, Transport::MemifZeroCopy) => memif() + ",zero-copy=yes",
        (_, Transport::Rings) => UNNAMED.to_owned(),
    }
}

/// What a device is told of how many queues it has in each direction.
fn queued(queues: usize, more: &str) -> String {
    if queues > 1 { format!(",queues={queues}{more}") } else { String::new() }
}

/// The ports of further queues of a wall's interfaces, each with the port of its first, and its number.
fn queues(wall: &Wall) -> impl Iterator<Item = (String, (String, usize))> {
    wall.interfaces().flat_map(|ports| (1..ports.len()).map(|nth| (ports[nth].clone(), (ports[0].clone(), nth))))
}

/// The ways of a wall by rings, each with its socket, its lane, and how many there are.
fn rings(wall: &Wall, folder: &Path) -> Vec<(String, (PathBuf, usize, usize))> {
    let lanes = if wall.transport == Transport::Rings { wall.ports().count() } else { 0 };
    let way = |(lane, port): (usize, &str)| (port.to_owned(), (socket(folder, wall, RINGS), lane, lanes));
    wall.ports().enumerate().take(lanes).map(way).collect()
}

/// Adds the ports of an interface: the first has its device, the others are told of it apart.
fn open(interface: &[String], ports: &mut Table, device: String) {
    let devices = std::iter::once(device).chain(std::iter::repeat(UNNAMED.to_owned()));
    for (port, device) in interface.iter().zip(devices) {
        ports.insert(port.clone(), Value::Table([("device".to_owned(), device.into())].into_iter().collect()));
    }
}

fn words(all: impl IntoIterator<Item = String>) -> Value {
    Value::Array(all.into_iter().map(Value::String).collect())
}

/// The tables of a file's NFs, without their isolation, of those that `which` says.
fn nfs(table: &Table, which: impl Fn(&str) -> bool) -> Table {
    let all = table.get("nf").and_then(Value::as_table).into_iter().flatten();
    let some = all.filter(|(name, _)| which(name)).map(|(name, nf)| {
        let mut nf = nf.clone();
        if let Some(nf) = nf.as_table_mut() {
            nf.remove("isolation");
        }
        (name.clone(), nf)
    });
    some.collect()
}

fn edges(table: &Table) -> impl Iterator<Item = (&str, &Value)> {
    let all = table.get("edge").and_then(Value::as_array).into_iter().flatten();
    all.filter_map(|edge| Some((edge.get("from")?.as_str()?, edge)))
}

fn chain(name: &str, path: impl IntoIterator<Item = String>, cores: &[usize]) -> Table {
    let cores = cores.iter().map(|&cpu| Value::Integer(cpu as i64)).collect();
    let pairs = [("name", name.into()), ("path", words(path)), ("cores", Value::Array(cores))];
    pairs.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()
}

impl ChainFile {
    fn table(&self) -> Table {
        self.text.parse().unwrap_or_default()
    }

    /// The sockets of a wall, whose names begin with `folder`: one for each interface, or for all of them.
    #[must_use]
    pub fn sockets(&self, wall: &Wall, folder: &Path) -> Vec<PathBuf> {
        match wall.transport {
            Transport::Rings => vec![socket(folder, wall, RINGS)],
            _ => wall.interfaces().map(|ports| socket(folder, wall, &ports[0])).collect(),
        }
    }

    /// Files that the settings of these NFs name, seen from the chain file.
    #[must_use]
    pub fn files(&self, which: impl Fn(&str) -> bool) -> Vec<PathBuf> {
        fn texts(value: &Value, to: &mut Vec<String>) {
            match value {
                Value::String(text) => to.push(text.clone()),
                Value::Array(all) => all.iter().for_each(|value| texts(value, to)),
                Value::Table(all) => all.iter().for_each(|(_, value)| texts(value, to)),
                _ => {}
            }
        }
        let mut all = vec![];
        texts(&Value::Table(nfs(&self.table(), which)), &mut all);
        let mut files: Vec<PathBuf> = all.iter().map(|text| self.folder().join(text)).collect();
        files.retain(|path| path.is_file());
        files.sort();
        files.dedup();
        files
    }

    /// This side of the walls: chains part where they come to one, and go on where they come back. Sockets are below
    /// `folder`; chains that name no CPUs run on `cores`; virtual functions have been made already at these PCI addresses.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn switch(
        &self,
        folder: &Path,
        cores: &[usize],
        functions: &BTreeMap<String, String>,
        registry: &Registry,
    ) -> Result<ChainFile, Vec<Diagnostic>> {
        let mut table = self.table();
        let behind: BTreeSet<&str> = self.walls.iter().flat_map(|wall| &wall.nfs).map(String::as_str).collect();
        let ways = || self.walls.iter().flat_map(|wall| wall.crossings.iter().map(move |crossing| (wall, crossing)));
        let mut ports = table.get("port").and_then(Value::as_table).cloned().unwrap_or_default();
        for port in self.walls.iter().flat_map(|wall| &wall.own) {
            ports.remove(port);
            // a benchmark, which it is for, measures no such file
            table.remove("traffic");
        }
        // one that stays here because its wall is not there
        ports.iter_mut().filter_map(|(_, port)| port.as_table_mut()).for_each(|port| drop(port.remove("wall")));
        for (wall, of) in self.walls.iter().flat_map(|wall| wall.interfaces().map(move |of| (wall, of))) {
            // memif's first to come is the server, which the NF's process links to as often as it begins
            let at = socket(folder, wall, &of[0]);
            open(
                of,
                &mut ports,
                match wall.transport {
                    Transport::Vhost => format!("vhost:{}{}", at.display(), queued(of.len(), "")),
                    Transport::Memif | Transport::MemifZeroCopy => format!("memif:{}", at.display()),
                    Transport::Rings => UNNAMED.to_owned(),
                },
            );
        }
        let mut chains = vec![];
        let mut names: BTreeSet<String> = self.chains.iter().map(|chain| chain.name.clone()).collect();
        let written = table.get("chain").and_then(Value::as_array).cloned().unwrap_or_default();
        for (n, (whole, keys)) in self.chains.iter().zip(&written).enumerate() {
            let cores = if whole.cores.is_empty() { cores } else { &whole.cores };
            let mut crossings: Vec<_> = ways()
                .filter_map(|(_, crossing)| {
                    let (_, run) = crossing.way.inwards().filter(|(of, _)| *of == n)?;
                    Some((run.clone(), crossing))
                })
                .collect();
            crossings.sort_by_key(|(run, _)| run.start);
            let (first, mut at, mut starts) = (&whole.path[0], 1, &whole.path[..1]);
            for (part, crossing) in (1..).zip(crossings.iter().map(Some).chain([None])) {
                // it begins behind a wall
                if let Some((run, crossing)) = crossing.filter(|(run, _)| run.start == 0) {
                    (at, starts) = (run.end, &crossing.ports);
                    continue;
                }
                let until = crossing.map_or(whole.path.len(), |(run, _)| run.start);
                for start in starts {
                    let path: Vec<String> = std::iter::once(start.clone())
                        .chain(whole.path[at.min(until)..until].iter().map(|element| self.by_its_input(element, first)))
                        .chain(crossing.map(|(_, crossing)| crossing.entered()))
                        .collect();
                    // a path may end behind a wall
                    if path.len() == 1 {
                        continue;
                    }
                    let name = if part == 1 { whole.name.clone() } else { free(&whole.name, part, &mut names) };
                    let mut piece = keys.as_table().cloned().unwrap_or_default();
                    piece.remove("isolation");
                    if part > 1 {
                        piece.remove("rate");
                        piece.remove("shuffle");
                    }
                    piece.extend(chain(&name, path, cores));
                    chains.push(Value::Table(piece));
                }
                if let Some((run, crossing)) = crossing {
                    (at, starts) = (run.end, &crossing.ports);
                }
            }
        }
        for (_, crossing) in ways() {
            if let (Some((_, to)), [port, ..]) = (crossing.way.outwards(), &*crossing.ports) {
                let own = crossing.way.inwards().map(|(n, _)| &*self.chains[n].cores).filter(|own| !own.is_empty());
                let name = free(port, 0, &mut names);
                chains.push(Value::Table(chain(&name, [port.clone(), to.to_owned()], own.unwrap_or(cores))));
            }
        }
        let own = |from: &str| !behind.contains(from.split('.').next().unwrap_or_default());
        let own_edges = edges(&table).filter(|(from, _)| own(from)).map(|(_, edge)| edge.clone()).collect();
        let mut own_nfs = nfs(&table, |name| !behind.contains(name));
        for (wall, crossing) in ways().filter(|(_, crossing)| crossing.ports.len() > 1) {
            let by = [
                ("kind", "spread".into()),
                ("by", wall.spread.name().into()),
                ("ports", words(crossing.ports.clone())),
            ];
            let nf: Table = by.map(|(key, value): (_, Value)| (key.to_owned(), value)).into_iter().collect();
            own_nfs.insert(crossing.spread.clone(), Value::Table(nf));
        }
        table.remove("wall");
        for (key, value) in [
            ("port", Value::Table(ports)),
            ("nf", Value::Table(own_nfs)),
            ("chain", Value::Array(chains)),
            ("edge", Value::Array(own_edges)),
        ] {
            table.insert(key.to_owned(), value);
        }
        self.part(&table, Side::Switch, folder, functions.clone()).read(&self.file, registry)
    }

    /// Why no other program can be the switch between its walls, which has vhost-user's ports.
    ///
    /// # Errors
    /// The first wall of another transport, or port that is opened behind one.
    pub fn for_any_switch(&self) -> Result<(), Diagnostic> {
        let here = |d: Diagnostic| Diagnostic { file: Some(self.file.clone()), ..d };
        if let Some(port) = self.ports.iter().find(|port| port.behind.is_some()) {
            let d = Diagnostic::new("is opened behind a wall, and another switch has all ports").value(&port.name);
            return Err(here(d.remedy(format!("take wall out of [port.{}]", port.name))));
        }
        let Some(wall) = self.walls.iter().find(|wall| wall.transport != Transport::Vhost) else { return Ok(()) };
        let problem = format!("has transport = {:?}, and another switch has vhost-user's ports", wall.transport.name());
        let remedy = format!("take transport out of [wall.{}]", wall.name);
        Err(here(Diagnostic::new(problem).value(&wall.name).remedy(remedy)))
    }

    /// From which port to which packets go, of a side of the walls that does nothing else with them.
    ///
    /// # Errors
    /// What else it does.
    pub fn hops(&self) -> Result<Vec<(&str, &str)>, Diagnostic> {
        let here = |d: Diagnostic| Diagnostic { file: Some(self.file.clone()), ..d };
        // of a wall's interfaces or queues
        if let Some(nf) = self.nfs.iter().find(|nf| nf.kind.name == "spread") {
            let d = Diagnostic::new(
                "spreads packets over several interfaces or queues, and another switch spreads nothing",
            );
            return Err(here(d.value(&nf.name).remedy("take interfaces and queues out of the tables [wall.NAME]")));
        }
        if let Some(nf) = self.nfs.first() {
            let d = Diagnostic::new("is behind no wall, and another switch runs no NFs").value(&nf.name);
            return Err(here(d.remedy("give it isolation = \"process\", \"container\" or \"vm\"")));
        }
        if let Some(chain) = self.chains.iter().find(|chain| chain.class != Class::PLAIN) {
            let d = Diagnostic::new("has a priority, a share or a rate, which another switch knows nothing of");
            return Err(here(d.value(&chain.name).remedy("take the key out")));
        }
        Ok(self.chains.iter().filter_map(|chain| Some((&**chain.path.first()?, &**chain.path.last()?))).collect())
    }

    /// What is behind a wall, on any CPU that is there; sockets are below `folder`; virtual functions have been made already at
    /// these PCI addresses.
    #[must_use]
    pub fn host(&self, wall: &Wall, folder: &Path, functions: &BTreeMap<String, String>) -> Part {
        let table = self.table();
        let (mut chains, mut edges_here) = (vec![], vec![]);
        let mut ports = table.get("port").and_then(Value::as_table).cloned().unwrap_or_default();
        ports.retain(|name, _| wall.own.iter().any(|own| own == name));
        ports.iter_mut().filter_map(|(_, port)| port.as_table_mut()).for_each(|port| drop(port.remove("wall")));
        let within = |nf: &str| wall.nfs.iter().any(|own| own == nf);
        let mut outside = BTreeSet::new();
        let cpus = if wall.isolation == Isolation::Vm { (0..wall.cores.len()).collect() } else { wall.cores.clone() };
        for of in wall.interfaces() {
            open(of, &mut ports, inner(folder, wall, &of[0], of.len()));
        }
        let mut names: BTreeSet<String> = wall.ports().map(str::to_owned).collect();
        // one that stays behind the wall has no port
        for (crossing, nth) in wall.crossings.iter().flat_map(|of| (0..of.ports.len().max(1)).map(move |nth| (of, nth)))
        {
            let port = crossing.ports.get(nth);
            if let Some((n, run)) = crossing.way.inwards() {
                let whole = &self.chains[n];
                let (comes, goes) = (run.start > 0, run.end < whole.path.len());
                let nfs = whole.path[run.clone()].iter().map(|element| self.by_its_input(element, &whole.path[0]));
                let path = port.filter(|_| comes).cloned().into_iter().chain(nfs).chain(port.filter(|_| goes).cloned());
                // each queue on a CPU of its own, as far as there are such
                let its = (crossing.ports.len() > 1).then(|| cpus.get(nth % cpus.len().max(1)).copied()).flatten();
                let name = port.map_or_else(|| free(&whole.name, 1, &mut names), String::clone);
                let mut part = chain(&name, path, its.as_slice());
                let keys = table.get("chain").and_then(Value::as_array).and_then(|chains| chains.get(n));
                // how packets are taken is said where that is done
                let said: &[&str] = if comes { &["on_panic"] } else { &["on_panic", "priority", "share", "rate"] };
                for (key, value) in said.iter().filter_map(|key| Some((*key, keys?.get(key)?))) {
                    part.insert(key.to_owned(), value.clone());
                }
                chains.push(Value::Table(part));
            }
            // an output leads one way
            if let (Some((from, _)), Some(port)) = (crossing.way.outwards().filter(|_| nth == 0), port) {
                outside.insert(from);
                let edge = [("from", from.into()), ("to", port.as_str().into())];
                edges_here.push(Value::Table(edge.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()));
            }
        }
        let kept = edges(&table)
            .filter(|(from, _)| within(from.split('.').next().unwrap_or_default()) && !outside.contains(from));
        edges_here.extend(kept.map(|(_, edge)| edge.clone()));
        let parts = [
            ("bondstone", Value::Integer(1)),
            ("port", Value::Table(ports)),
            ("nf", Value::Table(nfs(&table, within))),
            ("chain", Value::Array(chains)),
            ("edge", Value::Array(edges_here)),
        ];
        let table = parts.map(|(key, value)| (key.to_owned(), value)).into_iter().collect();
        let in_guest = || wall.addresses().map(|(port, address)| (port.to_owned(), address)).collect();
        let addresses = if wall.isolation == Isolation::Vm { in_guest() } else { functions.clone() };
        self.part(&table, Side::Host, folder, addresses)
    }

    /// An element of a path that says by which input it is come to, where that would be told by the port before it.
    fn by_its_input(&self, element: &str, first: &str) -> String {
        let interfaces = self.nfs.iter().any(|nf| nf.name == element && nf.has_interfaces());
        if interfaces { format!("{element}:{first}") } else { element.to_owned() }
    }

    fn part(&self, table: &Table, side: Side, folder: &Path, addresses: BTreeMap<String, String>) -> Part {
        let own = |nf: &&crate::NfUse| table.get("nf").is_some_and(|nfs| nfs.get(&nf.name).is_some());
        let places: BTreeMap<String, Places> =
            self.nfs.iter().filter(own).map(|nf| (nf.name.clone(), nf.places.clone())).collect();
        // what is of others is none of its business, but where the lines are
        let of_others = |(at, byte): (usize, u8)| {
            let is_own = byte == b'\n' || places.values().flatten().any(|(_, place)| place.contains(&at));
            if is_own { byte } else { b' ' }
        };
        let whole: Vec<u8> = self.text.bytes().enumerate().map(of_others).collect();
        Part {
            // of a table from a text there is a text
            text: toml::to_string(table).unwrap_or_default(),
            whole: String::from_utf8_lossy(&whole).into_owned(),
            places,
            ways: self.walls.iter().flat_map(Wall::ports).map(str::to_owned).collect(),
            rings: self.walls.iter().flat_map(|wall| rings(wall, folder)).collect(),
            queues: self.walls.iter().flat_map(queues).collect(),
            addresses,
            side,
        }
    }
}

/// One side of the walls of a file, as it can be told to another process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    text: String,
    /// The whole file, and where in it are the settings of each NF: what is wrong with them is told with its place there.
    whole: String,
    places: BTreeMap<String, Places>,
    /// Ports that are ways through walls.
    ways: BTreeSet<String>,
    /// Of these, those by rings: the socket, the lane, and how many lanes there are.
    rings: BTreeMap<String, (PathBuf, usize, usize)>,
    /// And those that are further queues of another's device: that port, and which queue.
    queues: BTreeMap<String, (String, usize)>,
    /// PCI addresses of ports that do not name theirs.
    addresses: BTreeMap<String, String>,
    side: Side,
}

type Places = Vec<(String, std::ops::Range<usize>)>;

impl Part {
    /// Makes a chain file of it; `file` is the path of the whole.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(&self, file: &Path, registry: &Registry) -> Result<ChainFile, Vec<Diagnostic>> {
        let mut part = check(&self.text, file, registry, false)?;
        part.text.clone_from(&self.whole);
        for nf in &mut part.nfs {
            if let Some(places) = self.places.get(&nf.name) {
                nf.places.clone_from(places);
            }
        }
        for port in part.ports.iter_mut().filter(|port| self.ways.contains(&port.name)) {
            port.wall = Some(self.side);
            if let Some((socket, lane, lanes)) = self.rings.get(&port.name).cloned() {
                port.device = Device::Rings { socket, lane, lanes };
            }
            if let Some((of, nth)) = self.queues.get(&port.name).cloned() {
                port.device = Device::Queue { of, nth };
            }
        }
        for port in &mut part.ports {
            if let Some(address) = self.addresses.get(&port.name) {
                port.device = port.device.at(address);
            }
        }
        Ok(part)
    }
}

/// A name for a part of a chain that no other has.
fn free(name: &str, part: usize, taken: &mut BTreeSet<String>) -> String {
    let of = |n: usize| {
        let number = format!("-{n}");
        format!("{}{number}", &name[..name.len().min(32 - number.len())])
    };
    let found = (part.max(1)..).map(of).find(|name| !taken.contains(name)).unwrap_or_default();
    taken.insert(found.clone());
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::Target;

    fn hops(chains: &str) -> Result<Vec<(String, String)>, Option<String>> {
        let is_used = |name: &str| chains.contains(&format!("\"{name}\""));
        let ports = ["a", "b", "c"].into_iter().filter(|port| is_used(port));
        let ports: String = ports.map(|port| format!("port.{port}.device = \"null\"\n")).collect();
        let nfs = [("x", "count", "process"), ("y", "tee", "process"), ("near", "count", "inproc")];
        let nf = |(name, kind, isolation)| format!("[nf.{name}]\nkind = \"{kind}\"\nisolation = \"{isolation}\"\n");
        let nfs: String = nfs.into_iter().filter(|(name, ..)| is_used(name)).map(nf).collect();
        let text = format!("bondstone = 1\n{ports}{chains}\n{nfs}");
        let file = ChainFile::parse(&text, Path::new("test.toml"), &nf::registry())
            .unwrap_or_else(|faults| panic!("{faults:?}"));
        let side = file.switch(Path::new("/run"), &[], &BTreeMap::new(), &nf::registry()).unwrap();
        let hops = side.hops().map_err(|d| d.value)?;
        Ok(hops.into_iter().map(|(from, to)| (from.to_owned(), to.to_owned())).collect())
    }

    fn strings(all: &[&str]) -> Vec<String> {
        all.iter().map(|text| text.to_string()).collect()
    }

    /// A file with a bridge `r` behind a wall, that side of it where the ports are, and the other.
    fn both_sides(written: &str, ports_of_r: &str) -> [ChainFile; 3] {
        let (path, registry, is_used) =
            (Path::new("test.toml"), nf::registry(), |name: &str| written.contains(&format!("\"{name}\"")));
        let ports = ["a", "b", "c"].into_iter().filter(|port| is_used(port));
        let ports: String = ports.map(|port| format!("port.{port}.device = \"null\"\n")).collect();
        let near = if is_used("near") { "[nf.near]\nkind = \"count\"\n" } else { "" };
        let text = format!(
            "bondstone = 1\n{ports}{written}\n{near}\
             [nf.r]\nkind = \"bridge\"\nports = [{ports_of_r}]\nisolation = \"process\"\n"
        );
        let file = ChainFile::parse(&text, path, &registry).unwrap_or_else(|faults| panic!("{text}{faults:?}"));
        let side = file.switch(Path::new("/run"), &[], &BTreeMap::new(), &registry).unwrap();
        let host = file.host(&file.walls[0], Path::new("/run"), &BTreeMap::new()).read(path, &registry);
        let host = host.unwrap_or_else(|faults| panic!("{text}{faults:?}"));
        [file, side, host]
    }

    /// A device that is handed to what is behind a wall is opened there, and only what goes on on this side takes a way through it.
    #[test]
    fn ports_may_be_behind_a_wall() {
        let (path, registry) = (Path::new("test.toml"), nf::registry());
        let read = |handed: &[&str], written: &str| {
            let port = |(name, n): (&str, usize)| {
                let wall = if handed.contains(&name) { "wall = \"x\"\n" } else { "" };
                format!("[port.{name}]\ndevice = \"0000:01:00.{n}\"\n{wall}")
            };
            let is_used = |name: &str| written.contains(&format!("\"{name}\""));
            let ports = [("a", 0), ("b", 1), ("c", 2)].into_iter().filter(|(name, _)| is_used(name));
            let ports: String = ports.map(port).collect();
            let nfs =
                [("near", "count", "inproc"), ("x", "tee", "process")].into_iter().filter(|(name, ..)| is_used(name));
            let nf = |(name, kind, isolation)| format!("[nf.{name}]\nkind = \"{kind}\"\nisolation = \"{isolation}\"\n");
            let text = format!("bondstone = 1\n{ports}{}{written}", nfs.map(nf).collect::<String>());
            (ChainFile::parse(&text, path, &registry), text)
        };
        let functions: BTreeMap<String, String> = [("a".to_owned(), "0000:01:10.0".to_owned())].into_iter().collect();
        for (handed, written, near, far) in [
            (&["a", "b"][..], "[[chain]]\npath = [\"a\", \"x\", \"b\"]", &[][..], &["a x b"][..]),
            (&["a"], "[[chain]]\npath = [\"a\", \"x\", \"b\"]", &["x-1 b"], &["a x x-1"]),
            (&["b"], "[[chain]]\npath = [\"a\", \"near\", \"x\", \"b\"]", &["a near x-1"], &["x-1 x b"]),
            (&["a"], "[[chain]]\npath = [\"a\", \"x\", \"near\", \"b\"]", &["x-1 near b"], &["a x x-1"]),
            // what else leaves behind the wall does so there
            (
                &["b", "c"],
                "[[chain]]\npath = [\"a\", \"x\", \"b\"]\n[[edge]]\nfrom = \"x.copy\"\nto = \"c\"",
                &["a x-1"],
                &["x-1 x b"],
            ),
            (
                &["a", "b"],
                "[[chain]]\npath = [\"a\", \"x\", \"b\"]\n[[edge]]\nfrom = \"x.copy\"\nto = \"c\"",
                &["x-1 c"],
                &["a x b"],
            ),
        ] {
            let (file, text) = read(handed, written);
            let file = file.unwrap_or_else(|faults| panic!("{text}{faults:?}"));
            let side = file.switch(Path::new("/run"), &[], &functions, &registry).unwrap();
            let host = file.host(&file.walls[0], Path::new("/run"), &functions).read(path, &registry).unwrap();
            let paths = |file: &ChainFile| file.chains.iter().map(|chain| chain.path.join(" ")).collect::<Vec<_>>();
            assert_eq!((paths(&side), paths(&host)), (strings(near), strings(far)), "{text}");
            for port in &file.ports {
                let is_handed = handed.contains(&&*port.name);
                let [here, there] = [&side, &host]
                    .map(|side| side.ports.iter().find(|own| own.name == port.name).map(|own| &own.device));
                assert_eq!((here.is_some(), there.is_some()), (!is_handed, is_handed), "{text}{}", port.name);
                let address = functions.get(&port.name).map(String::as_str).or(port.device.pci());
                assert_eq!(here.or(there).and_then(Device::pci), address, "{text}{}", port.name);
            }
        }
        // a guest has its own addresses for all of its ports, the ways through the wall first
        let (file, _) = read(&["b"], "[[chain]]\npath = [\"a\", \"x\", \"b\"]");
        let mut wall = file.unwrap().walls.remove(0);
        wall.isolation = Isolation::Vm;
        assert_eq!(wall.addresses().collect::<Vec<_>>(), [("x-1", Wall::address(0)), ("b", Wall::address(1))]);
        for keys in
            ["queues = 0", "queues = 4000000000", "queues = 2\ntransport = \"memif-zero-copy\"", "interfaces = 0"]
        {
            let text = format!("[[chain]]\npath = [\"a\", \"x\", \"b\"]\n[wall.x]\n{keys}");
            assert_eq!(read(&[], &text).0.err().map(|faults| faults.len()), Some(1), "{keys}");
        }
        for (handed, written, value) in [
            (&["a"][..], "[[chain]]\npath = [\"a\", \"near\", \"x\", \"b\"]", "a"),
            (&["b"], "[[chain]]\npath = [\"a\", \"x\", \"near\", \"b\"]", "b"),
            (&["b"], "[[chain]]\npath = [\"a\", \"near\", \"b\"]", "x"),
            (&["a"], "[[chain]]\npath = [\"a\", \"x\", \"b\"]\n[wall.x]\ntransport = \"rings\"", "x"),
            (&["a", "b"], "[[chain]]\npath = [\"a\", \"x\", \"b\"]\n[wall.x]\ninterfaces = 2", "2"),
            (&["a", "b"], "[[chain]]\npath = [\"a\", \"x\", \"b\"]\n[wall.x]\nqueues = 3", "3"),
        ] {
            let (file, text) = read(handed, written);
            let faults = file.err().unwrap_or_else(|| panic!("{text}"));
            assert!(faults.iter().any(|fault| fault.value.as_deref() == Some(value)), "{text}{faults:?}");
        }
    }

    #[test]
    fn a_switch_hands_from_port_to_port() {
        let is = |chains: &str, expected: &[(&str, &str)]| {
            let expected = expected.iter().map(|(from, to)| (from.to_string(), to.to_string())).collect::<Vec<_>>();
            assert_eq!(hops(chains), Ok(expected), "{chains}");
        };
        // one chain; there and back; what only comes out
        is("chain = [{ path = [\"a\", \"x\", \"y\", \"b\"] }]", &[("a", "x-1"), ("x-1", "y-1"), ("y-1", "b")]);
        is(
            "chain = [{ path = [\"a\", \"x\", \"b\"] }, { path = [\"b\", \"x\", \"a\"] }]",
            &[("a", "x-1"), ("x-1", "b"), ("b", "x-2"), ("x-2", "a")],
        );
        is(
            "chain = [{ path = [\"a\", \"y\", \"b\"] }]\nedge = [{ from = \"y.copy\", to = \"c\" }]",
            &[("a", "y-1"), ("y-1", "b"), ("y-2", "c")],
        );
        let bridge = both_sides("chain = [{ path = [\"a\", \"r\"] }, { path = [\"b\", \"r\"] }]", "\"a\", \"b\"");
        assert_eq!(bridge[1].hops().unwrap(), [("a", "r-1"), ("b", "r-2"), ("r-1", "a"), ("r-2", "b")]);
        let path = "chain = [{ path = [\"a\", \"near\", \"x\", \"b\"] }]";
        assert_eq!(hops(path), Err(Some("near".to_owned())));
        let rate = "chain = [{ name = \"slow\", path = [\"a\", \"x\", \"b\"], rate = \"1 kpps\" }]";
        assert_eq!(hops(rate), Err(Some("slow".to_owned())));
    }

    /// Each interface of an NF is called as before, and led to by a port of the wall that also leads out.
    #[test]
    fn an_interface_takes_one_way_there_and_back() {
        // what is written; paths of this side, and of the other; where its outputs "control", "a" and "b" lead there
        for (written, near, far, outputs) in [
            (
                "chain = [{ path = [\"a\", \"r\"] }, { path = [\"b\", \"r\"] }]",
                &["a r-1", "b r-2", "r-1 a", "r-2 b"][..],
                &["r-1 r:a", "r-2 r:b"][..],
                ["", "r-1", "r-2"],
            ),
            // called otherwise than its port, and with an NF before it
            (
                "chain = [{ path = [\"c\", \"near\", \"r:a\"] }, { path = [\"b\", \"r\"] }]\n\
                 edge = [{ from = \"r.a\", to = \"c\" }, { from = \"r.control\", to = \"c\" }]",
                &["c near r-1", "b r-2", "r-1 c", "r-2 b", "r-3 c"],
                &["r-1 r:a", "r-2 r:b"],
                ["r-3", "r-1", "r-2"],
            ),
            // where the path goes on, what comes back by its way does so as well
            (
                "chain = [{ path = [\"a\", \"r\", \"c\"] }, { path = [\"b\", \"r\"] }]",
                &["a r-1", "r-1 c", "b r-2", "r-2 b", "r-3 a"],
                &["r-1 r:a r-1", "r-2 r:b"],
                ["", "r-3", "r-2"],
            ),
            // two paths to one interface
            (
                "chain = [{ path = [\"a\", \"r\"] }, { path = [\"c\", \"r:a\"] }]",
                &["a r-1", "c r-2", "r-1 a"],
                &["r-1 r:a", "r-2 r:a"],
                ["", "r-1", ""],
            ),
            (
                "chain = [{ path = [\"a\", \"r\"] }, { path = [\"b\", \"r\"] }]\nwall.r.interfaces = 2",
                &["a r-3:in", "b r-6:in", "r-1 a", "r-4 b"],
                &["r-1 r:a", "r-2 r:a", "r-4 r:b", "r-5 r:b"],
                ["", "r-1", "r-4"],
            ),
        ] {
            let [file, side, host] = both_sides(written, "\"a\", \"b\"");
            let paths = |file: &ChainFile| file.chains.iter().map(|chain| chain.path.join(" ")).collect::<Vec<_>>();
            assert_eq!((paths(&side), paths(&host)), (strings(near), strings(far)), "{written}");
            let to = |target: &Target| match target {
                Target::Port(port) => host.ports[usize::from(*port)].name.clone(),
                _ => String::new(),
            };
            assert_eq!(host.edges[0].iter().map(to).collect::<Vec<_>>(), outputs, "{written}");
            assert_eq!(host.nfs[0].inputs, file.nfs.iter().find(|nf| nf.name == "r").unwrap().inputs);
        }
        // queues of one device instead of a device each
        let queues = "chain = [{ path = [\"a\", \"r\"] }, { path = [\"b\", \"r\"] }]\nwall.r.queues = 2";
        let [file, side, host] = both_sides(queues, "\"a\", \"b\"");
        let folder = Path::new("/run");
        let sockets = ["/run/r/r-1.sock", "/run/r/r-4.sock"].map(PathBuf::from);
        assert_eq!(file.sockets(&file.walls[0], folder), sockets);
        let addresses = [("r-1", Wall::address(0)), ("r-4", Wall::address(1))];
        assert_eq!(file.walls[0].addresses().collect::<Vec<_>>(), addresses);
        for (part, of_first) in [(side, "queues=2"), (host, "queues=2,cq=1")] {
            let devices = |port: &crate::Port| (port.name.clone(), port.device.clone());
            let devices: BTreeMap<String, Device> = part.ports.iter().map(devices).collect();
            for (first, second) in [("r-1", "r-2"), ("r-4", "r-5")] {
                assert!(devices[first].to_string().ends_with(of_first), "{:?}", devices[first]);
                assert_eq!(devices[second], Device::Queue { of: first.to_owned(), nth: 1 });
            }
        }
        // no port of the wall is called like an interface, which would lead there
        let [file, ..] = both_sides("chain = [{ path = [\"a\", \"r\"] }]", "\"a\", \"r-1\"");
        assert_eq!(file.walls[0].ports().collect::<Vec<_>>(), ["r-2"]);
    }
}

//! All walls of a chain file.

use crate::cgroup::{Groups, Limits};
use crate::guard::guard;
use crate::keeper::{self, Keeper, Kept, Start, State};
use crate::order::Order;
use crate::program::{self, Program};
use crate::vm::{self, Accel, Kernel};
use crate::{HOST, container, handed, initramfs, lacks};
use config::{ChainFile, Idle, Isolation, Wall};
use diagnostics::Diagnostics;
use graph::Registry;
use runtime::{Error, Functions, Guard, Summary, WallSummary, allowed_cpus};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Where some packets will never come back, the others are waited for while it takes no longer than this from one to the next.
const STILL: Duration = Duration::from_millis(200);
/// The first of the users that processes become; nobody else has these numbers.
const USERS: u32 = 1_900_000_000;
/// Users for each process that has walls.
const WALLS: u32 = 64;

/// What is behind the walls of a chain file, and this side of them.
pub(crate) struct Walls {
    walls: Vec<Wall>,
    /// What runs each.
    by: Vec<String>,
    cpus: Vec<Vec<usize>>,
    sleepy: Vec<bool>,
    /// Whether this side has a CPU of a wall's.
    shares: bool,
    /// NFs of the whole file, in order, and its ports.
    nfs: Vec<String>,
    ports: Vec<String>,
    /// Whether packets come in by ports behind walls.
    receives: bool,
    switch: ChainFile,
    folder: PathBuf,
    notes: Vec<String>,
    /// Packets that were away when last asked, and since when as many.
    last: Mutex<(i64, Instant)>,
    // in this order: first the processes end, then what they leave behind is removed
    keeper: Mutex<Option<Keeper>>,
    kept: Vec<Arc<Kept>>,
    /// Virtual functions of both sides, where this has made them.
    functions: Functions,
    _guard: Guard,
    /// As long as it is held, the folder is no orphan.
    _lock: File,
}

impl Walls {
    /// Makes ready what the walls of a file need; none if it has no walls. `others` are CPUs that somebody else in this process
    /// will want.
    ///
    /// # Errors
    /// What is wrong with the file, or what this machine or user lacks.
    pub(crate) fn build(file: &ChainFile, registry: &Registry, others: usize) -> Result<Option<Walls>, Error> {
        if file.walls.is_empty() {
            return Ok(None);
        }
        let allowed = allowed_cpus();
        let absent = file.absent_cpus(&allowed);
        if !absent.is_empty() {
            return Err(Error::Input(Diagnostics(absent)));
        }
        // who measures is alone where it is: what it loses there would be taken for a loss of the chains
        let left = allowed.get(others..).filter(|left| !left.is_empty()).unwrap_or(&allowed);
        let (switch_cpus, cpus) = places(file, left);
        let sleepy = sleepy(file, &switch_cpus, &cpus, allowed.len().saturating_sub(others));
        let shares = is_shared(file, &switch_cpus, &cpus);
        let own = std::process::id();
        let folder = base().join(format!("bondstone-{own}"));
        remove_orphans();
        let wrong =
            |e: std::io::Error| lacks(format!("{}: {e}", folder.display()), "make sure that this user may write there");
        let plan = |wall: &Wall| {
            Groups::plan(&format!("bondstone-{own}-{}", wall.name), wall.isolation == Isolation::Container)
        };
        let mut groups: Vec<Groups> = file.walls.iter().map(plan).collect();
        let paths: Vec<PathBuf> = groups.iter().flat_map(Groups::everywhere).collect();
        let machines = Machines::new(file)?;
        let side = |functions: &BTreeMap<String, String>| {
            let side = file.switch(&folder, &switch_cpus, functions, registry);
            side.map_err(|faults| Error::Input(Diagnostics(faults)))
        };
        let mut functions = Functions::default();
        if is_handed(file) {
            // what is wrong with this side is told before any device is touched
            side(&BTreeMap::new())?;
            // all that a run needs of a NIC are made at once, those of this side as well
            functions = Functions::of(file)?;
        }
        let devices = |wall: &Wall| devices(file, wall, functions.addresses());
        let devices: Vec<Vec<Handed>> = file.walls.iter().map(devices).collect::<Result<_, _>>()?;
        // a folder that is there already is somebody else's
        let mut make = std::fs::DirBuilder::new();
        make.mode(0o711).create(&folder).map_err(wrong)?;
        let lock = File::open(&folder).and_then(|folder| folder.lock().map(|()| folder)).map_err(wrong)?;
        // before there is anything else to be removed
        let guard = guard(&folder, &paths).map_err(|e| lacks(format!("no shell can be run: {e}"), "install one"))?;
        let root = rustix::process::geteuid().is_root();
        let path = std::path::absolute(&file.file).map_err(wrong)?;
        let mut notes: Vec<String> = machines.notes().into_iter().chain(functions.notes().iter().cloned()).collect();
        let mut kept = vec![];
        for (n, ((wall, cpus), groups)) in file.walls.iter().zip(&cpus).zip(&mut groups).enumerate() {
            make.create(folder.join(&wall.name)).map_err(wrong)?;
            let list = cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            let mut limits = Limits { memory_mib: wall.memory_mib, cpus: list };
            if wall.isolation == Isolation::Vm {
                limits.memory_mib += vm::BESIDES_MIB;
            }
            let within = groups.within();
            if let Err(e) = groups.make(&limits) {
                let what = "its memory is not limited, as it gets no control group";
                notes.push(format!("wall {:?}: {what}: {e}", wall.name));
                *groups = Groups::none();
            }
            let user = root.then(|| USERS + own * WALLS + n as u32 % WALLS);
            let files = file.files(|name| wall.nfs.iter().any(|nf| nf == name));
            let files = files.iter().map(std::path::absolute).collect::<Result<_, _>>();
            let order = Order {
                wall: wall.name.clone(),
                isolation: wall.isolation,
                file: path.clone(),
                part: file.host(wall, &folder, functions.addresses()),
                files: files.map_err(wrong)?,
                folder: folder.clone(),
                sockets: if wall.transport.is_memif() { file.sockets(wall, &folder) } else { vec![] },
                devices: devices[n].iter().map(|device| device.address.clone()).collect(),
                program: vec![],
                cpus: cpus.clone(),
                sleepy: sleepy[n],
                user: user.unwrap_or_default(),
                group: machines.group(wall.isolation),
                // a guest's kernel has the rest
                heap_mib: if wall.isolation == Isolation::Vm { wall.memory_mib / 2 } else { wall.memory_mib },
            };
            let start = machines.start(order, file, wall, within.as_deref(), limits).map_err(wrong)?;
            kept.push(Arc::new(Kept {
                wall: wall.name.clone(),
                nfs: wall.nfs.clone(),
                ways: wall.ports().map(str::to_owned).collect(),
                own: wall.own.clone(),
                start,
                groups: std::mem::replace(groups, Groups::none()),
                user,
                state: Mutex::new(State::of(devices[n].iter().map(|device| (&*device.port, &*device.written)))),
            }));
        }
        let switch = side(functions.addresses())?;
        Ok(Some(Walls {
            walls: file.walls.clone(),
            by: file.walls.iter().map(|wall| machines.by(wall.isolation)).collect(),
            cpus,
            sleepy,
            shares,
            nfs: file.nfs.iter().map(|nf| nf.name.clone()).collect(),
            ports: file.ports.iter().map(|port| port.name.clone()).collect(),
            receives: file.ports.iter().any(|port| port.behind.is_some() && port.received_from),
            switch,
            folder,
            notes,
            last: Mutex::new((i64::MAX, Instant::now())),
            keeper: Mutex::default(),
            kept,
            functions,
            _guard: guard,
            _lock: lock,
        }))
    }

    /// What runs on this side.
    pub(crate) fn switch(&self) -> &ChainFile {
        &self.switch
    }

    /// What workers on this side do while nothing comes.
    pub(crate) fn idle(&self) -> runtime::Idle {
        if self.shares { runtime::Idle::Yield } else { runtime::Idle::Poll }
    }

    /// Interfaces of the walls, each with the socket at which this side listens.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = (String, PathBuf)> {
        let of = |wall: &'_ Wall| {
            let names = wall.interfaces().map(|ports| ports[0].clone());
            names.zip(self.switch.sockets(wall, &self.folder)).collect::<Vec<_>>()
        };
        self.walls.iter().flat_map(of)
    }

    /// Makes a folder for the sockets of a switch that is another program, called as no wall can be.
    pub(crate) fn of_switch(&self) -> std::io::Result<PathBuf> {
        let folder = self.folder.join(".switch");
        std::fs::create_dir(&folder)?;
        Ok(folder)
    }

    /// Whether packets come in by ports behind the walls.
    pub(crate) fn receives(&self) -> bool {
        self.receives
    }

    /// What the user may want to know.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Starts the processes, once the sockets are there, and waits until all are ready.
    ///
    /// # Errors
    /// Why one does not begin.
    pub(crate) fn start(&self) -> Result<(), Error> {
        for (wall, kept) in self.walls.iter().zip(&self.kept) {
            let Some(user) = kept.user else { continue };
            for socket in self.switch.sockets(wall, &self.folder) {
                let owned = chown(&socket, Some(user), Some(user));
                owned.map_err(|e| {
                    lacks(format!("{}: {e}", socket.display()), "run as root, or as a user without rights")
                })?;
            }
        }
        let keeper = Keeper::start(self.kept.clone());
        let keeper = keeper
            .map_err(|e| lacks(format!("a thread does not start: {e}"), "raise the limit of threads: ulimit -u"))?;
        *self.keeper.lock().unwrap_or_else(PoisonError::into_inner) = Some(keeper);
        for kept in &self.kept {
            while !kept.state().ready {
                if let Some(why) = keeper::refusal(kept) {
                    return Err(lacks(why, "look at what it says; isolation = \"inproc\" does without a wall"));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    /// Whether all packets are back that went behind walls, by what this side has done; processes are asked for what they have
    /// done meanwhile.
    pub(crate) fn returned(&self, done: &Summary) -> bool {
        for kept in &self.kept {
            kept.close();
            kept.ask();
            kept.state().going = true;
        }
        // a worker may have a batch in its hands that goes on to the next wall
        if !done.balanced || !self.kept.iter().all(|kept| kept.is_closed()) {
            return false;
        }
        let (mut away, mut deaths) = (0, 0);
        for (wall, kept) in self.walls.iter().zip(&self.kept) {
            let state = kept.state();
            let of = self.away(wall, &state, done);
            // who is not there brings nothing back; what came by its own ports is known from what it said last
            away += if !state.ready {
                0
            } else if wall.own.is_empty() {
                of.max(0)
            } else {
                of.saturating_abs()
            };
            deaths += state.deaths;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = last.0;
        if before != away {
            *last = (away, Instant::now());
        }
        // those that a process had which is no more never come
        (away, before) == (0, 0) || deaths > 0 && last.1.elapsed() > STILL
    }

    /// Asks all to say what they have done.
    pub(crate) fn ask(&self) {
        self.kept.iter().for_each(|kept| kept.ask());
    }

    /// Packets behind a wall, as far as is known.
    fn away(&self, wall: &Wall, state: &State, done: &Summary) -> i64 {
        let ways = done.ports.iter().filter(|port| wall.ports().any(|own| own == port.name));
        let (handed, back) = ways.fold((0, 0), |(handed, back), port| (handed + port.sent, back + port.received));
        // what its own ports have dropped is in what all of it has
        let own = state.own();
        let (handed, back) = own
            .values()
            .fold((handed, back), |(handed, back), port| (handed + port.received, back + port.sent + port.held));
        let [created, dropped, held] = state.now.as_ref().map(keeper::sums).unwrap_or_default();
        let all = |sums: &[u64]| sums.iter().map(|n| i128::from(*n)).sum::<i128>();
        let away = all(&[handed, state.created, created]) - all(&[back, state.dropped, dropped, held]);
        away.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// What both sides have done, in one; so far, or at the end.
    pub(crate) fn cover(&self, mut done: Summary, ended: bool) -> Summary {
        for (n, (wall, kept)) in self.walls.iter().zip(&self.kept).enumerate() {
            let state = kept.state();
            let mut of = WallSummary {
                name: wall.name.clone(),
                isolation: wall.isolation.name().into(),
                by: self.by[n].clone().into(),
                transport: wall.transport.name().into(),
                cpus: self.cpus[n].clone(),
                sleeps: self.sleepy[n],
                starts: state.starts,
                began_ms: state.took.as_secs_f64() * 1e3,
                up: state.ready && !ended,
                drops: state.drops.clone(),
                ..Default::default()
            };
            let away = self.away(wall, &state, &done);
            if ended && away < 0 {
                of.created = away.unsigned_abs();
            }
            if ended && away > 0 {
                of.drop_as("wall_lost", away as u64);
                if state.deaths == 0 {
                    done.faults
                        .push(format!("wall {:?}: {away} packets went behind it and never came back", wall.name));
                }
            }
            let is_way = |name: &str| wall.ports().any(|own| own == name);
            for port in done.ports.extract_if(.., |port| is_way(&port.name)) {
                of.handed += port.sent;
                of.returned += port.received;
                // what was left in its queue here goes no further
                of.drop_as("wall_lost", port.held);
                of.hand.join(port.send);
                of.take.join(port.receive);
                port.drops
                    .iter()
                    .for_each(|(reason, n)| of.drop_as(if reason == "tx_full" { "wall_full" } else { reason }, *n));
            }
            done.ports.extend(state.own().into_values());
            let now = state.now.iter();
            let ways = || now.clone().flat_map(|now| &now.ports).filter(|port| is_way(&port.name));
            keeper::add_behind(&mut of.drops, ways());
            for port in ways() {
                of.inner_take.join(port.receive);
                of.inner_hand.join(port.send);
            }
            // the work of those that ended is that of the ones that came after them
            let mut nfs = state.nfs.clone();
            keeper::add_nfs(&mut nfs, now.clone().flat_map(|now| now.nfs.iter().cloned()));
            done.nfs.extend(nfs.into_values());
            done.faults.extend(state.faults.iter().chain(now.flat_map(|now| &now.faults)).cloned());
            for &cpu in &of.cpus {
                done.workers.entry(cpu).or_default().push(format!("wall {}", wall.name));
            }
            done.walls.push(of);
        }
        done.ports.sort_by_key(|port| self.ports.iter().position(|name| *name == port.name));
        done.nfs.sort_by_key(|nf| self.nfs.iter().position(|name| *name == nf.name));
        let this_side = done.balanced;
        done.total();
        done.balanced &= !ended || this_side;
        done
    }

    /// Ends the processes; what both sides have done, in one.
    pub(crate) fn end(mut self, mut done: Summary) -> Summary {
        drop(self.keeper.lock().unwrap_or_else(PoisonError::into_inner).take());
        // the kernel waits for a worker that never ends
        let of_functions = if done.left { self.functions.leave() } else { self.functions.end() };
        done.faults.extend(of_functions);
        self.cover(done, true)
    }
}

/// Whether a wall of a file is handed a device.
fn is_handed(file: &ChainFile) -> bool {
    file.walls.iter().any(|wall| !wall.own.is_empty())
}

/// A device that is handed to what is behind a wall.
struct Handed {
    port: String,
    /// As the user wrote it, and where it is on the bus.
    written: String,
    address: String,
}

/// The ports that are behind a wall.
fn of<'a>(file: &'a ChainFile, wall: &'a Wall) -> impl Iterator<Item = &'a config::Port> {
    wall.own.iter().filter_map(|name| file.ports.iter().find(|port| port.name == *name))
}

/// The devices that a wall is handed, in the order in which its ports are.
fn devices(file: &ChainFile, wall: &Wall, functions: &BTreeMap<String, String>) -> Result<Vec<Handed>, Error> {
    let own: Vec<&config::Port> = of(file, wall).collect();
    let address = |port: &config::Port| {
        let address = functions.get(&port.name).map_or_else(|| port.device.pci(), |address| Some(address));
        config::whole_address(address.unwrap_or_default())
    };
    let all: Vec<String> = own.iter().map(|port| address(port)).collect();
    let handed = |port: &config::Port| {
        if !rustix::process::geteuid().is_root() {
            let remedy = format!("run as root, or take wall out of [port.{}]", port.name);
            return Err(lacks(format!("port {:?}: only root hands devices on", port.name), remedy));
        }
        let address = address(port);
        handed::is_free(&port.name, &address, &all)?;
        Ok(Handed { port: port.name.clone(), written: port.device.to_string(), address })
    };
    own.into_iter().map(handed).collect()
}

/// What the walls of a file are made with besides this program.
struct Machines {
    program: Option<Program>,
    /// The one for VMs that are handed devices.
    with_drivers: Option<Program>,
    runc: Option<String>,
    vm: Option<(Kernel, Accel, String)>,
    /// Whether there are huge pages for the memory of all VMs.
    huge: bool,
}

impl Machines {
    fn new(file: &ChainFile) -> Result<Machines, Error> {
        /// MiB of huge pages that are left for this side.
        const OURS_MIB: u64 = 512;
        let any = |isolation| file.walls.iter().any(|wall| wall.isolation == isolation);
        let (containers, vms) = (any(Isolation::Container), any(Isolation::Vm));
        if containers && !rustix::process::geteuid().is_root() {
            return Err(lacks("only root may start containers here", "run as root, or with isolation = \"process\""));
        }
        let runc = containers.then(container::version).transpose()?;
        let machine = || -> Result<_, Error> {
            let (version, kernel) = (vm::version()?, Kernel::find()?);
            let accel = vm::accel(&kernel);
            Ok((kernel, accel, version))
        };
        let of_vms = file.walls.iter().filter(|wall| wall.isolation == Isolation::Vm);
        Ok(Machines {
            program: (containers || vms).then(Program::own).transpose()?,
            with_drivers: (vms && is_handed(file)).then(Program::with_drivers).transpose()?,
            runc,
            vm: vms.then(machine).transpose()?,
            huge: of_vms.map(|wall| wall.memory_mib).sum::<u64>() + OURS_MIB <= vm::free_huge_mib(),
        })
    }

    /// What runs a wall.
    fn by(&self, isolation: Isolation) -> String {
        match (isolation, &self.runc, &self.vm) {
            (Isolation::Container, Some(version), _) => format!("runc {version}"),
            (Isolation::Vm, _, Some((kernel, accel, version))) => {
                format!("QEMU {version}, {accel}; Linux {}", kernel.version)
            }
            _ => "namespaces and seccomp".to_owned(),
        }
    }

    /// The group that a wall's process has to be in.
    fn group(&self, isolation: Isolation) -> Option<u32> {
        let kvm = isolation == Isolation::Vm && self.vm.as_ref().is_some_and(|(_, accel, _)| *accel == Accel::Kvm);
        let group = kvm.then(|| std::fs::metadata("/dev/kvm").ok()).flatten().map(|device| device.gid());
        group.filter(|group| *group != 0)
    }

    fn notes(&self) -> Vec<String> {
        let emulated = self.vm.as_ref().filter(|(_, accel, _)| *accel == Accel::Tcg);
        let note = "VMs are emulated here (no KVM that works): they are right, and say nothing of how fast a VM is";
        emulated.map(|_| note.to_owned()).into_iter().collect()
    }

    /// Writes what a wall's process needs; `groups` is where its control groups are, also if they are not limited.
    fn start(
        &self,
        mut order: Order,
        file: &ChainFile,
        wall: &Wall,
        groups: Option<&Path>,
        limits: Limits,
    ) -> std::io::Result<Start> {
        let at = order.folder.join(format!("{}.json", wall.name));
        let own = vec!["/proc/self/exe".to_owned(), HOST.to_owned(), at.display().to_string()];
        let speaks = wall.isolation != Isolation::Process;
        let mut start = Start { argv: own, speaks, limits: None, end: vec![] };
        let image = order.folder.join(format!("{}.image", wall.name));
        // no wall's name has a dot
        let [linux, runc] = [".linux", ".runc"].map(|name| order.folder.join(name));
        let mut new = File::options();
        new.write(true).create_new(true).mode(0o600);
        let program = self.with_drivers.as_ref().filter(|_| !order.devices.is_empty()).or(self.program.as_ref());
        match (wall.isolation, program, &self.vm) {
            (Isolation::Container, Some(program), _) => {
                let id = format!("bondstone-{}-{}", std::process::id(), wall.name);
                let alone = Path::new("/").join(&id);
                container::bundle(&image, &order, &at, program, groups.unwrap_or(&alone))?;
                order.program = container::runc(&runc, &["run", "--bundle", &image.display().to_string(), &id]);
                start.limits = Some(limits);
                start.end = container::runc(&runc, &["delete", "--force", &id]);
            }
            (Isolation::Vm, Some(program), Some((kernel, accel, _))) => {
                if !linux.exists() {
                    std::fs::copy(&kernel.image, &linux)?;
                    std::fs::set_permissions(&linux, std::fs::Permissions::from_mode(0o444))?;
                }
                let mut files = initramfs::guest(program, &kernel.modules)?;
                files.push((initramfs::ORDER.into(), 0o600, serde_json::to_vec(&order)?));
                files.extend(program::read(&order.files, 0o600)?);
                initramfs::write(new.open(&image)?, &files)?;
                let guest = vm::Guest {
                    accel: *accel,
                    kernel: &linux,
                    initrd: &image,
                    memory_mib: wall.memory_mib,
                    huge: self.huge,
                    cpus: order.cpus.len(),
                    ways: file
                        .sockets(wall, &order.folder)
                        .into_iter()
                        .zip(wall.interfaces().map(<[_]>::len))
                        .collect(),
                    devices: order.devices.clone(),
                    descriptors: of(file, wall).map(|port| usize::from(port.descriptors)).sum(),
                };
                order.program = guest.command();
            }
            _ => {}
        }
        new.open(&at)?.write_all(&serde_json::to_vec(&order)?)?;
        for path in [&at, &image].into_iter().filter(|path| order.user != 0 && path.is_file()) {
            chown(path, Some(order.user), Some(order.user))?;
        }
        Ok(start)
    }
}

/// CPUs for chains that name none, where none does, and for each wall: those that nobody has named, while there are such.
#[must_use]
pub fn places(file: &ChainFile, allowed: &[usize]) -> (Vec<usize>, Vec<Vec<usize>>) {
    let of_walls: BTreeSet<usize> = file.walls.iter().flat_map(|wall| wall.cores.iter().copied()).collect();
    let mut of_chains: BTreeSet<usize> = file.chains_here().flat_map(|chain| chain.cores.iter().copied()).collect();
    let mut chosen = vec![];
    if of_chains.is_empty() && file.chains_here().next().is_some() {
        let free = allowed.iter().rev().find(|cpu| !of_walls.contains(cpu));
        chosen.extend(free.or(allowed.last()));
        of_chains.extend(&chosen);
    }
    let free: Vec<usize> =
        allowed.iter().copied().filter(|cpu| !of_chains.contains(cpu) && !of_walls.contains(cpu)).collect();
    let mut next = if free.is_empty() { allowed } else { &free[..] }.iter().copied().cycle();
    let wall = |wall: &Wall| if wall.cores.is_empty() { next.next().into_iter().collect() } else { wall.cores.clone() };
    (chosen, file.walls.iter().map(wall).collect())
}

/// CPUs of chains: those that they name, and those chosen for the others.
fn of_chains<'a>(file: &'a ChainFile, chosen: &'a [usize]) -> BTreeSet<usize> {
    file.chains_here().flat_map(|chain| &chain.cores).chain(chosen).copied().collect()
}

/// Whether a chain is on a CPU of a wall's.
fn is_shared(file: &ChainFile, chosen: &[usize], walls: &[Vec<usize>]) -> bool {
    let of_chains = of_chains(file, chosen);
    walls.iter().flatten().any(|cpu| of_chains.contains(cpu))
}

/// Whether each wall has to give its CPUs away while nothing comes: if others are on them as well, or will be as only `free` of
/// all are for this file. Two that poll on one CPU only take turns.
fn sleepy(file: &ChainFile, chosen: &[usize], walls: &[Vec<usize>], free: usize) -> Vec<bool> {
    let of_chains = of_chains(file, chosen);
    let all: BTreeSet<usize> = walls.iter().flatten().chain(&of_chains).copied().collect();
    let is_taken = |n: usize, cpu: &usize| {
        of_chains.contains(cpu) || walls.iter().enumerate().any(|(other, cpus)| other != n && cpus.contains(cpu))
    };
    // where these run is found when they start
    let is_open = chosen.is_empty() && file.chains_here().any(|chain| chain.cores.is_empty());
    let shares = |n: usize| is_open || all.len() > free || walls[n].iter().any(|cpu| is_taken(n, cpu));
    let of = |(n, wall): (usize, &Wall)| wall.idle.map_or_else(|| shares(n), |idle| idle == Idle::Sleep);
    file.walls.iter().enumerate().map(of).collect()
}

/// Where sockets are.
pub(crate) fn base() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return "/run".into();
    }
    std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// Removes what processes of this user have left behind of which also the guard was killed.
fn remove_orphans() {
    let own = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(base()).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let id = name.to_str().and_then(|name| name.strip_prefix("bondstone-")).and_then(|id| id.parse::<u32>().ok());
        let is_own = path.symlink_metadata().is_ok_and(|of| of.is_dir() && of.uid() == own);
        let Some(id) = id.filter(|_| is_own) else { continue };
        let is_there = id != std::process::id() && Path::new(&format!("/proc/{id}")).exists();
        // a process that this one cannot see may hold it
        if !is_there && File::open(&path).is_ok_and(|folder| folder.try_lock().is_ok()) {
            // errors: what can be removed is
            drop(guard(&path, &[]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_shares_a_cpu_sleeps() {
        let file = |chains: [&str; 2], idle: &str| {
            let cores =
                chains.map(|cores| if cores.is_empty() { String::new() } else { format!("cores = [{cores}]\n") });
            let text = format!(
                "bondstone = 1\nport.a.device = \"null\"\nport.b.device = \"null\"\nport.c.device = \"null\"\n\
                 [nf.x]\nkind = \"count\"\nisolation = \"process\"\n[nf.y]\nkind = \"count\"\nisolation = \"process\"\n\
                 [wall.x]\n{idle}[[chain]]\npath = [\"a\", \"x\", \"y\", \"c\"]\n{}[[chain]]\npath = [\"b\", \"c\"]\n{}",
                cores[0], cores[1]
            );
            ChainFile::parse(&text, Path::new("test.toml"), &nf::registry()).unwrap()
        };
        let all = |chains, idle: &str, cpus: usize, others: usize| {
            let allowed: Vec<usize> = (0..cpus).collect();
            let file = file(chains, idle);
            let (chosen, walls) = places(&file, &allowed);
            sleepy(&file, &chosen, &walls, cpus - others)
        };
        let shares = |chains, idle: &str, cpus: usize| {
            let file = file(chains, idle);
            let (chosen, walls) = places(&file, &(0..cpus).collect::<Vec<_>>());
            is_shared(&file, &chosen, &walls)
        };
        let none = ["", ""];
        assert_eq!([1, 2, 3].map(|cpus| shares(none, "", cpus)), [true, false, false]);
        assert!(shares(["0", "0"], "cores = [0]\n", 8) && !shares(["0", "0"], "", 8));
        // CPUs, those that others want, who sleeps
        for (cpus, others, expected) in
            [(1, 0, [true; 2]), (2, 0, [true; 2]), (3, 0, [false; 2]), (3, 1, [true; 2]), (4, 1, [false; 2])]
        {
            assert_eq!(all(none, "", cpus, others), expected, "{cpus} CPUs, {others} for others");
        }
        assert_eq!(all(none, "idle = \"poll\"\n", 1, 0), [false, true]);
        assert_eq!(all(none, "idle = \"sleep\"\n", 8, 0), [true, false]);
        assert_eq!(all(none, "cores = [3]\n", 4, 0), [false; 2]);
        // a chain of the file may come to be on any CPU
        assert_eq!(all(["0", ""], "", 8, 0), [true; 2]);
        assert_eq!(all(["0", "0"], "cores = [0]\n", 8, 0), [true, false]);
    }
}

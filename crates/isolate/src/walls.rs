//! All walls of a chain file.

use crate::cgroup::{Groups, Limits};
use crate::guard::Guard;
use crate::keeper::{self, Keeper, Kept, State};
use crate::lacks;
use crate::order::Order;
use chain::{ChainFile, Wall};
use graph::{Diagnostics, Registry};
use runtime::{Error, Summary, WallSummary, allowed_cpus};
use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, chown};
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
pub struct Walls {
    walls: Vec<Wall>,
    cpus: Vec<Vec<usize>>,
    /// NFs of the whole file, in order.
    nfs: Vec<String>,
    switch: ChainFile,
    folder: PathBuf,
    user: Option<u32>,
    notes: Vec<String>,
    /// Packets that were away when last asked, and since when as many.
    last: Mutex<(i64, Instant)>,
    // in this order: first the processes end, then what they leave behind is removed
    keeper: Mutex<Option<Keeper>>,
    kept: Vec<Arc<Kept>>,
    _guard: Guard,
}

impl Walls {
    /// Makes ready what the walls of a file need; none if it has no walls.
    ///
    /// # Errors
    /// What is wrong with the file, or what this machine or user lacks.
    pub fn build(file: &ChainFile, registry: &Registry) -> Result<Option<Walls>, Error> {
        if file.walls.is_empty() {
            return Ok(None);
        }
        let allowed = allowed_cpus();
        let absent = file.absent_cpus(&allowed);
        if !absent.is_empty() {
            return Err(Error::Input(Diagnostics(absent)));
        }
        let (switch_cpus, cpus) = places(file, &allowed);
        let folder = base().join(format!("bondstone-{}", std::process::id()));
        remove_orphans();
        let wrong =
            |e: std::io::Error| lacks(format!("{}: {e}", folder.display()), "make sure that this user may write there");
        let mut kept = vec![];
        let plan = |wall: &Wall| Groups::plan(&format!("bondstone-{}-{}", std::process::id(), wall.name));
        let groups: Vec<PathBuf> = file.walls.iter().flat_map(|wall| plan(wall).paths().to_vec()).collect();
        // before there is anything to be removed
        let guard =
            Guard::start(&folder, &groups).map_err(|e| lacks(format!("no shell can be run: {e}"), "install one"))?;
        // a folder that is there already is somebody else's
        let mut make = std::fs::DirBuilder::new();
        make.mode(0o711).create(&folder).map_err(wrong)?;
        let root = rustix::process::geteuid().is_root();
        let user = root.then(|| USERS + std::process::id() * WALLS);
        let path = std::path::absolute(&file.file).map_err(wrong)?;
        for (n, (wall, cpus)) in file.walls.iter().zip(&cpus).enumerate() {
            make.create(folder.join(&wall.name)).map_err(wrong)?;
            let order = Order {
                wall: wall.name.clone(),
                file: path.clone(),
                text: file.text.clone(),
                folder: folder.clone(),
                cpus: cpus.clone(),
                user: user.unwrap_or_default() + n as u32 % WALLS,
                memory_mib: wall.memory_mib,
            };
            let at = folder.join(format!("{}.json", wall.name));
            let text = serde_json::to_string(&order).map_err(|e| wrong(e.into()))?;
            let mut new = std::fs::File::options();
            let mut new = new.write(true).create_new(true).mode(0o600).open(&at).map_err(wrong)?;
            new.write_all(text.as_bytes()).map_err(wrong)?;
            let (wall_name, nfs) = (wall.name.clone(), wall.nfs.clone());
            kept.push(Kept { wall: wall_name, nfs, order: at, groups: plan(wall), state: Mutex::default() });
        }
        let mut notes = vec![];
        for ((kept, wall), cpus) in kept.iter_mut().zip(&file.walls).zip(&cpus) {
            let list = cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            if let Err(e) = kept.groups.make(&Limits { memory_mib: wall.memory_mib, cpus: list }) {
                notes
                    .push(format!("wall {:?}: its memory is not limited, as it gets no control group: {e}", wall.name));
                kept.groups = Groups::none();
            }
        }
        let switch =
            file.switch(&folder, &switch_cpus, registry).map_err(|faults| Error::Input(Diagnostics(faults)))?;
        Ok(Some(Walls {
            walls: file.walls.clone(),
            cpus,
            nfs: file.nfs.iter().map(|nf| nf.name.clone()).collect(),
            switch,
            folder,
            user,
            notes,
            last: Mutex::new((i64::MAX, Instant::now())),
            keeper: Mutex::default(),
            kept: kept.into_iter().map(Arc::new).collect(),
            _guard: guard,
        }))
    }

    /// What runs on this side.
    #[must_use]
    pub fn switch(&self) -> &ChainFile {
        &self.switch
    }

    /// What the user may want to know.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Starts the processes, once the sockets are there, and waits until all are ready.
    ///
    /// # Errors
    /// Why one does not begin.
    pub fn start(&self) -> Result<(), Error> {
        for (n, wall) in self.walls.iter().enumerate() {
            let Some(user) = self.user.map(|user| user + n as u32 % WALLS) else { continue };
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
    #[must_use]
    pub fn returned(&self, done: &Summary) -> bool {
        // a worker may have a batch in its hands that goes on to the next wall
        if !done.balanced {
            return false;
        }
        self.kept.iter().for_each(|kept| kept.ask());
        let (mut away, mut deaths) = (0, 0);
        for (wall, kept) in self.walls.iter().zip(&self.kept) {
            let state = kept.state();
            // who is not there brings nothing back
            away += if state.ready { self.away(wall, &state, done).max(0) } else { 0 };
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

    /// Packets behind a wall, as far as is known.
    fn away(&self, wall: &Wall, state: &State, done: &Summary) -> i64 {
        let ways = done.ports.iter().filter(|port| wall.crossings.iter().any(|c| c.port == port.name));
        let (handed, back) = ways.fold((0, 0), |(handed, back), port| (handed + port.sent, back + port.received));
        let [created, dropped, held] = state.now.as_ref().map(keeper::sums).unwrap_or_default();
        let all = |sums: &[u64]| sums.iter().map(|n| i128::from(*n)).sum::<i128>();
        let away = all(&[handed, state.created, created]) - all(&[back, state.dropped, dropped, held]);
        away.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// What both sides have done so far, in one.
    #[must_use]
    pub fn cover(&self, done: Summary) -> Summary {
        self.join(done, false)
    }

    /// Ends the processes; what both sides have done, in one.
    #[must_use]
    pub fn end(self, done: Summary) -> Summary {
        drop(self.keeper.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.join(done, true)
    }

    fn join(&self, mut done: Summary, ended: bool) -> Summary {
        for ((wall, kept), cpus) in self.walls.iter().zip(&self.kept).zip(&self.cpus) {
            let state = kept.state();
            let mut of = WallSummary {
                name: wall.name.clone(),
                isolation: wall.isolation.name().into(),
                cpus: cpus.clone(),
                starts: state.starts,
                up: state.ready && !ended,
                drops: state.drops.clone(),
                ..Default::default()
            };
            let away = self.away(wall, &state, &done);
            if ended && away < 0 {
                of.created = away.unsigned_abs();
            }
            if ended && away > 0 {
                *of.drops.entry("wall_lost".into()).or_default() += away as u64;
                if state.deaths == 0 {
                    done.faults
                        .push(format!("wall {:?}: {away} packets went behind it and never came back", wall.name));
                }
            }
            let is_way = |name: &str| wall.crossings.iter().any(|crossing| crossing.port == name);
            for port in done.ports.extract_if(.., |port| is_way(&port.name)) {
                of.handed += port.sent;
                of.returned += port.received;
                // what was left in its queue here goes no further
                if port.held != 0 {
                    *of.drops.entry("wall_lost".into()).or_default() += port.held;
                }
                of.hand.join(port.send);
                of.take.join(port.receive);
                for (reason, n) in port.drops {
                    let reason = if reason == "tx_full" { "wall_full".into() } else { reason };
                    *of.drops.entry(reason).or_default() += n;
                }
            }
            for (name, earlier) in state.nfs.iter().filter(|(name, _)| wall.nfs.contains(name)) {
                if state.now.as_ref().is_none_or(|now| now.nfs.iter().all(|nf| nf.name != *name)) {
                    let mut gone =
                        runtime::NfSummary { name: name.clone(), kind: earlier.kind.clone(), ..Default::default() };
                    gone.join(earlier);
                    done.nfs.push(gone);
                }
            }
            if let Some(now) = &state.now {
                let drops = now.ports.iter().flat_map(|port| &port.drops);
                drops.for_each(|(reason, n)| *of.drops.entry(keeper::behind(reason)).or_default() += n);
                for nf in now.nfs.iter().filter(|nf| wall.nfs.contains(&nf.name)) {
                    let mut nf = nf.clone();
                    if let Some(earlier) = state.nfs.get(&nf.name) {
                        nf.join(earlier);
                    }
                    done.nfs.push(nf);
                }
            }
            let said = state.now.iter().flat_map(|now| &now.faults);
            done.faults.extend(state.faults.iter().chain(said).cloned());
            for &cpu in cpus {
                done.workers.entry(cpu).or_default().push(format!("wall {}", wall.name));
            }
            done.walls.push(of);
        }
        done.nfs.sort_by_key(|nf| self.nfs.iter().position(|name| *name == nf.name));
        done.total();
        done.balanced &= !ended || done.ports.iter().all(runtime::PortSummary::ring_is_whole);
        done
    }
}

/// CPUs for chains that name none, where none does, and for each wall: those that nobody has named, while there are such.
#[must_use]
pub fn places(file: &ChainFile, allowed: &[usize]) -> (Vec<usize>, Vec<Vec<usize>>) {
    let of_walls: BTreeSet<usize> = file.walls.iter().flat_map(|wall| wall.cores.iter().copied()).collect();
    let mut of_chains: BTreeSet<usize> = file.chains.iter().flat_map(|chain| chain.cores.iter().copied()).collect();
    let mut chosen = vec![];
    if of_chains.is_empty() {
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

/// Where sockets are.
fn base() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return "/run".into();
    }
    std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// Removes what processes have left behind of which also the guard was killed.
fn remove_orphans() {
    for entry in std::fs::read_dir(base()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process =
            name.to_str().and_then(|name| name.strip_prefix("bondstone-")).and_then(|id| id.parse::<u32>().ok());
        if process.is_some_and(|id| !Path::new(&format!("/proc/{id}")).exists()) {
            // errors: it is another user's
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

//! Reloads while packets are forwarded: none is lost or reordered, and state survives.

use crate::{Folder, alone};
use config::{ChainFile, NfChange};
use dpdk::Mempool;
use packet::{Batch, Pool};
use runtime::{Engine, PortQueues, Reloaded};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const FLOWS: u32 = 64;
/// Packets on their way at most: no queue overflows, whatever the machine does.
const WINDOW: u64 = 256;

fn parse(folder: &Folder, text: &str) -> ChainFile {
    ChainFile::parse(text, &folder.path("chain.toml"), &nf::registry()).unwrap_or_else(|e| panic!("{text}: {e:?}"))
}

/// A chain file of these NFs, in this order on the path from `in` to `out`, on the first allowed CPU.
fn chain(nfs: &[(&str, String)]) -> String {
    chain_on(&[0], nfs)
}

/// The same on these CPUs, numbered within those that are allowed.
fn chain_on(cpus: &[usize], nfs: &[(&str, String)]) -> String {
    let path: Vec<String> = nfs.iter().map(|(name, _)| format!("\"{name}\"")).collect();
    let tables = nfs.iter().map(|(name, settings)| format!("[nf.{}]\n{settings}\n", name.split(':').next().unwrap()));
    format!(
        "bondstone = 1\n[port.in]\ndevice = \"null\"\n[port.out]\ndevice = \"null\"\n{}\
         [[chain]]\npath = [\"in\", {}, \"out\"]\ncores = {:?}\n",
        tables.collect::<String>(),
        path.join(", "),
        allowed(cpus),
    )
}

/// Returns the allowed CPUs of these numbers; a machine with fewer has some several times.
fn allowed(cpus: &[usize]) -> Vec<usize> {
    let all = runtime::allowed_cpus();
    let mut cpus: Vec<usize> = cpus.iter().map(|n| all[n % all.len()]).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

fn ttl() -> (&'static str, String) {
    ("hops", "kind = \"ttl\"".to_owned())
}

fn count() -> (&'static str, String) {
    ("seen", "kind = \"count\"".to_owned())
}

fn firewall(rules: u32) -> (&'static str, String) {
    let rules: Vec<String> = (0..rules).map(|n| format!("\"drop dst 192.0.2.{n}\"")).collect();
    ("fw", format!("kind = \"firewall\"\ndefault = \"accept\"\nrules = [{}]\ntrack = {{}}", rules.join(", ")))
}

fn nat(udp: u32) -> (&'static str, String) {
    ("nat:inside", format!("kind = \"nat44\"\nexternal = [\"203.0.113.1\"]\ntimers = {{ udp = {udp} }}"))
}

/// Sends and receives at the far ends of `in` and `out` until told to stop. Returns the number of packets, and for each
/// flow the source ports that its packets left with.
fn traffic(
    pool: Arc<Mempool>,
    ends: Vec<PortQueues>,
    stop: &AtomicBool,
    sent_so_far: &AtomicU64,
) -> BTreeMap<u32, Vec<u16>> {
    let [mut input, mut output] = <[PortQueues; 2]>::try_from(ends).ok().expect("two ports");
    let mut batch = Batch::new();
    let (mut sent, mut received, mut idle) = (0u64, 0u64, 0);
    let mut next = vec![0u32; FLOWS as usize];
    let mut ports: BTreeMap<u32, Vec<u16>> = BTreeMap::new();
    while !stop.load(Ordering::Relaxed) || received < sent {
        while !stop.load(Ordering::Relaxed) && sent < received + WINDOW {
            let (flow, number) = (sent as u32 % FLOWS, sent as u32 / FLOWS);
            let mut frame =
                wire::build::udp4([10, 0, 0, 1], [198, 18, 0, 1], 2000 + flow as u16, 53).pad_to(60).to_vec();
            frame[44..48].copy_from_slice(&flow.to_be_bytes());
            frame[48..52].copy_from_slice(&number.to_be_bytes());
            batch.push(pool.alloc_from(&frame).unwrap()).unwrap();
            assert_eq!(input.tx.send(&mut batch), 1, "the window is smaller than the wire");
            sent += 1;
        }
        sent_so_far.store(sent, Ordering::Relaxed);
        let n = output.rx.receive(&mut batch);
        idle = if n == 0 { idle + 1 } else { 0 };
        if idle > 1000 {
            std::thread::sleep(Duration::from_millis(1));
            assert!(idle < 11_000, "{} packets are lost", sent - received);
        }
        for packet in batch.drain() {
            let word = |at: usize| u32::from_be_bytes(packet.data()[at..at + 4].try_into().unwrap());
            let (flow, number) = (word(44), word(48));
            assert_eq!(number, next[flow as usize], "of flow {flow}");
            next[flow as usize] += 1;
            received += 1;
            let port = u16::from_be_bytes([packet.data()[34], packet.data()[35]]);
            let seen = ports.entry(flow).or_default();
            if seen.last() != Some(&port) {
                seen.push(port);
            }
        }
    }
    ports
}

/// Runs the first file, and reloads the others while packets are forwarded; returns the results, and the source ports
/// of each flow.
fn reload_all(files: &[ChainFile]) -> (Vec<Reloaded>, BTreeMap<u32, Vec<u16>>) {
    let (mut engine, ends) = Engine::start_on_wires(&files[0], 1024).unwrap();
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let (pool, mut results) = (engine.pool().clone(), vec![]);
    let eal = engine.eal();
    let ports = std::thread::scope(|scope| {
        let run = || {
            let _lcore = eal.register_thread();
            traffic(pool, ends, &stop, &sent)
        };
        let traffic = scope.spawn(run);
        for file in &files[1..] {
            // the graph before has forwarded packets
            let before = sent.load(Ordering::Relaxed);
            while sent.load(Ordering::Relaxed) < before + 10 * WINDOW && !traffic.is_finished() {
                std::thread::sleep(Duration::from_micros(100));
            }
            results.push(engine.reload(file).unwrap_or_else(|e| panic!("{e}")));
        }
        stop.store(true, Ordering::Relaxed);
        traffic.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let did = engine.stop();
    assert!(did.balanced && did.errors.is_empty(), "{did:?}");
    assert_eq!((did.totals.dropped, did.totals.held, did.totals.created), (0, 0, 0), "{did:?}");
    assert_eq!(did.ports[0].received, did.ports[1].sent);
    let of_workers = did.workers.values().map(|worker| (worker.received, worker.sent));
    let all = (did.ports[0].received, did.ports[1].sent);
    assert_eq!(of_workers.fold((0, 0), |(r, s), worker| (r + worker.0, s + worker.1)), all, "{:?}", did.workers);
    (results, ports)
}

#[test]
fn a_hundred_reloads_lose_and_reorder_nothing() {
    let _alone = alone();
    let folder = Folder::new();
    let file = |n: u32| {
        let mut nfs = vec![firewall(n / 2 % 4), nat(300 + n / 3 % 2), ttl()];
        if n % 3 == 1 {
            nfs.insert(n as usize % 4, count());
        }
        if n % 5 == 4 {
            nfs.remove(0);
        }
        if n % 7 == 3 {
            nfs.swap(0, 1);
        }
        parse(&folder, &chain(&nfs))
    };
    let (results, ports) = reload_all(&(0..=100).map(file).collect::<Vec<_>>());
    assert_eq!(results.len(), 100);
    assert_eq!(ports.len(), FLOWS as usize);
    // sessions survive: each flow keeps its external port
    assert!(ports.values().all(|ports| ports.len() == 1), "{ports:?}");
    let changes = |change| results.iter().flat_map(|r| &r.changes.nfs).filter(|nf| nf.change == change).count();
    for change in [NfChange::Kept, NfChange::Reconfigured, NfChange::Added, NfChange::Removed] {
        assert!(changes(change) > 10, "{change:?}: {}", changes(change));
    }
}

#[test]
fn chains_move_to_other_cpus_with_their_state() {
    let _alone = alone();
    let folder = Folder::new();
    let file = |n: u32| {
        let mut nfs = vec![firewall(n / 3 % 2), nat(300 + n / 5 % 2), ttl()];
        if n % 4 == 1 {
            nfs.push(count());
        }
        parse(&folder, &chain_on(&[n as usize / 2 % 2], &nfs))
    };
    let (results, ports) = reload_all(&(0..=60).map(file).collect::<Vec<_>>());
    assert_eq!(results.len(), 60);
    assert!(ports.len() == FLOWS as usize && ports.values().all(|ports| ports.len() == 1), "{ports:?}");
    assert!(results.iter().flat_map(|r| &r.changes.nfs).all(|nf| nf.change != NfChange::Rebuilt));
}

#[test]
fn packets_are_spread_over_more_and_fewer_cpus() {
    let _alone = alone();
    let folder = Folder::new();
    let spread: [&[usize]; 6] = [&[0], &[0, 1], &[1], &[1, 0], &[0], &[1]];
    let file = |n: usize| parse(&folder, &chain_on(spread[n % spread.len()], &[ttl(), count()]));
    let (results, _) = reload_all(&(0..=30).map(file).collect::<Vec<_>>());
    assert_eq!(results.len(), 30);
}

#[test]
fn links_lead_to_other_cpus() {
    let _alone = alone();
    let folder = Folder::new();
    let cpus: [[&[usize]; 2]; 7] =
        [[&[0], &[1]], [&[0], &[0]], [&[1], &[0]], [&[1], &[0, 1]], [&[0, 1], &[0, 1]], [&[0, 1], &[1]], [&[1], &[1]]];
    let file = |n: usize| {
        let [front, back] = cpus[n % cpus.len()].map(allowed);
        let text = format!(
            "bondstone = 1\n[port.in]\ndevice = \"null\"\n[port.out]\ndevice = \"null\"\n\
             [nf.hops]\nkind = \"ttl\"\n[nf.seen]\nkind = \"count\"\n\
             [[chain]]\npath = [\"in\", \"hops\"]\ncores = {front:?}\n\
             [[chain]]\npath = [\"hops.out\", \"seen\", \"out\"]\ncores = {back:?}\n"
        );
        parse(&folder, &text)
    };
    let (results, _) = reload_all(&(0..=35).map(file).collect::<Vec<_>>());
    assert_eq!(results.len(), 35);
}

/// A worker that has only received from other workers gets the port that packets arrive at.
#[test]
fn a_run_without_packets_goes_on_after_its_chains_have_moved() {
    let _alone = alone();
    let folder = Folder::new();
    let file = |cpus: &[usize]| {
        let [front, back] = [cpus, &[1]].map(allowed);
        let text = format!(
            "bondstone = 1\n[port.in]\ndevice = \"null\"\n[port.out]\ndevice = \"null\"\n[nf.seen]\nkind = \"count\"\n\
             [[chain]]\npath = [\"in\", \"seen\"]\ncores = {front:?}\n\
             [[chain]]\npath = [\"seen.out\", \"out\"]\ncores = {back:?}\n"
        );
        parse(&folder, &text)
    };
    let (mut engine, _ends) = Engine::start_on_wires(&file(&[0]), 1024).unwrap();
    let goes_on = |engine: &Engine| {
        (0..10).all(|_| {
            std::thread::sleep(Duration::from_millis(10));
            !engine.is_finished()
        })
    };
    assert!(goes_on(&engine));
    engine.reload(&file(&[1])).unwrap();
    assert!(goes_on(&engine));
    assert!(engine.stop().balanced);
}

/// Packets circulate in a ring, as long as a chain forwards them.
#[test]
fn ports_are_added_and_removed() {
    let _alone = alone();
    let folder = Folder::new();
    let file = |ports: &[&str], chains: &[[&str; 2]]| {
        let port = |name: &&str| format!("[port.{name}]\ndevice = \"ring\"\n");
        let chain = |[from, to]: &[&str; 2]| format!("[[chain]]\npath = [\"{from}\", \"seen\", \"{to}\"]\n");
        let (ports, chains): (String, String) = (ports.iter().map(port).collect(), chains.iter().map(chain).collect());
        parse(&folder, &format!("bondstone = 1\n{ports}[nf.seen]\nkind = \"count\"\n{chains}"))
    };
    let text = "bondstone = 1\n[port.file]\ndevice = \"pcap:in.pcap\"\n[port.a]\ndevice = \"ring\"\n\
        [nf.seen]\nkind = \"count\"\n[[chain]]\npath = [\"file\", \"a\"]\n[[chain]]\npath = [\"a\", \"seen\", \"a\"]\n";
    folder.capture("in.pcap", &vec![vec![7; 60]; 100]);
    let mut engine = Engine::start(&parse(&folder, text)).unwrap();
    let forwards = |engine: &Engine, port: &str| {
        let sent = || engine.snapshot().ports.iter().find(|p| p.name == port).map_or(0, |p| p.sent);
        let before = sent();
        (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            sent() > before + 1000
        })
    };
    assert!(forwards(&engine, "a"));
    for (ports, chains, through) in [
        (&["a", "b"][..], &[["a", "b"], ["b", "a"]][..], "b"),
        (&["a", "b", "c"], &[["a", "b"], ["b", "c"], ["c", "a"]], "c"),
        // not received from, and later again
        (&["a", "b", "c"], &[["a", "b"], ["b", "c"]], ""),
        (&["c", "a"], &[["a", "c"], ["c", "a"]], "c"),
        (&["b", "c", "a", "d", "e"], &[["a", "b"], ["b", "c"], ["c", "d"], ["d", "e"], ["e", "a"]], "e"),
        (&["d"], &[["d", "d"]], ""),
    ] {
        engine.reload(&file(ports, chains)).unwrap();
        assert!(through.is_empty() || forwards(&engine, through), "{through}");
    }
    let did = engine.stop();
    assert!(did.balanced && did.errors.is_empty(), "{did:?}");
    let of = |name: &str| did.ports.iter().find(|port| port.name == name).unwrap();
    assert_eq!(did.ports.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["a", "file", "b", "c", "d", "e"]);
    // all packets were in one of the rings
    assert_eq!(of("file").received, 100);
    let removed: u64 = did.ports.iter().filter_map(|port| port.drops.get("removed")).sum();
    assert_eq!(removed + did.totals.held, 100, "{did:?}");
}

#[test]
fn sessions_end_only_with_settings_that_they_depend_on() {
    let _alone = alone();
    let folder = Folder::new();
    let other = nat(300).1.replace("203.0.113.1", "203.0.113.9");
    let files =
        [vec![nat(300)], vec![nat(400), ttl()], vec![("nat:inside", other)]].map(|nfs| parse(&folder, &chain(&nfs)));
    let (results, _) = reload_all(&files);
    let nat = |n: usize| results[n].changes.nfs.iter().find(|nf| nf.name == "nat").unwrap();
    assert_eq!((nat(0).change, nat(0).keeps.as_deref()), (NfChange::Reconfigured, Some("sessions")));
    assert_eq!(
        (nat(1).change, &nat(1).settings[..]),
        (NfChange::Rebuilt, &["external".to_owned(), "timers".to_owned()][..])
    );
}

#[test]
fn a_rejected_file_changes_nothing() {
    let _alone = alone();
    let folder = Folder::new();
    let text = chain(&[ttl()]);
    let (mut engine, ends) = Engine::start_on_wires(&parse(&folder, &text), 1024).unwrap();
    let invalid = "kind = \"nat44\"\nexternal = []".to_owned();
    for (wrong, says) in [
        (chain(&[ttl(), ("nat:inside", invalid)]), "external"),
        (text.replace("[port.out]\ndevice = \"null\"", "[port.out]\ndevice = \"ring:x\""), "port \"out\""),
        (text.replace("bondstone = 1\n", "bondstone = 1\nidle = \"sleep\"\n"), "idle"),
        (
            text.replace(
                "[[chain]]",
                "[port.more]\ndevice = \"null\"\n[[chain]]\npath = [\"more\", \"out\"]\n[[chain]]",
            ),
            "more",
        ),
    ] {
        let error = engine.reload(&parse(&folder, &wrong)).unwrap_err().to_string();
        assert!(error.contains(says), "{says}: {error}");
    }
    let before = engine.snapshot();
    assert_eq!(before.nfs.len(), 1, "{before:?}");
    let stop = AtomicBool::new(false);
    let sent = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let pool = engine.pool().clone();
        let traffic = scope.spawn(|| traffic(pool, ends, &stop, &sent));
        while sent.load(Ordering::Relaxed) < 1000 && !traffic.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(engine.stop().totals.dropped, 0);
}

#[test]
fn counts_of_a_removed_nf_stay() {
    let _alone = alone();
    let folder = Folder::new();
    let files = [vec![ttl(), count()], vec![count()], vec![ttl(), count()]].map(|nfs| parse(&folder, &chain(&nfs)));
    let (mut engine, _ends) = Engine::start_on_wires(&files[0], 1024).unwrap();
    let mut counts = vec![];
    for file in &files[1..] {
        engine.reload(file).unwrap();
        counts.push(engine.snapshot().nfs.iter().map(|nf| (nf.name.clone(), nf.packets)).collect::<Vec<_>>());
    }
    assert_eq!(counts[0].len(), 2);
    assert_eq!(counts[1].len(), 2, "an NF that returns is the same");
    assert!(engine.stop().balanced);
}

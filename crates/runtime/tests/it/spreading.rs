//! Distribution over cores: the NFs of a chain drop the same packets on one core and on two, or the file is refused.

use crate::{Folder, alone};
use config::ChainFile;
use diagnostics::Diagnostic;
use graph::{BuildContext, Context, Nf, NoSettings, Node, Registry, Spread, SteerFn, Steering};
use packet::Batch;
use runtime::{Engine, Summary};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use wire::flow::FiveTuple;

/// Key of a packet: packets with the same one must reach the same copy of an NF.
type Key = [u64; 5];

fn address(of: IpAddr) -> u64 {
    match of {
        IpAddr::V4(of) => of.to_bits().into(),
        IpAddr::V6(_) => 0,
    }
}

fn flow(frame: &[u8]) -> Key {
    let t = FiveTuple::of_frame(frame).unwrap();
    [address(t.src), address(t.dst), t.src_port.into(), t.dst_port.into(), t.protocol.0.into()]
}

fn symmetric(frame: &[u8]) -> Key {
    let [src, dst, src_port, dst_port, protocol] = flow(frame);
    flow(frame).min([dst, src, dst_port, src_port, protocol])
}

fn hosts(frame: &[u8]) -> Key {
    let [src, dst, ..] = flow(frame);
    [src.min(dst), src.max(dst), 0, 0, 0]
}

fn source_network(frame: &[u8]) -> Key {
    [flow(frame)[0] >> 8, 0, 0, 0, 0]
}

fn networks(frame: &[u8]) -> Key {
    hosts(frame).map(|host| host >> 8)
}

/// The second byte of the payload.
fn class(frame: &[u8]) -> Key {
    [(frame[43] % 8).into(), 0, 0, 0, 0]
}

/// Returns a steering function by a key.
fn steer_by(key: fn(&[u8]) -> Key, copies: usize) -> SteerFn {
    Arc::new(move |_, frame| {
        let mixed = key(frame).iter().fold(0u64, |all, n| (all ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        (mixed >> 32) as usize % copies
    })
}

/// An NF that drops packets until its copy has received one with the same key that opens it, as a firewall does.
struct Stateful {
    key: fn(&[u8]) -> Key,
    open: BTreeSet<Key>,
}

impl Node for Stateful {
    fn drops(&self) -> &[&'static str] {
        &["not_open"]
    }

    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        let Stateful { key, open } = self;
        batch.extract_if(
            |packet| {
                let frame = packet.data();
                if frame[42] == 1 {
                    open.insert(key(frame));
                }
                (!open.contains(&key(frame))).then_some(())
            },
            |(), packet| cx.drop(0, packet),
        );
    }
}

macro_rules! stateful {
    ($type:ident, $kind:literal, $spread:ident, $key:expr, $steering:expr) => {
        struct $type;
        impl Nf for $type {
            type Settings = NoSettings;
            const KIND: &'static str = $kind;
            const ABOUT: &'static str = "Drops packets of keys that no packet has opened.";
            const SPREAD: Spread = Spread::$spread;
            const STEERING: Steering = $steering;
            fn steering(_: &NoSettings, copies: usize) -> Option<SteerFn> {
                (Self::SPREAD == Spread::Custom).then(|| steer_by($key, copies))
            }
            fn build(_: &NoSettings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
                Ok(Stateful { key: $key, open: BTreeSet::new() })
            }
        }
    };
}

stateful!(ByFlow, "by-flow", Flow, flow, Steering::UNKNOWN);
stateful!(Web, "web", Symmetric, symmetric, Steering::UNKNOWN);
stateful!(Tracker, "tracker", Hosts, hosts, Steering::UNKNOWN);
stateful!(ByClass, "by-class", Custom, class, Steering::UNKNOWN);
stateful!(Limit, "limit", Custom, source_network, Steering { key: "the /24 of the source", keeps: Spread::Flow });
stateful!(Pairs, "pairs", Custom, networks, Steering { key: "both /24 networks", keeps: Spread::Hosts });

/// Drops packets by their content alone.
struct Stateless;
impl Nf for Stateless {
    type Settings = NoSettings;
    const KIND: &'static str = "stateless";
    const ABOUT: &'static str = "Drops every fifth class of packets.";
    fn build(_: &NoSettings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let frame = graph::Operator::filter(graph::frame(), "class", |frame| !frame.bytes()[43].is_multiple_of(5));
        Ok(graph::Operator::compose(frame))
    }
}

/// Rewrites addresses, as far as its declaration goes.
struct Rewriter;
impl Nf for Rewriter {
    type Settings = NoSettings;
    const KIND: &'static str = "rewriter";
    const ABOUT: &'static str = "Rewrites addresses.";
    const REWRITES: bool = true;
    fn build(_: &NoSettings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        Ok(graph::Operator::compose(graph::frame()))
    }
}

/// Selects the core for the next chain.
struct Select;
impl Nf for Select {
    type Settings = NoSettings;
    const KIND: &'static str = "select";
    const ABOUT: &'static str = "Selects the core by the network of the source.";
    const STEERING: Steering = Steering { key: "the /24 of the source", keeps: Spread::Flow };
    fn build(_: &NoSettings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let frame = graph::Operator::shuffle(graph::frame(), |frame| source_network(frame.bytes())[0] as usize);
        Ok(graph::Operator::compose(frame))
    }
}

/// Kinds with their requirement, and what their own steering keeps together for others.
const KINDS: [(&str, Spread, Option<Spread>); 7] = [
    ("stateless", Spread::Any, None),
    ("by-flow", Spread::Flow, None),
    ("web", Spread::Symmetric, None),
    ("tracker", Spread::Hosts, None),
    ("by-class", Spread::Custom, Some(Spread::Any)),
    ("limit", Spread::Custom, Some(Spread::Flow)),
    ("pairs", Spread::Custom, Some(Spread::Hosts)),
];

fn registry() -> Registry {
    let all = nf::registry().with::<Stateless>().with::<ByFlow>().with::<Web>().with::<Tracker>();
    all.with::<ByClass>().with::<Limit>().with::<Pairs>().with::<Rewriter>().with::<Select>()
}

/// Returns packets of eight hosts in four networks, of which some open their keys.
fn frames() -> Vec<Vec<u8>> {
    let mut random = 7u32;
    let mut below = |n: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 16) % n
    };
    let frame = |_| {
        let mut host = || [10, 0, below(4) as u8, below(2) as u8];
        let (src, dst) = (host(), host());
        let (ports, opens) = ([1000 + below(2) as u16, 1000 + below(2) as u16], u8::from(below(16) == 0));
        wire::build::udp4(src, dst, ports[0], ports[1]).payload(&[opens, below(40) as u8]).pad_to(60).to_vec()
    };
    (0..600).map(frame).collect()
}

fn parse(folder: impl AsRef<Path>, text: &str) -> Result<ChainFile, Vec<Diagnostic>> {
    ChainFile::parse(text, &folder.as_ref().join("chain.toml"), &registry())
}

/// Runs a file to its end; returns its summary.
fn run(file: &ChainFile) -> Summary {
    let engine = Engine::start(file).unwrap_or_else(|e| panic!("{e}"));
    while !engine.is_finished() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let summary = engine.stop();
    assert!(summary.balanced && summary.errors.is_empty(), "{summary:?}");
    summary
}

/// Returns drops by NF, and packets sent.
fn verdicts(summary: &Summary) -> (Vec<u64>, u64) {
    (summary.nfs.iter().map(|nf| nf.drops.values().sum()).collect(), summary.totals.sent)
}

/// Returns two CPUs, if there are two.
fn two_cpus() -> Option<Vec<usize>> {
    let mut cpus = runtime::allowed_cpus();
    cpus.truncate(2);
    (cpus.len() == 2).then_some(cpus).or_else(|| {
        eprintln!("skipped: needs two CPUs");
        None
    })
}

/// Asserts that a file drops the same packets with its chains on one core and on two.
#[track_caller]
fn assert_same_on_two_cores(folder: &Folder, text: &str, cpus: &[usize]) {
    let on = |cpus: &[usize]| {
        let text = text.replace("CORES", &format!("{cpus:?}"));
        let file = parse(folder, &text).unwrap_or_else(|e| panic!("{text}\n{e:?}"));
        run(&file)
    };
    let (one, two) = (on(&cpus[..1]), on(cpus));
    assert_eq!(verdicts(&two), verdicts(&one), "{text}");
    let counts: Vec<u64> = two.workers.values().map(|w| w.received + w.received_from_links).collect();
    assert!(counts.len() == 2 && counts.iter().all(|n| *n > 0), "{text}: both cores have packets: {counts:?}");
    let received: u64 = two.workers.values().map(|w| w.received).sum();
    let dropped: u64 = two.workers.values().map(|w| w.dropped).sum();
    assert_eq!((received, dropped), (two.totals.received, two.totals.dropped), "{text}");
}

const PORTS: &str = "bondstone = 1\n[port.in]\ndevice = \"pcap:in.pcap\"\n[port.out]\ndevice = \"null\"\n";

#[test]
fn two_nfs_drop_the_same_on_two_cores_or_are_refused() {
    let _alone = alone();
    let Some(cpus) = two_cpus() else { return };
    let folder = Folder::new();
    folder.capture("in.pcap", &frames());
    for (first, a, a_keeps) in KINDS {
        for (second, b, b_keeps) in KINDS {
            let text = format!(
                "{PORTS}[nf.one]\nkind = \"{first}\"\n[nf.two]\nkind = \"{second}\"\n\
                 [[chain]]\npath = [\"in\", \"one\", \"two\", \"out\"]\ncores = CORES\n"
            );
            let possible = match (a_keeps, b_keeps) {
                (None, None) => true,
                (Some(keeps), None) => b <= keeps,
                (None, Some(keeps)) => a <= keeps,
                (Some(_), Some(_)) => false,
            };
            if possible {
                assert_same_on_two_cores(&folder, &text, &cpus);
                continue;
            }
            assert!(parse(&folder, &text.replace("CORES", "[0]")).is_ok(), "one core: {text}");
            let errors = parse(&folder, &text.replace("CORES", "[0, 1]")).err().unwrap_or_else(|| panic!("{text}"));
            let [error] = &errors[..] else { panic!("{text}: {errors:?}") };
            let shown = error.to_string();
            let both = shown.contains("\"one\"") && shown.contains("\"two\"");
            assert!(both && error.line.is_some() && error.remedy.is_some(), "{shown}");
        }
    }
}

/// Packets are spread anew behind an output with which a chain begins, also by the function of an NF.
#[test]
fn an_nf_behind_a_link_drops_the_same_on_two_cores() {
    let _alone = alone();
    let Some(cpus) = two_cpus() else { return };
    let folder = Folder::new();
    folder.capture("in.pcap", &frames());
    for (kind, ..) in KINDS {
        for front in [&cpus[..1], &cpus] {
            // on two cores the first chain would reorder packets of a key
            if front.len() == 2 && kind != "tracker" {
                continue;
            }
            let text = format!(
                "{PORTS}[nf.front]\nkind = \"tracker\"\n[nf.back]\nkind = \"{kind}\"\n\
                 [[chain]]\npath = [\"in\", \"front\"]\ncores = {front:?}\n\
                 [[chain]]\npath = [\"front.out\", \"back\", \"out\"]\ncores = CORES\n"
            );
            assert_same_on_two_cores(&folder, &text, &cpus);
        }
    }
}

/// Returns a file with two ports, chains over `cores` and these NFs, named by their kind.
fn two_ports(chains: &str) -> Result<ChainFile, Vec<Diagnostic>> {
    let used = |name: &&str| chains.contains(&format!(", \"{name}\"")) || chains.contains(&format!("[\"{name}."));
    let kinds = ["by-flow", "web", "tracker", "by-class", "limit", "pairs", "rewriter", "select", "count"];
    let nfs: String = kinds.into_iter().filter(used).map(|kind| format!("[nf.{kind}]\nkind = \"{kind}\"\n")).collect();
    let ports = ["a", "b"].into_iter().filter(|port| chains.contains(&format!("\"{port}\"")));
    let ports: String = ports.map(|port| format!("[port.{port}]\ndevice = \"ring:{port}\"\n")).collect();
    parse("", &format!("bondstone = 1\n{ports}{nfs}{chains}"))
}

fn chain(path: &str, more: &str) -> String {
    let path = path.split(' ').map(|element| format!("\"{element}\"")).collect::<Vec<_>>().join(", ");
    format!("[[chain]]\npath = [{path}]\ncores = [0, 1]\n{more}\n")
}

/// The key of a chain includes NFs that it has in common with others, and theirs.
#[test]
fn chains_with_a_common_nf_use_one_key() {
    let spreading = |chains: &str| {
        let file = two_ports(chains).unwrap_or_else(|e| panic!("{chains}{e:?}"));
        file.chains.iter().map(|c| (c.spreading.requirement, c.spreading.is_shared)).collect::<Vec<_>>()
    };
    let there_and_back = chain("a tracker web b", "") + &chain("b web a", "");
    assert_eq!(spreading(&there_and_back), [(Spread::Hosts, true); 2]);
    let apart = chain("a tracker b", "") + &chain("b web a", "");
    assert_eq!(spreading(&apart), [(Spread::Hosts, false), (Spread::Symmetric, false)]);
    let linked = chain("a web", "") + &chain("web.out tracker b", "");
    assert_eq!(spreading(&linked), [(Spread::Symmetric, false), (Spread::Hosts, false)]);
    let custom = two_ports(&(chain("a pairs web b", "") + &chain("b web pairs a", ""))).unwrap();
    let pairs = custom.nfs.iter().position(|nf| nf.name == "pairs").unwrap();
    assert!(custom.chains.iter().all(|c| c.spreading.steered_by == Some((pairs, 0))));
}

#[test]
fn combinations_that_no_distribution_meets_are_refused() {
    for (chains, words) in [
        // the reply of a chain that a function steers is steered by a hash
        (chain("a pairs web b", "") + &chain("b web a", ""), &["web", "pairs", "chain1", "chain2"][..]),
        // addresses are no longer those by which the packets were spread
        (chain("a rewriter tracker b", ""), &["tracker", "rewriter", "rewriter.out"]),
        (chain("a tracker rewriter b", "") + &chain("b rewriter count tracker a", ""), &["tracker", "rewriter"]),
        (chain("a rewriter pairs b", ""), &["pairs", "rewriter"]),
        (chain("a select", "") + &chain("select.out web b", "shuffle = \"metadata\""), &["web", "select"]),
        (chain("a select", "") + &chain("select.out limit b", "shuffle = \"metadata\""), &["limit", "metadata"]),
        (
            chain("a select", "")
                + &chain("select.out by-flow b", "shuffle = \"metadata\"")
                + &chain("b by-flow a", ""),
            &["by-flow", "select"],
        ),
    ] {
        let errors = two_ports(&chains).err().unwrap_or_else(|| panic!("{chains}"));
        let [error] = &errors[..] else { panic!("{chains}: {errors:?}") };
        let shown = error.to_string();
        assert!(words.iter().all(|word| shown.contains(word)) && error.remedy.is_some(), "{shown}");
    }
    for chains in [
        chain("a tracker rewriter b", ""),
        chain("a rewriter", "") + &chain("rewriter.out tracker b", ""),
        chain("a select", "") + &chain("select.out by-flow b", "shuffle = \"metadata\""),
    ] {
        assert!(two_ports(&chains).is_ok(), "{chains}");
    }
}

/// NFs in a sandbox are spread there; behind it the packets are spread anew.
#[test]
fn sandboxes_spread_packets_themselves() {
    let sandboxed = |kind: &str| format!("[nf.inner]\nkind = \"{kind}\"\nisolation = \"process\"\n");
    let file = two_ports(&(sandboxed("web") + &chain("a limit inner b", ""))).unwrap();
    assert_eq!(file.chains[0].spreading.requirement, Spread::Custom);
    let behind = sandboxed("count") + &chain("a limit inner tracker b", "");
    let host = two_ports(&behind).unwrap();
    let host = host.host_side(Path::new("/run"), &[0], &Default::default(), &registry()).unwrap();
    let found: Vec<_> = host.chains.iter().map(|c| c.spreading.requirement).collect();
    assert_eq!(found, [Spread::Custom, Spread::Hosts]);
    let wide = "[sandbox.inner]\nqueues = 2\ncores = [0, 1]\n";
    let errors = two_ports(&(sandboxed("web") + wide + &chain("a inner b", ""))).err().unwrap();
    assert!(errors.len() == 1 && errors[0].to_string().contains("queues of sandbox \"inner\""), "{errors:?}");
    assert!(two_ports(&(sandboxed("count") + wide + &chain("a inner b", ""))).is_ok());
}

//! scratch
use bench::dut::{Forward, Hooks, Kind, Plan, Ports};
use bench::{Ask, Rig, Sent};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let kind: Kind = a[1].parse().unwrap();
    let ports = Ports::of(kind, &a[2]).unwrap();
    let forward: Forward = a[3].parse().unwrap();
    let rate: f64 = a[4].parse().unwrap();
    let plan = Plan { kind, ports, cpus: vec![0], forward, chain: None, hooks: Hooks::default() };
    let text = "bondstone = 1\nport.in.device = \"ring:in\"\nport.out.device = \"ring:out\"\nchain = [{ path = [\"in\", \"out\"] }]\n";
    let file = chain::ChainFile::parse(text, std::path::Path::new("chain.toml"), &graph::Registry::default()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let sent = Sent::Made { frames: bench::frames("64,1518").unwrap(), flows: 100, order: traffic::Order::default() };
    let offered = sent.ready(&file, &stop).unwrap();
    let t = std::time::Instant::now();
    runtime::pin(1).unwrap();
    let mut rig = match Rig::start("dut", &plan, wire::build::DST_MAC, vec!["198.19.0.0/16".into()], stop) {
        Ok(r) => r,
        Err(e) => {
            println!("{e}");
            return;
        }
    };
    println!("up in {:?}: {:?}\n{}", t.elapsed(), rig.about().version, rig.about().configuration);
    for o in &offered {
        match rig.conform(o) {
            Ok(()) => println!("conforms"),
            Err(e) => println!("{e}"),
        }
        let mut load = o.load();
        for f in [0.2, 0.5, 1.0, 2.0] {
            let seen = rig.trial(&mut load, &Ask::load(rate * f, 0.5)).unwrap();
            let t = &seen.trial;
            println!(
                "{:>10.0} pps: sent {} unsent {} lost {} dup {} reord {} gap {} p50 {:?}",
                t.load_pps,
                t.sent,
                t.unsent,
                t.lost,
                t.duplicate,
                t.reordered,
                t.poll_gap_max_ns.generator,
                seen.delays.and_then(|d| d.quantile_ns(0.5))
            );
        }
    }
    rig.stop();
}

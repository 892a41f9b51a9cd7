//! Chains on one worker that do not cost each other more than they may.

use config::ChainFile;
use runtime::{Engine, Summary};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Cores are few.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Lets two chains of a worker run for a while, from captures that never end; what came of it.
fn overload(slow: &str, quick: &str, time: Duration) -> Summary {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let last = runtime::allowed_cpus().pop().unwrap();
    let folder = std::env::temp_dir().join(format!("bondstone-shares-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["a.pcap", "b.pcap"] {
        let mut capture = pcap::Writer::create(folder.join(name), pcap::LinkType::ETHERNET).unwrap();
        (0..1000).for_each(|n| capture.write(n, 60, &[2; 60]).unwrap());
        capture.finish().unwrap();
    }
    let text = format!(
        "bondstone = 1\n[port.a]\ndevice = \"pcap:a.pcap\"\nrepeat = 0\n[port.b]\ndevice = \"pcap:b.pcap\"\nrepeat = 0\n\
         [port.out]\ndevice = \"null\"\n[nf.slow]\nkind = \"work\"\ncycles = 20000\n[nf.quick]\nkind = \"work\"\ncycles = 200\n\
         [[chain]]\nname = \"slow\"\npath = [\"a\", \"slow\", \"out\"]\ncores = [{last}]\n{slow}\n\
         [[chain]]\nname = \"quick\"\npath = [\"b\", \"quick\", \"out\"]\ncores = [{last}]\n{quick}\n"
    );
    let file =
        ChainFile::parse(&text, &folder.join("shares.toml"), &nf::registry()).unwrap_or_else(|e| panic!("{e:?}"));
    let engine = Engine::start(&file).unwrap();
    std::thread::sleep(time);
    let summary = engine.stop();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(summary.balanced && summary.totals.dropped == 0, "{summary:?}");
    summary
}

fn packets(summary: &Summary, nf: &str) -> f64 {
    summary.nfs.iter().find(|n| n.name == nf).unwrap().packets as f64
}

#[test]
fn in_turn_a_slow_nf_takes_the_other_chain_along_and_with_shares_it_does_not() {
    let time = Duration::from_millis(400);
    let turn = overload("", "", time);
    assert!(turn.chains.is_empty());
    let in_turn = packets(&turn, "quick") / packets(&turn, "slow");
    assert!(in_turn < 2.0, "{in_turn} quick packets for a slow one");
    let shares = overload("share = 1", "share = 1", time);
    assert_eq!(shares.chains.len(), 0, "a share of 1 is what a chain has anyway");
    let shares = overload("share = 2", "share = 2", time);
    let parted = packets(&shares, "quick") / packets(&shares, "slow");
    assert!(parted > 10.0, "{parted} quick packets for a slow one");
    let of = |name: &str| shares.chains.iter().find(|c| c.name == name).unwrap();
    let cycles = of("quick").cycles as f64 / of("slow").cycles as f64;
    assert!((0.3..3.0).contains(&cycles), "{cycles} times the cycles");
    assert_eq!(of("quick").packets as f64, packets(&shares, "quick"));
}

#[test]
fn priorities_and_rates() {
    let time = Duration::from_millis(400);
    let first = overload("", "priority = 1", time);
    assert!(packets(&first, "quick") > 20.0 * packets(&first, "slow"), "{first:?}");
    let limited = overload("", "rate = \"50 kpps\"\npriority = 1", time);
    let most = |run: &Summary| 50_000.0 * run.seconds + 100.0;
    assert!(packets(&limited, "quick") <= most(&limited) && packets(&limited, "slow") > 0.0, "{limited:?}");
    assert!(limited.chains.iter().find(|c| c.name == "quick").unwrap().put_off > 0);
    let bits = overload("", "rate = \"24 Mbit\"\npriority = 1", time);
    assert!(packets(&bits, "quick") <= most(&bits) && packets(&bits, "slow") > 0.0, "{bits:?}");
}

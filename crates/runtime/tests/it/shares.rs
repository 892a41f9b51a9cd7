//! Shares, priorities and rates of chains on one worker.

use config::ChainFile;
use runtime::{Engine, Summary};
use std::time::Duration;

/// Runs two chains on one worker for `time`, from endless captures; returns the summary.
fn overload(slow: &str, quick: &str, time: Duration) -> Summary {
    let _alone = crate::alone();
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
fn a_slow_nf_delays_the_other_chain_in_turn_but_not_with_shares() {
    let time = Duration::from_millis(400);
    let turn = overload("", "", time);
    assert!(turn.chains.is_empty());
    let in_turn = packets(&turn, "quick") / packets(&turn, "slow");
    assert!(in_turn < 2.0, "{in_turn} quick packets for a slow one");
    let shares = overload("share = 1", "share = 1", time);
    assert_eq!(shares.chains.len(), 0, "1 is the default share");
    let shares = overload("share = 2", "share = 2", time);
    let ratio = packets(&shares, "quick") / packets(&shares, "slow");
    assert!(ratio > 10.0, "{ratio} quick packets for a slow one");
    let of = |name: &str| shares.chains.iter().find(|c| c.name == name).unwrap();
    let cycles = of("quick").cycles as f64 / of("slow").cycles as f64;
    assert!((0.3..3.0).contains(&cycles), "{cycles} times the cycles");
    assert_eq!(of("quick").packets as f64, packets(&shares, "quick"));
}

#[test]
fn priorities_and_rates_are_respected() {
    let time = Duration::from_millis(400);
    let first = overload("", "priority = 1", time);
    assert!(packets(&first, "quick") > 20.0 * packets(&first, "slow"), "{first:?}");
    let limited = overload("", "rate = \"50 kpps\"\npriority = 1", time);
    let limit = |run: &Summary| 50_000.0 * run.seconds + 100.0;
    assert!(packets(&limited, "quick") <= limit(&limited) && packets(&limited, "slow") > 0.0, "{limited:?}");
    assert!(limited.chains.iter().find(|c| c.name == "quick").unwrap().throttled > 0);
    let bits = overload("", "rate = \"24 Mbit\"\npriority = 1", time);
    assert!(packets(&bits, "quick") <= limit(&bits) && packets(&bits, "slow") > 0.0, "{bits:?}");
}

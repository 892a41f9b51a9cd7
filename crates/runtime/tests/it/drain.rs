//! The end of a run with packets on their way between ports, cores and sandboxes.

use crate::{Folder, alone};
use config::ChainFile;
use runtime::{Engine, Summary};
use std::time::Duration;

/// The engine asks whether sandboxes have returned their packets only when it has no packets on their way to them: not
/// while a worker receives, and not while packets are in rings between cores.
#[test]
fn counts_are_final_when_the_end_of_the_drain_is_asked_for() {
    let _alone = alone();
    let mut cpus = runtime::allowed_cpus();
    cpus.truncate(2);
    let folder = Folder::new();
    let frame = |n: u8| wire::build::udp4([10, 0, 0, n], [10, 1, 0, n], 1000, 53).pad_to(60).to_vec();
    folder.capture("in.pcap", &(0..200).map(frame).collect::<Vec<_>>());
    let text = format!(
        "bondstone = 1\n[port.in]\ndevice = \"pcap:in.pcap\"\nrepeat = 0\n[port.out]\ndevice = \"null\"\n\
         [nf.first]\nkind = \"monitor\"\n[nf.second]\nkind = \"work\"\ncycles = 2000\n\
         [[chain]]\npath = [\"in\", \"first\"]\ncores = {cpus:?}\n\
         [[chain]]\npath = [\"first.out\", \"second\", \"out\"]\ncores = {cpus:?}\n"
    );
    let file = ChainFile::parse(&text, &folder.path("drain.toml"), &nf::registry()).unwrap_or_else(|e| panic!("{e:?}"));
    for _ in 0..5 {
        let engine = Engine::start(&file).unwrap();
        while engine.snapshot().totals.sent == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut asked: Option<Summary> = None;
        let end = engine.stop_when_drained(|counts| {
            asked.get_or_insert_with(|| counts.clone());
            true
        });
        let asked = asked.expect("the chains drain");
        // packets that the first core drops instead of passing them on are counted when it ends
        let packets = |of: &Summary| (of.totals.sent, of.nfs.iter().map(|nf| nf.packets).collect::<Vec<_>>());
        assert!(end.balanced, "{end:?}");
        assert_eq!(packets(&asked), packets(&end));
        assert_eq!(end.totals.held, 0, "{end:?}");
    }
}

//! Comparison with Suricata, where it is installed.

use super::*;
use std::process::{Command, Stdio};

const CONFIGURATION: &str = "\
%YAML 1.1
---
vars: { address-groups: { HOME_NET: any, EXTERNAL_NET: any } }
outputs:
  - eve-log: { enabled: yes, filetype: regular, filename: eve.json, types: [alert] }
app-layer:
  protocols:
    http: { enabled: yes, libhtp: { default-config: { personality: IDS, request-body-limit: 100kb, response-body-limit: 100kb } } }
    ssh: { enabled: yes, encryption-handling: full }
    tls: { enabled: yes, encryption-handling: full, ja3-fingerprints: yes, ja4-fingerprints: yes }
    dns: { tcp: { enabled: yes }, udp: { enabled: yes } }
packet-alert-max: 255
pcap-file: { checksum-checks: yes }
flow-timeouts:
  default: { new: 300, established: 300, closed: 60 }
  tcp: { new: 300, established: 3600, closed: 60 }
  udp: { new: 300, established: 300 }
  icmp: { new: 300, established: 300 }
";

/// A rule and the ends of the packet that it matches.
type Match = (u32, IpAddr, u16, IpAddr, u16);

/// Returns the number of alerts for each match.
fn suricata(program: &Path, folder: &Path, rules: &Path, capture: &Path) -> BTreeMap<Match, usize> {
    let (configuration, log) = (folder.join("suricata.yaml"), folder.join("eve.json"));
    std::fs::write(&configuration, CONFIGURATION).unwrap();
    let _ = std::fs::remove_file(&log);
    let mut command = Command::new(program);
    command.arg("-c").arg(configuration).arg("-S").arg(rules).arg("-r").arg(capture).arg("-l").arg(folder);
    let output = command.args(["--runmode", "single"]).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut found = BTreeMap::new();
    for line in std::fs::read_to_string(log).unwrap().lines() {
        let alert: serde_json::Value = serde_json::from_str(line).unwrap();
        let ip = |name: &str| alert[name].as_str().unwrap().parse().unwrap();
        let port = |name: &str| alert[name].as_u64().unwrap_or(0) as u16;
        let sid = alert["alert"]["signature_id"].as_u64().unwrap() as u32;
        *found.entry((sid, ip("src_ip"), port("src_port"), ip("dest_ip"), port("dest_port"))).or_default() += 1;
    }
    found
}

fn own(rules: &str, capture: &Path) -> BTreeMap<Match, usize> {
    let mut found = BTreeMap::new();
    replay(capture, engine(rules, Options { max_alerts: 255, ..options() }), |engine, _, alert| {
        let sid = engine.rule(alert.rule).unwrap().sid;
        *found.entry((sid, alert.src.0, alert.src.1, alert.dst.0, alert.dst.1)).or_default() += 1;
    });
    found
}

/// Prints the matches of which the engines report different numbers. Some differ by design: tunnels and protocols that one of
/// the engines does not decode, and rules about the beginning of a stream, of which Suricata reports packet and stream.
#[test]
#[ignore = "a comparison that takes minutes"]
fn comparison_with_suricata() {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let Some(program) = std::env::split_paths(&paths).map(|path| path.join("suricata")).find(|path| path.is_file())
    else {
        return println!("skipped: suricata is not installed");
    };
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ids/engine/tests/keywords.rules");
    let text = std::fs::read_to_string(&rules).unwrap();
    let folder = std::env::temp_dir().join(format!("bondstone-suricata-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut captures: Vec<_> = ["dpi", "ids"].map(|name| data().join(name)).into_iter().flat_map(files).collect();
    captures.extend(captures.clone().into_iter().filter(|path| path.is_dir()).map(|path| path.join("input.pcap")));
    captures.retain(|path| path.extension().is_some_and(|kind| kind == "pcap" || kind == "pcapng"));
    let (mut same, mut different) = (0, 0);
    for capture in &captures {
        let (theirs, ours) = (suricata(&program, &folder, &rules, capture), own(&text, capture));
        let name = capture.strip_prefix(data()).unwrap().display();
        for key in theirs.keys().chain(ours.keys().filter(|key| !theirs.contains_key(key))) {
            let [suricata, own] = [&theirs, &ours].map(|found| found.get(key).copied().unwrap_or(0));
            if suricata == own {
                same += 1;
            } else {
                different += 1;
                println!("{name}: {key:?}: {suricata} alerts of Suricata, {own} here");
            }
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
    println!("{same} matches with the same number of alerts, {different} with another");
}

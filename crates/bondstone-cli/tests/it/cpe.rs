//! `examples/cpe.toml` between a household and servers: nginx, dnsmasq and iperf3.

use crate::common::gateway::{accounted, dns, example, plug_hosts, start};
use crate::common::namespace::{Namespace, done, possible};
use crate::common::traffic::{Web, iperf3};
use crate::common::{Scratch, alone};
use serde_json::Value;

const TOOLS: [&str; 6] = ["ping", "curl", "nginx", "iperf3", "dnsmasq", "dig"];

#[test]
fn a_household_shares_a_line() {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    let [home, remote, gateway] = ["home", "remote", "m"].map(|n| Namespace::new(&format!("cpe-{n}")));
    let bondstone = start(&gateway, &example(&scratch, "cpe.toml"));
    plug_hosts(&gateway, &home, &remote);
    done(home.command("ping").args(["-n", "-c", "3", "-i", "0.1", "-w", "100", "198.51.100.7"]));

    let web = Web::start(&scratch, &remote, "outside", 1 << 20);
    web.fetch(&home, "198.51.100.7:8080");
    let _names = dns(&remote, "198.51.100.7");
    let dig = ["+short", "+tries=30", "+time=2", "@203.0.113.1", "www.example"];
    let reply = home.command("dig").args(dig).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&reply.stdout).lines().last(), Some("198.51.100.7"));
    // several seconds, as the first ones fill the queue of the server, too
    let download = iperf3(&home, &remote, "-c 198.51.100.7 -t 4 -R", "/end/sum_received/bytes");
    let upload = iperf3(&home, &remote, "-c 198.51.100.7 -t 4", "/end/sum_received/bytes");
    let rate = |report: &Value| report["end"]["sum_received"]["bits_per_second"].as_f64().unwrap() / 1e6;
    let (down, up) = (rate(&download), rate(&upload));
    println!("download {down:.1} Mbit/s, upload {up:.1} Mbit/s");
    // the rates of the line are never exceeded; bytes of headers are not counted
    assert!(down < 100.0 && up < 40.0, "{down} {up}");

    let summary = bondstone.terminate().summary(130);
    accounted(&summary);
    let apps = summary.nf("apps");
    let table = apps.0["table"].to_string();
    assert!(table.contains("http") && table.contains("dns"), "{}", apps.0);
    for line in ["down", "up"] {
        let nf = summary.nf(line);
        assert!(nf.number("/counters/names_sent") > 0 && nf.number("/counters/rest_sent") > 100, "{}", nf.0);
        assert_eq!(nf.number("/counters/voice_sent") + nf.number("/counters/sharing_sent"), 0, "{}", nf.0);
    }
    let vanished = ["vanished", "no_edge", "nf_panic"];
    for name in ["apps", "fw", "router", "nat", "down", "up"] {
        let nf = summary.nf(name);
        assert!(vanished.iter().all(|reason| nf.0["drops"].get(reason).is_none()), "{}", nf.0);
    }
}

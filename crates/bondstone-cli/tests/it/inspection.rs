//! `examples/ids.toml` and `examples/branch.toml` between real clients and servers.

use crate::common::gateway::{accounted, dns, example, plug, plug_hosts, start};
use crate::common::namespace::{Namespace, done, possible};
use crate::common::traffic::Web;
use crate::common::{Scratch, Summary, alone};
use serde_json::Value;
use std::path::Path;

const TOOLS: [&str; 5] = ["ping", "curl", "nginx", "dnsmasq", "dig"];
const FORBIDDEN: &[u8] = b"a page with FORBIDDEN-CONTENT-1234, an EXAMPLE";

/// An example with the rules that it names.
fn with_rules(scratch: &Scratch, name: &str) -> std::path::PathBuf {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/local.rules");
    scratch.write("local.rules", std::fs::read_to_string(rules).unwrap());
    example(scratch, name)
}

/// Sends what the rules match, and what they do not match, from `client` to `server` with this address.
fn exchange(scratch: &Scratch, client: &Namespace, server: &Namespace, address: &str) {
    let web = Web::start(scratch, server, "allowed", 1 << 20);
    web.fetch(client, &format!("{address}:8080"));
    // matched by an alert rule: the server answers
    let url = format!("http://{address}:8080/../../etc/passwd");
    let status = ["-s", "--path-as-is", "--max-time", "60", "-o", "/dev/null", "-w", "%{http_code}"];
    let said = done(client.command("curl").args(status).arg(url));
    assert_eq!(String::from_utf8_lossy(&said.stdout), "400");
    drop(web);
    let _web = Web::serve(scratch, server, "forbidden", FORBIDDEN.to_vec());
    let url = format!("http://{address}:8080/content");
    let refused = client.command("curl").args(["-sS", "--max-time", "3"]).arg(url).output().unwrap();
    assert!(!refused.status.success() && refused.stdout != FORBIDDEN, "{refused:?}");

    // a reset ends the connection; 7: cannot connect, 28: no answer in time
    let telnet = format!("telnet://{address}:23");
    let refused = client.command("curl").args(["-sS", "--connect-timeout", "100"]).arg(telnet).output().unwrap();
    assert_eq!(refused.status.code(), Some(7), "{refused:?}");

    let _names = dns(server, address);
    let query = |name: &str, more: &[&str]| {
        let said =
            client.command("dig").arg("+short").arg(format!("@{address}")).arg(name).args(more).output().unwrap();
        String::from_utf8_lossy(&said.stdout).lines().last().map(str::to_owned)
    };
    assert_eq!(query("www.example", &["+tries=30", "+time=2"]).as_deref(), Some(address));
    let reply = query("www.malware.example", &["+tries=1", "+time=1"]);
    assert!(reply.is_none_or(|reply| reply.starts_with(";;")), "a dropped query is answered");
}

/// The log has the alerts that the counters have, with these ends.
fn check_log(scratch: &Scratch, summary: &Summary, hosts: [&str; 2]) {
    let nf = summary.nf("ips");
    let text = std::fs::read_to_string(scratch.path("alerts.json")).unwrap();
    let alerts: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(alerts.len() as u64 + nf.number("/counters/lost_alerts"), nf.number("/counters/alerts"), "{}", nf.0);
    assert_eq!((nf.number("/counters/rules"), nf.number("/counters/refused_rules")), (5, 0));
    let of = |sid: u64| alerts.iter().filter(move |alert| alert["alert"]["signature_id"] == sid);
    for (sid, action, server_port) in
        [(1_000_001, "allowed", 8080), (1_000_002, "blocked", 8080), (1_000_003, "blocked", 53)]
    {
        let first = of(sid).next().unwrap_or_else(|| panic!("no alert {sid}: {text}"));
        assert_eq!(first["alert"]["action"], action, "{first}");
        let [from, to] = if sid == 1_000_002 { [("src", 1), ("dest", 0)] } else { [("src", 0), ("dest", 1)] };
        for (end, host) in [from, to] {
            assert_eq!(first[format!("{end}_ip")], hosts[host], "{first}");
        }
        let port = if sid == 1_000_002 { "src_port" } else { "dest_port" };
        assert_eq!(first[port], server_port, "{first}");
    }
    assert_eq!([1_000_001, 1_000_005].map(|sid| of(sid).count()), [1, 1], "{text}");
    assert_eq!((nf.number("/drops/reject_rule"), nf.number("/counters/replies")), (1, 1), "{}", nf.0);
    assert!(nf.number("/drops/drop_rule") > 0, "{}", nf.0);
}

#[test]
fn an_intrusion_prevention_system_stands_between_hosts() {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    let [client, server, between] = ["client", "server", "m"].map(|n| Namespace::new(&format!("ids-{n}")));
    let bondstone = start(&between, &with_rules(&scratch, "ids.toml"));
    plug(&between, "lan0", &client, &["192.0.2.1/24"]);
    plug(&between, "wan0", &server, &["192.0.2.129/24"]);
    exchange(&scratch, &client, &server, "192.0.2.129");
    let summary = bondstone.terminate().summary(130);
    accounted(&summary);
    check_log(&scratch, &summary, ["192.0.2.1", "192.0.2.129"]);
}

#[test]
fn a_branch_office_reaches_servers() {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    let [home, remote, gateway] = ["home", "remote", "m"].map(|n| Namespace::new(&format!("branch-{n}")));
    let bondstone = start(&gateway, &with_rules(&scratch, "branch.toml"));
    plug_hosts(&gateway, &home, &remote);
    done(home.command("ping").args(["-n", "-c", "3", "-i", "0.1", "-w", "100", "198.51.100.7"]));
    exchange(&scratch, &home, &remote, "198.51.100.7");
    let summary = bondstone.terminate().summary(130);
    accounted(&summary);
    check_log(&scratch, &summary, ["192.168.1.10", "198.51.100.7"]);
    let apps = summary.nf("apps").0["table"].to_string();
    assert!(apps.contains("http") && apps.contains("dns"), "{apps}");
    let vanished = ["vanished", "no_edge", "nf_panic"];
    for name in ["apps", "ips", "fw", "router", "nat"] {
        let nf = summary.nf(name);
        assert!(vanished.iter().all(|reason| nf.0["drops"].get(reason).is_none()), "{}", nf.0);
    }
}

//! `bondstone nat` and `bondstone maglev`: sessions and backends of NFs that forward.

use crate::common::flows::{FLOWS, capture, chain, json, until};
use crate::common::gateway::accounted;
use crate::common::instance::{command, start};
use crate::common::{Scratch, Summary, alone};
use std::collections::BTreeSet;

/// Lists the sessions that `frame` creates, and closes some; `inside` is the inside end of flow number `n`.
fn sessions(settings: &str, frame: impl Fn(u16) -> Vec<u8>, inside: impl Fn(u16) -> String) {
    let scratch = Scratch::new();
    capture(&scratch, frame);
    let dir = scratch.path("sockets");
    let edge = scratch.write("edge.toml", chain(&format!("[nf.nat]\n{settings}"), "\"nat:inside\""));
    let running = start(&dir, &edge, &[]);
    let list = |arguments: &[&str]| {
        let list = json(&dir, &[&["nat", "sessions", "--json"], arguments].concat());
        list["sessions"].as_array().unwrap().clone()
    };
    until("all sessions exist", || list(&["--limit", "0"]).len() == usize::from(FLOWS));
    let all = list(&["nat", "--limit", "0"]);
    let ends = |name: &str| all.iter().map(|s| s[name].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(ends("inside"), (0..FLOWS).map(&inside).collect());
    assert_eq!(ends("peer"), BTreeSet::from(["198.51.100.1:53".to_owned()]));
    assert_eq!((ends("outside").len(), ends("protocol").len()), (usize::from(FLOWS), 1));
    assert!(all.iter().all(|s| s["state"] == "active" && (295..=300).contains(&s["expires_s"].as_u64().unwrap())));
    assert_eq!((list(&[]).len(), list(&["--limit", "7"]).len()), (100, 7));
    // every condition has to be met
    let (host, port) = (inside(7), inside(7).rsplit_once(':').unwrap().1.to_owned());
    assert_eq!(list(&["--filter", &host])[0]["inside"], host.as_str());
    let both = list(&["--filter", "udp", "--filter", &format!(":{port}"), "--filter", "198.51.100.0/24"]);
    assert!(both.iter().any(|s| s["inside"] == host.as_str()) && both.len() <= 2, "{both:?}");
    assert_eq!(list(&["--filter", "tcp"]).len(), 0);
    assert!(command(&dir, &["nat", "sessions", "--filter", &host]).out.contains("198.51.100.1:53  active"));

    for (arguments, words) in [
        (&["sessions", "--filter", "10.0.0.0/99"][..], ["\"10.0.0.0/99\"", "help: write tcp, udp"]),
        (&["sessions", "other"], ["\"other\"", "name one of nat"]),
        (&["close"], ["no sessions are selected", "--all"]),
    ] {
        let said = command(&dir, &[&["nat"], arguments].concat());
        assert_eq!(said.status, Some(2), "{}", said.err);
        assert!(words.iter().all(|word| said.err.contains(word)), "{}", said.err);
    }
    // closed sessions are created again by the next packets
    let mut closed = json(&dir, &["nat", "close", "--json", "--filter", &host])["closed"].as_u64().unwrap();
    assert_eq!(closed, 1);
    closed += json(&dir, &["nat", "close", "nat", "--json", "--all"])["closed"].as_u64().unwrap();
    assert!(closed > 1);
    until("all sessions exist again", || list(&["--limit", "0"]).len() == usize::from(FLOWS));

    assert_eq!(command(&dir, &["stop"]).status, Some(0));
    let summary = Summary(serde_json::from_str(&running.end().out).unwrap());
    accounted(&summary);
    let nat = summary.nf("nat");
    let counter = |name: &str| nat.0["counters"][name].as_u64().unwrap_or_default();
    assert_eq!((counter("closed"), counter("created")), (closed, u64::from(FLOWS) + closed), "{}", nat.0);
    assert_eq!((counter("sessions"), counter("ports")), (u64::from(FLOWS), u64::from(FLOWS)));
    assert_eq!(summary.0["drops"], serde_json::json!({}));
}

#[test]
fn sessions_of_nat44_are_those_created() {
    let _alone = alone();
    let host = |n: u16| [10, 0, 0, 1 + (n / 1000) as u8];
    sessions(
        "kind = \"nat44\"\nexternal = [\"203.0.113.1\"]",
        |n| wire::build::udp4(host(n), [198, 51, 100, 1], 2000 + n, 53).pad_to(60).to_vec(),
        |n| format!("10.0.0.{}:{}", host(n)[3], 2000 + n),
    );
}

#[test]
fn sessions_of_nat64_are_those_created() {
    let _alone = alone();
    let address = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap();
    sessions(
        "kind = \"nat64\"\nprefix = \"64:ff9b::/96\"\nexternal = [\"203.0.113.1\"]\ninside = [\"2001:db8::/32\"]",
        |n| wire::build::udp6(address("2001:db8::5"), address("64:ff9b::198.51.100.1"), 2000 + n, 53).to_vec(),
        |n| format!("[2001:db8::5]:{}", 2000 + n),
    );
}

#[test]
fn a_drained_backend_keeps_its_connections_and_gets_no_others() {
    let _alone = alone();
    let scratch = Scratch::new();
    capture(&scratch, |n| wire::build::udp4([10, 1, 0, 2], [192, 0, 2, 10], 2000 + n, 53).pad_to(60).to_vec());
    let dir = scratch.path("sockets");
    // half of the flows are new after the drain
    let nfs = "[nf.fw]\nkind = \"firewall\"\nrules = [\"drop sport 3500-65535\"]\ndefault = \"accept\"\n\
        [nf.lb]\nkind = \"maglev\"\nsource = [\"10.2.0.1\"]\n[nf.lb.service.dns]\nvip = [\"udp 192.0.2.10:53\"]\n\
        forward = \"gre\"\nhealth = { kind = \"none\" }\n\
        backend = { a = { address = \"10.2.0.11\" }, b = { address = \"10.2.0.12\" }, c = { address = \"10.2.0.13\", drain = true } }\n";
    let edge = scratch.write("edge.toml", chain(nfs, "\"fw\", \"lb\""));
    let running = start(&dir, &edge, &[]);
    let backends = || {
        let list = json(&dir, &["maglev", "backends", "--json"]);
        let backend =
            |b: &serde_json::Value| (b["state"].as_str().unwrap().to_owned(), b["connections"].as_u64().unwrap());
        list["backends"].as_array().unwrap().iter().map(backend).collect::<Vec<_>>()
    };
    let all = || backends().iter().map(|(_, connections)| connections).sum::<u64>();
    until("half of the connections exist", || all() == 1500);
    let before = backends();
    assert!(before[0].1 > 0 && before[1].1 > 0 && before[2] == ("draining".to_owned(), 0), "{before:?}");

    for (arguments, words) in [
        (["drain", "lb", "d"], ["\"d\": is not a backend", "name one of dns/a, dns/b, dns/c"]),
        (["drain", "fw", "a"], ["\"fw\": is of kind firewall", "name one of lb"]),
    ] {
        let said = command(&dir, &[&["maglev"], &arguments[..]].concat());
        assert_eq!(said.status, Some(2), "{}", said.err);
        assert!(words.iter().all(|word| said.err.contains(word)), "{}", said.err);
    }
    let said = command(&dir, &["maglev", "drain", "lb", "dns/a"]);
    assert_eq!((said.status, said.out.as_str()), (Some(0), "lb: dns/a is draining\n"), "{}", said.err);
    let only = command(&dir, &["maglev", "drain", "lb", "b"]);
    assert_eq!(only.status, Some(2), "{}", only.err);
    assert!(only.err.contains("the only backend of service dns") && only.err.contains("undrain"), "{}", only.err);
    assert_eq!(command(&dir, &["rules", "remove", "1"]).status, Some(0));
    until("the other connections exist", || all() == 3000);
    let after = backends();
    assert_eq!(after[0], ("draining".to_owned(), before[0].1));
    assert_eq!(after[1], ("up".to_owned(), 3000 - before[0].1));
    // its connections continue
    let packets = || json(&dir, &["maglev", "backends", "lb", "--json"])["backends"][0]["packets"].as_u64().unwrap();
    let now = packets();
    until("packets of the drained backend", || packets() > now);
    // also one that the settings drain
    for backend in ["a", "c"] {
        let said = command(&dir, &["maglev", "undrain", "lb", backend]);
        assert_eq!(said.out, format!("lb: dns/{backend} is up\n"), "{}", said.err);
    }
    assert!(command(&dir, &["maglev", "backends"]).out.contains("10.2.0.13  up"));

    assert_eq!(command(&dir, &["stop"]).status, Some(0));
    let summary = Summary(serde_json::from_str(&running.end().out).unwrap());
    accounted(&summary);
    assert_eq!(summary.0["drops"].as_object().unwrap().keys().collect::<Vec<_>>(), ["denied"]);
}

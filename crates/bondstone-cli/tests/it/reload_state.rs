//! State that NFs hand over when a reload changes their settings.

use crate::common::flows::{FLOWS, capture, chain, json, until};
use crate::common::gateway::accounted;
use crate::common::instance::{command, start};
use crate::common::{Scratch, Summary, alone};
use std::collections::BTreeMap;

#[test]
fn connections_of_a_load_balancer_stay_when_backends_change() {
    let _alone = alone();
    let scratch = Scratch::new();
    capture(&scratch, |n| wire::build::udp4([10, 1, 0, 2], [192, 0, 2, 10], 2000 + n, 53).pad_to(60).to_vec());
    let dir = scratch.path("sockets");
    let file = |backends: &[u8]| {
        let backends: Vec<_> = backends.iter().map(|n| format!("b{n} = {{ address = \"10.2.0.{n}\" }}")).collect();
        let nf = format!(
            "[nf.lb]\nkind = \"maglev\"\nsource = [\"10.2.0.1\"]\n[nf.lb.service.dns]\nvip = [\"udp 192.0.2.10:53\"]\n\
             forward = \"gre\"\nhealth = {{ kind = \"none\" }}\nbackend = {{ {} }}\n",
            backends.join(", ")
        );
        scratch.write("edge.toml", chain(&nf, "\"lb\""))
    };
    let running = start(&dir, &file(&[12, 13, 14]), &[]);
    // name, state, connections, packets
    let backends = || {
        let list = json(&dir, &["maglev", "backends", "--json"]);
        let text = |b: &serde_json::Value, key: &str| b[key].as_str().unwrap().to_owned();
        let number = |b: &serde_json::Value, key: &str| b[key].as_u64().unwrap();
        let backend = |b| (text(b, "backend"), text(b, "state"), number(b, "connections"), number(b, "packets"));
        list["backends"].as_array().unwrap().iter().map(backend).collect::<Vec<_>>()
    };
    let connections =
        || backends().into_iter().map(|(name, _, connections, _)| (name, connections)).collect::<Vec<_>>();
    let all = || connections().iter().map(|(_, connections)| connections).sum::<u64>();
    let counter = |name: &str| {
        let stats = json(&dir, &["stats", "--json"]);
        stats["nfs"][0]["counters"][name].as_u64().unwrap_or_default()
    };
    until("all connections exist", || all() == u64::from(FLOWS));
    let before = connections();
    assert_eq!(command(&dir, &["maglev", "drain", "lb", "b13"]).status, Some(0));

    // before and between the others
    file(&[11, 12, 13, 14]);
    let said = command(&dir, &["reload"]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    assert!(said.out.contains("reconfigured  nf lb (maglev): service; keeps connections"), "{}", said.out);
    // packets of all flows
    until("packets", || backends()[3].3 > 2 * u64::from(FLOWS));
    assert_eq!(connections(), [&[("b11".to_owned(), 0)], &before[..]].concat());
    assert_eq!((backends()[0].3, counter("moved"), counter("new")), (0, 0, 0));
    assert_eq!((backends()[2].1.as_str(), backends()[1].1.as_str()), ("draining", "up"));

    // connections of the removed backend move to others that are not drained
    file(&[11, 13, 14]);
    assert_eq!(command(&dir, &["reload"]).status, Some(0));
    until("connections have moved", || all() == u64::from(FLOWS) && counter("new") + counter("moved") == before[0].1);
    let after = connections();
    assert_eq!(after[1], before[1]);
    assert!(after[0].1 > 0 && after[2].1 >= before[2].1, "{before:?} {after:?}");

    assert_eq!(command(&dir, &["stop"]).status, Some(0));
    let summary = Summary(serde_json::from_str(&running.end().out).unwrap());
    accounted(&summary);
    assert_eq!(summary.0["drops"], serde_json::json!({}));
}

#[test]
fn sessions_of_nat44_stay_when_forwards_change() {
    let _alone = alone();
    let scratch = Scratch::new();
    capture(&scratch, |n| wire::build::udp4([10, 0, 0, 5], [198, 51, 100, 1], 2000 + n, 53).pad_to(60).to_vec());
    let dir = scratch.path("sockets");
    let file = |forwards: &str| {
        let nf = format!("[nf.nat]\nkind = \"nat44\"\nexternal = [\"203.0.113.1\"]\nforward = [{forwards}]\n");
        scratch.write("edge.toml", chain(&nf, "\"nat:inside\""))
    };
    let running = start(&dir, &file("\"udp 203.0.113.1:53 -> 10.0.0.5:2001\""), &[]);
    let sessions = || {
        let list = json(&dir, &["nat", "sessions", "--json", "--limit", "0"]);
        let text = |session: &serde_json::Value, key: &str| session[key].as_str().unwrap().to_owned();
        let sessions = list["sessions"].as_array().unwrap().iter();
        sessions.map(|session| (text(session, "inside"), text(session, "outside"))).collect::<BTreeMap<_, _>>()
    };
    let closed = || {
        let stats = json(&dir, &["stats", "--json"]);
        stats["nfs"][0]["counters"]["closed_by_reload"].as_u64().unwrap_or_default()
    };
    until("all sessions exist", || sessions().len() == usize::from(FLOWS));
    let before = sessions();
    assert_eq!(
        (before["10.0.0.5:2001"].as_str(), before["10.0.0.5:2000"].as_str()),
        ("203.0.113.1:53", "203.0.113.1:2000")
    );

    // a removed forward, a forward of a port that another host's session has, and one of a session's port to its host
    file("\"udp 203.0.113.1:2000 -> 10.0.0.6:53\", \"udp 203.0.113.1:2002 -> 10.0.0.5:2002\"");
    let said = command(&dir, &["reload"]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    assert!(said.out.contains("reconfigured  nf nat (nat44): forward; keeps sessions"), "{}", said.out);
    until("two sessions are closed", || closed() == 2);
    // by the next packets
    until("all sessions exist again", || sessions().len() == usize::from(FLOWS));
    let after = sessions();
    let changed: Vec<_> =
        before.iter().filter(|(inside, outside)| after[*inside] != **outside).map(|(i, _)| i).collect();
    assert_eq!(changed, ["10.0.0.5:2000", "10.0.0.5:2001"]);

    assert_eq!(command(&dir, &["stop"]).status, Some(0));
    let summary = Summary(serde_json::from_str(&running.end().out).unwrap());
    accounted(&summary);
    assert_eq!(summary.0["drops"], serde_json::json!({}));
}

//! Reloads through the control socket, by SIGHUP and by `--watch`, and `bondstone diff`.

use crate::common::gateway::{Download, accounted, example, plug, plug_hosts, start_with_socket};
use crate::common::instance::{CHAIN, command, start};
use crate::common::namespace::{Namespace, possible};
use crate::common::{Scratch, Summary, alone};
use rustix::process::Signal;
use std::path::Path;

/// Names of the NFs that the instance has had, and whether they process packets now.
fn nfs(dir: &Path) -> Vec<(String, u64)> {
    let said = command(dir, &["stats", "--json"]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    let stats: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let nf = |nf: &serde_json::Value| (nf["name"].as_str().unwrap().to_owned(), nf["packets"].as_u64().unwrap());
    stats["nfs"].as_array().unwrap().iter().map(nf).collect()
}

#[test]
fn the_chain_file_is_reloaded_on_request() {
    let _alone = alone();
    let scratch = Scratch::new();
    let (dir, edge) = (scratch.path("sockets"), scratch.write("edge.toml", CHAIN));
    let mut running = start(&dir, &edge, &[]);
    let longer = CHAIN.replace("\"hops\", ", "\"hops\", \"count\", ");

    let same = command(&dir, &["reload"]);
    assert_eq!((same.status, same.out.lines().next()), (Some(0), Some("no changes")), "{}", same.err);
    scratch.write("edge.toml", &longer);
    let said = command(&dir, &["reload", "--json"]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    let result: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert!(
        result["changes"]["nfs"][1]["change"] == "added" && result["changes"]["nfs"][0]["change"] == "kept",
        "{result}"
    );
    assert!(result["build_ms"].as_f64() >= Some(0.0) && result["exchange_ms"].as_f64() > Some(0.0), "{result}");
    running.wait_for("the reload", |line| line.contains("added") && line.contains("nf count"));
    assert!(nfs(&dir).iter().all(|(_, packets)| *packets > 0), "{:?}", nfs(&dir));

    // an error changes nothing
    let wrong = scratch.write("wrong.toml", CHAIN.replace("ttl", "tll"));
    for file in [wrong.to_str().unwrap(), "absent.toml"] {
        let said = command(&dir, &["reload", file]);
        assert_eq!(said.status, Some(2), "{}", said.err);
        assert!(said.err.contains(Path::new(file).file_name().unwrap().to_str().unwrap()), "{}", said.err);
    }
    let said = command(&dir, &["reload", wrong.to_str().unwrap()]);
    assert!(said.err.contains("wrong.toml:7:8") && said.err.contains("ttl"), "{}", said.err);
    let resized = scratch.write("resized.toml", longer.replace("[port.out]\n", "[port.out]\ndescriptors = 512\n"));
    let said = command(&dir, &["reload", resized.to_str().unwrap()]);
    assert!(
        said.err.contains("port \"out\", whose device is open, cannot be changed by a reload")
            && said.err.contains("help:"),
        "{}",
        said.err
    );
    // another device is opened before the one that it replaces is closed
    let moved = scratch.write("moved.toml", longer.replace("device = \"null\"\n[nf", "device = \"ring\"\n[nf"));
    let said = command(&dir, &["reload", moved.to_str().unwrap()]);
    assert!(said.status == Some(0) && said.out.contains("changed       port out"), "{}{}", said.out, said.err);
    assert_eq!(nfs(&dir).len(), 2);

    // another file, which SIGHUP then reads again
    let other = scratch.write("other.toml", CHAIN.replace("hops", "third"));
    assert_eq!(command(&dir, &["reload", other.to_str().unwrap()]).status, Some(0));
    scratch.write("other.toml", CHAIN.replace("hops", "fourth"));
    running.signal(Signal::HUP);
    running.wait_for("the reload", |line| line.contains("added") && line.contains("nf fourth"));
    assert_eq!(
        nfs(&dir).iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["hops", "count", "third", "fourth"]
    );
    assert_eq!(command(&dir, &["stop"]).status, Some(0));
    let summary: serde_json::Value = serde_json::from_str(&running.end().out).unwrap();
    accounted(&Summary(summary));
}

#[test]
fn a_watched_file_is_reloaded_when_it_or_one_that_it_names_changes() {
    let _alone = alone();
    let scratch = Scratch::new();
    let (dir, rules) = (scratch.path("sockets"), scratch.write("routes.txt", "10.0.0.0/8 blackhole\n"));
    let chain = "bondstone = 1\n[port.a]\ndevice = \"null\"\n[port.b]\ndevice = \"null\"\n[nf.router]\nkind = \"l3fwd\"\n\
        routes = \"routes.txt\"\ninterface.a = { addresses = [\"192.0.2.1/24\"] }\ninterface.b = { addresses = [\"198.51.100.1/24\"] }\n\
        [[chain]]\npath = [\"a\", \"router\"]\n[[chain]]\npath = [\"b\", \"router\"]\n";
    let edge = scratch.write("edge.toml", chain);
    let mut running = start(&dir, &edge, &["--watch"]);
    scratch.write("edge.toml", chain.replace("198.51.100.1/24", "198.51.100.2/24"));
    running.wait_for("a reload", |line| line.contains("interface; keeps neighbours"));
    std::fs::write(&rules, "10.0.0.0/8 blackhole\n11.0.0.0/8 blackhole\n").unwrap();
    running.wait_for("a reload", |line| line.contains("reconfigured") && !line.contains("interface"));
    std::fs::write(&rules, "nonsense\n").unwrap();
    running.wait_for("an error", |line| line.contains("nonsense"));
    std::fs::write(&rules, "12.0.0.0/8 blackhole\n").unwrap();
    running.wait_for("a reload", |line| line.contains("reconfigured"));
    assert_eq!(command(&dir, &["stop"]).status, Some(0));
    assert_eq!(running.end().status, Some(0));
}

#[test]
fn differences_are_told_before_a_reload() {
    let scratch = Scratch::new();
    let with_nat = |udp: u32, external: &str| {
        CHAIN.replace("\"hops\", ", "\"hops\", \"nat:inside\", ").replace(
            "[[chain]]",
            &format!("[nf.nat]\nkind = \"nat44\"\nexternal = [\"{external}\"]\ntimers = {{ udp = {udp} }}\n[[chain]]"),
        )
    };
    let [a, b, c, d] = [
        with_nat(300, "203.0.113.1"),
        with_nat(60, "203.0.113.1"),
        with_nat(60, "203.0.113.2"),
        CHAIN.replace("[[chain]]\n", "[[chain]]\ncores = [0]\n"),
    ]
    .map(|text| scratch.write(format!("{:x}.toml", text.len() ^ text.bytes().map(usize::from).sum::<usize>()), text));
    let diff = |old: &Path, new: &Path| {
        let said = command(&scratch.path("sockets"), &["diff", old.to_str().unwrap(), new.to_str().unwrap()]);
        assert_eq!(said.status, Some(0), "{}", said.err);
        said.out
    };
    assert_eq!(diff(&a, &a), "no changes\n");
    assert_eq!(diff(&a, &b), "reconfigured  nf nat (nat44): timers; keeps sessions\nkept          nf hops\n");
    assert_eq!(diff(&b, &c), "rebuilt       nf nat (nat44): external; starts without state\nkept          nf hops\n");
    let removed = diff(&c, &d);
    assert!(removed.contains("removed       nf nat (nat44)\nchanged       chain "), "{removed}");
}

/// A download through the gateway, while its rules, timers and routes change all the time.
#[test]
fn tcp_connections_survive_reloads() {
    let _alone = alone();
    if !possible(&["iperf3"]) {
        return;
    }
    let scratch = Scratch::new();
    let [home, remote, gateway] = ["home", "remote", "m"].map(|n| Namespace::new(&format!("reload-{n}")));
    let (dir, file) = (scratch.path("sockets"), example(&scratch, "home-gateway.toml"));
    let text = std::fs::read_to_string(&file).unwrap();
    let bondstone = start_with_socket(&gateway, &file, &dir);
    plug_hosts(&gateway, &home, &remote);
    let download = Download::start(&home, &remote, 4);
    let rules = |n: u32| format!("default = \"drop\"\nrules = [\"drop dst 192.0.2.{n}\",");
    for n in 0..20 {
        let mut text = text.replace("default = \"drop\"\n", "").replace("rules = [", &rules(n));
        if n % 2 == 1 {
            text = text.replace("unmatched = \"pass\"", "unmatched = \"pass\"\ntimers = { udp = 200 }");
        }
        if n % 3 == 1 {
            text = text.replace(
                "via = [\"203.0.113.1\"] }]",
                "via = [\"203.0.113.1\"] }, { prefix = \"10.0.0.0/8\", to = \"blackhole\" }]",
            );
        }
        if n % 4 == 3 {
            text = text.replace("\"lan\", \"fw\"", "\"lan\", \"count\", \"fw\"");
        }
        std::fs::write(&file, text).unwrap();
        let said = command(&dir, &["reload"]);
        assert_eq!(said.status, Some(0), "{}", said.err);
        assert!(said.out.contains("keeps connections"), "{}", said.out);
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    download.end();
    let summary = bondstone.terminate().summary(130);
    accounted(&summary);
    let lost = ["vanished", "no_edge", "nf_panic"];
    assert!(lost.iter().all(|reason| summary.0["drops"].get(reason).is_none()), "{}", summary.0["drops"]);
}

/// During a download, a third network comes and goes, and the chains move between CPUs.
#[test]
fn ports_and_cpus_change_during_a_download() {
    let _alone = alone();
    if !possible(&["iperf3"]) {
        return;
    }
    let scratch = Scratch::new();
    let [home, guest, remote, gateway] =
        ["home", "guest", "remote", "m"].map(|n| Namespace::new(&format!("ports-{n}")));
    let (dir, file) = (scratch.path("sockets"), example(&scratch, "home-gateway.toml"));
    let text = std::fs::read_to_string(&file).unwrap();
    let bondstone = start_with_socket(&gateway, &file, &dir);
    plug_hosts(&gateway, &home, &remote);
    let download = Download::start(&home, &remote, 6);
    let with_guests = text
        .replace("rules = [", "rules = [\"accept src 192.168.2.0/24\",")
        .replace("inside = [", "inside = [\"192.168.2.0/24\", ")
        .replace(
            "route = [{",
            "interface.guest = { addresses = [\"192.168.2.1/24\"], mac = \"02:00:00:00:03:00\" }\nroute = [{",
        )
        .replace("[port.wan]", "[port.guest]\ndevice = \"tap:guest0\"\n\n[port.wan]")
        .replace(
            "# Traffic of",
            "[[chain]]\ncores = [0]\nname = \"guests\"\npath = [\"guest\", \"fw\", \"router\"]\n\n# Traffic of",
        );
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let text_with = |guests: bool, n: usize| {
        let of = if guests { &with_guests } else { &text };
        std::fs::write(&file, of.replace("cores = [0]", &format!("cores = [{}]", n % cpus))).unwrap();
        let said = command(&dir, &["reload"]);
        assert_eq!(said.status, Some(0), "{}", said.err);
        said.out
    };
    for n in 0..4 {
        let said = text_with(true, n);
        assert!(said.contains("added         port guest") && said.contains("keeps sessions"), "{said}");
        plug(&gateway, "guest0", &guest, &["192.168.2.10/24"]);
        guest.ip("route add default via 192.168.2.1");
        assert!(
            guest.command("ping").args(["-c", "3", "-i", "0.2", "198.51.100.7"]).output().unwrap().status.success()
        );
        // only the CPU
        text_with(true, n + 1);
        assert!(guest.command("ping").args(["-c", "1", "-W", "2", "198.51.100.7"]).output().unwrap().status.success());
        let said = text_with(false, n + 1);
        assert!(said.contains("removed       port guest"), "{said}");
        let left = guest.command("ip").args(["link", "show", "guest0"]).output().unwrap();
        assert!(!left.status.success(), "the tap is closed");
    }
    download.end();
    let summary = bondstone.terminate().summary(130);
    accounted(&summary);
    assert!(summary.port("guest").number("/received") >= 16, "{}", summary.0["ports"]);
}

#[test]
fn chains_in_front_of_a_sandbox_are_reloaded() {
    let _alone = alone();
    let scratch = Scratch::new();
    let text = CHAIN
        .replace("\"hops\", ", "\"hops\", \"inner\", ")
        .replace("[[chain]]", "[nf.inner]\nkind = \"count\"\nisolation = \"process\"\n[[chain]]");
    let (dir, file) = (scratch.path("sockets"), scratch.write("edge.toml", &text));
    let running = start(&dir, &file, &[]);
    scratch.write(
        "edge.toml",
        text.replace("\"hops\", ", "\"hops\", \"seen\", ")
            .replace("[nf.hops]", "[nf.seen]\nkind = \"count\"\n[nf.hops]"),
    );
    let said = command(&dir, &["reload"]);
    assert!(said.status == Some(0) && said.out.contains("added         nf seen"), "{}{}", said.out, said.err);
    let passed = |dir: &Path| nfs(dir).into_iter().find(|(name, _)| name == "inner").unwrap().1;
    let before = passed(&dir);
    assert!((0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        passed(&dir) > before
    }));
    assert_eq!(command(&dir, &["stop"]).status, Some(0));
    let summary = Summary(serde_json::from_str(&running.end().out).unwrap());
    assert_eq!(summary.0["sandboxes"][0]["starts"], 1);
    accounted(&summary);
}

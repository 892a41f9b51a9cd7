//! TCP connections of the generator through NFs, and with the TCP of the kernel.

use crate::common::namespace::possible;
use crate::common::{Said, Scratch, alone, bondstone};

const PORTS: &str = "bondstone = 1\nport.in.device = \"ring:in\"\nport.out.device = \"ring:out\"\n";
const BOTH_WAYS: &str = "chain = [{ path = [\"in\", \"out\"] }, { path = [\"out\", \"in\"] }]\n";

fn bench(scratch: &Scratch, file: &str, text: &str, arguments: &[&str]) -> Said {
    let file = scratch.write(file, text);
    let (db, page) = (scratch.path("results.sqlite"), scratch.path("report.html"));
    let fixed = ["bench", file.to_str().unwrap(), "--db", db.to_str().unwrap(), "--report", page.to_str().unwrap()];
    bondstone(fixed.iter().chain(arguments).copied())
}

/// Returns the counts of all trials together; opened, completed, and failed by cause in the order of the document.
fn sums(result: &report::Result) -> (u64, u64, [u64; 6]) {
    let trials = result.trials.iter().map(|trial| trial.connections.as_ref().unwrap());
    trials.fold((0, 0, [0; 6]), |(opened, completed, mut failed), counts| {
        for (sum, (_, n)) in failed.iter_mut().zip(counts.failed.causes()) {
            *sum += n;
        }
        (opened + counts.opened, completed + counts.completed, failed)
    })
}

/// Offers connections at a low rate; returns the result after a check of its accounting.
#[track_caller]
fn offer(text: &str, tcp: &str, rate: &str) -> report::Result {
    let scratch = Scratch::new();
    let said = bench(&scratch, "chain.toml", text, &["--tcp", tcp, "--rate", rate, "--loss", "99%", "--json"]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    let result = said.results().remove(0);
    result.check().unwrap();
    let (opened, completed, failed) = sums(&result);
    assert_eq!(opened, completed + failed.iter().sum::<u64>(), "{failed:?}");
    assert!(opened > 100, "{opened}");
    result
}

fn reasons(result: &report::Result) -> Vec<&str> {
    result.nodes.iter().flat_map(|node| node.dropped.keys().map(String::as_str)).collect()
}

#[test]
fn connections_pass_an_address_translator() {
    let _alone = alone();
    let nat = "[nf.nat]\nkind = \"nat44\"\nexternal = [\"203.0.113.0/28\"]\nsessions = 200000\n\
               [[chain]]\npath = [\"in\", \"nat:inside\", \"out\"]\n[[chain]]\npath = [\"out\", \"nat:outside\", \"in\"]\n\
               [traffic]\nsrc = \"10.0.0.0/24\"\n";
    let result = offer(&format!("{PORTS}{nat}"), "request=200,response=5000,transactions=2", "2kcps");
    let (opened, completed, _) = sums(&result);
    // a busy machine may lose some
    assert!(completed > opened * 9 / 10, "{completed} of {opened}: {:?}", reasons(&result));
    let whole = result.trials.iter().map(|trial| trial.connections.as_ref().unwrap()).find(|c| c.completed == c.opened);
    let whole = whole.expect("a trial without loss");
    assert_eq!((whole.transactions, whole.bytes_received), (2 * whole.opened, 10_000 * whole.opened));
    assert_eq!(
        (result.traffic.tcp.as_deref(), result.traffic.flows),
        (Some("request=200,response=5000,transactions=2"), 65_536)
    );
    assert!(result.quantity("connection setup time p50").unwrap().value > 0.0);
}

#[test]
fn connections_pass_a_load_balancer_that_encapsulates_or_translates() {
    let _alone = alone();
    for (forward, backwards, tcp) in [
        ("nat", "[[chain]]\npath = [\"out\", \"lb:backends\", \"in\"]\n", "response=3000"),
        ("gre", "", "response=3000,dsr"),
        ("ipip", "", "response=3000,dsr"),
    ] {
        let port = if forward == "nat" { ", port = 8080" } else { "" };
        let balancer = format!(
            "[nf.lb]\nkind = \"maglev\"\nsource = [\"192.0.2.1\"]\n[nf.lb.service.web]\nvip = [\"tcp 192.0.2.10:80\"]\n\
             forward = \"{forward}\"\nbackend.a = {{ address = \"10.0.0.1\"{port} }}\n\
             backend.b = {{ address = \"10.0.0.2\"{port} }}\n[[chain]]\npath = [\"in\", \"lb\", \"out\"]\n{backwards}\
             [traffic]\nsrc = \"10.128.0.0/16\"\ndst = [\"192.0.2.10/32\"]\ndst_port = 80\n"
        );
        let result = offer(&format!("{PORTS}{balancer}"), tcp, "2kcps");
        let (opened, completed, _) = sums(&result);
        assert!(completed > opened * 9 / 10, "{forward}: {completed} of {opened}: {:?}", reasons(&result));
    }
}

#[test]
fn failures_have_the_cause_that_was_planted() {
    let _alone = alone();
    let lossy = format!(
        "{PORTS}nf.cut = {{ kind = \"impair\", loss = 0.05 }}\n[[chain]]\npath = [\"in\", \"out\"]\n\
         [[chain]]\npath = [\"out\", \"cut\", \"in\"]\n"
    );
    let result = offer(&lossy, "response=3000", "2kcps");
    let (opened, completed, [no_syn_ack, refused, no_response, reset, early, not_closed]) = sums(&result);
    assert_eq!((refused, reset, early), (0, 0, 0));
    assert!(no_syn_ack != 0 && no_response > no_syn_ack && not_closed != 0, "{no_syn_ack} {no_response} {not_closed}");
    // five frames in the direction with loss
    let share = completed as f64 / opened as f64;
    assert!((0.65..0.9).contains(&share), "{share} of {:.3}", 0.95_f64.powi(5));
    // a busy machine may limit the generator
    assert_ne!(result.limited_by, report::LimitedBy::Dut, "the goal permits its loss");
    let retried = offer(&lossy, "response=3000,retries=9,timeout=20ms", "500cps");
    let (opened, completed, _) = sums(&retried);
    assert!(completed > opened * 95 / 100, "{completed} of {opened}");
    assert!(retried.quantity("retransmitted").unwrap().value > 0.0);
}

#[test]
fn the_capacity_of_a_nat_is_its_table() {
    let _alone = alone();
    let nat = "[nf.nat]\nkind = \"nat44\"\nexternal = [\"203.0.113.0/28\"]\nsessions = 3000\n\
               [[chain]]\npath = [\"in\", \"nat:inside\", \"out\"]\n[[chain]]\npath = [\"out\", \"nat:outside\", \"in\"]\n\
               [traffic]\nsrc = \"10.0.0.0/16\"\n";
    let scratch = Scratch::new();
    let options = ["--tcp", "response=100", "--flows", "10k", "--method", "concurrent-connections", "--json"];
    let said = bench(&scratch, "chain.toml", &format!("{PORTS}{nat}"), &options);
    assert_eq!(said.status, Some(0), "{}", said.err);
    let result = said.results().remove(0);
    result.check().unwrap();
    let capacity = result.quantity("concurrent connections").unwrap().value;
    assert!((2800.0..=3000.0).contains(&capacity), "{capacity}");
    assert_eq!(result.limited_by, report::LimitedBy::Dut);
}

#[test]
fn errors_name_the_remedy() {
    let scratch = Scratch::new();
    let one_way = format!("{PORTS}chain = [{{ path = [\"in\", \"out\"] }}]\n");
    let both = format!("{PORTS}{BOTH_WAYS}");
    for (text, arguments, status, words) in [
        (&one_way, &["--tcp", "response=5", "--rate", "1kcps"][..], 1, "dsr"),
        (&both, &["--tcp", "response=0", "--rate", "1kcps"], 2, "1 to 64000"),
        (&both, &["--rate", "1kcps"], 2, "--tcp"),
        (&both, &["--tcp", "response=5", "--rate", "1cps"], 2, "20"),
        (&both, &["--tcp", "response=5", "--rate", "5Mpps", "--method", "loss"], 2, "--rate"),
        (&both, &["--tcp", "response=5", "--frames", "64"], 2, "--frames"),
        (&both, &["--method", "concurrent-connections"], 1, "--tcp"),
    ] {
        let said = bench(&scratch, "chain.toml", text, arguments);
        assert_eq!(said.status, Some(status), "{arguments:?}: {}", said.err);
        assert!(said.err.contains(words), "{arguments:?}: {}", said.err);
    }
}

/// A relay in the DUT's namespace: its kernel is server of the generator's clients, and client of its servers.
#[test]
fn clients_and_servers_talk_to_the_kernel() {
    if !possible(&["python3"]) {
        return;
    }
    let _alone = alone();
    let scratch = Scratch::new();
    let relay = "import asyncio\n\
                 async def pump(reader, writer):\n    while data := await reader.read(65536):\n        \
                 writer.write(data)\n        await writer.drain()\n    writer.write_eof()\n\
                 async def relay(reader, writer):\n    there, back = await asyncio.open_connection(\"10.2.0.9\", 80)\n    \
                 await asyncio.gather(pump(reader, back), pump(there, writer))\n    back.close()\n    writer.close()\n\
                 async def main():\n    server = await asyncio.start_server(relay, \"0.0.0.0\", 50000, backlog=1000)\n    \
                 await server.serve_forever()\n\
                 asyncio.run(main())\n";
    let relay = scratch.write("relay.py", relay);
    let scenario = format!(
        "bondstone = 1\n[scenario]\ntitle = \"a TCP relay\"\n[dut]\nkind = \"command\"\nports = \"af_packet\"\n\
         forward = \"any\"\nstart = '''\nip link set $BONDSTONE_PORT0 address $BONDSTONE_MAC\n\
         for port in $BONDSTONE_PORT0 $BONDSTONE_PORT1; do ethtool -K $port tx off tso off gso off; done\n\
         ip addr add 198.18.255.254/16 dev $BONDSTONE_PORT0\nip addr add 10.2.0.1/24 dev $BONDSTONE_PORT1\n\
         ip link set lo up\nip route add local 198.19.0.0/16 dev lo\nexec python3 {}\n'''\n\
         ready = \"ss -ltn | grep -q :50000\"\n[traffic]\ntcp = \"response=20000,transactions=3,retries=8\"\nflows = 1000\n\
         [goal]\nrate = 4600\n",
        relay.display()
    );
    let said = bench(&scratch, "relay.toml", &scenario, &["--loss", "99%", "--json"]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    let result = said.results().remove(0);
    let (opened, completed, failed) = sums(&result);
    assert!(opened > 50 && completed == opened, "{completed} of {opened}: {failed:?}");
    let bytes: u64 = result.trials.iter().map(|trial| trial.connections.as_ref().unwrap().bytes_received).sum();
    assert_eq!(bytes, 60_000 * completed);
}

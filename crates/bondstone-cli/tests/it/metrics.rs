//! `run --metrics`: its numbers are those of `stats --json`, Prometheus accepts them, and adversarial clients stop neither.

use crate::common::{LIMIT, Running, Said, Scratch, alone, sandboxed_run::demo, sandboxed_run::until};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Starts a chain whose capture ends, and which then waits for a peer that never connects; returns its URL.
fn start(scratch: &Scratch) -> (Running, String) {
    let file = scratch.write(
        "edge.toml",
        format!(
            "bondstone = 1\n[port]\nin.device = \"pcap:{}\"\nout.device = \"null\"\n\
             idle.device = \"memif:{}\"\nsink.device = \"null\"\n[nf.hops]\nkind = \"ttl\"\n\
             [nf.fw]\nkind = \"firewall\"\nrules = [\"drop proto tcp\", \"accept proto udp\"]\ndefault = \"drop\"\n\
             track = {{ connections = 1000 }}\n\
             [[chain]]\npath = [\"in\", \"hops\", \"fw\", \"out\"]\n[[chain]]\npath = [\"idle\", \"sink\"]\n",
            demo(),
            scratch.path("idle.sock").display()
        ),
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_bondstone"));
    command.arg("run").arg(file).args(["--json", "--metrics", "127.0.0.1:0", "--control"]);
    let mut running = Running::start(command.arg(scratch.path("control.sock")));
    let lines = running.wait_for("the address of the metrics", |line| line.starts_with("note: metrics at "));
    running.started();
    let url = lines.last().unwrap().rsplit(' ').next().unwrap().to_owned();
    (running, url)
}

/// Waits until the capture is read.
fn wait_for_end_of_capture(scratch: &Scratch) -> Value {
    let mut before = Value::Null;
    until("the end of the capture", || {
        let now = stats(scratch);
        let same = now["totals"] == before["totals"] && now["totals"]["received"] != 0;
        before = now;
        std::thread::sleep(Duration::from_millis(200));
        same
    });
    before
}

fn stats(scratch: &Scratch) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bondstone"));
    let said: Said = command.arg("stats").arg(scratch.path("control.sock")).arg("--json").output().unwrap().into();
    assert_eq!(said.status, Some(0), "{}", said.err);
    serde_json::from_str(&said.out).unwrap()
}

/// Returns what `curl` receives, or `None` if it is not installed.
fn curl(arguments: &[&str]) -> Option<String> {
    let Ok(output) = Command::new("curl").args(["-sS", "--fail", "--max-time", "60"]).args(arguments).output() else {
        eprintln!("skipped: no curl on this machine");
        return None;
    };
    let said = Said::from(output);
    assert_eq!(said.status, Some(0), "{arguments:?}: {}", said.err);
    Some(said.out)
}

/// Returns the values of a scrape by name and labels.
fn values(text: &str) -> BTreeMap<&str, f64> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples.map(|line| line.rsplit_once(' ').unwrap()).map(|(name, value)| (name, value.parse().unwrap())).collect()
}

#[test]
fn numbers_are_those_of_stats() {
    let _alone = alone();
    let scratch = Scratch::new();
    let (running, url) = start(&scratch);
    wait_for_end_of_capture(&scratch);
    let Some(text) = curl(&[&url]) else { return };
    let (stats, scraped) = (stats(&scratch), values(&text));
    let mut compared = 0;
    let mut same = |name: String, value: &Value| {
        let scraped = scraped.get(name.as_str()).unwrap_or_else(|| panic!("no {name}\n{text}"));
        assert_eq!(Some(*scraped), value.as_f64(), "{name}\n{text}");
        compared += 1;
    };
    for field in ["received", "created", "sent"] {
        same(format!("bondstone_{field}_packets_total"), &stats["totals"][field]);
    }
    for (reason, n) in stats["drops"].as_object().unwrap() {
        same(format!("bondstone_dropped_packets_total{{reason=\"{reason}\"}}"), n);
    }
    for port in stats["ports"].as_array().unwrap() {
        let label = format!("{{port={}}}", port["name"]);
        for field in ["received", "sent", "missed", "copied"] {
            same(format!("bondstone_port_{field}_packets_total{label}"), &port[field]);
        }
        for field in ["received_bytes", "sent_bytes", "send_errors"] {
            same(format!("bondstone_port_{field}_total{label}"), &port[field]);
        }
        for (way, field) in [("receive", "cycles"), ("send", "cycles")] {
            same(format!("bondstone_port_{way}_{field}_total{label}"), &port[way][field]);
        }
    }
    for nf in stats["nfs"].as_array().unwrap() {
        let name = &nf["name"];
        same(format!("bondstone_nf_packets_total{{nf={name}}}"), &nf["packets"]);
        same(format!("bondstone_nf_timed_packets_total{{nf={name}}}"), &nf["cycles"]["packets"]);
        for (reason, n) in nf["drops"].as_object().unwrap() {
            same(format!("bondstone_nf_dropped_packets_total{{nf={name},reason=\"{reason}\"}}"), n);
        }
        let is_gauge = |counter: &String| nf["gauges"].as_array().is_some_and(|g| g.iter().any(|g| g == counter));
        for (counter, n) in nf["counters"].as_object().unwrap() {
            let labels = format!("{{nf={name},name=\"{counter}\"}}");
            match (is_gauge(counter), counter.starts_with(|c: char| c.is_ascii_digit())) {
                (_, true) => assert!(!text.contains(counter), "{text}"),
                (true, false) => same(format!("bondstone_nf_gauges{labels}"), n),
                (false, false) => same(format!("bondstone_nf_counters_total{labels}"), n),
            }
        }
    }
    for nf in stats["nfs"].as_array().unwrap() {
        for (table, of) in nf["occupancy"].as_object().into_iter().flatten() {
            let labels = format!("{{nf={},table=\"{table}\"}}", nf["name"]);
            same(format!("bondstone_nf_table_entries{labels}"), &of["used"]);
            same(format!("bondstone_nf_table_capacity{labels}"), &of["capacity"]);
        }
    }
    same("bondstone_pool_buffers".to_owned(), &stats["pool"]["capacity"]);
    for (cpu, worker) in stats["workers"].as_object().unwrap() {
        for (field, name) in [("received", "received_packets"), ("sent_to_links", "sent_to_links_packets")] {
            same(format!("bondstone_worker_{name}_total{{cpu=\"{cpu}\"}}"), &worker[field]);
        }
    }
    assert!(compared > 40 && stats["totals"]["dropped"] != 0 && stats["totals"]["sent"] != 0, "{stats}");
    assert_eq!(scraped["bondstone_port_link_up{port=\"idle\"}"], 0.0);
    assert_eq!(running.interrupt().status, Some(130));
}

#[test]
fn prometheus_accepts_and_scrapes_the_metrics() {
    let _alone = alone();
    let scratch = Scratch::new();
    if ["promtool", "prometheus"].iter().any(|tool| Command::new(tool).arg("--version").output().is_err()) {
        return eprintln!("skipped: no Prometheus on this machine");
    }
    let (_running, url) = start(&scratch);
    let stats = wait_for_end_of_capture(&scratch);
    let Some(text) = curl(&[&url]) else { return };
    let mut check = Command::new("promtool");
    check.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut check = check.spawn().unwrap();
    check.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let said = Said::from(check.wait_with_output().unwrap());
    assert_eq!((said.status, said.out + said.err.as_str()), (Some(0), String::new()), "{text}");

    // the scrape is in OpenMetrics, which Prometheus asks for
    let target = url.strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap();
    let config = scratch.write(
        "prometheus.yml",
        format!("scrape_configs: [{{job_name: b, scrape_interval: 100ms, scrape_timeout: 100ms, static_configs: [{{targets: ['{target}']}}]}}]\n"),
    );
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut server = Command::new("prometheus");
    server.arg(format!("--config.file={}", config.display())).arg(format!("--web.listen-address={free}"));
    server.arg(format!("--storage.tsdb.path={}", scratch.path("tsdb").display()));
    let _server = Running::start(&mut server);
    let query = |expression: &str| -> Option<Value> {
        let data = format!("query={expression}");
        let url = format!("http://{free}/api/v1/query");
        let output = Command::new("curl").args(["-sS", "-G", &url, "--data-urlencode", &data]).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).ok()
    };
    let mut value = None;
    until("a scrape", || {
        value = query("bondstone_nf_packets_total{nf=\"fw\"}")
            .and_then(|v| v["data"]["result"][0]["value"][1].as_str().map(str::to_owned));
        value.is_some()
    });
    let fw = stats["nfs"].as_array().unwrap().iter().find(|nf| nf["name"] == "fw").unwrap();
    assert_eq!(value.unwrap(), fw["packets"].to_string());
    let up = query("up").unwrap();
    assert_eq!(up["data"]["result"][0]["value"][1], "1", "{up}");
}

#[test]
fn adversarial_clients_stop_neither_the_run_nor_the_next_scrape() {
    let _alone = alone();
    let scratch = Scratch::new();
    let (running, url) = start(&scratch);
    let address = url.strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap().to_owned();
    let connect = || TcpStream::connect(&address).unwrap();
    let unfinished: Vec<_> = (0..100).map(|_| connect()).collect();
    unfinished.iter().for_each(|mut stream| drop(stream.write_all(b"GET /metrics HTTP/1.1\r\n")));
    let mut huge = connect();
    // the server closes the connection before it has read everything
    let _ = huge.write_all(&[&b"GET /metrics HTTP/1.1\r\nA: "[..], &vec![b'a'; 1 << 20]].concat());
    let _ = connect().write_all(&[0xff; 4096]);
    // requests whose responses are not read
    let unread: Vec<_> = (0..20).map(|_| connect()).collect();
    unread.iter().for_each(|mut stream| drop(stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")));
    let start = Instant::now();
    let Some(text) = curl(&[&url]) else { return };
    assert!(text.contains("bondstone_received_packets_total "), "{text}");
    assert!(start.elapsed() < LIMIT / 10, "{:?}", start.elapsed());
    let mut end = vec![];
    huge.set_read_timeout(Some(LIMIT)).unwrap();
    let _ = huge.read_to_end(&mut end);
    let end = String::from_utf8_lossy(&end);
    assert!(end.is_empty() || end.contains("431"), "{end}");
    // connections that are still open do not delay the end
    let ended = running.interrupt();
    ended.summary(130);
    drop((unfinished, unread));
}

#[test]
fn an_address_in_use_ends_the_run_with_a_remedy() {
    let _alone = alone();
    let scratch = Scratch::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let chain =
        "bondstone = 1\n[port]\nin.device = \"null\"\nout.device = \"null\"\n[[chain]]\npath = [\"in\", \"out\"]\n";
    let file = scratch.write("edge.toml", chain);
    let ended = Running::run(&file, &["--metrics", &address]).end();
    assert_eq!(ended.status, Some(3), "{}", ended.err);
    assert!(ended.err.contains(&address) && ended.err.contains("help:"), "{}", ended.err);
}

fn dashboard() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/grafana/bondstone.json")
}

/// Appends the expressions of all queries.
fn expressions(value: &Value, to: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            to.extend(fields.get("expr").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| expressions(value, to));
        }
        Value::Array(all) => all.iter().for_each(|value| expressions(value, to)),
        _ => {}
    }
}

#[test]
fn the_dashboard_queries_metrics_that_exist() {
    let _alone = alone();
    let scratch = Scratch::new();
    let (_running, url) = start(&scratch);
    wait_for_end_of_capture(&scratch);
    let Some(text) = curl(&[&url]) else { return };
    let exported: BTreeSet<&str> = values(&text).into_keys().map(|name| name.split('{').next().unwrap()).collect();
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(dashboard()).unwrap()).unwrap();
    let mut queries = vec![];
    expressions(&dashboard, &mut queries);
    assert!(queries.len() >= 8, "{queries:?}");
    for query in &queries {
        let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let names: Vec<_> = words.filter(|word| word.starts_with("bondstone_")).collect();
        assert!(!names.is_empty(), "{query}");
        names.iter().for_each(|name| assert!(exported.contains(name), "{name} of {query}\n{text}"));
    }
}

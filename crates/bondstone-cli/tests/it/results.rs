//! `bondstone results` and `bondstone trend` with a SQLite file and a PostgreSQL server.

use crate::samples;
use crate::server;

use crate::common::{Said, Scratch, bondstone};
use report::Result;
use results::{Location, Store};
use serde_json::Value;

/// Two DUTs, two frame sizes, 20 days; the first DUT is slower from the eleventh day, with version 0.2.
fn fill(db: &str) -> Vec<Result> {
    let mut store = Store::open(Location::parse(db)).unwrap();
    let mut all = vec![];
    for day in 1..=20usize {
        for (kind, cycles) in [("bondstone", 310.0), ("native", 290.0)] {
            for frames in samples::sizes().into_iter().take(2) {
                let slower = if kind == "bondstone" && day > 10 { 60.0 } else { 0.0 };
                let mut r = samples::result(kind, frames, cycles + slower + (day * 5 % 7) as f64 * 0.4);
                r.environment.date = format!("2026-03-{day:02}T12:00:00Z");
                r.dut.version = Some(if day > 10 { "0.2" } else { "0.1" }.to_owned());
                r.assign_id().unwrap();
                store.add(&r).unwrap();
                all.push(r);
            }
        }
    }
    all
}

/// Runs a command of `bondstone results`, or `bondstone trend`, on a database.
fn run(db: &str, line: &[&str]) -> Said {
    let first: &[&str] = if line[0] == "trend" { &[] } else { &["results"] };
    bondstone(first.iter().chain(line).copied().chain(["--db", db]))
}

/// Returns the output of a successful command.
#[track_caller]
fn ok(db: &str, line: &[&str]) -> String {
    let said = run(db, line);
    assert_eq!(said.status, Some(0), "{line:?}: {}", said.err);
    said.out
}

#[track_caller]
fn refused(db: &str, line: &[&str], status: i32, words: &[&str]) {
    let said = run(db, line);
    assert_eq!(said.status, Some(status), "{line:?}: {}{}", said.out, said.err);
    for word in words {
        assert!(said.err.contains(word), "{line:?}: no `{word}` in {}", said.err);
    }
}

#[track_caller]
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn all_commands(db: &str) {
    let all = fill(db);
    list_and_show(db, &all);
    tags(db, &all);
    compare(db);
    trends(db);
    export(db, &all);
    import(db);
    remove(db, &all);
}

fn list_and_show(db: &str, all: &[Result]) {
    let id = &all[0].id;
    let listed = ok(db, &["list"]);
    assert_eq!(listed.lines().count(), 1 + all.len(), "{listed}");
    assert!(listed.contains(&id[..12]) && listed.contains("native ttl+lpm") && listed.contains("Mpps"));
    let few = json(&ok(db, &["list", "dut=native,frame=64,version=0.1", "--json"]));
    assert_eq!(few.as_array().unwrap().len(), 10);
    assert_eq!(ok(db, &["list", "--limit", "3"]).lines().count(), 1 + 3 + 2);

    let shown = ok(db, &["show", &id[..10], "--trials"]);
    for word in [id.as_str(), "p99 at 90 %", "back-to-back frames", "Imaginary CPU", "RFC 2544", "received"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    let document = ok(db, &["show", id, "--json"]);
    assert_eq!(document.trim(), all[0].verify().unwrap().text());
    refused(db, &["show", "xyz"], 2, &["xyz: no such result", "results list"]);
    refused(db, &["show", "duty=x"], 2, &["duty: unknown key", "cell.NAME"]);
    refused(db, &["show", "since=soon"], 2, &["soon: not a date"]);
    // two ids with the same first digit
    let (a, b) = all
        .iter()
        .enumerate()
        .find_map(|(n, a)| all[n + 1..].iter().find(|b| b.id[..1] == a.id[..1]).map(|b| (a, b)))
        .expect("80 ids of 16 beginnings");
    refused(db, &["show", &a.id[..1]], 2, &["the beginning of several ids", "use a longer one"]);
    assert_ne!(a.id, b.id);
}

fn tags(db: &str, all: &[Result]) {
    let id = &all[0].id;
    ok(db, &["tag", "dut=bondstone,version=0.1", "--add", "before"]);
    ok(db, &["tag", "dut=bondstone,version=0.2", "--add", "after", "--add", "v0.2"]);
    assert_eq!(json(&ok(db, &["list", "before", "--json"])).as_array().unwrap().len(), 20);
    let tags = json(&ok(db, &["tag", &id[..12], "--add", "first", "--remove", "before", "--json"]));
    assert_eq!(tags[id], serde_json::json!(["first"]));
    ok(db, &["tag", "first", "--add", "before", "--remove", "first"]);
    refused(db, &["tag", id], 2, &["--add TAG"]);
    refused(db, &["tag", id, "--add", "a b"], 2, &["tag a b", "letters, digits"]);
    // a tag that is also the beginning of an id
    ok(db, &["tag", id, "--add", &id[..4]]);
    refused(db, &["show", &id[..4]], 2, &["a tag and the beginning of an id"]);
    ok(db, &["show", &format!("tag={}", &id[..4])]);
    ok(db, &["tag", id, "--remove", &id[..4]]);
}

fn compare(db: &str) {
    let said = ok(db, &["compare", "before", "after"]);
    let row = said.lines().find(|l| l.trim_start().starts_with("64 ") && l.contains("throughput")).unwrap();
    assert!(row.contains("worse") && row.contains(" 10 "), "{said}");
    assert!(
        said.contains("exact rank intervals for several results on both sides, confidence at least 95")
            && said.contains("bondstone ttl+lpm 0.2"),
        "{said}"
    );
    let found = json(&ok(db, &["compare", "before", "after", "--metric", "throughput", "--json"]));
    let pairs = found[0]["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 2);
    for pair in pairs {
        let m = &pair["metrics"][0];
        let (ratio, low, high) = (m["ratio"].as_f64(), m["interval"][0].as_f64(), m["interval"][1].as_f64());
        let (ratio, low, high) = (ratio.unwrap(), low.unwrap(), high.unwrap());
        assert!(low <= ratio && ratio <= high && high < 0.95, "{m}");
        assert_eq!((m["metric"].as_str(), m["a"]["n"].as_u64()), (Some("throughput"), Some(10)));
        assert!(m["interval_type"]["ranks"]["confidence"].as_f64().unwrap() >= 0.95);
    }
    // one result on each side
    let day = |kind: &str| format!("dut={kind},frame=64,since=2026-03-01,until=2026-03-01");
    let single = ok(db, &["compare", &day("native"), &day("bondstone")]);
    assert!(single.contains("bounds of searches") && single.contains("repeat the measurement"), "{single}");

    refused(
        db,
        &["compare", "dut=native,frame=64", "dut=bondstone,frame=128"],
        2,
        &["measured under different conditions", "frames: A has 64, B has 128", "--across"],
    );
    let across = ok(db, &["compare", "dut=native,frame=64", "dut=bondstone,frame=128", "--across", "frames"]);
    assert!(across.contains("throughput"));
    refused(db, &["compare", "dut=native,frame=64", "dut=bondstone"], 2, &["frames: A has 64, B has 128", "--common"]);
    ok(db, &["compare", "dut=native,frame=64", "dut=bondstone", "--common"]);
    refused(
        db,
        &["compare", "frame=64", "dut=native"],
        2,
        &["side A: dut differs", "bondstone ttl+lpm and native ttl+lpm"],
    );
    refused(db, &["compare", "before", "after", "--across", "colour"], 2, &["--across colour: unknown condition"]);
    refused(db, &["compare", "before", "after", "--metric", "p98"], 2, &["none of these metrics in common: p98"]);
    refused(db, &["compare", "before"], 2, &["2"]);
}

fn trends(db: &str) {
    let said = ok(db, &["trend", "dut=bondstone"]);
    assert_eq!(said.matches("2026-03-11T12:00:00Z").count(), 2, "{said}");
    assert!(said.contains("dut version 0.1 → 0.2") && said.contains("-1") && said.contains('█'), "{said}");
    let quiet = ok(db, &["trend", "dut=native,frame=64"]);
    assert!(quiet.contains("no change point") && quiet.contains("20 results"), "{quiet}");
    let found = json(&ok(db, &["trend", "dut=bondstone,frame=64", "--metric", "p99", "--json"]));
    let change = &found[0]["change_points"][0];
    assert_eq!(
        (change["date"].as_str(), found[0]["points"].as_array().unwrap().len()),
        (Some("2026-03-11T12:00:00Z"), 20)
    );
    assert!(change["after"].as_f64() > change["before"].as_f64());
    refused(db, &["trend", "--metric", "p98"], 2, &["--metric p98: none of", "available:", "throughput"]);
}

fn export(db: &str, all: &[Result]) {
    let scratch = Scratch::new();
    let text = |path: &std::path::Path| std::fs::read_to_string(path).unwrap();
    let out = |name: &str| scratch.path(name);
    let to = |path: &std::path::PathBuf| path.to_str().unwrap().to_owned();

    let exported = out("all.json");
    ok(db, &["export", "--format", "json", "--out", &to(&exported)]);
    assert_eq!(json(&text(&exported)).as_array().unwrap().len(), all.len());
    // exported documents are imported unchanged
    let copy = scratch.path("copy.sqlite");
    let said = ok(&to(&copy), &["import", &to(&exported)]);
    assert!(said.contains("bondstone: 80 added"), "{said}");
    let copied = Store::open(&copy).unwrap();
    for r in all {
        assert_eq!(copied.document(&r.id).unwrap(), Some(r.verify().unwrap()));
    }
    assert!(ok(&to(&copy), &["import", &to(&exported)]).contains("0 added, 80 already present"));

    let csv = ok(db, &["export", "frame=64", "--format", "csv"]);
    assert!(csv.starts_with("id,date,study,") && csv.lines().count() > 40 * 8, "{}", csv.lines().count());
    let markdown = ok(
        db,
        &["export", "first-of-all", "--format", "markdown"]
            .map(|w| if w == "first-of-all" { all[0].id.as_str() } else { w }),
    );
    assert!(markdown.starts_with("| dut | cell |"));
    let html = ok(db, &["export", "dut=native", "--format", "html"]);
    assert!(html.starts_with("<!DOCTYPE html>") && html.contains("Repetitions of the throughput"));

    // thresholds: met, not met, without metric
    let junit = out("junit.xml");
    let met =
        ["export", "after", "--format", "junit", "--at-least", "throughput=1kpps", "--at-most", "p99=1s", "--out"];
    ok(db, &met.iter().copied().chain([to(&junit).as_str()]).collect::<Vec<_>>());
    let xml = text(&junit);
    let parsed = roxmltree::Document::parse(&xml).unwrap();
    assert_eq!(parsed.root_element().attribute("tests"), Some("40"));
    let missed = run(db, &["export", "after", "--format", "junit", "--at-least", "throughput=1Gpps"]);
    assert_eq!(missed.status, Some(1), "{}", missed.err);
    let parsed = roxmltree::Document::parse(&missed.out).unwrap();
    assert_eq!(parsed.descendants().filter(|n| n.has_tag_name("failure")).count(), 20);
    assert!(missed.err.contains("20 of 20 thresholds not met"));
    let junit = |bound: &'static str| ["export", "after", "--format", "junit", "--at-most", bound];
    refused(db, &junit("p99=5"), 2, &["p99 is a time", "5us"]);
    refused(db, &junit("p98=5us"), 2, &["p98: no result has this metric", "p99"]);
    refused(db, &junit("p99=5parsec"), 2, &["--at-most p99=5parsec", "unknown unit"]);
    refused(db, &["export", "after", "--format", "csv", "--at-most", "p99=1s"], 2, &["--format junit"]);

    for format in ["svg", "png"] {
        let folder = out(format);
        ok(db, &["export", "frame=64", "--format", format, "--out", &to(&folder)]);
        let files: Vec<String> =
            std::fs::read_dir(&folder).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
        for name in ["throughput-1", "latency-1", "repetitions-1", "loss-1"] {
            assert!(files.contains(&format!("{name}.{format}")), "{name} in {files:?}");
        }
        if format == "png" {
            let bytes = std::fs::read(folder.join("throughput-1.png")).unwrap();
            assert!(bytes.starts_with(b"\x89PNG") && bytes.len() > 5000, "{}", bytes.len());
        }
    }
    refused(db, &["export", "--format", "svg"], 2, &["--out"]);
}

/// Minimal files of other programs.
fn import(db: &str) {
    let scratch = Scratch::new();
    let rate = |pps: f64| serde_json::json!({"rate": {"unit": "pps", "value": pps}});
    let case = serde_json::json!({
        "version": "1.5.1", "dut_type": "VPP", "dut_version": "26.02", "tg_type": "TREX", "tg_version": "3.03",
        "start_time": "2026-05-01T10:00:00Z", "end_time": "2026-05-01T10:01:00Z", "hosts": ["10.0.0.1"],
        "test_id": "made.up", "test_name_long": "nic-64b-1c-ethip4-ip4base-ndrpdr", "test_name_short": "ethip4-ip4base",
        "result": {"type": "ndrpdr", "ndr": {"lower": rate(10e6), "upper": rate(11e6)}, "pdr": {"lower": rate(12e6), "upper": rate(13e6)}},
    });
    let uti = scratch.write("case.json", case.to_string());
    let said = json(&ok(db, &["import", uti.to_str().unwrap(), "--tag", "from-csit", "--json"]));
    assert_eq!((said[0]["format"].as_str(), said[0]["new"].as_u64()), (Some("uti"), Some(2)));
    assert_eq!(json(&ok(db, &["list", "from-csit", "--json"])).as_array().unwrap().len(), 2);
    assert!(ok(db, &["show", "tool=csit"]).contains("vpp ethip4-ip4base"));

    let file = scratch.path("nfpa.db");
    let c = rusqlite_nfpa(&file);
    drop(c);
    let said = ok(db, &["import", file.to_str().unwrap(), "--format", "nfpa"]);
    assert!(said.contains("nfpa: 1 added"), "{said}");
    let shown = ok(db, &["show", "tool=nfpa"]);
    assert!(shown.contains("received rate") && shown.contains("no raw trials"), "{shown}");
    let odd = scratch.write("odd.json", "{\"a\": 1}");
    refused(db, &["import", odd.to_str().unwrap()], 2, &["odd.json", "--format"]);
    refused(db, &["import", "/nowhere/at/all.json"], 2, &["/nowhere/at/all.json", "cannot read"]);
    // results of other programs have other conditions
    refused(db, &["compare", "from-csit", "before"], 2, &["measured under different conditions"]);
}

/// A database of NFPA with one measurement.
fn rusqlite_nfpa(file: &std::path::Path) -> rusqlite::Connection {
    let c = rusqlite::Connection::open(file).unwrap();
    let rates: Vec<String> = ["sent_pps", "recv_pps", "miss_pps", "sent_bps", "recv_bps", "diff_bps"]
        .iter()
        .flat_map(|rate| ["min", "avg", "max"].map(|end| format!("{rate}_{end}")))
        .collect();
    let numbers = (1..=rates.len()).map(|n| (n * 1000).to_string()).collect::<Vec<_>>().join(", ");
    c.execute_batch(&format!(
        "CREATE TABLE cpu (id, make, model); CREATE TABLE cpu_makes (id, make); CREATE TABLE cpu_models (id, model);
        CREATE TABLE nic (id, make, model, port_type); CREATE TABLE nic_makes (id, make); CREATE TABLE nic_models (id, model);
        CREATE TABLE traffic (id, name, packet_size); CREATE TABLE traffic_names (id, name);
        CREATE TABLE traffic_packet_sizes (id, packet_size); CREATE TABLE virtualization (id, name);
        CREATE TABLE vnf (id, name, version, function, driver, driver_version); CREATE TABLE vnf_names (id, name);
        CREATE TABLE vnf_functions (id, function); CREATE TABLE vnf_drivers (id, driver);
        CREATE TABLE measurements (id, ts, name, cpu, nic, virtualization, vnf, used_cpu_cores, traffic, repetitions, duration, {},
            bidir_twin_id);
        INSERT INTO cpu VALUES (1, 1, 1); INSERT INTO cpu_makes VALUES (1, 'imaginary'); INSERT INTO cpu_models VALUES (1, 'x1');
        INSERT INTO traffic VALUES (1, 1, 1); INSERT INTO traffic_names VALUES (1, 'simple');
        INSERT INTO traffic_packet_sizes VALUES (1, 64); INSERT INTO vnf VALUES (1, 1, '2.5', 1, 1, '1');
        INSERT INTO vnf_names VALUES (1, 'ovs'); INSERT INTO vnf_functions VALUES (1, 'l2-switch');
        INSERT INTO measurements VALUES (1, 1476000000, 'a switch', 1, 1, 1, 1, 1, 1, 3, 10, {numbers}, NULL);",
        rates.join(", ")
    ))
    .unwrap();
    c
}

fn remove(db: &str, all: &[Result]) {
    let left = || json(&ok(db, &["list", "--json", "--limit", "1000"])).as_array().unwrap().len();
    let before = left();
    assert_eq!(before, all.len() + 3);
    ok(db, &["rm", &all[0].id[..16]]);
    assert_eq!(left(), before - 1);
    refused(db, &["rm", "dut=native"], 2, &["40 results", "nothing was deleted", "--yes"]);
    assert_eq!(left(), before - 1);
    let deleted = json(&ok(db, &["rm", "dut=native", "--yes", "--json"]));
    assert_eq!((deleted.as_array().unwrap().len(), left()), (40, before - 41));
}

#[test]
fn all_commands_on_a_file() {
    let scratch = Scratch::new();
    all_commands(scratch.path("results.sqlite").to_str().unwrap());
}

#[test]
fn all_commands_on_a_server() {
    let Some(server) = server::Server::start() else { return };
    let url = server.database("results");
    all_commands(&url);
    // copy a database with its tags
    let scratch = Scratch::new();
    let file = scratch.path("copy.sqlite");
    let said = ok(file.to_str().unwrap(), &["import", &url]);
    assert!(said.contains("bondstone: ") && said.contains(" added"), "{said}");
    assert_eq!(ok(file.to_str().unwrap(), &["list", "after"]), ok(&url, &["list", "after"]));
}

#[test]
fn reads_the_password_file_of_a_server() {
    use std::os::unix::fs::PermissionsExt;
    let Some(server) = server::Server::start() else { return };
    let url = server.database("results");
    server.sql("results", "CREATE ROLE writer LOGIN PASSWORD 'se:cret'; GRANT ALL ON SCHEMA public TO writer").unwrap();
    server.require_password("writer");
    let url = url.replace("bondstone@", "writer@");
    let scratch = Scratch::new();
    let lines = format!("*:*:other:writer:wrong\n*:{}:results:writer:se\\:cret\n", server.port());
    let passwords = scratch.write("pgpass", lines);
    let list = |mode| {
        std::fs::set_permissions(&passwords, PermissionsExt::from_mode(mode)).unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_bondstone"));
        let said: Said =
            command.args(["results", "list", "--db", &url]).env("PGPASSFILE", &passwords).output().unwrap().into();
        said
    };
    let said = list(0o600);
    assert_eq!(said.status, Some(0), "{}", said.err);
    // a file that others may read is ignored
    let said = list(0o644);
    assert!(said.status == Some(3) && said.err.contains("password"), "{}", said.err);
}

#[test]
fn invalid_locations() {
    let scratch = Scratch::new();
    let text = scratch.write("notes.txt", "not a database\n".repeat(100));
    refused(text.to_str().unwrap(), &["list"], 2, &["not a database", "not changed"]);
    let empty_dir = scratch.path("none");
    std::fs::create_dir(&empty_dir).unwrap();
    let url = format!("postgres://u:secret@{}/d", empty_dir.to_str().unwrap().replace('/', "%2F"));
    // a password on the command line is readable by all users
    for line in [&["list"][..], &["import", &url]] {
        let said = if line[0] == "list" { run(&url, line) } else { run(scratch.path("x").to_str().unwrap(), line) };
        assert_eq!(said.status, Some(2), "{}", said.err);
        assert!(said.err.contains("PGPASSFILE") && !said.err.contains("secret"), "{}", said.err);
    }
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_bondstone"));
    let said: Said = command.args(["results", "list"]).env("BONDSTONE_DB", &url).output().unwrap().into();
    assert_eq!(said.status, Some(3), "{}", said.err);
    assert!(said.err.contains("cannot connect") && !said.err.contains("secret"), "{}", said.err);
    // an empty database: the message names the next step
    let empty = scratch.path("new.sqlite");
    assert!(ok(empty.to_str().unwrap(), &["list"]).contains("bondstone bench"));
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_bondstone"));
    let said: Said = command.args(["results", "list"]).env("BONDSTONE_DB", &empty).output().unwrap().into();
    assert!(said.status == Some(0) && said.out.contains("new.sqlite"), "{}{}", said.out, said.err);
}

#[test]
fn help_has_examples() {
    for verb in ["list", "show", "compare", "export", "import", "rm", "tag"] {
        let said = bondstone(["results", verb, "--help"]);
        assert!(
            said.status == Some(0)
                && said.out.contains("Examples:")
                && said.out.contains(&format!("bondstone results {verb} ")),
            "{}",
            said.out
        );
    }
    assert!(bondstone(["trend", "--help"]).out.contains("bondstone trend nightly"));
    assert!(bondstone(["results", "--help"]).out.contains("beginning of an id"));
}

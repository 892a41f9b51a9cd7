//! Import of results of other programs. The fixtures are written from descriptions of the formats.

use crate::samples;

use report::{Document, Frames, Histogram, hdr};
use results::import::{Format, Imported, read};
use results::{Location, Store};
use rusqlite::Connection;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn file(folder: &Path, name: &str, text: &str) -> Location {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    Location::parse(path)
}

fn documents(read: Imported) -> Vec<report::Result> {
    match read {
        Imported::Documents(all) => all.into_iter().map(Document::into_result).collect(),
        Imported::Store(_) => panic!("no database"),
    }
}

/// A histogram of microseconds: so many of each.
fn hdrh(of: &[(u64, u64)]) -> String {
    let mut h = Histogram::<u64>::new(2).unwrap();
    of.iter().for_each(|&(us, n)| h.record_n(us, n).unwrap());
    // CSIT's are without their padding now and then
    hdr::encode(&h).unwrap().trim_end_matches('=').to_owned()
}

fn test_case() -> Value {
    let rate =
        |pps: f64| json!({"rate": {"unit": "pps", "value": pps}, "bandwidth": {"unit": "bps", "value": pps * 672.0}});
    let latency =
        |of: &[(u64, u64)], max: u64| json!({"avg": 12, "hdrh": hdrh(of), "max": max, "min": 5, "unit": "us"});
    json!({
        "version": "1.5.1",
        "duration": 120.5,
        "dut_type": "VPP",
        "dut_version": "26.02-release",
        "start_time": "2026-05-01T10:00:00.000000Z",
        "end_time": "2026-05-01T10:02:00.500000Z",
        "hosts": ["10.30.51.44", "10.30.51.45"],
        "telemetry": ["calls{name=\"x\"} 5", "clocks{name=\"x\"} 7"],
        "message": "",
        "passed": true,
        "tags": ["64B", "2T1C"],
        "test_documentation": "",
        "test_id": "tests.vpp.perf.ip4.made-up-ndrpdr.64b-2t1c-ethip4-ip4base-ndrpdr",
        "test_name_long": "10ge2p1x710-64b-2t1c-ethip4-ip4base-ndrpdr",
        "test_name_short": "ethip4-ip4base",
        "test_type": "ndrpdr",
        "tg_type": "TREX",
        "tg_version": "3.03",
        "result": {
            "type": "ndrpdr",
            "ndr": {"lower": rate(20e6), "upper": rate(20.1e6)},
            "pdr": {"lower": rate(24e6), "upper": rate(24.2e6)},
            "latency_forward": {
                "pdr_0": latency(&[(6, 100)], 9),
                "pdr_10": latency(&[(8, 900), (20, 100)], 21),
                "pdr_50": latency(&[(10, 20_000)], 30),
                "pdr_90": latency(&[(12, 15_000), (90, 5_000)], 130),
            },
            "latency_reverse": {"pdr_90": latency(&[(14, 20_000)], 99)},
        },
    })
}

#[test]
fn csit_test_case_becomes_ndr_and_pdr() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "case.info.json", &test_case().to_string());
    let (format, found) = read(&path, None).unwrap();
    assert_eq!(format, Format::Uti);
    let all = documents(found);
    let [ndr, pdr] = all.as_slice() else { panic!("{}", all.len()) };
    // rates of the file are those of both directions
    assert_eq!((ndr.summary.lower_pps, ndr.summary.upper_pps), (10e6, Some(10.05e6)));
    assert_eq!((pdr.summary.lower_pps, pdr.summary.upper_pps), (12e6, Some(12.1e6)));
    assert_eq!((ndr.goal.loss_ratio, pdr.goal.loss_ratio), (0.0, 0.005));
    assert_eq!((ndr.goal.name.as_deref(), pdr.goal.name.as_deref()), (Some("ndr"), Some("pdr")));
    assert_eq!((ndr.tool.name.as_str(), ndr.tool.version.as_str()), ("csit", "UTI 1.5.1"));
    assert_eq!((pdr.dut.kind.as_str(), pdr.dut.version.as_deref()), ("vpp", Some("26.02-release")));
    assert_eq!((&pdr.traffic.frames, pdr.traffic.directions), (&Frames::FrameBytes(64), 2));
    assert_eq!((pdr.cell["nic"].as_str(), pdr.cell["threads"].as_str()), ("10ge2p1x710", "2t1c"));
    assert_eq!(pdr.quantity("lower bandwidth").unwrap().value, 12e6 * 672.0);
    assert_eq!(pdr.environment.date, "2026-05-01T10:00:00.000000Z");
    assert!(ndr.latency.is_empty());
    let [zero, ten, fifty, ninety] = pdr.latency.as_slice() else { panic!("{}", pdr.latency.len()) };
    assert_eq!((zero.load_pps, zero.share_of_throughput), (9000.0, None));
    assert_eq!((ten.load_pps, ten.samples, ten.max_ns), (1.2e6, 1000, 21e3));
    assert_eq!(fifty.share_of_throughput, Some(0.5));
    // both directions: of 40,000, an eighth is at 90 µs, and the largest is that of the slower
    assert_eq!((ninety.samples, ninety.max_ns, ninety.load_pps), (40_000, 130e3, 10.8e6));
    let near = |ns: f64, us: f64| assert!((ns / us / 1e3 - 1.0).abs() < 0.02, "{ns} {us}");
    near(ninety.p50_ns, 14.0);
    near(ninety.p99_ns, 90.0);
    let deviations = pdr.deviations.join("\n");
    for word in ["no raw trials", "set to 0", "2 telemetry entries", "host addresses are left out"] {
        assert!(deviations.contains(word), "{deviations}");
    }
    assert!(!serde_json::to_string(pdr).unwrap().contains("10.30.51"));
    // what is imported is an ordinary result
    let mut store = Store::open(&folder.path().join("db.sqlite")).unwrap();
    all.iter().for_each(|r| assert_eq!(store.add(r).unwrap(), results::Added::New));
    assert_eq!(store.list(&"tool=csit,dut=vpp".parse().unwrap()).unwrap().len(), 2);
}

#[test]
fn imports_other_csit_results() {
    let folder = tempfile::tempdir().unwrap();
    let of = |result: Value| {
        let mut case = test_case();
        case["result"] = result;
        case["test_name_long"] = json!("10ge2p1x710-imix-2t1c-ethip4-ip4base-mrr");
        documents(read(&file(folder.path(), "case.json", &case.to_string()), None).unwrap().1)
    };
    let rate = |values: &[f64]| json!({"unit": "pps", "values": values, "avg": 0, "stdev": 0});
    let mrr = &of(json!({"type": "mrr", "receive_rate": {"rate": rate(&[1e6, 3e6, 2e6])}}))[0];
    let q = mrr.quantity("receive rate").unwrap();
    let spread = q.spread.unwrap();
    assert_eq!((q.value, spread.samples, spread.min, spread.max, spread.stddev), (1e6, 3, 5e5, 1.5e6, 5e5));
    assert!(matches!(&mrr.traffic.frames, Frames::Mix(mix) if (mix.name.as_str(), mix.parts.len()) == ("IMIX", 3)));
    assert!(mrr.deviations.iter().any(|d| d.contains("rates are halved")) && mrr.traffic.directions == 2);
    let one = |pps: f64| json!({"rate": {"unit": "pps", "value": pps}});
    let soak = &of(json!({"type": "soak", "critical_rate": {"lower": one(5e6), "upper": one(6e6)}}))[0];
    assert_eq!((soak.method.name.as_str(), soak.goal.loss_ratio, soak.summary.lower_pps), ("soak", 1e-7, 2.5e6));
    let loss = json!({"packet": {"unit": "packets", "value": 500}, "time": {"unit": "s", "value": 0.001}});
    let reconf = &of(json!({"type": "reconf", "aggregate_rate": one(5e5), "loss": loss}))[0];
    assert_eq!(reconf.quantity("lost while changed").unwrap().value, 500.0);
    let hoststack = json!({"type": "hoststack", "bandwidth": {"unit": "bps", "value": 3e10}, "rate": {"unit": "cps", "value": 9.0}});
    let hoststack = &of(hoststack)[0];
    assert_eq!(
        (hoststack.method.name.as_str(), hoststack.quantity("rate").unwrap().unit.as_str()),
        ("connections", "cps")
    );
    assert_eq!((hoststack.quantity("rate").unwrap().value, hoststack.traffic.directions), (9.0, 1));
}

#[test]
fn errors_in_a_test_case_have_a_path() {
    let folder = tempfile::tempdir().unwrap();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut case = test_case();
        change(&mut case);
        read(&file(folder.path(), "case.json", &case.to_string()), Some(Format::Uti)).unwrap_err().to_string()
    };
    for (e, expected) in [
        (with(&|c| c["version"] = json!("2.0.0")), "version: 2.0.0: unsupported version"),
        (with(&|c| c["result"]["type"] = json!("unknown")), "result.type: unsupported type `unknown`"),
        (with(&|c| drop(c["result"]["ndr"]["lower"].take())), "result.ndr.lower: missing member `rate`"),
        (
            with(&|c| c["result"]["pdr"]["upper"]["rate"]["value"] = json!("fast")),
            "result.pdr.upper.rate.value: \"fast\": not a number",
        ),
        (
            with(&|c| c["result"]["pdr"]["upper"]["rate"]["value"] = json!(1)),
            "result.pdr.upper: 1: below the lower bound",
        ),
        (with(&|c| c["test_name_long"] = json!("nic-fast-2t1c-x")), "test_name_long: nic-fast-2t1c-x: no frame size"),
        (
            with(&|c| c["result"]["latency_forward"]["pdr_90"]["hdrh"] = json!("HISTFxx")),
            "result.latency_forward.pdr_90.hdrh: ",
        ),
        (with(&|c| c["result"]["latency_forward"]["pdr_90"]["unit"] = json!("ms")), "pdr_90.unit: ms: not us"),
        (with(&|c| c["start_time"] = json!("yesterday")), "environment.date: yesterday: not a date"),
        (with(&|c| drop(c.as_object_mut().unwrap().remove("dut_version"))), "missing member `dut_version`"),
    ] {
        assert!(e.contains(expected) && e.contains("case.json"), "{e}\n{expected}");
    }
    for text in ["", "{", "[]", "{\"a\": 1}", "\u{feff}x"] {
        let e = read(&file(folder.path(), "odd.json", text), None).unwrap_err().to_string();
        assert!(e.contains("neither documents of Bondstone") && e.contains("--format"), "{e}");
    }
    std::fs::write(folder.path().join("bytes"), [0xff, 0xfe, 0x00]).unwrap();
    assert!(read(&Location::parse(folder.path().join("bytes")), None).unwrap_err().to_string().contains("not text"));
    assert!(
        read(&Location::parse(folder.path().join("nothing")), None).unwrap_err().to_string().contains("cannot read")
    );
}

/// A small database in the format of NFPA.
fn nfpa(path: &Path) -> Connection {
    let c = Connection::open(path).unwrap();
    for (table, column) in [
        ("cpu_makes", "make"),
        ("cpu_models", "model"),
        ("nic_makes", "make"),
        ("nic_models", "model"),
        ("traffic_names", "name"),
        ("traffic_packet_sizes", "packet_size"),
        ("virtualization", "name"),
        ("vnf_names", "name"),
        ("vnf_functions", "function"),
        ("vnf_drivers", "driver"),
    ] {
        c.execute_batch(&format!("CREATE TABLE {table} (id INTEGER PRIMARY KEY, {column})")).unwrap();
    }
    let rates: Vec<String> = ["sent_pps", "recv_pps", "miss_pps", "sent_bps", "recv_bps", "diff_bps"]
        .iter()
        .flat_map(|rate| ["min", "avg", "max"].map(|end| format!("{rate}_{end} DOUBLE")))
        .collect();
    c.execute_batch(&format!(
        "CREATE TABLE cpu (id, make, model); CREATE TABLE nic (id, make, model, port_type);
        CREATE TABLE traffic (id, name, packet_size); CREATE TABLE users (id, username);
        CREATE TABLE vnf (id, name, version, function, driver, driver_version);
        CREATE TABLE measurements (id INTEGER PRIMARY KEY, ts DOUBLE, name TEXT, cpu, nic, virtualization, vnf, used_cpu_cores,
            traffic, repetitions, duration, {}, bidir_twin_id, comment, user_id, bidir, control_nfpa);
        INSERT INTO cpu_makes VALUES (3, 'imaginary'); INSERT INTO cpu_models VALUES (4, 'x1');
        INSERT INTO nic_makes VALUES (5, 'intel'); INSERT INTO nic_models VALUES (6, 'x710');
        INSERT INTO traffic_names VALUES (7, 'trpr_100'), (8, 'wifi'); INSERT INTO traffic_packet_sizes VALUES (9, 64), (10, 0);
        INSERT INTO virtualization VALUES (11, 'none'); INSERT INTO vnf_names VALUES (12, 'ovs');
        INSERT INTO vnf_functions VALUES (13, 'l2-switch'); INSERT INTO vnf_drivers VALUES (14, 'dpdk');
        INSERT INTO cpu VALUES (1, 3, 4); INSERT INTO nic VALUES (1, 5, 6, 'sfp');
        INSERT INTO traffic VALUES (1, 7, 9), (2, 8, 10); INSERT INTO vnf VALUES (1, 12, '2.5', 13, 14, '17.11');
        INSERT INTO users VALUES (1, 'jane');",
        rates.join(", ")
    ))
    .unwrap();
    c
}

fn measurement(c: &Connection, id: i64, ts: &str, traffic: i64, missing: f64, reverse: &str) {
    let rates = format!(
        "14e6, 14.5e6, 14.8e6, 11e6, 12e6, 13e6, 0, {missing}, 3e6, 7e9, 7.25e9, 7.4e9, 5e9, 6e9, 6.5e9, 0, 1.25e9, 2e9"
    );
    c.execute_batch(&format!(
        "INSERT INTO measurements VALUES ({id}, {ts}, 'my switch', 1, 1, 11, 1, 2, {traffic}, 5, 10, {rates}, {reverse}, 'a comment', 1,
            'FALSE', 'FALSE')"
    ))
    .unwrap();
}

fn database(folder: &Path) -> PathBuf {
    let path = folder.join("nfpa.db");
    let c = nfpa(&path);
    measurement(&c, 21, "1476000000.25", 1, 2.5e6, "22");
    measurement(&c, 22, "2457670.5", 2, -40.0, "NULL");
    path
}

#[test]
fn nfpa_database_becomes_a_result_per_measurement() {
    let folder = tempfile::tempdir().unwrap();
    let path = database(folder.path());
    let before = std::fs::read(&path).unwrap();
    let (format, found) = read(&Location::parse(&path), None).unwrap();
    assert_eq!(format, Format::Nfpa);
    let all = documents(found);
    let [one, other] = all.as_slice() else { panic!("{}", all.len()) };
    assert_eq!(one.dut.label(), "ovs l2-switch");
    assert_eq!((one.dut.version.as_deref(), one.dut.ports[0].device.as_str()), (Some("2.5"), "intel x710"));
    assert_eq!(one.dut.ports[0].driver.as_deref(), Some("dpdk 17.11"));
    assert_eq!((one.traffic.frames.clone(), one.cell["traffic"].as_str()), (Frames::FrameBytes(64), "trpr_100"));
    assert_eq!((one.goal.trial_duration_s, one.goal.duration_sum_s), (10.0, 50.0));
    assert_eq!(one.environment.cpu, "imaginary x1");
    assert_eq!(one.environment.date, "2016-10-09T08:00:00Z");
    assert_eq!(other.environment.date, "2016-10-09T00:00:00Z");
    for (name, value) in [
        ("sent rate", 14.5e6),
        ("received rate", 12e6),
        ("received rate, min", 11e6),
        ("missing rate", 2.5e6),
        ("missing rate, max", 3e6),
        ("difference in bits", 1.25e9),
    ] {
        assert_eq!(one.quantity(name).map(|q| q.value), Some(value), "{name}");
    }
    assert_eq!(one.environment.extra["NFPA measurement of the other direction"], "22");
    assert!(one.deviations[0].contains("no raw trials") && one.deviations[0].contains("one-second"));
    // a trace without a size, and a rate that was read as negative
    assert!(matches!(&other.traffic.frames, Frames::Trace(t) if t.name == "wifi" && t.mean_frame_bytes == 62.5));
    assert!(other.deviations.iter().any(|d| d.starts_with("miss_pps_avg was -40")), "{:?}", other.deviations);
    assert_eq!(other.quantity("missing rate").unwrap().value, 0.0);
    assert!(!serde_json::to_string(&all).unwrap().contains("jane"));
    assert_eq!(std::fs::read(&path).unwrap(), before, "the database was changed");
}

#[test]
fn errors_in_a_database_have_a_path() {
    for (change, expected) in [
        ("DROP TABLE vnf_drivers", "vnf_drivers: missing table"),
        ("ALTER TABLE nic DROP COLUMN port_type", "nic.port_type: missing column"),
        ("ALTER TABLE measurements ADD COLUMN weather", "measurements.weather: unknown column"),
        ("ALTER TABLE measurements RENAME COLUMN ts TO t", "measurements.ts: missing column"),
        (
            "UPDATE measurements SET recv_pps_avg = 'fast' WHERE id = 22",
            "measurements.recv_pps_avg of id 22: \"fast\": not a number",
        ),
        ("UPDATE measurements SET sent_pps_max = 9e99", "not a number"),
        ("UPDATE measurements SET ts = 1e14", "measurements.ts of id 21: not a date"),
        (
            "UPDATE traffic_packet_sizes SET packet_size = 70000 WHERE id = 9",
            "packet_size of id 21: 70000: not 0 to 65535",
        ),
        ("DELETE FROM measurements", "measurements: contains no rows"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = database(folder.path());
        Connection::open(&path).unwrap().execute_batch(change).unwrap();
        let e = read(&Location::parse(&path), None).unwrap_err().to_string();
        assert!(e.contains(expected) && e.contains("nfpa.db"), "{change}: {e}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = database(folder.path());
    assert!(read(&Location::parse(&path), Some(Format::Uti)).unwrap_err().to_string().contains("not JSON of CSIT"));
    assert!(read(&Location::parse(&path), Some(Format::Bondstone)).is_err());
    let text = file(folder.path(), "x.json", "{}");
    assert!(read(&text, Some(Format::Nfpa)).unwrap_err().to_string().contains("not a SQLite database"));
}

#[test]
fn reads_documents_in_each_layout() {
    let folder = tempfile::tempdir().unwrap();
    let all: Vec<_> = samples::sizes().into_iter().take(3).map(|f| samples::result("native", f, 300.0)).collect();
    let texts: Vec<String> = all.iter().map(|r| r.verify().unwrap().text().to_owned()).collect();
    for text in [format!("[{}]", texts.join(",\n")), texts.join("\n"), texts.join("")] {
        let (format, found) = read(&file(folder.path(), "a.json", &text), None).unwrap();
        assert_eq!((format, documents(found)), (Format::Bondstone, all.clone()));
    }
    let changed = format!("[{},{}]", texts[0], texts[1].replace("\"flows\":10000", "\"flows\":10001"));
    let e = read(&file(folder.path(), "a.json", &changed), None).unwrap_err().to_string();
    assert!(e.contains("a.json: document 2: the id is"), "{e}");
    let path = folder.path().join("other.sqlite");
    let mut store = Store::open(&path).unwrap();
    all.iter().for_each(|r| assert_eq!(store.add(r).unwrap(), results::Added::New));
    drop(store);
    assert!(matches!(read(&Location::parse(&path), None), Ok((Format::Bondstone, Imported::Store(_)))));
    assert!(read(&Location::parse(&path), Some(Format::Nfpa)).is_err());
}

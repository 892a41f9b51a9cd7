//! Documents: identifying, reading, rejecting.

use crate::samples;

use proptest::prelude::*;
use report::{Document, Error, Frames, Profile, Result, Stream, StreamLatency, limit, schema, sha256};
use serde_json::{Value, json};

fn sample() -> Result {
    samples::result("bondstone", Frames::FrameBytes(64), 200.0)
}

fn value(result: &Result) -> Value {
    serde_json::to_value(result).unwrap()
}

/// Returns all leaves of a document as JSON pointers.
fn leaves(value: &Value, at: String, out: &mut Vec<String>) {
    let escape = |name: &str| name.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Array(elements) => elements.iter().enumerate().for_each(|(n, e)| leaves(e, format!("{at}/{n}"), out)),
        Value::Object(members) => members.iter().for_each(|(k, e)| leaves(e, format!("{at}/{}", escape(k)), out)),
        _ => out.push(at),
    }
}

#[test]
fn committed_schema_is_current() {
    let committed = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/schema/result-2.json")).unwrap();
    let committed: Value = serde_json::from_str(&committed).unwrap();
    assert!(
        committed == schema(),
        "the types have changed: cargo run -p bondstone-report --example schema > crates/report/schema/result-2.json"
    );
    jsonschema::meta::validate(&committed).unwrap();
}

#[test]
fn results_match_the_schema() {
    let validator = jsonschema::draft202012::options().should_validate_formats(true).build(&schema()).unwrap();
    for frames in samples::sizes() {
        let result = samples::result("native", frames, 300.0);
        let errors: Vec<_> = validator.iter_errors(&value(&result)).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}");
    }
    // the smallest document
    let mut minimal = value(&sample());
    for member in ["cell", "calibration", "deviations", "latency", "nodes"] {
        minimal.as_object_mut().unwrap().remove(member);
    }
    minimal["trials"] = json!([]);
    minimal["dut"] = json!({"kind": "loopback"});
    assert!(validator.is_valid(&minimal));
    Result::read_draft(&minimal.to_string()).unwrap();
}

#[test]
fn all_members_of_the_schema_have_descriptions() {
    fn walk(schema: &Value, path: &str) {
        if let Some(members) = schema.get("properties").and_then(Value::as_object) {
            for (name, inner) in members {
                assert!(inner.get("description").is_some(), "{path}.{name}");
                walk(inner, &format!("{path}.{name}"));
            }
        }
    }
    let schema = schema();
    walk(&schema, "result");
    schema["$defs"].as_object().unwrap().iter().for_each(|(name, inner)| walk(inner, name));
}

#[test]
fn detects_changes() {
    let mut result = sample();
    let document = result.verify().unwrap();
    assert_eq!(Document::read(document.text()).unwrap(), document);
    result.summary.lower_pps -= 1.0;
    assert!(matches!(result.verify(), Err(Error::Id { .. })));
    let forged = document.text().replace("\"limited_by\":\"dut\"", "\"limited_by\":\"line_rate\"");
    assert_ne!(forged, document.text());
    assert!(matches!(Document::read(&forged), Err(Error::Id { .. })));
    result.assign_id().unwrap();
    assert_ne!(result.id, document.result().id);
    result.verify().unwrap();
}

#[test]
fn layout_does_not_change_the_id() {
    let result = sample();
    let pretty = serde_json::to_string_pretty(&result).unwrap();
    let document = Document::read(&pretty).unwrap();
    assert_eq!(document.result(), &result);
    assert_eq!(document.text(), result.verify().unwrap().text());
    assert!(document.text().len() < pretty.len());
}

/// A later version of the program may write more members: the id covers them, and the text keeps them.
#[test]
fn keeps_unknown_members() {
    let mut extended = value(&sample());
    extended["weather"] = json!({"rain_mm": 3.5});
    extended["trials"][0]["temperature_c"] = json!(61);
    assert!(matches!(Document::read(&extended.to_string()), Err(Error::Id { .. })), "the id does not cover it");
    let Err(Error::Id { expected, .. }) = Document::read(&extended.to_string()) else { unreachable!() };
    extended["id"] = json!(expected);
    let document = Document::read(&extended.to_string()).unwrap();
    assert!(document.text().contains("rain_mm") && document.text().contains("temperature_c"));
    assert!(matches!(document.result().verify(), Err(Error::Id { .. })), "the result alone is not the document");
    assert!(!jsonschema::is_valid(&schema(), &extended));
}

#[test]
fn rejects_unsupported_schemas() {
    let mut newer = value(&sample());
    newer["schema"] = json!("bondstone.result/3");
    newer["summary"] = json!("now a text");
    assert_eq!(Document::read(&newer.to_string()), Err(Error::Version { found: "bondstone.result/3".to_owned() }));
    for text in ["", "{}", "[]", "null", "{\"schema\": 1}", "{\"schema\": \"bondstone.result/2\"}", "{\"a\": "] {
        assert!(matches!(Document::read(text), Err(Error::Shape { .. })), "{text}");
    }
}

/// A document of schema 1 is read with the names of schema 2; its text and id do not change.
#[test]
fn reads_documents_of_schema_1() {
    let text = include_str!("../data/result-1.json").trim_end();
    let document = Document::read(text).unwrap();
    assert_eq!(document.text(), text);
    let result = document.result();
    assert!(text.contains(&format!("\"id\":\"{}\"", result.id)));
    assert_eq!(result.schema, report::Version::V2);
    assert_eq!(result.limited_by, report::LimitedBy::HostInterference);
    assert_eq!((result.goal.trial_duration_s, result.goal.duration_sum_s), (1.0, 21.0));
    assert_eq!(result.goal.search, "mlrsearch");
    assert_eq!(result.environment.extra["governor"], "performance");
    let marks: Vec<bool> = result.trials.iter().map(|t| t.host_interference).collect();
    assert_eq!(marks, [false, true]);
    assert!(result.trials[0].lateness_hdr.is_some() && result.latency[0].host_interference);
    assert!(result.quantities[0].spread.unwrap().stddev > 7.0);
    assert_eq!(result.traffic.reverse_trace_sha256.as_deref(), Some("ab".repeat(32).as_str()));
    let profile = result.traffic.profile.as_ref().unwrap();
    assert_eq!((profile.duration_s, profile.line_rate_bps), (2, Some(1e10)));
    assert_eq!(result.streams[0].per_second, [[6, 5, 4], [4, 4, 4]]);
    // the result alone, in schema 2, is another document
    let mut upgraded = result.clone();
    assert!(matches!(upgraded.verify(), Err(Error::Id { .. })));
    upgraded.assign_id().unwrap();
    assert!(upgraded.verify().unwrap().text().contains("bondstone.result/2"));
}

fn profile() -> Profile {
    let script = "fn streams() { [#{ name: \"web\" }] }".to_owned();
    Profile {
        name: "day.rhai".to_owned(),
        sha256: sha256(script.as_bytes()),
        script: Some(script),
        duration_s: 2,
        line_rate_bps: None,
    }
}

fn stream() -> Stream {
    let latency = Some(StreamLatency { p50_ns: 5e3, p99_ns: None, max_ns: 9e3, samples: 7 });
    let seconds = vec![[6, 5, 4], [4, 4, 4]];
    let (name, frames) = ("web".to_owned(), "imix".to_owned());
    let (intended, sent, unsent, received, lost) = (10, 9, 1, 8, 1);
    Stream { name, frames, flows: 3, port: 0, intended, sent, unsent, received, lost, latency, per_second: seconds }
}

#[test]
fn streams_of_a_profile_are_stored_and_reported() {
    let mut result = sample();
    result.traffic.profile = Some(profile());
    result.streams = vec![stream(), Stream { name: "dns".to_owned(), ..stream() }];
    result.assign_id().unwrap();
    let text = result.verify().unwrap().text().to_owned();
    assert!(jsonschema::is_valid(&schema(), &serde_json::from_str(&text).unwrap()));
    let read = Document::read(&text).unwrap().into_result();
    assert_eq!(read, result);
    let table = report::table(&[read]);
    let row = |first: &str| {
        let line = table.lines().find(|line| line.split_whitespace().next() == Some(first));
        line.unwrap_or_else(|| panic!("no {first}: {table}")).split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("web")[..10].join(" "), "web imix 3 0 10 9 1 8 1 20");
    // both streams together, in the first second and in the second
    assert_eq!((row("0").join(" "), row("1").join(" ")), ("0 12 10 8 2".to_owned(), "1 8 8 8 0".to_owned()));
    let page = report::html(&[result]);
    assert!(
        ["Streams over time", "dns", "fn streams()", "profile day.rhai of 2 s"].iter().all(|text| page.contains(text))
    );
}

#[test]
fn rejects_inconsistent_values() {
    type Change = fn(&mut Result);
    let changes: [(&str, Change); 19] = [
        ("environment.date", |r| r.environment.date = "yesterday".to_owned()),
        ("dut.chain_sha256", |r| r.dut.chain = Some("bondstone = 1".to_owned())),
        ("dut.chain_sha256", |r| r.dut.chain_sha256 = Some("A".repeat(64))),
        ("traffic.trace_sha256", |r| r.traffic.trace_sha256 = Some("abc".to_owned())),
        ("traffic.reverse_trace_sha256", |r| r.traffic.reverse_trace_sha256 = Some("abc".to_owned())),
        ("traffic.directions", |r| r.traffic.directions = 3),
        ("traffic.profile.sha256", |r| r.traffic.profile = Some(Profile { sha256: "abc".to_owned(), ..profile() })),
        ("traffic.profile.sha256", |r| r.traffic.profile = Some(Profile { script: Some(String::new()), ..profile() })),
        ("traffic.profile.duration_s", |r| r.traffic.profile = Some(Profile { duration_s: 0, ..profile() })),
        ("streams[1]", |r| r.streams = vec![stream(), Stream { lost: 2, ..stream() }]),
        ("streams[0].per_second", |r| r.streams = vec![Stream { per_second: vec![[6, 5, 4], [4, 4, 3]], ..stream() }]),
        ("goal.exceed_ratio", |r| r.goal.exceed_ratio = 1.5),
        ("trials[1]", |r| r.trials[1].lost += 1),
        ("trials[0]", |r| r.trials[0].unsent = 7),
        ("trials[2].lateness_hdr", |r| r.trials[2].lateness_hdr = Some("AAAA".to_owned())),
        ("latency[0]", |r| r.latency[0].p50_ns = r.latency[0].max_ns * 2.0),
        ("summary.upper_pps", |r| r.summary.upper_pps = Some(1.0)),
        ("goal.trial_duration_s", |r| r.goal.trial_duration_s = f64::NAN),
        ("summary.lower_pps", |r| r.summary.lower_pps = -1.0),
    ];
    for (expected, change) in changes {
        let mut result = sample();
        change(&mut result);
        match result.assign_id() {
            Err(Error::Value { path, problem, .. }) => assert_eq!(path, expected, "{problem}"),
            other => panic!("{expected}: {other:?}"),
        }
    }
}

#[test]
fn a_mix_needs_sizes() {
    let mut result = samples::result("bondstone", samples::sizes().pop().unwrap(), 200.0);
    let Frames::Mix(mix) = &mut result.traffic.frames else { panic!("the last is a mix") };
    mix.parts[0].weight = 0;
    assert!(result.check().is_err());
    let Frames::Mix(mix) = &mut result.traffic.frames else { unreachable!() };
    mix.parts.clear();
    assert!(result.check().is_err());
}

#[test]
fn traces_have_a_name_a_hash_and_frames() {
    let trace = report::Trace { name: "lunch.pcap".to_owned(), frames: 337, mean_frame_bytes: 211.9 };
    let mut result = samples::result("bondstone", Frames::Trace(trace), 200.0);
    let document = value(&result);
    let frames = json!({ "trace": { "name": "lunch.pcap", "frames": 337, "mean_frame_bytes": 211.9 } });
    assert_eq!(document["traffic"]["frames"], frames);
    assert!(jsonschema::is_valid(&schema(), &document));
    assert_eq!(Document::read(&document.to_string()).unwrap().result(), &result);
    // rates use the mean frame size
    assert!((result.traffic.l1_bps(1e6) - 8e6 * (211.9 + 20.0)).abs() < 1.0);
    assert_eq!(result.traffic.frames.label(), "lunch.pcap");
    let Frames::Trace(trace) = &mut result.traffic.frames else { unreachable!() };
    trace.frames = 0;
    assert!(matches!(result.check(), Err(Error::Value { path, .. }) if path == "traffic.frames.trace.frames"));
}

#[test]
fn rejects_documents_beyond_the_limits() {
    let mut many = value(&sample());
    let trial = many["trials"][0].clone();
    many["trials"] = Value::Array(vec![trial; limit::TRIALS + 1]);
    let error = Document::read(&many.to_string()).unwrap_err();
    assert!(matches!(&error, Error::Shape { problem, .. } if problem.contains("at most 4096")), "{error}");

    let mut facts = value(&sample());
    facts["cell"] = (0..=limit::FACTS).map(|n| (n.to_string(), json!("x"))).collect();
    assert!(matches!(Document::read(&facts.to_string()), Err(Error::Shape { .. })));

    let wide = format!("{{\"schema\": \"bondstone.result/2\", \"x\": [{}0]}}", "0,".repeat(limit::VALUES));
    assert!(matches!(Document::read(&wide), Err(Error::TooMany { .. })));
    let long = " ".repeat(limit::DOCUMENT_BYTES + 1);
    assert!(matches!(Document::read(&long), Err(Error::TooLong { .. })));
    let deep = format!("{{\"schema\": \"bondstone.result/2\", \"x\": {}", "[".repeat(100_000));
    assert!(matches!(Document::read(&deep), Err(Error::Shape { .. })));
}

#[test]
fn errors_are_short_and_escaped() {
    let mut malicious = value(&sample());
    malicious["dut"]["kind"] = json!("\u{1b}[2J".repeat(10_000));
    let error = Document::read(&malicious.to_string()).unwrap_err().to_string();
    assert!(error.len() < 600 && !error.contains('\u{1b}') && error.starts_with("dut.kind: "), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Numbers are read back exactly: the id stays valid.
    #[test]
    fn numbers_are_exact(load in 0.0..1e12f64, share in 0.0..1.0f64, gap in 0..=limit::COUNT, width in 0.0..1.0f64) {
        let mut result = sample();
        result.trials[0].load_pps = load;
        result.trials[0].poll_gap_max_ns = gap;
        result.goal.width = width;
        result.environment.steal_share = Some(share);
        result.assign_id().unwrap();
        let once = Document::read(&serde_json::to_string(&result).unwrap()).unwrap();
        let twice = Document::read(once.text()).unwrap();
        prop_assert_eq!(&once, &twice);
        prop_assert_eq!(twice.into_result(), result);
    }

    /// Both the schema and the reader reject invalid leaves.
    #[test]
    fn schema_and_reader_agree(which in any::<prop::sample::Index>(), bad in 0usize..6) {
        let mut document = value(&sample());
        let mut all = Vec::new();
        leaves(&document, String::new(), &mut all);
        let path = &all[which.index(all.len())];
        let leaf = document.pointer_mut(path).unwrap();
        let bad = match (bad, &leaf) {
            (0, Value::Number(_)) => json!(-1),
            (1, Value::Number(_)) => json!(1u64 << 53),
            (0, Value::String(_)) => json!("x".repeat(limit::CHAIN + 1)),
            // a chain may be that long
            (1, Value::String(s)) if s.len() < limit::NAME && path != "/dut/chain" => json!("é".repeat(limit::TEXT + 1)),
            (2, Value::Bool(_)) => json!(1),
            (2, _) => json!(true),
            (3, _) => Value::Null,
            (4, _) => json!({}),
            _ => json!([]),
        };
        *leaf = bad;
        prop_assert!(Result::read_draft(&document.to_string()).is_err(), "{} is read", path);
        // the reader alone checks hashes of chains
        prop_assert!(!VALIDATOR.is_valid(&document), "{} is valid", path);
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,60}") {
        prop_assert!(Document::read(&text).is_err());
    }

    #[test]
    fn no_cut_or_changed_text_panics(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let mut bytes = TEXT.clone().into_bytes();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] = byte }
        if let Ok(document) = Document::read(&String::from_utf8_lossy(&bytes)) {
            prop_assert_eq!(document.text(), TEXT.as_str());
        }
    }
}

static TEXT: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| sample().verify().unwrap().text().to_owned());
static VALIDATOR: std::sync::LazyLock<jsonschema::Validator> =
    std::sync::LazyLock::new(|| jsonschema::validator_for(&schema()).unwrap());

//! What is sealed, what is read, what is refused.

use crate::made_up;

use proptest::prelude::*;
use report::{Document, Error, Frames, Profile, Result, Stream, StreamLatency, limit, schema, sha256};
use serde_json::{Value, json};

fn sample() -> Result {
    made_up::result("bondstone", Frames::FrameBytes(64), 200.0)
}

fn value(result: &Result) -> Value {
    serde_json::to_value(result).unwrap()
}

/// Every leaf of a document, as a JSON pointer.
fn leaves(value: &Value, at: String, out: &mut Vec<String>) {
    let escape = |name: &str| name.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Array(elements) => elements.iter().enumerate().for_each(|(n, e)| leaves(e, format!("{at}/{n}"), out)),
        Value::Object(members) => members.iter().for_each(|(k, e)| leaves(e, format!("{at}/{}", escape(k)), out)),
        _ => out.push(at),
    }
}

#[test]
fn the_schema_that_is_kept_is_the_schema() {
    let kept = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/schema/result-1.json")).unwrap();
    let kept: Value = serde_json::from_str(&kept).unwrap();
    assert!(
        kept == schema(),
        "the types have changed: cargo run -p bondstone-report --example schema > crates/report/schema/result-1.json"
    );
    jsonschema::meta::validate(&kept).unwrap();
}

#[test]
fn what_is_produced_is_valid() {
    let validator = jsonschema::draft202012::options().should_validate_formats(true).build(&schema()).unwrap();
    for frames in made_up::sizes() {
        let result = made_up::result("native", frames, 300.0);
        let errors: Vec<_> = validator.iter_errors(&value(&result)).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}");
    }
    // the smallest there is
    let mut least = value(&sample());
    for member in ["cell", "calibration", "deviations", "latency", "nodes"] {
        least.as_object_mut().unwrap().remove(member);
    }
    least["trials"] = json!([]);
    least["dut"] = json!({"kind": "loopback"});
    assert!(validator.is_valid(&least));
    Result::read_draft(&least.to_string()).unwrap();
}

#[test]
fn every_member_of_the_schema_is_described() {
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
fn what_was_changed_is_noticed() {
    let mut result = sample();
    let document = result.verify().unwrap();
    assert_eq!(Document::read(document.text()).unwrap(), document);
    result.summary.lower_pps -= 1.0;
    assert!(matches!(result.verify(), Err(Error::Id { .. })));
    let forged = document.text().replace("\"limited_by\":\"dut\"", "\"limited_by\":\"wire\"");
    assert_ne!(forged, document.text());
    assert!(matches!(Document::read(&forged), Err(Error::Id { .. })));
    result.seal().unwrap();
    assert_ne!(result.id, document.result().id);
    result.verify().unwrap();
}

#[test]
fn layout_is_not_content() {
    let result = sample();
    let pretty = serde_json::to_string_pretty(&result).unwrap();
    let document = Document::read(&pretty).unwrap();
    assert_eq!(document.result(), &result);
    assert_eq!(document.text(), result.verify().unwrap().text());
    assert!(document.text().len() < pretty.len());
}

/// A later writer of version 1 may know more than this reader: the id covers it, the text keeps it.
#[test]
fn what_is_not_known_is_kept() {
    let mut more = value(&sample());
    more["weather"] = json!({"rain_mm": 3.5});
    more["trials"][0]["temperature_c"] = json!(61);
    assert!(matches!(Document::read(&more.to_string()), Err(Error::Id { .. })), "the id does not cover it");
    let Err(Error::Id { expected, .. }) = Document::read(&more.to_string()) else { unreachable!() };
    more["id"] = json!(expected);
    let document = Document::read(&more.to_string()).unwrap();
    assert!(document.text().contains("rain_mm") && document.text().contains("temperature_c"));
    assert!(matches!(document.result().verify(), Err(Error::Id { .. })), "the result alone is not the document");
    assert!(!jsonschema::is_valid(&schema(), &more));
}

#[test]
fn versions_and_kinds_are_told_apart() {
    let mut newer = value(&sample());
    newer["schema"] = json!("bondstone.result/2");
    newer["summary"] = json!("now a text");
    assert_eq!(Document::read(&newer.to_string()), Err(Error::Version { found: "bondstone.result/2".to_owned() }));
    for text in ["", "{}", "[]", "null", "{\"schema\": 1}", "{\"schema\": \"bondstone.result/1\"}", "{\"a\": "] {
        assert!(matches!(Document::read(text), Err(Error::Shape { .. })), "{text}");
    }
}

fn profile() -> Profile {
    let script = "fn streams() { [#{ name: \"web\" }] }".to_owned();
    Profile {
        name: "day.rhai".to_owned(),
        sha256: sha256(script.as_bytes()),
        script: Some(script),
        seconds: 2,
        line_bps: None,
    }
}

fn stream() -> Stream {
    let latency = Some(StreamLatency { p50_ns: 5e3, p99_ns: None, max_ns: 9e3, samples: 7 });
    let seconds = vec![[6, 5, 4], [4, 4, 4]];
    let (name, frames) = ("web".to_owned(), "imix".to_owned());
    let (intended, sent, unsent, received, lost) = (10, 9, 1, 8, 1);
    Stream { name, frames, flows: 3, port: 0, intended, sent, unsent, received, lost, latency, seconds }
}

#[test]
fn streams_of_a_profile_are_kept_and_shown() {
    let mut result = sample();
    result.traffic.profile = Some(profile());
    result.streams = vec![stream(), Stream { name: "dns".to_owned(), ..stream() }];
    result.seal().unwrap();
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
fn what_disagrees_is_refused() {
    type Change = fn(&mut Result);
    let changes: [(&str, Change); 19] = [
        ("environment.date", |r| r.environment.date = "yesterday".to_owned()),
        ("dut.chain_sha256", |r| r.dut.chain = Some("bondstone = 1".to_owned())),
        ("dut.chain_sha256", |r| r.dut.chain_sha256 = Some("A".repeat(64))),
        ("traffic.trace_sha256", |r| r.traffic.trace_sha256 = Some("abc".to_owned())),
        ("traffic.back_sha256", |r| r.traffic.back_sha256 = Some("abc".to_owned())),
        ("traffic.directions", |r| r.traffic.directions = 3),
        ("traffic.profile.sha256", |r| r.traffic.profile = Some(Profile { sha256: "abc".to_owned(), ..profile() })),
        ("traffic.profile.sha256", |r| r.traffic.profile = Some(Profile { script: Some(String::new()), ..profile() })),
        ("traffic.profile.seconds", |r| r.traffic.profile = Some(Profile { seconds: 0, ..profile() })),
        ("streams[1]", |r| r.streams = vec![stream(), Stream { lost: 2, ..stream() }]),
        ("streams[0].seconds", |r| r.streams = vec![Stream { seconds: vec![[6, 5, 4], [4, 4, 3]], ..stream() }]),
        ("goal.exceed_ratio", |r| r.goal.exceed_ratio = 1.5),
        ("trials[1]", |r| r.trials[1].lost += 1),
        ("trials[0]", |r| r.trials[0].unsent = 7),
        ("trials[2].late_hdr", |r| r.trials[2].late_hdr = Some("AAAA".to_owned())),
        ("latency[0]", |r| r.latency[0].p50_ns = r.latency[0].max_ns * 2.0),
        ("summary.upper_pps", |r| r.summary.upper_pps = Some(1.0)),
        ("goal.trial_s", |r| r.goal.trial_s = f64::NAN),
        ("summary.lower_pps", |r| r.summary.lower_pps = -1.0),
    ];
    for (expected, change) in changes {
        let mut result = sample();
        change(&mut result);
        match result.seal() {
            Err(Error::Value { place, problem, .. }) => assert_eq!(place, expected, "{problem}"),
            other => panic!("{expected}: {other:?}"),
        }
    }
}

#[test]
fn a_mix_has_sizes() {
    let mut result = made_up::result("bondstone", made_up::sizes().pop().unwrap(), 200.0);
    let Frames::Mix(mix) = &mut result.traffic.frames else { panic!("the last is a mix") };
    mix.parts[0].weight = 0;
    assert!(result.check().is_err());
    let Frames::Mix(mix) = &mut result.traffic.frames else { unreachable!() };
    mix.parts.clear();
    assert!(result.check().is_err());
}

#[test]
fn a_trace_has_a_name_a_hash_and_frames() {
    let trace = report::Trace { name: "lunch.pcap".to_owned(), frames: 337, mean_frame_bytes: 211.9 };
    let mut result = made_up::result("bondstone", Frames::Trace(trace), 200.0);
    let document = value(&result);
    let frames = json!({ "trace": { "name": "lunch.pcap", "frames": 337, "mean_frame_bytes": 211.9 } });
    assert_eq!(document["traffic"]["frames"], frames);
    assert!(jsonschema::is_valid(&schema(), &document));
    assert_eq!(Document::read(&document.to_string()).unwrap().result(), &result);
    // as of a mix, the mean counts
    assert!((result.traffic.l1_bps(1e6) - 8e6 * (211.9 + 20.0)).abs() < 1.0);
    assert_eq!(result.traffic.frames.label(), "lunch.pcap");
    let Frames::Trace(trace) = &mut result.traffic.frames else { unreachable!() };
    trace.frames = 0;
    assert!(matches!(result.check(), Err(Error::Value { place, .. }) if place == "traffic.frames.trace.frames"));
}

#[test]
fn too_much_is_refused_while_reading() {
    let mut many = value(&sample());
    let trial = many["trials"][0].clone();
    many["trials"] = Value::Array(vec![trial; limit::TRIALS + 1]);
    let error = Document::read(&many.to_string()).unwrap_err();
    assert!(matches!(&error, Error::Shape { problem, .. } if problem.contains("at most 4096")), "{error}");

    let mut facts = value(&sample());
    facts["cell"] = (0..=limit::FACTS).map(|n| (n.to_string(), json!("x"))).collect();
    assert!(matches!(Document::read(&facts.to_string()), Err(Error::Shape { .. })));

    let wide = format!("{{\"schema\": \"bondstone.result/1\", \"x\": [{}0]}}", "0,".repeat(limit::VALUES));
    assert!(matches!(Document::read(&wide), Err(Error::TooMany { .. })));
    let long = " ".repeat(limit::DOCUMENT_BYTES + 1);
    assert!(matches!(Document::read(&long), Err(Error::TooLong { .. })));
    let deep = format!("{{\"schema\": \"bondstone.result/1\", \"x\": {}", "[".repeat(100_000));
    assert!(matches!(Document::read(&deep), Err(Error::Shape { .. })));
}

#[test]
fn errors_are_short_and_plain() {
    let mut hostile = value(&sample());
    hostile["dut"]["kind"] = json!("\u{1b}[2J".repeat(10_000));
    let error = Document::read(&hostile.to_string()).unwrap_err().to_string();
    assert!(error.len() < 600 && !error.contains('\u{1b}') && error.starts_with("dut.kind: "), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Numbers survive: an id that was right is right after any number of readings.
    #[test]
    fn numbers_survive(load in 0.0..1e12f64, share in 0.0..1.0f64, gap in 0..=limit::COUNT, width in 0.0..1.0f64) {
        let mut result = sample();
        result.trials[0].load_pps = load;
        result.trials[0].poll_gap_max_ns = gap;
        result.goal.width = width;
        result.environment.steal_share = Some(share);
        result.seal().unwrap();
        let once = Document::read(&serde_json::to_string(&result).unwrap()).unwrap();
        let twice = Document::read(once.text()).unwrap();
        prop_assert_eq!(&once, &twice);
        prop_assert_eq!(twice.into_result(), result);
    }

    /// What the schema refuses is refused by reading too; both refuse bad leaves wherever they are.
    #[test]
    fn schema_and_reading_agree(which in any::<prop::sample::Index>(), bad in 0usize..6) {
        let mut document = value(&sample());
        let mut all = Vec::new();
        leaves(&document, String::new(), &mut all);
        let place = &all[which.index(all.len())];
        let leaf = document.pointer_mut(place).unwrap();
        let bad = match (bad, &leaf) {
            (0, Value::Number(_)) => json!(-1),
            (1, Value::Number(_)) => json!(1u64 << 53),
            (0, Value::String(_)) => json!("x".repeat(limit::CHAIN + 1)),
            // a chain may be that long
            (1, Value::String(s)) if s.len() < limit::NAME && place != "/dut/chain" => json!("é".repeat(limit::TEXT + 1)),
            (2, Value::Bool(_)) => json!(1),
            (2, _) => json!(true),
            (3, _) => Value::Null,
            (4, _) => json!({}),
            _ => json!([]),
        };
        *leaf = bad;
        prop_assert!(Result::read_draft(&document.to_string()).is_err(), "{} is read", place);
        // how long a chain is, and what a hash is, reading knows better
        prop_assert!(!VALIDATOR.is_valid(&document), "{} is valid", place);
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

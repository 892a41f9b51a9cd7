use super::*;

const WEB: &str = "fn streams() { [#{ name: \"web\", frames: \"imix\", flows: 9 }] }\n";

fn parse(text: &str) -> Result<Profile, Diagnostic> {
    Profile::parse(text, Path::new("some.rhai"))
}

#[test]
fn evaluates_seconds() {
    let profile = parse(&format!("{WEB}fn at(second) {{ #{{ web: #{{ rate: 1000 * (second + 1) }} }} }}")).unwrap();
    assert_eq!((profile.streams().len(), profile.streams()[0].flows), (1, 9));
    let at = |second| profile.at(second).unwrap().remove(0);
    assert_eq!((at(0).rate, at(59).rate), (Rate::Pps(1000.0), Rate::Pps(60_000.0)));
    assert_eq!((at(3).frames.as_str(), at(3).mix.period(), at(3).flows), ("imix", 12, 9));
    let quiet = parse(&format!(
        "{WEB}fn at(second) {{ if second > 0 {{ return #{{ web: #{{ share: 0.5, frames: \"64\", flows: 3 }} }}; }} #{{}} }}"
    ));
    let quiet = quiet.unwrap();
    assert_eq!(quiet.at(0).unwrap(), []);
    let later = quiet.at(1).unwrap().remove(0);
    assert_eq!((later.rate, later.frames.as_str(), later.flows), (Rate::Share(0.5), "64", 3));
}

#[test]
fn errors_have_a_value_and_a_remedy() {
    let at = |body: &str| format!("{WEB}fn at(second) {{ {body} }}");
    for (text, words) in [
        ("fn streams( {".to_owned(), "some.rhai:1"),
        ("fn at(second) { #{} }".to_owned(), "no function streams"),
        (WEB.to_owned(), "no function at"),
        ("fn streams() { 7 } fn at(s) { #{} }".to_owned(), "i64"),
        ("fn streams() { [] } fn at(s) { #{} }".to_owned(), "1 to 64"),
        ("fn streams() { [#{ name: \"\" }] } fn at(s) { #{} }".to_owned(), "duplicate name"),
        ("fn streams() { [#{ name: \"a\", frames: \"63\" }] } fn at(s) { #{} }".to_owned(), "63"),
        ("fn streams() { [#{ name: \"a\", flows: 0 }] } fn at(s) { #{} }".to_owned(), "flows"),
        (at("#{ dns: #{ rate: 1 } }"), "unknown stream"),
        (at("#{ web: #{ rate: -1 } }"), "-1"),
        (at("#{ web: #{ share: 1.5 } }"), "1.5"),
        (at("#{ web: #{ rate: 1, share: 0.1 } }"), "one of rate and share"),
        (at("#{ web: #{ speed: 1 } }"), "speed"),
        (at("#{ web: 5 }"), "not a map"),
        (at("#{ web: #{ rate: 1, flows: \"many\" } }"), "some.rhai:2"),
        ("fn streams() { [#{ name: \"a\", port: 2 }] } fn at(s) { #{} }".to_owned(), "invalid port"),
        ("fn streams() { [#{ name: \"a\" }, #{ name: \"a\" }] } fn at(s) { #{} }".to_owned(), "duplicate name"),
        (at("#{} } fn seconds() { 0"), "invalid number of seconds"),
        (at("#{} } fn seconds() { \"long\""), "invalid number of seconds"),
        (at("let x = \"ab\"; loop { x += x; }"), "Length of string"),
        (at("let x = #{}; let n = 0; loop { x[`${n}`] = 1; n += 1; }"), "1000000 operations"),
        (at("loop { }"), "1000000 operations"),
        (at("fn_that_is_not()"), "fn_that_is_not"),
        (at("let x = []; loop { x.push(1); }"), "at"),
        (at("at(second)"), "some.rhai:2"),
        (at("loop { }"), "some.rhai:2"),
        (at("throw \"\\x1b[31m\""), "some.rhai:2"),
        (format!("{WEB}fn attack() {{ 1 }}\nfn at(second) {{ 7 }}"), "some.rhai:3"),
        (at("eval(\"1\")"), "eval"),
        (at("import \"x\" as y;"), "some.rhai:2"),
    ] {
        let error = parse(&text).err().unwrap_or_else(|| panic!("{text} is accepted"));
        assert!(
            error.to_string().contains(words) && error.remedy.is_some() && error.value.is_some(),
            "{text}: {error}"
        );
        assert!(!error.to_string().contains('\x1b'), "{error:?}");
    }
    let absent = Profile::open(Path::new("/nowhere/at-all.rhai")).unwrap_err();
    assert!(absent.to_string().contains("cannot be read"));
}

/// Parses a comment such as `// second 30: web 500000 pps, dns 0.01 of the line`.
fn parse_comment(line: &str) -> Option<(u32, Vec<String>)> {
    let (second, rest) = line.strip_prefix("// second ")?.split_once(':')?;
    let rest = rest.trim();
    let all = if rest == "nothing" { vec![] } else { rest.split(", ").map(str::to_owned).collect() };
    Some((second.parse().ok()?, all))
}

#[test]
fn examples_match_their_comments() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/profiles");
    let mut examples = 0;
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let profile = Profile::open(&entry).unwrap_or_else(|d| panic!("{d}"));
        let text = std::fs::read_to_string(&entry).unwrap();
        let all: Vec<_> = text.lines().filter_map(parse_comment).collect();
        assert!(all.len() >= 3, "{}: too few comments", entry.display());
        for (second, expected) in all {
            let rates = profile.at(second).unwrap_or_else(|d| panic!("{d}"));
            let given: Vec<String> =
                rates.iter().map(|r| format!("{} {}", profile.streams()[r.stream].name, r.rate)).collect();
            assert_eq!(given, expected, "{}, second {second}", entry.display());
        }
        examples += 1;
    }
    assert!(examples >= 4, "{examples}");
}

const TWO: &str = "fn streams() { [#{ name: \"a\", frames: \"64\" }, #{ name: \"b\", frames: \"1518\", port: 1 }] }\n";

fn table(at: &str, seconds: u32, line_bps: Option<f64>) -> Result<Timetable, Diagnostic> {
    let profile = parse(&format!("{TWO}fn at(second) {{ {at} }}"))?;
    Timetable::new(Arc::new(profile), Some(seconds), line_bps)
}

#[test]
fn evaluates_every_second() {
    let at = "let r = #{ a: #{ rate: 10.5 * second } }; \
              if second == 2 { r.b = #{ share: 0.5, frames: \"64\", flows: 9 }; } r";
    let table = table(at, 4, Some(1e9)).unwrap();
    let of = |n: usize| table.streams()[n].seconds.iter().map(StreamSecond::intended).collect::<Vec<_>>();
    assert_eq!(of(0), [0, 10, 21, 31]);
    // half of the line rate of 1 Gbit/s for 64 bytes and 20 bytes of overhead
    assert_eq!(of(1), [0, 0, 744_047, 0]);
    assert_eq!((table.intended(), table.mean_pps(), table.ports()), (744_109, 744_109.0 / 4.0, 2));
    assert!((table.highest_pps() - 744_068.6).abs() < 1.0);
    assert_eq!((table.streams()[1].flows(), table.streams()[1].frames().as_str()), (9, "64"));
    assert_eq!(table.sizes().into_iter().filter(|(_, n)| *n > 0.0).collect::<Vec<_>>(), [(64, 744_109.0)]);
    assert_eq!((table.seconds(), table.line_bps()), (4, Some(1e9)));
    let length = |text: &str| Timetable::new(Arc::new(parse(text).unwrap()), None, None).unwrap().seconds();
    let at = format!("{TWO}fn at(second) {{ #{{ a: #{{ rate: 1 }} }} }}\n");
    assert_eq!((length(&at), length(&format!("{at}fn seconds() {{ 7 }}"))), (60, 7));
}

#[test]
fn errors_name_the_second() {
    for (at, seconds, words) in [
        (
            "if second == 3 { #{ c: #{ rate: 1 } } } else { #{ a: #{ rate: 1 } } }",
            4,
            &["second 3", "\"c\"", "a, b"][..],
        ),
        ("#{ a: #{ rate: if second == 2 { 3e8 } else { 1 } } }", 3, &["second 2", "300000000"]),
        ("#{ a: #{ rate: if second == 2 { 0.5 } else { 1 } } }", 3, &["second 2", "0.5"]),
        ("#{ a: #{ share: if second == 2 { 1e-9 } else { 1 } } }", 3, &["second 2", "neither 0 nor 1"]),
        ("#{ a: #{ rate: 1.5e8 }, b: #{ rate: 1e8 } }", 1, &["second 0", "250000000"]),
        ("if second == 1 { loop {} } #{ a: #{ rate: 1 } }", 2, &["second 1", "1000000 operations"]),
        ("let x = 0; for n in 0..9999 { x += n; } #{ a: #{ rate: 1 } }", 10_000, &["20000000 operations"]),
        ("#{ a: #{ rate: 1, flows: 1 + second } }", 10_000, &["change them less often"]),
        ("#{ a: #{ rate: 1, frames: `${64 + second}` } }", 400, &["sizes of frames"]),
        ("#{ a: #{ rate: 1, flows: 16777216 } }", 1, &["flows of all streams"]),
        ("#{}", 5, &["5 s", "\"0\""]),
        ("#{ a: #{ rate: 1 } }", 10_001, &["10001"]),
        ("#{ a: #{ rate: 1 } }", 0, &["seconds"]),
    ] {
        let error = table(at, seconds, None).err().unwrap_or_else(|| panic!("{at} is accepted"));
        assert!(error.remedy.is_some() && error.value.is_some(), "{at}: {error}");
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{at}: {error}");
    }
}

#[test]
fn seconds_are_evaluated_separately() {
    // variables of a call do not exist in the next one
    let timetable = table("let n = if is_def_var(\"n\") { 2 } else { 1 }; #{ a: #{ rate: n } }", 3, None).unwrap();
    assert_eq!(timetable.intended(), 3);
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "[a-z0-9 #{}\\[\\]():;,.\"=+]{0,200}") {
        let _ = parse(&text);
    }
}

//! Log messages of a run: formats, outputs, levels, limits.

use crate::common::instance::{CHAIN, command, program, start};
use crate::common::{LIMIT, Running, Said, Scratch, alone};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Returns the lines of JSON on standard error, all of which must have the same keys.
#[track_caller]
fn messages(err: &str) -> Vec<Value> {
    let parsed = err.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")));
    let all: Vec<Value> = parsed.collect();
    for message in &all {
        let keys: Vec<&str> = message.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["fields", "level", "message", "target", "time"]);
        let time = message["time"].as_str().unwrap();
        assert!(time.len() == 27 && humantime::parse_rfc3339(time).is_ok(), "{time}");
    }
    all
}

/// Returns the control socket of the only run.
fn socket(dir: &Path) -> PathBuf {
    std::fs::read_dir(dir).unwrap().next().unwrap().unwrap().path()
}

#[test]
fn json_has_an_object_in_each_line() {
    let _alone = alone();
    let scratch = Scratch::new();
    let (dir, edge) = (scratch.path("sockets"), scratch.write("edge.toml", CHAIN));
    let mut run = program(&dir);
    let mut running = Running::start(run.arg("run").arg(&edge).args(["--json", "--log-format", "json"]));
    running.wait_for("rates", |line| line.contains("received_pps"));
    let other = scratch.write("other.toml", CHAIN.replace("hops", "third"));
    assert_eq!(command(&dir, &["reload", other.to_str().unwrap()]).status, Some(0));
    let wrong = scratch.write("wrong.toml", CHAIN.replace("ttl", "tll"));
    assert_eq!(command(&dir, &["reload", wrong.to_str().unwrap()]).status, Some(2));
    let id = running.id().to_string();
    assert_eq!(command(&dir, &["stop"]).status, Some(0));
    let ended = running.end();
    assert_eq!(ended.status, Some(0), "{}", ended.err);
    let all = messages(&ended.err);
    assert!(all.iter().all(|m| m["fields"]["chain"] == edge.to_str().unwrap() && m["fields"]["instance"] == *id));
    let of = |target: &str, level: &str| -> Vec<&Value> {
        all.iter().filter(|m| m["target"] == target && m["level"] == level).collect()
    };
    assert!(of("run", "info").iter().any(|m| m["fields"]["cpu"].is_u64()), "{all:?}");
    assert!(of("rates", "debug").iter().all(|m| m["fields"]["sent_pps"].as_f64() >= Some(0.0)));
    let reloaded = of("reload", "info")[0];
    assert!(reloaded["fields"]["file"] == other.to_str().unwrap() && reloaded["fields"]["build_ms"].is_f64());
    assert!(reloaded["message"].as_str().unwrap().contains("\n  added"), "{reloaded}");
    assert!(of("reload", "error")[0]["message"].as_str().unwrap().contains("wrong.toml:7:8"));

    // a run that cannot start
    let failed: Said = program(&dir).arg("run").arg(&wrong).args(["--log-format", "json"]).output().unwrap().into();
    assert_eq!(failed.status, Some(2));
    assert_eq!(messages(&failed.err)[0]["level"], "error");
}

#[test]
fn rates_are_logged_on_a_terminal_or_on_request() {
    let _alone = alone();
    let scratch = Scratch::new();
    let edge = scratch.write("edge.toml", CHAIN);
    let run = format!("{} run {} --for 1200ms", env!("CARGO_BIN_EXE_bondstone"), edge.display());
    let shell = |program: &[&str], level: &str| {
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).arg(&run).env("BONDSTONE_LOG", level);
        let said: Said = command.stdin(Stdio::null()).output().unwrap().into();
        assert_eq!(said.status, Some(0), "{}{}", said.out, said.err);
        [said.out, said.err].concat()
    };
    let has_rates = |text: &str| text.contains("in rx ");
    assert!(!has_rates(&shell(&["sh", "-c"], "")));
    assert!(has_rates(&shell(&["sh", "-c"], "rates=debug")));
    if Command::new("script").arg("--version").output().is_err() {
        eprintln!("skipped: script is not installed");
        return;
    }
    let terminal = ["script", "-q", "-e", "/dev/null", "-c"];
    assert!(has_rates(&shell(&terminal, "")));
    assert!(!has_rates(&shell(&terminal, "warn")));
}

#[test]
fn levels_are_changed_while_it_runs() {
    let _alone = alone();
    let scratch = Scratch::new();
    let (dir, edge) = (scratch.path("sockets"), scratch.write("edge.toml", CHAIN));
    let mut running = start(&dir, &edge, &["--log-level", "warn,run=info"]);
    let level = |arguments: &[&str]| {
        let said = command(&dir, &[&["log", "level", "--json"], arguments].concat());
        assert_eq!(said.status, Some(0), "{}", said.err);
        serde_json::from_str::<Value>(&said.out).unwrap()
    };
    let first = level(&[]);
    assert_eq!((&first["directives"], &first["levels"]["nf"]), (&"warn,run=info".into(), &"warn".into()));
    let reload = || assert_eq!(command(&dir, &["reload"]).status, Some(0));
    reload();
    assert_eq!(level(&["debug", "--target", "reload"])["directives"], "warn,reload=debug,run=info");
    reload();
    running.wait_for("the second reload", |line| line.starts_with("note: reloaded "));
    assert_eq!(level(&["off"])["levels"]["reload"], "off");
    reload();
    assert_eq!(level(&["info,control=debug"])["levels"]["control"], "debug");
    assert_eq!(level(&["--target", "control"])["levels"], serde_json::json!({"control": "debug"}));
    assert_eq!(command(&dir, &["stats"]).status, Some(0));
    running.wait_for("a request", |line| line == "debug: request stats");

    let shown = command(&dir, &["log", "level"]);
    assert!(
        shown.out.starts_with("info,control=debug\n") && shown.out.contains("clients and requests"),
        "{}",
        shown.out
    );
    for (arguments, cause) in [
        (&["loud"][..], "\"loud\" is not a level; levels are off, error, "),
        (&["nf=loud"], "\"loud\" is not a level"),
        (&["debug", "--target", "a b"], "\"a b\" is not a target; those of Bondstone are control, "),
        (&["--target", ""], "is not a target"),
        (&["nf=debug", "--target", "nf"], "is not a level"),
    ] {
        let said = command(&dir, &[&["log", "level"], arguments].concat());
        assert_eq!(said.status, Some(2), "{arguments:?}: {}", said.err);
        assert!(said.err.contains(cause) && said.err.contains("help: "), "{arguments:?}: {}", said.err);
    }
    assert_eq!(level(&[])["directives"], "info,control=debug");
    assert_eq!(command(&dir, &["stop"]).status, Some(0));
    let ended = running.end();
    assert_eq!(ended.status, Some(0));
    assert_eq!(ended.err.lines().filter(|line| line.starts_with("note: reloaded ")).count(), 1, "{}", ended.err);
}

#[test]
fn messages_of_the_same_cause_are_limited_and_counted() {
    let _alone = alone();
    let scratch = Scratch::new();
    let (dir, edge) = (scratch.path("sockets"), scratch.write("edge.toml", CHAIN));
    let running = start(&dir, &edge, &[]);
    let client = UnixStream::connect(socket(&dir)).unwrap();
    let mut answers = BufReader::new(&client).lines();
    answers.next().unwrap().unwrap();
    for n in 0..50 {
        writeln!(&client, "{{\"request\":\"no-{n}\\u001b[2J\"}}").unwrap();
        assert!(answers.next().unwrap().unwrap().contains("is not a request"));
    }
    assert_eq!(command(&dir, &["stop"]).status, Some(0));
    let ended = running.end();
    assert_eq!(ended.status, Some(0));
    // the escape sequence of the client is not in the output
    assert!(!ended.err.contains('\u{1b}'), "{}", ended.err);
    let logged = ended.err.lines().filter(|line| line.starts_with("warning: request refused: ")).count();
    let suppressed = ended.err.lines().filter_map(|line| {
        let (count, of) = line.strip_prefix("warning: ")?.split_once(" more messages suppressed: ")?;
        assert!(of.starts_with("request refused: is not a request"), "{line}");
        count.parse::<usize>().ok()
    });
    // an interval is 10 s
    assert!((10..50).contains(&logged), "{logged}");
    assert_eq!(logged + suppressed.sum::<usize>(), 50, "{}", ended.err);
}

/// Starts a run whose messages are sent to a socket.
fn to(output: &str, socket: &Path, edge: &Path, more: &[&str]) -> Child {
    let mut run = program(&edge.with_file_name("sockets"));
    run.arg("run").arg(edge).args(["--json", "--log-to", output, "--log-socket"]).arg(socket).args(more);
    run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

fn receive(server: &UnixDatagram) -> Vec<u8> {
    server.set_read_timeout(Some(LIMIT)).unwrap();
    let mut bytes = vec![0; 1 << 16];
    let len = server.recv(&mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

#[test]
fn syslog_receives_messages() {
    let _alone = alone();
    let scratch = Scratch::new();
    let (edge, path) = (scratch.write("edge.toml", CHAIN), scratch.path("log"));
    let server = UnixDatagram::bind(&path).unwrap();
    let run = to("syslog", &path, &edge, &[]);
    let id = run.id();
    let head = format!("<30>bondstone[{id}]: note: CPU ");
    while !String::from_utf8(receive(&server)).unwrap().starts_with(&head) {}
    // the server is restarted; messages until then are counted
    drop(server);
    std::fs::remove_file(&path).unwrap();
    let dir = scratch.path("sockets");
    (0..3).for_each(|_| assert_eq!(command(&dir, &["reload"]).status, Some(0)));
    let server = UnixDatagram::bind(&path).unwrap();
    assert_eq!(command(&dir, &["stop"]).status, Some(0));
    let lost = String::from_utf8(receive(&server)).unwrap();
    let expected = format!("<28>bondstone[{id}]: warning: messages lost because syslog accepted no more: ");
    // those of the reloads, and on a busy machine of warnings
    let number = lost.strip_prefix(&expected).and_then(|number| number.parse::<u64>().ok());
    assert!(number >= Some(3), "{lost}");
    assert!(receive(&server).ends_with(b"stopped through the control socket"));
    let said: Said = run.wait_with_output().unwrap().into();
    assert_eq!((said.status, said.err.as_str()), (Some(0), ""));
    // as JSON
    let run = to("syslog", &path, &edge, &["--log-format", "json", "--for", "100ms"]);
    let line = String::from_utf8(receive(&server)).unwrap();
    let (_, json) = line.split_once("]: ").unwrap();
    assert_eq!(messages(json)[0]["fields"]["chain"], edge.to_str().unwrap());
    assert_eq!(Said::from(run.wait_with_output().unwrap()).status, Some(0));
}

#[test]
fn a_log_server_that_accepts_nothing_does_not_end_the_data_plane() {
    let _alone = alone();
    let scratch = Scratch::new();
    let (edge, path) = (scratch.write("edge.toml", CHAIN), scratch.path("log"));
    // of the datagrams that it does not read, the kernel queues a few
    let _server = UnixDatagram::bind(&path).unwrap();
    for output in ["syslog", "journald"] {
        let run = to(output, &path, &edge, &["--log-level", "trace"]);
        let dir = scratch.path("sockets");
        crate::common::sandboxed_run::until("its socket", || command(&dir, &["stats"]).status == Some(0));
        let client = UnixStream::connect(socket(&dir)).unwrap();
        let mut answers = BufReader::new(&client).lines();
        for _ in 0..3000 {
            writeln!(&client, "{{\"request\":\"log-level\",\"set\":\"trace\"}}").unwrap();
            answers.next().unwrap().unwrap();
        }
        assert_eq!(command(&dir, &["stop"]).status, Some(0));
        assert_eq!(Said::from(run.wait_with_output().unwrap()).status, Some(0), "{output}");
    }
    // a server that is absent is an error of the start
    let run = to("syslog", &scratch.path("absent"), &edge, &[]);
    let said: Said = run.wait_with_output().unwrap().into();
    assert_eq!(said.status, Some(3), "{}", said.err);
    assert!(said.err.contains("absent: No such file") && said.err.contains("help: "), "{}", said.err);
    let said: Said =
        program(&scratch.path("sockets")).arg("run").arg(&edge).arg("--log-socket").arg(&path).output().unwrap().into();
    assert!(said.status == Some(2) && said.err.contains("add --log-to journald"), "{}", said.err);
}

/// Parses a datagram of the native protocol of journald, with values of any bytes.
fn journal_entry(mut bytes: &[u8]) -> Vec<(String, String)> {
    let mut fields = vec![];
    while let Some(end) = bytes.iter().position(|b| *b == b'\n') {
        let (name, rest) = bytes.split_at(end);
        let (len, rest) = rest[1..].split_first_chunk::<8>().unwrap();
        let (value, rest) = rest.split_at(u64::from_le_bytes(*len) as usize);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        fields.push((text(name), text(value)));
        bytes = rest.strip_prefix(b"\n").unwrap();
    }
    assert!(bytes.is_empty());
    fields
}

#[test]
fn journald_receives_fields_and_is_detected() {
    let _alone = alone();
    let scratch = Scratch::new();
    let (edge, path) = (scratch.write("edge.toml", CHAIN), scratch.path("journal"));
    let server = UnixDatagram::bind(&path).unwrap();
    // systemd names the file that is standard error
    let stderr = scratch.write("stderr", "");
    let file = std::fs::metadata(&stderr).unwrap();
    let run = |journal: &str, more: &[&str]| {
        let mut run = program(&scratch.path("sockets"));
        run.arg("run").arg(&edge).args(["--json", "--for", "100ms"]).args(more).env("JOURNAL_STREAM", journal);
        run.stdout(Stdio::null()).stderr(std::fs::File::create(&stderr).unwrap()).status().unwrap().code()
    };
    let own = format!("{}:{}", file.dev(), file.ino());
    assert_eq!(run(&own, &["--log-socket", path.to_str().unwrap()]), Some(0));
    assert_eq!(std::fs::read_to_string(&stderr).unwrap(), "");
    let entry = loop {
        let entry = journal_entry(&receive(&server));
        if entry[0].1.starts_with("CPU ") {
            break entry;
        }
    };
    let value = |name: &str| entry.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str());
    assert_eq!(value("PRIORITY"), Some("6"));
    assert_eq!(value("SYSLOG_IDENTIFIER"), Some("bondstone"));
    assert_eq!(value("BONDSTONE_TARGET"), Some("run"));
    assert_eq!(value("BONDSTONE_CHAIN"), edge.to_str());
    assert!(value("BONDSTONE_CPU").is_some_and(|cpu| cpu.parse::<u32>().is_ok()), "{entry:?}");

    // standard error with priorities, which journald removes
    assert_eq!(run(&own, &["--log-format", "json"]), Some(0));
    let text = std::fs::read_to_string(&stderr).unwrap();
    let lines: Vec<&str> = text.lines().map(|line| line.strip_prefix("<6>").unwrap_or(line)).collect();
    assert!(!messages(&lines.join("\n")).is_empty() && text.starts_with('<'), "{text}");
    // another file than that of systemd
    assert_eq!(run("1:1", &[]), Some(0));
    assert!(std::fs::read_to_string(&stderr).unwrap().contains("note: CPU "));
    // a journald that is absent
    assert_eq!(run(&own, &["--log-socket", "/absent"]), Some(0));
    assert!(std::fs::read_to_string(&stderr).unwrap().contains("note: CPU "));
    assert_eq!(run("1:1", &["--log-to", "journald", "--log-format", "json"]), Some(2));
}

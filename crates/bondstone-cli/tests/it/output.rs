//! Standard output and standard error that accept nothing.

use crate::common::{LIMIT, Scratch, Summary, alone};
use rustix::process::Signal;
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// Returns a pipe whose reader is closed.
fn closed() -> PipeWriter {
    std::io::pipe().unwrap().1
}

/// Returns a pipe that is full, and which is not read as long as the reader is retained.
fn blocked() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while writer.write(&[b'x'; 4096]).is_ok() {}
    while writer.write(b"x").is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    (reader, writer)
}

/// Waits until a process ends.
fn end(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + LIMIT / 6;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bondstone"));
    command.args(arguments);
    command
}

#[test]
fn a_standard_error_that_accepts_nothing_does_not_end_the_data_plane() {
    let _alone = alone();
    let scratch = Scratch::new();
    let file = scratch.write(
        "chain.toml",
        "bondstone = 1\nport.in.device = \"null\"\nport.out.device = \"null\"\n\
         [[chain]]\npath = [\"in\", \"count\", \"out\"]\n",
    );
    let (reader, writer) = blocked();
    // a line of rates follows after a second
    for (what, stderr) in
        [("full", Stdio::from(full())), ("closed", Stdio::from(closed())), ("blocked", Stdio::from(writer))]
    {
        let mut run = command(&["run", file.to_str().unwrap(), "--json", "--for", "1200ms"]);
        run.args(["--log-level", "info,rates=debug"]);
        let mut child = run.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        assert_eq!(end(&mut child).code(), Some(0), "{what}");
        let mut text = String::new();
        child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        let summary = Summary(serde_json::from_str(&text).unwrap_or_else(|e| panic!("{what}: {e}: {text}")));
        assert_eq!(summary.0["balanced"], true, "{what}: {text}");
        assert!(summary.number("/totals/sent") > 0, "{what}: {text}");
    }
    drop(reader);
}

#[test]
fn an_interrupt_ends_a_run_whose_standard_error_is_blocked() {
    let _alone = alone();
    let scratch = Scratch::new();
    scratch.capture("in.pcap", 1000);
    let file = scratch.write(
        "chain.toml",
        "bondstone = 1\nport.in = { device = \"pcap:in.pcap\", repeat = 0, timed = true }\n\
         port.out.device = \"pcap:out.pcap\"\n[[chain]]\npath = [\"in\", \"out\"]\n",
    );
    let (reader, writer) = blocked();
    let mut run = command(&["run", file.to_str().unwrap(), "--json"]);
    let mut child = run.stdout(Stdio::null()).stderr(writer).spawn().unwrap();
    let forwards = || std::fs::metadata(scratch.path("out.pcap")).is_ok_and(|file| file.len() > 1 << 20);
    crate::common::sandboxed_run::until("packets", forwards);
    let id = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(id, Signal::INT).unwrap();
    assert_eq!(end(&mut child).code(), Some(130));
    drop(reader);
}

#[test]
fn a_crash_ends_a_process_whose_standard_error_is_blocked() {
    let _alone = alone();
    let scratch = Scratch::new();
    let file = scratch.write(
        "chain.toml",
        "bondstone = 1\nport.in.device = \"null\"\nport.out.device = \"null\"\n\
         nf.bad = { kind = \"misbehave\", how = \"exit\", after = 1000 }\n[[chain]]\npath = [\"in\", \"bad\", \"out\"]\n",
    );
    let (reader, writer) = blocked();
    let mut run = Command::new(crate::common::misbehave());
    let mut child = run.arg("run").arg(file).stdout(Stdio::null()).stderr(writer).spawn().unwrap();
    assert_eq!(end(&mut child).code(), Some(4));
    drop(reader);
}

#[test]
fn the_exit_status_tells_that_standard_output_cannot_be_written() {
    let _alone = alone();
    let scratch = Scratch::new();
    let demo = crate::common::sandboxed_run::demo();
    let chain = format!(
        "bondstone = 1\nport.in.device = \"pcap:{demo}\"\nport.out.device = \"null\"\n\
         [[chain]]\npath = [\"in\", \"count\", \"out\"]\n"
    );
    let file = scratch.write("chain.toml", chain);
    let file = file.to_str().unwrap();
    for arguments in [
        &["--help"][..],
        &["run", "--help"],
        &["nf", "list"],
        &["nf", "show", "ttl", "--json"],
        &["plan", file],
        &["plan", file, "--json"],
        &["check", file],
        &["run", file],
        &["run", file, "--json"],
    ] {
        for (what, stdout) in [("full", Stdio::from(full())), ("closed", Stdio::from(closed()))] {
            let output = command(arguments).stdout(stdout).output().unwrap();
            let err = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(4), "{arguments:?}: {what}: {err}");
            assert!(!err.contains("panicked"), "{arguments:?}: {what}: {err}");
            let is_help = arguments.contains(&"--help");
            let is_named = err.contains("error: standard output: No space left on device");
            assert_eq!(is_named, what == "full" && !is_help, "{arguments:?}: {what}: {err}");
        }
    }
}

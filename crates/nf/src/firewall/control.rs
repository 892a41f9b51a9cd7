//! The protocol of the control socket, by which rules are added, removed and listed.

use super::live_rules::LiveRules;
use super::rule_set::{Edit, RuleSet};
use ::control::socket::{close, listen};
use diagnostics::Diagnostic;
use logger::eprintln;
use std::io::{BufRead, BufReader, ErrorKind, Read as _, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{Builder, sleep};
use std::time::Duration;

/// Longest request in bytes.
const MAX_LINE_LEN: u64 = 4096;
/// Largest number of requests that are applied as one change.
const MAX_BATCHED_LINES: usize = 256;
/// Largest number of simultaneous clients.
const MAX_CLIENTS: usize = 16;
/// Interval at which it is checked whether packets may arrive.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Serves the control socket until the last user of the rules is dropped.
pub(super) fn serve(live_rules: &Weak<LiveRules>, socket: &Path) {
    while live_rules.upgrade().is_some_and(|live_rules| !live_rules.is_running()) {
        sleep(POLL_INTERVAL);
    }
    // the firewall before a reload closes its socket soon
    let retry = (0..10).find_map(|_| match listen(socket) {
        Err(e) if e.kind() == ErrorKind::AddrInUse => {
            sleep(POLL_INTERVAL);
            None
        }
        result => Some(result),
    });
    let listener = match retry.unwrap_or_else(|| listen(socket)) {
        Ok((listener, id)) => match live_rules.upgrade() {
            Some(live_rules) => {
                live_rules.set_socket(id);
                listener
            }
            None => return close(socket, id),
        },
        Err(e) => return eprintln!("firewall: cannot listen on control socket {}: {e}", socket.display()),
    };
    let connected = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        if live_rules.strong_count() == 0 {
            return;
        }
        // the client is gone, or the process has too many open files
        let Ok(stream) = stream else {
            sleep(POLL_INTERVAL);
            continue;
        };
        if connected.fetch_add(1, Ordering::Relaxed) >= MAX_CLIENTS {
            connected.fetch_sub(1, Ordering::Relaxed);
            // ignore errors: the client is gone
            let _ = (&stream).write_all(format!("error: {MAX_CLIENTS} clients are connected already\n").as_bytes());
            continue;
        }
        let (live_rules, count) = (live_rules.clone(), connected.clone());
        let handle = move || {
            // ignore errors: the client is gone
            let _ = handle_client(&live_rules, &stream);
            count.fetch_sub(1, Ordering::Relaxed);
        };
        if Builder::new().name("firewall-control".to_owned()).spawn(handle).is_err() {
            connected.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Finds the edit that a request stands for.
type Change = dyn Fn(&RuleSet) -> Result<Edit, Diagnostic>;

/// A parsed request.
enum Request {
    Change(Box<Change>),
    List,
    Invalid(Diagnostic),
}

fn handle_client(live_rules: &Weak<LiveRules>, stream: &UnixStream) -> std::io::Result<()> {
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    let mut line = vec![];
    loop {
        let mut requests = vec![];
        // requests that arrived together are one change
        loop {
            line.clear();
            let n = reader.by_ref().take(MAX_LINE_LEN).read_until(b'\n', &mut line)? as u64;
            if n == 0 {
                return Ok(());
            }
            if n == MAX_LINE_LEN && line.last() != Some(&b'\n') {
                return writer.write_all(format!("error: a line is longer than {MAX_LINE_LEN} bytes\n").as_bytes());
            }
            let Some(live_rules) = live_rules.upgrade() else { return Ok(()) };
            requests.push(parse_request(&live_rules, &String::from_utf8_lossy(&line)));
            if !reader.buffer().contains(&b'\n') || requests.len() == MAX_BATCHED_LINES {
                break;
            }
        }
        for requests in requests.chunk_by(|a, b| matches!((a, b), (Request::Change(_), Request::Change(_)))) {
            let Some(live_rules) = live_rules.upgrade() else { return Ok(()) };
            let mut response = String::new();
            match &requests[0] {
                Request::Change(_) => {
                    let changes: Vec<_> = requests
                        .iter()
                        .filter_map(|a| if let Request::Change(change) = a { Some(change) } else { None })
                        .collect();
                    for result in live_rules.apply_changes(&changes) {
                        response += &result.map_or_else(|e| format_error(&e), |()| "ok\n".to_owned());
                    }
                }
                Request::List => {
                    live_rules.with_rules(|rules| {
                        (1..).zip(rules).for_each(|(n, rule)| response += &format!("{n} {}\n", rule.text))
                    });
                    response += "ok\n";
                }
                Request::Invalid(error) => response += &format_error(error),
            }
            // the client may end the chain once it has the response
            drop(live_rules);
            writer.write_all(response.as_bytes())?;
        }
    }
}

/// Formats an error as a line.
fn format_error(error: &Diagnostic) -> String {
    let words: Vec<_> = error.to_string().split_whitespace().map(str::to_owned).collect();
    format!("error: {}\n", words.join(" "))
}

fn parse_request(live_rules: &LiveRules, line: &str) -> Request {
    let line = line.trim();
    let (verb, rest) = line.split_once(' ').map_or((line, ""), |(verb, rest)| (verb, rest.trim()));
    let number = |word: &str| word.parse::<usize>().ok();
    match verb {
        "add" => {
            let (at, text) = match rest.split_once(' ') {
                Some((word, text)) if number(word).is_some() => (number(word), text.trim()),
                _ => (None, rest),
            };
            match live_rules.rule(text) {
                Ok(rule) => Request::Change(Box::new(move |rule_set| {
                    let rules = rule_set.rules().len();
                    match at {
                        None => Ok(Edit::Insert(rules, rule.clone())),
                        Some(n) if (1..=rules + 1).contains(&n) => Ok(Edit::Insert(n - 1, rule.clone())),
                        Some(n) => Err(no_such_rule(n, rules)),
                    }
                })),
                Err(error) => Request::Invalid(error),
            }
        }
        "remove" => {
            let (text, at) = (rest.to_owned(), number(rest));
            Request::Change(Box::new(move |rule_set| {
                let rules = rule_set.rules().len();
                match at {
                    Some(n) if (1..=rules).contains(&n) => Ok(Edit::Remove(n - 1)),
                    Some(n) => Err(no_such_rule(n, rules)),
                    None => match rule_set.rules().position(|rule| rule.text == text) {
                        Some(at) => Ok(Edit::Remove(at)),
                        None => Err(Diagnostic::new("is not in the list of rules")
                            .value(&text)
                            .remedy("send \"list\" for the rules and their numbers")),
                    },
                }
            }))
        }
        "list" if rest.is_empty() => Request::List,
        _ => {
            let remedy = "write add RULE, add NUMBER RULE, remove NUMBER, remove RULE or list";
            Request::Invalid(Diagnostic::new("is not a request").value(line).remedy(remedy))
        }
    }
}

fn no_such_rule(number: usize, rules: usize) -> Diagnostic {
    Diagnostic::new(format!("is not the number of a rule: there are {rules} rules"))
        .value(number)
        .remedy("send \"list\" for the rules and their numbers")
}

//! The socket by which rules are added, removed and listed.

use super::live::Live;
use super::policy::{Edit, Policy};
use graph::Diagnostic;
use std::fs::{Permissions, remove_file, set_permissions};
use std::io::{BufRead, BufReader, ErrorKind, Read as _, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{Builder, sleep};
use std::time::Duration;

/// Bytes of a line at most.
const LONGEST_LINE: u64 = 4096;
/// Lines that are made one change, at most.
const TOGETHER: usize = 256;
/// Who may be connected at once.
const MOST: usize = 16;
/// How often it is looked whether packets may come.
const LOOK: Duration = Duration::from_millis(10);

/// Whether there can be a socket.
pub(super) fn check(socket: &Path) -> Result<(), Diagnostic> {
    let wrong = |what: &str, cure: &str| Err(Diagnostic::new(what).key("control").value(socket.display()).cure(cure));
    match socket.parent() {
        Some(folder) if folder.as_os_str().is_empty() || folder.is_dir() => {}
        _ => return wrong("is in no folder that there is", "name a place for a Unix socket"),
    }
    // as much as the kernel takes
    if socket.as_os_str().len() > 107 {
        return wrong("is too long", "name a socket by 107 bytes or fewer");
    }
    Ok(())
}

/// Takes changes until nobody has the rules any more.
pub(super) fn serve(live: &Weak<Live>, socket: &Path) {
    while live.upgrade().is_some_and(|live| !live.is_running()) {
        sleep(LOOK);
    }
    let listener = match listen(socket) {
        Ok(listener) if live.strong_count() != 0 => listener,
        Ok(_) => return,
        Err(e) => return eprintln!("firewall: nobody listens at {}: {e}", socket.display()),
    };
    let connected = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming().map_while(Result::ok) {
        if live.strong_count() == 0 {
            return;
        }
        if connected.fetch_add(1, Ordering::Relaxed) >= MOST {
            connected.fetch_sub(1, Ordering::Relaxed);
            // errors: it is gone already
            let _ = (&stream).write_all(format!("error: {MOST} are connected already\n").as_bytes());
            continue;
        }
        let (live, connected) = (live.clone(), connected.clone());
        let talk = move || {
            // errors: it is gone
            let _ = talk(&live, &stream);
            connected.fetch_sub(1, Ordering::Relaxed);
        };
        drop(Builder::new().name("firewall-control".to_owned()).spawn(talk));
    }
}

/// Listens where nobody does, for the owner alone.
fn listen(socket: &Path) -> std::io::Result<UnixListener> {
    let listener = match UnixListener::bind(socket) {
        // left by one that was killed
        Err(e) if e.kind() == ErrorKind::AddrInUse && UnixStream::connect(socket).is_err() => {
            remove_file(socket)?;
            UnixListener::bind(socket)?
        }
        other => other?,
    };
    set_permissions(socket, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Ends [`serve`].
pub(super) fn leave(socket: &Path) {
    // errors: it has never begun
    drop(UnixStream::connect(socket));
    let _ = remove_file(socket);
}

/// Finds in the list what a line wants changed.
type Change = dyn Fn(&Policy) -> Result<Edit, Diagnostic>;

/// What a line asks for.
enum Asked {
    Change(Box<Change>),
    List,
    Wrong(Diagnostic),
}

fn talk(live: &Weak<Live>, stream: &UnixStream) -> std::io::Result<()> {
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    let mut line = vec![];
    loop {
        let mut asked = vec![];
        // what has come is one change
        loop {
            line.clear();
            let n = reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)? as u64;
            if n == 0 {
                return Ok(());
            }
            if n == LONGEST_LINE && line.last() != Some(&b'\n') {
                return writer.write_all(format!("error: a line is longer than {LONGEST_LINE} bytes\n").as_bytes());
            }
            let Some(live) = live.upgrade() else { return Ok(()) };
            asked.push(ask(&live, &String::from_utf8_lossy(&line)));
            if !reader.buffer().contains(&b'\n') || asked.len() == TOGETHER {
                break;
            }
        }
        let Some(live) = live.upgrade() else { return Ok(()) };
        let mut answers = String::new();
        for asked in asked.chunk_by(|a, b| matches!((a, b), (Asked::Change(_), Asked::Change(_)))) {
            match &asked[0] {
                Asked::Change(_) => {
                    let changes: Vec<_> = asked
                        .iter()
                        .filter_map(|a| if let Asked::Change(change) = a { Some(change) } else { None })
                        .collect();
                    for done in live.change(&changes) {
                        answers += &done.map_or_else(|e| answer(&e), |()| "ok\n".to_owned());
                    }
                }
                Asked::List => {
                    live.look(|rules| {
                        (1..).zip(rules).for_each(|(n, rule)| answers += &format!("{n} {}\n", rule.text))
                    });
                    answers += "ok\n";
                }
                Asked::Wrong(fault) => answers += &answer(fault),
            }
        }
        drop(live);
        writer.write_all(answers.as_bytes())?;
    }
}

/// A fault, in a line.
fn answer(fault: &Diagnostic) -> String {
    let words: Vec<_> = fault.to_string().split_whitespace().map(str::to_owned).collect();
    format!("error: {}\n", words.join(" "))
}

fn ask(live: &Live, line: &str) -> Asked {
    let line = line.trim();
    let (verb, rest) = line.split_once(' ').map_or((line, ""), |(verb, rest)| (verb, rest.trim()));
    let number = |word: &str| word.parse::<usize>().ok();
    match verb {
        "add" => {
            let (at, text) = match rest.split_once(' ') {
                Some((word, text)) if number(word).is_some() => (number(word), text.trim()),
                _ => (None, rest),
            };
            match live.rule(text) {
                Ok(rule) => Asked::Change(Box::new(move |policy| {
                    let rules = policy.rules().len();
                    match at {
                        None => Ok(Edit::Insert(rules, rule.clone())),
                        Some(n) if (1..=rules + 1).contains(&n) => Ok(Edit::Insert(n - 1, rule.clone())),
                        Some(n) => Err(absent(n, rules)),
                    }
                })),
                Err(fault) => Asked::Wrong(fault),
            }
        }
        "remove" => {
            let (text, at) = (rest.to_owned(), number(rest));
            Asked::Change(Box::new(move |policy| {
                let rules = policy.rules().len();
                match at {
                    Some(n) if (1..=rules).contains(&n) => Ok(Edit::Remove(n - 1)),
                    Some(n) => Err(absent(n, rules)),
                    None => match policy.rules().position(|rule| rule.text == text) {
                        Some(at) => Ok(Edit::Remove(at)),
                        None => Err(Diagnostic::new("is no rule of the list").value(&text).cure("ask for the list")),
                    },
                }
            }))
        }
        "list" if rest.is_empty() => Asked::List,
        _ => {
            let cure = "write add RULE, add NUMBER RULE, remove NUMBER, remove RULE or list";
            Asked::Wrong(Diagnostic::new("is not understood").value(line).cure(cure))
        }
    }
}

fn absent(number: usize, rules: usize) -> Diagnostic {
    Diagnostic::new(format!("is the number of no rule: there are {rules}")).value(number).cure("ask for the list")
}

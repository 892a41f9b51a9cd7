//! The socket by which rules are added, removed and listed.

use super::live::Live;
use super::policy::{Edit, Policy};
use diagnostics::Diagnostic;
use std::fs::{DirBuilder, Permissions, remove_dir, remove_file, rename, set_permissions, symlink_metadata};
use std::io::{BufRead, BufReader, ErrorKind, Read as _, Write};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
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
    let wrong = |what: &str, remedy: &str| Err(Diagnostic::new(what).key("control").value(socket.display()).remedy(remedy));
    match socket.parent() {
        Some(folder) if folder.as_os_str().is_empty() || folder.is_dir() => {}
        _ => return wrong("is in no folder that there is", "name a place for a Unix socket"),
    }
    // as much as the kernel takes, here and where it is made
    if socket.as_os_str().len().max(making(socket).as_os_str().len() + 2) > 107 {
        return wrong("is too long", "name a socket by 90 bytes or fewer");
    }
    if symlink_metadata(socket).is_ok_and(|file| !file.file_type().is_socket()) {
        return wrong("is another file", "name a place where nothing is");
    }
    Ok(())
}

/// The folder in which a socket is made, so that nobody else finds it before it is the owner's alone.
fn making(socket: &Path) -> PathBuf {
    socket.with_file_name(format!(".{}", std::process::id()))
}

/// Which file a socket is.
pub(super) type Place = (u64, u64);

fn place(socket: &Path) -> Option<Place> {
    symlink_metadata(socket).ok().map(|file| (file.dev(), file.ino()))
}

/// Takes changes until nobody has the rules any more.
pub(super) fn serve(live: &Weak<Live>, socket: &Path) {
    while live.upgrade().is_some_and(|live| !live.is_running()) {
        sleep(LOOK);
    }
    let listener = match listen(socket) {
        Ok((listener, place)) => match live.upgrade() {
            Some(live) => {
                live.listens_at(place);
                listener
            }
            None => return leave(socket, place),
        },
        Err(e) => return eprintln!("firewall: nobody listens at {}: {e}", socket.display()),
    };
    let connected = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        if live.strong_count() == 0 {
            return;
        }
        // whoever it was is gone, or there are too many files open
        let Ok(stream) = stream else {
            sleep(LOOK);
            continue;
        };
        if connected.fetch_add(1, Ordering::Relaxed) >= MOST {
            connected.fetch_sub(1, Ordering::Relaxed);
            // errors: it is gone already
            let _ = (&stream).write_all(format!("error: {MOST} are connected already\n").as_bytes());
            continue;
        }
        let (live, one) = (live.clone(), connected.clone());
        let talk = move || {
            // errors: it is gone
            let _ = talk(&live, &stream);
            one.fetch_sub(1, Ordering::Relaxed);
        };
        if Builder::new().name("firewall-control".to_owned()).spawn(talk).is_err() {
            connected.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Listens where nobody does, for the owner alone.
fn listen(socket: &Path) -> std::io::Result<(UnixListener, Place)> {
    match symlink_metadata(socket) {
        Ok(file) if !file.file_type().is_socket() => return Err(ErrorKind::AlreadyExists.into()),
        Ok(_) => match UnixStream::connect(socket) {
            Ok(_) => return Err(ErrorKind::AddrInUse.into()),
            // left by one that was killed
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => {}
            Err(e) => return Err(e),
        },
        Err(_) => {}
    }
    let folder = making(socket);
    DirBuilder::new().mode(0o700).create(&folder)?;
    let made = folder.join("s");
    let bound = UnixListener::bind(&made).and_then(|listener| {
        set_permissions(&made, Permissions::from_mode(0o600))?;
        rename(&made, socket)?;
        let place = place(socket).ok_or(ErrorKind::NotFound)?;
        Ok((listener, place))
    });
    // errors: it was never made, or is where it belongs
    let _ = remove_file(&made);
    let _ = remove_dir(&folder);
    bound
}

/// Ends [`serve`], which listened there.
pub(super) fn leave(socket: &Path, was: Place) {
    // somebody else's stays
    if place(socket) == Some(was) {
        // errors: nobody listens any more
        drop(UnixStream::connect(socket));
        let _ = remove_file(socket);
    }
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
        for asked in asked.chunk_by(|a, b| matches!((a, b), (Asked::Change(_), Asked::Change(_)))) {
            let Some(live) = live.upgrade() else { return Ok(()) };
            let mut answers = String::new();
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
            // who hears the answer may end the chain
            drop(live);
            writer.write_all(answers.as_bytes())?;
        }
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
                        None => Err(Diagnostic::new("is no rule of the list").value(&text).remedy("ask for the list")),
                    },
                }
            }))
        }
        "list" if rest.is_empty() => Asked::List,
        _ => {
            let remedy = "write add RULE, add NUMBER RULE, remove NUMBER, remove RULE or list";
            Asked::Wrong(Diagnostic::new("is not understood").value(line).remedy(remedy))
        }
    }
}

fn absent(number: usize, rules: usize) -> Diagnostic {
    Diagnostic::new(format!("is the number of no rule: there are {rules}")).value(number).remedy("ask for the list")
}

//! Whether backends answer.

use super::shared::{Condition, State};
use super::{Health, Kind};
use diagnostics::Diagnostic;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Threads that check at most; each has its part of the backends, one after the other.
const THREADS: usize = 16;
/// Bytes of an answer that are looked at: its first line.
const LINE: usize = 64;

/// A backend that is watched.
struct Watched {
    backend: usize,
    at: SocketAddr,
    health: Health,
    /// Good or failed checks in a row.
    row: u32,
    good: bool,
    /// What it gets while it answers so: what its settings say, unless a page says otherwise.
    condition: Condition,
    due: Instant,
}

/// What a check has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    Good,
    /// Good, but asks for no more connections.
    Drain,
    Failed,
}

/// Starts the threads, if there is anything to check.
pub(super) fn watch(state: &Arc<State>) -> Result<(), Diagnostic> {
    let config = &state.config;
    let now = Instant::now();
    let watched = config.backends.iter().enumerate().filter_map(|(backend, b)| {
        let health = config.services[b.service].health.clone();
        let condition = if b.drain { Condition::Draining } else { Condition::Up };
        (health.kind != Kind::None).then_some(Watched {
            backend,
            at: b.check,
            health,
            row: 0,
            good: true,
            condition,
            due: now,
        })
    });
    let mut parts: Vec<Vec<Watched>> = (0..THREADS).map(|_| vec![]).collect();
    watched.enumerate().for_each(|(n, w)| parts[n % THREADS].push(w));
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        let state = Arc::clone(state);
        let thread = std::thread::Builder::new().name("health".to_owned());
        thread.spawn(move || run(&state, part)).map_err(|e| {
            Diagnostic::new(format!("starts no thread for its checks: {e}"))
                .remedy("allow more threads, or write health.kind = \"none\"")
        })?;
    }
    Ok(())
}

fn run(state: &State, mut part: Vec<Watched>) {
    loop {
        let Some(next) = part.iter_mut().min_by_key(|w| w.due) else { return };
        if !state.wait(next.due.saturating_duration_since(Instant::now())) {
            return;
        }
        let answer = ask(next.at, &next.health).unwrap_or(Answer::Failed);
        if let Some(condition) = next.heard(answer, state.config.backends[next.backend].drain) {
            state.set(next.backend, condition);
        }
        next.due = Instant::now() + Duration::from_millis(next.health.every.into());
    }
}

impl Watched {
    /// What has become of it, if anything has.
    fn heard(&mut self, answer: Answer, drain: bool) -> Option<Condition> {
        let good = answer != Answer::Failed;
        // what it is counted as changes after a row of the other
        self.row = if good == self.good { 0 } else { self.row + 1 };
        let enough = if good { self.health.rise } else { self.health.fall };
        if self.row >= enough {
            (self.good, self.row) = (good, 0);
        }
        let condition = match (self.good, answer) {
            (false, _) => Condition::Down,
            // one check in between that failed changes nothing
            (true, Answer::Failed) => self.condition,
            (true, Answer::Drain) => Condition::Draining,
            (true, Answer::Good) => {
                if drain {
                    Condition::Draining
                } else {
                    Condition::Up
                }
            }
        };
        let changed = condition != self.condition;
        self.condition = condition;
        changed.then_some(condition)
    }
}

/// Asks once.
fn ask(at: SocketAddr, health: &Health) -> std::io::Result<Answer> {
    let deadline = Instant::now() + Duration::from_millis(health.timeout.into());
    let left = || {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(std::io::ErrorKind::TimedOut.into()) } else { Ok::<_, std::io::Error>(Some(left)) }
    };
    let mut stream = TcpStream::connect_timeout(&at, Duration::from_millis(health.timeout.into()))?;
    if health.kind != Kind::Http {
        return Ok(Answer::Good);
    }
    stream.set_write_timeout(left()?)?;
    let path = &health.path;
    stream.write_all(
        format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nUser-Agent: bondstone\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let (mut line, mut n) = ([0; LINE], 0);
    while n < line.len() && !line[..n].contains(&b'\n') {
        stream.set_read_timeout(left()?)?;
        match stream.read(&mut line[n..])? {
            0 => break,
            more => n += more,
        }
    }
    Ok(answer(&line[..n], health.drain_on_404))
}

/// What the first line of an HTTP answer says (RFC 9112 §4).
fn answer(line: &[u8], drain_on_404: bool) -> Answer {
    let status = line.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(1..5));
    match status {
        Some([b' ', b'2' | b'3', b'0'..=b'9', b'0'..=b'9']) => Answer::Good,
        Some(b" 404") if drain_on_404 => Answer::Drain,
        _ => Answer::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn the_first_line_decides() {
        for (line, drain, wanted) in [
            (&b"HTTP/1.1 200 OK\r\n"[..], false, Answer::Good),
            (b"HTTP/1.0 302 Found\r\n", false, Answer::Good),
            (b"HTTP/1.1 404 Not Found\r\n", false, Answer::Failed),
            (b"HTTP/1.1 404 Not Found\r\n", true, Answer::Drain),
            (b"HTTP/1.1 503 Busy\r\n", true, Answer::Failed),
            (b"HTTP/1.1 2x0 OK\r\n", false, Answer::Failed),
            (b"HTTP/1.1 20", false, Answer::Failed),
            (b"SSH-2.0-OpenSSH", false, Answer::Failed),
            (b"", true, Answer::Failed),
        ] {
            assert_eq!(answer(line, drain), wanted, "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn rows_of_answers_decide() {
        let health = Health { rise: 2, fall: 3, kind: Kind::Http, ..Health::default() };
        let at = "127.0.0.1:1".parse().unwrap();
        let mut w =
            Watched { backend: 0, at, health, row: 0, good: true, condition: Condition::Up, due: Instant::now() };
        use Answer::{Drain, Failed, Good};
        let mut hear = |answers: &[Answer]| answers.iter().map(|a| w.heard(*a, false)).collect::<Vec<_>>();
        assert_eq!(hear(&[Failed, Failed, Good, Failed, Failed]), [None; 5]);
        assert_eq!(hear(&[Failed, Failed]), [Some(Condition::Down), None]);
        assert_eq!(hear(&[Good, Failed, Good, Good]), [None, None, None, Some(Condition::Up)]);
        assert_eq!(hear(&[Drain, Failed, Drain, Good]), [Some(Condition::Draining), None, None, Some(Condition::Up)]);
        // one that its settings drain never gets more
        w.condition = Condition::Draining;
        assert_eq!(w.heard(Good, true), None);
    }

    #[test]
    fn a_server_is_asked_for_its_page() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let mut asked = vec![];
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().unwrap();
                let mut bytes = [0; 1024];
                let n = stream.read(&mut bytes).unwrap();
                asked.push(String::from_utf8_lossy(&bytes[..n]).into_owned());
                // in pieces, as networks deliver
                if n != 0 {
                    stream.write_all(b"HTTP/1.").unwrap();
                    stream.write_all(b"1 204 No Content\r\n\r\n").unwrap();
                }
            }
            asked
        });
        let health = |kind| Health { kind, path: "/alive".to_owned(), timeout: 60_000, ..Health::default() };
        assert_eq!(ask(at, &health(Kind::Http)).unwrap(), Answer::Good);
        assert_eq!(ask(at, &health(Kind::Tcp)).unwrap(), Answer::Good);
        let asked = server.join().unwrap();
        assert!(asked[0].starts_with("GET /alive HTTP/1.1\r\n") && asked[1].is_empty(), "{asked:?}");
        // nobody listens any more
        assert!(ask(at, &health(Kind::Tcp)).is_err());
    }
}

//! Log messages.
//!
//! The data plane must neither end nor wait because a terminal, pipe, disk or log server accepts no more output. So
//! messages are queued, and a thread writes them in order. If the queue is full or writing fails, messages are lost and
//! counted, and the count is reported once writing works again.
//!
//! Messages are events of `tracing` with a level, a target ([`TARGETS`]) and fields. The fields `cause`, `cpu`, `file`,
//! `nf`, `port` and `sandbox` distinguish causes: of the same callsite and cause, at most 10 messages are logged in 10 s,
//! and the number of the others is reported. Commands that are not a run print plain text by [`eprintln!`].
//!
//! ```
//! logger::init(logger::Options::default())?;
//! tracing::warn!(target: "run", port = "wan", "port \"wan\": link down"); // warning: port "wan": link down
//! logger::eprintln!("{} packets captured", 7);
//! logger::flush();
//! # Ok::<(), std::io::Error>(())
//! ```
#![forbid(unsafe_code)]

mod level;
mod output;
mod rate_limit;
mod record;
mod subscriber;

pub use level::{Directives, TARGETS};
pub use output::{Format, Output};
pub use record::level_of;
pub use subscriber::{change_levels, directives};

use output::Datagrams;
use rate_limit::{RateLimit, Suppressed};
use record::{Encoding, Record};
use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tracing::Level;

/// Name of the environment variable with [`Directives`].
pub const LEVEL_VARIABLE: &str = "BONDSTONE_LOG";

/// Largest number of queued messages.
const QUEUE_LEN: usize = 8192;
/// Longest time that [`flush`] waits.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval of attempts to write to a non-blocking descriptor that accepts nothing, and of checks in [`flush`].
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Interval at which numbers of suppressed messages are reported.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Prints a message and a line end to standard error, as the macro of the standard library does, but neither panics
/// nor blocks.
#[macro_export]
macro_rules! eprintln {
    ($($argument:tt)*) => { $crate::print(::std::format_args!("{}\n", ::std::format_args!($($argument)*))) };
}

/// Prints a message without a line end to standard error, as the macro of the standard library does, but neither
/// panics nor blocks.
#[macro_export]
macro_rules! eprint {
    ($($argument:tt)*) => { $crate::print(::std::format_args!($($argument)*)) };
}

/// Where and how messages are written.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Output.
    pub output: Output,
    /// Socket of the server, instead of [`Output::default_socket`].
    pub socket: Option<PathBuf>,
    /// Representation.
    pub format: Format,
    /// True if journald reads standard error, and removes priorities in front of lines.
    pub priority: bool,
    /// Levels.
    pub levels: Directives,
    /// Fields of all messages, in JSON and in the journal.
    pub fields: Vec<(&'static str, String)>,
}

static LOGGER: OnceLock<Logger> = OnceLock::new();

struct Logger {
    shared: Arc<Shared>,
    /// The queue of the thread; `None` if it cannot be started: then there is no output.
    queue: OnceLock<Option<SyncSender<Vec<u8>>>>,
    out: Mutex<Option<Box<dyn Write + Send>>>,
}

/// State that the threads of the process share with the one that writes.
struct Shared {
    encoding: Encoding,
    /// Name of the output.
    output: &'static str,
    fields: Vec<(&'static str, String)>,
    limit: Mutex<RateLimit>,
    counts: Counts,
}

/// Counts of messages.
#[derive(Default)]
struct Counts {
    /// Messages added to the queue.
    queued: AtomicU64,
    /// Messages taken from the queue, and written or lost.
    done: AtomicU64,
    /// Messages lost and not reported yet.
    lost: AtomicU64,
}

impl Shared {
    fn limit(&self) -> MutexGuard<'_, RateLimit> {
        self.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn encode(&self, record: &Record<'_>) -> Vec<u8> {
        self.encoding.encode(record, &self.fields)
    }

    /// Returns the report of lost messages.
    fn lost(&self, lost: u64) -> Vec<u8> {
        let message = format!("messages lost because {} accepted no more: {lost}", self.output);
        let fields = vec![("lost", lost.into())];
        self.encode(&Record { level: Level::WARN, target: "log", message: &message, fields, code: None })
    }

    /// Returns the report of suppressed messages.
    fn suppressed(&self, of: &Suppressed) -> Vec<u8> {
        let message = format!("{} more messages suppressed: {}", of.count, of.sample);
        let fields = vec![("suppressed", of.count.into())];
        self.encode(&Record { level: of.level, target: of.target, message: &message, fields, code: None })
    }
}

impl Logger {
    fn new(out: impl Write + Send + 'static, options: Options) -> Logger {
        let Options { output, format, priority, fields, .. } = options;
        let encoding = output.encoding(format, priority);
        let shared =
            Shared { encoding, output: output.name(), fields, limit: Mutex::default(), counts: Counts::default() };
        Logger { shared: Arc::new(shared), queue: OnceLock::new(), out: Mutex::new(Some(Box::new(out))) }
    }

    /// Starts the thread, unless it runs.
    fn start(&self, queue_len: usize) -> Option<&SyncSender<Vec<u8>>> {
        let start = || {
            let out = self.out.lock().unwrap_or_else(PoisonError::into_inner).take()?;
            let ((queue, messages), shared) = (sync_channel(queue_len), self.shared.clone());
            let write = move || write_messages(out, &messages, &shared);
            std::thread::Builder::new().name("logger".into()).spawn(write).ok()?;
            Some(queue)
        };
        self.queue.get_or_init(start).as_ref()
    }

    fn print(&self, message: Vec<u8>) {
        let Some(queue) = self.start(QUEUE_LEN) else { return };
        let counts = &self.shared.counts;
        counts.queued.fetch_add(1, Ordering::Relaxed);
        let lost = u64::from(!message.is_empty());
        if queue.try_send(message).is_err() {
            counts.lost.fetch_add(lost, Ordering::Relaxed);
            counts.done.fetch_add(1, Ordering::Release);
        }
    }

    /// Logs a message, unless there were too many of its cause.
    fn log(&self, record: &Record<'_>, cause: Option<(u64, &'static str)>) {
        if let Some((cause, target)) = cause {
            let text = (target, record.level, record.message);
            let (is_allowed, report) = self.shared.limit().allows(cause, text, Instant::now());
            if let Some(report) = report {
                self.print(self.shared.suppressed(&report));
            }
            if !is_allowed {
                return;
            }
        }
        self.print(self.shared.encode(record));
    }

    fn flush(&self, timeout: Duration) {
        let suppressed = self.shared.limit().due(Instant::now(), true);
        suppressed.iter().for_each(|report| self.print(self.shared.suppressed(report)));
        let deadline = Instant::now() + timeout;
        self.wait_until(deadline);
        if self.shared.counts.lost.load(Ordering::Relaxed) != 0 {
            // no message follows with which the lost ones would be reported
            self.print(vec![]);
            self.wait_until(deadline);
        }
    }

    fn wait_until(&self, deadline: Instant) {
        let counts = &self.shared.counts;
        let queued = counts.queued.load(Ordering::Relaxed);
        while counts.done.load(Ordering::Acquire) < queued && Instant::now() < deadline {
            sleep(POLL_INTERVAL);
        }
    }
}

fn write_messages(mut out: impl Write, messages: &Receiver<Vec<u8>>, shared: &Shared) {
    let mut write = |message: &[u8]| {
        let counts = &shared.counts;
        let own = u64::from(!message.is_empty());
        let lost = counts.lost.swap(0, Ordering::Relaxed);
        let report = if lost == 0 { vec![] } else { shared.lost(lost) };
        if write_all(&mut out, &report).is_err() {
            counts.lost.fetch_add(lost + own, Ordering::Relaxed);
        } else if write_all(&mut out, message).is_err() {
            counts.lost.fetch_add(own, Ordering::Relaxed);
        }
    };
    let mut next_report = Instant::now() + REPORT_INTERVAL;
    loop {
        match messages.recv_timeout(next_report.saturating_duration_since(Instant::now())) {
            Ok(message) => {
                write(&message);
                shared.counts.done.fetch_add(1, Ordering::Release);
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if Instant::now() >= next_report {
            let due = shared.limit().due(Instant::now(), false);
            due.iter().for_each(|report| write(&shared.suppressed(report)));
            next_report = Instant::now() + REPORT_INTERVAL;
        }
    }
}

/// Writes all bytes; waits while a non-blocking descriptor accepts none.
fn write_all(out: &mut impl Write, mut bytes: &[u8]) -> Result<(), ()> {
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(0) => return Err(()),
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => sleep(POLL_INTERVAL),
            Err(_) => return Err(()),
        }
    }
    Ok(())
}

/// Makes the events of `tracing` messages. Has no effect on the output if messages were written before.
///
/// # Errors
/// The socket cannot be connected.
pub fn init(options: Options) -> std::io::Result<()> {
    let levels = options.levels.clone();
    let logger = match options.socket.clone().or(options.output.default_socket()) {
        Some(path) if options.output != Output::Stderr => Logger::new(Datagrams::connect(path)?, options),
        _ => Logger::new(std::io::stderr(), options),
    };
    // ignore errors: messages have an output
    let _ = LOGGER.set(logger);
    subscriber::install(levels);
    Ok(())
}

/// Starts the thread that writes. Without this call the first message starts it; its CPUs are those of the thread that
/// does.
pub fn start() {
    logger().start(QUEUE_LEN);
}

fn logger() -> &'static Logger {
    LOGGER.get_or_init(|| Logger::new(std::io::stderr(), Options::default()))
}

fn log(record: &Record<'_>, cause: Option<(u64, &'static str)>) {
    logger().log(record, cause);
}

/// Queues a message of text. Used by [`eprintln!`] and [`eprint!`].
pub fn print(message: Arguments<'_>) {
    let (logger, text) = (logger(), message.to_string());
    match logger.shared.encoding {
        Encoding::Text => logger.print(text.into_bytes()),
        // the output has no other messages
        _ => {
            let record =
                Record { level: level_of(&text), target: "run", message: text.trim_end(), fields: vec![], code: None };
            logger.log(&record, None);
        }
    }
}

/// Waits until all messages so far are written or lost, for at most a second. To be called before the process ends,
/// and before output to another file that belongs behind the messages.
pub fn flush() {
    if let Some(logger) = LOGGER.get() {
        logger.flush(FLUSH_TIMEOUT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// An output that accepts bytes, fails, or blocks while the mutex is locked.
    #[derive(Clone, Default)]
    struct Output(Arc<Mutex<(String, Option<ErrorKind>)>>);

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let (text, error) = &mut *self.0.lock().unwrap();
            if let Some(error) = *error {
                return Err(error.into());
            }
            // one byte at a time, as a pipe may do
            text.push(char::from(bytes[0]));
            Ok(1)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logger(out: Output, queue_len: usize) -> Logger {
        let logger = Logger::new(out, Options::default());
        logger.start(queue_len);
        logger
    }

    /// Begin of the line that reports lost messages.
    const LOST: &str = "warning: messages lost because standard error accepted no more: ";

    #[test]
    fn lines_are_written_in_order() {
        let out = Output::default();
        let logger = logger(out.clone(), 1000);
        (0..500).for_each(|n| logger.print(format!("{n}\n").into_bytes()));
        logger.flush(Duration::from_secs(60));
        let expected: String = (0..500).map(|n| format!("{n}\n")).collect();
        assert_eq!(out.0.lock().unwrap().0, expected);
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_reported_later() {
        for error in [ErrorKind::StorageFull, ErrorKind::BrokenPipe] {
            let out = Output::default();
            out.0.lock().unwrap().1 = Some(error);
            let logger = logger(out.clone(), 10);
            (0..3).for_each(|n| {
                logger.print(format!("{n}\n").into_bytes());
                logger.flush(Duration::from_secs(60));
            });
            out.0.lock().unwrap().1 = None;
            (3..5).for_each(|n| logger.print(format!("{n}\n").into_bytes()));
            logger.flush(Duration::from_secs(60));
            assert_eq!(out.0.lock().unwrap().0, format!("{LOST}3\n3\n4\n"));
        }
    }

    #[test]
    fn a_blocked_output_neither_blocks_nor_grows_the_queue() {
        let out = Output::default();
        let blocked = out.0.lock().unwrap();
        let logger = logger(out.clone(), 10);
        (0..1000).for_each(|n| logger.print(format!("{n}\n").into_bytes()));
        // returns, though nothing was written
        logger.flush(Duration::from_millis(10));
        assert!(blocked.0.is_empty());
        drop(blocked);
        logger.flush(Duration::from_secs(60));
        logger.print("last\n".into());
        logger.flush(Duration::from_secs(60));
        let text = out.0.lock().unwrap().0.clone();
        let lost: usize = text.lines().filter_map(|line| line.strip_prefix(LOST)?.parse::<usize>().ok()).sum();
        let written = text.lines().filter(|line| !line.starts_with(LOST)).count();
        assert_eq!(lost + written, 1001, "{text}");
        // the queue, and one that the thread has taken from it
        assert!(written <= 10 + 1 + 1 && text.ends_with("last\n"), "{text}");
    }

    #[test]
    fn a_non_blocking_output_is_written_later() {
        let out = Output::default();
        out.0.lock().unwrap().1 = Some(ErrorKind::WouldBlock);
        let logger = logger(out.clone(), 10);
        logger.print("first\n".into());
        logger.flush(Duration::from_millis(10));
        out.0.lock().unwrap().1 = None;
        logger.flush(Duration::from_secs(60));
        assert_eq!(out.0.lock().unwrap().0, "first\n");
    }

    #[test]
    fn suppressed_messages_are_reported_before_the_end() {
        let out = Output::default();
        let logger = logger(out.clone(), 100);
        let record = Record { level: Level::WARN, target: "nf", message: "full", fields: vec![], code: None };
        (0..40).for_each(|_| logger.log(&record, Some((7, "nf"))));
        logger.log(&record, None);
        logger.flush(Duration::from_secs(60));
        let expected = "warning: full\n".repeat(11) + "warning: 30 more messages suppressed: full\n";
        assert_eq!(out.0.lock().unwrap().0, expected);
    }

    #[test]
    fn reports_have_the_format_of_messages() {
        let options = Options { format: Format::Json, fields: vec![("instance", "7".into())], ..Options::default() };
        let shared = Logger::new(Output::default(), options).shared;
        let report: serde_json::Value = serde_json::from_slice(&shared.lost(3)).unwrap();
        assert_eq!(report["fields"], serde_json::json!({"instance": "7", "lost": 3}));
        assert_eq!((&report["target"], &report["level"]), (&"log".into(), &"warn".into()));
    }
}

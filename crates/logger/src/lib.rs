//! Messages on standard error.
//!
//! The data plane must neither end nor wait because a terminal, pipe or disk accepts no more output. So messages are
//! queued, and a thread writes them in order. If the queue is full or writing fails, lines are lost and counted, and
//! the count is reported once writing works again.
//!
//! ```
//! logger::eprintln!("warning: port {:?}: link down", "wan");
//! logger::flush();
//! ```
#![forbid(unsafe_code)]

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Largest number of queued messages.
const QUEUE_LEN: usize = 8192;
/// Longest time that [`flush`] waits.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval of attempts to write to a non-blocking descriptor that accepts nothing, and of checks in [`flush`].
const POLL_INTERVAL: Duration = Duration::from_millis(1);

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

static LOGGER: OnceLock<Option<Logger>> = OnceLock::new();

struct Logger {
    queue: SyncSender<String>,
    counts: Arc<Counts>,
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

impl Logger {
    fn start(out: impl Write + Send + 'static, queue_len: usize) -> std::io::Result<Logger> {
        let (queue, messages) = sync_channel(queue_len);
        let logger = Logger { queue, counts: Arc::default() };
        let counts = logger.counts.clone();
        std::thread::Builder::new().name("logger".into()).spawn(move || write_messages(out, &messages, &counts))?;
        Ok(logger)
    }

    fn print(&self, message: String) {
        self.counts.queued.fetch_add(1, Ordering::Relaxed);
        let lost = u64::from(!message.is_empty());
        if self.queue.try_send(message).is_err() {
            self.counts.lost.fetch_add(lost, Ordering::Relaxed);
            self.counts.done.fetch_add(1, Ordering::Release);
        }
    }

    fn flush(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        self.wait_until(deadline);
        if self.counts.lost.load(Ordering::Relaxed) != 0 {
            // no message follows with which the lost ones would be reported
            self.print(String::new());
            self.wait_until(deadline);
        }
    }

    fn wait_until(&self, deadline: Instant) {
        let queued = self.counts.queued.load(Ordering::Relaxed);
        while self.counts.done.load(Ordering::Acquire) < queued && Instant::now() < deadline {
            sleep(POLL_INTERVAL);
        }
    }
}

fn write_messages(mut out: impl Write, messages: &Receiver<String>, counts: &Counts) {
    for message in messages {
        let own = u64::from(!message.is_empty());
        let lost = counts.lost.swap(0, Ordering::Relaxed);
        let report = match lost {
            0 => String::new(),
            lost => format!("warning: messages lost because standard error accepted no more: {lost}\n"),
        };
        if write_all(&mut out, report.as_bytes()).is_err() {
            counts.lost.fetch_add(lost + own, Ordering::Relaxed);
        } else if write_all(&mut out, message.as_bytes()).is_err() {
            counts.lost.fetch_add(own, Ordering::Relaxed);
        }
        counts.done.fetch_add(1, Ordering::Release);
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

/// Starts the thread that writes. Without this call the first message starts it; its CPUs are those of the thread that
/// does.
pub fn start() {
    logger();
}

fn logger() -> Option<&'static Logger> {
    // without a thread there is no output
    LOGGER.get_or_init(|| Logger::start(std::io::stderr(), QUEUE_LEN).ok()).as_ref()
}

/// Queues a message. Used by [`eprintln!`] and [`eprint!`].
pub fn print(message: Arguments<'_>) {
    if let Some(logger) = logger() {
        logger.print(message.to_string());
    }
}

/// Waits until all messages so far are written or lost, for at most a second. To be called before the process ends,
/// and before output to another file that belongs behind the messages.
pub fn flush() {
    if let Some(Some(logger)) = LOGGER.get() {
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

    /// Begin of the line that reports lost messages.
    const LOST: &str = "warning: messages lost because standard error accepted no more: ";

    #[test]
    fn lines_are_written_in_order() {
        let out = Output::default();
        let logger = Logger::start(out.clone(), 1000).unwrap();
        (0..500).for_each(|n| logger.print(format!("{n}\n")));
        logger.flush(Duration::from_secs(60));
        let expected: String = (0..500).map(|n| format!("{n}\n")).collect();
        assert_eq!(out.0.lock().unwrap().0, expected);
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_reported_later() {
        for error in [ErrorKind::StorageFull, ErrorKind::BrokenPipe] {
            let out = Output::default();
            out.0.lock().unwrap().1 = Some(error);
            let logger = Logger::start(out.clone(), 10).unwrap();
            (0..3).for_each(|n| {
                logger.print(format!("{n}\n"));
                logger.flush(Duration::from_secs(60));
            });
            out.0.lock().unwrap().1 = None;
            (3..5).for_each(|n| logger.print(format!("{n}\n")));
            logger.flush(Duration::from_secs(60));
            assert_eq!(out.0.lock().unwrap().0, format!("{LOST}3\n3\n4\n"));
        }
    }

    #[test]
    fn a_blocked_output_neither_blocks_nor_grows_the_queue() {
        let out = Output::default();
        let blocked = out.0.lock().unwrap();
        let logger = Logger::start(out.clone(), 10).unwrap();
        (0..1000).for_each(|n| logger.print(format!("{n}\n")));
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
        let logger = Logger::start(out.clone(), 10).unwrap();
        logger.print("first\n".into());
        logger.flush(Duration::from_millis(10));
        out.0.lock().unwrap().1 = None;
        logger.flush(Duration::from_secs(60));
        assert_eq!(out.0.lock().unwrap().0, "first\n");
    }
}

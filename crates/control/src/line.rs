//! Lines of a client that is not trusted.

use std::io::{BufRead, ErrorKind, Read as _};
use std::time::{Duration, Instant};

/// Result of reading a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// A whole line, its line feed included.
    Whole,
    /// The line is longer than permitted.
    TooLong,
    /// The line was not complete in time.
    TooSlow,
    /// The client or the server ends; bytes of an incomplete line are ignored.
    End,
}

/// Limits of a line.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest line in bytes, its line feed included.
    pub len: usize,
    /// Longest time from the first byte to the last.
    pub time: Duration,
}

impl Limits {
    /// Appends a line to the empty `line`. `reader` returns [`ErrorKind::WouldBlock`] at intervals at which it receives
    /// nothing; then `is_ending` is called.
    ///
    /// # Errors
    /// Those of the reader.
    pub fn read(
        self,
        reader: &mut impl BufRead,
        line: &mut Vec<u8>,
        is_ending: impl Fn() -> bool,
    ) -> std::io::Result<Line> {
        let mut begun = Instant::now();
        loop {
            let before = line.len();
            match reader.by_ref().take((self.len - before) as u64).read_until(b'\n', line) {
                Ok(_) if line.last() == Some(&b'\n') => return Ok(Line::Whole),
                Ok(_) if line.len() == self.len => return Ok(Line::TooLong),
                Ok(_) => return Ok(Line::End),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(e) => return Err(e),
            }
            if is_ending() {
                return Ok(Line::End);
            }
            // the time of a line begins with its first byte
            if before == 0 && line.is_empty() {
                begun = Instant::now();
            } else if begun.elapsed() > self.time {
                return Ok(Line::TooSlow);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::BufReader;

    /// Receives pieces, with an interval without bytes between them.
    struct Pieces<'a>(std::slice::Chunks<'a, u8>, bool);

    impl std::io::Read for Pieces<'_> {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            self.1 = !self.1;
            match self.1 {
                true => Err(ErrorKind::WouldBlock.into()),
                false => self.0.next().map_or(Ok(0), |mut piece| piece.read(to)),
            }
        }
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_they_are_received(
            bytes in prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200),
            piece in 1..20usize,
            len in 1..40usize,
        ) {
            let mut reader = BufReader::new(Pieces(bytes.chunks(piece), false));
            let limits = Limits { len, time: Duration::MAX };
            for expected in bytes.split_inclusive(|&b| b == b'\n').chain([&b""[..]]) {
                let mut line = vec![];
                let read = limits.read(&mut reader, &mut line, || false).unwrap();
                match expected {
                    _ if expected.len() > len || (expected.len() == len && !expected.ends_with(b"\n")) => {
                        prop_assert_eq!((read, &line[..]), (Line::TooLong, &expected[..len]));
                        break;
                    }
                    [.., b'\n'] => prop_assert_eq!((read, &line[..]), (Line::Whole, expected)),
                    _ => {
                        prop_assert_eq!(read, Line::End);
                        break;
                    }
                }
            }
        }
    }

    #[test]
    fn slow_lines_and_the_end_of_the_server_are_reported() {
        let limits = Limits { len: 40, time: Duration::ZERO };
        let read = |bytes: &[u8], ending| {
            limits.read(&mut BufReader::new(Pieces(bytes.chunks(1), false)), &mut vec![], || ending).unwrap()
        };
        assert_eq!(read(b"stats\n", false), Line::TooSlow);
        assert_eq!(read(b"stats\n", true), Line::End);
        // a client that sends nothing is not slow
        assert_eq!(read(b"", false), Line::End);
    }
}

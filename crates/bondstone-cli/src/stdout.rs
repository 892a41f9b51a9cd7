//! Standard output.

use std::io::{Error, Result, StdoutLock, Write};

/// Standard output, with its name in errors.
pub(crate) struct Stdout(StdoutLock<'static>);

/// Returns standard output once earlier messages on standard error are written.
pub(crate) fn stdout() -> Stdout {
    logger::flush();
    Stdout(std::io::stdout().lock())
}

fn named(e: Error) -> Error {
    Error::new(e.kind(), format!("standard output: {e}"))
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0.write(bytes).map_err(named)
    }

    fn flush(&mut self) -> Result<()> {
        self.0.flush().map_err(named)
    }
}

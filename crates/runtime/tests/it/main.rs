//! Integration tests of this crate, in one program.
#![allow(clippy::print_stderr, reason = "tests print why they are skipped")]

mod capture_clock;
mod drain;
mod reload;
mod shares;
mod spreading;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Runs the tests one after another, as cores are few.
fn alone() -> MutexGuard<'static, ()> {
    static SERIAL_LOCK: Mutex<()> = Mutex::new(());
    SERIAL_LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder that is removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("bondstone-runtime-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        Folder(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a capture of these frames.
    fn capture(&self, name: &str, frames: &[Vec<u8>]) {
        let mut writer = pcap::Writer::create(self.path(name), pcap::LinkType::ETHERNET).unwrap();
        for (n, frame) in (0..).zip(frames) {
            writer.write(n * 1000, frame.len() as u32, frame).unwrap();
        }
        writer.finish().unwrap();
    }
}

impl AsRef<Path> for Folder {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // errors: a test that has failed still uses it
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

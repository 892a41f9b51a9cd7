//! Counts the records of capture files: `cargo run --release --example count -- FILE...`
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that prints its results")]

use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for path in std::env::args_os().skip(1) {
        let started = Instant::now();
        let (mut records, mut bytes) = (0_u64, 0_u64);
        let mut count = || -> Result<(), pcap::Error> {
            let mut reader = pcap::Reader::open(&path)?;
            while let Some(record) = reader.next()? {
                records += 1;
                bytes += record.frame.len() as u64;
            }
            Ok(())
        };
        if let Err(error) = count() {
            eprintln!("{error}");
            code = ExitCode::from(2);
        }
        let seconds = started.elapsed().as_secs_f64();
        let rate = records as f64 / seconds / 1e6;
        println!("{}: {records} records, {bytes} bytes, {rate:.2} M records/s", path.display());
    }
    code
}

//! Benchmarks a chain file without the command line, and prints the table of results.
//!
//! ```sh
//! cargo run --release -p bondstone-bench --example session -- examples/router.toml
//! ```
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that prints its results")]

use bench::session::{Event, MemoryStore, Run, Session, SessionCell};
use config::ChainFile;
use diagnostics::Diagnostics;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("examples/router.toml"), PathBuf::from);
    let registry = nf::registry();
    let file = ChainFile::read(&path, &registry).map_err(Diagnostics)?;
    let mut store = MemoryStore::default();
    let mut session = Session::new(&registry);
    let mut print = |event: &Event<'_>| match event {
        Event::HostChecked(check) => eprintln!("host {}: {}", check.fitness.name(), check.summary()),
        Event::DutStarted { cpus: Some((dut, generator)), .. } => {
            eprintln!("chain on CPUs {dut:?}, generator on CPUs {generator:?}");
        }
        Event::MethodDone(method, _) => {
            eprintln!("{}: {:.3} Mpps", method.name, method.output.summary.lower_pps / 1e6);
        }
        Event::Warning(text) | Event::Error(text) => eprintln!("{text}"),
        _ => {}
    };
    let end = session.run(&[SessionCell::new(Run::new(&file))], &mut store, &mut print)?;
    print!("{end:?}\n{}", report::table(store.results()));
    Ok(())
}

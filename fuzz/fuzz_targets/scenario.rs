//! Scenario files: diagnostics are not empty and free of control characters, and a valid scenario has cells.
#![no_main]

use bench::Scenario;
use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::LazyLock;

static REGISTRY: LazyLock<graph::Registry> = LazyLock::new(nf::registry);

fuzz_target!(|text: &str| {
    let _ = Scenario::is(text);
    // the directory does not exist, so files that a scenario refers to do not either
    let path = Path::new("/nowhere/at/all/fuzz.toml");
    match Scenario::parse(text, path, &REGISTRY) {
        Ok(scenario) => {
            assert!(!scenario.cells.is_empty() && scenario.cells.len() <= 256 && !scenario.settings.methods.is_empty());
            for cell in &scenario.cells {
                assert!(!cell.label().is_empty());
                // its traffic is not empty
                assert!(!cell.traffic.frame_names().is_empty());
            }
        }
        Err(faults) => {
            assert!(!faults.is_empty() && faults.len() <= 1000);
            for fault in &faults {
                assert!(!fault.problem.trim().is_empty(), "{fault:?}");
                assert!(!fault.to_string().chars().any(|c| c.is_control() && c != '\n'), "{fault:?}");
                assert!(fault.line.is_none_or(|line| line <= text.matches('\n').count() + 1), "{fault:?}");
            }
        }
    }
});

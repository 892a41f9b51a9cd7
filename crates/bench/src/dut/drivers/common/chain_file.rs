//! Chain files for the device: other CPUs, and a copy in the work directory.

use crate::dut::context::{DutContext, DutError};
use crate::dut::spec::ChainText;
use std::path::PathBuf;
use toml::{Table, Value};

/// Sets the cores of all chains of a file to the CPUs of the device, and the length of the longest frame if the traffic
/// needs a longer one.
pub(crate) fn adapt(table: &mut Table, context: &DutContext) {
    let cpus: Vec<Value> = context.cpus().iter().map(|&cpu| Value::Integer(cpu as i64)).collect();
    for chain in table.get_mut("chain").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(chain) = chain.as_table_mut() {
            chain.insert("cores".to_owned(), Value::Array(cpus.clone()));
        }
    }
    let own = table.get("max_frame").and_then(Value::as_integer).unwrap_or(packet::MAX_FRAME as i64);
    let longest = context.traffic.longest_frame as i64;
    if longest > own {
        table.insert("max_frame".to_owned(), Value::Integer(longest));
    }
}

/// Writes `text` in place of the content of a chain file to a directory with links to all files that it may name.
/// Returns the path.
///
/// # Errors
/// If a file cannot be written or linked.
pub(crate) fn write(context: &DutContext, chain: &ChainText, text: &str) -> Result<PathBuf, DutError> {
    let folder = context.path("chain");
    std::fs::create_dir(&folder).map_err(|e| context.file_error(&folder, &e))?;
    if let Some(from) = chain.folder() {
        let from = from.canonicalize().map_err(|e| context.file_error(from, &e))?;
        for entry in std::fs::read_dir(&from).map_err(|e| context.file_error(&from, &e))?.flatten() {
            let link = folder.join(entry.file_name());
            std::os::unix::fs::symlink(entry.path(), &link).map_err(|e| context.file_error(&link, &e))?;
        }
    }
    let file = folder.join("as-measured.toml");
    std::fs::write(&file, text).map_err(|e| context.file_error(&file, &e))?;
    Ok(file)
}

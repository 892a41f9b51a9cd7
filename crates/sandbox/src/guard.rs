//! What has to be removed at the end, also when this program is killed.

use runtime::Guard;
use std::path::{Path, PathBuf};

/// Removes containers and a folder, its first word, and control groups, the others, once their last process is gone.
const SCRIPT: &str = r#"exec 2>/dev/null
for container in "$1"/.runc/*/; do
    [ -d "$container" ] && runc --root "$1/.runc" delete --force "$(basename "$container")"
done
rm -rf "$1"; shift
for group; do
    tries=0
    while [ -d "$group" ] && ! rmdir "$group" && [ $tries -lt 500 ]; do tries=$((tries + 1)); sleep 0.01; done
done"#;

/// Removes a folder and groups when it is dropped, or when this program is gone.
pub(crate) fn guard(folder: &Path, groups: &[PathBuf]) -> std::io::Result<Guard> {
    Guard::start(SCRIPT, std::iter::once(folder).chain(groups.iter().map(PathBuf::as_path)), None)
}

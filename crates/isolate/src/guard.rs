//! What has to be removed at the end, also when this program is killed.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Waits for the end of a pipe, whose other side only this program has; then removes containers and a folder, its first word,
/// and control groups, the others, once their last process is gone.
const SCRIPT: &str = r#"trap '' INT TERM HUP; cat >/dev/null
for container in "$1"/.runc/*/; do
    [ -d "$container" ] && runc --root "$1/.runc" delete --force "$(basename "$container")"
done
rm -rf "$1"; shift
for group; do
    tries=0
    while [ -d "$group" ] && ! rmdir "$group" 2>/dev/null && [ $tries -lt 500 ]; do tries=$((tries + 1)); sleep 0.01; done
done"#;

/// Removes folders when it is dropped, or when this program is gone, however it ended.
pub(crate) struct Guard(Child);

impl Guard {
    pub(crate) fn start(folder: &PathBuf, groups: &[PathBuf]) -> std::io::Result<Guard> {
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT, "guard"]).arg(folder).args(groups).current_dir("/");
        // the terminal's Ctrl-C is not for it
        shell.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Guard(shell.spawn()?))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // errors: it has ended
        let _ = self.0.wait();
    }
}

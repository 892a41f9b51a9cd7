//! The first program of a guest, and its only one.

use crate::host::{forward, say};
use crate::image::CHAIN;
use crate::initramfs::{MODULES, ORDER};
use crate::order::{Order, Word};
use config::Wall;
use graph::Registry;
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use std::fs::{File, read_to_string, write};
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// How often a guest says what it has done, over a line of characters.
const OFTEN: Duration = Duration::from_millis(200);

/// Runs as the first program of a guest, which makes it ready, starts itself again as `inner`, and switches the machine off
/// when that ends, however it does. That opens its ports and forwards until told to stop; in a guest that stands alone it is the
/// subcommand `run`.
pub fn guest(registry: &Registry, inner: bool) -> ExitCode {
    if inner {
        let done = speak().map_err(|e| format!("its line: {e}")).and_then(|mut to| {
            let said = order().and_then(|order| within(registry, &order, &to));
            // errors: nobody listens
            said.inspect_err(|fault| drop(say(&mut to, &Word::Fault(fault.clone()))))
        });
        return if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(3) };
    }
    let done = begin().and_then(|()| {
        let mut own = Command::new("/init");
        match read_to_string(CHAIN) {
            Ok(chain) => own.args(["run", &chain]),
            Err(_) => own.args([crate::GUEST, "--inner"]),
        };
        own.status().map_err(|e| format!("/init: {e}"))
    });
    match done {
        Ok(status) if status.success() => {}
        Ok(status) => eprintln!("  ({status})"),
        Err(fault) => eprintln!("{fault}"),
    }
    // errors: there is nothing else to be done
    let _ = rustix::system::reboot(rustix::system::RebootCommand::PowerOff);
    ExitCode::from(4)
}

fn order() -> Result<Order, String> {
    let text = read_to_string(ORDER).map_err(|e| format!("{ORDER}: {e}"))?;
    serde_json::from_str(&text).map_err(|e| format!("{ORDER}: {e}"))
}

fn within(registry: &Registry, order: &Order, line: &File) -> Result<(), String> {
    let end = || line.try_clone().map_err(|e| e.to_string());
    let done = forward(registry, order, (end()?, end()?), OFTEN, || Ok(()));
    // errors: what was said last is on its way
    let _ = rustix::termios::tcdrain(line);
    done
}

/// Makes of a kernel what DPDK needs.
fn begin() -> Result<(), String> {
    use nix::mount::{MsFlags, mount};
    const NONE: Option<&str> = None;
    for (kind, at) in [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys")] {
        mount(Some(kind), at, Some(kind), MsFlags::empty(), NONE).map_err(|e| format!("{at}: {e}"))?;
    }
    for module in MODULES {
        let file = File::open(module).map_err(|e| format!("{module}: {e}"))?;
        rustix::system::finit_module(&file, c"", 0).map_err(|e| format!("{module}: {e}"))?;
    }
    for n in 0..Wall::MOST_SLOTS {
        let device = Wall::address(n);
        let folder = Path::new("/sys/bus/pci/devices").join(&device);
        // 2: a network interface
        if read_to_string(folder.join("class")).is_ok_and(|class| class.starts_with("0x02")) {
            let put = |file: &Path, text: &str| write(file, text).map_err(|e| format!("{}: {e}", file.display()));
            put(&folder.join("driver_override"), "uio_pci_generic")?;
            put(Path::new("/sys/bus/pci/drivers_probe"), &device)?;
        }
    }
    Ok(())
}

/// The line to whoever has started the guest, which carries bytes as they are.
fn speak() -> io::Result<File> {
    let line = File::options().read(true).write(true).open("/dev/ttyS1")?;
    let mut how = tcgetattr(&line)?;
    how.make_raw();
    how.set_speed(115_200)?;
    tcsetattr(&line, OptionalActions::Now, &how)?;
    Ok(line)
}

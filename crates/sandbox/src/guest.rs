//! The first process of a guest.

use crate::image::CHAIN_PATH;
use crate::image::initramfs::{LAUNCH_SPEC, MODULES};
use crate::launch::{GUEST_COMMAND, LaunchSpec, Message};
use crate::process::{send, serve};
use config::Sandbox;
use graph::{Registry, SettingFiles};
use logger::eprintln;
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use std::fs::{File, read_to_string, write};
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Interval of reports, which use a serial line.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);

/// Runs as the first process of a guest: prepares the kernel, starts itself as `inner`, and switches the machine off
/// when that ends. The inner process opens its ports and forwards until it is stopped; in a standalone guest it is the
/// command `run`.
pub fn run_guest(registry: &Registry, inner: bool) -> ExitCode {
    if inner {
        let done = open_serial().map_err(|e| format!("serial line: {e}")).and_then(|mut to| {
            let result = read_launch_spec().and_then(|spec| serve_on(registry, &spec, &to));
            // errors: the supervisor is gone
            result.inspect_err(|error| drop(send(&mut to, &Message::Error(error.clone()))))
        });
        return if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(3) };
    }
    let done = prepare_kernel().and_then(|()| {
        let mut own = Command::new("/init");
        match read_to_string(CHAIN_PATH) {
            Ok(chain) => own.args(["run", &chain]),
            Err(_) => own.args([GUEST_COMMAND, "--inner"]),
        };
        own.status().map_err(|e| format!("/init: {e}"))
    });
    match done {
        Ok(status) if status.success() => {}
        Ok(status) => eprintln!("  ({status})"),
        Err(error) => eprintln!("error: {error}"),
    }
    logger::flush();
    // errors: nothing else can be done
    let _ = rustix::system::reboot(rustix::system::RebootCommand::PowerOff);
    ExitCode::from(4)
}

fn read_launch_spec() -> Result<LaunchSpec, String> {
    let text = read_to_string(LAUNCH_SPEC).map_err(|e| format!("{LAUNCH_SPEC}: {e}"))?;
    serde_json::from_str(&text).map_err(|e| format!("{LAUNCH_SPEC}: {e}"))
}

fn serve_on(registry: &Registry, spec: &LaunchSpec, line: &File) -> Result<(), String> {
    let end = || line.try_clone().map_err(|e| e.to_string());
    let done = serve(registry, spec, SettingFiles::default(), (end()?, end()?), REPORT_INTERVAL, || Ok(()));
    // errors: the last message is already sent
    let _ = rustix::termios::tcdrain(line);
    done
}

/// Mounts the file systems, loads the modules and binds the devices that DPDK needs.
fn prepare_kernel() -> Result<(), String> {
    use nix::mount::{MsFlags, mount};
    const NONE: Option<&str> = None;
    for (kind, at) in [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys")] {
        mount(Some(kind), at, Some(kind), MsFlags::empty(), NONE).map_err(|e| format!("{at}: {e}"))?;
    }
    for module in MODULES {
        let file = File::open(module).map_err(|e| format!("{module}: {e}"))?;
        rustix::system::finit_module(&file, c"", 0).map_err(|e| format!("{module}: {e}"))?;
    }
    for n in 0..Sandbox::MAX_SLOTS {
        let device = Sandbox::pci_address(n);
        let folder = Path::new("/sys/bus/pci/devices").join(&device);
        // class 2: network controller
        if read_to_string(folder.join("class")).is_ok_and(|class| class.starts_with("0x02")) {
            let put = |file: &Path, text: &str| write(file, text).map_err(|e| format!("{}: {e}", file.display()));
            put(&folder.join("driver_override"), "uio_pci_generic")?;
            put(Path::new("/sys/bus/pci/drivers_probe"), &device)?;
        }
    }
    Ok(())
}

/// Opens the serial line to the supervisor in raw mode.
fn open_serial() -> io::Result<File> {
    let line = File::options().read(true).write(true).open("/dev/ttyS1")?;
    let mut attributes = tcgetattr(&line)?;
    attributes.make_raw();
    attributes.set_speed(115_200)?;
    tcsetattr(&line, OptionalActions::Now, &attributes)?;
    Ok(line)
}

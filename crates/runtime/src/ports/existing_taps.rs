//! Taps that exist before a run, whose state is restored after it.

use crate::cleanup::CleanupProcess;
use config::Port;
use dpdk::netdev;

/// Sets the MAC address `$2`, the MTU `$3`, promiscuous mode `$4`, all-multicast mode `$5` and the state `$6` of `$1`.
const RESTORE: &str = r#"ip link set dev "$1" address "$2" mtu "$3" promisc "$4" allmulticast "$5" "$6""#;

/// Taps that existed before the run. Their addresses, MTUs and flags are restored when this is dropped, or the process
/// ends: DPDK's driver changes all of them.
#[derive(Default)]
pub(crate) struct ExistingTaps(Vec<(String, CleanupProcess)>);

impl ExistingTaps {
    /// Records the state of the taps of these ports; those that do not exist are ignored.
    ///
    /// # Errors
    /// The shell that restores a tap cannot be started.
    pub(crate) fn record<'a>(ports: impl IntoIterator<Item = &'a Port>) -> std::io::Result<ExistingTaps> {
        let taps =
            ports.into_iter().filter(|port| port.existing).filter_map(|port| Some(port.device.scheme_and_target()?.1));
        let record = |name: &str| Some((name.to_owned(), state(name)?));
        let start = |(name, state): (String, [String; 5])| {
            let arguments = std::iter::once(&name).chain(&state);
            let cleanup = CleanupProcess::start(RESTORE, arguments, None)?;
            Ok((name, cleanup))
        };
        taps.filter_map(record).map(start).collect::<Result<_, _>>().map(ExistingTaps)
    }

    /// Restores the taps, which must be closed, and returns the errors.
    pub(crate) fn restore(&mut self) -> Vec<String> {
        let restore = |(name, cleanup): (String, CleanupProcess)| {
            // a tap that was deleted during the run is reported by its port
            let error = cleanup.run().err().filter(|_| netdev::exists(&name))?;
            Some(format!("the state of tap {name} could not be restored: {error}"))
        };
        self.0.drain(..).filter_map(restore).collect()
    }

    /// Leaves the restoration to the end of the process.
    pub(crate) fn restore_at_exit(&mut self) {
        self.0.drain(..).for_each(|(_, cleanup)| std::mem::forget(cleanup));
    }
}

/// Returns the arguments of [`RESTORE`] after the name.
fn state(interface: &str) -> Option<[String; 5]> {
    let flags = netdev::flags(interface)?;
    let on_off = |flag| if flags & flag != 0 { "on" } else { "off" }.to_owned();
    let mac = netdev::mac(interface)?.map(|byte| format!("{byte:02x}")).join(":");
    let up = if flags & libc::IFF_UP != 0 { "up" } else { "down" };
    let mtu = netdev::mtu(interface)?.to_string();
    Some([mac, mtu, on_off(libc::IFF_PROMISC), on_off(libc::IFF_ALLMULTI), up.to_owned()])
}

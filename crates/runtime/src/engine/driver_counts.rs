//! Counts of the drivers of ports.

use crate::ports::{PortDrop, PortMonitor, RepresentorTap};
use crate::summary::PortSummary;
use graph::Named as _;

/// Counts of the driver of a port.
#[derive(Default)]
pub(super) struct DriverCounts {
    missed: u64,
    copied: u64,
    send_errors: u64,
    dropped: u64,
}

impl DriverCounts {
    pub(super) fn of(monitor: &PortMonitor) -> DriverCounts {
        let stats = monitor.port.stats();
        DriverCounts {
            missed: stats.rx_missed,
            copied: stats.rx_copied,
            send_errors: stats.tx_errors,
            dropped: monitor.rx_dropped(&stats),
        }
    }

    pub(super) fn of_tap(tap: &RepresentorTap) -> DriverCounts {
        DriverCounts { send_errors: tap.send_errors(), ..DriverCounts::default() }
    }

    pub(super) fn add_to(&self, port: &mut PortSummary) {
        port.missed += self.missed;
        port.copied += self.copied;
        port.send_errors += self.send_errors;
        port.drop_received(PortDrop::RxUnusable.name(), self.dropped);
    }
}

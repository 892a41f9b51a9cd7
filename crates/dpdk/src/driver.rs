//! The DPDK drivers that need different treatment from others.

/// The driver of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// Packet sockets.
    AfPacket,
    /// AF_XDP sockets.
    AfXdp,
    /// memif.
    Memif,
    /// Rings within the process.
    Ring,
    /// Tap interfaces.
    Tap,
    /// The server side of vhost-user.
    Vhost,
    /// virtio devices on the PCI bus.
    Virtio,
    /// The virtio side of vhost-user.
    VirtioUser,
    /// Any other driver.
    Other,
}

impl Driver {
    /// Returns the driver with this DPDK name.
    pub(crate) fn from_name(name: &str) -> Driver {
        match name {
            "net_af_packet" => Driver::AfPacket,
            "net_af_xdp" => Driver::AfXdp,
            "net_memif" => Driver::Memif,
            "net_ring" => Driver::Ring,
            "net_tap" => Driver::Tap,
            "net_vhost" => Driver::Vhost,
            "net_virtio_user" => Driver::VirtioUser,
            name if name.starts_with("net_virtio") => Driver::Virtio,
            _ => Driver::Other,
        }
    }

    /// Returns true if a port can have several queues; both sides of a ring or memif see a single one.
    pub fn is_multi_queue(self) -> bool {
        !matches!(self, Driver::Ring | Driver::Memif)
    }

    /// Returns true if each receive queue has to have a transmit queue, and each transmit queue a receive queue.
    pub fn has_paired_queues(self) -> bool {
        self == Driver::Tap
    }

    /// Returns true if the driver has an MTU. The others refuse to be configured with one, and have frames of any length.
    pub(crate) fn has_mtu(self) -> bool {
        !matches!(self, Driver::AfPacket | Driver::Memif)
    }

    /// Returns true if receive queues support interrupts.
    pub fn supports_rx_interrupts(self) -> bool {
        self == Driver::VirtioUser
    }

    /// Returns true if the driver may be called for the number of used descriptors of a receive queue. That of vhost
    /// does not guard the call against a peer that disconnects.
    pub(crate) fn counts_rx_descriptors(self) -> bool {
        self != Driver::Vhost
    }

    /// Returns true if packets that count as receive errors were received completely and dropped.
    pub fn drops_rx_errors(self) -> bool {
        matches!(self, Driver::Virtio | Driver::VirtioUser)
    }
}

//! Tail drop: the limit of every queue.

/// Limit of a queue: packets that arrive when it is reached are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::qos) struct TailDrop {
    /// Maximum number of packets.
    pub(in crate::qos) packets: u32,
    /// Maximum number of bytes.
    pub(in crate::qos) bytes: u64,
}

impl TailDrop {
    /// Returns true if a queue with these packets and bytes has room for a packet of `new` bytes.
    pub(in crate::qos) fn admits(&self, packets: usize, bytes: u64, new: u32) -> bool {
        packets < self.packets as usize && bytes + u64::from(new) <= self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_inclusive() {
        let limit = TailDrop { packets: 2, bytes: 100 };
        assert!(limit.admits(1, 40, 60) && !limit.admits(1, 40, 61) && !limit.admits(2, 0, 1));
    }
}

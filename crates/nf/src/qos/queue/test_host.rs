//! Packets of tests.

use super::{DropReason, Host, Stamp};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::qos) struct TestPacket {
    pub(in crate::qos) number: u32,
    /// True if it can be marked.
    pub(in crate::qos) ecn: bool,
    pub(in crate::qos) marked: bool,
}

impl TestPacket {
    pub(in crate::qos) fn new(number: u32) -> Self {
        TestPacket { number, ecn: false, marked: false }
    }
}

#[derive(Default)]
pub(in crate::qos) struct TestHost {
    pub(in crate::qos) dropped: Vec<(DropReason, TestPacket)>,
    stored: Vec<Option<(TestPacket, Stamp)>>,
    /// Unused numbers of `stored`.
    free: Vec<u32>,
}

impl Host for TestHost {
    type Item = TestPacket;

    fn store(&mut self, item: TestPacket, stamp: Stamp) -> u32 {
        let number = self.free.pop().unwrap_or(self.stored.len() as u32);
        self.stored.resize(self.stored.len().max(number as usize + 1), None);
        self.stored[number as usize] = Some((item, stamp));
        number
    }

    fn stamp(&mut self, number: u32) -> Option<&mut Stamp> {
        self.stored.get_mut(number as usize)?.as_mut().map(|(_, stamp)| stamp)
    }

    fn take(&mut self, number: u32) -> Option<(TestPacket, Stamp)> {
        self.free.push(number);
        self.stored[number as usize].take()
    }

    fn drop(&mut self, reason: DropReason, item: TestPacket) {
        self.dropped.push((reason, item));
    }

    fn mark(&mut self, item: &mut TestPacket) -> bool {
        item.marked |= item.ecn;
        item.ecn
    }
}

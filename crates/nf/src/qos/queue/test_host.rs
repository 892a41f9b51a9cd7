//! Packets of tests.

use super::{DropReason, Host};
use std::collections::VecDeque;

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
}

impl Host for TestHost {
    type Queue = VecDeque<TestPacket>;
    type Item = TestPacket;

    fn append(&mut self, queue: &mut Self::Queue, item: TestPacket) {
        queue.push_back(item);
    }

    fn take(&mut self, queue: &mut Self::Queue) -> Option<TestPacket> {
        queue.pop_front()
    }

    fn drop(&mut self, reason: DropReason, item: TestPacket) {
        self.dropped.push((reason, item));
    }

    fn mark(&mut self, item: &mut TestPacket) -> bool {
        item.marked |= item.ecn;
        item.ecn
    }
}

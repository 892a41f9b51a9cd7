//! Splitting a batch into the packets of its main output and the others.

/// The output by which most packets of a batch leave, and the set of packets that do not.
///
/// Most packets of a burst have one output, so the output of the first forwarded packet becomes that of the batch, and
/// only the other packets are taken out of it.
pub(super) struct OutputSplit {
    main: Option<u8>,
    others: u64,
}

impl OutputSplit {
    /// Starts with the packets that are known not to be forwarded, as a mask.
    #[inline(always)]
    pub(super) fn new(others: u64) -> Self {
        OutputSplit { main: None, others }
    }

    /// Adds packets, as a mask, with their output; `None` if they are dropped or copied.
    #[inline(always)]
    pub(super) fn add(&mut self, packets: u64, output: Option<u8>) {
        let leaves_with_batch = output.is_some_and(|output| *self.main.get_or_insert(output) == output);
        if !leaves_with_batch {
            self.others |= packets;
        }
    }

    /// Returns the packets that do not leave by the main output, as a mask.
    #[inline(always)]
    pub(super) fn others(&self) -> u64 {
        self.others
    }

    /// Returns the main output, 0 if no packet is forwarded.
    #[inline(always)]
    pub(super) fn main(&self) -> u8 {
        self.main.unwrap_or(0)
    }
}

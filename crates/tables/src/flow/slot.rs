//! Where a flow is.

use core::fmt;

/// Where a table keeps a flow: good until the table next inserts, removes or ages.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot(u32);

const NEW: u32 = 1 << 31;

impl Slot {
    /// No flow.
    pub const NONE: Self = Self(u32::MAX);

    #[inline(always)]
    pub(super) const fn known(index: usize) -> Self {
        Self(index as u32)
    }

    #[inline(always)]
    pub(super) const fn new(index: usize) -> Self {
        Self(index as u32 | NEW)
    }

    /// Whether there is a flow.
    #[inline(always)]
    #[must_use]
    pub const fn is_some(self) -> bool {
        self.0 != u32::MAX
    }

    /// Whether the look-up that gave this inserted the flow.
    #[inline(always)]
    #[must_use]
    pub const fn is_new(self) -> bool {
        self.0 & NEW != 0 && self.is_some()
    }

    /// Beyond every table if there is no flow.
    #[inline(always)]
    pub(super) const fn index(self) -> usize {
        (self.0 & !NEW) as usize
    }

    /// The same flow after it has moved.
    pub(super) fn moved(&mut self, from: usize, to: usize) {
        if self.is_some() && self.index() == from {
            self.0 = self.0 & NEW | to as u32;
        }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NONE => f.write_str("Slot(none)"),
            slot if slot.is_new() => write!(f, "Slot({}, new)", slot.index()),
            slot => write!(f, "Slot({})", slot.index()),
        }
    }
}

//! Which results are listed.

/// What listed results have in common; what is left out does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Beginning of their id, hexadecimal.
    pub id: Option<String>,
    /// Study.
    pub study: Option<String>,
    /// Device under test: its kind, as `bondstone`, or its label, as `bondstone ttl+lpm`.
    pub dut: Option<String>,
    /// Frames: bytes with the FCS, as `64`, or the name of a mix.
    pub frame: Option<String>,
    /// First moment of the measurement, seconds since 1970-01-01T00:00:00Z.
    pub since: Option<i64>,
    /// Most that are listed; [`Filter::MOST`] when left out, and at most that.
    pub limit: Option<usize>,
}

impl Filter {
    /// Most results that are listed at once.
    pub const MOST: usize = 10_000;

    pub(crate) fn limit(&self) -> i64 {
        self.limit.unwrap_or(Self::MOST).min(Self::MOST) as i64
    }
}

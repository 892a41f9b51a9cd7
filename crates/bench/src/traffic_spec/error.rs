//! Errors of preparing traffic.

use super::capture_file::MAX_FRAME_LEN;
use traffic::short_connections::ShortError;
use traffic::{Mix, TemplateError};

/// Reason why traffic cannot be prepared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrepareError {
    /// A frame is too small for its headers and probe.
    #[error(transparent)]
    FrameTooSmall(#[from] TemplateError),
    /// The settings of short connections are invalid.
    #[error(transparent)]
    Short(#[from] ShortError),
    /// A frame does not fit into a packet buffer.
    #[error(
        "frames of {0} bytes do not fit into a packet buffer; the maximum is {max} bytes",
        max = MAX_FRAME_LEN as u16 + traffic::size::FCS
    )]
    FrameTooLarge(u16),
}

/// Checks that all frames of a mix fit into a packet buffer.
pub(crate) fn check_sizes(mix: &Mix) -> Result<(), PrepareError> {
    if mix.largest().without_fcs() > MAX_FRAME_LEN {
        Err(PrepareError::FrameTooLarge(mix.largest().with_fcs()))
    } else {
        Ok(())
    }
}

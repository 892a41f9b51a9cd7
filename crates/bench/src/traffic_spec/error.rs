//! Errors of preparing traffic.

use traffic::TemplateError;
use traffic::short_connections::ShortError;

/// Reason why traffic cannot be prepared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrepareError {
    /// A frame is too small for its headers and probe.
    #[error(transparent)]
    FrameTooSmall(#[from] TemplateError),
    /// The settings of short connections are invalid.
    #[error(transparent)]
    Short(#[from] ShortError),
}

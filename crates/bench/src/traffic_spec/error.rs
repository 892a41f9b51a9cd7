//! Errors of preparing traffic.

use traffic::short_connections::ShortError;
use traffic::{FieldError, TemplateError};

/// Reason why traffic cannot be prepared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrepareError {
    /// A frame is too small for its headers and probe.
    #[error(transparent)]
    FrameTooSmall(#[from] TemplateError),
    /// The settings of short connections are invalid.
    #[error(transparent)]
    Short(#[from] ShortError),
    /// A field does not exist in the frames, or its values do not fit.
    #[error(transparent)]
    Field(#[from] FieldError),
}

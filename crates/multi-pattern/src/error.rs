//! Errors.

use thiserror::Error;

/// Failure to compile literals or to search.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// Hyperscan is not installed, does not support this CPU, or is a version that misses matches.
    #[error("Hyperscan cannot be used: {0}")]
    Library(String),
    /// A literal has no bytes.
    #[error("literal {0} is empty")]
    Empty(usize),
    /// The engine refuses the literals.
    #[error("the literals cannot be compiled: {0}")]
    Compile(String),
    /// The engine has no memory, or fails otherwise.
    #[error("Hyperscan failed with status {0}")]
    Status(i32),
}

//! Results for other programs and for people.

pub mod csv;
pub mod junit;
pub mod markdown;

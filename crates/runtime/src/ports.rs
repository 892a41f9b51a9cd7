//! The kinds of port.

mod capture;
mod device;
mod spread;

pub(crate) use capture::{CaptureReader, CaptureWriter, Faults, first_link_type};
pub(crate) use device::{Shared, cure};
pub(crate) use spread::spread;

//! The kinds of port.

mod capture;
mod device;
mod rings;
mod shuffle;
mod spread;

pub(crate) use capture::{CaptureReader, CaptureWriter, first_link_type};
pub(crate) use device::{Shared, Watch, claim_socket, remedy, drivers_own, note};
pub(crate) use rings::{Ends, Rings};
pub(crate) use shuffle::link;
pub use shuffle::shuffle_link;
pub(crate) use spread::{By, spread};

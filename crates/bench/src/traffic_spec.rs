//! Traffic specs: descriptions of what is sent, and the frames prepared from them.

mod capture_file;
mod capture_spec;
mod error;
mod flows;
mod prepared;
mod prepared_frames;
pub mod profile;
mod profile_streams;
mod replay;
mod script;
mod sizes;
mod spec;
mod synthetic;
mod vary;

pub use capture_file::CaptureFile;
pub use capture_spec::CaptureSpec;
pub use error::PrepareError;
pub use flows::flow_settings;
pub(crate) use flows::mac_addresses;
pub use prepared::PreparedTraffic;
pub use profile::Profile;
pub use sizes::parse_frame_sizes;
pub use spec::TrafficSpec;
pub use synthetic::SyntheticOptions;
pub(crate) use synthetic::TRACE_SEED;
pub use vary::VariedField;

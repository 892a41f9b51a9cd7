//! Small NFs that count, copy, spread, impair, age or drop packets.

mod cells;
mod count;
mod drop;
mod impair;
mod spread;
mod tee;
mod ttl;
mod work;

pub use cells::Cells;
pub use count::Count;
pub use drop::DropAll;
pub use impair::Impair;
pub use spread::Spread;
pub use tee::Tee;
pub use ttl::{Ttl, decrement_ttl};
pub use work::Work;

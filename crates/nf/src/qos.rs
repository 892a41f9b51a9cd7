//! Quality of service: policing, shaping and scheduling of classes of packets.

mod class;
mod dscp;
mod gaps;
#[allow(dead_code, reason = "queue management marks congestion")]
mod headers;
mod meter;
#[allow(dead_code, reason = "the scheduler removes idle pacers")]
mod pacer;
mod police;
mod rates;
mod shape;
mod subscriber;

pub use police::Police;
pub use shape::Shape;

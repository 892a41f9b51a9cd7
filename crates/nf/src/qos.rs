//! Quality of service: policing, shaping and scheduling of classes of packets.

mod class;
mod dscp;
mod gaps;
mod headers;
mod meter;
mod pacer;
mod police;
mod queue;
mod rates;
mod schedule;
mod shape;
mod subscriber;

pub use police::Police;
pub use schedule::Schedule;
pub use shape::Shape;

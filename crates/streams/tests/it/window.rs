//! The window node: flows and events, packets held, and whatever comes.

mod hold;
mod kit;
mod node;
mod random;

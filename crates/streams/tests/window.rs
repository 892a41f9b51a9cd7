//! The window node: flows and events, packets held, and whatever comes.

#[path = "window/hold.rs"]
mod hold;
#[path = "window/kit.rs"]
mod kit;
#[path = "window/node.rs"]
mod node;
#[path = "window/random.rs"]
mod random;

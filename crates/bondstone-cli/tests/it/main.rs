//! Integration tests of this crate, in one program.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "tests print why they are skipped")]

#[cfg(feature = "measure")]
mod anatomy;
mod attacks;
mod bad_input;
#[cfg(feature = "measure")]
mod bench;
mod book;
mod capacity;
mod captures;
mod common;
mod compile;
mod control;
mod control_flood;
mod control_plane_attacks;
mod control_plane_faults;
mod control_plane_guides;
mod convergence;
mod cores;
mod cpe;
mod deploy;
mod doctor;
mod duts;
mod far;
mod firewall_stateful;
mod fpm;
mod generators;
mod hosts;
mod images;
mod inspection;
mod kernel_routes;
mod lint;
mod live_sessions;
mod logs;
mod maglev;
mod matrix;
mod memory;
mod methods;
mod metrics;
mod namespaces;
mod nat;
mod nat64;
mod nat_kernel;
mod new;
mod numa;
mod observe;
mod output;
mod processes;
mod profiles;
mod proxy;
mod punt;
mod queue_latency;
mod reload;
mod reload_sandboxes;
mod reload_state;
#[cfg(feature = "measure")]
mod replays;
#[cfg(feature = "measure")]
mod representors;
mod reproduce;
#[cfg(feature = "measure")]
mod results;
mod routers;
mod routes;
mod rules;
#[cfg(feature = "measure")]
#[path = "../../../report/examples/samples/mod.rs"]
mod samples;
mod sandboxes;
#[cfg(feature = "measure")]
#[path = "../../../results/tests/it/server/mod.rs"]
mod server;
mod shipped;
mod sriov;
mod stop;
mod tcp;
mod tenant_soak;
mod tenant_updates;
mod tenants;
mod top;
mod trusted_sandboxes;
mod upgrade;
mod watchdog;

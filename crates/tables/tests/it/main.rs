//! Integration tests of this crate, in one program.

mod exact;
mod exact_churn;
mod flow;
mod handoff;
mod lpm;
mod lpm_churn;
mod lpm_real;

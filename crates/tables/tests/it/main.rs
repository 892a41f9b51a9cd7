//! Integration tests of this crate, in one program.

mod cuckoo;
mod cuckoo_churn;
mod flow;
mod lpm;
mod lpm_churn;
mod lpm_real;
mod message_queue;

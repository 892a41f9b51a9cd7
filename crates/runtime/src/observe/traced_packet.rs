//! The steps of traced packets, as they are reported.

use serde::{Deserialize, Serialize};

/// A traced packet, with those that NFs created while they processed it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TracedPacket {
    /// Number, from 1.
    pub number: u32,
    /// Nanoseconds since the Unix epoch at which it was received.
    pub timestamp_ns: u64,
    /// The steps of all packets, in order.
    pub steps: Vec<Step>,
    /// True if the packet, or one that was created, has neither been sent nor dropped: an NF holds it, or it was lost in a
    /// panic.
    pub is_held: bool,
}

/// One step of a packet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    /// 0: the packet that was received; others: packets that NFs created.
    pub copy: u32,
    /// CPU of the worker.
    pub cpu: usize,
    /// The step.
    #[serde(flatten)]
    pub kind: StepKind,
    /// Length of the packet in bytes, without FCS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub len: Option<usize>,
    /// Its first 128 bytes, hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<String>,
}

/// The kind of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum StepKind {
    /// Received by a port, or from a link between CPUs.
    Received {
        /// Name of the port or link.
        from: String,
    },
    /// Enters an NF.
    Enters {
        /// Name of the NF.
        nf: String,
        /// The input, if the NF has several.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<String>,
    },
    /// The NF tells what it does.
    Explains {
        /// Name of the NF.
        nf: String,
        /// Its text.
        text: String,
    },
    /// An operator of the NF has processed it.
    Operator {
        /// Name of the NF.
        nf: String,
        /// The operator, with the name that it was given, such as `filter ttl_expired`.
        operator: String,
        /// Its result, such as `passed`, `changed` or `dropped: ttl_expired`.
        result: String,
        /// Cycles that it took.
        cycles: u64,
    },
    /// The NF has processed it.
    Processed {
        /// Name of the NF.
        nf: String,
        /// Cycles that it took, or those of its operators, for this packet alone: more than in a batch.
        cycles: u64,
        /// Counters of the NF that changed.
        counters: Vec<String>,
    },
    /// Leaves the NF by an output.
    Leaves {
        /// Name of the NF.
        nf: String,
        /// Name of the output.
        output: String,
    },
    /// Dropped by an NF.
    Dropped {
        /// Name of the NF.
        nf: String,
        /// Reason.
        reason: String,
    },
    /// Created by an NF.
    Created {
        /// Name of the NF.
        nf: String,
    },
    /// Held by an NF.
    Held {
        /// Name of the NF.
        nf: String,
    },
    /// Sent to a port, or to the chain that begins at a link.
    Sent {
        /// Name of the port or link.
        to: String,
    },
    /// Dropped as the port or link did not accept it.
    Refused {
        /// Name of the port or link.
        by: String,
        /// Reason.
        reason: String,
    },
}

/// The last line of a stream of traced packets.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TraceEnd {
    /// Number of steps that are missing, because workers had more to show than was read.
    pub lost_steps: u64,
}

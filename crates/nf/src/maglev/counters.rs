//! Drop reasons and counters of the load balancer.

graph::named_enum! {
    /// Drop reasons.
    pub(super) enum DropReason {
        /// No backend of the service is up.
        NoBackend = "no_backend",
        /// The packet does not fit in the tunnel and must not be fragmented.
        TooBig = "too_big",
        /// The buffer has no headroom for the headers of the tunnel.
        NoHeadroom = "no_headroom",
        /// A fragment whose first fragment was not received.
        UnknownFragment = "unknown_fragment",
        /// An ICMP error about a packet that no service sent.
        UnknownIcmpError = "unknown_icmp_error",
        /// For a service, with an incomplete TCP or UDP header.
        Malformed = "malformed",
        /// For no service, with `unmatched = "drop"`.
        NoService = "no_service",
    }
}

graph::named_enum! {
    /// Counters.
    pub(super) enum CounterId {
        /// Connections in the table.
        Connections = "connections",
        New = "new",
        /// Connections that got another backend because theirs was down or has been removed.
        Moved = "moved",
        /// Packets of connections that were not added to the table.
        TableFull = "table_full",
        /// Connections removed after their idle timeout, or because their backend has been removed.
        Expired = "expired",
        Fragments = "fragments",
        IcmpErrors = "icmp_errors",
        Echoes = "echoes",
        /// Packets from backends whose source was rewritten.
        Replies = "replies",
        /// Packets from clients that are for no service.
        Unmatched = "unmatched",
        /// Backends that are not down.
        BackendsUp = "backends_up",
        RingChanges = "ring_changes",
        /// Slots that changed although their backends were up.
        SlotsDisrupted = "slots_disrupted",
        /// Slots that changed because their backends were not up.
        SlotsReassigned = "slots_reassigned",
    }
}

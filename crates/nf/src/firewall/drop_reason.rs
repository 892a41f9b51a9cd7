//! Drop reasons of `firewall`.

graph::named_enum! {
    /// Drop reasons. Without connection tracking only those up to [`TinyFragment`](DropReason::TinyFragment) occur.
    pub(super) enum DropReason {
        Denied = "denied",
        DeniedByDefault = "denied_by_default",
        NotIp = "not_ip",
        MalformedIp = "malformed_ip",
        TinyFragment = "tiny_fragment",
        MalformedL4 = "malformed_l4",
        BadChecksum = "bad_checksum",
        NoConnection = "no_connection",
        OutOfWindow = "out_of_window",
        OutOfState = "out_of_state",
        UnrelatedIcmp = "unrelated_icmp",
        NoFirstFragment = "no_first_fragment",
        TableFull = "table_full",
    }
}

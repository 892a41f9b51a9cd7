//! Drop reasons and counters of the router.

graph::named_enum! {
    /// Drop reasons.
    pub(super) enum DropReason {
        MalformedEthernet = "malformed_ethernet",
        /// The destination MAC address is that of another host.
        OtherMac = "other_mac",
        NotIp = "not_ip",
        MalformedArp = "malformed_arp",
        MalformedIp = "malformed_ip",
        BadChecksum = "bad_checksum",
        /// Source or destination is an address that must not be forwarded (RFC 1812 §5.3.7).
        Martian = "martian",
        Multicast = "multicast",
        /// Received as a link-layer broadcast or multicast, but not for the router itself.
        LinkBroadcast = "link_broadcast",
        /// The destination is the broadcast address of a network of the router (RFC 2644).
        DirectedBroadcast = "directed_broadcast",
        /// The packet has a source route option (RFC 7126 §4.3).
        SourceRoute = "source_route",
        TtlExpired = "ttl_expired",
        /// A message that only neighbours may send, with a TTL or hop limit other than 255 (RFC 5082).
        Gtsm = "gtsm",
        TooBig = "too_big",
        /// Replaced by its fragments.
        Fragmented = "fragmented",
        NoRoute = "no_route",
        Unreachable = "unreachable",
        Prohibited = "prohibited",
        Blackhole = "blackhole",
        /// The neighbour did not answer ARP or neighbor discovery.
        NeighbourUnresolved = "neighbour_unresolved",
        NeighbourQueueFull = "neighbour_queue_full",
        NeighbourTableFull = "neighbour_table_full",
        /// An ARP or neighbor discovery message that the router has processed.
        Consumed = "consumed",
        /// The buffer pool was empty before all fragments were made.
        NoFragmentBuffer = "no_fragment_buffer",
        /// The rate of the packet's class to the control plane is exceeded.
        PuntExceeded = "punt_exceeded",
        /// The control plane sent a frame with another source MAC address than the interface's, longer than its MTU,
        /// neither ARP nor IP, or to a reserved group of bridges.
        InjectRefused = "inject_refused",
    }
}

graph::named_enum! {
    /// Counters.
    pub(super) enum CounterId {
        /// ICMP errors sent.
        IcmpSent = "icmp_sent",
        /// ICMP errors not sent because of the rate limit.
        IcmpRateLimited = "icmp_rate_limited",
        /// ARP requests and neighbor solicitations sent.
        NeighbourRequests = "neighbour_requests",
        /// Packets of the router that were not sent because the buffer pool was empty.
        NoBuffer = "no_buffer",
        /// Routes to single addresses in the exact-match tables.
        HostRoutes = "host_routes",
        /// Routes that a routing daemon has installed.
        InstalledRoutes = "installed_routes",
    }
}

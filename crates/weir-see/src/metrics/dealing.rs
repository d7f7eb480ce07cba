//! The counters of how connections are dealt among workers.

use weir_engine::worker::{DealingCounters, FlowCounters, QuicCounters, WorkerCounter};

/// What is counted of a worker where connections are dealt.
pub(super) struct DealtCounts {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) is_gauge: bool,
    pub(super) of: fn(&DealingCounters) -> &WorkerCounter,
}

/// One of the counters of kind `C` that each worker has.
pub(super) struct WorkerCount<C: 'static> {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) of: fn(&C) -> &WorkerCounter,
}

pub(super) const QUIC: &[WorkerCount<QuicCounters>] = &[
    WorkerCount {
        name: "weir_quic_clients_refused",
        help: "Clients of QUIC for which there was no room.",
        of: |quic| &quic.refused,
    },
    WorkerCount {
        name: "weir_quic_clients_retried",
        help: "Clients of QUIC that were asked to show that they are where they say.",
        of: |quic| &quic.retried,
    },
    WorkerCount {
        name: "weir_quic_datagrams_handed_over",
        help: "Datagrams of QUIC that came to the socket of another worker than their connection's.",
        of: |quic| &quic.handed_over,
    },
    WorkerCount {
        name: "weir_quic_datagrams_forwarded",
        help: "Datagrams of QUIC that were for a connection of another process with the same sockets, as after an upgrade.",
        of: |quic| &quic.forwarded,
    },
    WorkerCount {
        name: "weir_quic_datagrams_dropped",
        help: "Datagrams of QUIC that the system did not take.",
        of: |quic| &quic.dropped,
    },
];

pub(super) const FLOWS: &[WorkerCount<FlowCounters>] = &[
    WorkerCount { name: "weir_udp_flows", help: "Flows of UDP that began.", of: |flows| &flows.opened },
    WorkerCount {
        name: "weir_udp_flows_evicted",
        help: "Flows of UDP that were ended to make room for others.",
        of: |flows| &flows.evicted,
    },
    WorkerCount {
        name: "weir_udp_datagrams_refused",
        help: "Datagrams of new clients for which there was no room.",
        of: |flows| &flows.refused,
    },
    WorkerCount {
        name: "weir_udp_datagrams_dropped",
        help: "Datagrams of flows that were not passed on, for want of room.",
        of: |flows| &flows.dropped,
    },
];

pub(super) const DEALING: &[DealtCounts] = &[
    DealtCounts {
        name: "weir_connections_dealt",
        help: "New connections dealt to the worker.",
        is_gauge: false,
        of: |dealing| &dealing.dealt,
    },
    DealtCounts {
        name: "weir_connections_handed_on",
        help: "Connections that went on at another worker.",
        is_gauge: false,
        of: |dealing| &dealing.handed_on,
    },
    DealtCounts {
        name: "weir_connections_taken_over",
        help: "Connections taken over from other workers.",
        is_gauge: false,
        of: |dealing| &dealing.taken_over,
    },
    DealtCounts {
        name: "weir_connections_evened_out",
        help: "Connections asked to end so that shares become even.",
        is_gauge: false,
        of: |dealing| &dealing.evened_out,
    },
    DealtCounts {
        name: "weir_turns_lost_core",
        help: "Turns found late, when a connection was dealt, because the thread had lost its core.",
        is_gauge: false,
        of: |dealing| &dealing.lost_core,
    },
    DealtCounts {
        name: "weir_turns_stuck",
        help: "Turns found late, when a connection was dealt, for another reason.",
        is_gauge: false,
        of: |dealing| &dealing.stuck,
    },
    DealtCounts {
        name: "weir_connections_parked",
        help: "Idle connections that any worker may take.",
        is_gauge: true,
        of: |dealing| &dealing.parked,
    },
    DealtCounts {
        name: "weir_connections_queued",
        help: "Connections accepted, and not taken by the worker yet.",
        is_gauge: true,
        of: |dealing| &dealing.queued,
    },
];

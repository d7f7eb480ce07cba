//! Rows of `use` for what has room for so much and no more: queues, pools, zones.

use weir_engine::worker::Worker;
use weir_engine::zone::SharedZones;
use weir_rt::blocking::{self, PoolStats};

use super::usage::unknown;
use crate::source::{BRIEFLY, ServerSource};
use crate::table::bytes;

/// What is used and what there is, at one moment.
pub(super) struct ServerCapacity {
    /// Connections that wait to be accepted, how many may, and the fullest listener.
    listeners: (u64, u64, String),
    files: PoolStats,
    computing: PoolStats,
    devices: PoolStats,
    /// Receive buffers in use, and all; `None` where a worker does not respond.
    buffers: Option<(u64, u64)>,
    /// Idle connections to servers, kept alive for later requests; likewise.
    idle: Option<u64>,
    /// Those of them that any worker may take.
    common: u64,
    /// Bytes that wait for the thread that writes logs.
    queued: u64,
    zones: Vec<ZoneUse>,
}

pub(super) struct ZoneUse {
    pub(super) name: String,
    used: u64,
    pub(super) size: u64,
    /// How often something had to make room.
    pub(super) full: u64,
}

impl ServerCapacity {
    pub(super) fn take(source: &ServerSource) -> ServerCapacity {
        let backlogs = source.backlogs();
        let sum = |of: fn(&weir_server::SocketBacklog) -> u64| backlogs.iter().map(of).sum();
        let fullest = backlogs.iter().max_by_key(|backlog| backlog.waiting * 1_000 / backlog.room.max(1));
        let fullest = fullest.map_or_else(String::new, |fullest| {
            format!("{} {} of {}", fullest.addr, fullest.waiting, fullest.room)
        });
        let asked = source.ask(BRIEFLY, |worker: &Worker| {
            (weir_rt::buffers(), weir_upstream::of_worker(worker).upstreams.idle())
        });
        let asked = asked.whole(|all| {
            all.iter().fold(((0, 0), 0), |((used, all), kept), ((free, count), idle)| {
                ((used + u64::from(count - free), all + u64::from(*count)), kept + idle)
            })
        });
        let common =
            super::upstreams::upstreams(&source.configuration()).map(|upstream| upstream.idle_of_all()).sum();
        ServerCapacity {
            listeners: (sum(|backlog| backlog.waiting), sum(|backlog| backlog.room), fullest),
            files: blocking::pool_stats(),
            computing: blocking::computing_stats(),
            devices: blocking::device_stats(),
            buffers: asked.map(|(buffers, _)| buffers),
            idle: asked.map(|(_, idle)| idle + common),
            common,
            queued: weir_engine::log::queued(),
            zones: zones(source),
        }
    }

    /// Resource, utilisation, saturation and errors, the latter of two as the difference to `before`; and what was counted
    /// since the server began.
    pub(super) fn rows(&self, before: &ServerCapacity) -> Vec<[String; 5]> {
        let of = |used: u64, all: u64| format!("{used} of {all}");
        let nothing = || "-".to_owned();
        let (waiting, room, fullest) = &self.listeners;
        let mut rows = vec![[
            "accept queues".to_owned(),
            of(*waiting, *room),
            if fullest.is_empty() { nothing() } else { format!("fullest {fullest}") },
            nothing(),
            nothing(),
        ]];
        for (name, now, before) in [
            ("file threads", self.files, before.files),
            ("key threads", self.computing, before.computing),
            ("device threads", self.devices, before.devices),
        ] {
            rows.push([
                name.to_owned(),
                of(now.busy as u64, now.most as u64),
                format!("{} queued", now.queued),
                format!("{} without thread", now.inline - before.inline),
                format!("{} without thread", now.inline),
            ]);
        }
        rows.push([
            "buffers".to_owned(),
            self.buffers.map_or_else(unknown, |(used, all)| of(used, all)),
            nothing(),
            nothing(),
            nothing(),
        ]);
        let idle = self.idle.map_or_else(unknown, |idle| idle.to_string());
        let idle = match self.common {
            0 => format!("{idle} idle"),
            common => format!("{idle} idle, {common} for any worker"),
        };
        rows.push(["to servers".to_owned(), idle, nothing(), nothing(), nothing()]);
        rows.push(["log queue".to_owned(), bytes(self.queued), nothing(), nothing(), nothing()]);
        rows.extend(self.zones.iter().map(|zone| {
            let earlier = before.zones.iter().find(|other| other.name == zone.name);
            let full = zone.full.saturating_sub(earlier.map_or(0, |earlier| earlier.full));
            let used = format!("{} of {}", bytes(zone.used), bytes(zone.size));
            let all = format!("{} times full", zone.full);
            [zone.name.clone(), used, format!("{full} times full"), nothing(), all]
        }));
        rows
    }
}

/// All zones of shared memory.
pub(super) fn zones(source: &ServerSource) -> Vec<ZoneUse> {
    let configuration = source.configuration();
    let zones = configuration.sections().filter_map(|section| section.shared::<SharedZones>());
    zones
        .flat_map(SharedZones::usage)
        .map(|(owner, name, usage)| ZoneUse {
            name: format!("{owner} {name}"),
            used: usage.used,
            size: usage.size,
            full: usage.full,
        })
        .collect()
}

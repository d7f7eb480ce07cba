//! `weir attach`: where the time of requests goes in a running nginx, as `weir trace` says it of Weir.
//!
//! From outside, by probes on its functions (uprobes): no debug information, no module, no restart, nothing that stays.
//! [`modules`] determines which functions are handlers and filters, [`follow`] puts the hits of their probes together
//! to requests, and from there on everything is as for Weir's own: the same recorder, the same trees and averages.

mod code;
mod fields;
mod floor;
mod follow;
mod image;
mod memory;
mod modules;
mod request;

use std::collections::HashSet;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use weir_sys::perf::{self, ProbeCosts, ProbeHit, ProbePoint, UprobeSet};
use weir_trace::{Recorder, RecorderSettings, RequestRecord, Site, SiteTable};

use fields::{FieldLayout, RequestTexts};
use floor::ProbeFloor;
use follow::ProcessFollower;
use image::CodeImage;
use memory::ProcessMemory;
use modules::{FoundSpots, FunctionRole, ProbeSpot};
use request::ProbedRequest;

/// A process, and what of it is worth a probe.
pub(crate) struct ProbeTarget {
    pid: u32,
    memory: ProcessMemory,
    images: Vec<CodeImage>,
    found: FoundSpots,
}

/// Its probes, and what they cost.
pub(crate) struct AttachedProbes {
    target: ProbeTarget,
    costs: ProbeCosts,
    probes: UprobeSet,
}

/// What came of following it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AttachOutcome {
    /// Requests that were seen from beginning to end.
    pub(crate) requests: u64,
    /// Those of them whose memory was used again before it could be read.
    pub(crate) unnamed: u64,
    /// Hits that were lost because too many came.
    pub(crate) lost: u64,
    /// Nanoseconds of probes that were left out.
    pub(crate) probing: u64,
}

impl ProbeTarget {
    /// Looks through the process `pid`.
    ///
    /// # Errors
    /// There is no such process, it is no nginx, or the right to look into it is missing.
    pub(crate) fn of(pid: u32) -> Result<ProbeTarget, String> {
        let memory = ProcessMemory::of(pid).map_err(|error| format!("{error}{RIGHTS}"))?;
        let images = image::of(pid, |path| path.ends_with(".so") && path.contains("module"))?;
        let found = modules::find(&images, &memory)?;
        Ok(ProbeTarget { pid, memory, images, found })
    }

    /// What would be probed, a line each.
    pub(crate) fn list(&self) -> String {
        let sites = SiteTable::global();
        let line = |spot: &ProbeSpot| {
            let what = match spot.role {
                FunctionRole::At(Site::NONE)
                | FunctionRole::Create
                | FunctionRole::Free
                | FunctionRole::Turn => "request".to_owned(),
                FunctionRole::Checker => "phase".to_owned(),
                FunctionRole::Filter(..) => format!("filter {}", spot.name),
                FunctionRole::At(site) | FunctionRole::Upstream(site) | FunctionRole::Chain(site) => {
                    let info = sites.info(site);
                    let phase = info.phase.map_or(String::new(), |phase| format!("{phase} "));
                    format!("{phase}{}", info.label())
                }
            };
            let image = &self.images[spot.image];
            let name = image.name_of(spot.address).map_or_else(
                || format!("[{}]+{:#x}", image.short_name(), image.in_file(spot.address)),
                str::to_owned,
            );
            format!("{what:<28}  {name}\n")
        };
        self.found.spots.iter().map(line).collect()
    }

    /// Sets the probes.
    ///
    /// # Errors
    /// The right to is missing, or the kernel has none.
    pub(crate) fn attach(self) -> Result<AttachedProbes, String> {
        let mut probes =
            UprobeSet::new(self.pid).map_err(|error| format!("no uprobes in this kernel: {error}"))?;
        for (number, spot) in (0..).zip(&self.found.spots) {
            let image = &self.images[spot.image];
            let offset = image.file_offset(spot.address);
            let ends = match spot.role {
                FunctionRole::Turn => &[ProbePoint::Entry][..],
                _ => &[ProbePoint::Entry, ProbePoint::Return],
            };
            for point in ends {
                probes.probe(&image.path, offset, *point, number).map_err(|error| refused(spot, &error))?;
            }
        }
        let costs = perf::calibrate().map_err(|error| format!("probes on our own functions: {error}"))?;
        Ok(AttachedProbes { target: self, costs, probes })
    }
}

impl AttachedProbes {
    /// How many probes there are.
    pub(crate) fn count(&self) -> usize {
        self.probes.count()
    }

    /// What a call of a probed function costs the process more than without, in nanoseconds: entry and return.
    pub(crate) fn cost_of_call(&self) -> u64 {
        self.costs.entry_return + self.costs.return_entry
    }

    /// Gives every request that ends to `recorder`, until `enough` says so.
    ///
    /// # Errors
    /// The process has ended.
    pub(crate) fn follow(
        mut self,
        recorder: &mut Recorder,
        enough: &mut dyn FnMut() -> bool,
        naming: RequestNaming,
    ) -> Result<AttachOutcome, String> {
        let ProbeTarget { memory, images, found, .. } = &self.target;
        let stepped = found.spots.iter().map(|spot| images[spot.image].is_stepped(spot.address)).collect();
        let mut follower = ProcessFollower::new(
            &found.spots,
            stepped,
            found.engine.clone(),
            ProbeFloor::new(self.costs),
            memory,
        );
        let mut names = RequestReader { memory, layout: FieldLayout::default() };
        let mut outcome = AttachOutcome::default();
        let (mut hits, mut later) = (Vec::new(), Vec::new());
        self.probes.enable().map_err(|error| format!("the process can't be probed: {error}"))?;
        let mut looked = Instant::now();
        while !enough() {
            hits.append(&mut later);
            let lost = self.probes.read(&mut hits);
            if lost > 0 {
                outcome.lost += lost;
                hits.clear();
                follower.restart();
            }
            if hits.is_empty() {
                if looked.elapsed() > LOOK {
                    memory.word(found.spots[0].address).ok_or("the process has ended")?;
                    looked = Instant::now();
                }
                std::thread::sleep(if naming == RequestNaming::Read { SOON } else { CALM });
                continue;
            }
            hits.drain(..).for_each(|hit| follower.take(hit));
            let mut ended = std::mem::take(&mut follower.ended);
            if naming == RequestNaming::Read {
                let said = names.read(&follower, &ended);
                outcome.lost += self.probes.read(&mut later);
                names.tell(said, &mut follower, &mut ended, &later);
            }
            for (_, request, now) in ended {
                outcome.requests += 1;
                outcome.unnamed += u64::from(request.said.method.is_empty());
                recorder.finish(&mut request.trace(now), request.record());
            }
        }
        outcome.probing = follower.probing;
        // The kernel waits for all processors after each.
        eprintln!("weir: removing {} probes...", self.probes.count());
        drop(self.probes);
        Ok(outcome)
    }
}

/// Whether it is to be known what requests they are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestNaming {
    /// It is read while they are there.
    Read,
    Unneeded,
}

/// Reads what requests are.
struct RequestReader<'a> {
    memory: &'a ProcessMemory,
    layout: FieldLayout,
}

impl RequestReader<'_> {
    /// What is in the memory of requests that nothing is known of yet, and of those that have ended.
    fn read(
        &mut self,
        follower: &ProcessFollower<'_>,
        ended: &[(u64, ProbedRequest, u64)],
    ) -> Vec<(u64, RequestTexts)> {
        let unknown = follower.requests.iter().filter(|(_, request)| request.said.method.is_empty());
        let ended = ended.iter().map(|(key, ..)| *key).filter(|key| !follower.requests.contains_key(key));
        let keys: Vec<u64> = ended.chain(unknown.map(|(key, _)| *key)).take(MOST_READ).collect();
        keys.into_iter().filter_map(|key| Some((key, self.layout.read(key, self.memory)?))).collect()
    }

    /// Believes that of requests whose memory was theirs until it had been read, by what has happened in the meantime.
    fn tell(
        &self,
        said: Vec<(u64, RequestTexts)>,
        follower: &mut ProcessFollower<'_>,
        ended: &mut [(u64, ProbedRequest, u64)],
        later: &[ProbeHit],
    ) {
        let reused: HashSet<u64> = later.iter().filter_map(|hit| follower.ended_by(hit)).collect();
        for (key, said) in said {
            let reused = reused.contains(&key);
            let request = match follower.requests.get_mut(&key) {
                Some(request) => Some(request),
                None => {
                    ended.iter_mut().rev().find(|(ended, ..)| *ended == key).map(|(_, request, _)| request)
                }
            };
            let Some(request) = request.filter(|_| !reused) else { continue };
            let status = if said.status > 0 { said.status } else { request.said.status };
            if request.said.method.is_empty() && !said.path.is_empty() && !request.freed {
                request.said = said;
            }
            request.said.status = status;
        }
    }
}

/// A recorder that keeps nothing of its own accord.
pub(crate) fn recorder() -> Recorder {
    Recorder::new(0, RecorderSettings { level: weir_trace::TraceLevel::Full, ..RecorderSettings::default() })
}

/// A record as `--match` looks at it.
pub(crate) fn is_named(record: &RequestRecord) -> bool {
    !record.method.as_bytes().is_empty()
}

/// The worker that is meant by `pid`: itself, or the only one of a master.
///
/// # Errors
/// There is no such process, or several workers to choose from.
pub(crate) fn worker(pid: u32) -> Result<u32, String> {
    let title = |pid: u32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    if !title(pid).starts_with(b"nginx: master") {
        return Ok(pid);
    }
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.map_err(|error| format!("process {pid}: {error}"))?;
    let children = children.split_ascii_whitespace().filter_map(|child| child.parse().ok());
    let workers: Vec<u32> = children.filter(|&child| title(child).starts_with(b"nginx: worker")).collect();
    match workers[..] {
        [worker] => Ok(worker),
        [] => Err(format!("process {pid} is a master without workers")),
        _ => {
            let names: Vec<String> = workers.iter().map(u32::to_string).collect();
            Err(format!("process {pid} is the master; choose a worker: {}", names.join(", ")))
        }
    }
}

fn refused(spot: &ProbeSpot, error: &io::Error) -> String {
    let rights = match error.kind() {
        io::ErrorKind::PermissionDenied => RIGHTS,
        _ => "",
    };
    format!("no probe on {}: {error}{rights}", spot.name)
}

/// What is missing where the kernel says no.
const RIGHTS: &str = " (weir attach needs root, or CAP_PERFMON and CAP_SYS_PTRACE)";
/// Requests whose memory is read at a time: while it is, hits pile up, and a process that ends none would be read for ever.
const MOST_READ: usize = 4096;
/// How often hits are fetched.
const CALM: Duration = Duration::from_millis(2);
const SOON: Duration = Duration::from_micros(100);
/// How often it is looked whether a silent process is still there.
const LOOK: Duration = Duration::from_millis(500);

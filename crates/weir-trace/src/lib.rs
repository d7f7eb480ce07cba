//! Where time goes, for every request.
//!
//! A [`Site`] is a place that time is charged to: a phase, a handler, a filter, a step of the connection, in one
//! location. A request carries a [`Trace`]; at each boundary the engine stamps it, and the interval since the
//! stamp before is charged to a site, as run or as wait. So n boundaries cost n + 1 clock reads, the parts always
//! add up to the whole, and a request's tree can be drawn after the fact.
//!
//! At the end of a request its worker's [`Recorder`] adds the sums to the histograms of the sites, writes a
//! [`RequestRecord`], and keeps the tree when the request was slow, failed, sampled or asked for. Because every
//! request is recorded until its end, the first slow one is caught too.
//!
//! Nothing here reads a clock or does I/O. A tick is whatever the caller's clock counts; only the rendering
//! functions turn ticks into nanoseconds, by a function they are given ([`TicksToNanos`]).
//!
//! ```
//! use weir_trace::{ConnectionStep, Recorder, RecorderSettings, RequestRecord, Site, SiteKind, SiteTable, Trace};
//!
//! let sites = SiteTable::new();
//! let access = sites.intern(SiteKind::Phase(6), "/img", "");
//! let mut recorder = Recorder::new(0, RecorderSettings::default());
//! let mut trace = Trace::new();
//! recorder.begin(&mut trace, 1_000);
//! trace.mark(Site::step(ConnectionStep::Parse), 1_300); // 300 ticks for the parser
//! trace.enter(access, 1_310);
//! trace.suspend(1_400);
//! trace.resume(9_400); // 8,000 ticks of waiting, charged to the access phase
//! trace.leave(access, 9_500);
//! trace.end(9_510);
//! assert_eq!((trace.total_run(), trace.total_wait()), (510, 8_000));
//! recorder.finish(&mut trace, RequestRecord::default());
//! ```
#![forbid(unsafe_code)]

mod average;
mod batch;
pub mod event;
pub mod graft;
mod histogram;
mod keep_reason;
mod keep_rules;
mod kept_request;
mod kept_requests;
mod key_sketch;
mod live_counts;
mod live_off_core;
mod model;
pub mod now;
mod phases;
mod place;
pub mod protobuf;
mod record;
mod record_ring;
mod recorder;
mod recorder_settings;
pub mod render;
mod shape;
mod site;
mod stalls;
mod status_counts;
mod tape;
mod tape_pattern;
mod trace;
pub mod tree;
mod tree_arranged;
pub mod walk;
mod wanted_requests;

pub use average::{AverageTree, AverageWatch, TimeSpread};
pub use event::{EventKind, TraceEvent};
pub use histogram::Histogram;
pub use keep_reason::KeepReason;
pub use keep_rules::{KeepRule, SlowLimit};
pub use kept_request::{KeptRequest, TraceWatch};
pub use key_sketch::{KEY_PLACE_BYTES, KeyCounts, KeyDurations, KeySketch, KeyTable, KeyedRequest};
pub use live_counts::{RecorderReader, SiteCounts, SiteTally, SiteTotals};
pub use model::{CpuSample, LoopStall, RequestId, StallConnections, WaitKind};
pub use now::{FlightTicket, InFlight, LoopRun, NowReader, RouteBlame, WorkerNow};
pub use phases::PhaseMap;
pub use record::{Cause, InlineText, RequestRecord};
pub use recorder::Recorder;
pub use recorder_settings::{RecorderSettings, TraceLevel};
pub use render::TicksToNanos;
pub use site::{ConnectionStep, PHASES, Site, SiteInfo, SiteKind, SiteTable};
pub use stalls::StallLog;
pub use status_counts::StatusCounts;
pub use tape::EventTape;
pub use tape_pattern::TapePattern;
pub use trace::Trace;
pub use tree::{TraceTree, TreeNode};

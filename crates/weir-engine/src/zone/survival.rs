//! Zones that outlive their process: memory that the master holds, and what the process before has left in it.

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use weir_rt::zone_memory::{RegionImage, ZoneFile, ZoneRegion};

use crate::file::hash::hash;
use crate::log::{self, LogLevel};
use crate::zone::SharedZone;

/// Where this process has its zones, and where the one before had them.
struct SurvivingZones {
    file: Arc<ZoneFile>,
    before: Mutex<Option<Arc<ZoneFile>>>,
}

static ZONES: OnceLock<SurvivingZones> = OnceLock::new();

/// In a master: memory for the zones of a server process that it is about to start. All of them hash with the seeds that the
/// master has, so that each can check what the one before it has left.
///
/// # Errors
/// The errno of memfd_create(2) or ftruncate(2).
pub fn memory() -> io::Result<Arc<ZoneFile>> {
    hash(b"");
    ZoneFile::new("weir-zones")
}

/// From here on zones are made in `file`, and begin with what is in `before`, which a process that has ended had.
pub fn begin(file: Arc<ZoneFile>, before: Option<Arc<ZoneFile>>) {
    // A process has one server; a second one goes on with the first one's.
    let _ = ZONES.set(SurvivingZones { file, before: Mutex::new(before) });
}

/// All zones of the configuration are made, and nothing has changed them yet: what the process before has left is given up.
pub fn settle() {
    if let Some(zones) = ZONES.get() {
        zones.file.complete();
        zones.before.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Memory for `zone`, of which its directive says that it has `size` bytes; `None`: it is to be on the heap.
pub fn region(zone: &SharedZone, size: u64, length: u64) -> Option<ZoneRegion> {
    let made = ZONES.get()?.file.region(&name_of(zone), size, length);
    made.inspect_err(|error| report(zone, "what is in it is lost if this process is killed", error)).ok()
}

/// What the process before has left of a zone of that name and size.
pub fn image(zone: &SharedZone, size: u64) -> Option<RegionImage> {
    let before = ZONES.get()?.before.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
    let found = before.image(&name_of(zone), size);
    found.inspect_err(|error| report(zone, "what the process before had in it is lost", error)).ok()?
}

fn name_of(zone: &SharedZone) -> String {
    format!("{} {}", zone.owner(), zone.name)
}

fn report(zone: &SharedZone, what: &str, error: &io::Error) {
    let name = &zone.name;
    log::cycle(LogLevel::Warn, &format_args!("shared memory zone \"{name}\": {what}: {error}"));
}

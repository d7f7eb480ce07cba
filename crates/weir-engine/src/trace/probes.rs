//! What tracers from outside receive while one listens ([`weir_sys::probe`]): the beginnings and ends of requests, and
//! from a request's marks what each site took, so that it costs a request nothing while no probe is attached.

use weir_rt::clock;
use weir_sys::probe;
use weir_trace::{RequestId, RequestRecord, SiteTable, Trace};

/// A request has begun.
#[cold]
pub(crate) fn began(id: RequestId, path: &[u8]) {
    let (address, length) = text(path);
    probe::request_begin(number(id), address, length);
}

/// A request was recorded; `trace` has all its marks.
#[cold]
pub(crate) fn ended(record: &RequestRecord, trace: &Trace) {
    let ns = |ticks| clock::scale().ticks_to_ns(ticks);
    let sites = SiteTable::global();
    if probe::traces_sites() {
        for node in trace.tree().nodes().iter().skip(1) {
            let label = sites.info(node.site).label();
            let (name, length) = text(label.as_bytes());
            probe::site_done(number(record.id), name, length, ns(node.run), ns(node.wait));
        }
    }
    if probe::traces_done() {
        let route = if record.route.is_none() { "".into() } else { sites.info(record.route).location };
        let (location, length) = text(route.as_bytes());
        let status = record.status.into();
        probe::request_done(number(record.id), status, ns(record.run), ns(record.wait()), location, length);
    }
}

/// The lower half: a register holds no more.
fn number(id: RequestId) -> u64 {
    id.0 as u64
}

fn text(bytes: &[u8]) -> (u64, u64) {
    (bytes.as_ptr().addr() as u64, bytes.len() as u64)
}

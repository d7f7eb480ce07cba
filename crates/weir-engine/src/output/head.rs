//! A response's head: what the status implies, the header filters, framing, and on to the connection.

use weir_http::{KnownField, Method, Version};
use weir_trace::Site;

use crate::body::ResponseBody;
use crate::exchange::{Exchange, ReadyHead};
use crate::phase::Verdict;
use crate::progress::Progress;
use crate::transport::{Transport, heads, keepalive};

/// What has become of a head.
pub(super) enum HeadEnd {
    /// It is with the connection.
    Sent,
    /// A header filter wants another response.
    Instead(Verdict),
}

/// A header filter that waits.
pub struct FilterWait {
    /// Its place in the plan; there are fewer than 65,536.
    at: u16,
}

impl FilterWait {
    /// The place of the filter after it.
    pub(super) fn next(&self) -> usize {
        usize::from(self.at) + 1
    }
}

/// Runs the header filters from `at` on and hands the head to the connection. Its stamp is the caller's to take. One that
/// waits is left to [`finish_filter`].
pub(super) fn try_head(x: &mut Exchange, at: usize) -> Progress<HeadEnd, FilterWait> {
    let plan = x.plan.clone();
    let filters = if x.unfiltered { &[][..] } else { &plan.header_filters };
    // From here on filters have passed that the trace does not have yet.
    let mut passed = at;
    for (at, entry) in filters.iter().enumerate().skip(at) {
        if entry.is_plain {
            x.trace().at(entry.site);
        } else {
            x.trace().pass_all(&filters[passed..at]);
            x.trace().open(entry.site);
        }
        let verdict = entry.filter.filter(x);
        if entry.is_plain {
            if matches!(verdict, Verdict::Passed) {
                continue;
            }
            x.trace().pass_all(&filters[passed..at]);
            x.trace().open(entry.site);
        }
        passed = at + 1;
        match verdict {
            Verdict::Passed => x.trace().close_passed(entry.site),
            Verdict::Ok | Verdict::Declined => x.trace().close_before_next(entry.site),
            Verdict::Wait => return Progress::Wait(FilterWait { at: at as u16 }),
            instead => {
                x.trace().close(entry.site);
                return Progress::Done(HeadEnd::Instead(instead));
            }
        }
    }
    x.trace().pass_all(filters.get(passed..).unwrap_or_default());
    x.trace().nowhere();
    // The page for the 500 has passed the same filters: it goes out as it is.
    if x.refuse_unmatched() && x.response.status != 500 {
        x.response.clear();
        x.response.body = ResponseBody::Empty;
        return Progress::Done(HeadEnd::Instead(Verdict::Status(500)));
    }
    settle(x);
    hand_over(x);
    Progress::Done(HeadEnd::Sent)
}

/// Hands a head to the connection that is known before its filters have seen it: they have passed when it was stored. Its
/// stamp is the caller's to take. `false`: the head of `x.response` is not one of these.
#[inline]
pub(super) fn try_ready(x: &mut Exchange) -> bool {
    if !matches!(x.response.ready, ReadyHead::Known(_)) {
        return false;
    }
    x.trace().pass_all(&x.plan.header_filters);
    hand_over(x);
    true
}

#[inline]
fn hand_over(x: &mut Exchange) {
    x.response.header_sent = true;
    match &x.transport {
        Transport::H1(wire) => x.header_size = wire.compose(|out| heads::head(x, out)),
        Transport::Stream(stream) => x.header_size = stream.head(x),
        _ => {}
    }
}

/// What the client would get as the head of `x.response`: its header filters have passed, those that a rehearsal does not ask
/// go to `skipped`. Nothing is sent.
///
/// # Errors
/// A filter wants another response.
pub(crate) fn rehearse(x: &mut Exchange, mut skipped: impl FnMut(Site)) -> Result<Vec<u8>, Verdict> {
    prepare(x);
    let plan = x.plan.clone();
    let filters = if x.unfiltered { &[][..] } else { &plan.header_filters };
    for entry in filters {
        if !entry.filter.is_rehearsable() {
            skipped(entry.site);
            continue;
        }
        match entry.filter.filter(x) {
            Verdict::Passed | Verdict::Ok | Verdict::Declined => {}
            Verdict::Wait => skipped(entry.site),
            instead => return Err(instead),
        }
    }
    if x.refuse_unmatched() && x.response.status != 500 {
        x.response.clear();
        x.response.body = ResponseBody::Empty;
        return Err(Verdict::Status(500));
    }
    settle(x);
    let mut head = Vec::new();
    heads::head(x, &mut head);
    Ok(head)
}

/// Runs the header filters and hands the head to the connection, unless that was done before. `false`: a filter wants
/// another response, which the engine makes when the handler has ended ([`Exchange::instead`]).
pub async fn send_head(x: &mut Exchange) -> bool {
    if x.response.header_sent {
        return true;
    }
    prepare(x);
    let mut from = 0;
    loop {
        match try_head(x, from) {
            Progress::Done(HeadEnd::Sent) => {
                x.trace().mark(Site::HEADER);
                return true;
            }
            Progress::Done(HeadEnd::Instead(verdict)) => {
                x.instead = Some(verdict);
                return false;
            }
            Progress::Wait(filter) => {
                from = filter.next();
                if let Some(verdict) = finish_filter(x, filter).await {
                    x.instead = Some(verdict);
                    return false;
                }
            }
        }
    }
}

/// Before the filters: what the status and method imply.
pub(super) fn prepare(x: &mut Exchange) {
    if x.keep_alive && !x.is_subrequest() && !keepalive::lasts(x) {
        x.keep_alive = false;
    }
    if x.response.err_status != 0 {
        x.response.status = x.response.err_status;
        x.response.reason = None;
    }
    if x.response.status == 0 {
        x.response.status = 200;
    }
    x.response.header_only = wants_head_only(x);
    if matches!(x.response.status, 204 | 304) || x.response.status < 200 {
        x.response.header_only = true;
        if tells_length(x) {
            return;
        }
        x.response.content_length = None;
        if x.response.status == 204 {
            x.response.content_type = None;
        }
    }
}

/// No body is wanted, whatever the status.
fn wants_head_only(x: &Exchange) -> bool {
    let head_only = matches!(&x.transport, Transport::Capture(capture) if capture.head_only);
    head_only || x.request.head.method == Method::Head
}

/// A server's own head is passed on as it is, also where it has no body: nginx takes type and length only out of what it
/// says itself, and out of what it says in HTTP/2.
fn tells_length(x: &Exchange) -> bool {
    x.response.reason.is_some() && x.response.status >= 200 && x.transport.h1().is_some()
}

/// After the filters: framing, and no date of a file that is an error's page.
fn settle(x: &mut Exchange) {
    if !matches!(x.response.status, 200 | 206 | 304) {
        x.response.last_modified = None;
    }
    let bodiless = matches!(x.response.status, 204 | 304) || x.response.status < 200;
    if bodiless || x.response.unframed {
        x.response.header_only = true;
        if !tells_length(x) {
            x.response.content_length = None;
            // A filter may have set it since `prepare`, or made the status 204.
            if x.response.status == 204 {
                x.response.content_type = None;
            }
        }
        return;
    }
    // A filter may have made a 204 or 304 a status with a body since `prepare`: its end must be sent.
    x.response.header_only = wants_head_only(x);
    let expected = x.response.expect_trailers || !x.response.trailers.is_empty();
    if (x.response.content_length.is_some() && !expected)
        || x.request.head.method == Method::Head
        || x.is_subrequest()
    {
        return;
    }
    let eleven = x.request.head.version >= Version::V11;
    if eleven && x.plan.core.chunked_transfer_encoding {
        x.response.chunked = x.transport.h1().is_some();
        if x.response.chunked {
            x.response.content_length = None;
            x.response.remove(KnownField::ContentLength);
        }
    } else if x.response.content_length.is_none() {
        // Without length and chunks only the end of the connection marks the end of the body.
        x.keep_alive = false;
    }
}

/// Waits for the header filter at which [`try_head`] stopped; its verdict when it wants another response.
pub(super) async fn finish_filter(x: &mut Exchange, filter: FilterWait) -> Option<Verdict> {
    let plan = x.plan.clone();
    let shared = x.shared.clone();
    let entry = plan.header_filters.get(usize::from(filter.at))?;
    let verdict = shared.pending(entry.filter.wait(x)).await;
    x.trace().close(entry.site);
    match verdict {
        Verdict::Ok | Verdict::Declined | Verdict::Passed => None,
        instead => Some(instead),
    }
}

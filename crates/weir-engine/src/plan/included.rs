//! Subrequests as a body filter asks for them, and where their responses gather.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use weir_http::Method;

use crate::body::BodyChain;
use crate::exchange::Exchange;

/// A subrequest that a body filter asks for ([`FilterStep::Include`](crate::filter::FilterStep::Include)): its response
/// is after what the filter has given so far and before what it gives next.
#[derive(Default)]
pub struct IncludedRequest {
    /// The path, taken as normalised.
    pub uri: Vec<u8>,
    /// The subrequest's arguments, without `?`.
    pub args: Vec<u8>,
    /// The method; GET where nothing is said.
    pub method: Option<Method>,
    /// The body; that of the request, if it was read, where nothing is said.
    pub body: Option<Vec<u8>>,
    /// True when the filter waits for the subrequest's response, and sees what it did to variables.
    pub wait: bool,
    /// What is said instead of an error, or of a response without a body.
    pub stub: Option<BodyChain>,
    /// Where the response goes instead of the output; the filter waits for it. `None`: the output.
    pub into: Option<PendingCapture>,
    /// The request's own location responds once more, with all that led to it left out, instead of what `uri` leads to.
    /// Called with the subrequest before it runs.
    pub again: Option<PrepareChild>,
    /// Called with `true` when the subrequest could not be made.
    pub refused: Rc<Cell<bool>>,
}

/// What is done with a subrequest before it runs.
pub type PrepareChild = Box<dyn FnOnce(&mut Exchange)>;

/// Where the response of a subrequest will be.
pub type PendingCapture = Rc<RefCell<Option<CapturedResponse>>>;

/// The response to a subrequest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapturedResponse {
    /// The status; 500 also for a subrequest that was not made, 444 and the like where there was no response.
    pub status: u16,
    /// The fields of the head, in order, names as written.
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
    /// The bytes of the body.
    pub body: Vec<u8>,
    /// True when the body ends too early: its source failed or it exceeds the limit; or the status is one that a page
    /// was not made for ([`SubrequestOptions::bare`](crate::subrequest::SubrequestOptions::bare)).
    pub truncated: bool,
}

/// Where the response of a subrequest gathers.
pub struct ResponseCapture {
    pub(crate) bytes: Vec<u8>,
    pub(crate) head_only: bool,
    pub(crate) limit: Option<u64>,
    /// The limit is that of the subrequest's own location (`subrequest_output_buffer_size`).
    pub(crate) limited: bool,
    pub(crate) bare: bool,
    /// No page was made for a status.
    pub(crate) pageless: bool,
}

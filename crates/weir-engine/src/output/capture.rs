//! The response of a subrequest, which gathers in memory.

use crate::body::{BodyBuf, BodyChain};
use crate::error::{EngineError, EngineErrorKind, FaultSide};
use crate::exchange::Exchange;
use crate::plan::included::ResponseCapture;
use crate::transport::Transport;

/// Takes a part of the body of a subrequest's response.
///
/// # Errors
/// A file can't be read, or the body exceeds the limit.
pub(crate) async fn capture(x: &mut Exchange, chain: &mut BodyChain) -> Result<(), EngineError> {
    check(x, chain.len())?;
    while let Some(buf) = chain.pop() {
        let bytes = match buf {
            BodyBuf::File { file, offset, len } => x.read_file(&file, offset, len as usize).await?,
            BodyBuf::Bytes(bytes) => bytes,
            other => other.memory().unwrap_or_default().to_vec(),
        };
        let Transport::Capture(capture) = &mut x.transport else { return Ok(()) };
        if capture.bytes.is_empty() {
            capture.bytes = bytes;
        } else {
            capture.bytes.extend_from_slice(&bytes);
        }
    }
    Ok(())
}

/// The whole must not exceed the limit, which is nginx's for subrequests in memory.
fn check(x: &Exchange, more: u64) -> Result<(), EngineError> {
    let Transport::Capture(ResponseCapture { bytes, limit, limited, .. }) = &x.transport else {
        return Ok(());
    };
    let own = limited.then_some(x.plan.core.subrequest_output_buffer_size);
    let Some(limit) = own.or(*limit) else { return Ok(()) };
    let size = bytes.len() as u64 + more;
    if size <= limit {
        return Ok(());
    }
    x.log_error(&format_args!("too big subrequest response: {size}"));
    Err(EngineError { kind: EngineErrorKind::TooLarge, side: FaultSide::Server, errno: None })
}

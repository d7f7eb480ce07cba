//! `include`: another page in the place of the command, in a variable, or in place of nothing.

use std::cell::Cell;
use std::rc::Rc;

use weir_engine::Exchange;
use weir_engine::body::{BodyBuf, BodyChain};
use weir_engine::subrequest::{IncludedRequest, PendingCapture};
use weir_http::uri;

use super::evaluate::{self, CommandError};
use super::state::SsiState;

/// The command's parameters, as written.
pub(super) struct CommandParams {
    pub(super) uri: Option<Vec<u8>>,
    pub(super) file: Option<Vec<u8>>,
    pub(super) wait: Option<Vec<u8>>,
    pub(super) set: Option<Vec<u8>>,
    pub(super) stub: Option<Vec<u8>>,
}

/// An include under way.
pub(super) struct PendingInclude {
    refused: Rc<Cell<bool>>,
    set: Option<(Vec<u8>, PendingCapture)>,
}

/// The subrequest could not be made.
pub(super) struct RefusedInclude;

impl PendingInclude {
    /// It is known what became of it: a variable gets its value.
    pub(super) fn finish(self, state: &SsiState) -> Result<(), RefusedInclude> {
        if self.refused.get() {
            return Err(RefusedInclude);
        }
        if let Some((name, into)) = self.set
            && let Some(captured) = into.take()
            && captured.status < 300
            && !captured.truncated
        {
            state.set(&name, captured.body);
        }
        Ok(())
    }
}

/// Makes a subrequest of the command.
///
/// # Errors
/// What is wrong with the command, in nginx's words.
pub(super) fn prepare(
    x: &mut Exchange,
    state: &SsiState,
    params: CommandParams,
) -> Result<(IncludedRequest, PendingInclude), CommandError> {
    let CommandParams { uri, file, wait, set, stub } = params;
    let wait = check(&uri, &file, wait, set.is_some() && stub.is_some())?;
    let path = evaluate::path(x, state, &uri.or(file).unwrap_or_default())?;
    let Ok(target) = uri::internal_target(&path) else {
        return Err([b"unsafe URI \"", &path[..], b"\" was detected"].concat());
    };
    let stub = match stub {
        None => None,
        Some(name) => {
            let block = state.block(&name);
            let block =
                block.ok_or_else(|| [b"\"stub\"=\"", &name[..], b"\" for \"include\" not found"].concat())?;
            let mut chain = BodyChain::default();
            chain.push(BodyBuf::Bytes(block));
            Some(chain)
        }
    };
    let set = set.map(|name| (name, PendingCapture::default()));
    if let Some((name, _)) = &set {
        state.declare(name);
    }
    let include = IncludedRequest {
        uri: target.path.to_vec(),
        args: target.args.unwrap_or_default().to_vec(),
        wait,
        stub,
        into: set.as_ref().map(|(_, into)| into.clone()),
        ..IncludedRequest::default()
    };
    let pending = PendingInclude { refused: include.refused.clone(), set };
    Ok((include, pending))
}

/// Checks which parameters may be combined; whether the page waits for what is included.
fn check(
    uri: &Option<Vec<u8>>,
    file: &Option<Vec<u8>>,
    wait: Option<Vec<u8>>,
    set_and_stub: bool,
) -> Result<bool, CommandError> {
    match (uri, file) {
        (Some(uri), Some(file)) => {
            return Err(
                [b"inclusion may be either virtual=\"", &uri[..], b"\" or file=\"", file, b"\""].concat()
            );
        }
        (None, None) => return Err(b"no parameter in \"include\" SSI command".to_vec()),
        _ => {}
    }
    if set_and_stub {
        return Err(b"\"set\" and \"stub\" cannot be used together in \"include\" SSI command".to_vec());
    }
    match (wait, file) {
        (Some(_), Some(file)) => Err([b"\"wait\" cannot be used with file=\"", &file[..], b"\""].concat()),
        (Some(wait), None) if wait.eq_ignore_ascii_case(b"yes") => Ok(true),
        (Some(wait), None) if wait.eq_ignore_ascii_case(b"no") => Ok(false),
        (Some(wait), None) => Err([b"invalid value \"", &wait[..], b"\" in the \"wait\" parameter"].concat()),
        // A file is waited for.
        (None, file) => Ok(file.is_some()),
    }
}

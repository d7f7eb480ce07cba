//! `header_filter_by_lua` and `body_filter_by_lua`.

use std::rc::Rc;

use weir_engine::body::{BodyBuf, BodyChain};
use weir_engine::error::{EngineError, EngineErrorKind, FaultSide};
use weir_engine::filter::{BodyFilter, FilterSlot, FilterStep, HeaderFilter};
use weir_engine::log::LogLevel;
use weir_engine::{Exchange, Verdict};
use weir_trace::Site;

use crate::api::{FilterArg, FilterExit};
use crate::hooks::phases::ScriptHome;
use crate::run::settings::ShownUri;
use crate::vm::chunk::{ScriptChunk, ScriptSource};
use crate::vm::phase::ScriptPhase;

/// Whether a header filter's script has failed for the request.
#[derive(Default)]
struct HeaderScriptFailed(bool);

/// The status by which a header filter's script has ended the response before this one, which is made because of it.
#[derive(Default)]
struct EndedStatus(u16);

/// A header filter.
pub(crate) struct HeaderScript {
    home: ScriptHome,
    chunk: ScriptChunk,
}

impl HeaderScript {
    pub(crate) fn new(home: &ScriptHome, source: &ScriptSource) -> HeaderScript {
        HeaderScript { home: home.clone(), chunk: ScriptChunk::new(source.clone()) }
    }
}

impl HeaderFilter for HeaderScript {
    fn filter(&self, x: &mut Exchange) -> Verdict {
        x.log(LogLevel::Debug, &format_args!("lua header filter for user lua code, uri \"{}\"", ShownUri(x)));
        if x.state_if::<FilterExit>().is_some() {
            x.state::<FilterExit>().0 = None;
        }
        if x.own_lasting_if::<HeaderScriptFailed>().is_some_and(|failed| failed.0) {
            // The page that says so is not the script's.
            return Verdict::Ok;
        }
        if let Err(message) =
            self.home.vm(x).and_then(|vm| vm.run_for(&self.chunk, ScriptPhase::HeaderFilter, x))
        {
            x.log(LogLevel::Error, &message);
            x.own_lasting::<HeaderScriptFailed>().0 = true;
            return Verdict::Status(500);
        }
        match x.state_if::<FilterExit>().and_then(|exit| exit.0) {
            Some(-1) => ended(x, 500),
            Some(status) if status >= 200 => ended(x, u16::try_from(status).unwrap_or(500)),
            _ => Verdict::Ok,
        }
    }
}

/// The script ends the response with `status`, which asks for another response; when it does so again for that one, it
/// is sent.
fn ended(x: &mut Exchange, status: u16) -> Verdict {
    let before = std::mem::replace(&mut x.own_lasting::<EndedStatus>().0, status);
    if before == status { Verdict::Ok } else { Verdict::Status(status) }
}

/// Puts a body filter into each response.
pub(crate) struct BodyScript {
    home: ScriptHome,
    chunk: Rc<ScriptChunk>,
    site: Site,
}

impl BodyScript {
    pub(crate) fn new(home: &ScriptHome, source: &ScriptSource, site: Site) -> BodyScript {
        BodyScript { home: home.clone(), chunk: Rc::new(ScriptChunk::new(source.clone())), site }
    }
}

impl HeaderFilter for BodyScript {
    fn filter(&self, x: &mut Exchange) -> Verdict {
        if !x.response.header_only {
            if std::mem::take(&mut x.response.open_length) {
                x.response.content_length = None;
            }
            let end_apart = x.response.end_apart;
            let filter =
                BodyPieces { home: self.home.clone(), chunk: self.chunk.clone(), end_apart, ended: false };
            x.body_filter(FilterSlot::Aux, self.site, filter);
        }
        Verdict::Ok
    }
}

/// The filter of one response.
struct BodyPieces {
    home: ScriptHome,
    chunk: Rc<ScriptChunk>,
    /// [`Response::end_apart`](weir_engine::exchange::Response::end_apart)
    end_apart: bool,
    /// The script has set `ngx.arg[2]`: what comes after is dropped.
    ended: bool,
}

impl BodyPieces {
    fn run(&mut self, x: &mut Exchange, bytes: Vec<u8>, last: bool) -> Result<(Vec<u8>, bool), EngineError> {
        *x.state::<FilterArg>() = FilterArg { bytes, last };
        if let Err(message) =
            self.home.vm(x).and_then(|vm| vm.run_for(&self.chunk, ScriptPhase::BodyFilter, x))
        {
            x.log(LogLevel::Error, &message);
            return Err(EngineError { kind: EngineErrorKind::Script, side: FaultSide::Server, errno: None });
        }
        let arg = std::mem::take(x.state::<FilterArg>());
        Ok((arg.bytes, arg.last))
    }

    /// Has the script change a piece.
    fn piece(
        &mut self,
        x: &mut Exchange,
        bytes: Vec<u8>,
        last: bool,
        output: &mut BodyChain,
    ) -> Result<(), EngineError> {
        let (bytes, ends) = self.run(x, bytes, last)?;
        if !bytes.is_empty() {
            output.push(BodyBuf::Bytes(bytes));
        }
        self.ended = ends;
        output.last |= ends;
        Ok(())
    }
}

impl BodyFilter for BodyPieces {
    fn step(
        &mut self,
        x: &mut Exchange,
        input: &mut BodyChain,
        output: &mut BodyChain,
    ) -> Result<FilterStep, EngineError> {
        let last = input.last;
        output.flush |= input.flush;
        let mut bytes = Vec::new();
        while let Some(buf) = input.pop() {
            match buf {
                BodyBuf::Bytes(more) if bytes.is_empty() => bytes = more,
                buf => bytes.extend_from_slice(buf.memory().unwrap_or_default()),
            }
        }
        if self.ended {
            return Ok(FilterStep::More);
        }
        if bytes.is_empty() && !last {
            return Ok(FilterStep::More);
        }
        let comes_apart = self.end_apart && last && !bytes.is_empty();
        self.piece(x, bytes, last && !comes_apart, output)?;
        if comes_apart && !self.ended {
            self.piece(x, Vec::new(), true, output)?;
        }
        output.last |= last;
        Ok(FilterStep::More)
    }
}

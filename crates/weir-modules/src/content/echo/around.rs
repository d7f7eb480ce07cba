//! `echo_before_body`, `echo_after_body`: text before and after the body of a response.

use std::rc::Rc;

use weir_engine::body::{BodyBuf, BodyChain};
use weir_engine::error::EngineError;
use weir_engine::filter::FilterSlot;
use weir_engine::filter::{BodyFilter, FilterStep, HeaderFilter};
use weir_engine::{Exchange, Verdict};
use weir_http::KnownField;
use weir_trace::Site;

use super::EchoLine;

pub(super) struct EchoAround {
    body: Site,
    before: Rc<[EchoLine]>,
    after: Rc<[EchoLine]>,
}

impl EchoAround {
    pub(super) fn new(body: Site, before: &[EchoLine], after: &[EchoLine]) -> EchoAround {
        EchoAround { body, before: before.into(), after: after.into() }
    }
}

impl HeaderFilter for EchoAround {
    fn is_rehearsable(&self) -> bool {
        true
    }

    fn filter(&self, x: &mut Exchange) -> Verdict {
        let response = &mut x.response;
        response.content_length = None;
        response.allow_ranges = false;
        response.remove(KnownField::AcceptRanges);
        let (before, after) = (Some(self.before.clone()), self.after.clone());
        x.body_filter(FilterSlot::Aux, self.body, EchoAroundBody { before, after });
        Verdict::Ok
    }
}

struct EchoAroundBody {
    /// What was not said yet.
    before: Option<Rc<[EchoLine]>>,
    after: Rc<[EchoLine]>,
}

impl BodyFilter for EchoAroundBody {
    fn step(
        &mut self,
        x: &mut Exchange,
        input: &mut BodyChain,
        output: &mut BodyChain,
    ) -> Result<FilterStep, EngineError> {
        if let Some(lines) = self.before.take() {
            output.push(BodyBuf::Bytes(said(x, &lines)));
        }
        let last = std::mem::take(&mut input.last);
        output.append(input);
        if last {
            output.push(BodyBuf::Bytes(said(x, &self.after)));
            output.last = true;
        }
        Ok(FilterStep::More)
    }

    fn in_memory(&self) -> bool {
        false
    }
}

fn said(x: &mut Exchange, lines: &[EchoLine]) -> Vec<u8> {
    let mut said = Vec::new();
    lines.iter().for_each(|line| line.say(x, &mut said));
    said
}

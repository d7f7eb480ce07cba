//! Which requests of a plan come to limits, and clients that are there for them.

use crate::draw::Draw;
use crate::limits::{LIMITED_NUMBERS, LimitPlan};
use crate::plan::{ClientPlan, Plan, RequestPlan, Target};

impl Plan {
    /// Limits, which requests come to them, and clients that are there for them.
    pub(crate) fn draw_limits(&mut self, draw: &mut Draw, span: u64) {
        if draw.chance(1, 2) {
            return;
        }
        self.limits = Some(LimitPlan::drawn(draw));
        let first = self.clients.iter_mut().flat_map(|client| &mut client.requests);
        let streams = self.http2.clients.iter_mut().flat_map(|client| &mut client.requests);
        let streams = streams.filter(|stream| !stream.is_head).map(|stream| &mut stream.request);
        for request in first.chain(streams) {
            if matches!(request.target, Target::Return | Target::Lua(_)) && draw.chance(1, 2) {
                request.target = Target::limited(draw);
            }
        }
        let (mut number, begin) = (LIMITED_NUMBERS, draw.below(span));
        for _ in 0..draw.below(10) {
            let client = ClientPlan::limited(draw, span, &mut number);
            // Most of them come together.
            let at = if draw.chance(3, 4) { begin + draw.below(100_000) } else { client.at };
            self.clients.push(ClientPlan { at, ..client });
        }
    }
}

impl ClientPlan {
    /// One that asks for what has limits alone.
    fn limited(draw: &mut Draw, span: u64, number: &mut u64) -> ClientPlan {
        let requests =
            (0..*draw.one_of(&[1, 5, 20])).map(|at| RequestPlan::limited(draw, at > 0, number)).collect();
        ClientPlan { requests, ..ClientPlan::drawn(draw, span, &mut 0) }
    }
}

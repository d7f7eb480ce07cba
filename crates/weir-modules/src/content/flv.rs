//! `flv`: Flash video from a byte offset on, the argument `start`, after a head of its own (nginx's `ngx_http_flv_module`).

use std::rc::Rc;

use weir_conf::names::{LOCATION, NONE};
use weir_conf::{Directive, parse_offset};
use weir_engine::body::{BodyBuf, BodyChain, ResponseBody};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::open_file::OpenFile;
use weir_engine::plan::PlanBuilder;
use weir_engine::rehearsed::HandlerRehearsal;
use weir_engine::{Exchange, Handler, Module, Verdict};
use weir_http::cookie;

use crate::content::static_files;

/// The module.
pub struct Flv;

impl Module for Flv {
    const NAME: &'static str = "flv";
    type Conf = FlvConf;
    const DIRECTIVES: &'static [Directive<FlvConf>] =
        &[Directive::<FlvConf>::new("flv", LOCATION, NONE, |conf, line| {
            line.ext::<ConfRegistry>().claim_content(Self::NAME);
            conf.on = true;
            Ok(())
        })
        .syntax("flv")
        .doc("Serves Flash video from the byte that the argument `start` says, after a head of 13 bytes.")];

    fn install(conf: &FlvConf, plan: &mut PlanBuilder<'_>) {
        if conf.on {
            plan.content(Self::NAME, ServeFlv);
        }
    }
}

/// The setting of one block; it is not inherited.
#[derive(Default)]
pub struct FlvConf {
    on: bool,
}

/// What a file begins with: version 1, sound and pictures, the size of this head, and that no tag is before.
const HEAD: &[u8] = b"FLV\x01\x05\0\0\0\x09\0\0\0\0";

struct ServeFlv;

impl Handler for ServeFlv {
    fn rehearsal(&self, _x: &mut Exchange) -> HandlerRehearsal {
        HandlerRehearsal::Ask
    }

    fn handle(&self, x: &mut Exchange) -> Verdict {
        match static_files::wanted(x) {
            Ok(file) => respond(x, file),
            Err(verdict) => verdict,
        }
    }
}

fn respond(x: &mut Exchange, file: Rc<OpenFile>) -> Verdict {
    let offset = start(x.args(), file.size());
    if offset == 0 {
        return static_files::respond(x, file);
    }
    static_files::describe(x, &file);
    x.response.allow_ranges = true;
    let mut body = BodyChain::whole(BodyBuf::Static(HEAD));
    body.push(BodyBuf::File { offset, len: file.size() - offset, file });
    x.response.content_length = Some(body.len());
    x.respond(ResponseBody::Chain(body))
}

/// The argument `start`; 0, the whole file, where it is absent, no number, or not inside of the file.
fn start(args: &[u8], size: u64) -> u64 {
    let value = cookie::arg(args, b"start").filter(|value| value.iter().all(u8::is_ascii_digit));
    value.and_then(parse_offset).filter(|start| *start < size).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_a_number_of_bytes_inside_of_the_file() {
        for (args, expected) in [
            ("start=5", 5),
            ("a=b&start=9", 9),
            ("START=7", 7),
            ("start=10", 0),
            ("start=11", 0),
            ("start=", 0),
            ("start=1k", 0),
            ("start=-1", 0),
            ("start=99999999999999999999", 0),
            ("", 0),
        ] {
            assert_eq!(start(args.as_bytes(), 10), expected, "{args}");
        }
    }
}

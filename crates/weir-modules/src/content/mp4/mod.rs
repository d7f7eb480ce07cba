//! `mp4`: parts of MP4 files by time, the arguments `start` and `end` (nginx's `ngx_http_mp4_module`).
//!
//! A clip is a new index, cut from the file's own and sent first, and a part of the file's data, which is sent as any
//! file is. The index is read and cut on a thread of the pool: it may have megabytes. It is a parser of files that
//! strangers may have made: each place is looked up within bounds, and memory is limited by `mp4_max_buffer_size`.

mod atom;
pub(crate) mod clip;
mod error;
mod movie;
#[cfg(test)]
mod tests;
mod track;

pub(crate) use clip::{Mp4Buffers, Mp4Clip, Mp4Source, clip};
pub(crate) use movie::ClipSpan;

use std::io;
use std::rc::Rc;

use weir_conf::Directive;
use weir_conf::names::{ANY, FLAG, LOCATION, NONE, ONE};
use weir_engine::body::{BodyBuf, BodyChain, ResponseBody};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::log::LogLevel;
use weir_engine::open_file::{FoundPath, OpenFile};
use weir_engine::plan::PlanBuilder;
use weir_engine::rehearsed::HandlerRehearsal;
use weir_engine::{Exchange, Handler, LocalFuture, Module, Verdict, file, inherit};
use weir_http::cookie;
use weir_rt::file::FileHandle;
use weir_trace::WaitKind;

use crate::content::static_files;

/// The module.
pub struct Mp4;

impl Module for Mp4 {
    const NAME: &'static str = "mp4";
    type Conf = Mp4Conf;
    const DIRECTIVES: &'static [Directive<Mp4Conf>] = &[
        Mp4Row::new("mp4", LOCATION, NONE, |conf, line| {
            line.ext::<ConfRegistry>().claim_content(Self::NAME);
            conf.on = true;
            Ok(())
        })
        .syntax("mp4")
        .doc("Serves the part of an MP4 file that the arguments `start` and `end` say, in seconds.")
        .example("location ~ \\.mp4$ {\n    mp4;\n    mp4_max_buffer_size 20m;\n}"),
        Mp4Row::new("mp4_buffer_size", ANY, ONE, |conf, line| line.size(&mut conf.buffer_size))
            .syntax("mp4_buffer_size size")
            .default("512k")
            .doc("Initial size of the buffer for the metadata of a file."),
        Mp4Row::new("mp4_max_buffer_size", ANY, ONE, |conf, line| line.size(&mut conf.max_buffer_size))
            .syntax("mp4_max_buffer_size size")
            .default("10m")
            .doc(
                "Maximum size of the metadata of a file; a request for a part of a file with more gets 500.",
            ),
        Mp4Row::new("mp4_start_key_frame", ANY, FLAG, |conf, line| line.flag(&mut conf.start_key_frame))
            .syntax("mp4_start_key_frame on | off")
            .default("off")
            .doc("Begins each part with a key frame; an edit list hides the frames before `start`."),
    ];

    fn inherit(conf: &mut Mp4Conf, parent: &Mp4Conf) {
        inherit!(conf, parent, buffer_size, max_buffer_size, start_key_frame);
    }

    fn install(conf: &Mp4Conf, plan: &mut PlanBuilder<'_>) {
        if conf.on {
            let buffers = Mp4Buffers {
                size: conf.buffer_size.unwrap_or(512 * 1024),
                max: conf.max_buffer_size.unwrap_or(10 * 1024 * 1024),
            };
            let key_frame = conf.start_key_frame == Some(true);
            plan.content(Self::NAME, ServeMp4 { buffers, key_frame });
        }
    }
}

// Gives the closures of the table the type of their argument.
type Mp4Row = Directive<Mp4Conf>;

/// The settings of one block.
#[derive(Default)]
pub struct Mp4Conf {
    /// `mp4`; it is not inherited.
    on: bool,
    buffer_size: Option<u64>,
    max_buffer_size: Option<u64>,
    start_key_frame: Option<bool>,
}

struct ServeMp4 {
    buffers: Mp4Buffers,
    key_frame: bool,
}

impl Handler for ServeMp4 {
    fn rehearsal(&self, _x: &mut Exchange) -> HandlerRehearsal {
        HandlerRehearsal::Ask
    }

    fn handle(&self, x: &mut Exchange) -> Verdict {
        match static_files::wanted(x) {
            Ok(_) if self.span(x.args()).is_some() => Verdict::Wait,
            Ok(file) => static_files::respond(x, file),
            Err(verdict) => verdict,
        }
    }

    fn wait<'x>(&'x self, x: &'x mut Exchange) -> LocalFuture<'x, Verdict> {
        Box::pin(self.cut(x))
    }
}

impl ServeMp4 {
    /// What the arguments ask for; `None` is the whole file.
    fn span(&self, args: &[u8]) -> Option<ClipSpan> {
        let start = cookie::arg(args, b"start").and_then(milliseconds);
        let end = cookie::arg(args, b"end").and_then(milliseconds).filter(|end| *end > 0);
        let begin = start.or(end.map(|_| 0))?;
        let length = end.map_or(0, |end| end.saturating_sub(begin));
        Some(ClipSpan { start: begin, length, key_frame: self.key_frame })
    }

    /// Cuts the file, and responds with the clip.
    async fn cut(&self, x: &mut Exchange) -> Verdict {
        let file = match file::lookup_uri(x) {
            Ok(FoundPath::File(file)) => file,
            // It has been replaced since `handle` saw it.
            Ok(_) => return Verdict::Status(404),
            Err(status) => return Verdict::Status(status),
        };
        let Some(span) = self.span(x.args()) else { return static_files::respond(x, file) };
        let (size, buffers) = (file.size(), self.buffers);
        // The job's own result is inside of the pool's.
        let job = move |file: &FileHandle| Ok(clip(file, size, span, buffers));
        let job = weir_rt::file::on_pool(&file.handle(), job);
        let cut = x.waiting_for(WaitKind::ThreadPool, job).await;
        let error = match cut {
            Ok(Ok(Some(clip))) => return respond(x, file, clip),
            Ok(Ok(None)) => return static_files::respond(x, file),
            Ok(Err(error)) => error,
            Err(error) => error::Mp4Error::Read(error),
        };
        let level = if error.is_of_system() { LogLevel::Crit } else { LogLevel::Error };
        let path = match file::map_uri(x) {
            Ok(path) => String::from_utf8_lossy(path.bytes(&x.arena)).into_owned(),
            Err(status) => return Verdict::Status(status),
        };
        x.log(level, &error.about(&path));
        Verdict::Status(500)
    }
}

impl Mp4Source for FileHandle {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.pread_full(buf, offset)
    }
}

/// Responds with a clip of `file`.
fn respond(x: &mut Exchange, file: Rc<OpenFile>, clip: Mp4Clip) -> Verdict {
    let Mp4Clip { head, offset, len } = clip;
    static_files::describe(x, &file);
    x.response.allow_ranges = true;
    // A clip is made of pieces: several ranges of it would have to be collected first.
    x.response.single_range = true;
    let mut body = BodyChain::whole(head.into());
    body.push(BodyBuf::File { offset, len, file });
    x.response.content_length = Some(body.len());
    x.respond(ResponseBody::Chain(body))
}

/// A number of seconds with any number of digits after the point, of which three count; nothing is no number.
fn milliseconds(text: &[u8]) -> Option<u64> {
    let mut parts = text.split(|byte| *byte == b'.');
    let (whole, fraction) = (parts.next()?, parts.next().unwrap_or_default());
    if text.is_empty() || parts.next().is_some() {
        return None;
    }
    if !fraction.iter().chain(whole).all(u8::is_ascii_digit) {
        return None;
    }
    let padded = fraction.iter().chain(b"000").take(3);
    let number = whole
        .iter()
        .chain(padded)
        .try_fold(0_i64, |number, digit| number.checked_mul(10)?.checked_add(i64::from(digit - b'0')))?;
    u64::try_from(number).ok()
}

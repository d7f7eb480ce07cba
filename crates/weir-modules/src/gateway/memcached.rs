//! `memcached_pass`: responds with values of a memcached server (nginx's `ngx_http_memcached_module`).
//! `$memcached_key` is the key; another program stores the values.

use std::sync::Arc;

use weir_conf::names::{ANY, LOCATION, LOCATION_IF, MORE, ONE};
use weir_conf::{Directive, LineCx, Result};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::log::LogLevel;
use weir_engine::plan::PlanBuilder;
use weir_engine::variable::VarIndex;
use weir_engine::worker::UpstreamCloseProtocol;
use weir_engine::{Exchange, Module, Span, UnnamedBlock, Verdict, inherit};
use weir_http::memcached::{self, BadTrailer, MemcachedValue};
use weir_http::{Field, KnownField, Method};
use weir_upstream::protocol::{
    BodyDecode, BodyDecoder, HeadProgress, IncomingHead, OutgoingRequest, UpstreamProtocol,
};
use weir_upstream::{FailureReason, UpstreamFamily, UpstreamSettings};

use crate::gateway::cgi::target::{CgiPass, pass_requests};
use crate::gateway::family_rows::family_row;

/// The module `memcached`.
pub struct Memcached;

impl Module for Memcached {
    const NAME: &'static str = "memcached";
    type Conf = MemcachedConf;
    const DIRECTIVES: &'static [Directive<MemcachedConf>] = &[
        MemcachedRow::new("memcached_pass", LOCATION.or(LOCATION_IF), ONE, MemcachedConf::set_pass)
            .syntax("memcached_pass address").doc("Passes requests to a memcached server or an `upstream`: the response is the value of the key `$memcached_key`, or 404."),
        family_row!(bind, "memcached_bind"),
        family_row!(socket_keepalive, "memcached_socket_keepalive"),
        family_row!(connect_timeout, "memcached_connect_timeout"),
        family_row!(send_timeout, "memcached_send_timeout"),
        family_row!(buffer_size, "memcached_buffer_size").doc("Size of the buffer for the first line of a response."),
        family_row!(read_timeout, "memcached_read_timeout"),
        MemcachedRow::new("memcached_next_upstream", ANY, MORE, |c, l| l.bits(&mut c.family.next_upstream, &NEXT))
            .syntax("memcached_next_upstream error | timeout | invalid_response | not_found | off ...").default("error timeout").doc("Conditions under which a request is passed to the next upstream server."),
        family_row!(next_upstream_tries, "memcached_next_upstream_tries"),
        family_row!(next_upstream_timeout, "memcached_next_upstream_timeout"),
        MemcachedRow::new("memcached_gzip_flag", ANY, ONE, |c, l| l.number(&mut c.gzip_flag, ..))
            .syntax("memcached_gzip_flag flag").default("0").doc("Flags of values that are compressed: their responses have `Content-Encoding: gzip`; 0 means no flag."),
    ];

    fn nest(conf: &mut MemcachedConf, parent: &MemcachedConf, block: UnnamedBlock) {
        // As in nginx the methods of a `limit_except` are not for memcached.
        if block == UnnamedBlock::If {
            inherit!(conf, parent, pass, key);
        }
    }

    fn inherit(conf: &mut MemcachedConf, parent: &MemcachedConf) {
        conf.family.inherit(&parent.family);
        inherit!(conf, parent, gzip_flag);
    }

    fn resolve(conf: &mut MemcachedConf, registry: &mut ConfRegistry) -> Result {
        let family = &mut conf.family;
        family.buffering = Some(false);
        family.without_files = true;
        family.pass_request_headers = Some(false);
        family.pass_request_body = Some(false);
        family.force_ranges = Some(true);
        family.intercept_404 = true;
        family.max_temp_file_size = Some(0);
        family.buffers = Some(weir_conf::BufferSizes { number: 8, size: family.buffer_size.unwrap_or(4096) });
        family.resolve("memcached", &[], registry)?;
        if let Some(pass) = &mut conf.pass {
            pass.resolve(registry)?;
        }
        Ok(())
    }

    fn install(conf: &MemcachedConf, plan: &mut PlanBuilder<'_>) {
        let Some(key) = conf.key else { return };
        let gzip_flag = conf.gzip_flag.unwrap_or(0);
        let protocol = |_: &Arc<UpstreamSettings>| MemcachedProtocol { key, gzip_flag };
        pass_requests(plan, Self::NAME, conf.pass.as_ref(), &conf.family, protocol);
    }
}

/// Gives the closures of the table the type of their argument.
type MemcachedRow = Directive<MemcachedConf>;

/// The settings of one block.
#[derive(Default)]
pub struct MemcachedConf {
    family: UpstreamFamily,
    pass: Option<CgiPass>,
    /// `$memcached_key`
    key: Option<VarIndex>,
    gzip_flag: Option<u64>,
}

impl MemcachedConf {
    fn set_pass(&mut self, line: &mut LineCx<'_>) -> Result {
        CgiPass::set_constant(&mut self.pass, line)?;
        line.ext::<ConfRegistry>().claim_content(Memcached::NAME);
        let span = line.args()[0].span;
        self.key = Some(line.ext::<ConfRegistry>().use_variable("memcached_key", span));
        Ok(())
    }
}

/// A location's way of speaking with memcached.
struct MemcachedProtocol {
    key: VarIndex,
    gzip_flag: u64,
}

impl UpstreamProtocol for MemcachedProtocol {
    fn closes_as(&self) -> UpstreamCloseProtocol {
        UpstreamCloseProtocol::Memcached
    }

    fn scheme(&self) -> &'static str {
        "memcached://"
    }

    fn request(&self, x: &mut Exchange, out: &mut OutgoingRequest) -> std::result::Result<(), Verdict> {
        if !matches!(x.request.head.method, Method::Get | Method::Head) {
            return Err(Verdict::Status(405));
        }
        let value = x.variable(self.key);
        let Some(value) = value.filter(|value| !x.text(value).is_empty()) else {
            x.log_error(&"the \"$memcached_key\" variable is not set");
            return Err(Verdict::Status(500));
        };
        let key = memcached::key(x.text(&value));
        out.head = memcached::get(&key);
        out.keep_alive = true;
        x.set_content_type();
        x.state::<MemcachedKey>().0 = x.arena.push(&key);
        Ok(())
    }

    fn head(
        &self,
        x: &mut Exchange,
        bytes: &[u8],
        incoming: &mut IncomingHead,
    ) -> std::result::Result<HeadProgress, String> {
        let span = x.state::<MemcachedKey>().0;
        let key = x.arena.get(span);
        let wrong = |wrong: memcached::BadMemcached| wrong.message(memcached::line(bytes), key).to_string();
        Ok(match memcached::head(bytes, key).map_err(wrong)? {
            memcached::MemcachedHead::Incomplete => HeadProgress::Incomplete,
            memcached::MemcachedHead::NotFound { len } => {
                let key = String::from_utf8_lossy(key);
                x.log(
                    LogLevel::Info,
                    &format_args!("key: \"{key}\" was not found by memcached while {READING}"),
                );
                incoming.status = 404;
                incoming.content_length = Some(0);
                incoming.keep_alive = true;
                HeadProgress::Complete(len)
            }
            memcached::MemcachedHead::Value { flags, length, len } => {
                if self.gzip_flag != 0
                    && memcached::flags(flags.of(bytes)).map_err(wrong)? & self.gzip_flag != 0
                {
                    incoming.fields.push(gzip(x));
                }
                incoming.status = 200;
                incoming.content_length = Some(length);
                if x.request.head.method != Method::Head {
                    incoming.keep_alive = true;
                    incoming.decoder =
                        BodyDecoder::Other(Box::new(MemcachedBody(MemcachedValue::new(length), None)));
                }
                HeadProgress::Complete(len)
            }
        })
    }
}

/// The key that was asked for, in the arena.
#[derive(Default)]
struct MemcachedKey(Span);

/// The field of a compressed value.
fn gzip(x: &mut Exchange) -> Field {
    Field {
        known: KnownField::ContentEncoding,
        name: x.arena.push(KnownField::ContentEncoding.name().as_bytes()),
        value: x.arena.push(b"gzip"),
        valid: true,
        underscore: false,
    }
}

/// A value on its way, and what was wrong after it.
#[derive(Debug)]
struct MemcachedBody(MemcachedValue, Option<BadTrailer>);

impl BodyDecode for MemcachedBody {
    fn decode(&mut self, input: &[u8], out: &mut Vec<u8>) -> std::result::Result<(usize, bool), String> {
        let value = match self.0.take(input) {
            Ok(value) => value,
            Err(bad) => {
                self.1 = Some(bad);
                bad.value
            }
        };
        out.extend_from_slice(input.get(..value).unwrap_or_default());
        // What is no trailer is left, and the connection is of no further use.
        let used = if self.1.is_some() { value } else { input.len() };
        Ok((used, self.1.is_some() || self.0.is_over()))
    }

    fn messages(&mut self) -> Vec<(LogLevel, String)> {
        let bad = self.1.is_some().then(|| (LogLevel::Error, INVALID_TRAILER.to_owned()));
        bad.into_iter().collect()
    }
}

/// The words of `memcached_next_upstream`.
const NEXT: [(&str, u32); 5] = [
    ("error", FailureReason::ERROR.0),
    ("timeout", FailureReason::TIMEOUT.0),
    ("invalid_response", FailureReason::INVALID_HEADER.0),
    ("not_found", FailureReason::HTTP_404.0),
    ("off", FailureReason::OFF.0),
];
const READING: &str = "reading response header from upstream";
const INVALID_TRAILER: &str = "memcached sent invalid trailer while reading upstream";

//! `limit_req`: limits the rate of requests with the same key by a leaky bucket; requests above the rate are delayed,
//! or rejected when the bucket is full (nginx's `ngx_http_limit_req_module`).
//!
//! [`bucket`] describes what the numbers mean and when a request is counted; this file has the directives and acts on
//! the decision. A request is limited once, wherever it is redirected to internally.

mod bucket;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use weir_conf::names::{ANY, FLAG, HTTP, ONE, ONE_TO_THREE, THREE};
use weir_conf::{Directive, LineCx, Result, Span, parse_number};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::log::LogLevel;
use weir_engine::plan::PlanBuilder;
use weir_engine::variable::{ValueScript, Variable};
use weir_engine::zone::{SharedZone, ZoneTable};
use weir_engine::{Exchange, Handler, LocalFuture, Module, Phase, Text, Verdict};
use weir_rt::notify::either;
use weir_trace::{Cause, WaitKind};

use crate::support::limit::{self, RefusalConf};
use bucket::{ENTRY, RateDecision, RateLimit, decide};

/// The module `limit_req`.
pub struct LimitReq;

impl Module for LimitReq {
    const NAME: &'static str = "limit_req";
    type Conf = LimitReqConf;
    const DIRECTIVES: &'static [Directive<LimitReqConf>] = &[
        LimitReqRow::new(ZONE, HTTP, THREE, LimitReqConf::set_zone)
            .syntax("limit_req_zone key zone=name:size rate=rate")
            .doc(
                "Declares a shared memory zone that measures the request rate by the value of \
                 `key`. The rate is in requests per second (`10r/s`) or per minute (`30r/m`). \
                 Requests with an empty key are not counted.",
            )
            .example(
                "limit_req_zone $binary_remote_addr zone=per_address:10m rate=10r/s;\n\
                 server {\n\
                 \x20   location /search/ {\n\
                 \x20       limit_req zone=per_address burst=20 delay=5;\n\
                 \x20   }\n\
                 }",
            ),
        LimitReqRow::new("limit_req", ANY, ONE_TO_THREE, LimitReqConf::set_limit)
            .syntax("limit_req zone=name [burst=number] [nodelay | delay=number]")
            .doc(
                "Limits the request rate by a zone (leaky bucket). Up to `burst` requests \
                 above the rate are accepted (default 0): delayed to keep the rate, except \
                 for the first `delay` of them, or none with `nodelay`. Others are rejected \
                 with `limit_req_status`.",
            ),
        LimitReqRow::new("limit_req_log_level", ANY, ONE, |conf, line| conf.refusal.set_log_level(line))
            .syntax("limit_req_log_level info | notice | warn | error")
            .default("error")
            .doc("Log level for rejected requests; delays are logged one level lower."),
        LimitReqRow::new("limit_req_status", ANY, ONE, |conf, line| conf.refusal.set_status(line))
            .syntax("limit_req_status code")
            .default("503")
            .doc("Status of rejected requests, 400 to 599."),
        LimitReqRow::new("limit_req_dry_run", ANY, FLAG, |conf, line| conf.refusal.set_dry_run(line))
            .syntax("limit_req_dry_run on | off")
            .default("off")
            .doc(
                "Measures the rate and logs without delaying or rejecting requests; \
                 `$limit_req_status` then ends in `_DRY_RUN`.",
            ),
    ];
    const VARIABLES: &'static [Variable] = &[Variable::new("limit_req_status", status).volatile()];

    fn inherit(conf: &mut LimitReqConf, parent: &LimitReqConf) {
        if conf.limits.is_empty() {
            conf.limits = parent.limits.clone();
        }
        conf.refusal.inherit(&parent.refusal);
    }

    fn resolve(conf: &mut LimitReqConf, _registry: &mut ConfRegistry) -> Result {
        let unknown = conf.written.iter().find(|(zone, _)| zone.settings::<RateZone>().is_none());
        unknown.map_or(Ok(()), |(zone, span)| Err(crate::rules::limit_conn::undeclared(zone, *span)))
    }

    fn install(conf: &LimitReqConf, plan: &mut PlanBuilder<'_>) {
        let limits: Vec<RateLimit> = conf.limits.iter().filter_map(WrittenRateLimit::install).collect();
        if !limits.is_empty() {
            let (level, status, dry_run) =
                (conf.refusal.level(), conf.refusal.refusal(), conf.refusal.is_dry());
            let delay_level = below(level);
            plan.handler(
                Phase::Preaccess,
                Self::NAME,
                RateLimits { limits, level, delay_level, status, dry_run },
            );
        }
    }
}

/// Gives the closures of the table the type of their argument.
type LimitReqRow = Directive<LimitReqConf>;

/// The settings of one block.
#[derive(Default)]
pub struct LimitReqConf {
    /// Own limits, or the parent's.
    limits: Vec<WrittenRateLimit>,
    refusal: RefusalConf,
    /// The zones that this very block names, and where.
    written: Vec<(Arc<SharedZone>, Span)>,
}

/// What `limit_req_zone` says of a zone.
struct RateZone {
    key: ValueScript,
    /// Thousandths of a request a second.
    rate: u64,
}

/// One `limit_req`; numbers are thousandths of a request.
#[derive(Clone)]
struct WrittenRateLimit {
    zone: Arc<SharedZone>,
    burst: u64,
    delay: u64,
}

impl LimitReqConf {
    /// `limit_req_zone key zone=name:size rate=rate`
    fn set_zone(&mut self, line: &mut LineCx<'_>) -> Result {
        let key = ValueScript::compile(line, 0)?;
        let (mut name, mut size, mut rate) = (&b""[..], 0, 1000);
        for i in 1..line.args().len() {
            if let Some(text) = line.bytes(i).strip_prefix(b"zone=") {
                (name, size) = limit::zone_size(line, i, text)?;
            } else if let Some(text) = line.bytes(i).strip_prefix(b"rate=") {
                let invalid = || line.fail_arg(i, format!("invalid rate \"{}\"", line.arg(i)));
                rate = parse_rate(text).ok_or_else(invalid)?;
            } else {
                return Err(line.invalid_parameter(i));
            }
        }
        if name.is_empty() {
            return Err(limit::no_zone(line));
        }
        let zone = limit::zone(line, 1, ZONE, name)?;
        zone.declare(size, line.arg(0), RateZone { key, rate }).map_err(|message| line.fail(message))
    }

    /// `limit_req zone=name [burst=number] [nodelay | delay=number]`
    fn set_limit(&mut self, line: &mut LineCx<'_>) -> Result {
        let (mut zone, mut burst, mut delay) = (None, 0, 0);
        for i in 0..line.args().len() {
            let number = |text, what| {
                let number = parse_number(text).filter(|number| (1..=MOST).contains(number));
                number.ok_or_else(|| line.fail_arg(i, format!("invalid {what} value \"{}\"", line.arg(i))))
            };
            let text = line.bytes(i);
            if let Some(name) = text.strip_prefix(b"zone=") {
                zone = Some((limit::zone(line, i, ZONE, name)?, line.args()[i].span));
            } else if let Some(text) = text.strip_prefix(b"burst=") {
                burst = number(text, "burst")?;
            } else if let Some(text) = text.strip_prefix(b"delay=") {
                delay = number(text, "delay")?;
            } else if text == b"nodelay" {
                delay = MOST;
            } else {
                return Err(line.invalid_parameter(i));
            }
        }
        let (zone, span) = zone.ok_or_else(|| limit::no_zone(line))?;
        if self.limits.iter().any(|limit| Arc::ptr_eq(&limit.zone, &zone)) {
            return Err(line.refuse("is duplicate"));
        }
        self.written.push((zone.clone(), span));
        self.limits.push(WrittenRateLimit { zone, burst: burst * 1000, delay: delay * 1000 });
        Ok(())
    }
}

/// `10r/s`, `30r/m`: thousandths of a request a second. Without unit it is a second, as in nginx's reading.
fn parse_rate(text: &[u8]) -> Option<u64> {
    let (number, seconds) = match text {
        [number @ .., b'r', b'/', b's'] => (number, 1),
        [number @ .., b'r', b'/', b'm'] => (number, 60),
        number => (number, 1),
    };
    let number = parse_number(number).filter(|number| (1..=MOST).contains(number))?;
    Some(number * 1000 / seconds)
}

impl WrittenRateLimit {
    fn install(&self) -> Option<RateLimit> {
        let settings = self.zone.settings::<RateZone>()?;
        Some(RateLimit {
            zone: self.zone.clone(),
            key: settings.key.clone(),
            buckets: self.zone.store(|size| ZoneTable::of(&self.zone, size, ENTRY)),
            rate: settings.rate,
            burst: self.burst,
            delay: self.delay,
        })
    }
}

/// The limits of a location.
struct RateLimits {
    limits: Vec<RateLimit>,
    level: LogLevel,
    delay_level: LogLevel,
    status: u16,
    dry_run: bool,
}

/// The request has passed at once. That is what becomes of most, and this takes no memory from the allocator, unlike
/// [`RateDecided`].
#[derive(Default)]
struct RatePassed;

/// What else was decided of a request, while it lasts.
#[derive(Default)]
struct RateDecided {
    status: Option<&'static str>,
    /// For [`RateLimits::wait`].
    delay_ms: u64,
}

/// Whether limits have counted the request.
pub(crate) fn is_counted(x: &Exchange) -> bool {
    has_passed(x) || x.lasting_if(|_: &RateDecided| ()).is_some()
}

/// The request is taken as counted.
pub(crate) fn count_no_more(x: &mut Exchange) {
    x.lasting(|_: &mut RatePassed| ());
}

fn has_passed(x: &Exchange) -> bool {
    x.lasting_if(|_: &RatePassed| ()).is_some()
}

/// Notes what else was decided of the request.
fn decided(x: &mut Exchange, status: &'static str, delay_ms: u64) {
    x.lasting(|decided| *decided = RateDecided { status: Some(status), delay_ms });
}

impl Handler for RateLimits {
    fn handle(&self, x: &mut Exchange) -> Verdict {
        if is_counted(x) {
            return Verdict::Declined;
        }
        match decide(x, &self.limits, weir_rt::now_ms()) {
            RateDecision::Unlimited => Verdict::Declined,
            RateDecision::Pass => {
                count_no_more(x);
                Verdict::Declined
            }
            RateDecision::Delay { ms, excess, limit } => self.delay(x, ms, excess, limit),
            RateDecision::Refuse { excess, limit } => {
                if let Some(excess) = excess {
                    self.log(x, self.level, "limiting requests", " by", excess, limit);
                }
                self.refuse(x)
            }
        }
    }

    fn wait<'x>(&'x self, x: &'x mut Exchange) -> LocalFuture<'x, Verdict> {
        let ms = x.lasting(|decided: &mut RateDecided| decided.delay_ms);
        Box::pin(wait(x, ms))
    }
}

impl RateLimits {
    fn refuse(&self, x: &mut Exchange) -> Verdict {
        if self.dry_run {
            decided(x, "REJECTED_DRY_RUN", 0);
            return Verdict::Declined;
        }
        decided(x, "REJECTED", 0);
        x.because(Cause::Limit);
        Verdict::Status(self.status)
    }

    fn delay(&self, x: &mut Exchange, ms: u64, excess: u64, limit: &RateLimit) -> Verdict {
        self.log(x, self.delay_level, "delaying request", ", by", excess, limit);
        if self.dry_run {
            decided(x, "DELAYED_DRY_RUN", 0);
            return Verdict::Declined;
        }
        decided(x, "DELAYED", ms);
        Verdict::Wait
    }

    fn log(&self, x: &Exchange, level: LogLevel, what: &str, by: &str, excess: u64, limit: &RateLimit) {
        let dry = if self.dry_run { ", dry run" } else { "" };
        let (whole, part) = (excess / 1000, excess % 1000);
        let name = &limit.zone.name;
        x.log(level, &format_args!("{what}{dry}, excess: {whole}.{part:03}{by} zone \"{name}\""));
    }
}

/// Waits, unless the client is gone before.
async fn wait(x: &mut Exchange, ms: u64) -> Verdict {
    let sleep = weir_rt::sleep(Duration::from_millis(ms));
    let Some(client) = x.transport.client() else {
        x.waiting_for(WaitKind::Timer, Box::pin(sleep)).await;
        return Verdict::Declined;
    };
    let first = Box::pin(either(client.gone(), sleep));
    match x.waiting_for(WaitKind::Timer, first).await {
        None => Verdict::Declined,
        Some(_) => {
            x.log(LogLevel::Info, &"client prematurely closed connection");
            Verdict::Close(499)
        }
    }
}

/// One level further from grave; nothing is logged below `info` but debug messages.
fn below(level: LogLevel) -> LogLevel {
    match level {
        LogLevel::Error => LogLevel::Warn,
        LogLevel::Warn => LogLevel::Notice,
        _ => LogLevel::Info,
    }
}

/// `$limit_req_status`
fn status(x: &mut Exchange) -> Option<Text> {
    if has_passed(x) {
        return Some(Text::from("PASSED"));
    }
    x.lasting_if(|decided: &RateDecided| decided.status)?.map(Text::from)
}

/// The directive that declares zones.
const ZONE: &str = "limit_req_zone";
/// No number of requests is above this one, so that sums of thousandths stay numbers.
const MOST: u64 = i64::MAX as u64 / 1_000_000;

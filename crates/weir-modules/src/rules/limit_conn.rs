//! `limit_conn`: limits how many requests with the same key are processed at a time (nginx's
//! `ngx_http_limit_conn_module`; a request counts from when its head was read).
//!
//! A request that is allowed holds a place in each of its zones until it is over. The place is given back when its
//! value is dropped, so that can't be forgotten.

use std::rc::Rc;
use std::sync::Arc;

use weir_conf::names::{ANY, ANY_OR_STREAM, FLAG, HTTP_OR_STREAM, ONE, TWO};
use weir_conf::{Directive, Error, LineCx, Result, Span, parse_number};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::plan::PlanBuilder;
use weir_engine::variable::{ValueScript, Variable};
use weir_engine::zone::{EntryHandle, SharedZone, ZoneTable};
use weir_engine::{Exchange, Handler, Module, Phase, Text, Verdict};
use weir_trace::Cause;

use crate::support::limit::{self, RefusalConf};

/// The module `limit_conn`.
pub struct LimitConn;

impl Module for LimitConn {
    const NAME: &'static str = "limit_conn";
    type Conf = LimitConnConf;
    const DIRECTIVES: &'static [Directive<LimitConnConf>] = &[
        LimitConnRow::new(ZONE, HTTP_OR_STREAM, TWO, LimitConnConf::set_zone)
            .syntax("limit_conn_zone key zone=name:size")
            .doc(
                "Declares a shared memory zone that counts active requests by the value of \
                 `key`. Requests with an empty key are not counted.",
            )
            .example(
                "limit_conn_zone $binary_remote_addr zone=per_address:10m;\n\
                 server {\n\
                 \x20   location /download/ {\n\
                 \x20       limit_conn per_address 4;\n\
                 \x20   }\n\
                 }",
            ),
        LimitConnRow::new("limit_conn", ANY_OR_STREAM, TWO, LimitConnConf::set_limit)
            .syntax("limit_conn zone number")
            .doc(
                "Maximum number of concurrent requests for one key of the zone; further \
                 requests are rejected with `limit_conn_status`. In HTTP/2 each stream counts \
                 as a request.",
            ),
        LimitConnRow::new("limit_conn_log_level", ANY_OR_STREAM, ONE, |conf, line| {
            conf.refusal.set_log_level(line)
        })
        .syntax("limit_conn_log_level info | notice | warn | error")
        .default("error")
        .doc("Log level for rejected requests."),
        LimitConnRow::new("limit_conn_status", ANY, ONE, |conf, line| conf.refusal.set_status(line))
            .syntax("limit_conn_status code")
            .default("503")
            .doc("Status of rejected requests, 400 to 599."),
        LimitConnRow::new("limit_conn_dry_run", ANY_OR_STREAM, FLAG, |conf, line| {
            conf.refusal.set_dry_run(line)
        })
        .syntax("limit_conn_dry_run on | off")
        .default("off")
        .doc(
            "Counts and logs requests beyond the limit without rejecting them; \
                 `$limit_conn_status` then is `REJECTED_DRY_RUN`.",
        ),
    ];
    const VARIABLES: &'static [Variable] = &[Variable::new("limit_conn_status", status).volatile()];

    fn inherit(conf: &mut LimitConnConf, parent: &LimitConnConf) {
        if conf.limits.is_empty() {
            conf.limits = parent.limits.clone();
        }
        conf.refusal.inherit(&parent.refusal);
    }

    fn resolve(conf: &mut LimitConnConf, _registry: &mut ConfRegistry) -> Result {
        let unknown = conf.written.iter().find(|(zone, _)| zone.settings::<ValueScript>().is_none());
        unknown.map_or(Ok(()), |(zone, span)| Err(undeclared(zone, *span)))
    }

    fn install(conf: &LimitConnConf, plan: &mut PlanBuilder<'_>) {
        let limits: Vec<ConnLimit> = conf.limits.iter().filter_map(WrittenConnLimit::install).collect();
        if !limits.is_empty() {
            let refusal = &conf.refusal;
            let (level, status, dry_run) = (refusal.level(), refusal.refusal(), refusal.is_dry());
            plan.handler(Phase::Preaccess, Self::NAME, ConnLimits { limits, level, status, dry_run });
        }
    }
}

/// Gives the closures of the table the type of their argument.
type LimitConnRow = Directive<LimitConnConf>;

/// The settings of one block.
#[derive(Default)]
pub struct LimitConnConf {
    /// Own limits, or the parent's.
    limits: Vec<WrittenConnLimit>,
    refusal: RefusalConf,
    /// The zones that this very block names, and where.
    written: Vec<(Arc<SharedZone>, Span)>,
}

/// One `limit_conn`.
#[derive(Clone)]
struct WrittenConnLimit {
    zone: Arc<SharedZone>,
    most: u32,
}

impl LimitConnConf {
    /// `limit_conn_zone key zone=name:size`
    fn set_zone(&mut self, line: &mut LineCx<'_>) -> Result {
        let key = ValueScript::compile(line, 0)?;
        let text = line.bytes(1).strip_prefix(b"zone=").ok_or_else(|| line.invalid_parameter(1))?;
        let (name, size) = limit::zone_size(line, 1, text)?;
        if name.is_empty() {
            return Err(limit::no_zone(line));
        }
        let zone = limit::zone(line, 1, ZONE, name)?;
        zone.declare(size, line.arg(0), key).map_err(|message| line.fail(message))
    }

    /// `limit_conn zone number`
    fn set_limit(&mut self, line: &mut LineCx<'_>) -> Result {
        let zone = limit::zone(line, 0, ZONE, line.bytes(0))?;
        if self.limits.iter().any(|limit| Arc::ptr_eq(&limit.zone, &zone)) {
            return Err(line.refuse("is duplicate"));
        }
        let number = parse_number(line.bytes(1)).filter(|number| *number > 0);
        let number = number
            .ok_or_else(|| line.fail_arg(1, format!("invalid number of connections \"{}\"", line.arg(1))))?;
        if number > 65535 {
            return Err(line.fail_arg(1, "connection limit must be less 65536"));
        }
        self.written.push((zone.clone(), line.args()[0].span));
        self.limits.push(WrittenConnLimit { zone, most: number as u32 });
        Ok(())
    }
}

/// nginx's words for a zone that is used and declared nowhere.
pub(crate) fn undeclared(zone: &SharedZone, span: Span) -> Error {
    Error::new(format!("zero size shared memory zone \"{}\"", zone.name)).at(span)
}

impl WrittenConnLimit {
    fn install(&self) -> Option<ConnLimit> {
        let key = self.zone.settings::<ValueScript>()?.clone();
        let counted = Rc::new(CountedZone { counts: self.zone.store(|size| ZoneTable::new(size, ENTRY)) });
        Some(ConnLimit { zone: self.zone.clone(), key, counted, most: self.most })
    }
}

/// Requests by key.
type ConnCounts = ZoneTable<u32>;

/// A zone on one worker: its requests hold it by a count that is no atomic one.
struct CountedZone {
    counts: Arc<ConnCounts>,
}

/// The limits of a location.
struct ConnLimits {
    limits: Vec<ConnLimit>,
    level: weir_engine::log::LogLevel,
    status: u16,
    dry_run: bool,
}

struct ConnLimit {
    zone: Arc<SharedZone>,
    key: ValueScript,
    counted: Rc<CountedZone>,
    most: u32,
}

/// What a request has of this module while it lasts.
#[derive(Default)]
struct ConnLimitState {
    status: Option<&'static str>,
    /// In the first zone; most locations have no other.
    place: Option<ConnPermit>,
    places: Vec<ConnPermit>,
}

impl ConnLimitState {
    fn keep(&mut self, place: ConnPermit) {
        match &self.place {
            None => self.place = Some(place),
            Some(_) => self.places.push(place),
        }
    }
}

/// A request that is counted in a zone.
struct ConnPermit {
    zone: Rc<CountedZone>,
    handle: EntryHandle,
}

impl Drop for ConnPermit {
    fn drop(&mut self) {
        let mut entries = self.zone.counts.lock_at(self.handle);
        let count = entries.value(self.handle);
        *count -= 1;
        if *count == 0 {
            entries.remove(self.handle);
        }
    }
}

/// Whether limits have counted the request.
pub(crate) fn is_counted(x: &Exchange) -> bool {
    x.lasting_if(|state: &ConnLimitState| state.status.is_some()) == Some(true)
}

/// The request is taken as counted.
pub(crate) fn count_no_more(x: &mut Exchange) {
    x.lasting(|state: &mut ConnLimitState| state.status = Some("PASSED"));
}

impl Handler for ConnLimits {
    fn handle(&self, x: &mut Exchange) -> Verdict {
        if is_counted(x) {
            return Verdict::Declined;
        }
        for limit in &self.limits {
            let Some(key) = limit::key(x, &limit.key, limit.zone.key(), LONGEST_KEY) else { continue };
            match limit.enter(x.text(&key)) {
                Ok(place) => x.lasting(|state: &mut ConnLimitState| {
                    state.status = Some("PASSED");
                    state.keep(place);
                }),
                Err(ConnRefusal::Many) => return self.refuse(x, Some(limit)),
                Err(ConnRefusal::Full) => return self.refuse(x, None),
            }
        }
        Verdict::Declined
    }
}

impl ConnLimits {
    /// Nothing of a refused request counts. nginx says nothing when a zone is full, so `limit` may be missing.
    fn refuse(&self, x: &mut Exchange, limit: Option<&ConnLimit>) -> Verdict {
        if let Some(limit) = limit {
            let dry = if self.dry_run { ", dry run," } else { "" };
            x.log(self.level, &format_args!("limiting connections{dry} by zone \"{}\"", limit.zone.name));
        }
        let status = if self.dry_run { "REJECTED_DRY_RUN" } else { "REJECTED" };
        x.lasting(|state: &mut ConnLimitState| {
            *state = ConnLimitState { status: Some(status), ..Default::default() }
        });
        if self.dry_run {
            return Verdict::Declined;
        }
        x.because(Cause::Limit);
        Verdict::Status(self.status)
    }
}

/// Why there is no place.
enum ConnRefusal {
    Many,
    Full,
}

impl ConnLimit {
    fn enter(&self, key: &[u8]) -> std::result::Result<ConnPermit, ConnRefusal> {
        let mut entries = self.counted.counts.lock(key);
        let handle = match entries.find(key) {
            Some(handle) => {
                let count = entries.value(handle);
                if *count >= self.most {
                    return Err(ConnRefusal::Many);
                }
                *count += 1;
                handle
            }
            None => entries.insert(key, 1).ok_or(ConnRefusal::Full)?,
        };
        Ok(ConnPermit { zone: self.counted.clone(), handle })
    }
}

/// `$limit_conn_status`
fn status(x: &mut Exchange) -> Option<Text> {
    x.lasting_if(|state: &ConnLimitState| state.status)?.map(Text::from)
}

/// The directive that declares zones.
const ZONE: &str = "limit_conn_zone";
/// What nginx spends on an entry besides its key.
const ENTRY: u64 = 36;
/// The longest key.
const LONGEST_KEY: usize = 255;

#[cfg(test)]
mod tests {
    use weir_engine::ModuleDef;
    use weir_engine::conf;

    use super::*;
    use crate::testing::decided;
    use weir_engine::conf::{CORE_MODULES, with_core};
    use weir_engine::testing::{run_all, value};

    static MODULES: [ModuleDef; CORE_MODULES.len() + 1] = with_core(&[ModuleDef::of::<LimitConn>()]);

    #[test]
    fn mistakes_in_nginx_words() {
        for (lines, words) in [
            ("limit_conn_zone $uri zone=one;", "invalid zone size \"zone=one\""),
            ("limit_conn_zone $uri zone=one:10;", "zone \"zone=one:10\" is too small"),
            ("limit_conn_zone $uri foo;", "invalid parameter \"foo\""),
            ("limit_conn_zone $uri zone=:1m;", "\"limit_conn_zone\" must have \"zone\" parameter"),
            (
                "limit_conn_zone $uri zone=one:1m; limit_conn_zone $uri zone=one:1m;",
                "limit_conn_zone \"one\" is already bound to key \"$uri\"",
            ),
            ("limit_conn one 1;", "zero size shared memory zone \"one\""),
            ("limit_conn one 0;", "invalid number of connections \"0\""),
            ("limit_conn one 65536;", "connection limit must be less 65536"),
            ("limit_conn one 1; limit_conn one 2;", "\"limit_conn\" directive is duplicate"),
            ("limit_conn_status 200;", "value must be between 400 and 599"),
            ("limit_conn_log_level debug;", "invalid value \"debug\""),
        ] {
            let found =
                conf::test::headlines(&format!("events {{ }} http {{ {lines} server {{ }} }}"), &MODULES);
            assert!(found[0].starts_with(words), "{lines}: {found:?}");
        }
    }

    #[test]
    fn places_are_given_back() {
        let counted = Rc::new(CountedZone { counts: Arc::new(ZoneTable::new(1 << 20, ENTRY)) });
        let zone = weir_engine::zone::SharedZones::default().named(ZONE, "one").expect("the first");
        let limit = ConnLimit { zone, key: ValueScript::default(), counted: counted.clone(), most: 2 };
        let first = limit.enter(b"k").ok();
        let second = limit.enter(b"k").ok();
        assert!(first.is_some() && second.is_some());
        assert!(matches!(limit.enter(b"k"), Err(ConnRefusal::Many)));
        assert!(limit.enter(b"other").is_ok());
        drop(first);
        assert!(limit.enter(b"k").is_ok());
        drop(second);
        assert!(counted.counts.is_empty());
    }

    /// What becomes of requests at the same time, and `$limit_conn_status`.
    fn limited(all: &mut [Exchange]) -> Vec<String> {
        let mut said = Vec::new();
        for x in all {
            let verdict = decided(x, Phase::Preaccess);
            // It is limited once, wherever it is redirected to.
            assert_eq!(decided(x, Phase::Preaccess), "Declined");
            said.push(format!("{verdict} {}", value(x, "limit_conn_status").unwrap_or_default()));
        }
        said
    }

    fn head(target: &str, key: &str) -> String {
        format!("GET {target} HTTP/1.1\r\nHost: x\r\nKey: {key}\r\n\r\n")
    }

    #[test]
    fn requests_beyond_the_limit_are_refused_while_others_last() {
        let heads = ["/a", "/a", "/a", "/b"].map(|target| head(target, ""));
        for (lines, refused) in [
            ("limit_conn one 1;", "Status(503) REJECTED"),
            ("limit_conn one 1; limit_conn_status 429;", "Status(429) REJECTED"),
            ("limit_conn one 1; limit_conn_dry_run on;", "Declined REJECTED_DRY_RUN"),
        ] {
            for http in [format!("server {{ {lines} }}"), format!("{lines} server {{ }}")] {
                let http = format!("limit_conn_zone $uri zone=one:32k; {http}");
                run_all(&MODULES, &http, &heads.each_ref().map(String::as_str), async |mut all| {
                    let said = limited(&mut all[..2]);
                    assert_eq!(said, ["Declined PASSED", refused], "{http}");
                    assert_eq!(limited(&mut all[3..]), ["Declined PASSED"], "{http}: another key");
                    drop(all.remove(0));
                    assert_eq!(limited(&mut all[1..2]), ["Declined PASSED"], "{http}: after the first");
                });
            }
        }
    }

    #[test]
    fn a_refused_request_counts_in_no_zone() {
        let http =
            "limit_conn_zone $uri zone=one:32k; limit_conn_zone $http_key zone=two:32k; limit_conn one 1;
            server { limit_conn one 1; limit_conn two 1; }";
        let heads = [head("/a", "1"), head("/b", "1"), head("/b", "2"), head("/a", "3"), head("/a", "1")];
        run_all(&MODULES, http, &heads.each_ref().map(String::as_str), async |mut all| {
            let said = limited(&mut all[..4]);
            let (passed, refused) = ("Declined PASSED", "Status(503) REJECTED");
            assert_eq!(said, [passed, refused, passed, refused]);
            // It has a place in both zones, and gives both back.
            drop(all.remove(0));
            assert_eq!(limited(&mut all[3..]), [passed]);
        });
    }

    #[test]
    fn the_block_around_limits_where_there_is_no_limit_of_its_own() {
        let http =
            "limit_conn_zone $host zone=one:32k; limit_conn_zone $http_key zone=two:32k; limit_conn one 1;
            server { location /a { limit_conn two 2; } location /b { } }";
        let heads = [head("/a", "1"), head("/a", "1"), head("/b", "1"), head("/b", "1")];
        run_all(&MODULES, http, &heads.each_ref().map(String::as_str), async |mut all| {
            let passed = "Declined PASSED";
            assert_eq!(limited(&mut all), [passed, passed, passed, "Status(503) REJECTED"]);
        });
    }

    #[test]
    fn without_room_a_request_is_refused() {
        let counted = Rc::new(CountedZone { counts: Arc::new(ZoneTable::new(4096, ENTRY)) });
        let zone = weir_engine::zone::SharedZones::default().named(ZONE, "one").expect("the first");
        let limit = ConnLimit { zone, key: ValueScript::default(), counted, most: 1 };
        let mut places = Vec::new();
        let why = (0..1000_u32)
            .find_map(|key| limit.enter(&key.to_ne_bytes()).map(|place| places.push(place)).err());
        assert!(matches!(why, Some(ConnRefusal::Full)), "{} places", places.len());
        places.pop();
        assert!(limit.enter(b"next").is_ok());
    }

    #[test]
    fn the_largest_limit_is_taken() {
        let text = "events { } http { limit_conn_zone $uri zone=one:32k; limit_conn one 65535; server { } }";
        assert!(conf::test::load(text, &MODULES).is_ok());
    }
}

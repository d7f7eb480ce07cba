//! The directives of tracing: what is recorded, what is retained, what is reported.

mod admin_host;
mod settings;
mod variable;

use weir_conf::names::*;
use weir_conf::{ArgCount, Contexts, Directive, LineCx, Result, did_you_mean, parse_number, parse_time_ms};
use weir_rt::clock;
use weir_trace::{ConnectionStep, KeepRule, SiteTable, SlowLimit, TraceLevel, render};

use super::listen;
use super::registry::ConfRegistry;
use crate::exchange::Exchange;
use crate::filter::{FilterSlot, HeaderFilter};
use crate::inherit;
use crate::module::{Module, ModuleList};
use crate::phase::Verdict;
use crate::plan::PlanBuilder;
use crate::plan::module_names::ModuleNames;
use crate::text::Text;
use crate::variable::{ValueScript, Variable};
pub use admin_host::{AdminHost, HostAddress};
pub use settings::{AdminLine, TraceSettings};

/// The module of tracing. It has no handler: boundaries are stamped by the engine, for all modules alike.
pub struct Profile;

impl Module for Profile {
    const NAME: &'static str = "profile";
    type Conf = ProfileConf;
    const DIRECTIVES: &'static [Directive<ProfileConf>] = &[
        ProfileRow::new("profile", ANY, FLAG, |c, line| line.flag(&mut c.profile))
            .syntax("profile on | off")
            .default("on")
            .doc("Records the boundaries of requests here, for traces and counters."),
        ProfileRow::new("trace", ANY, MORE, ProfileConf::set_trace)
            .syntax(
                "trace sample=share | slow=time | slow=p99 | slow=off | keep=number | \
                      level=off|sampled|full ...",
            )
            .default("sample=1/64 slow=200ms")
            .doc(
                "Traces that are retained: a random share of requests (`1/64`), and those slower \
                 than a time or than the 99th percentile. The slowest request of each location in \
                 this minute and the one before is retained too, except with `slow=off`. So are \
                 requests that blocked a worker, each with one that waited for it. In `http` also \
                 how many traces are retained (1000; 0 for none) and how much is recorded.",
            )
            .example("trace sample=1/100 slow=p99 keep=5000;"),
        ProfileRow::new("profile_redact", ANY, ONE_TO_THREE, |c, line| line.bits(&mut c.redact, REDACT))
            .syntax("profile_redact off | args | cookies | authorization ...")
            .default("args cookies authorization")
            .doc("What traces and exports omit; `off` omits nothing. Header fields are never recorded."),
        ProfileRow::new("server_timing", ANY, ONE, ProfileConf::set_server_timing)
            .syntax("server_timing on | off | string")
            .default("off")
            .doc(
                "Adds the `Server-Timing` response field: always, never, or when the value is \
                 neither empty nor `0`.",
            ),
        ProfileRow::new("trace_name", ANY, TWO, ProfileConf::name_module)
            .syntax("trace_name module name")
            .doc(
                "Name of a module's handlers and filters in traces, counters, flame graphs and exports, in \
                 place of the module's own. `special_response` is the step that finds the response of an \
                 error. Modules of the same name in one location are counted together. In configuration \
                 files of H2O modules have H2O's names by this directive.",
            )
            .example("trace_name gzip compress;"),
        ProfileRow::new("profile_cpu", PROCESS, ONE, |_, line| set_cpu(line))
            .syntax("profile_cpu frequency | off")
            .default("99")
            .doc("Samples of running code per second of CPU time of a worker, up to 1000."),
        ProfileRow::new("profile_blocked", PROCESS, ONE, |_, line| set_blocked(line))
            .syntax("profile_blocked time | off")
            .default("10ms")
            .doc("Duration of a turn of the event loop from which it is recorded as a stall."),
        ProfileRow::new("admin", PROCESS, ONE_OR_TWO, |_, line| set_admin(line))
            .syntax("admin address:port [token=word]\nadmin unix:path [token=word]")
            .doc(
                "Address of the control interface, by which the server is observed. `token` \
                 (at least 16 characters) is required except on UNIX-domain sockets and \
                 loopback addresses.",
            )
            .example("admin unix:/run/weir-admin.sock;"),
        ProfileRow::new("admin_host", PROCESS, ONE_OR_TWO, |_, line| admin_host::set(line))
            .syntax("admin_host address[:port] [token_file=file]\nadmin_host unix:path [token_file=file]")
            .doc(
                "Another server, by the address of its `admin` listener (port 9180 if none is \
                 given), whose figures the page and `/hosts` of this server's admin listeners \
                 show beside its own. It is asked only while a client looks at them, over plain \
                 HTTP. `token_file` holds the token of its `admin` line; it is read with the \
                 configuration and never sent to browsers. At most 64 hosts.",
            )
            .example("admin_host 10.0.0.2:9180 token_file=/etc/weir/other.token;"),
        ProfileRow::new("metrics_locations", PROCESS, ONE, |_, line| set_metrics_locations(line))
            .syntax("metrics_locations number")
            .default("200")
            .doc(
                "Number of locations that have series of their own in `/metrics`; each has some \
                 hundred lines there. The busiest get them first and keep them while the process \
                 runs; all others are counted together, as the location `other`.",
            )
            .example("metrics_locations 1000;"),
    ];
    const VARIABLES: &'static [Variable] = variable::VARIABLES;

    fn inherit(conf: &mut ProfileConf, parent: &ProfileConf) {
        inherit!(conf, parent, profile, slow, sample, redact, server_timing);
        conf.names.inherit(&parent.names);
    }

    fn install(conf: &ProfileConf, plan: &mut PlanBuilder<'_>) {
        plan.profile(conf.profile.unwrap_or(true));
        plan.name_modules(conf.names.clone());
        plan.redact_args(conf.redact.is_none_or(|bits| bits & ARGS != 0));
        if conf.slow.is_some() || conf.sample.is_some() {
            let slow = conf.slow.unwrap_or(SlowBound::Ms(SLOW_MS)).slow();
            plan.keep_traces(KeepRule { slow, sample: conf.sample.unwrap_or(SAMPLE) });
        }
        match &conf.server_timing {
            None | Some(ServerTimingRule::Never) => {}
            Some(ServerTimingRule::Always) => {
                plan.header_filter(FilterSlot::Headers, Self::NAME, ServerTiming(None));
            }
            Some(ServerTimingRule::When(value)) => {
                plan.header_filter(FilterSlot::Headers, Self::NAME, ServerTiming(Some(value.clone())));
            }
        }
    }
}

/// Gives the types of the arguments of the table's closures.
type ProfileRow = Directive<ProfileConf>;

/// The settings of one block.
#[derive(Default)]
pub struct ProfileConf {
    profile: Option<bool>,
    /// `trace` is here.
    trace: Option<()>,
    slow: Option<SlowBound>,
    sample: Option<u32>,
    redact: Option<u32>,
    server_timing: Option<ServerTimingRule>,
    /// `trace_name`
    names: ModuleNames,
}

/// `trace slow=`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlowBound {
    Never,
    Ms(u64),
    P99,
}

impl SlowBound {
    fn slow(self) -> SlowLimit {
        match self {
            SlowBound::Never => SlowLimit::Never,
            SlowBound::Ms(ms) => SlowLimit::Ticks(clock::scale().ns_to_ticks(ms.saturating_mul(1_000_000))),
            SlowBound::P99 => SlowLimit::P99,
        }
    }
}

/// `server_timing`
#[derive(Clone)]
enum ServerTimingRule {
    Never,
    Always,
    When(ValueScript),
}

impl ProfileConf {
    /// `trace [sample=1/N|off] [slow=TIME|p99|off] [keep=N] [level=off|sampled|full]`
    fn set_trace(&mut self, line: &mut LineCx<'_>) -> Result {
        line.once(&mut self.trace, ())?;
        for i in 0..line.args().len() {
            let text = line.bytes(i);
            if let Some(text) = text.strip_prefix(b"sample=") {
                let sample = parse_share(text).ok_or_else(|| line.invalid_value(i))?;
                self.sample = Some(sample);
                if line.here() == HTTP {
                    settings(line).sample = Some(sample);
                }
            } else if let Some(text) = text.strip_prefix(b"slow=") {
                self.slow = Some(match text {
                    b"off" => SlowBound::Never,
                    b"p99" => SlowBound::P99,
                    text => SlowBound::Ms(parse_time_ms(text).ok_or_else(|| line.invalid_value(i))?),
                });
            } else if let Some(text) = text.strip_prefix(b"keep=") {
                whole_server(line, i, "keep")?;
                let number = parse_number(text).and_then(|number| usize::try_from(number).ok());
                let number = number.filter(|&number| number <= MOST_KEPT);
                settings(line).keep = Some(number.ok_or_else(|| line.invalid_value(i))?);
            } else if let Some(text) = text.strip_prefix(b"level=") {
                whole_server(line, i, "level")?;
                let level = match text {
                    b"off" => TraceLevel::Off,
                    b"sampled" => TraceLevel::Sampled,
                    b"full" => TraceLevel::Full,
                    _ => return Err(line.invalid_value(i)),
                };
                settings(line).level = Some(level);
            } else {
                return Err(line.invalid_parameter(i));
            }
        }
        Ok(())
    }

    /// `trace_name module name`
    fn name_module(&mut self, line: &mut LineCx<'_>) -> Result {
        let name = line.arg(1).to_owned();
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(line.invalid_value(1));
        }
        let modules = &line.ext::<ConfRegistry>().shared::<ModuleList>().0;
        let names: Vec<&'static str> = modules.iter().map(|module| module.name).chain([SPECIAL]).collect();
        let wanted = line.arg(0);
        let Some(module) = names.iter().find(|module| **module == wanted) else {
            let error = line.fail_arg(0, format!("unknown module \"{wanted}\""));
            return Err(match did_you_mean(wanted, names.iter().copied()) {
                Some(hint) => error.hint(hint),
                None => error,
            });
        };
        match self.names.add(module, name.into()) {
            true => Ok(()),
            false => Err(line.fail_arg(0, format!("module \"{wanted}\" has a name here already"))),
        }
    }

    /// `server_timing on|off|string`
    fn set_server_timing(&mut self, line: &mut LineCx<'_>) -> Result {
        let timing = match line.bytes(0) {
            b"on" => ServerTimingRule::Always,
            b"off" => ServerTimingRule::Never,
            _ => ServerTimingRule::When(ValueScript::compile(line, 0)?),
        };
        line.once(&mut self.server_timing, timing)
    }
}

/// `profile_cpu number|off`
fn set_cpu(line: &mut LineCx<'_>) -> Result {
    let mut hz = settings(line).cpu;
    match line.bytes(0) {
        b"off" => line.once(&mut hz, 0)?,
        _ => line.number(&mut hz, 0..=1000)?,
    }
    settings(line).cpu = hz;
    Ok(())
}

/// `profile_blocked time|off`
fn set_blocked(line: &mut LineCx<'_>) -> Result {
    let mut blocked = settings(line).blocked;
    match line.bytes(0) {
        b"off" => line.once(&mut blocked, None)?,
        text => {
            let ms = parse_time_ms(text).filter(|&ms| ms > 0);
            let ms = ms.ok_or_else(|| line.refuse_arg(0, "invalid value"))?;
            line.once(&mut blocked, Some(ms))?;
        }
    }
    settings(line).blocked = blocked;
    Ok(())
}

/// `metrics_locations number`
fn set_metrics_locations(line: &mut LineCx<'_>) -> Result {
    let mut number = settings(line).metrics_locations;
    line.number(&mut number, 0..=MOST_LOCATIONS)?;
    settings(line).metrics_locations = number;
    Ok(())
}

/// `admin address [token=word]`
fn set_admin(line: &mut LineCx<'_>) -> Result {
    let (text, mut token) = (line.arg(0).to_owned(), None);
    let addresses = listen::parse_address(line.bytes(0))
        .map_err(|problem| line.fail_arg(0, format!("{problem} in \"{text}\" of the \"admin\" directive")))?;
    if line.args().len() > 1 {
        let word = line.arg(1).strip_prefix("token=").ok_or_else(|| line.invalid_parameter(1))?;
        if word.len() < SHORTEST_TOKEN {
            return Err(line.fail_arg(1, format!("the token must have at least {SHORTEST_TOKEN} characters")));
        }
        token = Some(word.to_owned());
    }
    for address in addresses {
        let local = address.ip().is_none_or(|ip| ip.is_loopback());
        if !local && token.is_none() {
            let error =
                line.fail_arg(0, format!("\"admin {text}\" can be reached from outside and has no token"));
            return Err(
                error.hint("give it token=WORD, or an address of this machine: unix:PATH, 127.0.0.1:PORT")
            );
        }
        if settings(line).admin.iter().any(|admin| admin.address == address) {
            return Err(line.fail_arg(0, format!("a duplicate admin {text}")));
        }
        settings(line).admin.push(AdminLine { address, token: token.clone() });
    }
    Ok(())
}

fn settings<'a>(line: &'a mut LineCx<'_>) -> &'a mut TraceSettings {
    line.ext::<ConfRegistry>().shared()
}

/// Refuses a parameter outside of `http`.
fn whole_server(line: &LineCx<'_>, i: usize, parameter: &str) -> Result {
    if line.here() == HTTP {
        return Ok(());
    }
    Err(line.fail_arg(i, format!("\"{parameter}=\" is allowed in \"http\" only")))
}

/// `1/64`, or `off`.
fn parse_share(text: &[u8]) -> Option<u32> {
    if text == b"off" {
        return Some(0);
    }
    let number = parse_number(text.strip_prefix(b"1/")?)?;
    u32::try_from(number).ok().filter(|&number| number > 0)
}

/// Adds `Server-Timing` (W3C), with what is known before the head leaves.
struct ServerTiming(Option<ValueScript>);

impl HeaderFilter for ServerTiming {
    fn is_rehearsable(&self) -> bool {
        true
    }

    fn filter(&self, x: &mut Exchange) -> Verdict {
        if x.is_subrequest() || !x.shared.is_on() {
            return Verdict::Ok;
        }
        if let Some(when) = &self.0 {
            let value = when.value(x);
            if matches!(x.text(&value), b"" | b"0") {
                return Verdict::Ok;
            }
        }
        // It was asked for, so it may allocate.
        let tree = x.shared.with_trace(|trace| {
            let mut so_far = trace.clone();
            so_far.end(clock::ticks());
            so_far.tree()
        });
        let scale = |ticks| clock::scale().ticks_to_ns(ticks);
        let value = render::server_timing(&tree, SiteTable::global(), &scale);
        let value = x.arena.push(value.as_bytes());
        x.response.add_named(Text::Static(b"Server-Timing"), Text::Span(value));
        Verdict::Ok
    }
}

/// A step that `trace_name` takes beside modules.
const SPECIAL: &str = ConnectionStep::SpecialResponse.as_str();
const PROCESS: Contexts = Contexts::MAIN.or(Contexts::HTTP);
const MORE: ArgCount = ArgCount::MORE;
const ARGS: u32 = 1;
const REDACT: &[(&str, u32)] =
    &[("args", ARGS), ("cookie", 2), ("cookies", 2), ("authorization", 4), ("off", 8)];
const SLOW_MS: u64 = 200;
const SAMPLE: u32 = 64;
const MOST_KEPT: usize = 1_000_000;
/// All sites have 16 bits.
const MOST_LOCATIONS: usize = 65_535;
/// What can be guessed guards nothing.
const SHORTEST_TOKEN: usize = 16;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_trace::Site;

    use super::*;
    use crate::conf::test::{headlines, load};
    use crate::conf::{CORE_MODULES, Configuration};
    use crate::testing;

    fn read(text: &str) -> Configuration {
        load(text, &CORE_MODULES).unwrap_or_else(|errors| panic!("{errors}"))
    }

    #[test]
    fn what_is_not_written_has_its_default() {
        let conf = read("events { } http { server { } }");
        let trace = conf.trace();
        assert_eq!((trace.level, trace.keep(), trace.cpu_hz()), (None, 1000, 99));
        assert_eq!(trace.metrics_locations(), 200);
        assert_eq!(trace.blocked(), Some(Duration::from_millis(10)));
        assert!(trace.admin().is_empty());
    }

    #[test]
    fn settings_of_the_process() {
        let conf = read(
            "profile_cpu off; admin unix:/run/weir.admin; events { } http { profile_blocked 1s;
            trace keep=5 level=sampled sample=1/8 slow=p99; admin 127.0.0.1:9180 token=0123456789abcdef;
            admin 0.0.0.0:9181 token=0123456789abcdef; server { location / { trace slow=1s; profile off; } } }",
        );
        let trace = conf.trace();
        assert_eq!((trace.level, trace.keep(), trace.cpu_hz()), (Some(TraceLevel::Sampled), 5, 0));
        assert_eq!((trace.blocked(), trace.sample), (Some(Duration::from_secs(1)), Some(8)));
        let admin: Vec<_> =
            trace.admin().iter().map(|admin| (admin.address.to_string(), admin.token.is_some())).collect();
        let expected = [("unix:/run/weir.admin", false), ("127.0.0.1:9180", true), ("0.0.0.0:9181", true)];
        assert_eq!(admin, expected.map(|(address, token)| (address.to_owned(), token)));
        assert_eq!(read("profile_blocked off; events { }").trace().blocked(), None);
        assert_eq!(read("metrics_locations 0; events { }").trace().metrics_locations(), 0);
        assert_eq!(read("events { } http { metrics_locations 9; }").trace().metrics_locations(), 9);
    }

    #[test]
    fn mistakes_are_told_in_nginx_s_words() {
        for (line, error) in [
            (
                "profile maybe;",
                "invalid value \"maybe\" in \"profile\" directive, it must be \"on\" or \"off\" in weir.conf:2:9",
            ),
            ("trace slow=fast;", "invalid value \"slow=fast\" in weir.conf:2:7"),
            ("trace sample=64;", "invalid value \"sample=64\" in weir.conf:2:7"),
            ("trace sample=1/0;", "invalid value \"sample=1/0\" in weir.conf:2:7"),
            ("trace all;", "invalid parameter \"all\" in weir.conf:2:7"),
            ("trace slow=1s; trace slow=2s;", "\"trace\" directive is duplicate in weir.conf:2:16"),
            ("server { trace keep=5; }", "\"keep=\" is allowed in \"http\" only in weir.conf:2:16"),
            ("profile_cpu 5000;", "value must be between 0 and 1000 in weir.conf:2:13"),
            ("profile_blocked 0;", "\"profile_blocked\" directive invalid value in weir.conf:2:17"),
            (
                "profile_blocked 1s; profile_blocked 2s;",
                "\"profile_blocked\" directive is duplicate in weir.conf:2:21",
            ),
            ("metrics_locations many;", "\"metrics_locations\" directive invalid number in weir.conf:2:19"),
            ("metrics_locations 70000;", "value must be between 0 and 65535 in weir.conf:2:19"),
            ("trace_name profil a;", "unknown module \"profil\" in weir.conf:2:12"),
            ("trace_name profile \"\";", "invalid value \"\" in weir.conf:2:20"),
            (
                "trace_name profile a; trace_name profile a;",
                "module \"profile\" has a name here already in weir.conf:2:34",
            ),
            ("profile_redact passwords;", "invalid value \"passwords\" in weir.conf:2:16"),
            (
                "admin 127.0.0.1:x;",
                "invalid port in \"127.0.0.1:x\" of the \"admin\" directive in weir.conf:2:7",
            ),
            ("admin 9180;", "\"admin 9180\" can be reached from outside and has no token in weir.conf:2:7"),
            (
                "admin 127.0.0.1:1 token=short;",
                "the token must have at least 16 characters in weir.conf:2:19",
            ),
            ("admin 127.0.0.1:1 secret;", "invalid parameter \"secret\" in weir.conf:2:19"),
            ("admin unix:/a; admin unix:/a;", "a duplicate admin unix:/a in weir.conf:2:22"),
            (
                "admin_host a/b;",
                "\"a/b\" is no address of an admin listener: HOST:PORT or unix:PATH in weir.conf:2:12",
            ),
            ("admin_host a; admin_host a:9180;", "a duplicate admin_host a:9180 in weir.conf:2:26"),
            (
                "admin_host a token=0123456789abcdef;",
                "invalid parameter \"token=0123456789abcdef\" in weir.conf:2:14",
            ),
        ] {
            assert_eq!(
                headlines(&format!("events {{ }} http {{\n{line} }}"), &CORE_MODULES),
                [error],
                "{line}"
            );
        }
    }

    #[test]
    fn the_name_of_the_innermost_block_counts() {
        let http = "trace_name special_response outer; trace_name profile timing; server_timing on; server {
            location / { trace_name special_response inner; } location /b { } }";
        let names = |x: &Exchange| {
            let sites = [x.plan.special_response, x.plan.header_filters[0].site].into_iter();
            sites.map(|site| SiteTable::global().info(site)).map(|info| (info.name, info.module)).collect()
        };
        for (path, special) in [("/", "inner"), ("/b", "outer")] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
            testing::run(http, &request, async |x| {
                let found: Vec<_> = names(x);
                let expected = [(special, "special_response"), ("timing", "profile")];
                assert_eq!(found, expected.map(|(name, module)| (name.into(), module.into())));
            });
        }
        testing::run("server { }", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", async |x| {
            assert_eq!(x.plan.special_response, Site::step(ConnectionStep::SpecialResponse));
        });
    }

    #[test]
    fn a_location_has_its_rule_and_may_opt_out() {
        let http =
            "trace sample=1/8; server { location / { trace slow=p99; } location /off { profile off; } }";
        testing::run(http, "GET /a HTTP/1.1\r\nHost: a\r\n\r\n", async |x| {
            assert!(x.plan.profile && x.plan.redact_args);
            let rule = x.worker.present.rules()[usize::from(x.plan.rule) - 1];
            assert_eq!((rule.slow, rule.sample), (SlowLimit::P99, 8));
            let root = x.worker.present.rules()[usize::from(x.server.plan.rule) - 1];
            assert_eq!((root.slow, root.sample), (SlowBound::Ms(200).slow(), 8));
        });
        testing::run(http, "GET /off HTTP/1.1\r\nHost: a\r\n\r\n", async |x| assert!(!x.plan.profile));
        testing::run("server { profile_redact cookie; }", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", async |x| {
            assert!(x.plan.rule == 0 && !x.plan.redact_args);
        });
    }
}

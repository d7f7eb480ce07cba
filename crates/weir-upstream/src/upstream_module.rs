//! `upstream { }`: its directives, and the variables of tries.

use std::path::PathBuf;
use std::sync::Arc;

use weir_conf::names::{ANY_UPSTREAM, HTTP, MORE, NONE, ONE, ONE_OR_TWO, STREAM_UPSTREAM, UPSTREAM};
use weir_conf::{
    ArgCount, Directive, DirectiveLine, Error, LineCx, Result, parse_number, parse_size, parse_time_ms,
};

use crate::block::balancer_hook::UpstreamDraft;
use crate::block::queue::RequestQueue;
use crate::block::retry_budget::RetryBudget;
use crate::block::upstream::{Upstream, UpstreamOrigin};
use crate::block::upstreams::Upstreams;
use crate::config::server_parameters::ServerDraft;
use crate::connection::keepalive_limits::KeepaliveLimits;
use crate::discovery::dns::FollowedName;
use crate::discovery::server_address::{lacks_port, resolve, unresolved};
use crate::discovery::server_list::{ServerEntry, ServerPlace};
use crate::discovery::source::ServerSource;
use crate::health::match_block::MatchBlocks;
use crate::health::{HealthCheck, match_block};
use crate::peer::Peer;
use crate::peer::balance::{BalanceMethod, RandomPreference};
use crate::peer::members::UpstreamMembers;
use crate::peer::outlier::OutlierLimits;
use crate::peer::response_time::TimeMeasure;
use crate::peer::sticky;
use crate::peer::sticky::StickyMethod;
use crate::request::attempt_records;
use weir_engine::conf::http_core::HttpCoreConf;
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::conf::temp_path::TempPaths;
use weir_engine::module::{BuildHooks, Module, ModuleConfs};
use weir_engine::resolver::{DEFAULT_TIMEOUT, Resolver};
use weir_engine::variable::{ValueScript, Variable};

/// The module of `upstream` blocks.
pub struct UpstreamModule;

impl Module for UpstreamModule {
    const NAME: &'static str = "upstream";
    type Conf = UpstreamConf;
    const DIRECTIVES: &'static [Directive<UpstreamConf>] = &[
        DirectiveRow::new("server", ANY_UPSTREAM, MORE, UpstreamConf::set_server)
            .syntax(
                "server address [weight=number] [max_conns=number] [max_fails=number] \
                 [fail_timeout=time] [backup] [down] [resolve] [service=name] [route=string] \
                 [slow_start=time] [drain] [bind=address]",
            )
            .doc(
                "A server of the upstream: a host name, an IP address with an optional port (80), or a \
                 UNIX-domain socket (`unix:path`). With `resolve` the peers follow DNS at run time; see \
                 docs/reference/upstreams.md and docs/explanation/names.md for Weir's own parameters.",
            ),
        DirectiveRow::new("least_conn", ANY_UPSTREAM, NONE, |c, l| c.set_method(l, BalanceMethod::LeastConn))
            .syntax("least_conn")
            .doc(
                "Balances by the number of active connections: a request goes to the peer with the \
                 fewest, relative to its weight.",
            ),
        DirectiveRow::new("least_time", UPSTREAM, ONE, UpstreamConf::set_least_time)
            .syntax("least_time header | last_byte | upload")
            .doc(
                "Balances by response time: a request goes to the peer with the least product of its \
                 average response time and its requests in flight, relative to its weight. The time is \
                 measured to the response's head (`header`) or its end (`last_byte`). With `upload`, for \
                 requests with a body of 64 KB and more, it is the time their body takes.",
            ),
        DirectiveRow::new("peak_ewma", UPSTREAM, ArgCount::range(0, 1), UpstreamConf::set_peak_ewma)
            .syntax("peak_ewma [decay=time]")
            .doc(
                "Like `least_time header`, but a response slower than the average counts fully at once; \
                 the average falls to a third in `decay` (10s).",
            ),
        DirectiveRow::new("ip_hash", UPSTREAM, NONE, |c, l| c.set_method(l, BalanceMethod::IpHash))
            .syntax("ip_hash")
            .doc(
                "Balances by the client's address: requests of one client (of one /24 network with IPv4) \
                 go to the same peer as long as it is available.",
            ),
        DirectiveRow::new("hash", ANY_UPSTREAM, ONE_OR_TWO, UpstreamConf::set_hash)
            .syntax("hash key [consistent]")
            .doc(
                "Balances by a hash of the key, which may contain variables. With `consistent` (ketama) \
                 few keys change their peer when a peer is added or removed.",
            ),
        DirectiveRow::new("random", ANY_UPSTREAM, ArgCount::range(0, 2), UpstreamConf::set_random)
            .syntax("random [two [least_conn | least_time=header | least_time=last_byte]]")
            .doc(
                "Chooses a random peer, in proportion to the weights; with `two` the better of two random \
                 peers, by active connections or by response time.",
            ),
        DirectiveRow::new("zone", ANY_UPSTREAM, ONE_OR_TWO, UpstreamConf::set_zone)
            .syntax("zone name [size]")
            .doc(
                "Names the upstream's shared memory, as in nginx, which needs it for `resolve`. The state \
                 of peers is always shared by all workers in Weir; the size is only checked.",
            ),
        DirectiveRow::new("sticky", UPSTREAM, MORE, UpstreamConf::set_sticky)
            .syntax("sticky cookie | route | learn [parameter ...]")
            .doc(
                "Binds clients to peers: by a cookie that Weir sets, by the `route` of a peer found in \
                 variables, or by sessions that are learned from responses.",
            ),
        DirectiveRow::new("source", ANY_UPSTREAM, ArgCount::range(2, 10), UpstreamConf::set_source)
            .syntax("source kind place [parameter ...]")
            .doc(
                "Where the list of peers is read from at run time: a file, a URL, etcd or Consul; see \
                 docs/reference/upstreams.md for the parameters.",
            ),
        DirectiveRow::new("state", ANY_UPSTREAM, ONE, UpstreamConf::set_state).syntax("state file").doc(
            "File that stores the list of peers as changed at run time, so that it survives a \
                 restart; used in place of `server` lines.",
        ),
        DirectiveRow::new("health_check", UPSTREAM, ANY_NUMBER, UpstreamConf::set_health_check)
            .syntax("health_check [parameter ...]")
            .doc(
                "Checks the peers periodically. A peer that fails `fails` (1) checks in a row gets no \
                 requests until it has passed `passes` (1); the defaults are `interval=5s uri=/ \
                 status=200-399`. See docs/reference/upstreams.md.",
            ),
        DirectiveRow::new("outlier", UPSTREAM, ArgCount::range(1, 4), |c, l| {
            let outlier = OutlierLimits::parse(l)?;
            l.once(&mut c.outlier, outlier)
        })
        .syntax("outlier factor [min=time] [answers=number] [time=time]")
        .doc(
            "Leaves a slow peer out for `time` (10s). Its average time to the response's head, over \
                 `answers` (20) responses, is then at least `factor` times the median of the other peers' \
                 and at least `min` (100ms).",
        ),
        DirectiveRow::new("match", HTTP, ONE.block(), |_, l| match_block::define(l))
            .syntax("match name")
            .doc(
                "Conditions for the response to a `health_check`: lines `status`, `header` and `body`, \
                 which must all hold.",
            ),
        DirectiveRow::new("queue", ANY_UPSTREAM, ONE_OR_TWO, UpstreamConf::set_queue)
            .syntax("queue number [timeout=time]")
            .doc(
                "Number of requests that may wait when no peer can take one (`max_conns`), each for up to \
                 `timeout` (60s); further requests, and those whose time is over, get 502.",
            ),
        DirectiveRow::new("retry_budget", ANY_UPSTREAM, ONE_OR_TWO, |c, l| {
            let budget = RetryBudget::parse(l)?;
            l.once(&mut c.retry_budget, budget)
        })
        .syntax("retry_budget percent% [min=number]")
        .doc(
            "Limits retries (requests passed to another peer after a failure) to this share of each \
                 worker's requests; `min` (10) retries per second are allowed in any case.",
        ),
        DirectiveRow::new("keepalive", UPSTREAM, ONE_OR_TWO, UpstreamConf::set_keepalive)
            .syntax("keepalive connections [local]")
            .default("32")
            .doc("Number of idle connections to the upstream that all workers together keep alive."),
        DirectiveRow::new("keepalive_pool", UPSTREAM, ONE, |c, l| {
            let pool = ValueScript::compile(l, 0)?;
            l.once(&mut c.keepalive_pool, pool)
        })
        .syntax("keepalive_pool name")
        .doc(
            "Keeps connections alive in pools of their own, by a name that may contain variables: a request \
                 takes only a connection of its pool. With an empty name, as without the directive, they \
                 are pooled by address alone.",
        )
        .example("upstream backend {\n    server 127.0.0.1:8080;\n    keepalive_pool $http_x_tenant;\n}"),
        DirectiveRow::new("keepalive_requests", UPSTREAM, ONE, |c, l| {
            l.number(&mut c.keepalive_requests, ..)
        })
        .syntax("keepalive_requests number")
        .default("1000")
        .doc("Number of requests after which a connection to a peer is closed."),
        DirectiveRow::new("keepalive_time", UPSTREAM, ONE, |c, l| l.time_ms(&mut c.keepalive_time))
            .syntax("keepalive_time time")
            .default("1h")
            .doc("Time after which a connection to a peer takes no further request."),
        DirectiveRow::new("keepalive_timeout", UPSTREAM, ONE, |c, l| l.time_ms(&mut c.keepalive_timeout))
            .syntax("keepalive_timeout time")
            .default("60s")
            .doc("Time for which an idle connection to a peer is kept alive."),
        DirectiveRow::new("resolver", ANY_UPSTREAM, MORE, |c, l| {
            let resolver = weir_engine::resolver::parse(l)?;
            l.once(&mut c.resolver, resolver)
        })
        .syntax("resolver address ... [valid=time] [ipv4=on|off] [ipv6=on|off] [parameters]")
        .doc(
            "Name servers that resolve the names of this upstream's servers; by default those of \
                 `http`. See docs/explanation/names.md.",
        ),
        DirectiveRow::new("resolver_timeout", ANY_UPSTREAM, ONE, |c, l| l.time_ms(&mut c.resolver_timeout))
            .syntax("resolver_timeout time")
            .default("30s")
            .doc("Time in which a name must be resolved."),
    ];
    const VARIABLES: &'static [Variable] = attempt_records::VARIABLES;
    const HOOKS: BuildHooks<UpstreamConf> =
        BuildHooks { end_upstream: Some(UpstreamConf::define), end_http: Some(end_http), ..BuildHooks::NONE };
}

/// Upstreams get the resolver of `http`; a name without a resolver, or a `match` block that does not exist, is an error.
fn end_http(http: &ModuleConfs, registry: &mut ConfRegistry) -> Vec<Error> {
    let core = http.get::<HttpCoreConf>();
    let timeout = core.resolver_timeout.unwrap_or(DEFAULT_TIMEOUT);
    let unresolved = registry.shared::<Upstreams>().use_resolver(core.resolver.as_ref(), timeout);
    let mut errors: Vec<Error> = unresolved.into_iter().collect();
    errors.extend(registry.shared::<MatchBlocks>().missing());
    errors
}

/// A plain average of the times to the response's head.
fn average() -> TimeMeasure {
    TimeMeasure { last_byte: false, peak: false, upload: false, decay: DECAY * 1_000_000 }
}

/// Milliseconds after which a time that was measured counts for a third.
const DECAY: u64 = 10_000;
/// Milliseconds after which a measured upload counts for a third: uploads are few, and one that tries a slow line
/// again takes long.
const UPLOAD_DECAY: u64 = 600_000;
/// Milliseconds of a day.
const DAY: u64 = 86_400_000;

/// Any number of arguments, also none.
const ANY_NUMBER: ArgCount = ArgCount::range(0, 32);

/// Gives the types of the arguments of the table's closures.
type DirectiveRow = Directive<UpstreamConf>;

/// The settings of one `upstream` block.
#[derive(Debug, Default)]
pub struct UpstreamConf {
    servers: Vec<ServerEntry>,
    method: Option<BalanceMethod>,
    sticky: Option<StickyMethod>,
    queue: Option<RequestQueue>,
    retry_budget: Option<RetryBudget>,
    health_check: Option<HealthCheck>,
    outlier: Option<OutlierLimits>,
    keepalive: Option<usize>,
    keepalive_pool: Option<ValueScript>,
    keepalive_requests: Option<u64>,
    keepalive_time: Option<u64>,
    keepalive_timeout: Option<u64>,
    resolver: Option<Arc<Resolver>>,
    resolver_timeout: Option<u64>,
    /// True when the block has `zone`.
    zone: bool,
    source: Option<ServerSource>,
    /// Where the list is stored; `Some(None)`: nowhere; `None`: not configured.
    kept: Option<Option<PathBuf>>,
}

impl UpstreamConf {
    /// `server address [parameters]`
    fn set_server(&mut self, line: &mut LineCx<'_>) -> Result {
        let model = Peer::plain(weir_rt::net::SockAddr::UNSPECIFIED, line.arg(0));
        let mut draft = ServerDraft { model, backup: false, resolve_later: false, service: None };
        for at in 1..line.args().len() {
            draft.parameter(line, at)?;
        }
        let ServerDraft { model, backup, resolve_later, service } = draft;
        let missing = self.method.as_ref().filter(|method| !method.is_general()).and_then(|_| {
            if backup { Some("backup") } else { (model.slow_start > 0).then_some("slow_start") }
        });
        if let Some(name) = missing {
            return Err(line.fail(format!("balancing method does not support parameter \"{name}\"")));
        }
        let has_service = service.is_some();
        let place = match FollowedName::parse(line, resolve_later, service.as_deref())? {
            Some(named) => ServerPlace::Name(Arc::new(named)),
            None => ServerPlace::Fixed(
                resolve(line.arg(0), 80).map_err(|message| unresolved(message).at(line.args()[0].span))?,
            ),
        };
        if line.here() == STREAM_UPSTREAM && !has_service && lacks_port(line.arg(0)) {
            return Err(line.fail_arg(0, format!("no port in upstream \"{}\"", line.arg(0))));
        }
        self.servers.push(ServerEntry { backup, model, place });
        Ok(())
    }

    /// As in nginx a second method replaces the first, with a warning, and methods come before `keepalive`.
    fn set_method(&mut self, line: &mut LineCx<'_>, method: BalanceMethod) -> Result {
        line.ext::<ConfRegistry>().shared::<UpstreamDraft>().chosen = true;
        if self.method.replace(method).is_some() {
            line.warn("load balancing method redefined");
        }
        Ok(())
    }

    /// `least_time header | last_byte | upload`
    fn set_least_time(&mut self, line: &mut LineCx<'_>) -> Result {
        let timed = match line.arg(0) {
            "header" => average(),
            "last_byte" => TimeMeasure { last_byte: true, ..average() },
            "upload" => TimeMeasure { upload: true, decay: UPLOAD_DECAY * 1_000_000, ..average() },
            _ => return Err(line.invalid_parameter(0)),
        };
        self.set_method(line, BalanceMethod::LeastTime(timed))
    }

    /// `peak_ewma [decay=time]`
    fn set_peak_ewma(&mut self, line: &mut LineCx<'_>) -> Result {
        let decay = match line.args().first() {
            None => DECAY,
            Some(word) => {
                let time = word.str().strip_prefix("decay=").and_then(|time| parse_time_ms(time.as_bytes()));
                time.filter(|ms| (1..=DAY).contains(ms)).ok_or_else(|| line.invalid_parameter(0))?
            }
        };
        self.set_method(
            line,
            BalanceMethod::LeastTime(TimeMeasure { peak: true, decay: decay * 1_000_000, ..average() }),
        )
    }

    /// `hash key [consistent]`
    fn set_hash(&mut self, line: &mut LineCx<'_>) -> Result {
        let key = ValueScript::compile(line, 0)?;
        let method = match line.args().get(1) {
            None => BalanceMethod::Hash(key),
            Some(word) if word.is("consistent") => BalanceMethod::Consistent(key),
            Some(_) => return Err(line.invalid_parameter(1)),
        };
        self.set_method(line, method)
    }

    /// `random [two [least_conn | least_time=header | least_time=last_byte]]`
    fn set_random(&mut self, line: &mut LineCx<'_>) -> Result {
        let two = match line.args().first() {
            None => None,
            Some(word) if word.is("two") => Some(RandomPreference::Conns),
            Some(_) => return Err(line.invalid_parameter(0)),
        };
        let two = match line.args().get(1).map(|word| word.str()) {
            None | Some("least_conn") => two,
            Some("least_time" | "least_time=header") => Some(RandomPreference::Time(average())),
            Some("least_time=last_byte") => {
                Some(RandomPreference::Time(TimeMeasure { last_byte: true, ..average() }))
            }
            Some(_) => return Err(line.invalid_parameter(1)),
        };
        self.set_method(line, BalanceMethod::Random { two })
    }

    /// `zone name [size]`: what workers know of servers is always shared, so only the arguments are checked.
    fn set_zone(&mut self, line: &mut LineCx<'_>) -> Result {
        if line.bytes(0).is_empty() {
            return Err(line.fail_arg(0, "invalid zone name \"\""));
        }
        self.zone = true;
        if line.args().len() == 2 {
            match parse_size(line.bytes(1)) {
                None => return Err(line.fail_arg(1, format!("invalid zone size \"{}\"", line.arg(1)))),
                Some(size) if size < 8 * 4096 => {
                    return Err(line.fail_arg(0, format!("zone \"{}\" is too small", line.arg(0))));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// `sticky cookie | route | learn ...`
    fn set_sticky(&mut self, line: &mut LineCx<'_>) -> Result {
        if self.sticky.is_some() {
            return Err(line.refuse("is duplicate"));
        }
        self.sticky = Some(sticky::parse(line)?);
        Ok(())
    }

    /// `source kind place [parameters]`
    fn set_source(&mut self, line: &mut LineCx<'_>) -> Result {
        if self.source.is_some() {
            return Err(line.refuse("is duplicate"));
        }
        let (source, kept) = ServerSource::parse(line)?;
        self.source = Some(source);
        if kept.is_some() && self.kept.replace(kept.flatten()).is_some() {
            return Err(line.fail("\"keep\" and \"state\" are the same"));
        }
        Ok(())
    }

    /// `state file`
    fn set_state(&mut self, line: &mut LineCx<'_>) -> Result {
        if self.kept.is_some() {
            return Err(line.refuse("is duplicate"));
        }
        let mut path = None;
        line.path(&mut path)?;
        self.kept = Some(path);
        Ok(())
    }

    /// `health_check [parameters]`
    fn set_health_check(&mut self, line: &mut LineCx<'_>) -> Result {
        if self.health_check.is_some() {
            return Err(line.refuse("is duplicate"));
        }
        self.health_check = Some(HealthCheck::parse(line)?);
        Ok(())
    }

    /// `queue number [timeout=time]`
    fn set_queue(&mut self, line: &mut LineCx<'_>) -> Result {
        if self.queue.is_some() {
            return Err(line.refuse("is duplicate"));
        }
        let number = parse_number(line.bytes(0)).and_then(|number| u32::try_from(number).ok());
        let number = number.filter(|number| *number > 0).ok_or_else(|| line.invalid_value(0))?;
        let timeout = match line.args().get(1) {
            None => Some(60_000),
            Some(word) => word.str().strip_prefix("timeout=").and_then(|time| parse_time_ms(time.as_bytes())),
        };
        let timeout = timeout.ok_or_else(|| line.invalid_parameter(1))?;
        self.queue = Some(RequestQueue::new(number, timeout));
        Ok(())
    }

    /// `keepalive connections [local]`
    fn set_keepalive(&mut self, line: &mut LineCx<'_>) -> Result {
        if self.keepalive.is_some() {
            return Err(line.refuse("is duplicate"));
        }
        let number = parse_number(line.bytes(0)).ok_or_else(|| {
            line.fail_arg(0, format!("invalid value \"{}\" in \"keepalive\" directive", line.arg(0)))
        })?;
        if line.args().get(1).is_some_and(|word| !word.is("local")) {
            return Err(line.invalid_parameter(1));
        }
        line.ext::<ConfRegistry>().shared::<UpstreamDraft>().chosen = true;
        self.keepalive = Some(number as usize);
        Ok(())
    }

    /// Makes the block's upstream.
    ///
    /// # Errors
    /// nginx's words: no servers, a second block of that name.
    pub(crate) fn define(&mut self, registry: &mut ConfRegistry, line: &DirectiveLine) -> Result {
        let name = line.args.first().map_or("", |word| word.str());
        let fail = |message: String| Error::new(message).at(line.name.span);
        if self.kept.is_some() && self.source.is_none() && !self.servers.is_empty() {
            return Err(fail("\"state\" is incompatible with \"server\"".to_owned()));
        }
        let draft = std::mem::take(registry.shared::<UpstreamDraft>());
        if self.servers.is_empty() && self.source.is_none() && self.kept.is_none() && draft.guide.is_none() {
            return Err(fail("no servers are inside upstream".to_owned()));
        }
        if !self.zone && self.servers.iter().any(|server| matches!(server.place, ServerPlace::Name(_))) {
            let message =
                format!("resolving names at run time requires upstream \"{name}\" to be in shared memory");
            return Err(fail(message));
        }
        let default = KeepaliveLimits::default();
        let keep = KeepaliveLimits {
            connections: self.keepalive.or(draft.keepalive).unwrap_or(default.connections),
            requests: self.keepalive_requests.unwrap_or(default.requests),
            time: self.keepalive_time.unwrap_or(default.time),
            timeout: self.keepalive_timeout.unwrap_or(default.timeout),
        };
        let method = self.method.take().unwrap_or_default();
        let mut upstream =
            Upstream::new(name, method, keep, UpstreamMembers::default(), UpstreamOrigin::Block);
        upstream.sticky = self.sticky.take();
        upstream.keepalive_pool = self.keepalive_pool.take();
        upstream.queue = self.queue.take();
        upstream.retry_budget = self.retry_budget;
        upstream.outlier = self.outlier;
        upstream.health_check = self.health_check.take();
        upstream.names.place = Some(line.name.span);
        upstream.names.own = self.resolver.take();
        upstream.names.timeout = self.resolver_timeout;
        upstream.source = self.source.take().map(Arc::new);
        upstream.guide = draft.guide;
        upstream.kept = self.kept.take().unwrap_or_else(|| {
            // An upstream with a source has a list to keep, wherever that is.
            let directory = Arc::new(registry.paths.prefix.join("upstream_lists"));
            upstream.source.as_ref()?;
            registry.shared::<TempPaths>().add(&directory);
            Some(directory.join(format!("{}.json", file_name(name))))
        });
        upstream.begin(std::mem::take(&mut self.servers));
        registry.shared::<Upstreams>().define(upstream).map_err(fail)
    }
}

/// An upstream's name as that of a file.
fn file_name(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let escaped = |c: char| if plain(c) { c.to_string() } else { format!("%{:x}", u32::from(c)) };
    name.to_ascii_lowercase().chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use weir_engine::ModuleDef;
    use weir_engine::conf::test::headlines;
    use weir_engine::conf::{CORE_MODULES, with_core};

    use super::UpstreamModule;

    static MODULES: [ModuleDef; CORE_MODULES.len() + 1] = with_core(&[ModuleDef::of::<UpstreamModule>()]);

    #[test]
    fn servers_that_are_resolved_need_a_resolver_and_a_zone() {
        for (text, message) in [
            (
                "upstream u { zone z 1m; server a.example resolve; }",
                "no resolver defined to resolve names at run time in upstream \"u\"",
            ),
            (
                "resolver 127.0.0.1; upstream u { server a.example resolve; }",
                "resolving names at run time requires upstream \"u\" to be in shared memory",
            ),
            (
                "upstream u { server a.example service=http; }",
                "service upstream \"a.example\" requires \"resolve\" parameter",
            ),
            (
                "upstream u { server a.example:80 resolve service=http; }",
                "service upstream \"a.example:80\" may not have port",
            ),
            (
                "upstream u { server 127.0.0.1 resolve service=http; }",
                "service upstream \"127.0.0.1\" requires domain name",
            ),
            ("upstream u { server a.example resolve service=; }", "service is empty"),
        ] {
            let found = headlines(&format!("http {{ {text} }}"), &MODULES);
            assert!(found.iter().any(|line| line.starts_with(message)), "{text}: {found:?}");
        }
    }
}

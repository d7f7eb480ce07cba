//! `reproxy`: an application names a URL in the field `X-Reproxy-URL`, and the client gets what that URL delivers in place of
//! the application's response, as H2O's `reproxy` has it.
//!
//! A header filter sees the field before all other filters do. A path of this server, and a URL of one of the server's names, is
//! an internal redirect. A URL of another host goes to the named location that `reproxy` names, if the list after it has the
//! host. Without a list no other server is ever asked. All else is 502; the field itself never reaches a client.

mod allowed;

use weir_conf::names::{ANY, MORE, ONE};
use weir_conf::{Directive, LineCx, Result};
use weir_engine::exchange::FieldPattern;
use weir_engine::filter::{FilterSlot, HeaderFilter};
use weir_engine::plan::PlanBuilder;
use weir_engine::redirect::InternalRedirect;
use weir_engine::variable::Variable;
use weir_engine::{Exchange, Module, Text, Verdict, inherit};
use weir_http::KnownField;
use weir_http::escape::{EscapeSet, escape};
use weir_http::uri_reference::{HttpAuthority, HttpReference};

use allowed::AllowedHost;

/// The module `reproxy`.
pub struct Reproxy;

impl Module for Reproxy {
    const NAME: &'static str = "reproxy";
    type Conf = ReproxyConf;
    const DIRECTIVES: &'static [Directive<ReproxyConf>] = &[
        ReproxyRow::new("reproxy", ANY, MORE, ReproxyConf::set)
            .syntax("reproxy off | on\nreproxy @location host ...")
            .default("off")
            .doc(
                "Replaces a response that has the field `X-Reproxy-URL` by what this URL delivers to \
                 a GET (or HEAD) without a body. Nothing of the response itself is sent. With `on`, paths \
                 are internal redirects. So are URLs of the server's names that have no port, or the one \
                 that the client is connected to. With a named location, URLs of other hosts go there if \
                 the list has the host; `$reproxy_url` is the URL. The list has names, `*.name` for all \
                 names below, addresses, or `*` for all hosts and ports. A name or address without a \
                 port has that of the scheme, with `:port` this one, with `:*` any. `unix:/path` is a \
                 socket, `unix:*` all sockets; URLs name them as `http://[unix:/path]/`. Redirects (301, \
                 302, 303, 307, 308) of what was asked that way are followed by the rules of the location \
                 that they came from. Anything else is 502 with a line in the error log.",
            )
            .example(
                "location / {\n    proxy_pass http://127.0.0.1:3000;\n    reproxy @fetch storage.example.com;\n}\n\
                 location @fetch {\n    resolver 127.0.0.53;\n    proxy_pass $reproxy_url;\n}",
            ),
        ReproxyRow::new("reproxy_max_delegations", ANY, ONE, |conf, line| line.number(&mut conf.most, 0..=MOST))
            .syntax("reproxy_max_delegations number")
            .default("5")
            .doc(
                "How often the response to one request may be replaced by `reproxy`, redirects \
                 included; the next time is 502. At most 10.",
            ),
    ];
    const VARIABLES: &'static [Variable] = &[Variable::new("reproxy_url", reproxy_url).volatile()];

    fn inherit(conf: &mut ReproxyConf, parent: &ReproxyConf) {
        inherit!(conf, parent, target, most);
    }

    fn install(conf: &ReproxyConf, plan: &mut PlanBuilder<'_>) {
        match &conf.target {
            None | Some(ReproxyTarget::Off) => {}
            Some(target) => {
                let filter = ReproxyFilter { target: target.clone(), most: conf.most.unwrap_or(USUAL) };
                plan.header_filter(FilterSlot::Reproxy, Self::NAME, filter);
            }
        }
    }
}

/// Gives the closures of the table the type of their argument.
type ReproxyRow = Directive<ReproxyConf>;

/// The settings of one block.
#[derive(Default)]
pub struct ReproxyConf {
    target: Option<ReproxyTarget>,
    most: Option<u8>,
}

/// `reproxy`
#[derive(Clone, PartialEq, Eq)]
enum ReproxyTarget {
    Off,
    /// This server alone.
    Own,
    /// Other hosts, too, by this named location.
    Fetched {
        location: Vec<u8>,
        hosts: Vec<AllowedHost>,
    },
}

impl ReproxyConf {
    /// `reproxy off | on | @location host ...`
    fn set(&mut self, line: &mut LineCx<'_>) -> Result {
        let count = line.args().len();
        let target = match line.bytes(0) {
            b"off" if count == 1 => ReproxyTarget::Off,
            b"on" if count == 1 => ReproxyTarget::Own,
            b"off" | b"on" => return Err(line.fail_arg(1, "hosts are allowed with a named location only")),
            [b'@', _, ..] if count == 1 => {
                return Err(line.fail_arg(0, "no hosts are named that may be asked; \"*\" allows all"));
            }
            location @ [b'@', _, ..] => {
                let hosts = (1..count)
                    .map(|at| AllowedHost::parse(line.bytes(at)).ok_or_else(|| line.invalid_value(at)));
                ReproxyTarget::Fetched { location: location.to_vec(), hosts: hosts.collect::<Result<_>>()? }
            }
            _ => return Err(line.invalid_value(0)),
        };
        line.once(&mut self.target, target)
    }
}

/// How a request came to where it is.
#[derive(Default)]
struct ReproxyCourse {
    /// How often its response was replaced.
    count: u8,
    /// It was refused: what comes now is the page that says so.
    is_over: bool,
    /// What was sent to the location that fetches; `None`: the request is at a path of this server.
    fetched: Option<FetchedUrl>,
}

/// What a request was sent to another host for.
struct FetchedUrl {
    https: bool,
    authority: HttpAuthority,
    /// Path and query.
    target: Vec<u8>,
}

impl FetchedUrl {
    /// Path and query that `reference` means in what this URL delivers.
    fn target_of(&self, reference: &HttpReference<'_>) -> Vec<u8> {
        let mut parts = self.target.splitn(2, |byte| *byte == b'?');
        reference.target(parts.next().unwrap_or_default(), parts.next())
    }

    /// All of it, as `proxy_pass` has it.
    fn text(&self) -> Vec<u8> {
        let mut text = if self.https { b"https://".to_vec() } else { b"http://".to_vec() };
        self.authority.write(&mut text);
        text.extend_from_slice(&self.target);
        text
    }
}

/// `$reproxy_url`
fn reproxy_url(x: &mut Exchange) -> Option<Text> {
    let url = x.own_lasting_if::<ReproxyCourse>()?.fetched.as_ref()?.text();
    Some(Text::Span(x.arena.push(&url)))
}

/// What holds for the responses of a location.
struct ReproxyFilter {
    target: ReproxyTarget,
    /// `reproxy_max_delegations`
    most: u8,
}

impl HeaderFilter for ReproxyFilter {
    fn filter(&self, x: &mut Exchange) -> Verdict {
        if x.response.status < 200 {
            return Verdict::Passed;
        }
        let course = x.own_lasting_if::<ReproxyCourse>();
        let (count, is_over) = course.map_or((0, false), |course| (course.count, course.is_over));
        let Some(wanted) = wanted(x, count > 0) else { return Verdict::Passed };
        if is_over {
            x.remove_response_fields(FieldPattern::Exactly(FIELD));
            return Verdict::Ok;
        }
        match self.delegate(x, count, &wanted) {
            Ok(redirect) => redirect.into(),
            Err(message) => {
                x.log_error(&message);
                x.start_over();
                x.own_lasting::<ReproxyCourse>().is_over = true;
                Verdict::Status(502)
            }
        }
    }

    fn is_plain(&self) -> bool {
        true
    }
}

/// Which URL the response of `x` names, if any: in its field, or of one that was `delegated` in `Location`.
fn wanted(x: &Exchange, delegated: bool) -> Option<Vec<u8>> {
    if let Some(value) = x.response.header_named(&x.arena, FIELD) {
        return Some(x.text(value).to_vec());
    }
    if !delegated || !matches!(x.response.status, 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = x.response.location.as_ref().or_else(|| x.response.header(KnownField::Location))?;
    Some(x.text(location).to_vec())
}

impl ReproxyFilter {
    /// Points `x`, whose response was replaced `count` times, at what `wanted` names. Nothing of its response is left then.
    ///
    /// # Errors
    /// Why the URL leads nowhere, for the log.
    fn delegate(
        &self,
        x: &mut Exchange,
        count: u8,
        wanted: &[u8],
    ) -> std::result::Result<InternalRedirect, String> {
        let shown = wanted.escape_ascii();
        if count >= self.most {
            return Err(format!("too many internal delegations, the last one to \"{shown}\""));
        }
        let reference = HttpReference::parse(wanted)
            .map_err(|_| format!("\"{shown}\" in the response is no URL to be delivered"))?;
        let goal = self
            .goal(x, &reference)
            .ok_or_else(|| format!("\"{shown}\" leads to a host that \"reproxy\" does not allow"))?;
        let redirect = match &goal {
            ReproxyGoal::Own(target) => InternalRedirect::checked(x, target)
                .ok_or_else(|| format!("\"{shown}\" leads to no path of this server"))?,
            ReproxyGoal::Fetched(location, _) => InternalRedirect::to(x, location),
        };
        x.start_over();
        let course = x.own_lasting::<ReproxyCourse>();
        course.count += 1;
        course.fetched = match goal {
            ReproxyGoal::Own(_) => None,
            ReproxyGoal::Fetched(_, url) => Some(url),
        };
        Ok(redirect)
    }

    /// Where `reference` leads; `None`: nowhere.
    fn goal(&self, x: &Exchange, reference: &HttpReference<'_>) -> Option<ReproxyGoal> {
        let base = x.own_lasting_if::<ReproxyCourse>().and_then(|course| course.fetched.as_ref());
        let target = match base {
            Some(base) => base.target_of(reference),
            None => {
                let mut path = Vec::new();
                escape(&mut path, x.uri(), EscapeSet::Uri);
                reference.target(&path, Some(x.args()).filter(|args| !args.is_empty()))
            }
        };
        let authority = match (&reference.authority, base) {
            (Some(authority), _) => authority.clone(),
            (None, Some(base)) => base.authority.clone(),
            (None, None) => return Some(ReproxyGoal::Own(target)),
        };
        if is_own(x, &authority) {
            return Some(ReproxyGoal::Own(target));
        }
        let https = reference.https.or(base.map(|base| base.https)).unwrap_or(x.connection.is_tls());
        let ReproxyTarget::Fetched { location, hosts } = &self.target else { return None };
        if !hosts.iter().any(|host| host.allows(https, &authority)) {
            return None;
        }
        let url = FetchedUrl { https, authority, target };
        Some(ReproxyGoal::Fetched(location.clone(), url))
    }
}

/// Where a URL leads.
enum ReproxyGoal {
    /// Path and query of this server.
    Own(Vec<u8>),
    /// The location that fetches, and what.
    Fetched(Vec<u8>, FetchedUrl),
}

/// Whether it is this server: one of its names, and no port, or that of the connection. What the client says in `Host` does
/// not count, or clients could choose which requests stay here.
fn is_own(x: &Exchange, authority: &HttpAuthority) -> bool {
    let HttpAuthority::Host { name, port } = authority else { return false };
    port.is_none_or(|port| x.connection.local().port() == Some(port)) && x.is_server_name(name)
}

/// The field; `X-Reproxy-URL` of H2O.
const FIELD: &[u8] = b"X-Reproxy-URL";
/// `reproxy_max_delegations`, as H2O's `max-delegations`.
const USUAL: u8 = 5;
/// More internal redirects than this are a cycle.
const MOST: u8 = 10;

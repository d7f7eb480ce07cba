//! Paths of the admin listener.

use std::io::{self, Write};
use std::process::{Command, Stdio};

use weir_http::Method;
use weir_http::json::{JsonValue, JsonWriter};
use weir_server::tls::replace;
use weir_upstream::block::list_changes::ListRefusal;

use super::connection::{AdminRequest, AdminResponse, CollectedReply, ResponseWriter};
use super::known_names::KnownNames;
use super::listener::ListenerState;
use super::{DoorSources, page, recordings};
use crate::commands::blocked::named;
use crate::commands::stall_summary::{self, StallLine};
use crate::control::protocol::{ControlQuestion, unescape};
use crate::formats::StackFormat;
use crate::metrics::{self, ExpositionFormat};
use crate::raw_stacks::RawStacks;
use crate::responses::certificates;
use crate::responses::reply::{ReplyFailure, ReplySink};
use crate::responses::upstreams::{self, UpstreamChange};
use crate::responses::{self, flame};
use crate::source::ServerSource;
use crate::symbols::{BareAddresses, ProcessSymbols, SymbolSource};

/// Responds to `request`.
pub(super) fn answer(
    door: &ListenerState,
    request: &AdminRequest,
    to: &mut ResponseWriter<'_>,
) -> io::Result<()> {
    let refusal = refusal(door, request);
    if refusal.is_none() && !to.keep_place() {
        return to.send(&AdminResponse::text(503, "too many connections are open\n"));
    }
    match (page::part(request), refusal) {
        // It asks for the token, and holds nothing that needs one.
        (Some(page), None | Some(AdminResponse { status: 401, .. })) => return to.send(&page),
        (_, Some(refusal)) => return to.send(&refusal),
        (None, None) => {}
    }
    respond(door, request, to)
}

/// The response to a client that may have one.
fn respond(door: &ListenerState, request: &AdminRequest, to: &mut ResponseWriter<'_>) -> io::Result<()> {
    let source = &door.sources.server;
    let parts: Vec<&str> = request.path.split('/').skip(1).collect();
    match parts[..] {
        [""] => to.send(&AdminResponse::text(200, INDEX)),
        ["metrics"] => to.send(&exposed(source, request)),
        ["trace"] => {
            let question = question(request, "trace");
            to.stream(media_type(&question), |reply| responses::respond(source, &question, reply))
        }
        ["trace", "avg"] => whole(source, to, bounded(question(request, "average"))),
        ["compare"] if question(request, "compare").has("progress") => {
            let question = question(request, "compare").with("json", "");
            to.stream("application/x-ndjson", |reply| progress(source, &question, reply))
        }
        ["req", id, ref rest @ ..] if matches!(rest, [] | ["spans"]) => {
            let verb = if rest.is_empty() { "explain" } else { "spans" };
            collected(source, to, question(request, verb).with("id", unescape(id)), 404)
        }
        ["top", view] => {
            let question = question(request, "top").with("of", view);
            let question = if question.has("every") { question } else { question.with("every", 0) };
            whole(source, to, question.with("n", 1))
        }
        [
            verb @ ("slow" | "reqs" | "why" | "use" | "queue" | "sites" | "blame" | "compare" | "lines"
            | "text" | "history" | "log" | "totals"),
        ] => whole(source, to, question(request, verb)),
        ["tls"] => {
            let question = question(request, "tls");
            let question = if question.has("every") { question } else { question.with("every", 0) };
            whole(source, to, question)
        }
        ["hosts"] => to.send(&hosts(door, &question(request, "hosts"))),
        ["lua", view @ ("gc" | "heap" | "jit" | "objects" | "tables" | "timers" | "traps")] => {
            whole(source, to, question(request, "lua").with("of", view))
        }
        ["dict"] => whole(source, to, question(request, "dict")),
        ["record.pftrace"] => {
            let question = question(request, "record");
            to.stream("application/octet-stream", |reply| responses::respond(source, &question, reply))
        }
        ["blocked"] => blocked(source, to, request),
        ["recordings", ref rest @ ..] => recordings::answer(source, to, request, rest),
        ["flame", kind] => profile(source, to, request, kind, None),
        ["upstreams", ref rest @ ..] => to.send(&upstreams(source, request, rest)),
        ["certificates", name] => to.send(&certificates(source, request, &unescape(name))),
        ["debug", "pprof", ref rest @ ..] => pprof(source, to, request, rest),
        _ => to.send(&AdminResponse::text(404, "there is nothing here; / lists what there is\n")),
    }
}

/// Why this client gets no data.
fn refusal(door: &ListenerState, request: &AdminRequest) -> Option<AdminResponse> {
    match door.token() {
        Some(token) => {
            let shown = request.authorization.strip_prefix("Bearer ").unwrap_or("");
            if !same(shown.as_bytes(), token.as_bytes()) {
                return Some(AdminResponse::text(
                    401,
                    "this needs Authorization: Bearer and the token of the admin line\n",
                ));
            }
        }
        // A hostile web page could point a host name of its own to this machine (DNS rebinding).
        None if door.is_tcp() && !is_local(&request.host) => {
            return Some(AdminResponse::text(
                403,
                "without token only addresses of this machine are answered: 127.0.0.1, localhost\n",
            ));
        }
        None => {}
    }
    let symbols = request.method == Method::Post && request.path == "/debug/pprof/symbol";
    let asks = matches!(request.method, Method::Get | Method::Head) || symbols;
    let changeable =
        ["/upstreams/", "/certificates/", "/recordings"].iter().any(|path| request.path.starts_with(path));
    if !asks && !changeable {
        return Some(AdminResponse::text(405, "this is only for reading\n"));
    }
    if !asks && !is_own_page(request) {
        return Some(AdminResponse::text(403, "changes are not taken from pages of other sites\n"));
    }
    // Forms of foreign pages can send much, but not this type without being asked whether they may.
    let typed = is_json(&request.content_type);
    let changes = !asks && request.method != Method::Delete;
    (changes && !typed).then(|| AdminResponse::text(415, "changes are sent as application/json\n"))
}

/// All metrics, or with `of=server` those of the server as a whole.
fn exposed(source: &ServerSource, request: &AdminRequest) -> AdminResponse {
    if question(request, "metrics").value("of") == Some("server") {
        let media_type = ExpositionFormat::Classic.media_type();
        return AdminResponse::new(200, media_type, metrics::of_server(source));
    }
    let exposition = ExpositionFormat::accepted(&request.accept);
    AdminResponse::new(200, exposition.media_type(), metrics::write(source, exposition).into_bytes())
}

/// This server and those of the `admin_host` lines. A request chooses one by its name in the table, and no other.
fn hosts(door: &ListenerState, question: &ControlQuestion) -> AdminResponse {
    let DoorSources { server, hosts } = &door.sources;
    match hosts.tables(server, question.value("host"), question.has("json")) {
        Ok(tables) => AdminResponse::new(200, media_type(question), tables),
        Err(why) => AdminResponse::text(404, why + "\n"),
    }
}

/// Upstreams: shown, and changed.
fn upstreams(source: &ServerSource, request: &AdminRequest, rest: &[&str]) -> AdminResponse {
    let rest: Vec<String> = rest.iter().map(|part| unescape(part)).collect();
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    let reads = matches!(request.method, Method::Get | Method::Head);
    if reads && matches!(rest[..], [] | [""]) {
        return json(200, upstreams::all(source));
    }
    let Some((name, below)) = rest.split_first() else {
        return wrong(405, "groups come from the configuration");
    };
    let none = || wrong(404, "there is no such upstream");
    if reads {
        return match below {
            [] | ["servers"] => upstreams::one(source, name).map_or_else(none, |body| json(200, body)),
            _ => wrong(404, "there is nothing here"),
        };
    }
    let body = || JsonValue::parse(&request.body).map_err(|error| error.to_string());
    let change = match (request.method, below) {
        (Method::Post, ["servers"]) => body().map(UpstreamChange::Add),
        (Method::Put, ["servers"]) => body().map(UpstreamChange::Replace),
        (Method::Patch, ["servers", server]) => {
            body().map(|body| UpstreamChange::Edit((*server).to_owned(), body))
        }
        (Method::Delete, ["servers", server]) => Ok(UpstreamChange::Remove((*server).to_owned())),
        _ => return wrong(405, "POST and PUT servers, PATCH and DELETE one of them"),
    };
    match change.map(|change| upstreams::change(source, name, &change)) {
        Err(why) => wrong(400, &why),
        Ok(None) => none(),
        Ok(Some(Ok(body))) => json(if request.method == Method::Post { 201 } else { 200 }, body),
        Ok(Some(Err(refusal))) => {
            let status = match refusal {
                ListRefusal::Wrong(_) => 400,
                ListRefusal::Unknown => 404,
                ListRefusal::There | ListRefusal::Sourced => 409,
            };
            wrong(status, &refusal.to_string())
        }
    }
}

/// The certificates of servers with a name: shown, and replaced.
fn certificates(source: &ServerSource, request: &AdminRequest, name: &str) -> AdminResponse {
    let none = || wrong(404, &replace::ReplaceRefusal::Unknown.to_string());
    match request.method {
        Method::Get | Method::Head => {
            return certificates::of(source, name).map_or_else(none, |body| json(200, body));
        }
        Method::Put => {}
        _ => return wrong(405, "GET and PUT certificates"),
    }
    let body = match JsonValue::parse(&request.body) {
        Ok(body) => body,
        Err(error) => return wrong(400, &error.to_string()),
    };
    let text = |key| body.field(key).and_then(JsonValue::text);
    let (Some(chain), Some(key)) = (text("certificate"), text("key")) else {
        return wrong(400, "\"certificate\" and \"key\" are needed, both PEM");
    };
    match certificates::replace(source, name, chain, key) {
        Ok(()) => certificates::of(source, name).map_or_else(none, |body| json(200, body)),
        Err(replace::ReplaceRefusal::Unknown) => none(),
        Err(refusal @ replace::ReplaceRefusal::Computed) => wrong(409, &refusal.to_string()),
        Err(replace::ReplaceRefusal::Wrong(why)) => wrong(400, &why),
    }
}

pub(super) fn json(status: u16, body: String) -> AdminResponse {
    AdminResponse::new(status, "application/json", body)
}

pub(super) fn wrong(status: u16, why: &str) -> AdminResponse {
    json(status, JsonWriter::object(|json| json.key("error").text(why)) + "\n")
}

/// In a time that does not reveal how much of it is right.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// Whether a `Host` is an address or `localhost`, with or without a port and nothing else; a request without one comes from
/// no browser.
fn is_local(host: &str) -> bool {
    if host.is_empty() {
        return true;
    }
    let (is_name, port) = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, port)) => (address.parse::<std::net::Ipv6Addr>().is_ok(), port),
            None => return false,
        },
        None => {
            let at = host.find(':').unwrap_or(host.len());
            let (name, port) = host.split_at(at);
            let is_address = name.parse::<std::net::Ipv4Addr>().is_ok();
            (is_address || name.eq_ignore_ascii_case("localhost"), port)
        }
    };
    let is_port = |port: &str| port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
    is_name && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

/// Whether a request comes from a page of this very listener, or from no page. A page of another site may send its
/// requests here, and without token nothing else distinguishes them from the administrator's.
fn is_own_page(request: &AdminRequest) -> bool {
    let origin = request.origin.as_str();
    let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    origin.is_empty() || host.is_some_and(|host| host.eq_ignore_ascii_case(&request.host))
}

/// `application/json`, perhaps with parameters.
fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or("").trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// The question a path and its arguments ask.
pub(super) fn question(request: &AdminRequest, verb: &str) -> ControlQuestion {
    let mut question = ControlQuestion::new(verb);
    for pair in request.query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = unescape(&value.replace('+', " "));
        question = match (unescape(key).as_str(), value.as_str()) {
            ("fmt" | "format", "json") => question.with("json", ""),
            ("seconds", value) => question.with("for", format!("{value}s")),
            (key, value) => question.with(key, value),
        };
    }
    if request.accept.contains("application/json") { question.with("json", "") } else { question }
}

/// An average that must not take longer than a client waits.
fn bounded(question: ControlQuestion) -> ControlQuestion {
    if question.has("for") { question } else { question.with("for", "10s") }
}

pub(super) fn media_type(question: &ControlQuestion) -> &'static str {
    if question.has("json") { "application/json" } else { "text/plain; charset=utf-8" }
}

/// Asks and sends the response as a whole.
fn whole(source: &ServerSource, to: &mut ResponseWriter<'_>, question: ControlQuestion) -> io::Result<()> {
    collected(source, to, question, 400)
}

/// The same; `none` is the status where there is none.
fn collected(
    source: &ServerSource,
    to: &mut ResponseWriter<'_>,
    question: ControlQuestion,
    none: u16,
) -> io::Result<()> {
    let mut collected = CollectedReply(to, Vec::new());
    let end = responses::respond(source, &question, &mut collected);
    let body = collected.1;
    match end {
        Ok(()) => to.send(&AdminResponse::new(200, media_type(&question), body)),
        Err(ReplyFailure::Gone(error)) => Err(error),
        Err(ReplyFailure::Wrong(text)) => to.send(&AdminResponse::text(none, text + "\n")),
    }
}

/// A response in lines of JSON: how far it is, `{"note": ...}`, what comes, and why it ends early, `{"error": ...}`.
fn progress(
    source: &ServerSource,
    question: &ControlQuestion,
    reply: &mut dyn ReplySink,
) -> Result<(), ReplyFailure> {
    match responses::respond(source, question, &mut NotedReply(reply)) {
        Err(ReplyFailure::Wrong(text)) => {
            let line = JsonWriter::object(|json| json.key("error").text(&text)) + "\n";
            Ok(reply.out(line.as_bytes())?)
        }
        end => end,
    }
}

/// Notes are lines of the response, too.
struct NotedReply<'a>(&'a mut dyn ReplySink);

impl ReplySink for NotedReply<'_> {
    fn out(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.out(bytes)
    }

    fn note(&mut self, text: &str) -> io::Result<()> {
        let line = JsonWriter::object(|json| json.key("note").text(text)) + "\n";
        self.0.out(line.as_bytes())
    }

    fn is_stopped(&mut self) -> bool {
        self.0.is_stopped()
    }
}

/// Stalls as server-sent events, each as soon as it is known; or the last ones with `follow=no`, with `merged` equal ones
/// as one.
fn blocked(source: &ServerSource, to: &mut ResponseWriter<'_>, request: &AdminRequest) -> io::Result<()> {
    let question = question(request, "blocked");
    if question.value("follow") == Some("no") {
        let mut once = ControlQuestion::new("blocked");
        for key in ["over", "n", "json"] {
            once = question.value(key).map_or(once.clone(), |value| once.with(key, value));
        }
        if question.has("merged") {
            return merged(source, to, &once.with("json", ""));
        }
        return whole(source, to, once);
    }
    let question = ControlQuestion::new("blocked")
        .with("json", "")
        .with("follow", "")
        .with("over", question.value("over").unwrap_or("0s"));
    to.stream("text/event-stream", |reply| {
        responses::respond(source, &question, &mut EventLines { reply, quiet: 0 })
    })
}

/// Equal stalls as one, by name.
fn merged(source: &ServerSource, to: &mut ResponseWriter<'_>, question: &ControlQuestion) -> io::Result<()> {
    let mut collected = CollectedReply(to, Vec::new());
    let end = responses::respond(source, question, &mut collected);
    let text = String::from_utf8_lossy(&collected.1).into_owned();
    if let Err(failure) = end {
        return match failure {
            ReplyFailure::Gone(error) => Err(error),
            ReplyFailure::Wrong(text) => to.send(&AdminResponse::text(400, text + "\n")),
        };
    }
    let text = named(&text, &mut KnownNames::of(&text));
    let stalls: Vec<StallLine> = text.lines().filter_map(|line| StallLine::parse(line).ok()).collect();
    to.send(&json(200, stall_summary::json(&stalls)))
}

/// Lines of JSON as events.
struct EventLines<'a> {
    reply: &'a mut dyn ReplySink,
    /// How often nothing was sent.
    quiet: u32,
}

impl ReplySink for EventLines<'_> {
    fn out(&mut self, bytes: &[u8]) -> io::Result<()> {
        let text = named(&String::from_utf8_lossy(bytes), &mut BareAddresses);
        let events: String = text.lines().map(|line| format!("event: blocked\ndata: {line}\n\n")).collect();
        self.quiet = 0;
        self.reply.out(events.as_bytes())
    }

    fn note(&mut self, text: &str) -> io::Result<()> {
        self.reply.note(text)
    }

    fn is_stopped(&mut self) -> bool {
        self.quiet += 1;
        // A comment now and then shows proxies on the way that the connection lives.
        (self.quiet.is_multiple_of(QUIET) && self.reply.out(b":\n\n").is_err()) || self.reply.is_stopped()
    }
}

/// `/debug/pprof`: the paths of Go's net/http/pprof.
fn pprof(
    source: &ServerSource,
    to: &mut ResponseWriter<'_>,
    request: &AdminRequest,
    rest: &[&str],
) -> io::Result<()> {
    match rest {
        [] | [""] => {
            to.send(&AdminResponse::text(200, "profiles: profile (CPU), block (waits of requests)\n"))
        }
        ["profile"] => profile(source, to, request, "cpu", Some(StackFormat::Pprof)),
        ["block"] => profile(source, to, request, "block", Some(StackFormat::Pprof)),
        ["cmdline"] => {
            let line: Vec<String> =
                std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
            to.send(&AdminResponse::text(200, line.join("\0")))
        }
        ["symbol"] => to.send(&AdminResponse::text(200, symbols(&request.body))),
        _ => to.send(&AdminResponse::text(404, "there is no such profile: profile and block are\n")),
    }
}

/// Names for the addresses in a body like `0x1f+0x2e`, a line each.
fn symbols(body: &[u8]) -> String {
    let mut out = String::from("num_symbols: 1\n");
    let Ok(mut symbols) = ProcessSymbols::new(std::process::id()) else { return out };
    for word in String::from_utf8_lossy(body).split(['+', '\n']).take(SYMBOLS) {
        let digits = word.trim().trim_start_matches("0x");
        if let Ok(address) = u64::from_str_radix(digits, 16) {
            let mut frames = Vec::new();
            symbols.frames(address, &mut frames);
            let name = frames.last().map_or("", |frame| &frame.name);
            out.push_str(&format!("{address:#x} {name}\n"));
        }
    }
    out
}

/// A flame graph or profile of the time to come.
fn profile(
    source: &ServerSource,
    to: &mut ResponseWriter<'_>,
    request: &AdminRequest,
    kind: &str,
    format: Option<StackFormat>,
) -> io::Result<()> {
    let question = question(request, "flame").with("kind", kind);
    let format = match (format, question.value("fmt").or(question.value("o"))) {
        (Some(format), _) => format,
        (None, None) if question.has("json") => StackFormat::Json,
        (None, None) => StackFormat::Svg,
        (None, Some(name)) => match StackFormat::of(name) {
            Some(format) => format,
            None => return to.send(&AdminResponse::text(400, format!("\"{name}\" is no format\n"))),
        },
    };
    match flame::stacks(source, &question, &mut CollectedReply(to, Vec::new())) {
        Ok(raw) => to.send(&AdminResponse::new(200, format.media_type(), written(&raw, format))),
        Err(ReplyFailure::Gone(error)) => Err(error),
        Err(ReplyFailure::Wrong(text)) => to.send(&AdminResponse::text(400, text + "\n")),
    }
}

/// The file, made by a `weir` command: naming addresses takes memory that the server should not grow by. Without one it
/// is made here, from addresses.
fn written(raw: &RawStacks, format: StackFormat) -> Vec<u8> {
    match command(raw, format) {
        Ok(bytes) if !bytes.is_empty() => bytes,
        _ => format.write(&raw.resolve(&mut BareAddresses)),
    }
}

pub(super) fn command(raw: &RawStacks, format: StackFormat) -> io::Result<Vec<u8>> {
    let mut child = Command::new("/proc/self/exe")
        .args(["flame", "--from", "-", "-o", format.as_str()])
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    // It reads all before it writes: neither waits for the other.
    let written = child.stdin.take().map_or(Ok(()), |mut input| input.write_all(raw.write().as_bytes()));
    let output = child.wait_with_output()?;
    written?;
    if output.status.success() { Ok(output.stdout) } else { Err(io::ErrorKind::Other.into()) }
}

const INDEX: &str = "\
Weir, seen from inside; browsers get a page here. Add fmt=json, or ask for application/json.

/metrics                            for Prometheus; of=server leaves locations out
/trace?match=/path&n=3              the next requests as trees; deep=1 with variables, patterns, files, tables by name
/trace/avg?n=1000&match=/path       the mean tree of many
/why?every=2s&n=5                   what is wrong now, in sentences, each with the command that shows more
/slow?n=20                          the slowest kept requests; order=latest, match=status=5xx, brief=1 for no trees
/req/ID                             the tree of a kept request; /req/ID/spans when each step began and ended
/top/routes                         also phases, modules, workers, upstreams, keys, closes; every=1s for the next second
/top/memory                         what memory is held for: each kind of connection, buffers, caches, traces
/top/lines                          what the lines of the configuration cost in the next second
/totals                             all that is counted, as JSON with whole histograms (weir top --hosts); of=traffic for less
/hosts                              this server and those of admin_host, each and together; host=NAME for one of them
/reqs                               requests in flight
/blocked                            blocked loops as they come (server-sent events); follow=no for the last, merged=1 for a row a cause
/blame                              which locations make which others wait
/record.pftrace?seconds=10          what was kept of them as a timeline for ui.perfetto.dev; next for all to come
/compare?a=/one/&b=/two/&rounds=10  two choices of requests, node by node; with progress=1 as lines that say how far it is
/lines?location=/img/&name=gzip     the lines of the configuration that put a module into a location
/text?file=FILE&line=N              the text of a configuration file, or of a script that was seen
/upstreams                          groups of servers; /upstreams/NAME/servers takes POST, PUT, PATCH, DELETE
/certificates/NAME                  those of the server NAME; takes PUT
/tls?every=1s                       certificates, handshakes by what they agreed upon, why others failed; of=certificates for one table
/log                                the last lines of the error logs, without arguments of requests
/use /queue /sites                  resources, queues, histograms
/history?span=minute                rates, latencies and errors over time, also span=hour; heat=LOCATION for all latencies
/flame/cpu?seconds=10&fmt=svg       also wait, wall, off; html, folded, pprof, firefox, speedscope
/recordings                         kept flame graphs; takes POST; /recordings/ID?fmt=svg one of them, takes DELETE
/debug/pprof/profile?seconds=30     for go tool pprof; also block
";
/// Addresses named at once.
const SYMBOLS: usize = 10_000;
/// Looks without news (one each 50 ms) between two comments.
const QUIET: u32 = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_this_machine() {
        for host in ["127.0.0.1:9180", "localhost", "LocalHost:80", "[::1]:9180", "::1", "", "10.0.0.1"] {
            assert!(is_local(host) || host == "::1", "{host}");
        }
        let evil = [
            "127.0.0.1:1@evil.com",
            "[::1].evil.com",
            "[::1",
            "localhost:80a",
            "127.0.0.1:",
            ":80x",
            "[1.2.3.4]:80",
        ];
        for host in ["example.com", "127.0.0.1.example.com:80", "localhost.evil"].iter().chain(&evil).copied()
        {
            if host == "127.0.0.1:" {
                continue; // an empty port is one (RFC 3986 section 3.2.3)
            }
            assert!(!is_local(host), "{host}");
        }
        assert!(same(b"abc", b"abc") && !same(b"abc", b"abd") && !same(b"abc", b"ab"));
    }

    #[test]
    fn pages_of_other_sites_are_told_from_its_own() {
        let from = |origin: &str| AdminRequest {
            origin: origin.to_owned(),
            host: "127.0.0.1:9180".to_owned(),
            ..AdminRequest::default()
        };
        assert!(is_own_page(&from("")) && is_own_page(&from("http://127.0.0.1:9180")));
        for origin in ["null", "http://evil.com", "http://127.0.0.1", "http://127.0.0.1:9180.evil.com"] {
            assert!(!is_own_page(&from(origin)), "{origin}");
        }
    }

    #[test]
    fn only_json_is_json() {
        assert!(is_json("application/json") && is_json("Application/JSON; charset=utf-8"));
        assert!(!is_json("application/jsonx") && !is_json("text/plain; application/json") && !is_json(""));
    }

    #[test]
    fn arguments_become_options() {
        let request = AdminRequest {
            query: "match=%2Fa+b&n=3&fmt=json&seconds=2".to_owned(),
            ..AdminRequest::default()
        };
        let question = question(&request, "trace");
        assert_eq!((question.value("match"), question.value("n")), (Some("/a b"), Some("3")));
        assert_eq!((question.value("for"), question.has("json")), (Some("2s"), true));
    }
}

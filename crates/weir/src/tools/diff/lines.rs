//! From a line of an access log to the request it was.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use weir_modules::log::{LogLine, LogLineFormat};
use weir_rt::SockAddr;

use super::needs::RequestNeeds;
use super::tested::{ValueClass, ValueClasses};
use crate::tools::plan::{LoadedPlan, PlanRequest, is_host};

/// What is taken for the parts of a request that the log does not have.
pub(super) struct SiteDefaults {
    tls: bool,
    host: String,
}

impl SiteDefaults {
    /// As the command line says, else what fits the old configuration: TLS if any of its addresses speaks it, and the name of
    /// its server with the most lines.
    ///
    /// # Errors
    /// `scheme` is neither `http` nor `https`.
    pub(super) fn of(
        old: &LoadedPlan,
        scheme: Option<&str>,
        host: Option<&str>,
    ) -> Result<SiteDefaults, String> {
        let tls = match scheme {
            Some("https") => true,
            Some("http") => false,
            None => old.configuration.addresses.iter().any(|address| address.ssl),
            Some(other) => return Err(format!("\"{other}\" is no scheme: http or https")),
        };
        let host = host.or_else(|| old.main_name()).unwrap_or("localhost");
        Ok(SiteDefaults { tls, host: host.to_owned() })
    }
}

/// A request of a log.
pub(super) struct LoggedRequest {
    /// All of it that a configuration looks at: requests with equal shapes have the same outcome.
    pub(super) shape: RequestShape,
    /// The status in the log.
    pub(super) status: Option<u16>,
    /// The target, where the shape has only its path.
    target: Option<String>,
    /// The client, where the shape has only the networks it is in.
    client: Option<SockAddr>,
    /// Fields of which the shape has only how tests of them end.
    fields: Vec<String>,
}

/// What requests that are decided alike have in common.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct RequestShape {
    request: PlanRequest,
    /// Of each network that the configurations look at, whether the client is in it.
    networks: Vec<bool>,
    /// Of each value that is only tested, its class.
    classes: Vec<ValueClass>,
}

impl LoggedRequest {
    /// The request as it was.
    pub(super) fn whole(self) -> PlanRequest {
        let mut shape = self.shape.request;
        for field in self.fields {
            let _unusable = shape.add_field(&field);
        }
        let (target, client) = (self.target.unwrap_or(shape.target), self.client.unwrap_or(shape.client));
        PlanRequest { target, client, ..shape }
    }
}

/// Makes requests of lines.
pub(super) struct LogRequests<'f> {
    format: &'f LogLineFormat,
    defaults: SiteDefaults,
    needs: RequestNeeds,
    /// The ports of the old configuration.
    ports: Vec<u16>,
    /// Fields that the format has and a configuration may look at.
    fields: Vec<LoggedValue>,
    /// The same of cookies.
    cookies: Vec<LoggedValue>,
}

/// A field or cookie that the format has and a configuration looks at.
struct LoggedValue {
    /// As the format has it.
    variable: String,
    /// As requests have it.
    name: String,
    /// Where only tests look at it.
    classes: Option<ValueClasses>,
}

impl<'f> LogRequests<'f> {
    pub(super) fn new(
        format: &'f LogLineFormat,
        defaults: SiteDefaults,
        needs: RequestNeeds,
        old: &LoadedPlan,
    ) -> LogRequests<'f> {
        let is_whole = format.variables().any(|variable| variable == "http_cookie");
        let looks_at_cookies =
            !needs.cookies.is_empty() || needs.tested.keys().any(|name| name.starts_with("cookie_"));
        let named = |prefix: &str, wanted: &dyn Fn(&str) -> bool| -> Vec<LoggedValue> {
            let names =
                format.variables().filter_map(|variable| Some((variable, variable.strip_prefix(prefix)?)));
            let value = |(variable, name): (&str, &str)| {
                let tests = needs.tested.get(variable).filter(|_| !wanted(name));
                let name = if prefix == FIELD { name.replace('_', "-") } else { name.to_owned() };
                let classes = tests.map(|tests| ValueClasses::new(tests));
                LoggedValue { variable: variable.to_owned(), name, classes }
            };
            let is_looked_at =
                |(variable, name): &(&str, &str)| wanted(name) || needs.tested.contains_key(*variable);
            names.filter(is_looked_at).map(value).collect()
        };
        let fields = named(FIELD, &|name| {
            needs.fields.contains(name)
                || CONDITIONS.contains(&name)
                || (name == "cookie" && looks_at_cookies && is_whole)
        });
        let mut cookies = named("cookie_", &|name| needs.cookies.contains(name));
        if is_whole {
            cookies.clear();
        }
        let ports = old.configuration.addresses.iter().filter_map(|address| address.addr.port()).collect();
        LogRequests { format, defaults, needs, ports, fields, cookies }
    }

    /// The request of a line; `None`: it is no request.
    pub(super) fn request(&mut self, line: &[u8]) -> Option<LoggedRequest> {
        let line = self.format.read(line)?;
        let value = |name: &str| text(&line, name);
        let (method, target) = head(&line)?;
        let tls = match (value("scheme"), value("https"), value("ssl_protocol")) {
            (Some(scheme), _, _) => scheme == "https",
            (None, Some(_), _) | (None, None, Some(_)) => true,
            (None, None, None) if self.has("https") || self.has("ssl_protocol") => false,
            (None, None, None) => self.defaults.tls,
        };
        let plain_name = || value("server_name").filter(|name| is_host(name));
        let authority = value("http_host").or_else(|| value("host")).or_else(plain_name);
        let mut shape = PlanRequest::of_site(tls, authority.as_deref().unwrap_or(&self.defaults.host))?;
        shape.set_method(&method).ok()?;
        let logged_port = value("server_port").and_then(|port| port.parse().ok());
        shape.port = logged_port.or_else(|| shape.port.filter(|port| self.ports.contains(port)));
        let ip = client(&value).filter(|_| self.needs.look_at_client());
        let client: Option<SockAddr> = ip.map(|ip| SocketAddr::from((ip, 54321)).into());
        let networks = self.needs.networks.iter().map(|network| network.contains_ip(ip)).collect();
        if self.needs.client {
            client.iter().for_each(|client| shape.client = client.clone());
        }
        let (fields, classes) = self.add_fields(&line, &mut shape);
        let path = target.find('?').filter(|_| !self.needs.args).map(|at| target[..=at].to_owned());
        let (target, whole) = match path {
            Some(path) => (path, Some(target)),
            None => (target, None),
        };
        shape.target = target;
        let status = value("status").and_then(|status| status.parse().ok());
        let shape = RequestShape { request: shape, networks, classes };
        Some(LoggedRequest { shape, status, target: whole, client, fields })
    }

    /// Fields that the configurations look at: those of the shape, the others, and the classes of these. A value that no
    /// request can have is left out.
    fn add_fields(&mut self, line: &LogLine<'_>, shape: &mut PlanRequest) -> (Vec<String>, Vec<ValueClass>) {
        let (mut others, mut classes) = (Vec::new(), Vec::new());
        let mut whole_cookies = Vec::new();
        let cookies = self.cookies.iter_mut().map(|cookie| (true, cookie));
        for (is_cookie, logged) in self.fields.iter_mut().map(|field| (false, field)).chain(cookies) {
            let value = text(line, &logged.variable);
            let class = logged.classes.as_mut().map(|known| known.class(value.as_deref()));
            let name = &logged.name;
            match (value, is_cookie, class) {
                (None, ..) => {}
                (Some(value), true, None) => whole_cookies.push(format!("{name}={value}")),
                (Some(value), true, Some(_)) => others.push(format!("Cookie: {name}={value}")),
                (Some(value), false, None) => {
                    let _unusable = shape.add_field(&format!("{name}: {value}"));
                }
                (Some(value), false, Some(_)) => others.push(format!("{name}: {value}")),
            }
            classes.extend(class);
        }
        if !whole_cookies.is_empty() {
            let _unusable = shape.add_field(&format!("Cookie: {}", whole_cookies.join("; ")));
        }
        (others, classes)
    }

    fn has(&self, name: &str) -> bool {
        self.format.variables().any(|variable| variable == name)
    }

    /// The variables of the format that are looked at.
    pub(super) fn read(&self) -> Vec<String> {
        let added = |name: &str| self.fields.iter().chain(&self.cookies).any(|value| value.variable == name);
        let client =
            |name: &str| self.needs.look_at_client() && matches!(name, "remote_addr" | "realip_remote_addr");
        let read = |name: &&str| ALWAYS.contains(name) || added(name) || client(name);
        self.format.variables().filter(read).map(|name| format!("${name}")).collect()
    }

    /// What the format lacks, and what is taken instead.
    pub(super) fn missing(&self) -> Vec<(String, String)> {
        let mut missing = Vec::new();
        let mut lacks = |names: &[&str], instead: &str| {
            if !names.iter().any(|name| self.has(name)) {
                let names: Vec<String> = names.iter().map(|name| format!("${name}")).collect();
                missing.push((names.join(", "), instead.to_owned()));
            }
        };
        let host = &self.defaults.host;
        lacks(&["http_host", "host", "server_name"], &format!("\"{host}\" is assumed (--host)"));
        let scheme = if self.defaults.tls { "https" } else { "http" };
        lacks(&["scheme", "https", "ssl_protocol"], &format!("{scheme} is assumed (--scheme)"));
        lacks(&["server_port", "http_host"], "an address of OLD that speaks the scheme is assumed");
        if !self.has("request") {
            lacks(&["request_method"], "GET is assumed");
        }
        if self.needs.look_at_client() {
            lacks(&["remote_addr", "realip_remote_addr"], "192.0.2.1 is assumed");
        }
        let fields = self.needs.fields.iter().map(|name| format!("http_{name}"));
        let cookies = self.needs.cookies.iter().map(|name| format!("cookie_{name}"));
        let names: BTreeSet<String> =
            fields.chain(cookies).chain(self.needs.tested.keys().cloned()).collect();
        let is_cookie = |name: &str| name.starts_with("cookie_");
        let (cookies, fields): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| is_cookie(name));
        let cookies = cookies.into_iter().filter(|_| !self.has("http_cookie"));
        for name in fields.into_iter().chain(cookies) {
            lacks(&[name.as_str()], "requests are taken to have none");
        }
        if self.needs.certificate {
            lacks(&["ssl_client_cert"], "clients are taken to have no certificate");
        }
        if self.needs.protocol {
            missing.push(("way to say the version".to_owned(), "HTTP/1.1 is assumed".to_owned()));
        }
        missing
    }
}

/// Method and target.
fn head(line: &LogLine<'_>) -> Option<(String, String)> {
    if let Some(whole) = line.value("request") {
        let mut words = whole.split(|byte| *byte == b' ');
        let (method, sent, version) = (words.next()?, words.next()?, words.next()?);
        let is_request = version.starts_with(b"HTTP/") && words.next().is_none();
        return is_request.then(|| Some((str::from_utf8(method).ok()?.to_owned(), target(sent)?))).flatten();
    }
    let sent = line.value("request_uri").or_else(|| {
        let uri = line.value("uri").or_else(|| line.value("document_uri"))?;
        let args = line.value("args").or_else(|| line.value("query_string"));
        Some(args.map_or_else(|| uri.clone(), |args| [&uri[..], b"?", &args].concat()))
    })?;
    let method = text(line, "request_method").unwrap_or_else(|| "GET".to_owned());
    Some((method, target(&sent)?))
}

/// The address that the connection came from.
fn client(value: &impl Fn(&str) -> Option<String>) -> Option<IpAddr> {
    let address = value("realip_remote_addr").or_else(|| value("remote_addr"))?;
    address.parse().ok()
}

fn text(line: &LogLine<'_>, name: &str) -> Option<String> {
    line.value(name).and_then(|value| String::from_utf8(value).ok())
}

/// A target as it can be asked for: bytes outside of ASCII are escaped, which makes the same path of them.
fn target(sent: &[u8]) -> Option<String> {
    let begins =
        matches!(sent, [b'/', ..] | b"*") || sent.starts_with(b"http://") || sent.starts_with(b"https://");
    if !begins || sent.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) {
        return None;
    }
    let mut target = String::with_capacity(sent.len());
    for byte in sent {
        match byte {
            0x80.. => target.push_str(&format!("%{byte:02X}")),
            ascii => target.push(char::from(*ascii)),
        }
    }
    Some(target)
}

/// How the variables of fields begin.
const FIELD: &str = "http_";
/// Fields that change a response by themselves.
const CONDITIONS: [&str; 4] = ["range", "if_range", "if_modified_since", "if_none_match"];
/// Variables that are always looked at.
const ALWAYS: [&str; 15] = [
    "request",
    "request_method",
    "request_uri",
    "uri",
    "document_uri",
    "args",
    "query_string",
    "http_host",
    "host",
    "server_name",
    "scheme",
    "https",
    "ssl_protocol",
    "server_port",
    "status",
];

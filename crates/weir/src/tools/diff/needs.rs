//! What of a request two configurations look at. Requests that are the same in all of that are decided once, and what a log lacks
//! of it is said.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use weir_conf::DirectiveLine;
use weir_engine::cidr::Cidr;

use super::tested::ValueTest;
use crate::tools::plan::{lines, whole};

/// What of a request configurations look at, beside method, path, host and address.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RequestNeeds {
    /// Fields, as variables have them: `user_agent`.
    pub(super) fields: BTreeSet<String>,
    /// Cookies by name.
    pub(super) cookies: BTreeSet<String>,
    /// The client's address itself.
    pub(super) client: bool,
    /// Networks of which only matters whether the client is in them.
    pub(super) networks: Vec<Cidr>,
    /// What the arguments are; that there are any is looked at always.
    pub(super) args: bool,
    /// The version of HTTP.
    pub(super) protocol: bool,
    /// The client's certificate.
    pub(super) certificate: bool,
    /// Variables of fields and cookies of which only matters how tests end.
    pub(super) tested: BTreeMap<String, Vec<ValueTest>>,
}

impl RequestNeeds {
    /// What the lines of these `http` blocks look at.
    pub(super) fn of(blocks: &[&[DirectiveLine]]) -> RequestNeeds {
        let mut words = LookedAt::default();
        for line in blocks.iter().flat_map(|block| block.iter()) {
            words.take(line);
        }
        words.settle();
        let LookedAt { mut needs, seen, decisive, tested, .. } = words;
        for name in &seen {
            needs.variable(name);
        }
        needs.args |= decisive.iter().any(|name| ARGS.contains(&name.as_str()));
        needs.fields.remove("host");
        for (name, test) in tested {
            needs.test(name, test);
        }
        needs
    }

    /// Adds a test of a variable whose value counts for nothing else.
    fn test(&mut self, variable: String, test: ValueTest) {
        let is_whole = match (variable.strip_prefix("http_"), variable.strip_prefix("cookie_")) {
            (Some(field), _) => field == "host" || self.fields.contains(field),
            (None, Some(cookie)) => self.cookies.contains(cookie),
            (None, None) => true,
        };
        if !is_whole {
            let tests = self.tested.entry(variable).or_default();
            if !tests.contains(&test) {
                tests.push(test);
            }
        }
    }

    fn variable(&mut self, name: &str) {
        match name {
            _ if name.starts_with("http_") => self.field(&name["http_".len()..]),
            _ if name.starts_with("cookie_") => {
                self.cookies.insert(name["cookie_".len()..].to_owned());
            }
            _ if name.starts_with("arg_") => self.args = true,
            _ if name.starts_with("geoip") => self.client = true,
            _ if name.starts_with("ssl_client_") => self.certificate = true,
            "remote_addr" | "binary_remote_addr" | "realip_remote_addr" => self.client = true,
            "proxy_add_x_forwarded_for" => {
                self.client = true;
                self.field("x_forwarded_for");
            }
            "remote_user" => self.field("authorization"),
            "content_length" | "content_type" => self.field(name),
            "server_protocol" | "http2" | "http3" => self.protocol = true,
            "ancient_browser" | "modern_browser" | "msie" => self.field("user_agent"),
            _ => {}
        }
    }

    /// Whether the client's address is looked at in any way.
    pub(super) fn look_at_client(&self) -> bool {
        self.client || !self.networks.is_empty()
    }

    /// A network, or a name that only its address is known by.
    fn network(&mut self, text: &str) {
        match Cidr::parse(text.as_bytes()) {
            Some((network, _)) if self.networks.len() < MOST_NETWORKS => self.networks.push(network),
            _ => self.client = true,
        }
    }

    fn field(&mut self, name: &str) {
        self.fields.insert(name.to_owned());
    }

    /// What a directive looks at without a variable.
    fn directive(&mut self, line: &DirectiveLine) {
        let first = line.args.first().map_or("", |word| word.str());
        match line.name.str() {
            "allow" | "deny" if first == "all" => {}
            "allow" | "deny" | "set_real_ip_from" => self.network(first),
            "geoip_country" | "geoip_city" => self.client = true,
            "real_ip_header" => self.field(&first.to_lowercase().replace('-', "_")),
            "auth_basic" if first != "off" => self.field("authorization"),
            "valid_referers" => self.field("referer"),
            "gzip" | "brotli" | "zstd" | "gunzip" | "gzip_static" | "brotli_static" | "zstd_static"
                if first != "off" =>
            {
                self.field("accept_encoding");
            }
            "ssl_verify_client" => self.certificate |= first != "off",
            "mp4" | "flv" => self.args = true,
            _ => {}
        }
    }
}

/// The variables that lines look at.
#[derive(Default)]
struct LookedAt {
    needs: RequestNeeds,
    /// All of them.
    seen: HashSet<String>,
    /// Those that decide something, and are not only handed on.
    decisive: HashSet<String>,
    /// Variables that lines define: of no account unless the variable is looked at.
    defined: Vec<DefinedVariable>,
    /// Variables that are tested, each time with the test.
    tested: Vec<(String, ValueTest)>,
}

/// A variable that a line defines.
struct DefinedVariable {
    name: String,
    /// What that line looks at.
    looked: HashSet<String>,
    /// What it only tests.
    tested: Option<(String, ValueTest)>,
}

impl LookedAt {
    fn take(&mut self, line: &DirectiveLine) {
        let name = line.name.str();
        if is_without_effect(name) {
            return;
        }
        match (name, &line.args[..]) {
            ("map", [_, variable]) if let Some((name, test)) = tested_map(line) => {
                let values = lines(line).iter().flat_map(|entry| &entry.args);
                let looked = values.flat_map(|value| variables(value.str())).collect();
                self.define(variable.str(), looked, Some((name, test)));
            }
            ("map" | "split_clients" | "geo", [.., variable]) => {
                let mut looked = variables(&whole(line));
                if name == "geo" && line.args.len() == 1 {
                    match networks(line) {
                        Some(networks) => networks.iter().for_each(|network| self.needs.network(network)),
                        None => drop(looked.insert("remote_addr".to_owned())),
                    }
                }
                self.define(variable.str(), looked, None);
            }
            ("set", [variable, value]) => self.define(variable.str(), variables(value.str()), None),
            ("if", _) if let Some((name, test)) = ValueTest::of_condition(line).filter(is_testable) => {
                self.tested.push((name, test));
                lines(line).iter().for_each(|inner| self.take(inner));
            }
            ("gzip_disable", _) => self.test("http_user_agent", ValueTest::of_gzip_disable(line)),
            ("valid_referers", _) if let Some(test) = ValueTest::of_referers(line) => {
                self.test("http_referer", test);
            }
            _ => {
                self.needs.directive(line);
                let args: Vec<&str> = line.args.iter().map(|word| word.str()).collect();
                let handed_on = match name {
                    "try_files" => args.len() - args.len().min(1),
                    _ if HAND_ON.contains(&name) || name.ends_with("_pass") => 0,
                    _ => args.len(),
                };
                let (decisive, rest) = args.split_at(handed_on);
                self.decisive.extend(variables(&decisive.join(" ")));
                self.seen.extend(variables(&rest.join(" ")));
                lines(line).iter().for_each(|inner| self.take(inner));
            }
        }
    }

    fn test(&mut self, variable: &str, test: ValueTest) {
        self.tested.push((variable.to_owned(), test));
    }

    fn define(&mut self, variable: &str, mut looked: HashSet<String>, tested: Option<(String, ValueTest)>) {
        let name = variable.trim_start_matches('$').to_lowercase();
        looked.remove(&name);
        self.defined.push(DefinedVariable { name, looked, tested });
    }

    /// Follows variables to what defines them.
    fn settle(&mut self) {
        self.seen.extend(self.decisive.iter().cloned());
        while let Some(at) = self.defined.iter().position(|one| self.seen.contains(&one.name)) {
            let DefinedVariable { looked, tested, .. } = self.defined.swap_remove(at);
            self.seen.extend(looked.iter().cloned());
            self.decisive.extend(looked);
            self.tested.extend(tested);
        }
    }
}

/// The test of a `map`, where its variable is one whose value only tests may look at.
fn tested_map(map: &DirectiveLine) -> Option<(String, ValueTest)> {
    ValueTest::of_map(map).filter(is_testable)
}

/// Whether a log has the variable as the request has it: a field or a cookie, which no line changes.
fn is_testable((variable, _): &(String, ValueTest)) -> bool {
    variable.starts_with("http_") || variable.starts_with("cookie_")
}

/// The networks of a `geo`; `None` where it has anything else than networks with values.
fn networks(geo: &DirectiveLine) -> Option<Vec<&str>> {
    let words = lines(geo).iter().map(|line| line.name.str()).filter(|word| *word != "default");
    words.map(|word| Cidr::parse(word.as_bytes()).map(|_| word)).collect()
}

/// Whether lines of this name have no part in what is compared: logs, limits, what upstreams and caches are sent.
fn is_without_effect(name: &str) -> bool {
    ELSEWHERE.contains(&name)
        || name.starts_with("limit_req")
        || name.starts_with("limit_conn")
        || name.contains("_by_lua")
        || SENT.iter().any(|end| name.ends_with(end))
        || CACHED.iter().any(|end| name.ends_with(end))
}

/// Whether lines of this name say what an upstream is sent.
pub(super) fn is_sent(name: &str) -> bool {
    SENT.iter().any(|end| name.ends_with(end))
}

/// The names of the variables in a text, in small letters.
pub(super) fn variables(text: &str) -> HashSet<String> {
    let names = text.split('$').skip(1).map(|rest| {
        let rest = rest.strip_prefix('{').unwrap_or(rest);
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        rest[..end].to_lowercase()
    });
    names.filter(|name| !name.is_empty()).collect()
}

/// Networks that a client is looked for in; with more of them its address itself counts.
const MOST_NETWORKS: usize = 256;
/// Variables with the arguments in them.
const ARGS: [&str; 4] = ["args", "query_string", "request_uri", "request"];
/// Directives that hand arguments on as they are.
const HAND_ON: [&str; 7] =
    ["rewrite", "return", "error_page", "add_header", "more_set_headers", "proxy_redirect", "index"];
const ELSEWHERE: [&str; 6] = ["log_format", "access_log", "error_log", "upstream", "types", "include"];
const SENT: [&str; 6] =
    ["_param", "_set_header", "_set_body", "_pass_request_headers", "_pass_request_body", "proxy_method"];
const CACHED: [&str; 4] = ["_cache_key", "_cache_bypass", "_no_cache", "_cookie_path"];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weir_conf::{ConfTree, MemoryFiles};

    use super::*;

    fn needs(text: &str) -> RequestNeeds {
        let files = MemoryFiles::new().with("/n.conf", text);
        let load = weir_conf::load(Path::new("/n.conf"), Path::new("/"), &files, |_| false, None);
        let tree: ConfTree = load.unwrap_or_else(|failure| panic!("{:?}", failure.errors));
        RequestNeeds::of(&[&tree.lines])
    }

    #[test]
    fn what_only_logs_and_upstreams_get_is_not_looked_at() {
        let found = needs(
            "log_format a '$http_cookie $remote_addr'; map $http_upgrade $up { default x; }
             limit_req_zone $binary_remote_addr zone=z:1m rate=1r/s;
             server { proxy_set_header A $up; fastcgi_param B $args; deny all;
                      location / { try_files $uri /i.php?$args; } location /a { return 301 /b$is_args$args; } }",
        );
        assert_eq!(found, RequestNeeds::default());
    }

    #[test]
    fn what_is_only_tested_is_not_looked_at_whole() {
        let tested = |text: &str| {
            let found = needs(text);
            let names = found.tested.iter().map(|(name, tests)| format!("{name} {}", tests.len()));
            (names.collect::<Vec<_>>().join(" "), found.fields.iter().cloned().collect::<Vec<_>>().join(" "))
        };
        let of = |tested: &str, fields: &str| (tested.to_owned(), fields.to_owned());
        let map = "map $http_user_agent $bot { default 0; ~bot 1; }";
        assert_eq!(
            tested(&format!("{map} {map} server {{ if ($bot) {{ return 403; }} }}")),
            of("http_user_agent 1", "")
        );
        assert_eq!(
            tested("server { if ( $http_x ~* a ) { return 403; } if ($http_x = b) { return 404; } }"),
            of("http_x 2", "")
        );
        assert_eq!(
            tested("server { valid_referers none *.a.test; gzip_disable msie6 b; }"),
            of("http_referer 1 http_user_agent 1", "")
        );
        // Nothing tests it, its value is used too, or part of a longer text, or compared with another variable.
        assert_eq!(tested(map), of("", ""));
        for whole in ["return 200 $http_user_agent;", "set $a x$http_user_agent; return 200 $a;"] {
            let text = format!("{map} server {{ if ($bot) {{ {whole} }} }}");
            assert_eq!(tested(&text), of("", "user_agent"), "{whole}");
        }
        let joined = "map $http_a:$http_b $c { default 0; } server { return 200 $c; }";
        assert_eq!(tested(joined), of("", "a b"));
        assert_eq!(tested("server { if ($http_a = $http_b) { return 403; } }"), of("", "a b"));
        let names = "map $http_a $c { hostnames; .a.test 1; } server { return 200 $c; }";
        assert_eq!(tested(names), of("", "a"));
        assert_eq!(tested("server { valid_referers a.test/x; }"), of("", "referer"));
        // What entries come to is looked at.
        let values = "map $http_a $c { default $http_b; } server { return 200 $c; }";
        assert_eq!(tested(values), of("http_a 1", "b"));
        assert_eq!(tested("server { if ($http_host = a) { return 403; } }"), of("", ""));
    }

    #[test]
    fn what_decides_is_looked_at_also_through_variables() {
        let found = needs(
            "map $http_user_agent $bot { default 0; ~(?<kind>a) 1; } map $bot$cookie_who $both { default 0; }
             geo $office { default 0; }
             server { set $a $query_string; if ($a) { return 403; } add_header X $both; allow 10.0.0.0/8;
                      auth_basic x; gzip on; if ($office) { return 204; } }",
        );
        let names = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(" ");
        assert_eq!(names(&found.fields), "accept_encoding authorization");
        assert_eq!(names(&found.cookies), "who");
        assert!(!found.client && found.networks.len() == 1 && found.args && !found.protocol);
        let named = needs("geo $office { default 0; 10.0.0.0/8 1; } server { allow a.test; }");
        assert!(named.client && named.networks.len() == 1);
        assert!(needs("geo $o { ranges; 10.0.0.0-10.0.0.9 1; } server { return 200 $o; }").client);
        assert!(!needs("server { try_files $uri$args =404; }").client);
        assert!(
            needs("server { try_files $uri$args =404; }").args && needs("server { return 200 $arg_a; }").args
        );
    }
}

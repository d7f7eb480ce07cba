//! Names of servers that are looked up once, when the configuration is read: a server that moves is not found again
//! before the next reload, whatever `resolver` says.

use weir_conf::{Error, Word};

use super::scope::LintScope;

pub(super) fn trap(scope: &LintScope<'_>, found: &mut Vec<Error>) {
    if scope.name() == "http" {
        for block in scope.all("upstream").filter_map(|line| line.block.as_ref()) {
            let servers = block.lines.iter().filter(|line| line.name.is("server"));
            let fixed = servers.filter(|line| !line.args.iter().any(|word| word.is("resolve")));
            found.extend(fixed.filter_map(|line| once(scope, line.args.first()?)));
        }
    }
    let passes = scope.lines.iter().filter(|line| PASSES.contains(&line.name.str()));
    found.extend(passes.filter_map(|line| once(scope, line.args.first()?)).collect::<Vec<_>>());
}

/// The trap at `word`, if it names a server that is looked up once.
fn once(scope: &LintScope<'_>, word: &Word) -> Option<Error> {
    let host = host(word.str())?;
    if is_upstream(scope, host) || is_upstream(scope, whole(word.str())) {
        return None;
    }
    let message = format!(
        "\"{host}\" is looked up once, when the configuration is read: \"server {host} resolve;\" in an \"upstream\" \
         follows it"
    );
    Some(Error::warning(message).at(word.span))
}

/// Whether an `upstream` has this name.
fn is_upstream(scope: &LintScope<'_>, name: &str) -> bool {
    scope.outwards().any(|scope| scope.has_upstream(name))
}

/// What a `*_pass` goes to: without scheme and path.
fn whole(text: &str) -> &str {
    let text = text.split_once("://").map_or(text, |(_, rest)| rest);
    text.split('/').next().unwrap_or(text)
}

/// The name in `[scheme://]name[:port][/path]`; `None`: an address, a path, or something of variables. The names of this
/// machine do not change.
fn host(text: &str) -> Option<&str> {
    if text.contains('$') || text.contains("unix:") {
        return None;
    }
    let host = whole(text);
    if host.starts_with('[') {
        return None;
    }
    let host = host.split(':').next().unwrap_or(host);
    let is_name = host.bytes().any(|byte| byte.is_ascii_alphabetic());
    (is_name && !host.eq_ignore_ascii_case("localhost")).then_some(host)
}

const PASSES: [&str; 6] =
    ["proxy_pass", "fastcgi_pass", "uwsgi_pass", "scgi_pass", "grpc_pass", "memcached_pass"];

#[cfg(test)]
mod tests {
    use crate::conf::lint::testing::found;

    #[test]
    fn a_name_that_is_looked_up_once() {
        let reported = |name: &str| {
            format!(
                "2: \"{name}\" is looked up once, when the configuration is read: \"server {name} resolve;\" in an \
                 \"upstream\" follows it"
            )
        };
        for (line, name) in [
            ("proxy_pass http://backend.example;", "backend.example"),
            ("proxy_pass https://backend:8443/a/;", "backend"),
            ("fastcgi_pass php:9000;", "php"),
            ("grpc_pass grpcs://api.example;", "api.example"),
        ] {
            assert_eq!(found(&format!("location / {{\n{line} }}")), [reported(name)], "{line}");
        }
        let group =
            "} upstream u {\nserver a.example:80; server b.example resolve; server 127.0.0.1; } server {";
        assert_eq!(found(group), [reported("a.example")]);
    }

    #[test]
    fn addresses_groups_and_variables_are_good() {
        for good in [
            "location / { proxy_pass http://127.0.0.1:80; }",
            "location / { proxy_pass http://[::1]; }",
            "location / { proxy_pass http://localhost; }",
            "location / { proxy_pass http://unix:/run/app.sock:/; }",
            "location / { proxy_pass http://$arg_none_of_it; proxy_set_header A b; internal; }",
            "location / { fastcgi_pass unix:/run/php.sock; }",
            "location / { proxy_pass http://u/a; } } upstream u { server 127.0.0.1; } server {",
            "location / { proxy_pass http://u:80; } } upstream u:80 { server 127.0.0.1; } server {",
        ] {
            assert_eq!(found(good), [""; 0], "{good}");
        }
    }
}

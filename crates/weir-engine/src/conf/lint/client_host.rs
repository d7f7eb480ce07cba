//! What the client says of itself where it decides to whom the server talks: `proxy_pass http://$http_host` asks any
//! host, also those inside that only this server can reach; `Host: $http_host` hands on an unchecked name.

use weir_conf::{DirectiveLine, Error, Word};

use super::scope::LintScope;

pub(super) fn trap(scope: &LintScope<'_>, found: &mut Vec<Error>) {
    let shape = |line: &DirectiveLine| match line.name.str() {
        "proxy_pass" | "grpc_pass" => target(scope, line),
        "proxy_set_header" | "grpc_set_header" => host_header(line),
        "return" => redirect(line),
        _ => None,
    };
    let mut shapes = scope.lines.iter().filter_map(shape).peekable();
    // What an `internal` location serves was requested by the server itself. Looked for last: there may be very many
    // lines around.
    if shapes.peek().is_some() && !scope.outwards().any(|scope| scope.has("internal")) {
        found.extend(shapes);
    }
}

/// `proxy_pass http://$host`: the authority is the client's choice.
fn target(scope: &LintScope<'_>, line: &DirectiveLine) -> Option<Error> {
    let word = line.args.first()?;
    let name = variables(authority(word.str())?).find(|name| is_clients(scope, name))?;
    let message = format!("the client chooses whom this asks: \"${name}\" is what it sends");
    let hint = "name the hosts that may be asked, by a \"map\" or an \"upstream\"";
    Some(Error::warning(message).at(word.span).hint(hint))
}

/// `proxy_set_header Host $http_host`: unchecked, and another than that of the request line.
fn host_header(line: &DirectiveLine) -> Option<Error> {
    let [name, value] = &line.args[..] else { return None };
    let raw = name.str().eq_ignore_ascii_case("host") && value.str().contains("$http_host");
    raw.then(|| raw_host(value, "\"$http_host\" hands on the client's Host field unchecked"))
}

/// `return 301 https://$http_host/`
fn redirect(line: &DirectiveLine) -> Option<Error> {
    let word = line.args.last()?;
    let raw = authority(word.str()).is_some_and(|text| variables(text).any(|name| name == "http_host"));
    raw.then(|| raw_host(word, "\"$http_host\" redirects to whatever the client's Host field says"))
}

fn raw_host(word: &Word, message: &str) -> Error {
    Error::warning(message).at(word.span).hint("\"$host\" is checked, \"$server_name\" is yours")
}

/// What is between `//` and the path, which may be a variable's.
fn authority(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let end = PATHS.iter().filter_map(|path| rest.find(path)).min();
    Some(&rest[..end.unwrap_or(rest.len())])
}

/// The names of variables in `text`.
fn variables(text: &str) -> impl Iterator<Item = &str> {
    text.split('$').skip(1).map(|rest| {
        let rest = rest.strip_prefix('{').unwrap_or(rest);
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        &rest[..end]
    })
}

/// Whether the client sets the variable, itself or by way of a `set`. What a `map` or `geo` makes is not: it was chosen.
fn is_clients(scope: &LintScope<'_>, name: &str) -> bool {
    let by_set = |scope: &LintScope<'_>| scope.sets_from_client(name, |value| variables(value).any(is_sent));
    is_sent(name) || scope.outwards().any(by_set)
}

/// Whether the variable is a part of what the client sends.
fn is_sent(name: &str) -> bool {
    CLIENTS.contains(&name)
        || ["http_", "arg_", "cookie_"].iter().any(|kind| name.starts_with(kind))
        || !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
}

const CLIENTS: [&str; 3] = ["host", "args", "query_string"];
/// Where an authority ends.
const PATHS: [&str; 6] = ["/", "?", "$uri", "$request_uri", "$document_uri", "$is_args"];

#[cfg(test)]
mod tests {
    use crate::conf::lint::testing::found;

    #[test]
    fn hosts_that_the_client_names() {
        let chosen = |name| format!("1: the client chooses whom this asks: \"${name}\" is what it sends");
        for (text, message) in [
            ("location / { proxy_pass http://$host; }", chosen("host")),
            ("location / { proxy_pass https://$http_host$request_uri; }", chosen("http_host")),
            ("location / { proxy_pass http://${arg_to}:80/x; }", chosen("arg_to")),
            ("location ~ ^/p/(.*)$ { proxy_pass http://$1; }", chosen("1")),
            ("set $to $arg_to; location / { proxy_pass http://$to; }", chosen("to")),
            (
                "proxy_set_header Host $http_host;",
                "1: \"$http_host\" hands on the client's Host field unchecked".to_owned(),
            ),
            (
                "return 301 https://$http_host$request_uri;",
                "1: \"$http_host\" redirects to whatever the client's Host field says".to_owned(),
            ),
        ] {
            assert_eq!(found(text), [message], "{text}");
        }
    }

    #[test]
    fn hosts_that_the_server_names() {
        for good in [
            "location / { proxy_pass http://backend$request_uri; }",
            "location / { proxy_pass http://127.0.0.1:80/$host/; }",
            "location / { proxy_pass http://$mapped; }",
            "location / { internal; proxy_pass http://$arg_to; }",
            "set $to backend; location / { proxy_pass http://$to; }",
            "proxy_set_header Host $host; proxy_set_header X-Host $http_host;",
            "return 301 https://$host$request_uri;",
            "return 200 $http_host;",
        ] {
            assert_eq!(found(good), [""; 0], "{good}");
        }
    }
}

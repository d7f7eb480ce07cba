//! Which server a host has, which location a path, which line of a `map` a value: the rules of nginx's documentation.

use super::pattern::{Pattern, PatternMatch};
use super::plan::{LocationKind, RouteLocation, RouteMap, RouteServer};

/// The server of a host, and what its expression has captured.
pub(super) fn server_of<'p>(
    servers: &'p [RouteServer],
    host: &str,
) -> (&'p RouteServer, Option<PatternMatch>) {
    let names =
        || servers.iter().flat_map(|server| server.names.iter().map(move |name| (server, name.as_str())));
    let literal = || names().filter(|(_, name)| !name.starts_with('~'));
    // `.name` is the name and all below it.
    let is_exact = |name: &str| name == host || name.strip_prefix('.') == Some(host);
    if let Some((server, _)) = literal().find(|(_, name)| is_exact(name)) {
        return (server, None);
    }
    if let Some(server) = by_asterisk(literal, host) {
        return (server, None);
    }
    let by_expression = names().find_map(|(server, name)| {
        let found = Pattern::new(name.strip_prefix('~')?, true).find(host)?;
        Some((server, Some(found)))
    });
    by_expression
        .unwrap_or_else(|| (servers.iter().find(|server| server.is_default).unwrap_or(&servers[0]), None))
}

/// What the longest name with an asterisk at its start that is the host's has, or else the longest with one at its end.
fn by_asterisk<'p, T, N: Iterator<Item = (T, &'p str)>>(names: impl Fn() -> N, host: &str) -> Option<T> {
    let longest = |is_it: fn(&str, &str) -> bool| {
        let all = names().filter(|(_, name)| is_it(name, host));
        all.max_by_key(|(_, name)| name.trim_start_matches('*').len())
    };
    longest(has_wild_start).or_else(|| longest(has_wild_end)).map(|(found, _)| found)
}

/// `*.name` and `.name`.
fn has_wild_start(name: &str, host: &str) -> bool {
    let end = name.strip_prefix('*').unwrap_or(name);
    end.starts_with('.') && host.len() > end.len() && host.ends_with(end)
}

/// `name.*`.
fn has_wild_end(name: &str, host: &str) -> bool {
    name.strip_suffix('*').is_some_and(|start| host.len() > start.len() && host.starts_with(start))
}

/// A location with those around it, outermost first, and what its expression has captured.
#[derive(Clone, Debug, Default)]
pub(super) struct FoundLocation<'p> {
    pub(super) chain: Vec<&'p RouteLocation>,
    pub(super) captured: Option<PatternMatch>,
}

/// The location of a path. An exact one ends the search. Else the longest prefix is remembered, and the search goes on in it; unless
/// it forbids that (`^~`), or something in it has matched by expression, the first expression beside it is taken.
pub(super) fn location_of<'p>(locations: &'p [RouteLocation], path: &str) -> Option<FoundLocation<'p>> {
    find(locations, path).map(|search| search.found)
}

struct LocationSearch<'p> {
    found: FoundLocation<'p>,
    /// Nothing around it may be tried.
    is_final: bool,
}

impl<'p> LocationSearch<'p> {
    fn ending(one: &'p RouteLocation, is_final: bool) -> LocationSearch<'p> {
        LocationSearch { found: FoundLocation { chain: vec![one], captured: None }, is_final }
    }
}

fn find<'p>(locations: &'p [RouteLocation], path: &str) -> Option<LocationSearch<'p>> {
    let of_kind = |kind| locations.iter().filter(move |one: &&RouteLocation| one.kind == kind);
    if let Some(exact) = of_kind(LocationKind::Exact).find(|one| one.path == path) {
        return Some(LocationSearch::ending(exact, true));
    }
    let prefixes = of_kind(LocationKind::Prefix).chain(of_kind(LocationKind::FirmPrefix));
    let longest = prefixes.filter(|one| path.starts_with(&one.path)).max_by_key(|one| one.path.len());
    let by_prefix = longest.map(|one| find_in(one, path));
    let forbids = longest.is_some_and(|one| one.kind == LocationKind::FirmPrefix);
    if forbids || by_prefix.as_ref().is_some_and(|search| search.is_final) {
        return by_prefix;
    }
    let by_expression = locations.iter().find_map(|one| {
        let ignores_case = match one.kind {
            LocationKind::Expression => false,
            LocationKind::AnyCaseExpression => true,
            _ => return None,
        };
        let captured = Pattern::new(&one.path, ignores_case).find(path)?;
        let mut search = find_in(one, path);
        search.found.captured.get_or_insert(captured);
        Some(LocationSearch { is_final: true, ..search })
    });
    by_expression.or(by_prefix)
}

/// What a location that may be taken comes to: one in it, or itself.
fn find_in<'p>(one: &'p RouteLocation, path: &str) -> LocationSearch<'p> {
    let Some(mut inner) = find(&one.nested, path) else { return LocationSearch::ending(one, false) };
    inner.found.chain.insert(0, one);
    inner
}

/// The value of a `map` for a text: strings first, then (with `hostnames`) names with asterisks, then expressions in their order.
pub(super) fn mapped<'p>(map: &'p RouteMap, text: &str) -> (&'p str, Option<PatternMatch>) {
    let small = text.to_ascii_lowercase();
    let lines = || map.lines.iter().map(|(pattern, value)| (pattern.as_str(), value.as_str()));
    let special = |pattern: &str| pattern == "default" || pattern.starts_with('~');
    let host = small.strip_suffix('.').filter(|_| map.has_hostnames).unwrap_or(&small);
    let literal =
        || lines().filter(|(pattern, _)| !special(pattern)).map(|(pattern, value)| (value, pattern));
    let exact = literal().find(|(_, pattern)| pattern.to_ascii_lowercase() == host);
    let exact = exact.map(|(value, _)| value);
    let wild = || by_asterisk(literal, host).filter(|_| map.has_hostnames);
    if let Some(value) = exact.or_else(wild) {
        return (value, None);
    }
    let by_expression = lines().find_map(|(pattern, value)| {
        let pattern = pattern.strip_prefix('~')?;
        let ignores_case = pattern.starts_with('*');
        let found = Pattern::new(pattern.trim_start_matches('*'), ignores_case).find(text)?;
        Some((value, Some(found)))
    });
    by_expression.unwrap_or_else(|| {
        (lines().find(|(pattern, _)| *pattern == "default").map_or("", |(_, value)| value), None)
    })
}

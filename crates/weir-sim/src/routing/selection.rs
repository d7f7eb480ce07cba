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
    if let Some((server, _)) = longest(literal().filter(|(_, name)| has_wild_start(name, host))) {
        return (server, None);
    }
    if let Some((server, _)) = longest(literal().filter(|(_, name)| has_wild_end(name, host))) {
        return (server, None);
    }
    let by_expression = names().find_map(|(server, name)| {
        let found = Pattern::new(name.strip_prefix('~')?, true).find(host)?;
        Some((server, Some(found)))
    });
    by_expression
        .unwrap_or_else(|| (servers.iter().find(|server| server.is_default).unwrap_or(&servers[0]), None))
}

fn longest<'p, T>(names: impl Iterator<Item = (T, &'p str)>) -> Option<(T, &'p str)> {
    names.max_by_key(|(_, name)| name.trim_start_matches('*').len())
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

fn find<'p>(locations: &'p [RouteLocation], path: &str) -> Option<LocationSearch<'p>> {
    let of_kind = |kind| locations.iter().filter(move |one: &&RouteLocation| one.kind == kind);
    if let Some(exact) = of_kind(LocationKind::Exact).find(|one| one.path == path) {
        let found = FoundLocation { chain: vec![exact], captured: None };
        return Some(LocationSearch { found, is_final: true });
    }
    let prefixes = of_kind(LocationKind::Prefix).chain(of_kind(LocationKind::FirmPrefix));
    let longest = prefixes.filter(|one| path.starts_with(&one.path)).max_by_key(|one| one.path.len());
    let by_prefix = longest.map(|one| match find(&one.nested, path) {
        Some(inner) => within(one, inner),
        None => {
            let found = FoundLocation { chain: vec![one], captured: None };
            LocationSearch { found, is_final: false }
        }
    });
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
        let mut search = match find(&one.nested, path) {
            Some(inner) => within(one, inner),
            None => {
                let found = FoundLocation { chain: vec![one], captured: None };
                LocationSearch { found, is_final: true }
            }
        };
        search.found.captured.get_or_insert(captured);
        Some(LocationSearch { is_final: true, ..search })
    });
    by_expression.or(by_prefix)
}

fn within<'p>(outer: &'p RouteLocation, mut inner: LocationSearch<'p>) -> LocationSearch<'p> {
    inner.found.chain.insert(0, outer);
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
    let wild = || {
        longest(literal().filter(|(_, pattern)| has_wild_start(pattern, host)))
            .or_else(|| longest(literal().filter(|(_, pattern)| has_wild_end(pattern, host))))
    };
    let found = exact.or_else(|| map.has_hostnames.then(wild).flatten());
    if let Some((value, _)) = found {
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

//! Draws servers, locations and what is in them.

use super::plan::{
    AddedField, LocationKind, RewriteFlag, RouteCondition, RouteLocation, RouteMap, RoutePage, RouteRule,
    RouteScope, RouteServer, RoutingPlan,
};
use crate::draw::Draw;

/// Names of servers: of each line one, so that no two of them are the same.
const NAMES: [&[&str]; 12] = [
    &["one.test"],
    &["*.one.test"],
    &["*.a.one.test", "a.one.test", ".a.one.test"],
    &[".dot.test"],
    &["two.test"],
    &["two.*"],
    &["a.two.*", "a.two.test"],
    &["*.two.test", "*.test"],
    &[r"~^(?<sub>[0-9]+)\.num\.test$", r"~^(?<sub>.+)\.num\.test$"],
    &[r"~^(?<sub>.+)\.test$", "~One"],
    &["~two", r"~^a\."],
    &["127.0.0.1", "localhost"],
];
const PREFIXES: [&str; 9] = ["/", "/a", "/a/", "/a/b", "/ab", "/data/", "/1", "/err", "/A"];
const EXPRESSIONS: [&str; 8] =
    [r"\.txt$", "^/a/(.*)$", "/b/", "^/([0-9]+)", r"\.(txt|png)$", "(?<rest>b.*)$", "^/(a|data)/(.+)", "X"];
/// Expressions and replacements.
const REWRITES: [(&str, &str); 14] = [
    ("^/a/(.*)$", "/data/$1"),
    ("^/data/(.*)$", "/a/$1?r=1"),
    ("^/([0-9]+)(.*)$", "/a$2?n=$1"),
    ("b", "/err?"),
    ("^(.*)$", "/a$1"),
    (r"^/ab(.*)\.(txt|png)$", "/$2$1"),
    ("(x.*)$", "http://else.test/$1"),
    ("^/err(.*)$", "/1/$uri?m=$arg_m"),
    ("^/A(.*)$", "/a$1?q=$1&m=2"),
    ("/b/(?<rest>.*)$", "/data/$rest"),
    ("^/1", "/ab?"),
    ("data", "/a/b/x.txt?$args"),
    ("^/never/", "/a"),
    ("^/data/x", "http://else.test/?u=$uri"),
];
const VALUES: [&str; 7] = ["$uri", "$arg_m", "$m0", "$m1", "$v0", "$sub-$rest", "u=$uri$is_args$args"];
const STATUSES: [u16; 6] = [403, 404, 410, 500, 503, 404];
const FIELD_NAMES: [&str; 3] = ["X-A", "X-B", "X-C"];

impl RoutingPlan {
    /// What `draw` draws.
    pub fn drawn(draw: &mut Draw) -> RoutingPlan {
        let drawn = NAMES.iter().map(|some| draw.chance(2, 3).then(|| (*draw.one_of(some)).to_owned()));
        let mut names: Vec<String> = drawn.collect::<Vec<_>>().into_iter().flatten().collect();
        let count = draw.between(1, 4) as usize;
        let default = draw.below(count as u64) as usize;
        let servers = (0..count).map(|which| {
            let share = names.len() / (count - which);
            let mut own: Vec<String> =
                (0..share).map(|_| names.swap_remove(draw.below(names.len() as u64) as usize)).collect();
            own.push(format!("server{which}.test"));
            RouteServer::drawn(draw, which, own, which == default)
        });
        let mut servers: Vec<RouteServer> = servers.collect();
        // All variables are known, whatever else was drawn.
        servers.push(RouteServer {
            names: vec!["variables.test".to_owned(), "~^(?<sub>variables)(?<rest>!)$".to_owned()],
            is_default: false,
            scope: RouteScope {
                rules: vec![
                    RouteRule::Set("v0", "$m0$m1".to_owned()),
                    RouteRule::Set("v1", String::new()),
                    RouteRule::Return(200, Some("variables".to_owned())),
                ],
                ..RouteScope::default()
            },
            locations: Vec::new(),
        });
        let sources = ["$uri", "$host", "$arg_m", "$http_x_m", "$host$uri"];
        RoutingPlan {
            maps: ["m0", "m1"].iter().map(|name| RouteMap::drawn(draw, name, &sources)).collect(),
            fields: drawn_fields(draw, "http", 4),
            servers,
        }
    }
}

impl RouteMap {
    fn drawn(draw: &mut Draw, name: &str, sources: &[&str]) -> RouteMap {
        let keys = [
            "1",
            "/a/B",
            "one.test",
            "*.one.test",
            "two.*",
            ".test",
            "~^/a",
            "~*^/A/B",
            "~b",
            "~*[0-9]x",
            "default",
        ];
        let values = ["k0", "", "k2-$uri", "0", "$arg_m"];
        let has_hostnames = draw.chance(1, 2);
        let is_usable = |key: &&&str| has_hostnames || !key.contains('*') || key.starts_with('~');
        let lines = keys.iter().filter(is_usable).filter(|_| draw.chance(1, 2));
        let lines = lines.collect::<Vec<_>>();
        RouteMap {
            source: (*draw.one_of(sources)).to_owned(),
            name: name.to_owned(),
            lines: lines.iter().map(|key| ((**key).to_owned(), (*draw.one_of(&values)).to_owned())).collect(),
            has_hostnames,
            is_volatile: draw.chance(1, 4),
        }
    }
}

impl RouteServer {
    fn drawn(draw: &mut Draw, which: usize, names: Vec<String>, is_default: bool) -> RouteServer {
        let id = format!("s{which}");
        let mut scope = RouteScope::drawn(draw, &id, 4);
        if draw.chance(1, 12) {
            scope.rules.push(RouteRule::Return(*draw.one_of(&STATUSES), None));
        }
        let mut locations = drawn_locations(draw, &id, "", 0);
        let mut named = RouteLocation::drawn(draw, &format!("{id}n"), LocationKind::Named, "@named", 2);
        named.is_internal = false;
        locations.insert(draw.below(locations.len() as u64 + 1) as usize, named);
        RouteServer { names, is_default, scope, locations }
    }
}

/// Locations of a block; in one of prefix `outer` they begin with it.
fn drawn_locations(draw: &mut Draw, id: &str, outer: &str, depth: usize) -> Vec<RouteLocation> {
    let mut all: Vec<RouteLocation> = Vec::new();
    for which in 0..draw.between(u64::from(depth == 0), [7, 3, 2][depth]) {
        let kind = *draw.one_of(&[
            LocationKind::Exact,
            LocationKind::Prefix,
            LocationKind::Prefix,
            LocationKind::FirmPrefix,
            LocationKind::Expression,
            LocationKind::AnyCaseExpression,
        ]);
        let path = match kind {
            LocationKind::Expression | LocationKind::AnyCaseExpression => {
                (*draw.one_of(&EXPRESSIONS)).to_owned()
            }
            _ if outer.is_empty() => (*draw.one_of(&PREFIXES)).to_owned(),
            _ => format!("{outer}{}", *draw.one_of(&["/b", "b", "x.txt", "b/", "", "1"])),
        };
        let class = |kind| match kind {
            LocationKind::FirmPrefix => LocationKind::Prefix,
            kind => kind,
        };
        let is_there = all.iter().any(|one| class(one.kind) == class(kind) && one.path == path);
        if !is_there && !path.starts_with("//") {
            all.push(RouteLocation::drawn(draw, &format!("{id}l{which}"), kind, &path, depth));
        }
    }
    all
}

impl RouteLocation {
    fn drawn(draw: &mut Draw, id: &str, kind: LocationKind, path: &str, depth: usize) -> RouteLocation {
        let mut scope = RouteScope::drawn(draw, id, 2);
        let is_prefix = matches!(kind, LocationKind::Prefix | LocationKind::FirmPrefix);
        let nested = match depth {
            0 | 1 if is_prefix && draw.chance(1, 2) => drawn_locations(draw, id, path, depth + 1),
            _ => Vec::new(),
        };
        let has_if = scope.rules.iter().any(|rule| matches!(rule, RouteRule::If(..)));
        let has_captures = path.contains('(') && scope.rules.is_empty();
        let mut fallback = None;
        match draw.below(8) {
            0..5 => {
                let captures = if has_captures { " $1" } else { "" };
                scope.rules.push(RouteRule::drawn_return(draw, id, captures));
            }
            5 | 6 if !has_if => {
                fallback = Some(
                    (*draw.one_of(&["=404", "=403", "@named", "/err", "/a/b?m=1", "/data$uri"])).to_owned(),
                );
            }
            _ => (),
        }
        let is_internal = kind != LocationKind::Named && draw.chance(1, 8);
        RouteLocation { kind, path: path.to_owned(), scope, is_internal, fallback, nested }
    }
}

impl RouteScope {
    /// One of `rare` has rules, a page or fields.
    fn drawn(draw: &mut Draw, id: &str, rare: u64) -> RouteScope {
        let has_pages = draw.chance(1, rare + 1);
        RouteScope {
            fields: drawn_fields(draw, id, rare),
            pages: if has_pages { drawn_pages(draw) } else { Vec::new() },
            rules: if draw.chance(1, rare) { drawn_rules(draw, id) } else { Vec::new() },
        }
    }
}

fn drawn_fields(draw: &mut Draw, id: &str, rare: u64) -> Vec<AddedField> {
    let count = if draw.chance(1, rare) { draw.between(1, 3) } else { 0 };
    (0..count)
        .map(|_| AddedField {
            name: draw.one_of::<&str>(&FIELD_NAMES),
            value: if draw.chance(1, 2) { id.to_owned() } else { (*draw.one_of(&VALUES)).to_owned() },
            is_always: draw.chance(1, 2),
        })
        .collect()
}

fn drawn_pages(draw: &mut Draw) -> Vec<RoutePage> {
    let count = draw.between(1, 2);
    (0..count)
        .map(|_| RoutePage {
            statuses: if draw.chance(1, 3) { vec![403, 500, 503] } else { vec![404] },
            instead: *draw.one_of(&[None, None, Some(0), Some(200), Some(410)]),
            target: (*draw.one_of(&[
                "/err",
                "/a/b?e=1",
                "@named",
                "@named",
                "/data/$uri",
                "http://else.test/e",
            ]))
            .to_owned(),
        })
        .collect()
}

fn drawn_rules(draw: &mut Draw, id: &str) -> Vec<RouteRule> {
    let count = draw.between(1, 3);
    (0..count)
        .map(|which| match draw.below(10) {
            0..4 => RouteRule::drawn_rewrite(draw),
            4 => RouteRule::Break,
            5 | 6 => RouteRule::drawn_set(draw),
            _ => RouteRule::drawn_if(draw, &format!("{id}i{which}")),
        })
        .collect()
}

impl RouteRule {
    fn drawn_rewrite(draw: &mut Draw) -> RouteRule {
        let (pattern, to) = *draw.one_of(&REWRITES);
        let flags = [
            RewriteFlag::Absent,
            RewriteFlag::Last,
            RewriteFlag::Last,
            RewriteFlag::Break,
            RewriteFlag::Redirect,
            RewriteFlag::Permanent,
        ];
        RouteRule::Rewrite(pattern, to, *draw.one_of(&flags))
    }

    fn drawn_set(draw: &mut Draw) -> RouteRule {
        let name = *draw.one_of(&["v0", "v1"]);
        RouteRule::Set(name, (*draw.one_of(&["1", "", "0", "$uri", "$v0$arg_m", "$m0"])).to_owned())
    }

    fn drawn_return(draw: &mut Draw, id: &str, captures: &str) -> RouteRule {
        let text = format!("{id} $uri {}{captures}", draw.one_of(&VALUES));
        match draw.below(10) {
            0..6 => RouteRule::Return(200, Some(text)),
            6 => RouteRule::Return(*draw.one_of(&STATUSES), Some(text)),
            7 => RouteRule::Return(*draw.one_of(&STATUSES), None),
            8 => RouteRule::Return(*draw.one_of(&[301, 302, 303, 307, 308]), Some(format!("/{id}$uri"))),
            _ => RouteRule::Return(302, Some(format!("http://$host/{id}?$args"))),
        }
    }

    fn drawn_if(draw: &mut Draw, id: &str) -> RouteRule {
        let (variable, operator, value) = *draw.one_of(&[
            ("arg_m", "", ""),
            ("arg_m", "=", "1"),
            ("http_x_m", "!=", "2"),
            ("m0", "", ""),
            ("m1", "=", "k0"),
            ("v0", "=", "1"),
            ("v1", "", ""),
            ("uri", "~", "^/a/(b.*)$"),
            ("uri", "~*", "^/a"),
            ("uri", "!~", "txt$"),
            ("host", "!~*", "ONE"),
            ("request_uri", "~", "//"),
        ]);
        let captures = if value.contains('(') { " $1" } else { "" };
        let rule = match draw.below(8) {
            0..4 => Some(RouteRule::drawn_return(draw, id, captures)),
            4 => Some(RouteRule::drawn_set(draw)),
            5 => Some(RouteRule::drawn_rewrite(draw)),
            6 => Some(RouteRule::Break),
            _ => None,
        };
        let rules = rule.into_iter().collect();
        // In a server, `add_header` may not be there.
        let fields = if id.contains(['l', 'n']) { drawn_fields(draw, id, 2) } else { Vec::new() };
        RouteRule::If(
            RouteCondition { variable, operator, value },
            RouteScope { fields, pages: Vec::new(), rules },
        )
    }
}

//! The reference keeps nginx's documented rules.

use super::plan::{
    AddedField, LocationKind, RewriteFlag, RouteLocation, RouteMap, RoutePage, RouteRule, RouteScope,
    RouteServer, RoutedAsk, RoutingPlan,
};
use crate::plan::Plan;

fn ask(host: &str, target: &str) -> RoutedAsk {
    RoutedAsk { host: host.to_owned(), target: target.to_owned(), absolute: None, mark: None }
}

fn says(text: &str) -> RouteRule {
    RouteRule::Return(200, Some(text.to_owned()))
}

fn server(name: &str, rules: Vec<RouteRule>, locations: Vec<RouteLocation>) -> RouteServer {
    let scope = RouteScope { rules, ..RouteScope::default() };
    RouteServer { names: vec![name.to_owned()], is_default: false, scope, locations }
}

fn location(kind: LocationKind, path: &str, rules: Vec<RouteRule>) -> RouteLocation {
    let scope = RouteScope { rules, ..RouteScope::default() };
    RouteLocation {
        kind,
        path: path.to_owned(),
        scope,
        is_internal: false,
        fallback: None,
        nested: Vec::new(),
    }
}

fn field(name: &'static str, is_always: bool) -> AddedField {
    AddedField { name, value: name.to_owned(), is_always }
}

fn one(locations: Vec<RouteLocation>) -> RoutingPlan {
    RoutingPlan { servers: vec![server("one.test", Vec::new(), locations)], ..RoutingPlan::default() }
}

fn due(plan: &RoutingPlan, target: &str) -> String {
    plan.due(&ask("one.test", target)).words()
}

#[test]
fn servers_are_chosen_by_exact_names_then_asterisks_then_expressions() {
    let names = ["~^a", "b.*", "*.x.test", "*.a.x.test", "a.x.test", "b.x.*", ".y.test", "~^a.+"];
    let servers = names.iter().map(|name| server(name, vec![says(name)], Vec::new())).collect::<Vec<_>>();
    let mut plan = RoutingPlan { servers, ..RoutingPlan::default() };
    plan.servers[1].is_default = true;
    for (host, name) in [
        ("A.X.test", "a.x.test"),
        ("c.a.x.test", "*.a.x.test"),
        ("a.c.x.test", "*.x.test"),
        ("b.x.test", "*.x.test"),
        ("b.x.net", "b.x.*"),
        ("b.net", "b.*"),
        ("y.test.", ".y.test"),
        ("a.b.y.test:80", ".y.test"),
        ("ab.net", "~^a"),
        ("c.net", "b.*"),
    ] {
        assert_eq!(plan.due(&ask(host, "/")).text.as_deref(), Some(name), "{host}");
    }
}

#[test]
fn locations_are_chosen_by_equality_then_the_longest_prefix_unless_an_expression_matches() {
    // A `$` of a text is a variable's.
    let leaf = |kind, path: &str| location(kind, path, vec![says(&path.replace('$', ""))]);
    let mut outer = leaf(LocationKind::Prefix, "/n/");
    outer.nested = vec![leaf(LocationKind::Expression, "x$"), leaf(LocationKind::Prefix, "/n/deep/")];
    let plan = one(vec![
        leaf(LocationKind::Expression, r"\.txt$"),
        leaf(LocationKind::AnyCaseExpression, r"(.*)\.TXT$"),
        leaf(LocationKind::Prefix, "/"),
        leaf(LocationKind::Prefix, "/a/"),
        leaf(LocationKind::FirmPrefix, "/a/firm/"),
        leaf(LocationKind::Exact, "/a/e.txt"),
        outer,
    ]);
    for (target, path) in [
        ("/", "/"),
        ("/a", "/"),
        ("/a/b", "/a/"),
        ("/a/b.txt", r"\.txt$"),
        ("/a/b.TXT", r"(.*)\.TXT$"),
        ("/a/firm/b.txt", "/a/firm/"),
        ("/a/firm/../e.txt", "/a/e.txt"),
        ("/A/b", "/"),
        ("/n/x", "x$"),
        ("/n/deep/b.txt", r"\.txt$"),
        ("//n//deep/%62?x", "/n/deep/"),
    ] {
        assert_eq!(due(&plan, target), format!("200 {:?} []", Some(path.replace('$', ""))), "{target}");
    }
}

#[test]
fn fields_are_inherited_where_a_block_has_no_others() {
    let mut inner = location(LocationKind::Prefix, "/a/own", vec![says("own")]);
    inner.scope.fields = vec![field("X-B", false)];
    let heir = location(LocationKind::Prefix, "/a/heir", vec![RouteRule::Return(404, None)]);
    let mut outer = location(LocationKind::Prefix, "/a/", vec![says("outer")]);
    (outer.scope.fields, outer.nested) = (vec![field("X-A", true), field("X-C", false)], vec![inner, heir]);
    let mut plan = one(vec![outer]);
    plan.fields = vec![field("X-H", true)];
    assert_eq!(due(&plan, "/a/"), r#"200 Some("outer") [("x-a", "X-A"), ("x-c", "X-C")]"#);
    assert_eq!(due(&plan, "/a/own"), r#"200 Some("own") [("x-b", "X-B")]"#);
    assert_eq!(due(&plan, "/a/heir"), r#"404 None [("x-a", "X-A")]"#);
    assert_eq!(due(&plan, "/"), r#"404 None [("x-h", "X-H")]"#);
}

#[test]
fn rewritten_paths_look_for_a_location_ten_times_unless_they_break() {
    let rewrite = |to, flag| RouteRule::Rewrite("^", to, flag);
    let plan = one(vec![
        location(LocationKind::Prefix, "/last", vec![rewrite("/end?a=1", RewriteFlag::Last), says("no")]),
        location(LocationKind::Prefix, "/goes", vec![rewrite("/end?", RewriteFlag::Absent), says("on")]),
        location(LocationKind::Prefix, "/break", vec![rewrite("/end", RewriteFlag::Break), says("no")]),
        location(LocationKind::Prefix, "/turn", vec![rewrite("/turn", RewriteFlag::Last)]),
        location(LocationKind::Prefix, "/away", vec![rewrite("/x", RewriteFlag::Permanent)]),
        location(LocationKind::Prefix, "/end", vec![says("end $uri $args")]),
    ]);
    assert_eq!(due(&plan, "/last?b=2"), r#"200 Some("end /end a=1&b=2") []"#);
    assert_eq!(due(&plan, "/goes"), r#"200 Some("on") []"#);
    assert_eq!(due(&plan, "/break"), "404 None []");
    assert_eq!(due(&plan, "/turn"), "500 None []");
    assert_eq!(due(&plan, "/away?q"), r#"301 None [("location", "http://one.test:8090/x?q")]"#);
}

#[test]
fn pages_have_their_status_unless_it_is_replaced() {
    let page = |instead, target: &str| RoutePage { statuses: vec![404], instead, target: target.to_owned() };
    let with = |path, page| {
        let mut location = location(LocationKind::Prefix, path, vec![RouteRule::Return(404, None)]);
        location.scope.pages = vec![page];
        location
    };
    let mut inside = location(LocationKind::Prefix, "/page", vec![says("page")]);
    inside.is_internal = true;
    let plan = one(vec![
        with("/own", page(None, "/page")),
        with("/its", page(Some(0), "/page")),
        with("/other", page(Some(410), "@named")),
        with("/far", page(None, "http://else.test/")),
        inside,
        location(LocationKind::Named, "@named", vec![says("named $uri")]),
    ]);
    assert_eq!(due(&plan, "/own"), r#"404 Some("page") []"#);
    assert_eq!(due(&plan, "/its"), r#"200 Some("page") []"#);
    assert_eq!(due(&plan, "/other"), r#"410 Some("named /other") []"#);
    assert_eq!(due(&plan, "/far"), r#"302 None [("location", "http://else.test/")]"#);
    assert_eq!(due(&plan, "/page"), "404 None []");
}

#[test]
fn maps_take_strings_then_asterisks_then_expressions_and_remember() {
    let line = |pattern: &str| (pattern.to_owned(), pattern.to_owned());
    let patterns = ["~b", "~*^B", "default", "*.b", "c.*", "B"];
    let map = RouteMap {
        source: "$arg_m".to_owned(),
        name: "m0".to_owned(),
        lines: patterns.map(line).to_vec(),
        has_hostnames: true,
        is_volatile: false,
    };
    let end = location(LocationKind::Exact, "/end", vec![says("$m0")]);
    let rewrite = RouteRule::Rewrite("^", "/end?m=b?", RewriteFlag::Last);
    let first = location(LocationKind::Prefix, "/set", vec![RouteRule::Set("v0", "$m0".to_owned()), rewrite]);
    let plan = RoutingPlan { maps: vec![map], ..one(vec![end, first]) };
    for (value, pattern) in [
        ("b", "B"),
        ("x.b", "*.b"),
        ("c.b", "*.b"),
        ("c.c", "c.*"),
        ("xbx", "~b"),
        ("BX", "~*^B"),
        ("", "default"),
    ] {
        assert_eq!(due(&plan, &format!("/end?m={value}")), format!("200 {:?} []", Some(pattern)), "{value}");
    }
    assert_eq!(due(&plan, "/set?m=c.c"), r#"200 Some("c.*") []"#);
}

#[test]
fn a_server_with_the_very_name_is_always_the_one() {
    let mut count = 0;
    for mut plan in (0..200).map(Plan::new).filter(|plan| !plan.routing.servers.is_empty()) {
        plan.routing.servers.push(server("the.very.name.one.test", vec![says("it")], Vec::new()));
        let all = plan.clients.iter().flat_map(|client| &client.requests).filter_map(|one| one.ask.as_ref());
        for one in all.filter(|one| !one.may_be_bad()) {
            let one = RoutedAsk { host: "the.very.name.one.test".to_owned(), absolute: None, ..one.clone() };
            assert_eq!(plan.routing.due(&one).text.as_deref(), Some("it"), "{one:?}");
            count += 1;
        }
    }
    assert!(count > 500, "{count}");
}

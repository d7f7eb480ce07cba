//! The text of a drawn configuration.

use std::fmt::Write;

use super::plan::{
    AddedField, LocationKind, ROUTED_PORT, RewriteFlag, RouteLocation, RouteRule, RouteScope, RoutingPlan,
};

impl RoutingPlan {
    /// Lines of `http`; `every_server` is in each server.
    pub fn configuration(&self, every_server: &str) -> String {
        if self.servers.is_empty() {
            return String::new();
        }
        let mut text = String::new();
        for map in &self.maps {
            let _ = writeln!(text, "    map \"{}\" ${} {{", map.source, map.name);
            for (is_on, word) in [(map.has_hostnames, "hostnames"), (map.is_volatile, "volatile")] {
                text.push_str(&if is_on { format!("        {word};\n") } else { String::new() });
            }
            for (pattern, value) in &map.lines {
                let _ = writeln!(text, "        {pattern} \"{value}\";");
            }
            text.push_str("    }\n");
        }
        fields(&mut text, &self.fields, 1);
        for server in &self.servers {
            let default = if server.is_default { " default_server" } else { "" };
            let _ = writeln!(text, "    server {{\n        listen 127.0.0.1:{ROUTED_PORT}{default};");
            let _ = writeln!(text, "        server_name {};", server.names.join(" "));
            text.push_str(every_server);
            scope(&mut text, &server.scope, 2);
            for one in &server.locations {
                location(&mut text, one, 2);
            }
            text.push_str("    }\n");
        }
        text
    }
}

fn indent(depth: usize) -> String {
    " ".repeat(4 * depth)
}

fn fields(text: &mut String, fields: &[AddedField], depth: usize) {
    for AddedField { name, value, is_always } in fields {
        let always = if *is_always { " always" } else { "" };
        let _ = writeln!(text, "{}add_header {name} \"{value}\"{always};", indent(depth));
    }
}

fn scope(text: &mut String, scope: &RouteScope, depth: usize) {
    fields(text, &scope.fields, depth);
    for page in &scope.pages {
        let statuses: Vec<String> = page.statuses.iter().map(u16::to_string).collect();
        let instead = match page.instead {
            None => String::new(),
            Some(0) => " =".to_owned(),
            Some(status) => format!(" ={status}"),
        };
        let _ =
            writeln!(text, "{}error_page {}{instead} {};", indent(depth), statuses.join(" "), page.target);
    }
    for rule in &scope.rules {
        let _ = write!(text, "{}", indent(depth));
        let _ = match rule {
            RouteRule::Return(status, None) => writeln!(text, "return {status};"),
            RouteRule::Return(status, Some(value)) => writeln!(text, "return {status} \"{value}\";"),
            RouteRule::Rewrite(pattern, to, flag) => writeln!(text, "rewrite {pattern} {to}{};", flag.word()),
            RouteRule::Set(name, value) => writeln!(text, "set ${name} \"{value}\";"),
            RouteRule::Break => writeln!(text, "break;"),
            RouteRule::If(condition, inner) => {
                let words = [condition.operator, condition.value].map(|word| match word {
                    "" => String::new(),
                    word => format!(" {word}"),
                });
                let _ = writeln!(text, "if (${}{}) {{", condition.variable, words.concat());
                self::scope(text, inner, depth + 1);
                writeln!(text, "{}}}", indent(depth))
            }
        };
    }
}

fn location(text: &mut String, one: &RouteLocation, depth: usize) {
    let _ = writeln!(text, "{}location {}{} {{", indent(depth), one.kind.words(), one.path);
    if one.is_internal {
        let _ = writeln!(text, "{}internal;", indent(depth + 1));
    }
    scope(text, &one.scope, depth + 1);
    if let Some(fallback) = &one.fallback {
        let _ = writeln!(text, "{}try_files /absent$uri {fallback};", indent(depth + 1));
    }
    for nested in &one.nested {
        location(text, nested, depth + 1);
    }
    let _ = writeln!(text, "{}}}", indent(depth));
}

impl LocationKind {
    fn words(self) -> &'static str {
        match self {
            LocationKind::Exact => "= ",
            LocationKind::Prefix | LocationKind::Named => "",
            LocationKind::FirmPrefix => "^~ ",
            LocationKind::Expression => "~ ",
            LocationKind::AnyCaseExpression => "~* ",
        }
    }
}

impl RewriteFlag {
    fn word(self) -> &'static str {
        match self {
            RewriteFlag::Absent => "",
            RewriteFlag::Last => " last",
            RewriteFlag::Break => " break",
            RewriteFlag::Redirect => " redirect",
            RewriteFlag::Permanent => " permanent",
        }
    }
}

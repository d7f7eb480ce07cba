//! `if` in a location is a location of its own that inherits settings but not all content handlers: `try_files` is not
//! in force in it, and of several that are true only the last one's settings are. Safe are those that only set
//! variables or end the request by `return` or `rewrite`.

use std::cell::LazyCell;

use weir_conf::{DirectiveLine, Error};

use super::scope::LintScope;

pub(super) fn trap(scope: &LintScope<'_>, found: &mut Vec<Error>) {
    if scope.name() != "location" {
        return;
    }
    let setting: Vec<&DirectiveLine> = scope.all("if").filter(|line| settings(line).is_some()).collect();
    let content = LazyCell::new(|| scope.lines.iter().find(makes_content).map(|line| line.name.str()));
    for (at, line) in setting.iter().enumerate() {
        let what = settings(line).map_or("", |line| line.name.str());
        let message = if scope.has("try_files") {
            format!("\"try_files\" is not in force inside of this \"if\", which has \"{what}\"")
        } else if let Some(content) = has_content(line).then(|| *content).flatten() {
            format!(
                "\"{what}\" in this \"if\" and \"{content}\" in its location both answer: the \"if\" wins whole"
            )
        } else if let Some(before) = at.checked_sub(1).and_then(|at| setting.get(at)) {
            let before = scope.line_of(before, line);
            format!(
                "when this \"if\" and that of {before} are both true, only this one's settings are in force"
            )
        } else {
            continue;
        };
        let hint = "safe in \"if\" are \"return\", \"rewrite ... last\" and \"set\"; a \"map\" does the rest";
        found.push(Error::warning(message).at(line.name.span).hint(hint));
    }
}

/// Whether something inside the `if` makes content.
fn has_content(line: &DirectiveLine) -> bool {
    line.block.as_ref().is_some_and(|block| block.lines.iter().any(|line| makes_content(&line)))
}

fn makes_content(line: &&DirectiveLine) -> bool {
    CONTENT.contains(&line.name.str())
}

/// The first line inside that is a setting, unless the block ends the request anyway.
fn settings(line: &DirectiveLine) -> Option<&DirectiveLine> {
    let lines = &line.block.as_ref()?.lines;
    let ends = |line: &DirectiveLine| {
        let to = line.args.last().map_or("", |word| word.str());
        line.name.is("return") || line.name.is("rewrite") && matches!(to, "last" | "redirect" | "permanent")
    };
    if lines.iter().any(ends) {
        return None;
    }
    lines.iter().find(|line| !SAFE.contains(&line.name.str()))
}

const SAFE: [&str; 8] = [
    "set",
    "rewrite",
    "break",
    "return",
    "rewrite_log",
    "uninitialized_variable_warn",
    "access_log",
    "limit_rate",
];
const CONTENT: [&str; 10] = [
    "proxy_pass",
    "fastcgi_pass",
    "uwsgi_pass",
    "scgi_pass",
    "grpc_pass",
    "memcached_pass",
    "content_by_lua_block",
    "content_by_lua_file",
    "empty_gif",
    "stub_status",
];

#[cfg(test)]
mod tests {
    use crate::conf::lint::testing::found;

    #[test]
    fn settings_that_surprise() {
        for (text, message) in [
            (
                "location / { try_files $uri /x;\nif ($a) { add_header A 1; } }",
                "2: \"try_files\" is not in force inside of this \"if\", which has \"add_header\"",
            ),
            (
                "location / { proxy_pass http://[::1];\nif ($a) { proxy_pass http://[::2]; } }",
                "2: \"proxy_pass\" in this \"if\" and \"proxy_pass\" in its location both answer: the \"if\" wins whole",
            ),
            (
                "location / { if ($a) { expires 1h; }\nif ($b) { root /b; } }",
                "2: when this \"if\" and that of line 1 are both true, only this one's settings are in force",
            ),
        ] {
            assert_eq!(found(text), [message], "{text}");
        }
    }

    #[test]
    fn rewriting_and_a_single_setting_are_good() {
        for good in [
            "location / { try_files $uri /x; if ($a) { return 403; } if ($b) { rewrite ^ /b last; } }",
            "location / { try_files $uri /x; if ($a) { set $b 1; } if ($c) { add_header A 1; return 204; } }",
            "location / { if ($a) { expires 1h; } }",
            "location / { proxy_pass http://[::1]; if ($a) { expires 1h; } }",
            "if ($a) { set $b 1; } location / { try_files $uri /x; }",
        ] {
            assert_eq!(found(good), [""; 0], "{good}");
        }
    }
}

//! Checks that never run: `return` responds in the rewrite phase, which precedes that of access.

use weir_conf::{DirectiveLine, Error};

use super::scope::LintScope;

/// `return` in a location, beside a check of the same block.
pub(super) fn trap(scope: &LintScope<'_>, found: &mut Vec<Error>) {
    if scope.name() != "location" {
        return;
    }
    let Some(end) = scope.all("return").next().filter(|line| lets_in(line)) else { return };
    if scope.lines.iter().any(|line| runs_before(line) || leaves_open(line)) {
        return;
    }
    let Some(check) = scope.lines.iter().find(|line| refuses(line)) else { return };
    let message = format!(
        "\"{}\" here is never asked: \"return\" in {} responds in the rewrite phase, before that of access",
        check.name.str(),
        scope.line_of(end, check)
    );
    let hint =
        "respond in the content phase, for example from a named location by \"try_files /nonexistent @name\"";
    found.push(Error::warning(message).at(check.name.span).hint(hint));
}

/// Whether the `return` is not a refusal itself, which hides a place from all whatever else is written there.
fn lets_in(line: &DirectiveLine) -> bool {
    let status = line.args.first().and_then(|word| word.str().parse::<u16>().ok());
    status.is_none_or(|status| status < 400)
}

/// Whether the line may refuse requests in the access phase.
fn refuses(line: &DirectiveLine) -> bool {
    match line.name.str() {
        "deny" | "auth_request" | "auth_basic" => !line.args.first().is_some_and(|word| word.is("off")),
        name => name.starts_with("access_by_lua"),
    }
}

/// Whether the line is a script of the rewrite phase, which may decide about the request before `return` does.
fn runs_before(line: &DirectiveLine) -> bool {
    line.name.str().starts_with("rewrite_by_lua")
}

/// Whether the line may lead the request past `return`: its `if` ends the rewriting of the block.
fn leaves_open(line: &DirectiveLine) -> bool {
    let leaves = |inner: &DirectiveLine| inner.name.is("break") || inner.name.is("rewrite");
    line.name.is("break")
        || line.name.is("rewrite")
        || line.name.is("if") && line.block.as_ref().is_some_and(|block| block.lines.iter().any(leaves))
}

#[cfg(test)]
mod tests {
    use crate::conf::lint::testing::found;

    #[test]
    fn checks_beside_a_return_are_never_asked() {
        for check in ["deny all", "auth_basic x", "access_by_lua_file a.lua", "auth_request /b"] {
            let (name, _) = check.split_once(' ').expect("a name and a value");
            let message = format!(
                "2: \"{name}\" here is never asked: \"return\" in line 3 responds in the rewrite phase, before that of access"
            );
            assert_eq!(found(&format!("location /a {{\n{check};\nreturn 200; }}")), [message]);
        }
    }

    #[test]
    fn checks_that_are_asked_or_switched_off_are_good() {
        for good in [
            "location /a { deny all; }",
            "location /a { allow all; return 200; }",
            "location /a { auth_basic off; return 200; }",
            "location /a { auth_basic x; if ($arg_a) { return 403; } }",
            "location /a { deny all; if ($arg_a) { rewrite ^ /b break; } return 200; }",
            "location /a { deny all; rewrite ^/a/x /a/y break; return 404; }",
            "location /a { rewrite_by_lua_file a.lua; deny all; return 200; }",
            "deny all; location /a { return 200; }",
            "location /a { deny all; return 404; }",
        ] {
            assert_eq!(found(good), [""; 0], "{good}");
        }
    }
}

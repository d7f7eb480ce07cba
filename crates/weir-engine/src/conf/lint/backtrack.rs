//! Regular expressions that can take time exponential in what the client sends: `^(\w+\s?)+$` and the like. The match
//! limit ends them, after thousands of steps for each request.

use weir_conf::{DirectiveLine, Error, Word};

use super::pattern;
use super::scope::{LintScope, location_of};

pub(super) fn trap(scope: &LintScope<'_>, found: &mut Vec<Error>) {
    if scope.name() == "if" {
        let line = scope.line;
        found.extend(line.and_then(|line| line.args.last()).and_then(|word| {
            let matches = line?.args.iter().any(|word| matches!(word.str(), "~" | "~*" | "!~" | "!~*"));
            matches.then(|| checked(word, word.str().strip_suffix(')').unwrap_or(word.str()))).flatten()
        }));
    }
    for line in scope.lines {
        match line.name.str() {
            "location" => found.extend(location(line)),
            "rewrite" => found.extend(line.args.first().and_then(|word| checked(word, word.str()))),
            "server_name" => found.extend(line.args.iter().filter_map(tilde)),
            "map" => {
                let entries = line.block.iter().flat_map(|block| &block.lines);
                found.extend(entries.filter_map(|entry| tilde(&entry.name)));
            }
            _ => {}
        }
    }
}

fn location(line: &DirectiveLine) -> Option<Error> {
    let (modifier, text) = location_of(line)?;
    let word = line.args.last()?;
    modifier.starts_with('~').then(|| checked(word, std::str::from_utf8(text).ok()?)).flatten()
}

/// `~pattern`, `~*pattern`
fn tilde(word: &Word) -> Option<Error> {
    let text = word.str().strip_prefix('~')?;
    checked(word, text.strip_prefix('*').unwrap_or(text))
}

fn checked(word: &Word, text: &str) -> Option<Error> {
    let part = pattern::explosive(text.as_bytes())?;
    let part = String::from_utf8_lossy(&text.as_bytes()[part]).into_owned();
    let message =
        format!("matching can take exponential time: \"{part}\" divides the same text in many ways");
    Some(
        Error::warning(message)
            .at(word.span)
            .hint("make what is repeated begin or end with something that it does not hold"),
    )
}

#[cfg(test)]
mod tests {
    use crate::conf::lint::testing::found;

    #[test]
    fn wherever_expressions_stand() {
        let message = |line: u32, part: &str| {
            format!(
                "{line}: matching can take exponential time: \"{part}\" divides the same text in many ways"
            )
        };
        for (text, part) in [
            ("location ~ ^/(a+)+$ { }", "(a+)+"),
            ("location ~*^/(.*)*x { }", "(.*)*"),
            ("rewrite ^/(\\w+\\s?)+$ /x;", "(\\w+\\s?)+"),
            ("server_name ~^(?<n>[a-z]+-?)+x$;", "(?<n>[a-z]+-?)+"),
            ("if ($uri ~ ^(/+.*)+y) { return 403; }", "(/+.*)+"),
        ] {
            assert_eq!(found(text), [message(1, part)], "{text}");
        }
    }

    #[test]
    fn ordinary_expressions() {
        for good in [
            "location ~ ^/(.+\\.php)(/.*)?$ { }",
            "location ~ ^(/[^/]+)+$ { }",
            "location ~* \\.(jpe?g|png|gif)$ { }",
            "rewrite ^/u/(\\w+)/(\\d+)$ /x?u=$1 last;",
            "server_name ~^(www\\.)?(?<d>.+)$;",
        ] {
            assert_eq!(found(good), [""; 0], "{good}");
        }
    }
}

//! Locations that no request reaches: the server responds before, no URI begins like that, or an earlier regular
//! expression takes all.

use weir_conf::{DirectiveLine, Error};

use super::scope::{LintScope, location_of};

pub(super) fn trap(scope: &LintScope<'_>, found: &mut Vec<Error>) {
    if !matches!(scope.name(), "server" | "location") {
        return;
    }
    if scope.name() == "server"
        && let Some(end) = scope.all("return").next()
    {
        // Named ones are reached by `error_page`.
        let named = |line: &&DirectiveLine| location_of(line).is_some_and(|(_, path)| path.starts_with(b"@"));
        if let Some(first) = scope.all("location").find(|line| !named(line)) {
            let at = scope.line_of(end, first);
            let message =
                format!("no location of this server is reached: \"return\" in {at} answers everything");
            found.push(Error::warning(message).at(first.name.span));
        }
        return;
    }
    let locations: Vec<_> =
        scope.all("location").filter_map(|line| Some((line, location_of(line)?))).collect();
    for (at, (line, (modifier, path))) in locations.iter().enumerate() {
        let message = match *modifier {
            "" | "=" | "^~" => no_path(path),
            _ => taken(scope, &locations[..at], line, modifier, path).or_else(|| guarded(&locations, path)),
        };
        found.extend(message.map(|message| Error::warning(message).at(line.args[0].span)));
    }
}

/// A prefix that no URI has.
fn no_path(path: &[u8]) -> Option<String> {
    let good = matches!(path.first(), Some(b'/' | b'@') | None);
    (!good).then(|| "no URI begins like this location: is \"/\" missing?".to_owned())
}

/// Whether an earlier regular expression matches whatever this one does.
fn taken(
    scope: &LintScope<'_>,
    before: &[(&DirectiveLine, (&str, &[u8]))],
    line: &DirectiveLine,
    modifier: &str,
    path: &[u8],
) -> Option<String> {
    let takes = |(_, (other, text)): &&(&DirectiveLine, (&str, &[u8]))| match *other {
        "~" => EVERYTHING.contains(text) || *text == path && modifier == "~",
        "~*" => EVERYTHING.contains(text) || text.eq_ignore_ascii_case(path) && *text == path,
        _ => false,
    };
    let (other, _) = before.iter().find(takes)?;
    Some(format!("this location is never reached: that of {} matches before it", scope.line_of(other, line)))
}

/// Whether all URIs that begin as the expression demands are not tried against expressions because of a `^~`.
fn guarded(locations: &[(&DirectiveLine, (&str, &[u8]))], path: &[u8]) -> Option<String> {
    let literal = path.strip_prefix(b"^")?;
    let end = literal.iter().position(|byte| !(byte.is_ascii_alphanumeric() || b"/_-".contains(byte)));
    // A repeat after the last byte may take it away.
    let end = match end.map(|end| (end, literal[end])) {
        Some((end, b'?' | b'*' | b'{')) => end.saturating_sub(1),
        Some((end, _)) => end,
        None => literal.len(),
    };
    if path.contains(&b'|') {
        return None;
    }
    let literal = &literal[..end];
    let keeps = |(_, (modifier, prefix)): &&(&DirectiveLine, (&str, &[u8]))| {
        *modifier == "^~" && !prefix.is_empty() && literal.starts_with(prefix)
    };
    let (_, (_, prefix)) = locations.iter().find(keeps)?;
    let longer = |(_, (modifier, other)): &(&DirectiveLine, (&str, &[u8]))| {
        modifier.is_empty() && other.len() > prefix.len() && other.starts_with(prefix)
    };
    let prefix = String::from_utf8_lossy(prefix);
    (!locations.iter().any(longer))
        .then(|| format!("this location is never reached: \"^~ {prefix}\" keeps expressions out"))
}

/// Expressions that match every URI.
const EVERYTHING: [&[u8]; 9] = [b".", b".*", b"^", b"/", b"^/", b"^.*", b"^/.*", b"^.*$", b"^/.*$"];

#[cfg(test)]
mod tests {
    use crate::conf::lint::testing::found;

    #[test]
    fn locations_that_nothing_reaches() {
        for (text, message) in [
            (
                "return 301 https://x;\nlocation /a { } location /b { }",
                "2: no location of this server is reached: \"return\" in line 1 answers everything",
            ),
            ("location a/ { }", "1: no URI begins like this location: is \"/\" missing?"),
            ("location = index.html { }", "1: no URI begins like this location: is \"/\" missing?"),
            (
                "location ~ \\.php$ { }\nlocation ~ \\.php$ { }",
                "2: this location is never reached: that of line 1 matches before it",
            ),
            (
                "location ~* ^/ { }\nlocation ~ \\.php$ { }",
                "2: this location is never reached: that of line 1 matches before it",
            ),
            (
                "location ^~ /static/ { }\nlocation ~ ^/static/.*\\.php$ { }",
                "2: this location is never reached: \"^~ /static/\" keeps expressions out",
            ),
        ] {
            assert_eq!(found(text), [message], "{text}");
        }
    }

    #[test]
    fn locations_that_something_reaches() {
        for good in [
            "location / { } location ~ \\.php$ { } location ~ /a { } location @x { }",
            "location ~ \\.php$ { } location ~* \\.php$ { }",
            "location ~ \\.php$ { } location ~ ^/ { }",
            "if ($a) { return 403; } location / { }",
            "location / { return 404; }",
            "location ^~ /static/ { } location /static/a/ { } location ~ ^/static/.*\\.php$ { }",
            "location ^~ /static/ { } location ~ ^/static/?x { } location ~ ^/static/|^/b { }",
            "return 301 https://x;",
            "return 404; error_page 404 @x; location @x { }",
        ] {
            assert_eq!(found(good), [""; 0], "{good}");
        }
    }
}

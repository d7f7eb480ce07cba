//! Locations that no request reaches: the server responds before, no URI begins like that, or an earlier regular
//! expression takes all.

use std::cell::LazyCell;
use std::collections::HashMap;

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
    let mut before = EarlierExpressions::default();
    let prefixes = LazyCell::new(|| PrefixLocations::new(scope));
    for line in scope.all("location") {
        let Some((modifier, path)) = location_of(line) else { continue };
        let message = match modifier {
            "" | "=" | "^~" => no_path(path),
            _ => taken(scope, &before, line, modifier, path).or_else(|| prefixes.guarded(path)),
        };
        before.add(line, modifier, path);
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
    before: &EarlierExpressions<'_>,
    line: &DirectiveLine,
    modifier: &str,
    path: &[u8],
) -> Option<String> {
    let other = before.taker(modifier, path)?;
    Some(format!("this location is never reached: that of {} matches before it", scope.line_of(other, line)))
}

/// The expressions of the locations before one.
#[derive(Default)]
struct EarlierExpressions<'t> {
    /// The first that matches every URI.
    everything: Option<&'t DirectiveLine>,
    /// The first of each modifier and text.
    same: HashMap<(&'t str, &'t [u8]), &'t DirectiveLine>,
}

impl<'t> EarlierExpressions<'t> {
    fn add(&mut self, line: &'t DirectiveLine, modifier: &'t str, path: &'t [u8]) {
        if matches!(modifier, "~" | "~*") {
            self.same.entry((modifier, path)).or_insert(line);
            if EVERYTHING.contains(&path) {
                self.everything.get_or_insert(line);
            }
        }
    }

    /// The first that matches whatever `path` does: an expression without case takes also what one with case matches.
    fn taker(&self, modifier: &str, path: &[u8]) -> Option<&'t DirectiveLine> {
        let with_case = self.same.get(&("~", path)).filter(|_| modifier == "~");
        let takers = [self.everything, with_case.copied(), self.same.get(&("~*", path)).copied()];
        takers.into_iter().flatten().min_by_key(|line| std::ptr::from_ref(*line))
    }
}

/// The prefixes of a block's locations.
struct PrefixLocations<'t> {
    /// Those of `^~` with their order.
    keepers: HashMap<&'t [u8], usize>,
    /// Those without a modifier, sorted.
    plain: Vec<&'t [u8]>,
}

impl<'t> PrefixLocations<'t> {
    fn new(scope: &LintScope<'t>) -> Self {
        let (mut keepers, mut plain) = (HashMap::new(), Vec::new());
        for (at, (modifier, path)) in scope.all("location").filter_map(location_of).enumerate() {
            match modifier {
                "^~" if !path.is_empty() => {
                    keepers.entry(path).or_insert(at);
                }
                "" => plain.push(path),
                _ => {}
            }
        }
        plain.sort_unstable();
        Self { keepers, plain }
    }

    /// Whether all URIs that begin as the expression demands are not tried against expressions because of a `^~`.
    fn guarded(&self, path: &[u8]) -> Option<String> {
        let literal = literal_beginning(path).filter(|_| !self.keepers.is_empty())?;
        let keepers = (1..=literal.len()).filter_map(|length| self.keepers.get_key_value(&literal[..length]));
        let (prefix, _) = keepers.min_by_key(|(_, at)| **at)?;
        // What is longer and begins alike follows it in the order.
        let after = self.plain.partition_point(|other| other <= prefix);
        let has_longer = self.plain.get(after).is_some_and(|other| other.starts_with(prefix));
        let prefix = String::from_utf8_lossy(prefix);
        (!has_longer)
            .then(|| format!("this location is never reached: \"^~ {prefix}\" keeps expressions out"))
    }
}

/// The text that all URIs begin with that the expression matches, unless it has alternatives.
fn literal_beginning(path: &[u8]) -> Option<&[u8]> {
    let literal = path.strip_prefix(b"^").filter(|_| !path.contains(&b'|'))?;
    let end = literal.iter().position(|byte| !(byte.is_ascii_alphanumeric() || b"/_-".contains(byte)));
    // A repeat after the last byte may take it away.
    let end = match end.map(|end| (end, literal[end])) {
        Some((end, b'?' | b'*' | b'{')) => end.saturating_sub(1),
        Some((end, _)) => end,
        None => literal.len(),
    };
    Some(&literal[..end])
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

//! The words that the parser knows at the cursor: its tables name them when a word is written there that they don't have.

use std::path::{Path, PathBuf};

use weir_conf::{Contexts, DirectiveEnd, DirectiveSignature, read_one};
use weir_engine::conf::build::build;

use super::analysis::without_effects;
use crate::check::is_lua_block;
use crate::modules::MODULES;

/// What may follow `words`, the name and the first arguments of a line of `row` in one of the blocks `here`. Empty where
/// the parser takes any text, or chooses without a table.
pub(super) fn parser_words(words: &[String], row: &DirectiveSignature, here: Contexts) -> Vec<String> {
    let around = BLOCKS.iter().find(|(block, ..)| here.allows(*block) && row.contexts.allows(*block));
    let (Some((_, open, close)), Some(ending)) = (around, ending(row)) else { return Vec::new() };
    let mut text = format!("{open}{} ", row.name);
    for word in words.iter().skip(1) {
        text.push_str(&format!("\"{}\" ", word.replace('\\', "\\\\").replace('"', "\\\"")));
    }
    let at = text.len();
    // The one at the cursor, and as many as the directive needs to be looked at.
    let count =
        (words.len()..words.len() + MOST).find(|count| row.args.allows(*count)).unwrap_or(words.len());
    text.push_str(&vec![UNKNOWN; count + 1 - words.len()].join(" "));
    text.push_str(ending);
    text.push_str(close);
    let Ok(tree) = read_one(Path::new("cursor"), text.as_bytes(), is_lua_block) else { return Vec::new() };
    let (built, _) = without_effects(|| build(tree, MODULES, PathBuf::from("/")));
    let Err((errors, _)) = built else { return Vec::new() };
    let here = errors.into_iter().filter(|error| error.span.is_some_and(|span| span.start as usize == at));
    here.flat_map(|error| error.choices).collect()
}

/// What ends a line; `None` of blocks in another language.
fn ending(row: &DirectiveSignature) -> Option<&'static str> {
    match row.args.kind {
        DirectiveEnd::Plain | DirectiveEnd::Flag => Some(";"),
        DirectiveEnd::Block => Some(" { }"),
        DirectiveEnd::Raw => None,
    }
}

/// A word of no table.
const UNKNOWN: &str = "\u{1}";

/// Arguments that are added at most.
const MOST: usize = 4;

/// How each block is written, the usual one of a directive first.
const BLOCKS: [(Contexts, &str, &str); 12] = [
    (Contexts::SERVER, "http { server { ", " } }"),
    (Contexts::LOCATION, "http { server { location / { ", " } } }"),
    (Contexts::HTTP, "http { ", " }"),
    (Contexts::UPSTREAM, "http { upstream u { ", " } }"),
    (Contexts::MAIN, "", ""),
    (Contexts::EVENTS, "events { ", " }"),
    (Contexts::SERVER_IF, "http { server { if ($host) { ", " } } }"),
    (Contexts::LOCATION_IF, "http { server { location / { if ($host) { ", " } } } }"),
    (Contexts::LIMIT_EXCEPT, "http { server { location / { limit_except GET { ", " } } } }"),
    (Contexts::STREAM_SERVER, "stream { server { ", " } }"),
    (Contexts::STREAM, "stream { ", " }"),
    (Contexts::STREAM_UPSTREAM, "stream { upstream u { ", " } }"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference;

    fn after(words: &str) -> Vec<String> {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let row = reference::directive(&words[0], Contexts::ANY | Contexts::UPSTREAM).expect("known").row;
        parser_words(&words, &row, row.contexts)
    }

    #[test]
    fn each_argument_has_its_words() {
        assert_eq!(after("satisfy"), ["all", "any"]);
        assert_eq!(after("gzip"), ["on", "off"]);
        assert!(after("proxy_next_upstream error").contains(&"http_502".to_owned()));
        assert!(after("listen 80").contains(&"so_keepalive=on".to_owned()));
        for words in ["listen", "root", "add_header a\"b\\", "content_by_lua_block"] {
            assert_eq!(after(words), [""; 0], "{words}");
        }
    }

    /// Switches have their two words. `http2_push_preload` is obsolete: its argument is not read.
    #[test]
    fn every_switch_is_on_or_off() {
        let rows = reference::directives().map(|row| row.row);
        let switches: Vec<_> = rows.filter(|row| row.args.kind == DirectiveEnd::Flag).collect();
        assert!(switches.len() > 50, "{}", switches.len());
        let other = switches.iter().filter(|row| {
            parser_words(&[row.name.to_owned()], row, row.contexts) != ["on".to_owned(), "off".to_owned()]
        });
        assert_eq!(other.map(|row| row.name).collect::<Vec<_>>(), ["http2_push_preload"]);
    }

    /// What the parser takes for the first argument of a directive and what its syntax says are the same words.
    #[test]
    fn the_parser_takes_the_words_of_the_syntax() {
        let (mut unsaid, mut refused, mut compared) = (Vec::new(), Vec::new(), 0);
        for row in reference::directives() {
            let name = row.row.name;
            let words = parser_words(&[name.to_owned()], &row.row, row.row.contexts);
            let first =
                |form: &&str| form.split_whitespace().nth(1).is_some_and(|word| !word.starts_with('['));
            let is_choice = row.row.syntax.lines().any(|form| first(&form) && form.contains('|'));
            if words.is_empty() {
                continue;
            }
            compared += 1;
            let lacks = words.iter().filter(|word| !row.mentions(word));
            unsaid.extend(lacks.map(|word| format!("{name} {word}")));
            if is_choice && row.row.syntax.lines().count() == 1 {
                let said = row.values().into_iter().filter(|value| !value.ends_with('='));
                let lacks = said.filter(|value| !words.iter().any(|word| word == value));
                refused.extend(lacks.map(|value| format!("{name} {value}")));
            }
        }
        assert!(compared > 100, "{compared}");
        // As in nginx, whose two directives read one table: these words say nothing there. The last is an old spelling.
        let silent = ["_next_upstream updating", "_use_stale non_idempotent", "profile_redact cookie"];
        unsaid.retain(|line| !silent.iter().any(|end| line.ends_with(end)));
        assert_eq!((unsaid, refused), (Vec::new(), Vec::<String>::new()));
    }

    #[test]
    fn no_log_is_made() {
        assert_eq!(after("access_log"), [""; 0]);
        assert_eq!(after("error_log"), [""; 0]);
        assert!(!Path::new("/").join(UNKNOWN).exists() && !Path::new(UNKNOWN).exists());
    }
}

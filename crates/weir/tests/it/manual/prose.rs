//! The prose keeps to the words of the field: tests/data/prose.txt lists words that are not written and what is. Messages
//! and names are written as `code` or in a block, which is not looked at.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use weir_http::json::JsonValue;

use super::links::without_code;
use super::{ManualPage, manual_pages, page, root};

/// A word that is not written, with what is written for it; on a line that has one of `unless` it is right.
struct ProseRule<'text> {
    words: Vec<&'text str>,
    instead: &'text str,
    unless: Vec<&'text str>,
}

/// Lines of `WORD[, WORD]... | INSTEAD | UNLESS[, UNLESS]...`.
fn rules(text: &str) -> Vec<ProseRule<'_>> {
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines.map(rule).collect()
}

fn rule(line: &str) -> ProseRule<'_> {
    let mut parts = line.split('|').map(str::trim);
    let first = parts.next().unwrap_or_default();
    let instead = parts.next().unwrap_or_default();
    let unless = parts.next().unwrap_or_default();
    ProseRule { words: listed(first), instead, unless: listed(unless) }
}

fn listed(part: &str) -> Vec<&str> {
    part.split(',').map(str::trim).filter(|word| !word.is_empty()).collect()
}

#[test]
fn the_words_are_those_of_the_field() {
    let text =
        fs::read_to_string(root().join("crates/weir/tests/data/prose.txt")).expect("the list of words");
    let rules = rules(&text);
    assert!(rules.len() >= 6, "the list is short");
    let mut pages = manual_pages();
    pages.push(page(&root(), &root().join("CHANGELOG.md")));
    pages.extend(help_pages());
    let wrong: Vec<_> = pages.iter().flat_map(|page| faults(page, &rules)).collect();
    assert!(wrong.is_empty(), "{} words of prose.txt:\n{}", wrong.len(), wrong.join("\n"));
}

/// What `weir help` shows of the program and of each command.
fn help_pages() -> Vec<ManualPage> {
    let help = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_weir")).arg("help").args(words).output();
        String::from_utf8(output.expect("it runs").stdout).expect("text")
    };
    let table = JsonValue::parse(help(&["--json"]).as_bytes()).expect("JSON");
    let commands = table.field("commands").and_then(JsonValue::list).expect("a list");
    let names =
        commands.iter().map(|command| command.field("name").and_then(JsonValue::text).expect("a name"));
    let mut pages: Vec<_> =
        names.map(|name| ManualPage { path: format!("weir help {name}"), text: help(&[name]) }).collect();
    assert!(pages.len() > 20, "{}", pages.len());
    pages.push(ManualPage { path: "weir help".to_owned(), text: help(&[]) });
    pages
}

fn faults(page: &ManualPage, rules: &[ProseRule<'_>]) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, line) in page.prose() {
        let plain = without_code(line).to_lowercase();
        for rule in rules {
            let found = rule.words.iter().find(|word| has_words(&plain, word));
            if let Some(word) = found.filter(|_| !rule.unless.iter().any(|right| plain.contains(right))) {
                faults.push(format!("{}:{number}: {word:?}: {}", page.path, rule.instead));
            }
        }
    }
    faults
}

/// Whether the words are in the line, as whole words.
fn has_words(line: &str, words: &str) -> bool {
    let letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(words).any(|(at, _)| {
        !letter(line[..at].chars().next_back()) && !letter(line[at + words.len()..].chars().next())
    })
}

/// Words in a sentence, on the mean, of each page that is not generated: printed, the longest first. `--nocapture` shows it.
#[test]
fn sentences_are_counted() {
    let mut figures = BTreeMap::new();
    for page in manual_pages()
        .iter()
        .filter(|page| !page.path.contains("/modules/") && !page.path.ends_with("SUMMARY.md"))
    {
        if let Some(mean) = words_in_a_sentence(page) {
            figures.insert((u32::MAX - mean, page.path.clone()), mean);
        }
    }
    let means: Vec<_> = figures.values().copied().collect();
    println!(
        "words in a sentence, median of {} pages: {}.{}",
        means.len(),
        tenths(&means) / 10,
        tenths(&means) % 10
    );
    for ((_, path), mean) in &figures {
        println!("{:3}.{} {path}", mean / 10, mean % 10);
    }
    assert!(!figures.is_empty());
}

fn tenths(means: &[u32]) -> u32 {
    means.get(means.len() / 2).copied().unwrap_or_default()
}

/// In tenths; of paragraphs and lists, without tables, headings and code.
fn words_in_a_sentence(page: &ManualPage) -> Option<u32> {
    let (mut words, mut sentences) = (0_u32, 0_u32);
    let paragraphs = page.prose().into_iter().map(|(_, line)| line.trim_start());
    for line in paragraphs.filter(|line| !line.starts_with(['|', '#', '<'])) {
        for word in line.split_whitespace() {
            words += u32::from(word.contains(char::is_alphanumeric));
            sentences +=
                u32::from(word.trim_end_matches([')', '*', '`', '"']).ends_with(['.', '?', '!', ':', ';']));
        }
    }
    (sentences > 0).then(|| words * 10 / sentences)
}

/// The generated pages are read beside a configuration: a sentence has 30 words at most.
#[test]
fn sentences_of_generated_pages_are_short() {
    let pages = manual_pages().into_iter().filter(|page| page.path.contains("/modules/"));
    let long: Vec<_> = pages.flat_map(|page| long_sentences(&page)).collect();
    assert!(long.is_empty(), "{} long sentences:\n{}", long.len(), long.join("\n"));
}

/// The sentences of more than 30 words in paragraphs, each with its page.
fn long_sentences(page: &ManualPage) -> Vec<String> {
    let mut long = Vec::new();
    let (mut sentence, mut words, mut last) = (String::new(), 0, 0);
    for (number, line) in page.prose() {
        let line = line.trim();
        if number > last + 1 || line.is_empty() || line.starts_with(['|', '#', '<', '-', '*']) {
            (sentence, words) = (String::new(), 0);
        }
        last = number;
        if line.starts_with(['|', '#', '<']) {
            continue;
        }
        for word in line.split_whitespace() {
            words += u32::from(word.contains(char::is_alphanumeric));
            sentence = format!("{sentence} {word}");
            if word.trim_end_matches([')', '*', '`', '"']).ends_with(['.', '?', '!']) {
                if words > 30 {
                    long.push(format!("{}:{number}: {words} words:{sentence}", page.path));
                }
                (sentence, words) = (String::new(), 0);
            }
        }
    }
    long
}

#[test]
fn words_are_found_whole() {
    let rules = rules("# why\nanew | again\nanswer, answers | response | dns\n");
    let text = "Sent anew.\nDNS answers.\nanswers.\nRenew, `anew`, manewl.\n```\nanew\n```\n".to_owned();
    let page = ManualPage { path: "p.md".to_owned(), text };
    assert_eq!(faults(&page, &rules), ["p.md:1: \"anew\": again", "p.md:3: \"answers\": response"]);
    let page =
        |count| ManualPage { path: "p.md".to_owned(), text: format!("A b.\n\n{}z.\n", "a ".repeat(count)) };
    assert!(
        long_sentences(&page(29)).is_empty()
            && long_sentences(&page(30))[0].starts_with("p.md:3: 31 words: a")
    );
    assert_eq!(
        words_in_a_sentence(&ManualPage { path: String::new(), text: "One two three. Four!\n".to_owned() }),
        Some(20)
    );
}

//! Blocks of code: configurations, scripts and commands are ones that this program takes.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use weir_test::TempDir;

use super::{CodeBlock, ManualPage, manual_pages};

/// Where directives of a block may be allowed, tried in this order.
const CONTEXTS: [(&str, &str); 6] = [
    ("", ""),
    ("events {}\nhttp {\n", "}\n"),
    ("events {}\nhttp {\nserver {\nlisten 127.0.0.1:65000;\n", "}\n}\n"),
    ("events {}\nhttp {\nserver {\nlisten 127.0.0.1:65000;\nlocation /manual/ {\n", "}\n}\n}\n"),
    ("events {}\nhttp {\nupstream manual {\nzone manual 64k;\nserver 127.0.0.1:1;\n", "}\n}\n"),
    ("events {\n", "}\n"),
];
/// Errors of the place where a block is tried, not of the block: names of examples, files of others, a certificate that another part of
/// the file names.
const OF_THE_MACHINE: [&str; 3] =
    ["host not found", "No such file or directory", "no \"ssl_certificate\" is defined"];

fn with_blocks(check: impl Fn(&[CodeBlock<'_>]) -> Vec<String>) {
    let pages = manual_pages();
    let blocks: Vec<_> =
        pages.iter().flat_map(ManualPage::blocks).filter(|block| block.reason.is_none()).collect();
    let wrong = check(&blocks);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn of_language<'a>(blocks: &'a [CodeBlock<'a>], languages: &[&str]) -> Vec<&'a CodeBlock<'a>> {
    blocks.iter().filter(|block| languages.contains(&block.language)).collect()
}

#[test]
fn every_block_has_a_language_that_is_checked_or_a_reason() {
    with_blocks(|blocks| {
        let known = ["nginx", "lua", "sh", "console", "text"];
        let unknown = blocks.iter().filter(|block| !known.contains(&block.language));
        unknown.map(|block| format!("{}: {:?} and no reason", block.place(), block.language)).collect()
    });
}

#[test]
fn configurations_are_accepted() {
    with_blocks(|blocks| {
        let blocks = of_language(blocks, &["nginx"]);
        assert!(blocks.len() > 100, "only {} configurations", blocks.len());
        refused_of(&blocks)
    });
}

/// What `-t` says of the block in the context that fits it best; nothing where it is accepted in one.
fn refused(block: &CodeBlock<'_>) -> Option<String> {
    let mut fewest: Option<Vec<String>> = None;
    for (before, after) in CONTEXTS {
        let events = before.is_empty() && !block.text.contains("events");
        let text = format!("{before}{}{after}{}", block.text, if events { "events {}\n" } else { "" });
        let errors = errors_of(&text);
        if errors.is_empty() {
            return None;
        }
        if fewest.as_ref().is_none_or(|fewest| errors.len() < fewest.len()) {
            fewest = Some(errors);
        }
    }
    fewest.map(|errors| format!("{}:\n  {}", block.place(), errors.join("\n  ")))
}

/// The errors of `-t`, without those of the place.
fn errors_of(text: &str) -> Vec<String> {
    let directory = TempDir::new();
    for name in ["logs", "html"] {
        std::fs::create_dir(directory.path().join(name)).expect("a directory of the test");
    }
    let file = directory.write("nginx.conf", text);
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("-t").arg("-p").arg(directory.path()).arg("-c").arg(file);
    let stderr = command.output().expect("the binary starts").stderr;
    let stderr = String::from_utf8_lossy(&stderr).into_owned();
    let errors = stderr.lines().filter(|line| line.contains("[emerg]"));
    let own = errors.filter(|line| !OF_THE_MACHINE.iter().any(|fault| line.contains(fault)));
    own.map(str::to_owned).collect()
}

/// [`refused`] of all blocks, on four threads.
fn refused_of(blocks: &[&CodeBlock<'_>]) -> Vec<String> {
    std::thread::scope(|scope| {
        let shares = blocks.chunks(blocks.len().div_ceil(4).max(1));
        let threads: Vec<_> = shares
            .map(|share| {
                scope.spawn(move || share.iter().filter_map(|block| refused(block)).collect::<Vec<_>>())
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a share of the blocks")).collect()
    })
}

#[test]
fn scripts_compile() {
    with_blocks(|blocks| {
        let blocks = of_language(blocks, &["lua"]);
        assert!(!blocks.is_empty());
        let directory = TempDir::new();
        let program =
            "for _, name in ipairs(arg) do local _, err = loadfile(name) if err then print(err) end end";
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.arg("lua").arg(directory.write("check.lua", program));
        for block in blocks {
            let name = format!("{}.lua", block.place().replace('/', "."));
            command.arg(directory.write(&name, &block.text));
        }
        let output = command.output().expect("the binary starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    });
}

#[test]
fn commands_and_their_options_exist() {
    with_blocks(|blocks| {
        let mut helps = BTreeMap::new();
        let mut wrong = Vec::new();
        let commands = listed_commands();
        for block in of_language(blocks, &["sh", "console"]) {
            for words in weir_calls(block) {
                if let Some(why) = unknown(&words, &commands, &mut helps) {
                    wrong.push(format!("{}: weir {}: {why}", block.place(), words.join(" ")));
                }
            }
        }
        wrong
    });
}

/// The commands that `weir -h` lists.
fn listed_commands() -> BTreeSet<String> {
    let help = help_of(&["-h"]);
    let lines = help.lines().filter_map(|line| line.trim_start().strip_prefix("weir "));
    let names = lines.filter_map(|line| line.split(' ').next());
    names.filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase())).map(str::to_owned).collect()
}

fn help_of(arguments: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).output().expect("the binary starts");
    [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat()
}

/// The words of each call of `weir` in a block, without `weir`.
fn weir_calls(block: &CodeBlock<'_>) -> Vec<Vec<String>> {
    let joined = block.text.replace("\\\n", " ");
    let mut calls = Vec::new();
    for line in joined.lines().map(str::trim) {
        let command = match block.language {
            "console" => line.strip_prefix("$ ").or_else(|| line.strip_prefix("# ")),
            _ => (!line.starts_with('#')).then_some(line),
        };
        for part in command.into_iter().flat_map(commands_of) {
            let mut words =
                part.into_iter().skip_while(|word| word == "sudo" || word == "exec" || word.contains('='));
            if words.next().is_some_and(|name| name == "weir" || name.ends_with("/weir")) {
                calls.push(words.collect());
            }
        }
    }
    calls
}

/// The simple commands of a line of the shell, as words without their quotes; a comment ends the line.
fn commands_of(line: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words, mut word) = (Vec::new(), Vec::new(), String::new());
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(end), c) if c == end => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (Some(_), c) => word.push(c),
            (None, '#') if word.is_empty() => break,
            (None, '|' | ';' | '&' | '<' | '>' | '(' | ')') => {
                words.push(std::mem::take(&mut word));
                commands.push(std::mem::take(&mut words));
            }
            (None, c) if c.is_whitespace() => words.push(std::mem::take(&mut word)),
            (None, c) => word.push(c),
        }
    }
    words.push(word);
    commands.push(words);
    for words in &mut commands {
        words.retain(|word| !word.is_empty());
    }
    commands
}

/// Why a call of `weir` is not one: its command or an option is not in its help.
fn unknown(
    words: &[String],
    commands: &BTreeSet<String>,
    helps: &mut BTreeMap<String, String>,
) -> Option<String> {
    let mut rest = words.iter().map(String::as_str);
    let mut command = None;
    let mut options = Vec::new();
    while let Some(word) = rest.next() {
        if command.is_none() && ["-c", "-p", "-e", "-g", "-s"].contains(&word) {
            rest.next();
        } else if word.starts_with('-') && word != "-" {
            options.push(word);
        } else if command.is_none() {
            command = Some(word);
        }
        // What comes after a program's file is the program's.
        if command == Some("lua") && word.ends_with(".lua") {
            break;
        }
    }
    // A file or directory to serve.
    let command = command.filter(|word| !word.contains(['.', '/']));
    if let Some(command) = command.filter(|command| !commands.contains(*command)) {
        return Some(format!("no command {command:?}"));
    }
    let key = command.unwrap_or_default().to_owned();
    let help = helps.entry(key).or_insert_with_key(|command| match &**command {
        "" => help_of(&["-h"]),
        command => help_of(&[command, "--help"]),
    });
    let missing = options.iter().find(|option| !has_option(help, option));
    missing.map(|option| format!("no option {option}"))
}

fn has_option(help: &str, option: &str) -> bool {
    let name = option.split('=').next().unwrap_or(option);
    let mut words = help.split(|c: char| !c.is_alphanumeric() && c != '-');
    ["-h", "--help", "--version"].contains(&name)
        || words.any(|word| word == name)
        // Flags of one letter in a bundle, as in [-?hvVtTq].
        || (name.len() == 2 && help.split(['[', ']']).any(|group| group.starts_with("-?") && group.contains(&name[1..])))
}

#[test]
fn calls_of_the_program_are_found() {
    let text = "$ sudo weir trace '/a b' --avg 3 | head # weir no\noutput\n# A=b ./weir -t -c x.conf && weir top \\\n  -b\n";
    let page = ManualPage { path: "p.md".to_owned(), text: format!("```console\n{text}```\n") };
    let blocks = page.blocks();
    let calls: Vec<String> = weir_calls(&blocks[0]).iter().map(|words| words.join(",")).collect();
    assert_eq!(calls, ["trace,/a b,--avg,3", "-t,-c,x.conf", "top,-b"]);
    let (commands, mut helps) = (listed_commands(), BTreeMap::new());
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    for right in ["trace --avg 3", "-c a top -b", "-t -c x.conf", "lua -e 1", "lua a.lua --own"] {
        assert_eq!(unknown(&words(right), &commands, &mut helps), None, "{right}");
    }
    for wrong in ["trase", "trace --averages 3", "-Z"] {
        assert!(unknown(&words(wrong), &commands, &mut helps).is_some(), "{wrong}");
    }
}

#[test]
fn wrong_configurations_are_refused() {
    for (text, right) in [
        ("gzip on;", true),
        ("proxy_pass http://app.example;", true),
        ("least_conn;", true),
        ("gzzip on;", false),
        ("listen 80; proxy_pass http://a;", false),
    ] {
        let page = ManualPage { path: "p.md".to_owned(), text: format!("```nginx\n{text}\n```\n") };
        assert_eq!(refused(&page.blocks()[0]).is_none(), right, "{text}");
    }
}

//! What the rows of the directive tables say for the manual is true: each form of a syntax begins with the name and has as
//! many arguments as the row takes, and each default is accepted by the row's own setter.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use weir::modules::MODULES;
use weir_conf::{Contexts, DirectiveEnd, DirectiveSignature};
use weir_engine::conf::test::load;

use crate::module_docs::tables;

/// The rows without a syntax are those of the list, which may only become shorter; `WEIR_WRITE_DOCS=1` takes from it what
/// has one now.
#[test]
fn rows_have_a_syntax() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/rows-without-syntax.txt");
    let text = fs::read_to_string(&path).unwrap_or_default();
    let listed: BTreeSet<_> = text.lines().map(str::to_owned).collect();
    let missing = missing();
    if std::env::var_os("WEIR_WRITE_DOCS").is_some() {
        let left: String = listed.intersection(&missing).map(|row| format!("{row}\n")).collect();
        fs::write(&path, left).expect("a file of the repository");
    }
    let new: Vec<_> = missing.difference(&listed).collect();
    assert!(new.is_empty(), "no .syntax(): {new:?}");
    let done: Vec<_> = listed.difference(&missing).collect();
    assert!(
        done.is_empty() || std::env::var_os("WEIR_WRITE_DOCS").is_some(),
        "take these out of {}: {done:?}",
        path.display()
    );
}

/// `module name` of each row without a syntax.
fn missing() -> BTreeSet<String> {
    let rows = tables().into_iter().flat_map(|(module, rows)| rows.into_iter().map(move |row| (module, row)));
    let without = rows.filter(|(_, row)| row.syntax.is_empty());
    without.map(|(module, row)| format!("{module} {}", row.name)).collect()
}

#[test]
fn a_syntax_has_as_many_arguments_as_the_row_takes() {
    let rows: Vec<_> = tables().into_values().flatten().filter(|row| !row.syntax.is_empty()).collect();
    let wrong: Vec<_> = rows.iter().filter_map(|row| wrong_syntax(row).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Why the syntax of `row` is not one of its arguments.
fn wrong_syntax(row: &DirectiveSignature) -> Result<(), String> {
    let mut counts = 0;
    for form in row.syntax.lines() {
        let wrong = |what: &str| format!("{form:?}: {what}");
        let args = form.strip_prefix(row.name).ok_or_else(|| wrong("does not begin with the name"))?;
        if row.args.kind == DirectiveEnd::Flag && args != " on | off" {
            return Err(wrong("a flag is on | off"));
        }
        let form = Counts::of(args).ok_or_else(|| wrong("brackets, | or ... where none may be"))?;
        // An argument that may be repeated may be so as often as the row lets it.
        let too_many = |count: &u32| !row.args.allows(*count as usize) && form.finite >> count & 1 == 1;
        if let Some(count) = (0..Counts::MOST).find(too_many) {
            return Err(wrong(&format!("{count} arguments are refused")));
        }
        counts |= form.all;
    }
    match (0..Counts::MOST).find(|&count| row.args.allows(count as usize) && counts >> count & 1 == 0) {
        // What has many parameters is checked by its setter, as is what has options of two words.
        Some(count) if row.args.allows(Counts::MOST as usize) && counts >> (count - 1) == 1 => Ok(()),
        Some(_) if row.args.allows(Counts::MOST as usize) && row.syntax.contains("[-") => Ok(()),
        Some(count) => Err(format!("{:?}: the row takes {count} arguments, too", row.syntax)),
        None => Ok(()),
    }
}

/// The numbers of arguments a syntax allows: bit n for n of them.
#[derive(Clone, Copy)]
struct Counts {
    all: u64,
    /// With each argument that may be repeated written once.
    finite: u64,
}

impl Counts {
    /// Counts of more arguments are not looked at.
    const MOST: u32 = 40;
    const NONE: Self = Self { all: 1, finite: 1 };
    const ONE: Self = Self { all: 2, finite: 2 };

    /// Of what follows the name; `None` where the form is not well-formed.
    fn of(args: &str) -> Option<Self> {
        let tokens = tokens(args);
        let mut rest = &tokens[..];
        let counts = Self::sequence(&mut rest)?;
        rest.is_empty().then_some(counts)
    }

    /// Items up to a closing bracket or the end.
    fn sequence(rest: &mut &[&str]) -> Option<Self> {
        let mut counts = Self::NONE;
        while !rest.is_empty() && rest[0] != "]" {
            let mut item = Self::item(rest)?;
            while rest.first() == Some(&"|") {
                *rest = &rest[1..];
                let other = Self::item(rest)?;
                item = Self { all: item.all | other.all, finite: item.finite | other.finite };
            }
            if rest.first() == Some(&"...") {
                *rest = &rest[1..];
                let once = item.all;
                (0..Self::MOST).for_each(|_| item.all |= sums(item.all, once));
            }
            counts = Self { all: sums(counts.all, item.all), finite: sums(counts.finite, item.finite) };
        }
        Some(counts)
    }

    /// A word, or a group in brackets, which may be absent.
    fn item(rest: &mut &[&str]) -> Option<Self> {
        let (first, after) = rest.split_first()?;
        *rest = after;
        match *first {
            "[" => {
                let inside = Self::sequence(rest)?;
                let (_, after) = rest.split_first()?;
                *rest = after;
                Some(Self { all: inside.all | 1, finite: inside.finite | 1 })
            }
            "]" | "|" | "..." => None,
            _ => Some(Self::ONE),
        }
    }
}

/// All sums of a count of `a` and one of `b`.
fn sums(a: u64, b: u64) -> u64 {
    (0..Counts::MOST).filter(|n| a >> n & 1 == 1).fold(0, |sums, n| sums | b << n)
}

/// Words, `|`, `...`, and the brackets that are not inside a word as those of `address[:port]`.
fn tokens(args: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    for mut word in args.split_whitespace() {
        while let Some(rest) = word.strip_prefix('[') {
            tokens.push("[");
            word = rest;
        }
        let closing =
            |word: &str| word.ends_with(']') && word.matches(']').count() > word.matches('[').count();
        let mut end = word;
        while closing(end) {
            end = &end[..end.len() - 1];
        }
        tokens.extend((!end.is_empty()).then_some(end));
        tokens.extend(word[end.len()..].chars().map(|_| "]"));
    }
    tokens
}

#[test]
fn counts_of_a_syntax() {
    let counts =
        |args| (0..5).filter(|n| Counts::of(args).expect(args).all >> n & 1 == 1).collect::<Vec<u32>>();
    assert_eq!(counts("on | off"), [1]);
    assert_eq!(counts("[ = | ~ ] uri"), [1, 2]);
    assert_eq!(counts("path [format [buffer=size[k]] [if=x]]"), [1, 2, 3, 4]);
    assert_eq!(counts("address[:port] ..."), [1, 2, 3, 4]);
    assert_eq!(counts("code [a b]"), [1, 3]);
    assert!(Counts::of("a |").is_none() && Counts::of("[a").is_none() && Counts::of("a]").is_none());
}

/// A default is a line that the directive takes in one of the blocks it is allowed in.
#[test]
fn defaults_are_accepted() {
    let rows = tables().into_values().flatten().filter(|row| !row.default.is_empty());
    let wrong: Vec<_> = rows.filter_map(|row| refused(&row)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The error of a directive's default.
fn refused(row: &DirectiveSignature) -> Option<String> {
    let lines: String = row.default.lines().map(|args| format!("{} {args};\n", row.name)).collect();
    let errors = BLOCKS
        .iter()
        .filter(|(block, ..)| row.contexts.allows(*block))
        .map(|(_, before, after)| load(&format!("{before}\n{lines}{after}"), MODULES).err())
        // A line that names a file which this machine does not have is understood.
        .map(|error| error.filter(|error| !error.starts_with("open() \"/srv/weir/")));
    // Accepted somewhere is enough: a default of http can be wrong in a location that lacks something else.
    let errors: Vec<_> = errors.collect();
    let error = || format!("{} has no context", row.name);
    match errors.iter().any(Option::is_none) {
        true => None,
        false => Some(errors.into_iter().flatten().next().unwrap_or_else(error)),
    }
}

/// A block, and a configuration's text before and after its lines.
const BLOCKS: [(Contexts, &str, &str); 9] = [
    (Contexts::MAIN, "", "events {} http {}"),
    (Contexts::EVENTS, "events {", "} http {}"),
    (Contexts::HTTP, "events {} http {", "}"),
    (Contexts::STREAM, "events {} stream {", "}"),
    (Contexts::SERVER, "events {} http { server {", "} }"),
    (Contexts::LOCATION, "events {} http { server { location / {", "} } }"),
    (Contexts::UPSTREAM, "events {} http { upstream a { server 127.0.0.1:1;", "} }"),
    (Contexts::SERVER_IF, "events {} http { server { if ($uri) {", "} } }"),
    (Contexts::LOCATION_IF, "events {} http { server { location / { if ($uri) {", "} } } }"),
];

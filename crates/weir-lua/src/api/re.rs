//! `ngx.re.*` on PCRE2. Iterating and calling functions is the prelude's part.

use std::ops::Range;
use std::rc::Rc;

use weir_core::log::Level;

use super::{Done, Function, Outcome, Raise, expect_string, function};
use crate::lend;
use crate::regex::{Compiled, Groups, Wrong};
use crate::state::State;
use crate::sys::kind;

pub(super) const TABLE: &[Function] =
    &[function("_re.match", 0, exec), function("_re.find", 0, find), function("_re.sub", 0, sub)];

/// The pattern in the second argument with the options in the third, or what to return.
fn pattern(l: State, name: &str) -> Result<Result<Rc<Compiled>, String>, Raise> {
    let text = expect_string(&l, 2, name)?;
    let options = if l.is_none_or_nil(3) { Vec::new() } else { expect_string(&l, 3, name)? };
    match lend::vm(|vm| vm.patterns.get(&text, &options)) {
        Ok(compiled) => Ok(Ok(compiled)),
        Err(Wrong::Pattern(message)) => Ok(Err(message)),
        Err(Wrong::Flag(message)) => Err(Raise::text(message)),
    }
}

/// The first match from `start` on.
fn run(compiled: &Compiled, subject: &[u8], start: usize) -> Result<Option<Groups>, String> {
    lend::vm(|vm| vm.patterns.find(compiled, subject, start))
        .map_err(|error| format!("pcre_exec() failed: {}", error.code()))
}

/// `subject, pattern, options, start (from 0), result table`: the table of groups, and where the match begins and ends;
/// nil for none; nil and a message.
fn exec(l: State) -> Outcome {
    let subject = expect_string(&l, 1, "match")?;
    let compiled = match pattern(l, "match")? {
        Ok(compiled) => compiled,
        Err(message) => return super::fail(l, &message),
    };
    let start = l.number(4).unwrap_or(0.0).max(0.0) as usize;
    match run(&compiled, &subject, start) {
        Err(message) => super::fail(l, &message),
        Ok(None) => {
            l.push_nil();
            Ok(Done::Results(1))
        }
        Ok(Some(groups)) => {
            if l.kind(5) == kind::TABLE {
                l.push_value(5);
            } else {
                l.new_table(groups.len(), compiled.names.len() + 1);
            }
            fill(l, &compiled, &subject, &groups);
            let whole = groups[0].clone().unwrap_or_default();
            l.push_number(whole.start as f64);
            l.push_number(whole.end as f64);
            Ok(Done::Results(3))
        }
    }
}

/// Puts the groups into the table on top: by number, and by name.
fn fill(l: State, compiled: &Compiled, subject: &[u8], groups: &Groups) {
    let push = |number: usize| match groups.get(number).cloned().flatten() {
        Some(span) => l.push_bytes(&subject[span]),
        None => l.push_boolean(false),
    };
    for number in 0..=compiled.regex.captures_len() {
        push(number);
        l.raw_set_index(-2, number);
    }
    for (at, (name, number)) in compiled.names.iter().enumerate() {
        let twins: Vec<_> = compiled.names.iter().filter(|(other, _)| other == name).collect();
        l.push_bytes(name.as_bytes());
        if twins.len() == 1 {
            push(*number);
        } else if compiled.names[..at].iter().any(|(other, _)| other == name) {
            // A name of several groups has the list of those that took part; it was made with the first.
            l.pop(1);
            continue;
        } else {
            l.new_table(twins.len(), 0);
            let taken = twins.iter().filter(|(_, number)| groups.get(*number).cloned().flatten().is_some());
            for (place, (_, number)) in taken.enumerate() {
                push(*number);
                l.raw_set_index(-2, place + 1);
            }
        }
        l.raw_set(-3);
    }
}

/// `subject, pattern, options, start (from 0), group`: where the group begins and ends, from 1; nil, nil and a message.
fn find(l: State) -> Outcome {
    let subject = expect_string(&l, 1, "find")?;
    let failed = |message: String| {
        l.push_nil();
        l.push_nil();
        l.push_bytes(message.as_bytes());
        Ok(Done::Results(3))
    };
    let compiled = match pattern(l, "find")? {
        Ok(compiled) => compiled,
        Err(message) => return failed(message),
    };
    let start = l.number(4).unwrap_or(0.0).max(0.0) as usize;
    let number = l.number(5).unwrap_or(0.0).max(0.0) as usize;
    if number > compiled.regex.captures_len() {
        return failed("nth out of bound".to_owned());
    }
    match run(&compiled, &subject, start) {
        Err(message) => failed(message),
        Ok(groups) => {
            let ends = groups.as_ref().and_then(|groups| groups[0].clone()).map(|whole| whole.end);
            match groups.and_then(|groups| groups.get(number).cloned().flatten()) {
                Some(span) => {
                    l.push_number(span.start as f64 + 1.0);
                    l.push_number(span.end as f64);
                }
                None => {
                    l.push_nil();
                    l.push_nil();
                }
            }
            l.push_nil();
            match ends {
                Some(end) => l.push_number(end as f64),
                None => l.push_nil(),
            }
            Ok(Done::Results(4))
        }
    }
}

/// A part of a replacement.
enum Part {
    Text(Vec<u8>),
    Group(usize),
}

/// `$1`, `${1}`, `$0` and `$$` of a replacement. What is wrong with one is logged, in OpenResty's words.
fn template(text: &[u8]) -> Result<Vec<Part>, String> {
    let fail = |reason: String| {
        lend::log(Level::Error, &reason);
        "failed to compile the replacement template".to_owned()
    };
    let invalid = || {
        let text = String::from_utf8_lossy(text);
        fail(format!("lua script: invalid capturing variable name found in \"{text}\""))
    };
    let (mut parts, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.iter().position(|byte| *byte == b'$') {
        parts.push(Part::Text(rest[..at].to_vec()));
        rest = &rest[at + 1..];
        if let [b'$', after @ ..] = rest {
            parts.push(Part::Text(b"$".to_vec()));
            rest = after;
            continue;
        }
        let braced = rest.first() == Some(&b'{');
        let named = if braced { &rest[1..] } else { rest };
        let digits = named.first().is_some_and(u8::is_ascii_digit);
        let part = |byte: &u8| {
            if digits { byte.is_ascii_digit() } else { byte.is_ascii_alphanumeric() || *byte == b'_' }
        };
        let (name, after) = named.split_at(named.iter().take_while(|byte| part(byte)).count());
        if name.is_empty() {
            return Err(invalid());
        }
        let shown = String::from_utf8_lossy(name);
        if braced && after.first() != Some(&b'}') {
            return Err(fail(format!("the closing bracket in \"{shown}\" variable is missing")));
        }
        let Ok(number) = shown.parse() else {
            return Err(fail(format!(
                "attempt to use named capturing variable \"{shown}\" (named captures not supported yet)"
            )));
        };
        parts.push(Part::Group(number));
        rest = if braced { &after[1..] } else { after };
    }
    parts.push(Part::Text(rest.to_vec()));
    Ok(parts)
}

/// `subject, pattern, options, template, everywhere`: the new text and how often; nil, nil and a message.
fn sub(l: State) -> Outcome {
    let subject = expect_string(&l, 1, "sub")?;
    let done = match pattern(l, "sub")? {
        Ok(compiled) => template(l.bytes(4).unwrap_or_default())
            .and_then(|parts| replace(&compiled, &subject, &parts, l.boolean(5))),
        Err(message) => Err(message),
    };
    match done {
        Ok((text, count)) => {
            l.push_bytes(&text);
            l.push_number(count as f64);
            Ok(Done::Results(2))
        }
        Err(message) => {
            l.push_nil();
            l.push_nil();
            l.push_bytes(message.as_bytes());
            Ok(Done::Results(3))
        }
    }
}

fn replace(
    compiled: &Compiled,
    subject: &[u8],
    parts: &[Part],
    everywhere: bool,
) -> Result<(Vec<u8>, usize), String> {
    let (mut out, mut count, mut from, mut start) = (Vec::with_capacity(subject.len()), 0, 0, 0);
    while start <= subject.len() {
        let Some(groups) = run(compiled, subject, start)? else { break };
        let whole = groups[0].clone().unwrap_or_default();
        out.extend_from_slice(&subject[from..whole.start]);
        for part in parts {
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::Group(number) => {
                    if let Some(span) = groups.get(*number).cloned().flatten() {
                        out.extend_from_slice(&subject[span]);
                    }
                }
            }
        }
        count += 1;
        from = whole.end;
        start = next(compiled, subject, &whole);
        if !everywhere {
            break;
        }
    }
    out.extend_from_slice(subject.get(from..).unwrap_or_default());
    Ok((out, count))
}

/// Where to look for the match behind `whole`: an empty one moves on by a character.
fn next(compiled: &Compiled, subject: &[u8], whole: &Range<usize>) -> usize {
    if !whole.is_empty() {
        return whole.end;
    }
    let mut at = whole.end + 1;
    while compiled.utf && subject.get(at).is_some_and(|byte| byte & 0xc0 == 0x80) {
        at += 1;
    }
    at
}

//! The part of `ngx.re.*` that compiled code does not call: names of groups, replacements, and what is wrong with a
//! pattern.

pub(crate) mod ffi;

use weir_engine::log::LogLevel;

use crate::luajit::state::LuaState;
use crate::run::function::{
    ApiFunction, CallDone, CallOutcome, LuaRaise, expect_number, expect_string, function,
};
use crate::run::lend;
use crate::vm::patterns::PatternError;

pub(super) const TABLE: &[ApiFunction] = &[
    function("_re.names", 0, names),
    function("_re.version", 0, |l| {
        l.push_bytes(weir_sys::regex::version().as_bytes());
        Ok(CallDone::Results(1))
    }),
    function("_re.template", 0, |l| match template(&expect_string(&l, 1, "template")?) {
        Ok(parts) => {
            l.new_table(parts.len(), 0);
            for (at, part) in parts.iter().enumerate() {
                match part {
                    ReplacementPart::Text(text) => l.push_bytes(text),
                    ReplacementPart::Group(number) => l.push_number(*number as f64),
                }
                l.raw_set_index(-2, at + 1);
            }
            Ok(CallDone::Results(1))
        }
        Err(message) => crate::run::function::fail(l, &message),
    }),
    function("_re.complain", 0, |l| {
        let (pattern, options) = (expect_string(&l, 1, "match")?, expect_string(&l, 2, "match")?);
        match lend::vm(|vm| vm.patterns.get(&pattern, &options)) {
            Err(PatternError::Flag(message)) => Err(LuaRaise::text(message)),
            Err(PatternError::Pattern(message)) => {
                l.push_bytes(message.as_bytes());
                Ok(CallDone::Results(1))
            }
            Ok(_) => Err(LuaRaise::text("no memory for a pattern")),
        }
    }),
];

/// The names of a pattern's groups, each with the numbers of its groups; nil without names.
fn names(l: LuaState) -> CallOutcome {
    let number = expect_number(l, 1, "names")? as i32;
    let compiled =
        lend::vm(|vm| vm.patterns.numbered(number)).ok_or_else(|| LuaRaise::text("no such pattern"))?;
    if compiled.names.is_empty() {
        l.push_nil();
        return Ok(CallDone::Results(1));
    }
    l.new_table(0, compiled.names.len());
    for (name, _) in &compiled.names {
        l.push_bytes(name.as_bytes());
        let numbers = compiled.names.iter().filter(|(other, _)| other == name).map(|(_, number)| *number);
        l.new_table(1, 0);
        for (at, number) in numbers.enumerate() {
            l.push_number(number as f64);
            l.raw_set_index(-2, at + 1);
        }
        l.raw_set(-3);
    }
    Ok(CallDone::Results(1))
}

/// A part of a replacement.
enum ReplacementPart {
    Text(Vec<u8>),
    Group(usize),
}

/// `$1`, `${1}`, `$0` and `$$` of a replacement. What is wrong with one is logged, in OpenResty's words.
fn template(text: &[u8]) -> Result<Vec<ReplacementPart>, String> {
    let fail = |reason: String| {
        lend::log(LogLevel::Error, &reason);
        "failed to compile the replacement template".to_owned()
    };
    let invalid = || {
        let text = String::from_utf8_lossy(text);
        fail(format!("lua script: invalid capturing variable name found in \"{text}\""))
    };
    let (mut parts, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.iter().position(|byte| *byte == b'$') {
        parts.push(ReplacementPart::Text(rest[..at].to_vec()));
        rest = &rest[at + 1..];
        if let [b'$', after @ ..] = rest {
            parts.push(ReplacementPart::Text(b"$".to_vec()));
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
        parts.push(ReplacementPart::Group(number));
        rest = if braced { &after[1..] } else { after };
    }
    parts.push(ReplacementPart::Text(rest.to_vec()));
    Ok(parts)
}

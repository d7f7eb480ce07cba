//! `edit_headers`: adds to, merges and removes fields of responses and requests, one step after the other, as the
//! `header.*` directives of H2O's configuration files do.
//!
//! Other than `add_header` and `more_set_headers`, which each run as a whole, all steps run in the order in which they are
//! written, those of the block around first.

use std::rc::Rc;
use std::sync::Arc;

use weir_conf::names::{ANY, TWO_OR_MORE};
use weir_conf::{Directive, LineCx, Result};
use weir_engine::exchange::FieldPattern;
use weir_engine::filter::{FilterSlot, HeaderFilter};
use weir_engine::plan::PlanBuilder;
use weir_engine::rehearsed::HandlerRehearsal;
use weir_engine::variable::ValueScript;
use weir_engine::{Exchange, Handler, Module, Phase, Text, Verdict};
use weir_http::header::is_token_byte;
use weir_http::{KnownField, classify};

/// The module `edit_headers`.
pub struct EditHeaders;

impl Module for EditHeaders {
    const NAME: &'static str = "edit_headers";
    type Conf = EditHeadersConf;
    const DIRECTIVES: &'static [Directive<EditHeadersConf>] = &[
        EditRow::new("edit_header", ANY, TWO_OR_MORE, |conf, line| {
            let (statuses, at) = statuses(line)?;
            conf.response.push((statuses, FieldEdit::parse(line, at, RESPONSE_EDITS)?));
            Ok(())
        })
        .syntax("edit_header [-s statuses] add | append | merge | set | setifempty field\n\
                 edit_header [-s statuses] unset | unsetunless name ...")
        .doc(
            "Changes fields of responses, with `-s` of those statuses alone (a list in quotes), in the order of the lines, those of the \
             block around first. `add` adds a line. `append` appends to the value with a comma, \
             `merge` unless the list has it. `set` replaces, `setifempty` sets what is not there. \
             `unset` removes fields, `unsetunless` all but those named.",
        )
        .example("edit_header merge \"Cache-Control: must-revalidate\";"),
        EditRow::new("edit_request_header", ANY, TWO_OR_MORE, |conf, line| {
            conf.request.push(FieldEdit::parse(line, 0, REQUEST_EDITS)?);
            Ok(())
        })
        .syntax(
            "edit_request_header add | append | merge | set | setifempty field\n\
             edit_request_header unset | unsetunless | cookie.unset | cookie.unsetunless name ...",
        )
        .doc(
            "Changes fields of requests at the end of the rewrite phase, as `edit_header` those of \
             responses; `cookie.unset` removes cookies, `cookie.unsetunless` all but those named.",
        ),
    ];

    fn inherit(conf: &mut EditHeadersConf, parent: &EditHeadersConf) {
        conf.response.splice(0..0, parent.response.iter().cloned());
        conf.request.splice(0..0, parent.request.iter().cloned());
    }

    fn install(conf: &EditHeadersConf, plan: &mut PlanBuilder<'_>) {
        if !conf.response.is_empty() {
            // After ranges, which may put an error page in the place of the response.
            plan.header_filter(
                FilterSlot::Chunked,
                Self::NAME,
                ResponseEdits(conf.response.as_slice().into()),
            );
        }
        if !conf.request.is_empty() {
            plan.handler(Phase::Rewrite, Self::NAME, RequestEdits(conf.request.as_slice().into()));
        }
    }
}

type EditRow = Directive<EditHeadersConf>;

/// The settings of one block.
#[derive(Default)]
pub struct EditHeadersConf {
    response: Vec<(EditStatuses, FieldEdit)>,
    request: Vec<FieldEdit>,
}

/// The statuses that a step is for; none for all.
type EditStatuses = Arc<[u16]>;

/// `-s statuses` and where the action is.
fn statuses(line: &LineCx<'_>) -> Result<(Arc<[u16]>, usize)> {
    if line.bytes(0) != b"-s" {
        return Ok((Arc::default(), 0));
    }
    let statuses = line.arg(1).split_whitespace().map(|word| word.parse().ok());
    match statuses.collect::<Option<Arc<[u16]>>>() {
        Some(statuses) if line.args().len() > 3 && !statuses.is_empty() => Ok((statuses, 2)),
        Some(_) => Err(line.fail("invalid number of arguments")),
        None => Err(line.fail_arg(1, "invalid status")),
    }
}

/// One step.
#[derive(Clone)]
enum FieldEdit {
    /// The name and value of a field.
    Value(ValueEdit, Box<[u8]>, ValueScript),
    /// Names of fields or cookies.
    Names(NamesEdit, Vec<Box<[u8]>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueEdit {
    Add,
    Append,
    Merge,
    Set,
    SetIfEmpty,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NamesEdit {
    Unset,
    UnsetUnless,
    CookieUnset,
    CookieUnsetUnless,
}

const VALUE_EDITS: [(&str, ValueEdit); 5] = [
    ("add", ValueEdit::Add),
    ("append", ValueEdit::Append),
    ("merge", ValueEdit::Merge),
    ("set", ValueEdit::Set),
    ("setifempty", ValueEdit::SetIfEmpty),
];
const RESPONSE_EDITS: &[(&str, NamesEdit)] =
    &[("unset", NamesEdit::Unset), ("unsetunless", NamesEdit::UnsetUnless)];
const REQUEST_EDITS: &[(&str, NamesEdit)] = &[
    ("unset", NamesEdit::Unset),
    ("unsetunless", NamesEdit::UnsetUnless),
    ("cookie.unset", NamesEdit::CookieUnset),
    ("cookie.unsetunless", NamesEdit::CookieUnsetUnless),
];

impl FieldEdit {
    fn parse(line: &mut LineCx<'_>, first: usize, names: &[(&str, NamesEdit)]) -> Result<FieldEdit> {
        let word = line.arg(first);
        if let Some((_, edit)) = names.iter().find(|(name, _)| *name == word) {
            let names = (first + 1..line.args().len()).map(|at| named(line, at, line.bytes(at)));
            return Ok(FieldEdit::Names(*edit, names.collect::<Result<_>>()?));
        }
        let Some((_, edit)) = VALUE_EDITS.iter().find(|(name, _)| *name == word) else {
            return Err(line.invalid_value(first));
        };
        let at = first + 1;
        if line.args().len() > at + 1 {
            return Err(line.fail_arg(at + 1, format!("\"{word}\" takes one field")));
        }
        let field = line.bytes(at);
        let Some(cut) = field.iter().position(|byte| *byte == b':') else {
            return Err(line.fail_arg(at, "\"Name: value\" is expected"));
        };
        let name = named(line, at, &field[..cut])?;
        let value = field[cut + 1..].trim_ascii().to_vec();
        Ok(FieldEdit::Value(*edit, name, ValueScript::compile_text(line, at, &value)?))
    }
}

fn named(line: &LineCx<'_>, at: usize, name: &[u8]) -> Result<Box<[u8]>> {
    let name = name.trim_ascii();
    if name.is_empty() || !name.iter().copied().all(is_token_byte) {
        return Err(line.fail_arg(at, "invalid header name"));
    }
    let prohibited = [KnownField::Connection, KnownField::ContentLength, KnownField::TransferEncoding];
    if prohibited.contains(&classify(name)) {
        return Err(line.fail_arg(at, "this field belongs to the connection and can't be edited"));
    }
    Ok(name.into())
}

/// The value that a field with `old` gets; `None`: it stays.
fn joined(edit: ValueEdit, old: &[u8], new: &[u8]) -> Option<Vec<u8>> {
    let has = |list: &[u8]| {
        list.split(|byte| *byte == b',').any(|item| item.trim_ascii().eq_ignore_ascii_case(new))
    };
    match edit {
        ValueEdit::SetIfEmpty => None,
        ValueEdit::Merge if has(old) => None,
        _ if old.is_empty() => Some(new.to_vec()),
        _ => Some([old, b", ", new].concat()),
    }
}

struct ResponseEdits(Rc<[(EditStatuses, FieldEdit)]>);

impl HeaderFilter for ResponseEdits {
    fn is_rehearsable(&self) -> bool {
        true
    }

    fn filter(&self, x: &mut Exchange) -> Verdict {
        for (statuses, edit) in &*self.0 {
            match edit {
                _ if !statuses.is_empty() && !statuses.contains(&x.response.status) => {}
                FieldEdit::Value(edit, name, value) => edit_response(x, *edit, name, value),
                FieldEdit::Names(NamesEdit::UnsetUnless, names) => retain_response(x, names),
                FieldEdit::Names(_, names) => {
                    for name in names {
                        x.remove_response_fields(FieldPattern::Exactly(name));
                    }
                }
            }
        }
        Verdict::Ok
    }
}

fn edit_response(x: &mut Exchange, edit: ValueEdit, name: &[u8], value: &ValueScript) {
    let value = x.field_value(value);
    match edit {
        ValueEdit::Add => x.add_response_field(name, value),
        ValueEdit::Set => x.set_response_field(name, value),
        _ => match response_value(x, name) {
            None => x.add_response_field(name, value),
            Some(old) => {
                if let Some(joined) = joined(edit, &old, x.text(&value)) {
                    let joined = Text::Span(x.arena.push(&joined));
                    replace_first(x, name, joined);
                }
            }
        },
    }
}

/// The first field of the name, or what the server composes for it.
fn response_value(x: &Exchange, name: &[u8]) -> Option<Vec<u8>> {
    let text = match classify(name) {
        KnownField::ContentType => x.response.content_type.as_ref(),
        KnownField::Location => x.response.location.as_ref(),
        _ => x
            .response
            .headers
            .iter()
            .find(|header| header.name.is(&x.arena, name))
            .map(|header| &header.value),
    };
    text.map(|text| x.text(text).to_vec())
}

fn replace_first(x: &mut Exchange, name: &[u8], value: Text) {
    let Exchange { response, arena, .. } = x;
    match response.headers.iter_mut().find(|header| header.name.is(arena, name)) {
        Some(header) => header.value = value,
        None => x.set_response_field(name, value),
    }
}

/// Removes all fields but those named; length, date and server are the server's own.
fn retain_response(x: &mut Exchange, names: &[Box<[u8]>]) {
    for composed in [&b"Content-Type"[..], b"Last-Modified", b"Location", b"Accept-Ranges"] {
        if !is_in_any_case(names, composed) {
            x.remove_response_fields(FieldPattern::Exactly(composed));
        }
    }
    let Exchange { response, arena, .. } = x;
    response.headers.retain(|header| is_in_any_case(names, header.name.bytes(arena)));
}

struct RequestEdits(Rc<[FieldEdit]>);

impl Handler for RequestEdits {
    fn rehearsal(&self, _x: &mut Exchange) -> HandlerRehearsal {
        HandlerRehearsal::Ask
    }

    fn handle(&self, x: &mut Exchange) -> Verdict {
        for edit in &*self.0 {
            match edit {
                FieldEdit::Value(edit, name, value) => edit_request(x, *edit, name, value),
                FieldEdit::Names(NamesEdit::Unset, names) => {
                    for name in names {
                        x.remove_request_fields(FieldPattern::Exactly(name));
                    }
                }
                FieldEdit::Names(NamesEdit::UnsetUnless, names) => retain_request(x, names),
                FieldEdit::Names(NamesEdit::CookieUnset, names) => {
                    retain_cookies(x, |name| !is_in(names, name));
                }
                FieldEdit::Names(NamesEdit::CookieUnsetUnless, names) => {
                    retain_cookies(x, |name| is_in(names, name));
                }
            }
        }
        Verdict::Declined
    }
}

fn edit_request(x: &mut Exchange, edit: ValueEdit, name: &[u8], value: &ValueScript) {
    let value = x.field_value(value);
    let value = x.text(&value).to_vec();
    match edit {
        ValueEdit::Add => x.add_request_field(name, &value),
        ValueEdit::Set => x.set_request_field(name, &value),
        _ => match x.request_field(name).map(<[u8]>::to_vec) {
            None => x.add_request_field(name, &value),
            Some(old) => {
                if let Some(joined) = joined(edit, &old, &value) {
                    x.set_request_field(name, &joined);
                }
            }
        },
    }
}

/// Removes all fields but those named, and those that say where the request goes and how long it is.
fn retain_request(x: &mut Exchange, names: &[Box<[u8]>]) {
    let present: Vec<Vec<u8>> =
        x.request.head.fields.iter().map(|field| x.arena.get(field.name).to_vec()).collect();
    for name in present {
        let own = matches!(
            classify(&name),
            KnownField::Host
                | KnownField::ContentLength
                | KnownField::TransferEncoding
                | KnownField::Connection
        );
        if !own && !is_in_any_case(names, &name) {
            x.remove_request_fields(FieldPattern::Exactly(&name));
        }
    }
}

fn is_in(names: &[Box<[u8]>], name: &[u8]) -> bool {
    names.iter().any(|known| **known == *name)
}

fn is_in_any_case(names: &[Box<[u8]>], name: &[u8]) -> bool {
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Removes the cookies that `keeps` refuses by their name; a field without any left goes.
fn retain_cookies(x: &mut Exchange, keeps: impl Fn(&[u8]) -> bool) {
    let fields = x.request.head.fields.iter().filter(|field| field.known == KnownField::Cookie);
    let all: Vec<Vec<u8>> = fields.map(|field| x.arena.get(field.value).to_vec()).collect();
    if all.is_empty() {
        return;
    }
    let cookies = all.iter().flat_map(|value| value.split(|byte| *byte == b';')).map(<[u8]>::trim_ascii);
    let name =
        |cookie: &[u8]| cookie.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii().to_vec();
    let kept: Vec<&[u8]> = cookies.filter(|cookie| !cookie.is_empty() && keeps(&name(cookie))).collect();
    match kept.is_empty() {
        true => x.remove_request_fields(FieldPattern::Exactly(b"Cookie")),
        false => x.set_request_field(b"Cookie", &kept.join(&b"; "[..])),
    }
}

#[cfg(test)]
mod tests {
    use weir_engine::ModuleDef;
    use weir_engine::conf;

    use super::*;
    use crate::testing::core_and;

    static MODULES: [ModuleDef; 4] = core_and::<EditHeaders>();

    #[test]
    fn lists_are_joined_once() {
        let joined = |edit, old: &str, new: &str| {
            joined(edit, old.as_bytes(), new.as_bytes())
                .map(|value| String::from_utf8_lossy(&value).into_owned())
        };
        assert_eq!(joined(ValueEdit::Append, "a", "a"), Some("a, a".into()));
        assert_eq!(joined(ValueEdit::Append, "", "a"), Some("a".into()));
        assert_eq!(joined(ValueEdit::Merge, "b, A", "a"), None);
        assert_eq!(joined(ValueEdit::Merge, "b, ab", "a"), Some("b, ab, a".into()));
        assert_eq!(joined(ValueEdit::SetIfEmpty, "b", "a"), None);
    }

    #[test]
    fn wrong_lines_are_refused() {
        for (line, message) in [
            ("edit_header sett 'A: 1';", "invalid value \"sett\" in weir.conf:2:13"),
            ("edit_header set A;", "\"Name: value\" is expected in weir.conf:2:17"),
            ("edit_header set ': b';", "invalid header name in weir.conf:2:17"),
            ("edit_header set 'A: b' 'C: d';", "\"set\" takes one field in weir.conf:2:24"),
            ("edit_header unset 'A b';", "invalid header name in weir.conf:2:19"),
            ("edit_header cookie.unset a;", "invalid value \"cookie.unset\" in weir.conf:2:13"),
            (
                "edit_header set 'Connection: x';",
                "this field belongs to the connection and can't be edited in weir.conf:2:17",
            ),
        ] {
            let text = format!("events {{ }} http {{ server {{ }}\n{line} }}");
            let lines = conf::test::headlines(&text, &MODULES);
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert!(lines[0].ends_with(message), "{}", lines[0]);
        }
    }
}

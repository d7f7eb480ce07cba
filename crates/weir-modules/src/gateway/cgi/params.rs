//! `fastcgi_param` and its like: what a request says, and the client's fields as `HTTP_…`.

use std::borrow::Cow;
use std::sync::Arc;

use weir_conf::{LineCx, Result};
use weir_engine::Exchange;
use weir_engine::variable::ValueScript;
use weir_http::{Field, KnownField};

use crate::support::value::WorkerValue;

/// A line of the directive.
#[derive(Clone)]
pub(crate) struct ParamLine {
    name: Arc<str>,
    value: ValueScript,
    if_not_empty: bool,
}

impl ParamLine {
    /// `fastcgi_param name value [if_not_empty]`
    pub(crate) fn push(slot: &mut Option<Vec<ParamLine>>, line: &mut LineCx<'_>) -> Result {
        let value = ValueScript::compile(line, 1)?;
        let if_not_empty = match line.args().get(2) {
            None => false,
            Some(word) if word.is("if_not_empty") => true,
            Some(_) => return Err(line.invalid_parameter(2)),
        };
        slot.get_or_insert_default().push(ParamLine { name: line.arg(0).into(), value, if_not_empty });
        Ok(())
    }
}

impl ParamLine {
    /// `HTTP_PROXY ""`, the usual guard against a field that programs take for a setting of theirs.
    fn is_withheld(&self) -> bool {
        self.name.len() > PREFIX.len()
            && self.name.starts_with(PREFIX)
            && self.value.constant().is_some_and(<[u8]>::is_empty)
    }
}

/// The parameters of one location, on one worker.
pub(crate) struct RequestParams {
    list: Vec<(Arc<str>, WorkerValue, bool)>,
    /// Names `HTTP_…` of parameters that are written empty: nothing is sent by that name, not the client's field either.
    withheld: Vec<Arc<str>>,
    /// The client's fields follow.
    fields: bool,
}

impl RequestParams {
    pub(crate) fn new(written: &[ParamLine], fields: bool) -> RequestParams {
        let (withheld, sent): (Vec<_>, Vec<_>) = written.iter().partition(|param| param.is_withheld());
        let one =
            |param: &ParamLine| (param.name.clone(), WorkerValue::new(&param.value), param.if_not_empty);
        RequestParams {
            list: sent.into_iter().map(one).collect(),
            withheld: withheld.into_iter().map(|param| param.name.clone()).collect(),
            fields,
        }
    }

    /// Shows every parameter of `x` to `each`, in the order they are sent.
    pub(crate) fn for_each(&self, x: &mut Exchange, mut each: impl FnMut(&[u8], &[u8])) {
        for (name, value, if_not_empty) in &self.list {
            let value = value.get(x);
            let value = x.text(&value);
            if !(*if_not_empty && value.is_empty()) {
                each(name.as_bytes(), value);
            }
        }
        if !self.sets(HOST) {
            let host = host(x);
            if !host.is_empty() {
                each(HOST, &host);
            }
        }
        if weir_upstream::is_for_cache(x) {
            let (modified, etag) = weir_upstream::cache_validators(x);
            for (name, value) in [(&b"HTTP_IF_MODIFIED_SINCE"[..], modified), (b"HTTP_IF_NONE_MATCH", etag)] {
                if let Some(value) = value.filter(|_| !self.sets(name)) {
                    each(name, x.text(&value));
                }
            }
        }
        if self.fields {
            self.fields(x, each);
        }
    }

    /// As in nginx letter case does not count.
    fn sets(&self, name: &[u8]) -> bool {
        let names = self.list.iter().map(|(set, ..)| set).chain(&self.withheld);
        names.into_iter().any(|set| set.as_bytes().eq_ignore_ascii_case(name))
    }

    fn fields(&self, x: &Exchange, mut each: impl FnMut(&[u8], &[u8])) {
        let fields = &x.request.head.fields;
        for (at, field) in fields.iter().enumerate() {
            let name = x.arena.get(field.name);
            let same = |other: &&Field| x.arena.get(other.name).eq_ignore_ascii_case(name);
            if weir_upstream::is_for_cache(x) && field.known.is_partial() {
                continue;
            }
            if fields.iter().take(at).any(|other| same(&other)) {
                continue;
            }
            let upper = upper(name);
            if upper != HOST && !self.sets(&upper) {
                let lines = fields.iter().skip(at).filter(same).map(|field| x.arena.get(field.value));
                let separator: &[u8] = if field.known == KnownField::Cookie { b"; " } else { b", " };
                each(&upper, &joined(lines, separator));
            }
        }
    }
}

/// The host that was asked for, in the target or in its field, as nginx has it from 1.31: with its port, whether the
/// client's fields are passed or not. Where none was, the server's name (nginx's `$host$is_request_port$request_port`).
fn host(x: &Exchange) -> Vec<u8> {
    if x.request.host.is_empty() {
        return x.server.settings.name.clone();
    }
    let mut host = x.arena.get(x.request.host).to_vec();
    if !x.request.port.is_empty() {
        host.push(b':');
        host.extend_from_slice(x.arena.get(x.request.port));
    }
    host
}

const HOST: &[u8] = b"HTTP_HOST";
/// What the names of the client's fields begin with.
const PREFIX: &str = "HTTP_";

/// `X-Real-Ip` as `HTTP_X_REAL_IP`.
fn upper(name: &[u8]) -> Vec<u8> {
    let change = |byte: &u8| if *byte == b'-' { b'_' } else { byte.to_ascii_uppercase() };
    b"HTTP_".iter().copied().chain(name.iter().map(change)).collect()
}

/// Lines of one name as one value, with `separator` between them.
fn joined<'a>(mut lines: impl Iterator<Item = &'a [u8]>, separator: &[u8]) -> Cow<'a, [u8]> {
    let mut value = Cow::Borrowed(lines.next().unwrap_or_default());
    for line in lines {
        let value = value.to_mut();
        value.extend_from_slice(separator);
        value.extend_from_slice(line);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_lines_become_cgi_s() {
        assert_eq!(upper(b"X-Real_ip9"), b"HTTP_X_REAL_IP9");
        assert_eq!(&*joined([b"a".as_slice(), b"b"].into_iter(), b", "), b"a, b");
        assert_eq!(&*joined([b"a".as_slice(), b"b"].into_iter(), b"; "), b"a; b");
        assert_eq!(&*joined([].into_iter(), b"; "), b"");
    }
}

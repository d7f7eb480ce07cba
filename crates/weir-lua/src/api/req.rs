//! The request: its URI, arguments, method and body.

use weir_core::log::Level;
use weir_http::{Method, Version};

use super::{Done, Function, Outcome, Raise, encode, expect_number, expect_string, fail, function};
use crate::lend;
use crate::op::{End, Op};
use crate::phase::{OUTPUT, Phase, REQUEST};
use crate::state::State;
use crate::sys::kind;

pub(super) const TABLE: &[Function] = &[
    function("req.get_method", REQUEST, |l| {
        lend::exchange(|x| l.push_bytes(x.arena.get(x.request.method_span)))?;
        Ok(Done::Results(1))
    }),
    function("req._set_method", REQUEST, set_method),
    function("req.http_version", REQUEST, |l| {
        let version = lend::exchange(|x| x.request.version)?;
        match version {
            Version::V09 => l.push_number(0.9),
            Version::V10 => l.push_number(1.0),
            Version::V11 => l.push_number(1.1),
            _ => l.push_number(2.0),
        }
        Ok(Done::Results(1))
    }),
    function("req.is_internal", REQUEST, |l| {
        l.push_boolean(lend::exchange(|x| x.internal)?);
        Ok(Done::Results(1))
    }),
    function("req.raw_header", REQUEST, raw_header),
    function("req.get_uri_args", REQUEST, |l| {
        let args = lend::exchange(|x| x.args().to_vec())?;
        let most = encode::most(l, 1);
        encode::push_args(l, &args, most);
        Ok(Done::Results(if encode::finish_args(l, &args, most) { 2 } else { 1 }))
    }),
    function("req.set_uri_args", REQUEST, |l| {
        let args = match l.kind(1) {
            kind::TABLE => encode::args_of(l, 1)?,
            _ => expect_string(&l, 1, "set_uri_args")?,
        };
        lend::exchange(|x| x.request.args = x.arena.push(&args))?;
        Ok(Done::Results(0))
    }),
    function("req.set_uri", REQUEST, set_uri),
    function("req.read_body", OUTPUT, read_body),
    function("req.discard_body", OUTPUT, |_| {
        lend::exchange(|x| x.discard_body())?;
        Ok(Done::Results(0))
    }),
    function("req.get_body_data", REQUEST, get_body_data),
    function("req.get_body_file", REQUEST, |l| {
        let path = lend::exchange(|x| x.body.file().and_then(|file| file.path.clone()))?;
        match path {
            Some(path) => l.push_bytes(path.as_os_str().as_encoded_bytes()),
            None => l.push_nil(),
        }
        Ok(Done::Results(1))
    }),
    function("req.set_body_data", OUTPUT, |l| {
        let data = expect_string(&l, 1, "set_body_data")?;
        if !lend::exchange(|x| x.body.is_read())? {
            return Err(Raise::text("request body not read yet"));
        }
        lend::exchange(|x| {
            x.set_request_field(b"Content-Length", data.len().to_string().as_bytes());
            x.body.replace(data);
        })?;
        Ok(Done::Results(0))
    }),
    function("req.get_post_args", REQUEST, get_post_args),
];

/// The constants `ngx.HTTP_GET` and so on.
const METHODS: [(u32, &str); 15] = [
    (2, "GET"),
    (4, "HEAD"),
    (8, "POST"),
    (16, "PUT"),
    (32, "DELETE"),
    (64, "MKCOL"),
    (128, "COPY"),
    (256, "MOVE"),
    (512, "OPTIONS"),
    (1024, "PROPFIND"),
    (2048, "PROPPATCH"),
    (4096, "LOCK"),
    (8192, "UNLOCK"),
    (16384, "PATCH"),
    (32768, "TRACE"),
];

/// The name of the method with that number.
pub(super) fn method_name(number: u32) -> Option<&'static str> {
    METHODS.iter().find(|(one, _)| *one == number).map(|(_, name)| *name)
}

fn set_method(l: State) -> Outcome {
    let number = expect_number(l, 1, "set_method")?;
    let Some(name) = method_name(number as u32) else {
        return Err(Raise::text(format!("unsupported HTTP method: {number}")));
    };
    lend::exchange(|x| {
        x.request.method = Method::parse(name.as_bytes());
        x.request.head.method_span = x.arena.push(name.as_bytes());
    })?;
    Ok(Done::Results(0))
}

fn raw_header(l: State) -> Outcome {
    let bare = l.boolean(1);
    let text = lend::exchange(|x| {
        let head = x.request.head.len;
        let start = if bare { x.request.line.end as usize } else { x.request.head.leading_crlf };
        let all = x.arena.get(weir_http::Span { start: 0, end: head as u32 });
        let text = all.get(start..).unwrap_or_default();
        let line_end = text.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count().min(2);
        if bare { text[line_end..].to_vec() } else { text.to_vec() }
    })?;
    l.push_bytes(&text);
    Ok(Done::Results(1))
}

fn set_uri(l: State) -> Outcome {
    let uri = expect_string(&l, 1, "set_uri")?;
    if uri.is_empty() {
        return Err(Raise::argument(1, "set_uri", "attempt to use zero-length uri"));
    }
    let jump = match l.kind(2) {
        kind::NONE | kind::NIL => false,
        kind::BOOLEAN => l.boolean(2),
        _ => return Err(Raise::argument(2, "set_uri", "boolean expected")),
    };
    if !l.boolean(3)
        && let Some(bad) = uri.iter().find(|byte| **byte <= 0x20 || **byte == 0x7f)
    {
        let shown = encode::escaped_control(&uri);
        return Err(Raise::text(format!(
            "unsafe byte \"0x{bad:02x}\" in uri \"{shown}\" (maybe you want to set the 'binary' argument?)"
        )));
    }
    if jump && !matches!(lend::phase(), Phase::Rewrite | Phase::ServerRewrite) {
        return Err(Raise::text(format!(
            "attempt to call ngx.req.set_uri to do internal redirect in {}",
            lend::phase().context()
        )));
    }
    lend::exchange(|x| {
        let span = x.arena.push(&uri);
        let x = &mut *x;
        x.request.set_uri(&x.arena, span);
        x.valid_location = false;
        if jump {
            x.uri_changed = true;
        }
    })?;
    if !jump {
        return Ok(Done::Results(0));
    }
    lend::run(|run| run.op = Some(Op::End(End::Exit(-5))))?;
    Ok(Done::Yield(0))
}

fn read_body(_: State) -> Outcome {
    if lend::exchange(|x| x.body.is_read() || x.is_subrequest())? {
        return Ok(Done::Results(0));
    }
    lend::run(|run| run.op = Some(Op::Body))?;
    Ok(Done::Yield(0))
}

fn get_body_data(l: State) -> Outcome {
    let in_file = lend::exchange(|x| x.body.file().is_some())?;
    if in_file {
        lend::exchange(|x| {
            x.log(
                Level::Warn,
                &"a client request body is buffered to a temporary file, it can't be read into memory",
            );
        })?;
        l.push_nil();
        return Ok(Done::Results(1));
    }
    lend::exchange(|x| match x.body.memory() {
        [] => l.push_nil(),
        bytes => l.push_bytes(bytes),
    })?;
    Ok(Done::Results(1))
}

fn get_post_args(l: State) -> Outcome {
    let (read, in_file) = lend::exchange(|x| (x.body.is_read(), x.body.file().is_some()))?;
    if in_file {
        return fail(l, "request body in temp file not supported");
    }
    let text = lend::exchange(|x| x.body.memory().to_vec())?;
    if !read && text.is_empty() {
        return Err(Raise::text("no request body found; maybe you should turn on lua_need_request_body?"));
    }
    let most = encode::most(l, 1);
    encode::push_args(l, &text, most);
    Ok(Done::Results(if encode::finish_args(l, &text, most) { 2 } else { 1 }))
}

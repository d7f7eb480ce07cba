//! The request: its URI, arguments and method.

pub(crate) mod body;
pub(crate) mod ffi;
pub(crate) mod header;

use weir_engine::log::LogLevel;
use weir_http::Method;

use crate::api::control::check_subrequests;
use crate::api::encode;
use crate::luajit::state::LuaState;
use crate::luajit::sys::kind;
use crate::run::function::{
    ApiFunction, CallDone, CallOutcome, LuaRaise, expect_count, expect_string, function,
};
use crate::run::lend;
use crate::run::op::{ScriptEnd, ThreadOp};
use crate::vm::phase::{REQUEST, ScriptPhase};

pub(super) const TABLE: &[ApiFunction] = &[
    function("req.get_method", REQUEST, |l| {
        lend::exchange(|x| l.push_bytes(x.arena.get(x.request.head.method_span)))?;
        Ok(CallDone::Results(1))
    }),
    function("req._set_method", REQUEST, set_method),
    function("req.http_version", REQUEST, |l| {
        l.push_number(lend::exchange(|x| ffi::version(x.request.head.version))?);
        Ok(CallDone::Results(1))
    }),
    function("req.is_internal", REQUEST, |l| {
        l.push_boolean(lend::exchange(|x| x.internal)?);
        Ok(CallDone::Results(1))
    }),
    function("req.raw_header", REQUEST, raw_header),
    // Raises why the compiled functions have refused: there is no request, or not here.
    function("req._refused", REQUEST, |_| {
        lend::exchange(|_| ())?;
        Ok(CallDone::Results(0))
    }),
    function("req.set_uri_args", REQUEST, |l| {
        expect_count(l, 1..=1, "1 argument but seen")?;
        let args = args_argument(l, 1, "set_uri_args")?;
        lend::exchange(|x| {
            let args = x.arena.push(&args);
            x.request.set_args(args);
        })?;
        Ok(CallDone::Results(0))
    }),
    function("req.set_uri", REQUEST, set_uri),
];

/// Arguments of a URI: a table, or a text, of which what is not allowed in a request line is escaped.
pub(super) fn args_argument(l: LuaState, at: i32, function: &str) -> Result<Vec<u8>, LuaRaise> {
    match l.kind(at) {
        kind::TABLE => encode::args_of(l, at),
        kind::STRING | kind::NUMBER => {
            let text = expect_string(&l, at, function)?;
            let mut args = Vec::with_capacity(text.len());
            encode::escape(&text, |byte| byte > 0x20 && byte != 0x7f, &mut args);
            Ok(args)
        }
        _ => {
            let reason = format!("string, number, or table expected, but got {}", l.kind_name(at));
            Err(LuaRaise::argument(at, function, &reason))
        }
    }
}

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
pub(crate) fn method_name(number: u32) -> Option<&'static str> {
    METHODS.iter().find(|(one, _)| *one == number).map(|(_, name)| *name)
}

fn set_method(l: LuaState) -> CallOutcome {
    let number = l.number(1).ok_or_else(|| LuaRaise::text("bad method number"))?;
    let Some(name) = method_name(number as u32) else {
        return Err(LuaRaise::text(format!("unsupported HTTP method: {number}")));
    };
    lend::exchange(|x| {
        x.request.head.method = Method::parse(name.as_bytes());
        x.request.head.method_span = x.arena.push(name.as_bytes());
    })?;
    Ok(CallDone::Results(0))
}

fn raw_header(l: LuaState) -> CallOutcome {
    let bare = l.boolean(1);
    let text = lend::exchange(|x| {
        let head = x.request.head.len;
        let start = if bare { x.request.head.line.end as usize } else { x.request.head.leading_crlf };
        let all = x.arena.get(weir_http::Span { start: 0, end: head as u32 });
        let text = all.get(start..).unwrap_or_default();
        let line_end = text.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count().min(2);
        if bare { text[line_end..].to_vec() } else { text.to_vec() }
    })?;
    l.push_bytes(&text);
    Ok(CallDone::Results(1))
}

/// An argument that is a boolean where it is; false without it.
fn flag(l: LuaState, at: i32, function: &str) -> Result<bool, LuaRaise> {
    match l.kind(at) {
        kind::NONE => Ok(false),
        kind::BOOLEAN => Ok(l.boolean(at)),
        _ => Err(LuaRaise::argument(at, function, &format!("boolean expected, got {}", l.kind_name(at)))),
    }
}

fn set_uri(l: LuaState) -> CallOutcome {
    expect_count(l, 1..=3, "1, 2 or 3 arguments but seen")?;
    let uri = expect_string(&l, 1, "set_uri")?;
    if uri.is_empty() {
        return Err(LuaRaise::text("attempt to use zero-length uri"));
    }
    // Nothing looks at it any more before it is mapped to a file.
    if weir_http::uri::is_unsafe(&uri) && uri.split(|byte| *byte == b'/').any(|segment| segment == b"..") {
        let shown = encode::escaped_bytes(&uri);
        return Err(LuaRaise::text(format!("unsafe uri \"{shown}\": it leads upwards")));
    }
    let (jump, binary) = (flag(l, 2, "set_uri")?, flag(l, 3, "set_uri")?);
    if !binary && let Some(bad) = encode::unsafe_byte(&uri) {
        let shown = encode::escaped_bytes(&uri);
        return Err(LuaRaise::text(format!(
            "unsafe byte \"0x{bad:02x}\" in uri \"{shown}\" (maybe you want to set the 'binary' argument?)"
        )));
    }
    if jump && !matches!(lend::phase(), ScriptPhase::Rewrite | ScriptPhase::ServerRewrite) {
        return Err(lend::disabled());
    }
    if jump {
        check_subrequests()?;
        let shown = String::from_utf8_lossy(&uri).into_owned();
        lend::log(LogLevel::Debug, &format_args!("lua set uri jump to \"{shown}\""));
    }
    lend::exchange(|x| {
        let span = x.arena.push(&uri);
        let x = &mut *x;
        x.request.set_uri(&x.arena, span);
        x.internal = true;
        x.uri_changed = jump;
        // A jump finds the new URI's own location.
        x.valid_location &= jump;
    })?;
    if !jump {
        return Ok(CallDone::Results(0));
    }
    lend::run(|run| run.op = Some(ThreadOp::End(ScriptEnd::Exit(-5))))?;
    Ok(CallDone::Yield(0))
}

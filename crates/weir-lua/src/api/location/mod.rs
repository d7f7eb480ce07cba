//! `ngx.location.capture` and `capture_multi`.

use std::rc::Rc;

use weir_engine::Text;
use weir_engine::log::LogLevel;
use weir_engine::subrequest::{
    PrepareHook, SubrequestBody, SubrequestCall, SubrequestOptions, VariableShare,
};
use weir_engine::variable::VarIndex;
use weir_http::Method;
use weir_http::uri::{self, InternalTarget};

use crate::api::{ctx, encode, req, safe_name, safe_value};
use crate::luajit::state::LuaState;
use crate::luajit::sys::kind;
use crate::run::function::{ApiFunction, CallDone, LuaRaise, expect_string, function};
use crate::run::lend;
use crate::run::op::ThreadOp;
use crate::vm::lua_vm::LuaVm;
use crate::vm::phase::CAPTURE;

pub(super) const TABLE: &[ApiFunction] = &[
    function("location.capture", CAPTURE, |l| {
        if l.top() == 0 || l.top() > 2 {
            return Err(LuaRaise::text("expecting one or two arguments"));
        }
        l.set_top(2);
        let one = read(l, 1, 2, 0)?;
        check_depth()?;
        lend::run(|run| run.op = Some(ThreadOp::Capture(vec![one])))?;
        Ok(CallDone::Yield(0))
    }),
    function("location.capture_multi", CAPTURE, |l| {
        if l.top() != 1 {
            return Err(LuaRaise::text(format!("only one argument is expected, but got {}", l.top())));
        }
        if l.kind(1) != kind::TABLE {
            return Err(LuaRaise::text(format!(
                "bad argument #1 to 'capture_multi' (table expected, got {})",
                l.kind_name(1)
            )));
        }
        let count = l.sequence(1).unwrap_or(0);
        if count == 0 {
            return Err(LuaRaise::text("at least one subrequest should be specified"));
        }
        let mut list = Vec::with_capacity(count);
        for index in 1..=count {
            l.raw_get_index(1, index);
            if l.kind(-1) != kind::TABLE {
                return Err(LuaRaise::text(format!(
                    "the query argument {} is not a table, but a {}",
                    index - 1,
                    l.kind_name(-1)
                )));
            }
            let query = l.top();
            if !l.sequence(query).is_some_and(|count| (1..=2).contains(&count)) {
                let message = format!("query argument {} expecting one or two arguments", index - 1);
                return Err(LuaRaise::text(message));
            }
            l.raw_get_index(query, 1);
            l.raw_get_index(query, 2);
            list.push(read(l, query + 1, query + 2, index - 1)?);
            l.set_top(query - 1);
        }
        check_depth()?;
        lend::run(|run| run.op = Some(ThreadOp::Capture(list)))?;
        Ok(CallDone::Yield(0))
    }),
];

/// Fails where subrequests make subrequests without end.
fn check_depth() -> Result<(), LuaRaise> {
    let deep = lend::exchange(|x| {
        let deep = x.has_deep_subrequests();
        if deep {
            let uri = String::from_utf8_lossy(x.uri());
            x.log_error(&format_args!("lua subrequests cycle while processing \"{uri}\""));
        }
        deep
    })?;
    if deep { Err(LuaRaise::text("failed to issue subrequest: -1")) } else { Ok(()) }
}

/// The subrequest for the URI at `at` with the options at `options`, the `number`th (from 0) of the call.
fn read(l: LuaState, at: i32, options: i32, number: usize) -> Result<SubrequestCall, LuaRaise> {
    let target = expect_string(&l, at, "capture")?;
    let named = matches!(target.first(), None | Some(b'@'));
    let checked = uri::internal_target(&target).ok().filter(|_| !named);
    let Some(InternalTarget { path, args }) = checked else {
        // As text of C, which ends with a NUL.
        let text = target.split(|byte| *byte == 0).next().unwrap_or_default();
        let shown = String::from_utf8_lossy(text);
        return Err(LuaRaise::text(format!("unsafe uri in argument #{}: {shown}", number + 1)));
    };
    let (path, args) = (path.into_owned(), args.unwrap_or_default().to_vec());
    let shown = (String::from_utf8_lossy(&path), String::from_utf8_lossy(&args));
    lend::log(LogLevel::Debug, &format_args!("lua http subrequest \"{}?{}\"", shown.0, shown.1));
    let options_of_scripts =
        SubrequestOptions { share: VariableShare::Nothing, bare: true, ..SubrequestOptions::default() };
    let mut wanted = SubrequestCall { uri: path, args, options: options_of_scripts };
    match l.kind(options) {
        kind::NIL | kind::NONE => {}
        kind::TABLE => take_options(l, options, &mut wanted)?,
        _ => {
            let kind = l.kind_name(options);
            let message = "expecting table as the 2nd argument for subrequest";
            return Err(LuaRaise::text(format!("{message} {number}, but got {kind}")));
        }
    }
    if matches!(wanted.options.method, Method::Post | Method::Put)
        && matches!(wanted.options.body, SubrequestBody::None)
    {
        wanted.options.body = SubrequestBody::Parent;
    }
    Ok(wanted)
}

fn take_options(l: LuaState, at: i32, wanted: &mut SubrequestCall) -> Result<(), LuaRaise> {
    take_args(l, at, wanted)?;
    take_method(l, at, &mut wanted.options)?;
    for (name, share) in [("share_all_vars", VariableShare::All), ("copy_all_vars", VariableShare::Copy)] {
        let wants = field(l, at, name);
        match l.kind(wants) {
            kind::BOOLEAN if l.boolean(wants) => wanted.options.share = share,
            kind::BOOLEAN | kind::NIL => {}
            _ => return Err(LuaRaise::text(format!("Bad {name} option value"))),
        }
    }
    take_body(l, at, &mut wanted.options)?;
    let variables = field(l, at, "vars");
    let variables = match l.kind(variables) {
        kind::NIL => Vec::new(),
        kind::TABLE => read_variables(l, variables)?,
        _ => return Err(LuaRaise::text("Bad vars option value")),
    };
    let headers = field(l, at, "headers");
    let mut headers = match l.kind(headers) {
        kind::NIL => Vec::new(),
        kind::TABLE => read_pairs(l, headers)?,
        _ => return Err(LuaRaise::text("Bad headers option value")),
    };
    if let SubrequestBody::Bytes(bytes) = &wanted.options.body {
        headers.insert(0, (b"Content-Length".to_vec(), bytes.len().to_string().into_bytes()));
    }
    let ctx = take_ctx(l, at)?;
    if ctx.is_some() || !variables.is_empty() || !headers.is_empty() {
        wanted.options.prepare = PrepareHook(Some(Box::new(move |x| {
            for (name, value) in headers {
                x.set_request_field(&safe_name(&name), &safe_value(value));
            }
            for (variable, value) in variables {
                let span = x.arena.push(&value);
                x.set_variable(variable, Text::Span(span));
            }
            if let Some((vm, anchor)) = ctx {
                ctx::give(x, vm, anchor);
            }
        })));
    }
    Ok(())
}

/// Pushes the field `name` of the table at `at`; where it is.
fn field(l: LuaState, at: i32, name: &str) -> i32 {
    l.push_bytes(name.as_bytes());
    l.raw_get(at);
    l.top()
}

/// `args`: after those of the URI.
fn take_args(l: LuaState, at: i32, wanted: &mut SubrequestCall) -> Result<(), LuaRaise> {
    let args = field(l, at, "args");
    let args = match l.kind(args) {
        kind::NIL => Vec::new(),
        kind::TABLE => encode::args_of(l, args)?,
        kind::STRING | kind::NUMBER => l.bytes(args).unwrap_or_default().to_vec(),
        _ => return Err(LuaRaise::text("Bad args option value")),
    };
    if !args.is_empty() {
        if !wanted.args.is_empty() {
            wanted.args.push(b'&');
        }
        wanted.args.extend_from_slice(&args);
    }
    Ok(())
}

/// `method`: one of the `ngx.HTTP_*` numbers.
fn take_method(l: LuaState, at: i32, options: &mut SubrequestOptions) -> Result<(), LuaRaise> {
    let method = field(l, at, "method");
    if !l.is_none_or_nil(method) {
        let number = l.number(method).ok_or_else(|| LuaRaise::text("Bad http request method"))?;
        let number = number as i64;
        let Some(name) = u32::try_from(number).ok().and_then(req::method_name) else {
            // Unsigned in the log, as in OpenResty.
            lend::log_plain(LogLevel::Error, &format_args!("unsupported HTTP method: {}", number as u64));
            return Err(LuaRaise::text("failed to adjust the subrequest: -1"));
        };
        options.method = Method::parse(name.as_bytes());
        options.head_only = options.method == Method::Head;
    }
    Ok(())
}

/// `always_forward_body`, `body`.
fn take_body(l: LuaState, at: i32, options: &mut SubrequestOptions) -> Result<(), LuaRaise> {
    let forwarded = field(l, at, "always_forward_body");
    if l.boolean(forwarded) {
        options.body = SubrequestBody::Parent;
    }
    let body = field(l, at, "body");
    match l.kind(body) {
        kind::NIL => {}
        kind::STRING | kind::NUMBER => {
            options.body = SubrequestBody::Bytes(l.bytes(body).unwrap_or_default().to_vec());
        }
        _ => return Err(LuaRaise::text("Bad http request body")),
    }
    Ok(())
}

/// `ctx`: a table of this VM, which becomes the subrequest's `ngx.ctx`.
fn take_ctx(l: LuaState, at: i32) -> Result<Option<(Rc<LuaVm>, i32)>, LuaRaise> {
    let ctx = field(l, at, "ctx");
    Ok(match l.kind(ctx) {
        kind::NIL => None,
        kind::TABLE => {
            l.push_value(ctx);
            Some((lend::vm(LuaVm::shared), l.anchor()))
        }
        _ => {
            let kind = l.kind_name(ctx);
            return Err(LuaRaise::text(format!("Bad ctx option value type {kind}, expected a Lua table")));
        }
    })
}

/// The option `vars`: variables of the configuration and their values.
fn read_variables(l: LuaState, at: i32) -> Result<Vec<(VarIndex, Vec<u8>)>, LuaRaise> {
    let mut list = Vec::new();
    for (name, value) in read_pairs(l, at)? {
        let name = String::from_utf8_lossy(&name).to_ascii_lowercase();
        let found = lend::exchange(|x| {
            let table = &x.server.tables().variables;
            table.settable(&name).map(|settable| if settable { table.find(&name) } else { None })
        })?;
        match found {
            Some(Some(variable)) => list.push((variable, value)),
            Some(None) => {
                lend::log_plain(LogLevel::Error, &format_args!("variable \"{name}\" not changeable"));
                return Err(LuaRaise::text("failed to adjust the subrequest: 500"));
            }
            None => {
                let why = "cannot be assigned a value (maybe you forgot to define it first?) ";
                lend::log_plain(LogLevel::Error, &format_args!("variable \"{name}\" {why}"));
                return Err(LuaRaise::text("failed to adjust the subrequest: -1"));
            }
        }
    }
    Ok(list)
}

/// Names and values.
type NamedValues = Vec<(Vec<u8>, Vec<u8>)>;

/// The names and values, strings or numbers, of the table `at`: the option `vars`, or one that OpenResty calls so.
fn read_pairs(l: LuaState, at: i32) -> Result<NamedValues, LuaRaise> {
    let mut list = Vec::new();
    l.push_nil();
    while l.next(at) {
        if l.kind(-2) != kind::STRING {
            return Err(LuaRaise::text("attempt to use a non-string key in the \"vars\" option table"));
        }
        let name = l.string(-2).unwrap_or_default().to_vec();
        l.push_value(-1);
        let value = l.bytes(-1).map(<[u8]>::to_vec);
        let Some(value) = value else {
            let kind = l.kind_name(-1);
            return Err(LuaRaise::text(format!("attempt to use bad variable value type {kind}")));
        };
        l.pop(2);
        list.push((name, value));
    }
    Ok(list)
}

//! `ngx.location.capture` and `capture_multi`.

use weir_core::Text;
use weir_core::log::Level;
use weir_core::subrequest::{Captured, Hook, Share, SubrequestBody, SubrequestOptions};
use weir_core::variable::VarIndex;
use weir_http::Method;
use weir_http::uri::{self, InternalTarget};

use super::{Done, Function, Raise, ctx, encode, expect_string, function, req};
use crate::lend;
use crate::op::{Op, Subrequest};
use crate::phase::CAPTURE;
use crate::state::State;
use crate::sys::kind;
use crate::vm::Vm;

pub(super) const TABLE: &[Function] = &[
    function("location.capture", CAPTURE, |l| {
        if l.top() == 0 || l.top() > 2 {
            return Err(Raise::text("expecting one or two arguments"));
        }
        l.set_top(2);
        let one = read(l, 1, 2, 1)?;
        lend::run(|run| run.op = Some(Op::Capture(vec![one])))?;
        Ok(Done::Yield(0))
    }),
    function("location.capture_multi", CAPTURE, |l| {
        if l.kind(1) != kind::TABLE {
            return Err(Raise::text(format!(
                "bad argument #1 to 'capture_multi' (table expected, got {})",
                l.kind_name(1)
            )));
        }
        let count = l.sequence(1).unwrap_or(0);
        if count == 0 {
            return Err(Raise::text("at least one subrequest should be specified"));
        }
        let mut list = Vec::with_capacity(count);
        for index in 1..=count {
            l.raw_get_index(1, index);
            if l.kind(-1) != kind::TABLE {
                return Err(Raise::text(format!(
                    "the query argument {} is not a table, but a {}",
                    index - 1,
                    l.kind_name(-1)
                )));
            }
            let query = l.top();
            l.raw_get_index(query, 1);
            l.raw_get_index(query, 2);
            list.push(read(l, query + 1, query + 2, index)?);
            l.set_top(query - 1);
        }
        lend::run(|run| run.op = Some(Op::Capture(list)))?;
        Ok(Done::Yield(0))
    }),
];

/// The subrequest for the URI at `uri` with the options at `options`.
fn read(l: State, at: i32, options: i32, number: usize) -> Result<Subrequest, Raise> {
    let target = expect_string(&l, at, "capture")?;
    let checked = uri::internal_target(&target).ok().filter(|_| target.first() != Some(&b'@'));
    let Some(InternalTarget { path, args }) = checked else {
        let shown = String::from_utf8_lossy(&target).into_owned();
        return Err(Raise::text(format!("unsafe uri in argument #{number}: {shown}")));
    };
    let (path, args) = (path.into_owned(), args.unwrap_or_default().to_vec());
    let shown = (String::from_utf8_lossy(&path), String::from_utf8_lossy(&args));
    lend::log(Level::Debug, &format_args!("lua http subrequest \"{}?{}\"", shown.0, shown.1));
    let mut wanted =
        (path, args, SubrequestOptions { share: Share::Nothing, ..SubrequestOptions::default() });
    match l.kind(options) {
        kind::NIL | kind::NONE => {}
        kind::TABLE => take_options(l, options, &mut wanted)?,
        _ => return Err(Raise::text("expecting table as the 2nd argument for subrequest options")),
    }
    if matches!(wanted.2.method, Method::Post | Method::Put) && matches!(wanted.2.body, SubrequestBody::None)
    {
        wanted.2.body = SubrequestBody::Parent;
    }
    Ok(wanted)
}

fn take_options(l: State, at: i32, wanted: &mut Subrequest) -> Result<(), Raise> {
    let option = |name: &str| {
        l.push_bytes(name.as_bytes());
        l.raw_get(at);
        l.top()
    };
    let args = option("args");
    let args = match l.kind(args) {
        kind::NIL => Vec::new(),
        kind::TABLE => encode::args_of(l, args)?,
        kind::STRING | kind::NUMBER => l.bytes(args).unwrap_or_default().to_vec(),
        _ => return Err(Raise::text("Bad args option value")),
    };
    if !args.is_empty() {
        if !wanted.1.is_empty() {
            wanted.1.push(b'&');
        }
        wanted.1.extend_from_slice(&args);
    }
    let method = option("method");
    if !l.is_none_or_nil(method) {
        let number = l.number(method).ok_or_else(|| Raise::text("Bad http request method"))?;
        let name = req::method_name(number as u32)
            .ok_or_else(|| Raise::text(format!("unsupported HTTP method: {number}")))?;
        wanted.2.method = Method::parse(name.as_bytes());
        wanted.2.head_only = wanted.2.method == Method::Head;
    }
    let shared = option("share_all_vars");
    if l.boolean(shared) {
        wanted.2.share = Share::All;
    }
    let copied = option("copy_all_vars");
    if l.boolean(copied) {
        wanted.2.share = Share::Copy;
    }
    let forwarded = option("always_forward_body");
    if l.boolean(forwarded) {
        wanted.2.body = SubrequestBody::Parent;
    }
    let body = option("body");
    match l.kind(body) {
        kind::NIL => {}
        kind::STRING | kind::NUMBER => {
            wanted.2.body = SubrequestBody::Bytes(l.bytes(body).unwrap_or_default().to_vec());
        }
        _ => return Err(Raise::text("Bad http request body")),
    }
    let variables = option("vars");
    let variables = match l.kind(variables) {
        kind::NIL => Vec::new(),
        kind::TABLE => read_variables(l, variables)?,
        _ => return Err(Raise::text("Bad vars option value")),
    };
    let ctx = option("ctx");
    let ctx = match l.kind(ctx) {
        kind::NIL => None,
        kind::TABLE => {
            l.push_value(ctx);
            Some((lend::vm(Vm::shared), l.anchor()))
        }
        _ => return Err(Raise::text("Bad ctx option value type, expected a Lua table")),
    };
    if ctx.is_some() || !variables.is_empty() {
        wanted.2.prepare = Hook(Some(Box::new(move |x| {
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

/// The option `vars`: variables of the configuration and their values.
fn read_variables(l: State, at: i32) -> Result<Vec<(VarIndex, Vec<u8>)>, Raise> {
    let mut list = Vec::new();
    l.push_nil();
    while l.next(at) {
        if l.kind(-2) != kind::STRING {
            return Err(Raise::text("attempt to use a non-string key in the \"vars\" option table"));
        }
        let name = l.lossy(-2).to_ascii_lowercase();
        l.push_value(-1);
        let value = l.bytes(-1).map(<[u8]>::to_vec);
        l.pop(2);
        let value = value.ok_or_else(|| Raise::text("attempt to use bad variable value type"))?;
        let variable = lend::exchange(|x| {
            let generation = x.server.generation();
            let table = generation.variables();
            table.settable(&name).filter(|settable| *settable).and_then(|_| table.find(&name))
        })?;
        let Some(variable) = variable else {
            return Err(Raise::text(format!(
                "variable \"{name}\" cannot be assigned a value (maybe you forgot to define it first?) "
            )));
        };
        list.push((variable, value));
    }
    Ok(list)
}

/// Pushes the answer as `capture` returns it.
pub(crate) fn push(l: State, answer: &Captured) {
    l.new_table(0, 4);
    l.push_number(f64::from(answer.status));
    l.set_field(-2, c"status");
    l.push_bytes(&answer.body);
    l.set_field(-2, c"body");
    l.push_boolean(answer.truncated);
    l.set_field(-2, c"truncated");
    l.new_table(0, answer.headers.len());
    for (name, value) in &answer.headers {
        encode::add(l, name, &|| l.push_bytes(value));
    }
    // Names are found in any case and with underscores.
    l.push_registered(c"weir.header_meta");
    l.set_metatable(-2);
    l.set_field(-2, c"header");
}

//! The request's body: read, replaced, and made piece by piece.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use weir_engine::Exchange;

use crate::api::encode;
use crate::api::socket::receives_body;
use crate::luajit::state::LuaState;
use crate::run::function::{
    ApiFunction, CallDone, CallOutcome, LuaRaise, expect_count, expect_number, expect_string, fail, function,
};
use crate::run::lend;
use crate::run::op::ThreadOp;
use crate::vm::phase::{OUTPUT, REQUEST, ScriptPhase};

pub(crate) const TABLE: &[ApiFunction] = &[
    function("req.read_body", OUTPUT, read_body),
    function("req.discard_body", OUTPUT, |l| {
        expect_count(l, 0..=0, "0 arguments but seen")?;
        lend::exchange(|x| {
            if !x.body.is_read() {
                x.state::<BodyDiscarded>().0 = true;
                x.discard_body();
            }
        })?;
        Ok(CallDone::Results(0))
    }),
    function("req.get_body_data", REQUEST, get_body_data),
    function("req.get_body_file", REQUEST, |l| {
        expect_count(l, 0..=0, "0 arguments but seen")?;
        let path = lend::exchange(|x| x.body.file().and_then(|file| file.path.clone()))?;
        match path {
            Some(path) => l.push_bytes(path.as_os_str().as_encoded_bytes()),
            None => l.push_nil(),
        }
        Ok(CallDone::Results(1))
    }),
    function("req.set_body_data", OUTPUT | ScriptPhase::Balancer as u32, |l| {
        expect_count(l, 1..=1, "1 arguments but seen")?;
        let data = expect_string(&l, 1, "set_body_data")?;
        lend::exchange(|x| {
            check_read(x)?;
            x.body.replace(data);
            tell_length(x);
            Ok(CallDone::Results(0))
        })?
    }),
    function("req.set_body_file", OUTPUT | ScriptPhase::Balancer as u32, set_body_file),
    function("req.init_body", OUTPUT, init_body),
    function("req.append_body", OUTPUT, append_body),
    function("req.finish_body", OUTPUT, |l| {
        expect_count(l, 0..=0, "0 argument but seen")?;
        lend::exchange(|x| {
            if std::mem::take(&mut x.state::<BodyDraft>().0).is_none() {
                return Err(LuaRaise::text("request_body not initialized"));
            }
            tell_length(x);
            Ok(CallDone::Results(0))
        })?
    }),
    function("req.get_post_args", REQUEST, get_post_args),
];

/// The body is not available any more.
#[derive(Default)]
struct BodyDiscarded(bool);

/// A body is being made; up to this many bytes of it are in memory.
#[derive(Default)]
struct BodyDraft(Option<usize>);

fn read_body(l: LuaState) -> CallOutcome {
    expect_count(l, 0..=0, "0 arguments but seen")?;
    if lend::exchange(|x| x.body.is_read() || x.is_subrequest() || x.state::<BodyDiscarded>().0)? {
        return Ok(CallDone::Results(0));
    }
    lend::run(|run| run.op = Some(ThreadOp::Body))?;
    Ok(CallDone::Yield(0))
}

fn check_read(x: &mut Exchange) -> Result<(), LuaRaise> {
    if x.state::<BodyDiscarded>().0 {
        return Err(LuaRaise::text("request body already discarded asynchronously"));
    }
    // To a server goes what was read, if there is anything.
    let read = x.body.is_read() || (lend::phase() == ScriptPhase::Balancer && !x.body.is_pending());
    if read { Ok(()) } else { Err(LuaRaise::text("request body not read yet")) }
}

/// The length of the body as it is now.
fn tell_length(x: &mut Exchange) {
    let length = x.body.file().map_or(x.body.memory().len() as u64, |file| file.len);
    x.set_request_field(b"Content-Length", length.to_string().as_bytes());
}

fn get_body_data(l: LuaState) -> CallOutcome {
    expect_count(l, 0..=1, "0 or 1 arguments but seen")?;
    let most = if l.top() == 1 { expect_number(l, 1, "get_body_data")? } else { 0.0 };
    let most = if most >= 1.0 { most as usize } else { usize::MAX };
    lend::exchange(|x| match x.body.memory() {
        _ if x.body.file().is_some() => l.push_nil(),
        [] => l.push_nil(),
        bytes => l.push_bytes(&bytes[..bytes.len().min(most)]),
    })?;
    Ok(CallDone::Results(1))
}

fn set_body_file(l: LuaState) -> CallOutcome {
    expect_count(l, 1..=2, "1 or 2 arguments but seen")?;
    let path = expect_string(&l, 1, "set_body_file")?;
    let remove = l.boolean(2);
    lend::exchange(|x| {
        check_read(x)?;
        let path = Path::new(OsStr::from_bytes(&path));
        let opened = weir_rt::file::open(path).and_then(|file| Ok((file.meta()?.size, file)));
        let (size, file) = opened.map_err(|error| {
            let call = if error.kind() == ErrorKind::NotFound { "stat()" } else { "open()" };
            LuaRaise::text(format!("{call} \"{}\" failed", path.display()))
        })?;
        x.body.replace_by_file(file, path.to_owned(), size, remove);
        tell_length(x);
        Ok(CallDone::Results(0))
    })?
}

fn init_body(l: LuaState) -> CallOutcome {
    expect_count(l, 0..=1, "0 or 1 argument but seen")?;
    lend::exchange(|x| {
        // A script that receives a body may make it again from what comes.
        if receives_body(x) { Ok(()) } else { check_read(x) }
    })??;
    let wanted = if l.top() == 0 { None } else { Some(expect_number(l, 1, "init_body")?) };
    if let Some(wanted) = wanted.filter(|wanted| *wanted < 0.0) {
        return Err(LuaRaise::text(format!("bad size argument: {wanted}")));
    }
    lend::exchange(|x| {
        let most = x.plan.core.client_body_buffer_size as usize;
        x.state::<BodyDraft>().0 = Some(wanted.map_or(most, |wanted| wanted as usize));
        x.body.replace(Vec::new());
        Ok(CallDone::Results(0))
    })?
}

fn append_body(l: LuaState) -> CallOutcome {
    expect_count(l, 1..=1, "1 arguments but seen")?;
    let piece = expect_string(&l, 1, "append_body")?;
    let limit = lend::exchange(|x| x.state::<BodyDraft>().0)?;
    let limit = limit.ok_or_else(|| LuaRaise::text("request_body not initialized"))?;
    lend::run(|run| run.op = Some(ThreadOp::Append(piece, limit)))?;
    Ok(CallDone::Yield(0))
}

fn get_post_args(l: LuaState) -> CallOutcome {
    expect_count(l, 0..=1, "0 or 1 arguments but seen")?;
    if l.top() == 1 {
        expect_number(l, 1, "get_post_args")?;
    }
    let (read, in_file) = lend::exchange(|x| (x.body.is_read(), x.body.file().is_some()))?;
    if in_file {
        return fail(l, "request body in temp file not supported");
    }
    let text = lend::exchange(|x| x.body.memory().to_vec())?;
    if !read && text.is_empty() {
        return Err(LuaRaise::text("no request body found; maybe you should turn on lua_need_request_body?"));
    }
    let most = encode::most(l, 1);
    encode::push_args(l, &text, most);
    Ok(CallDone::Results(if encode::finish_args(l, &text, most) { 2 } else { 1 }))
}

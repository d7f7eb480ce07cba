//! What a coroutine can wait for.

use std::pin::Pin;

use weir_engine::subrequest::SubrequestCall;

use crate::luajit::state::LuaState;

/// Pushes results on the coroutine that goes on, and says how many.
pub(crate) type PushResults = Box<dyn FnOnce(LuaState) -> i32>;

/// A wait that needs nothing of the request.
pub(crate) type OpWait = Pin<Box<dyn Future<Output = PushResults>>>;

/// What a coroutine has asked its run for when it yielded.
pub(crate) enum ThreadOp {
    /// To be asked again when the others were (`coroutine.yield`); the values it gave are on its stack.
    Yield,
    /// To run another coroutine until that one yields; its arguments are on the stack.
    Resume(LuaState),
    /// To run a new light thread first; its arguments are on the stack.
    Spawn(LuaState),
    /// One of these light threads to end.
    Threads(Vec<LuaState>),
    /// This many milliseconds to pass, and what is logged then.
    Sleep(u64, Option<Box<str>>),
    /// Anything that ends by itself.
    Wait(OpWait),
    /// The request's body.
    Body,
    /// A piece to be added to the body that is being made, of which this many bytes may be buffered in memory.
    Append(Vec<u8>, usize),
    /// Pieces of the request's body, each at most this many milliseconds after the one before.
    Pieces(u64, PieceReceiver),
    /// What was said to be with the client, or with the connection.
    Flush,
    /// Responses of subrequests, one or several.
    Capture(Vec<SubrequestCall>),
    /// The end of the script.
    End(ScriptEnd),
}

/// Takes pieces of a body as they come, until it has what the coroutine goes on with.
pub(crate) type PieceReceiver = Box<dyn FnMut(BodyPiece) -> Option<PushResults>>;

/// What comes of a body.
pub(crate) enum BodyPiece {
    Bytes(Vec<u8>),
    /// There is no more.
    End,
    TimedOut,
    /// The client is gone, or what it sends is wrong.
    Failed,
}

/// How a script ends before its last line.
#[derive(Debug)]
pub(crate) enum ScriptEnd {
    /// `ngx.exit(status)`
    Exit(i64),
    /// `ngx.exec`: the path, unescaped, and its arguments; or `@name`.
    Exec(Vec<u8>, Vec<u8>),
    /// `ngx.redirect(uri, status)`
    Redirect(Vec<u8>, u16),
    /// An error, which is logged already.
    Error,
}

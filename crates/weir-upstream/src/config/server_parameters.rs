//! What may follow the address of a `server` line.

use weir_conf::{LineCx, NamedParameter, Result, parse_number, parse_time_ms, parse_time_s};

use crate::discovery::server_list;
use crate::peer::Peer;

/// What a `server` line says.
pub(crate) struct ServerDraft {
    pub(crate) model: Peer,
    pub(crate) backup: bool,
    pub(crate) resolve_later: bool,
    pub(crate) service: Option<String>,
}

impl ServerDraft {
    /// Records argument `at`.
    ///
    /// # Errors
    /// nginx's words: no such parameter, or its value is invalid.
    pub(crate) fn parameter(&mut self, line: &LineCx<'_>, at: usize) -> Result {
        let Some((parameter, value)) = ServerParameter::find(&SERVER_PARAMETERS, line.bytes(at)) else {
            return Err(line.unknown_parameter(at, ServerParameter::names(&SERVER_PARAMETERS)));
        };
        if parameter.name == "service=" && value.is_empty() {
            return Err(line.fail_arg(at, "service is empty"));
        }
        (parameter.set)(self, value).ok_or_else(|| line.invalid_parameter(at))
    }
}

/// `None`: the value is invalid.
type ServerParameter = NamedParameter<fn(&mut ServerDraft, &[u8]) -> Option<()>>;

/// What may follow the address of a `server`.
const SERVER_PARAMETERS: [ServerParameter; 12] = [
    ServerParameter::new("weight=", |draft, value| {
        draft.model.weight = number(value).filter(|n| *n > 0)?;
        Some(())
    }),
    ServerParameter::new("max_conns=", |draft, value| number(value).map(|n| draft.model.max_conns = n)),
    ServerParameter::new("max_fails=", |draft, value| number(value).map(|n| draft.model.max_fails = n)),
    ServerParameter::new("fail_timeout=", |draft, value| {
        parse_time_s(value).map(|seconds| draft.model.fail_timeout = seconds)
    }),
    ServerParameter::new("backup", |draft, _| {
        draft.backup = true;
        Some(())
    }),
    ServerParameter::new("down", |draft, _| {
        draft.model.down = true;
        Some(())
    }),
    ServerParameter::new("resolve", |draft, _| {
        draft.resolve_later = true;
        Some(())
    }),
    ServerParameter::new("service=", |draft, value| {
        draft.service = Some(String::from_utf8_lossy(value).into_owned());
        Some(())
    }),
    ServerParameter::new("route=", |draft, value| {
        draft.model.route = String::from_utf8_lossy(value).into();
        Some(())
    }),
    ServerParameter::new("slow_start=", |draft, value| {
        parse_time_ms(value).map(|ms| draft.model.slow_start = ms)
    }),
    ServerParameter::new("drain", |draft, _| {
        draft.model.drain = true;
        Some(())
    }),
    ServerParameter::new("bind=", |draft, value| {
        let text = std::str::from_utf8(value).ok().filter(|text| !text.is_empty())?;
        server_list::local(text).map(|bind| draft.model.bind = bind)
    }),
];

fn number(value: &[u8]) -> Option<u32> {
    parse_number(value).and_then(|n| u32::try_from(n).ok())
}

//! `sticky`: a client's requests go to the server that had its first one, as long as that server may be asked.
//!
//! What binds them is a cookie of ours, the `route=` of a server found in the request, or a session that the server
//! itself has opened and that was seen when it did. A server that may not be asked is replaced as for a new client,
//! which is bound again. A server that is being drained gets requests of clients bound to it only.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use md5::{Digest as _, Md5};
use weir_conf::{LineCx, Result, parse_size, parse_time_s};
use weir_http::{KnownField, Span, date};

use crate::peer::Peer;
use crate::peer::balance::{TriedPeers, now};
use crate::peer::members::UpstreamMembers;
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::exchange::Exchange;
use weir_engine::text::Text;
use weir_engine::variable::ValueScript;
use weir_engine::zone::{SharedZone, SharedZones, ZoneTable};

/// How requests are bound to servers.
#[derive(Debug)]
pub enum StickyMethod {
    /// `sticky cookie`
    Cookie(StickyCookie),
    /// `sticky route`: the values of which the first that is not empty counts.
    Route(Vec<ValueScript>),
    /// `sticky learn`
    Learn(StickyLearn),
}

/// The cookie that names the server.
#[derive(Debug)]
pub struct StickyCookie {
    name: Box<str>,
    expires: Option<CookieExpiry>,
    domain: Option<ValueScript>,
    path: Option<ValueScript>,
    secure: bool,
    httponly: bool,
    samesite: Option<ValueScript>,
}

#[derive(Clone, Copy, Debug)]
enum CookieExpiry {
    /// `max`: ten years, as nginx has it.
    Max,
    /// Seconds from now.
    In(u64),
}

/// `sticky learn`: which variables carry the session, and the sessions that were learned.
pub struct StickyLearn {
    zone: Arc<SharedZone>,
    /// Seconds after which a session that is not used is forgotten.
    timeout: u64,
    /// A session begins with the head of the response, not with its end.
    header: bool,
    create: Vec<ValueScript>,
    lookup: Vec<ValueScript>,
}

impl fmt::Debug for StickyLearn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Learn")
            .field("zone", &self.zone.name)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// A session: the server's id, and the second it was used last.
struct StickySession {
    id: Box<[u8]>,
    used: u64,
}

/// Peers by what names them in requests.
pub(crate) type StickyIds = HashMap<Box<[u8]>, Vec<Arc<Peer>>>;

/// A session to be remembered when the response is over.
pub(crate) struct LearnedSessions {
    table: Arc<ZoneTable<StickySession>>,
    key: Box<[u8]>,
    id: Box<[u8]>,
}

impl LearnedSessions {
    /// Binds the session to its server; without room the session that was not used for longest is forgotten.
    pub(crate) fn store(self) {
        let mut entries = self.table.lock(&self.key);
        if let Some(known) = entries.find(&self.key) {
            *entries.value(known) = StickySession { id: self.id, used: now() };
            return;
        }
        let session = |id: &[u8]| StickySession { id: id.into(), used: now() };
        if entries.insert(&self.key, session(&self.id)).is_some() {
            return;
        }
        if let Some(oldest) = entries.oldest() {
            entries.remove(oldest);
            // A key larger than all the room is not remembered.
            entries.insert(&self.key, session(&self.id));
        }
    }
}

impl StickyMethod {
    /// The peers of an upstream by what names them.
    pub(crate) fn ids(&self, members: &UpstreamMembers) -> StickyIds {
        let mut ids = StickyIds::new();
        for peer in members.all() {
            ids.entry(self.id(peer)).or_default().push(peer.clone());
        }
        ids
    }

    /// What names a peer: its `route=`, or the MD5 of its address.
    fn id(&self, peer: &Peer) -> Box<[u8]> {
        match self {
            StickyMethod::Route(_) => peer.route.as_bytes().into(),
            StickyMethod::Cookie(_) if !peer.route.is_empty() => peer.route.as_bytes().into(),
            _ => {
                let hex = |byte: &u8| [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
                Md5::digest(peer.name.as_bytes()).iter().flat_map(hex).collect()
            }
        }
    }

    /// The peer to which `x` is bound, counted as chosen; `None`: to none that may be asked.
    pub(crate) fn bound(
        &self,
        x: &mut Exchange,
        ids: &StickyIds,
        tried: &mut TriedPeers,
    ) -> Option<Arc<Peer>> {
        let key = match self {
            StickyMethod::Cookie(cookie) => x.arena.get(find_cookie(x, cookie.name.as_bytes())?).into(),
            StickyMethod::Route(values) => first(x, values)?,
            StickyMethod::Learn(learn) => learn.find(&first(x, &learn.lookup)?)?,
        };
        let now = now();
        let peer = ids.get(&key)?.iter().find(|peer| peer.is_reachable(now))?;
        peer.chosen(now);
        tried.add(peer);
        Some(peer.clone())
    }

    /// `peer` has responded to `x`: binds the client. What is returned is to be stored when the response is over.
    pub(crate) fn answered(&self, x: &mut Exchange, peer: &Peer) -> Option<LearnedSessions> {
        match self {
            StickyMethod::Route(_) => None,
            StickyMethod::Cookie(cookie) => {
                cookie.set(x, &self.id(peer));
                None
            }
            StickyMethod::Learn(learn) => {
                let key = first(x, &learn.create)?;
                let learned = LearnedSessions { table: learn.table(), key, id: self.id(peer) };
                if learn.header {
                    learned.store();
                    return None;
                }
                Some(learned)
            }
        }
    }
}

impl StickyLearn {
    fn table(&self) -> Arc<ZoneTable<StickySession>> {
        self.zone.store(|size| ZoneTable::new(size, ENTRY))
    }

    /// The server of a session that is not too old.
    fn find(&self, key: &[u8]) -> Option<Box<[u8]>> {
        let table = self.table();
        let mut entries = table.lock(key);
        let found = entries.find(key)?;
        let session = entries.value(found);
        let now = now();
        if now.saturating_sub(session.used) > self.timeout {
            entries.remove(found);
            return None;
        }
        session.used = now;
        Some(session.id.clone())
    }
}

impl StickyCookie {
    /// Adds the cookie to the response.
    fn set(&self, x: &mut Exchange, id: &[u8]) {
        let mut text = [self.name.as_bytes(), b"=", id].concat();
        let age = match self.expires {
            None => None,
            Some(CookieExpiry::Max) => {
                text.extend_from_slice(b"; expires=Thu, 31-Dec-37 23:55:55 GMT");
                Some(TEN_YEARS)
            }
            Some(CookieExpiry::In(seconds)) => {
                text.extend_from_slice(b"; expires=");
                date::cookie(&mut text, now().saturating_add(seconds) as i64);
                Some(seconds)
            }
        };
        if let Some(age) = age {
            text.extend_from_slice(format!("; max-age={age}").as_bytes());
        }
        for (name, script) in [("domain", &self.domain), ("path", &self.path)] {
            let value = script.as_ref().map(|script| script.value(x));
            if let Some(value) = value.as_ref().map(|value| x.text(value)).filter(|value| !value.is_empty()) {
                text.extend_from_slice(format!("; {name}=").as_bytes());
                text.extend_from_slice(value);
            }
        }
        if self.secure {
            text.extend_from_slice(b"; secure");
        }
        if self.httponly {
            text.extend_from_slice(b"; httponly");
        }
        if let Some(script) = &self.samesite {
            let value = script.value(x);
            text.extend_from_slice(match x.text(&value) {
                b"" => b"",
                b"lax" => b"; samesite=lax",
                b"none" => b"; samesite=none",
                // What is not one of the three is the strictest.
                _ => b"; samesite=strict",
            });
        }
        let value = x.arena.push(&text);
        x.response.add(KnownField::SetCookie, Text::Span(value));
    }

    /// `sticky cookie name [expires=time] [domain=domain] [httponly] [samesite=...] [secure] [path=path]`
    fn parse(line: &mut LineCx<'_>) -> Result<StickyCookie> {
        if line.args().len() < 2 || line.bytes(1).is_empty() {
            return Err(line.fail("invalid number of arguments in \"sticky\" directive"));
        }
        let mut cookie = StickyCookie {
            name: line.arg(1).into(),
            expires: None,
            domain: None,
            path: None,
            secure: false,
            httponly: false,
            samesite: None,
        };
        for at in 2..line.args().len() {
            let text = line.bytes(at);
            match value_of(text) {
                (b"expires", Some(b"max")) => cookie.expires = Some(CookieExpiry::Max),
                (b"expires", Some(time)) => {
                    let seconds = parse_time_s(time).ok_or_else(|| line.invalid_parameter(at))?;
                    cookie.expires = Some(CookieExpiry::In(seconds));
                }
                (b"domain", Some(value)) => cookie.domain = Some(ValueScript::compile_text(line, at, value)?),
                (b"path", Some(value)) => cookie.path = Some(ValueScript::compile_text(line, at, value)?),
                (b"samesite", Some(value)) => {
                    let script = ValueScript::compile_text(line, at, value)?;
                    if script.constant().is_some_and(|word| !matches!(word, b"strict" | b"lax" | b"none")) {
                        return Err(line.invalid_parameter(at));
                    }
                    cookie.samesite = Some(script);
                }
                (b"secure", None) => cookie.secure = true,
                (b"httponly", None) => cookie.httponly = true,
                _ => return Err(line.invalid_parameter(at)),
            }
        }
        Ok(cookie)
    }
}

impl StickyLearn {
    /// `sticky learn create=$variable lookup=$variable zone=name:size [timeout=time] [header]`
    fn parse(line: &mut LineCx<'_>) -> Result<StickyLearn> {
        let (mut zone, mut timeout, mut header) = (None, 600, false);
        let (mut create, mut lookup) = (Vec::new(), Vec::new());
        for at in 1..line.args().len() {
            let text = line.bytes(at);
            match value_of(text) {
                (b"create", Some(value)) => create.push(ValueScript::compile_text(line, at, value)?),
                (b"lookup", Some(value)) => lookup.push(ValueScript::compile_text(line, at, value)?),
                (b"timeout", Some(time)) => {
                    timeout = parse_time_s(time).ok_or_else(|| line.invalid_parameter(at))?;
                }
                (b"header", None) => header = true,
                (b"zone", Some(value)) => zone = Some(sessions(line, at, value)?),
                _ => return Err(line.invalid_parameter(at)),
            }
        }
        let missing = |name| format!("\"sticky learn\" must have \"{name}\" parameter");
        if create.is_empty() || lookup.is_empty() {
            return Err(line.fail(missing(if create.is_empty() { "create" } else { "lookup" })));
        }
        let zone = zone.ok_or_else(|| line.fail(missing("zone")))?;
        Ok(StickyLearn { zone, timeout, header, create, lookup })
    }
}

/// The zone of `name:size`.
fn sessions(line: &mut LineCx<'_>, at: usize, value: &[u8]) -> Result<Arc<SharedZone>> {
    let written = String::from_utf8_lossy(value).into_owned();
    let size = written.split_once(':').and_then(|(name, size)| Some((name, parse_size(size.as_bytes())?)));
    let Some((name, size)) = size.filter(|(name, _)| !name.is_empty()) else {
        return Err(line.fail_arg(at, format!("invalid zone size \"zone={written}\"")));
    };
    if size < 8 * 4096 {
        return Err(line.fail_arg(at, format!("zone \"zone={written}\" is too small")));
    }
    let zones = line.ext::<ConfRegistry>().shared::<SharedZones>();
    let zone = zones.named("sticky", name).and_then(|zone| zone.declare(size, "", ()).map(|()| zone));
    zone.map_err(|message| line.fail_arg(at, message))
}

/// `sticky cookie ...`, `sticky route ...`, `sticky learn ...`
pub(crate) fn parse(line: &mut LineCx<'_>) -> Result<StickyMethod> {
    match line.bytes(0) {
        b"cookie" => StickyCookie::parse(line).map(StickyMethod::Cookie),
        b"learn" => StickyLearn::parse(line).map(StickyMethod::Learn),
        b"route" if line.args().len() > 1 => {
            let values =
                (1..line.args().len()).map(|at| ValueScript::compile(line, at)).collect::<Result<_>>()?;
            Ok(StickyMethod::Route(values))
        }
        b"route" => Err(line.fail("invalid number of arguments in \"sticky\" directive")),
        _ => Err(line.invalid_parameter(0)),
    }
}

fn value_of(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|byte| *byte == b'=') {
        Some(cut) => (&text[..cut], Some(&text[cut + 1..])),
        None => (text, None),
    }
}

/// The first value that is not empty.
fn first(x: &mut Exchange, scripts: &[ValueScript]) -> Option<Box<[u8]>> {
    scripts.iter().find_map(|script| {
        let value = script.value(x);
        Some(x.text(&value)).filter(|value| !value.is_empty()).map(Box::from)
    })
}

/// The value of a cookie that the client sent.
fn find_cookie(x: &Exchange, name: &[u8]) -> Option<Span> {
    let fields = x.request.head.fields.iter().filter(|field| field.known == KnownField::Cookie);
    fields.into_iter().find_map(|field| {
        let text = x.arena.get(field.value);
        let values = text.split(|byte| matches!(byte, b';' | b',')).map(<[u8]>::trim_ascii);
        let value = values.filter_map(|pair| pair.strip_prefix(name)?.strip_prefix(b"=")).next()?;
        x.arena.locate(value)
    })
}

/// What nginx spends on a session besides its key: about 4,000 in a megabyte.
const ENTRY: u64 = 200;
const TEN_YEARS: u64 = 315_360_000;
const HEX: &[u8; 16] = b"0123456789abcdef";

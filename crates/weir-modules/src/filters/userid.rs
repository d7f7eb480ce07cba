//! `userid`: identifies clients by a cookie (nginx's `ngx_http_userid_filter_module`).
//!
//! An identifier has 128 bits: the server's number or address, the time, a start value of the worker and a counter. In
//! version 2 these are in network byte order, in version 1 in that of the machine.

use std::cell::Cell;
use std::net::IpAddr;
use std::time::SystemTime;

use weir_conf::names::{ANY, ONE, ONE_TO_THREE};
use weir_conf::{Directive, LineCx, Result, parse_time_s};
use weir_engine::filter::{FilterSlot, HeaderFilter};
use weir_engine::log::LogLevel;
use weir_engine::plan::PlanBuilder;
use weir_engine::variable::Variable;
use weir_engine::{Exchange, Module, Text, Verdict, inherit};
use weir_http::{KnownField, base64, cookie, date};

/// The module `userid`.
pub struct UserId;

impl Module for UserId {
    const NAME: &'static str = "userid";
    type Conf = UserIdConf;
    const DIRECTIVES: &'static [Directive<UserIdConf>] = &[
        UserIdRow::new("userid", ANY, ONE, |conf, line| line.one_of(&mut conf.enable, STATES))
            .syntax("userid on | v1 | log | off")
            .default("off")
            .doc(
                "Sets a cookie that identifies the client: `on` in version 2, `v1` in version \
                 1; `log` only reads it, for `$uid_got`.",
            )
            .example("userid on;\nuserid_name id;\nuserid_expires 365d;"),
        UserIdRow::new("userid_service", ANY, ONE, |conf, line| line.number(&mut conf.service, ..))
            .syntax("userid_service number")
            .doc(
                "Number of this server in cookies; by default the last octets of its address \
                 in version 2, and 0 in version 1.",
            ),
        UserIdRow::new("userid_name", ANY, ONE, |conf, line| line.text(&mut conf.name))
            .syntax("userid_name name")
            .default("uid")
            .doc("Name of the cookie."),
        UserIdRow::new("userid_domain", ANY, ONE, |conf, line| line.text(&mut conf.domain))
            .syntax("userid_domain name | none")
            .default("none")
            .doc("Domain of the cookie."),
        UserIdRow::new("userid_path", ANY, ONE, |conf, line| line.text(&mut conf.path))
            .syntax("userid_path path")
            .default("/")
            .doc("Path of the cookie."),
        UserIdRow::new("userid_expires", ANY, ONE, UserIdConf::set_expires)
            .syntax("userid_expires time | max | off")
            .default("off")
            .doc(
                "Lifetime of the cookie: a time, `max` (until 2037), or `off` for the \
                 browser's session.",
            ),
        UserIdRow::new("userid_flags", ANY, ONE_TO_THREE, |conf, line| line.bits(&mut conf.flags, FLAGS))
            .syntax("userid_flags off | flag ...")
            .default("off")
            .doc(
                "Flags of the cookie: `secure`, `httponly`, `samesite=strict`, \
                 `samesite=lax`, `samesite=none`.",
            ),
        UserIdRow::new("userid_p3p", ANY, ONE, |conf, line| line.text(&mut conf.p3p))
            .syntax("userid_p3p string | none")
            .default("none")
            .doc("Value of the `P3P` field that is sent with the cookie."),
        UserIdRow::new("userid_mark", ANY, ONE, UserIdConf::set_mark)
            .syntax("userid_mark letter | digit | = | off")
            .default("off")
            .doc(
                "Marks cookies with this character; a cookie without it is sent again with \
                 the same identifier.",
            ),
    ];
    const VARIABLES: &'static [Variable] = &[
        Variable::new("uid_got", got),
        Variable::new("uid_set", set),
        Variable::new("uid_reset", |_| Some(Text::EMPTY)).changeable(),
    ];

    fn inherit(conf: &mut UserIdConf, parent: &UserIdConf) {
        inherit!(conf, parent, enable, service, name, domain, path, expires, flags, p3p, mark);
    }

    fn install(conf: &UserIdConf, plan: &mut PlanBuilder<'_>) {
        let state = conf.enable.unwrap_or_default();
        if state != UserIdState::Off {
            plan.keep(conf.clone());
        }
        if state >= UserIdState::V1 {
            plan.header_filter(FilterSlot::UserId, Self::NAME, SetCookie);
        }
    }
}

/// Gives the closures of the table the type of their argument.
type UserIdRow = Directive<UserIdConf>;

/// `userid`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum UserIdState {
    #[default]
    Off,
    Log,
    V1,
    On,
}

const STATES: &[(&str, UserIdState)] =
    &[("off", UserIdState::Off), ("log", UserIdState::Log), ("v1", UserIdState::V1), ("on", UserIdState::On)];

const SECURE: u32 = 1;
const HTTPONLY: u32 = 2;
const STRICT: u32 = 4;
const LAX: u32 = 8;
const NONE: u32 = 16;
const FLAGS: &[(&str, u32)] = &[
    ("off", 32),
    ("secure", SECURE),
    ("httponly", HTTPONLY),
    ("samesite=strict", STRICT),
    ("samesite=lax", LAX),
    ("samesite=none", NONE),
];

/// `userid_expires`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CookieExpires {
    Off,
    After(u64),
    Max,
}

/// The settings of one block.
#[derive(Clone, Default)]
pub struct UserIdConf {
    enable: Option<UserIdState>,
    service: Option<u64>,
    name: Option<Vec<u8>>,
    /// `none` for none.
    domain: Option<Vec<u8>>,
    path: Option<Vec<u8>>,
    expires: Option<CookieExpires>,
    flags: Option<u32>,
    /// `none` for none.
    p3p: Option<Vec<u8>>,
    /// `Some(None)`: off.
    mark: Option<Option<u8>>,
}

impl UserIdConf {
    fn set_expires(&mut self, line: &mut LineCx<'_>) -> Result {
        if self.expires.is_some() {
            return Err(line.refuse("is duplicate"));
        }
        let expires = match line.bytes(0) {
            b"max" => CookieExpires::Max,
            b"off" => CookieExpires::Off,
            time => match parse_time_s(time).ok_or_else(|| line.refuse("invalid value"))? {
                0 => CookieExpires::Off,
                seconds => CookieExpires::After(seconds),
            },
        };
        line.once(&mut self.expires, expires)
    }

    fn set_mark(&mut self, line: &mut LineCx<'_>) -> Result {
        if self.mark.is_some() {
            return Err(line.refuse("is duplicate"));
        }
        let mark = match line.bytes(0) {
            b"off" => None,
            [mark] if mark.is_ascii_alphanumeric() || *mark == b'=' => Some(*mark),
            _ => {
                return Err(line.refuse("value must be \"off\" or a single letter, digit or \"=\" character"));
            }
        };
        line.once(&mut self.mark, mark)
    }

    fn name(&self) -> &[u8] {
        self.name.as_deref().unwrap_or(b"uid")
    }

    fn mark(&self) -> Option<u8> {
        self.mark.flatten()
    }
}

/// A number as it lies in memory, and in cookies.
type ClientId = [u8; 16];

/// Whether it is one: its count is never zero.
fn is_set(id: &ClientId) -> bool {
    id[12..] != [0; 4]
}

/// What a request knows of its client.
#[derive(Default)]
struct ClientState {
    /// The cookie was looked for.
    looked: bool,
    /// The cookie, as it came.
    cookie: Vec<u8>,
    got: ClientId,
    /// What is sent; nothing while its count is zero.
    set: ClientId,
    /// The number is a new one in place of the one that came.
    is_reset: bool,
}

impl ClientState {
    /// The number that came is sent once more if its cookie lacks the `mark`.
    fn remark(&mut self, mark: Option<u8>) {
        let is_marked = |mark| self.cookie.get(DIGITS..).is_some_and(|end| end.starts_with(&[mark, b'=']));
        if mark.is_some_and(|mark| !is_marked(mark)) {
            self.set = self.got;
        }
    }

    /// The cookie to send, but for its attributes; `None`: there is no number to send.
    fn cookie(&self, conf: &UserIdConf) -> Option<Vec<u8>> {
        if !is_set(&self.set) {
            return None;
        }
        let mut value = conf.name().to_vec();
        value.push(b'=');
        if is_set(&self.got) && !self.is_reset {
            value.extend_from_slice(&self.cookie[..DIGITS]);
            value.extend(conf.mark().into_iter().chain([b'=']));
        } else {
            base64::encode(&self.set, &mut value);
            if let Some(mark) = conf.mark() {
                let at = value.len() - 2;
                value[at] = mark;
            }
        }
        Some(value)
    }
}

/// The settings that hold for `x`, from [`UserIdState::Log`] or from `least` on.
fn settings(x: &Exchange, least: UserIdState) -> Option<UserIdConf> {
    x.plan.kept::<UserIdConf>().filter(|conf| conf.enable.unwrap_or_default() >= least).cloned()
}

/// `$uid_got`: name and number of the cookie that came.
fn got(x: &mut Exchange) -> Option<Text> {
    let conf = settings(x, UserIdState::Log)?;
    look(x, &conf);
    let got = x.lasting(|client: &mut ClientState| client.got);
    is_set(&got).then(|| text(x, &conf, &got))
}

/// `$uid_set`: name and number of the cookie that is sent.
fn set(x: &mut Exchange) -> Option<Text> {
    let conf = settings(x, UserIdState::V1)?;
    look(x, &conf);
    create(x, &conf);
    let set = x.lasting(|client: &mut ClientState| client.set);
    is_set(&set).then(|| text(x, &conf, &set))
}

fn text(x: &mut Exchange, conf: &UserIdConf, id: &ClientId) -> Text {
    let shown = shown(conf, id);
    Text::Span(x.arena.push(&shown))
}

/// `name=` and the four numbers, as the machine reads them.
fn shown(conf: &UserIdConf, id: &ClientId) -> Vec<u8> {
    let mut out = conf.name().to_vec();
    out.push(b'=');
    for word in id.as_chunks::<4>().0 {
        out.extend_from_slice(format!("{:08X}", u32::from_ne_bytes(*word)).as_bytes());
    }
    out
}

/// Looks for the cookie, once.
fn look(x: &mut Exchange, conf: &UserIdConf) {
    if x.lasting(|client: &mut ClientState| std::mem::replace(&mut client.looked, true)) {
        return;
    }
    let fields = x.request.head.fields.iter().filter(|field| field.known == KnownField::Cookie);
    let found = fields.map(|field| x.arena.get(field.value)).find_map(|line| {
        let value = cookie::find([line], conf.name())?;
        Some((line.to_vec(), value.to_vec()))
    });
    let Some((line, value)) = found else { return };
    let complain = |x: &Exchange, how| {
        let line = String::from_utf8_lossy(&line).into_owned();
        x.log_error(&format_args!("client sent {how} userid cookie \"{line}\""));
    };
    let got = in_cookie(&value).unwrap_or_else(|how| {
        complain(x, how);
        ClientId::default()
    });
    x.lasting(|client: &mut ClientState| (client.cookie, client.got) = (value, got));
}

/// The number in a cookie's value, or what is wrong with it.
pub(crate) fn in_cookie(value: &[u8]) -> std::result::Result<[u8; 16], &'static str> {
    // After the digits is a mark, or padding that some clients have spoilt.
    let digits = value.get(..DIGITS).ok_or("too short")?;
    let bytes = base64::decode(digits).ok_or("invalid")?;
    let mut id = ClientId::default();
    id[..bytes.len()].copy_from_slice(&bytes);
    Ok(id)
}

/// Decides once which number is sent, if any.
fn create(x: &mut Exchange, conf: &UserIdConf) {
    let (got, set) = x.lasting(|client: &mut ClientState| (client.got, client.set));
    if is_set(&set) {
        return;
    }
    if is_set(&got) {
        // Only for clients that are known, so by name.
        let reset = x.variable_by_name("uid_reset").unwrap_or(Text::EMPTY);
        let wants_reset = !matches!(x.text(&reset), b"" | b"0");
        let log_reset = x.text(&reset) == b"log";
        if !wants_reset {
            x.lasting(|client: &mut ClientState| client.remark(conf.mark()));
            return;
        }
        x.lasting(|client: &mut ClientState| client.is_reset = true);
        if log_reset {
            let shown = shown(conf, &got);
            let shown = String::from_utf8_lossy(&shown);
            x.log(LogLevel::Notice, &format_args!("userid cookie \"{shown}\" was reset"));
        }
    }
    let id = number(x, conf);
    x.lasting(|client: &mut ClientState| client.set = id);
}

/// A new number.
fn number(x: &Exchange, conf: &UserIdConf) -> ClientId {
    let v1 = conf.enable == Some(UserIdState::V1);
    let service = match (conf.service, v1) {
        (Some(service), true) => (service as u32).to_ne_bytes(),
        (Some(service), false) => (service as u32).to_be_bytes(),
        (None, true) => [0; 4],
        (None, false) => match x.connection.local().ip() {
            Some(IpAddr::V4(ip)) => ip.octets(),
            Some(IpAddr::V6(ip)) => (u128::from(ip) as u32).to_be_bytes(),
            None => [0; 4],
        },
    };
    let (count1, count2) = COUNTS.get();
    let now = weir_rt::unix_time().0 as u32;
    let words = [now, start(x.worker.id), if v1 { count1 } else { count2 }];
    if v1 {
        COUNTS.set((count1.wrapping_add(COUNT), count2));
    } else {
        COUNTS.set((count1, count2.checked_add(COUNT).unwrap_or(FIRST)));
    }
    let mut id = ClientId::default();
    id[..4].copy_from_slice(&service);
    for (bytes, word) in id[4..].chunks_mut(4).zip(words) {
        bytes.copy_from_slice(&if v1 { word.to_ne_bytes() } else { word.to_be_bytes() });
    }
    id
}

/// What distinguishes the numbers of this worker from those of others: the process, the worker, and when it made its
/// first.
fn start(worker: u8) -> u32 {
    START.get().unwrap_or_else(|| {
        let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.subsec_micros());
        let start = ((now / 20) & 0xff) << 24 | u32::from(worker) << 16 | (weir_rt::process::pid() & 0xffff);
        START.set(Some(start));
        start
    })
}

thread_local! {
    static START: Cell<Option<u32>> = const { Cell::new(None) };
    /// The next counts of both versions.
    static COUNTS: Cell<(u32, u32)> = const { Cell::new((1, FIRST)) };
}

struct SetCookie;

impl HeaderFilter for SetCookie {
    fn is_rehearsable(&self) -> bool {
        true
    }

    fn filter(&self, x: &mut Exchange) -> Verdict {
        if !x.is_subrequest()
            && let Some(conf) = settings(x, UserIdState::V1)
        {
            look(x, &conf);
            create(x, &conf);
            send(x, &conf);
        }
        Verdict::Ok
    }
}

/// Adds the fields, if there is a number to send.
fn send(x: &mut Exchange, conf: &UserIdConf) {
    let Some(mut value) = x.lasting(|client: &mut ClientState| client.cookie(conf)) else { return };
    attributes(&mut value, conf);
    let value = x.arena.push(&value);
    x.response.add(KnownField::SetCookie, value);
    if let Some(p3p) = conf.p3p.as_deref().filter(|p3p| !matches!(*p3p, b"" | b"none")) {
        let p3p = Text::Span(x.arena.push(p3p));
        x.response.add_named("P3P".into(), p3p);
    }
}

/// What follows the cookie's value.
fn attributes(out: &mut Vec<u8>, conf: &UserIdConf) {
    match conf.expires {
        None | Some(CookieExpires::Off) => {}
        Some(CookieExpires::Max) => out.extend_from_slice(b"; expires=Thu, 31-Dec-37 23:55:55 GMT"),
        Some(CookieExpires::After(seconds)) => {
            out.extend_from_slice(b"; expires=");
            date::cookie(out, weir_rt::unix_time().0.saturating_add(seconds) as i64);
        }
    }
    if let Some(domain) = conf.domain.as_deref().filter(|domain| !matches!(*domain, b"" | b"none")) {
        out.extend_from_slice(b"; domain=");
        out.extend_from_slice(domain);
    }
    out.extend_from_slice(b"; path=");
    out.extend_from_slice(conf.path.as_deref().unwrap_or(b"/"));
    let flags = conf.flags.unwrap_or(0);
    for (flag, text) in [
        (SECURE, "; secure"),
        (HTTPONLY, "; httponly"),
        (STRICT, "; samesite=strict"),
        (LAX, "; samesite=lax"),
        (NONE, "; samesite=none"),
    ] {
        if flags & flag != 0 {
            out.extend_from_slice(text.as_bytes());
        }
    }
}

/// Digits of a number in base64, without padding.
const DIGITS: usize = 22;
/// The first count of version 2.
const FIRST: u32 = 0x0303_0302;
/// From one count to the next.
const COUNT: u32 = 0x100;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_number_is_read_as_it_was_sent(id: ClientId, mark in proptest::option::of("[a-zA-Z]"), cut in 0..DIGITS) {
            let mut value = Vec::new();
            base64::encode(&id, &mut value);
            if let Some(mark) = mark {
                value.truncate(DIGITS);
                value.extend_from_slice(mark.as_bytes());
                value.push(b'=');
            }
            prop_assert_eq!(in_cookie(&value), Ok(id));
            prop_assert_eq!(in_cookie(&value[..cut]), Err("too short"));
        }

        #[test]
        fn any_value_is_a_number_or_refused(value in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Err(reason) = in_cookie(&value) {
                prop_assert!(reason == "invalid" || value.len() < DIGITS);
            }
        }
    }
}

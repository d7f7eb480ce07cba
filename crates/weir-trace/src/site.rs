//! Sites: the places that time is charged to, interned to 16 bits.
//!
//! Interning happens while a configuration is installed and is allowed to lock; at run time a site is a number.
//! The same place gets the same number in the next generation, so histograms live through a reload and reloads do
//! not use numbers up.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A place that time is charged to; 0 is no place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Site(pub u16);

impl Site {
    /// No site. In a tree: the request itself.
    pub const NONE: Site = Site(0);
    /// What could not get a number of its own because all were taken.
    pub const OTHER: Site = Site(1);

    /// An internal redirect, with everything that ran because of it inside.
    pub const REDIRECT: Site = Site(FIRST_FIXED);
    /// A subrequest, as its parent sees it.
    pub const SUBREQUEST: Site = Site(FIRST_FIXED + 1);
    /// Reading the request body.
    pub const BODY_READ: Site = Site(FIRST_FIXED + 2);
    /// All header filters of a response; no time of its own.
    pub const HEADER_FILTERS: Site = Site(FIRST_FIXED + 3);
    /// The header filter that composes the head, always the last one.
    pub const HEADER: Site = Site(FIRST_FIXED + 4);
    /// All body filters of a response; no time of its own.
    pub const BODY_FILTERS: Site = Site(FIRST_FIXED + 5);
    /// The body filter that reads file pieces into memory for those after it.
    pub const COPY: Site = Site(FIRST_FIXED + 6);

    /// What lies around this site when it is left: of sites that are `open`, innermost last, how many stay so after an
    /// [`End`](crate::EventKind::End). It closes the innermost that is this one and what was left open inside; all at
    /// [`Site::NONE`]; nothing if it is not open.
    #[inline]
    #[must_use]
    pub fn outside<T>(self, open: &[T], site: impl Fn(&T) -> Site) -> usize {
        if self.is_none() {
            return 0;
        }
        open.iter().rposition(|open| site(open) == self).unwrap_or(open.len())
    }

    /// The site of a step of the connection, which belongs to no location. Needs no table.
    #[must_use]
    pub const fn step(step: ConnectionStep) -> Site {
        Site(FIRST_STEP + step as u16)
    }

    /// The site of a phase outside of any location (an index into [`PHASES`]; beyond them [`Site::OTHER`]).
    #[must_use]
    pub const fn phase(phase: u8) -> Site {
        if (phase as usize) < PHASES.len() { Site(FIRST_PHASE + phase as u16) } else { Site::OTHER }
    }

    /// True for [`Site::NONE`].
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The number as an index of a dense array.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What sort of place a site is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SiteKind {
    /// What has no number of its own.
    Other,
    /// A whole request, by location: what [`RequestRecord::route`](crate::RequestRecord) names.
    Request,
    /// A step of the connection driver.
    Connection(ConnectionStep),
    /// One of the eleven phases: an index into [`PHASES`].
    Phase(u8),
    /// A module's handler in the phase of that index.
    Handler(u8),
    /// A header filter.
    HeaderFilter,
    /// A body filter, all its calls for one response together.
    BodyFilter,
    /// Reading or discarding the request body.
    BodyRead,
    /// One attempt at one upstream peer.
    UpstreamTry,
    /// A Lua chunk from resume to yield.
    LuaResume,
    /// Ready to run and waiting for the loop.
    Queue,
    /// A subrequest.
    Subrequest,
    /// An internal redirect: to a URI, a named location, an error page.
    Redirect,
    /// A file operation: open, stat, read.
    File,
    /// A lock that requests of several workers share.
    Lock,
    /// What runs below a module: a variable, a pattern. Recorded only while a caller asks.
    Function,
}

impl SiteKind {
    /// The word for it in exports: `phase`, `handler`, `body_filter`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            SiteKind::Other => "other",
            SiteKind::Request => "request",
            SiteKind::Connection(_) => "connection",
            SiteKind::Phase(_) => "phase",
            SiteKind::Handler(_) => "handler",
            SiteKind::HeaderFilter => "header_filter",
            SiteKind::BodyFilter => "body_filter",
            SiteKind::BodyRead => "body_read",
            SiteKind::UpstreamTry => "upstream",
            SiteKind::LuaResume => "lua",
            SiteKind::Queue => "queue",
            SiteKind::Subrequest => "subrequest",
            SiteKind::Redirect => "internal_redirect",
            SiteKind::File => "file",
            SiteKind::Lock => "lock",
            SiteKind::Function => "function",
        }
    }

    /// The kind that [`as_str`](SiteKind::as_str) calls `word`: of a phase and its handlers that of the `phase`, of a step the one
    /// called `name`. `None`: there is no such kind here.
    #[must_use]
    pub fn named(word: &str, phase: &str, name: &str) -> Option<SiteKind> {
        let phase = || PHASES.iter().position(|known| *known == phase).and_then(|at| u8::try_from(at).ok());
        Some(match word {
            "other" => SiteKind::Other,
            "request" => SiteKind::Request,
            "connection" => {
                SiteKind::Connection(ConnectionStep::ALL.into_iter().find(|step| step.as_str() == name)?)
            }
            "phase" => SiteKind::Phase(phase()?),
            "handler" => SiteKind::Handler(phase()?),
            "header_filter" => SiteKind::HeaderFilter,
            "body_filter" => SiteKind::BodyFilter,
            "body_read" => SiteKind::BodyRead,
            "upstream" => SiteKind::UpstreamTry,
            "lua" => SiteKind::LuaResume,
            "queue" => SiteKind::Queue,
            "subrequest" => SiteKind::Subrequest,
            "internal_redirect" => SiteKind::Redirect,
            "file" => SiteKind::File,
            "lock" => SiteKind::Lock,
            "function" => SiteKind::Function,
            _ => return None,
        })
    }

    /// nginx's name of the phase this belongs to, such as `rewrite`; `None` for sites that are not of a phase or its
    /// handlers.
    #[must_use]
    pub fn phase(self) -> Option<&'static str> {
        match self {
            SiteKind::Phase(phase) | SiteKind::Handler(phase) => PHASES.get(usize::from(phase)).copied(),
            _ => None,
        }
    }
}

/// The steps of the connection driver around the phases.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum ConnectionStep {
    /// Taking the connection from the listener.
    Accept,
    /// Reading the PROXY protocol header.
    ProxyProtocol,
    /// The TLS handshake.
    Tls,
    /// The handshake by the CPU time of the worker's thread, if that is asked for
    /// ([`Recorder::set_cpu`](crate::Recorder)).
    TlsCpu,
    /// Waiting for and receiving the request line and the header section.
    HeadRead,
    /// Parsing them.
    Parse,
    /// Choosing the virtual server.
    VirtualServer,
    /// Finding the response for a status: an `error_page`, or nginx's own page.
    SpecialResponse,
    /// Handing bytes to the kernel.
    Write,
    /// Finishing the request: counting, logging, cleaning up.
    Finalise,
    /// Reading and dropping what a client still sends before the connection is closed.
    Lingering,
}

impl ConnectionStep {
    /// All steps in the order a request meets them.
    pub const ALL: [ConnectionStep; 11] = [
        ConnectionStep::Accept,
        ConnectionStep::ProxyProtocol,
        ConnectionStep::Tls,
        ConnectionStep::TlsCpu,
        ConnectionStep::HeadRead,
        ConnectionStep::Parse,
        ConnectionStep::VirtualServer,
        ConnectionStep::SpecialResponse,
        ConnectionStep::Write,
        ConnectionStep::Finalise,
        ConnectionStep::Lingering,
    ];

    /// The step's name in trees and exports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            ConnectionStep::Accept => "accept",
            ConnectionStep::ProxyProtocol => "proxy_protocol",
            ConnectionStep::Tls => "tls",
            ConnectionStep::TlsCpu => "tls_cpu",
            ConnectionStep::HeadRead => "head_read",
            ConnectionStep::Parse => "parse",
            ConnectionStep::VirtualServer => "virtual_server",
            ConnectionStep::SpecialResponse => "special_response",
            ConnectionStep::Write => "write",
            ConnectionStep::Finalise => "finalise",
            ConnectionStep::Lingering => "lingering",
        }
    }
}

/// What a site represents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteInfo {
    /// The sort of place.
    pub kind: SiteKind,
    /// nginx's name of the phase, for phases and their handlers; `None` for other sites.
    pub phase: Option<&'static str>,
    /// The location, as the configuration names it; empty outside of locations.
    pub location: Arc<str>,
    /// Module, handler, filter, chunk or peer; for phases and steps their own name. What people see.
    pub name: Arc<str>,
    /// The module's own name, which `name` is too unless the configuration calls the module otherwise
    /// ([`SiteTable::intern_named`]).
    pub module: Arc<str>,
}

/// The name, or that of the phase or step itself.
fn named(kind: SiteKind, name: &str) -> &str {
    match kind {
        SiteKind::Phase(_) if name.is_empty() => kind.phase().unwrap_or("phase"),
        SiteKind::Connection(step) if name.is_empty() => step.as_str(),
        _ => name,
    }
}

impl SiteInfo {
    fn new(kind: SiteKind, location: &str, name: &str) -> SiteInfo {
        let name: Arc<str> = named(kind, name).into();
        SiteInfo { kind, phase: kind.phase(), location: location.into(), module: name.clone(), name }
    }

    /// How the site is called in trees: phases, steps and handlers by their name alone, others with their kind
    /// (`body_filter gzip`).
    #[must_use]
    pub fn label(&self) -> String {
        match self.kind {
            SiteKind::Phase(_)
            | SiteKind::Connection(_)
            | SiteKind::Handler(_)
            | SiteKind::Function
            | SiteKind::Other => self.name.to_string(),
            kind if self.name.is_empty() => kind.as_str().to_owned(),
            kind => format!("{} {}", kind.as_str(), self.name),
        }
    }
}

/// The interning of sites. One serves the whole process ([`SiteTable::global`]); tests make their own.
#[derive(Debug)]
pub struct SiteTable {
    inner: Mutex<SiteTableInner>,
}

/// A site and what [`SiteTable::fixed`] was asked for.
type FixedSite = ((SiteKind, &'static str, &'static str), Site);

thread_local! {
    static ASKED: RefCell<Vec<FixedSite>> = const { RefCell::new(Vec::new()) };
}

impl SiteTable {
    /// A table with the steps and the phases outside of locations, which have fixed numbers.
    #[must_use]
    pub fn new() -> SiteTable {
        let other = SiteInfo::new(SiteKind::Other, "", "other");
        let mut inner = SiteTableInner { infos: vec![other; usize::from(FIRST_FREE)], index: HashMap::new() };
        inner.infos[0].name = "request".into();
        inner.infos[0].module = "request".into();
        for step in ConnectionStep::ALL {
            inner.place(Site::step(step), SiteKind::Connection(step), "");
        }
        for phase in 0..PHASES.len() as u8 {
            inner.place(Site::phase(phase), SiteKind::Phase(phase), "");
        }
        for (site, kind, name) in FIXED {
            inner.place(site, kind, name);
        }
        SiteTable { inner: Mutex::new(inner) }
    }

    /// The table of the process.
    pub fn global() -> &'static SiteTable {
        static GLOBAL: OnceLock<SiteTable> = OnceLock::new();
        GLOBAL.get_or_init(SiteTable::new)
    }

    /// [`SiteTable::intern`] of the process-wide table for what is in the program: looked up without a lock once the
    /// thread has asked. For places that have few such names, not for those of a configuration.
    pub fn fixed(kind: SiteKind, location: &'static str, name: &'static str) -> Site {
        let same = |one: &str, other: &str| std::ptr::eq(one, other);
        ASKED.with_borrow_mut(|fixed| {
            let known = fixed.iter().find(|(of, _)| of.0 == kind && same(of.1, location) && same(of.2, name));
            if let Some((_, site)) = known {
                return *site;
            }
            let site = SiteTable::global().intern(kind, location, name);
            fixed.push(((kind, location, name), site));
            site
        })
    }

    /// The site of `kind` × `location` × `name`, the same number for the same three. `name` may be empty for
    /// phases and steps. Takes a lock and may allocate: for configuration time.
    ///
    /// When all 65,535 numbers are taken, a phase gets its site outside of locations and anything else
    /// [`Site::OTHER`]: time is then charged less finely and never lost.
    pub fn intern(&self, kind: SiteKind, location: &str, name: &str) -> Site {
        self.intern_named(kind, location, name, name)
    }

    /// As [`SiteTable::intern`], for the handler or filter of `module` that people see as `name`. Modules of the same `name`
    /// are one site, which belongs to the first of them.
    pub fn intern_named(&self, kind: SiteKind, location: &str, module: &str, name: &str) -> Site {
        let mut inner = self.lock();
        let free = match inner.find(kind, location, named(kind, name)) {
            Ok(site) => return site,
            Err(free) => free,
        };
        let Ok(number) = u16::try_from(inner.infos.len()) else {
            return if let SiteKind::Phase(phase) = kind { Site::phase(phase) } else { Site::OTHER };
        };
        let mut info = SiteInfo::new(kind, location, name);
        if module != name {
            info.module = module.into();
        }
        inner.infos.push(info);
        inner.index.insert(free, Site(number));
        Site(number)
    }

    /// What `site` represents; a number never given out represents "other".
    #[must_use]
    pub fn info(&self, site: Site) -> SiteInfo {
        let inner = self.lock();
        inner.infos.get(site.index()).unwrap_or(&inner.infos[Site::OTHER.index()]).clone()
    }

    /// The kinds of all sites, by number.
    #[must_use]
    pub fn kinds(&self) -> Vec<SiteKind> {
        self.lock().infos.iter().map(|info| info.kind).collect()
    }

    /// How many numbers are in use, the reserved ones included: all sites are below it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().infos.len()
    }

    /// Never: the reserved sites are always there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The table is only ever appended to, so the state a panicking thread leaves is consistent.
    fn lock(&self) -> MutexGuard<'_, SiteTableInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for SiteTable {
    fn default() -> SiteTable {
        SiteTable::new()
    }
}

#[derive(Debug)]
struct SiteTableInner {
    infos: Vec<SiteInfo>,
    /// By a hash of kind, location and name, or the next number that was free: those of very many servers are looked for
    /// without a copy of their names.
    index: HashMap<u64, Site>,
}

impl SiteTableInner {
    fn place(&mut self, site: Site, kind: SiteKind, name: &str) {
        let info = SiteInfo::new(kind, "", name);
        if let Err(free) = self.find(kind, "", &info.name) {
            self.index.insert(free, site);
        }
        self.infos[site.index()] = info;
    }

    /// The site, or where in the index it would be.
    fn find(&self, kind: SiteKind, location: &str, name: &str) -> Result<Site, u64> {
        let mut hasher = DefaultHasher::new();
        (kind, location, name).hash(&mut hasher);
        let mut at = hasher.finish();
        while let Some(site) = self.index.get(&at) {
            let info = &self.infos[site.index()];
            if (info.kind, &*info.location, &*info.name) == (kind, location, name) {
                return Ok(*site);
            }
            at = at.wrapping_add(1);
        }
        Err(at)
    }
}

/// nginx's phases in their order, by the names of the `NGX_HTTP_*_PHASE` constants.
pub const PHASES: [&str; 11] = [
    "post_read",
    "server_rewrite",
    "find_config",
    "rewrite",
    "post_rewrite",
    "preaccess",
    "access",
    "post_access",
    "precontent",
    "content",
    "log",
];

const FIRST_STEP: u16 = 2;
const FIRST_PHASE: u16 = 32;
const FIRST_FIXED: u16 = 48;
/// What the engine itself does in every location alike.
const FIXED: [(Site, SiteKind, &str); 7] = [
    (Site::REDIRECT, SiteKind::Redirect, ""),
    (Site::SUBREQUEST, SiteKind::Subrequest, ""),
    (Site::BODY_READ, SiteKind::BodyRead, ""),
    (Site::HEADER_FILTERS, SiteKind::HeaderFilter, ""),
    (Site::HEADER, SiteKind::HeaderFilter, "header"),
    (Site::BODY_FILTERS, SiteKind::BodyFilter, ""),
    (Site::COPY, SiteKind::BodyFilter, "copy"),
];
/// The first number that [`SiteTable::intern`] gives out; those below are fixed, with room for more steps.
const FIRST_FREE: u16 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_by_their_words() {
        let phases =
            (0..PHASES.len() as u8).flat_map(|phase| [SiteKind::Phase(phase), SiteKind::Handler(phase)]);
        let steps = ConnectionStep::ALL.into_iter().map(SiteKind::Connection);
        let others = [
            SiteKind::Other,
            SiteKind::Request,
            SiteKind::HeaderFilter,
            SiteKind::BodyFilter,
            SiteKind::BodyRead,
            SiteKind::UpstreamTry,
            SiteKind::LuaResume,
            SiteKind::Queue,
            SiteKind::Subrequest,
            SiteKind::Redirect,
            SiteKind::File,
            SiteKind::Lock,
            SiteKind::Function,
        ];
        for kind in phases.chain(steps).chain(others) {
            let info = SiteInfo::new(kind, "", "");
            assert_eq!(SiteKind::named(kind.as_str(), info.phase.unwrap_or(""), &info.name), Some(kind));
        }
        assert_eq!(SiteKind::named("phase", "none", ""), None);
        assert_eq!(SiteKind::named("none", "", ""), None);
    }

    #[test]
    fn names_of_the_program_are_sites_like_others() {
        let site = SiteTable::fixed(SiteKind::LuaResume, "", "fixed_by_lua");
        assert_eq!(site, SiteTable::global().intern(SiteKind::LuaResume, "", &String::from("fixed_by_lua")));
        assert_eq!(site, SiteTable::fixed(SiteKind::LuaResume, "", "fixed_by_lua"));
        assert_ne!(site, SiteTable::fixed(SiteKind::Request, "", "fixed_by_lua"));
    }

    #[test]
    fn the_same_place_keeps_its_number() {
        let table = SiteTable::new();
        let gzip = table.intern(SiteKind::BodyFilter, "/", "gzip");
        assert_eq!(gzip, table.intern(SiteKind::BodyFilter, "/", "gzip"));
        assert_ne!(gzip, table.intern(SiteKind::HeaderFilter, "/", "gzip"));
        assert_ne!(gzip, table.intern(SiteKind::BodyFilter, "/img", "gzip"));
        assert_eq!(table.info(gzip).label(), "body_filter gzip");
        assert_eq!(usize::from(gzip.0) + 3, table.len());
    }

    #[test]
    fn a_module_that_is_called_otherwise_is_known_by_both_names() {
        let table = SiteTable::new();
        let own = table.intern(SiteKind::BodyFilter, "/", "gzip");
        let called = table.intern_named(SiteKind::BodyFilter, "/", "gzip", "compress");
        assert_ne!(own, called);
        let info = table.info(called);
        assert_eq!(
            (&*info.name, &*info.module, &*info.label()),
            ("compress", "gzip", "body_filter compress")
        );
        assert_eq!(&*table.info(own).module, "gzip");
        assert_eq!(table.intern_named(SiteKind::BodyFilter, "/", "brotli", "compress"), called);
    }

    #[test]
    fn steps_and_phases_are_there_before_any_configuration() {
        let table = SiteTable::new();
        assert_eq!(table.intern(SiteKind::Phase(6), "", ""), Site::phase(6));
        assert_eq!(table.info(Site::phase(6)).label(), "access");
        for step in ConnectionStep::ALL {
            assert_eq!(table.intern(SiteKind::Connection(step), "", ""), Site::step(step));
            assert_eq!(&*table.info(Site::step(step)).name, step.as_str());
        }
        for (site, kind, name) in FIXED {
            assert_eq!(table.intern(kind, "", name), site);
        }
        assert_eq!(table.info(Site(60_000)).kind, SiteKind::Other);
        assert_eq!(Site::phase(11), Site::OTHER);
    }

    #[test]
    fn a_full_table_charges_less_finely() {
        let table = SiteTable::new();
        for n in 0..70_000 {
            table.intern(SiteKind::Handler(9), "/", &n.to_string());
        }
        assert_eq!(table.len(), 65_536);
        assert_eq!(table.intern(SiteKind::BodyFilter, "/", "late"), Site::OTHER);
        assert_eq!(table.intern(SiteKind::Phase(3), "/late", ""), Site::phase(3));
    }

    #[test]
    fn a_handler_knows_its_phase() {
        let table = SiteTable::new();
        let rewrite = table.intern(SiteKind::Handler(1), "/", "rewrite");
        assert_eq!(table.info(rewrite).phase, Some("server_rewrite"));
        assert_ne!(rewrite, table.intern(SiteKind::Handler(3), "/", "rewrite"));
    }
}

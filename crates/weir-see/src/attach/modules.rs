//! Which functions of a running nginx are handlers and filters, and of which modules: found without debug information, in
//! the tables that nginx itself works with.
//!
//! Exported (its modules need them): the cycle with its list of modules, the phases' checkers, and the variables that
//! hold the first filter. Not exported: handlers and filters. A filter is a function that its module's
//! `postconfiguration` stores as the first one, and a phase's handler is in the phase engine; which module it
//! belongs to, the module's own code says, by taking its address. Content handlers that a directive sets
//! (`proxy_pass`) are stored by the directive's function into one field of the location, which is found by vote.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use weir_trace::{ConnectionStep, Site, SiteKind, SiteTable};

use super::code::{self, CodeFact};
use super::image::CodeImage;
use super::memory::ProcessMemory;

/// A function to be probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProbeSpot {
    /// The image, by its number.
    pub(super) image: usize,
    pub(super) address: u64,
    /// What it is called in messages.
    pub(super) name: String,
    pub(super) role: FunctionRole,
}

/// What a function does in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FunctionRole {
    /// Makes a request, and returns it.
    Create,
    /// Forgets the request it is given.
    Free,
    /// A turn of the loop.
    Turn,
    /// A phase's checker: the second argument says which one's.
    Checker,
    /// Time that is charged here.
    At(Site),
    /// The same, and what is waited for after it is the upstream server's.
    Upstream(Site),
    /// A filter whose chain is unknown: header filter, body filter.
    Filter(Site, Site),
    /// What the next functions are part of: all header filters, all body filters.
    Chain(Site),
}

/// nginx's phase engine.
#[derive(Clone, Debug, Default)]
pub(super) struct PhaseEngine {
    /// The address of its first entry.
    pub(super) begins: u64,
    /// The phase of each entry.
    pub(super) phases: Vec<u8>,
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct FoundSpots {
    pub(super) spots: Vec<ProbeSpot>,
    pub(super) engine: PhaseEngine,
    /// Where a location's configuration is among those of modules.
    pub(super) core_index: u64,
}

/// A module of HTTP, and what its code says.
struct HttpModule {
    name: String,
    post: Vec<CodeFact>,
    setters: Vec<CodeFact>,
    /// Functions whose addresses it takes anywhere there.
    takes: BTreeSet<u64>,
}

/// Looks through the process.
///
/// # Errors
/// It is no nginx, or one without what must be there.
pub(super) fn find(images: &[CodeImage], memory: &ProcessMemory) -> Result<FoundSpots, String> {
    let mut finder = SpotFinder {
        images,
        memory,
        modules: Vec::new(),
        found: FoundSpots::default(),
        taken: HashMap::new(),
        code_left: Cell::new(MOST_CODE),
    };
    finder.read_modules()?;
    finder.exported()?;
    finder.phases()?;
    finder.filters();
    finder.content_handlers();
    finder.other_handlers();
    finder.upstream();
    finder.has_code_left()?;
    check_count(finder.found.spots.len())?;
    Ok(finder.found)
}

/// The kernel takes up to a tenth of a second to take each probe away, which nothing can interrupt: a process with tables of
/// thousands of functions would keep its observer for minutes.
fn check_count(spots: usize) -> Result<(), String> {
    match spots > MOST_SPOTS {
        true => Err(format!("more than {MOST_SPOTS} functions to probe, which no nginx has")),
        false => Ok(()),
    }
}

struct SpotFinder<'a> {
    images: &'a [CodeImage],
    memory: &'a ProcessMemory,
    modules: Vec<HttpModule>,
    found: FoundSpots,
    /// Functions that have a spot, by address.
    taken: HashMap<u64, usize>,
    /// Bytes of code that may be read yet: a process can have tables that lead to the same long function again and again.
    code_left: Cell<usize>,
}

impl SpotFinder<'_> {
    /// The program itself, which is first.
    fn symbol(&self, name: &str) -> Result<u64, String> {
        let symbol = self.images.first().and_then(|program| program.symbol(name));
        symbol.ok_or_else(|| format!("no nginx whose modules can be read: it has no \"{name}\""))
    }

    fn word(&self, address: u64) -> Result<u64, String> {
        self.memory.word(address).ok_or_else(|| format!("no memory at {address:#x}: has the process ended?"))
    }

    fn add(&mut self, address: u64, name: &str, role: FunctionRole) {
        let Some(image) = self.images.iter().position(|image| image.is_function(address)) else { return };
        if !self.taken.contains_key(&address) {
            self.taken.insert(address, self.found.spots.len());
            self.found.spots.push(ProbeSpot { image, address, name: name.to_owned(), role });
        }
    }

    /// The facts of the function at `address`.
    fn facts(&self, address: u64) -> Vec<CodeFact> {
        let image = self.images.iter().find(|image| image.is_function(address));
        let code = image.map_or(&[][..], |image| image.function(address));
        let Some(left) = self.code_left.get().checked_sub(code.len()) else {
            self.code_left.set(0);
            return Vec::new();
        };
        self.code_left.set(left);
        code::read(code, address, &|cell| self.memory.word(cell))
    }

    /// Whether what was found is all there is.
    fn has_code_left(&self) -> Result<(), String> {
        if self.code_left.get() > 0 {
            Ok(())
        } else {
            Err("its modules have more code than any nginx".to_owned())
        }
    }

    /// The same, and of the functions without a name that it goes on in: compilers divide long ones.
    fn facts_with_parts(&self, address: u64) -> Vec<CodeFact> {
        let mut facts = self.facts(address);
        let parts: BTreeSet<u64> = facts
            .iter()
            .filter_map(|fact| match fact {
                CodeFact::Calls(to) => Some(*to).filter(|to| self.is_hidden(*to)),
                _ => None,
            })
            .collect();
        facts.extend(parts.into_iter().flat_map(|part| self.facts(part)));
        facts
    }

    /// The modules of the running configuration, loaded ones included.
    fn read_modules(&mut self) -> Result<(), String> {
        let table = self.symbol("ngx_modules")?;
        let first = self.memory.words(table, 2);
        let cycle = self.word(self.symbol("ngx_cycle")?)?;
        // Its place in the cycle depends on the version: it is the list that begins as the table does.
        let fields = self.memory.words(cycle, 64);
        let list = fields.into_iter().find(|&list| list > 4096 && self.memory.words(list, 2) == first);
        for pointer in self.memory.words(list.unwrap_or(table), MOST_MODULES) {
            if pointer == 0 {
                break;
            }
            self.read_module(pointer);
            self.has_code_left()?;
        }
        if self.modules.is_empty() { Err("no nginx with modules of HTTP".to_owned()) } else { Ok(()) }
    }

    /// `ngx_module_t`: name, context, commands and type are its words 2, 7, 8 and 9.
    fn read_module(&mut self, pointer: u64) {
        let words = self.memory.words(pointer, 10);
        let &[_, _, name, _, _, _, _, context, commands, kind] = &words[..] else { return };
        let Some(name) = self.memory.text(name).filter(|_| kind == HTTP_MODULE) else { return };
        let post = self.memory.word(context.wrapping_add(8)).filter(|&post| post != 0);
        let post = post.map_or_else(Vec::new, |post| self.facts(post));
        let mut setters = Vec::new();
        // `ngx_command_t`: 56 bytes, its function is the fourth word; the last one has no name.
        for at in (0..MOST_COMMANDS).map(|at| commands.wrapping_add(56 * at)).take_while(|_| commands != 0) {
            match self.memory.words(at, 4)[..] {
                [length, _, _, set] if length > 0 => setters.extend(self.facts_with_parts(set)),
                _ => break,
            }
        }
        let takes = post.iter().chain(&setters).filter_map(|fact| match fact {
            CodeFact::Takes(address) if self.images.iter().any(|image| image.is_function(*address)) => {
                Some(*address)
            }
            _ => None,
        });
        let takes: BTreeSet<u64> = takes.collect();
        self.modules.push(HttpModule { name, post, setters, takes });
    }

    /// What has a name in the program.
    fn exported(&mut self) -> Result<(), String> {
        for (name, role) in EXPORTED {
            match self.symbol(name) {
                Ok(address) => self.add(address, name, *role),
                Err(error) if MUST.contains(name) => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// The phase engine: `phase_engine.handlers` of the core module's main configuration, entries of checker, handler and
    /// the next phase's number.
    fn phases(&mut self) -> Result<(), String> {
        let index = self.word(self.symbol("ngx_http_module")?.wrapping_add(8))?;
        let core = self.word(self.symbol("ngx_http_core_module")?)?;
        self.found.core_index = core;
        let cycle = self.word(self.symbol("ngx_cycle")?)?;
        let http = self.word(element(self.word(cycle)?, index))?;
        let main = self.word(element(self.word(http)?, core))?;
        let engine = self.word(main.wrapping_add(40))?;
        let entries = self.memory.words(engine, 3 * MOST_HANDLERS);
        let mut checkers = PhaseCheckers::default();
        let mut phases = Vec::new();
        for entry in entries.chunks_exact(3).take_while(|entry| entry[0] != 0) {
            let phase = checkers.phase(self.images[0].name_of(entry[0]));
            phases.push(phase);
            self.add(entry[0], "checker", FunctionRole::Checker);
            if entry[1] != 0 {
                let name = self.owner(entry[1]);
                self.add(entry[1], &name, FunctionRole::At(handler(phase, &name)));
            }
        }
        self.found.engine = PhaseEngine { begins: engine, phases };
        Ok(())
    }

    /// The module that takes the function's address, or a name made of where it is.
    fn owner(&self, address: u64) -> String {
        let modules = self.modules.iter().filter(|module| module.takes.contains(&address));
        let owner = modules.map(|module| short(&module.name)).next();
        owner.unwrap_or_else(|| {
            let image = self.images.iter().find(|image| image.is_function(address));
            format!("[nginx]+{:#x}", image.map_or(address, |image| image.in_file(address)))
        })
    }

    /// The filters of both chains.
    fn filters(&mut self) {
        let tops =
            ["ngx_http_top_header_filter", "ngx_http_top_body_filter"].map(|name| self.symbol(name).ok());
        let mut filters = Vec::new();
        for module in &self.modules {
            let name = short(&module.name);
            let (header, body) = (header_filter(&name), body_filter(&name));
            let mut certain = 0;
            for fact in &module.post {
                let CodeFact::Sets { variable, value } = *fact else { continue };
                if let Some(chain) = tops.iter().position(|top| *top == Some(variable)) {
                    filters.push((value, name.clone(), FunctionRole::At([header, body][chain])));
                    certain += 1;
                }
            }
            if certain == 0 && module.name.ends_with("_filter_module") {
                let functions = module.post.iter().filter_map(|fact| match fact {
                    CodeFact::Takes(address) => Some(*address),
                    _ => None,
                });
                filters.extend(
                    functions.map(|address| (address, name.clone(), FunctionRole::Filter(header, body))),
                );
            }
        }
        for (address, name, role) in filters {
            self.add(address, &name, role);
        }
    }

    /// What directives set as the location's handler: all into the same field, which modules show whose directives set
    /// little else.
    fn content_handlers(&mut self) {
        let mut fields: BTreeMap<i32, BTreeSet<usize>> = BTreeMap::new();
        let fills = |facts: &[CodeFact]| -> Vec<(i32, u64)> {
            let fills = facts.iter().filter_map(|fact| match *fact {
                CodeFact::Fills { field, value } => Some((field, value)),
                _ => None,
            });
            fills.filter(|(_, value)| self.images.iter().any(|image| image.is_function(*value))).collect()
        };
        let voters = self.modules.iter().enumerate();
        for (at, module) in voters.filter(|(_, module)| VOTERS.contains(&short(&module.name).as_str())) {
            for (field, _) in fills(&module.setters) {
                fields.entry(field).or_default().insert(at);
            }
        }
        let Some((&handler_field, _)) = fields.iter().max_by_key(|(_, modules)| modules.len()) else {
            return;
        };
        let mut handlers = Vec::new();
        for module in &self.modules {
            for (field, value) in fills(&module.setters) {
                if field == handler_field {
                    handlers.push((value, short(&module.name)));
                }
            }
        }
        for (address, name) in handlers {
            let site = handler(CONTENT, &name);
            let role = if UPSTREAMS.contains(&name.as_str()) {
                FunctionRole::Upstream(site)
            } else {
                FunctionRole::At(site)
            };
            self.add(address, &name, role);
        }
    }

    /// Functions that a module puts somewhere while it is configured, and that are not one of the above: handlers of
    /// the log phase are.
    fn other_handlers(&mut self) {
        let mut handlers = Vec::new();
        for module in self.modules.iter().filter(|module| module.name.ends_with("_log_module")) {
            let functions = module.post.iter().filter_map(|fact| match fact {
                CodeFact::Sets { value, .. } | CodeFact::Fills { value, .. } | CodeFact::Takes(value) => {
                    Some(*value)
                }
                _ => None,
            });
            let name = short(&module.name);
            handlers.extend(functions.map(|address| (address, name.clone())));
        }
        for (address, name) in handlers {
            self.add(address, &name, FunctionRole::At(handler(LOG, &name)));
        }
    }

    /// Whether a function of the program begins there that has no name.
    fn is_hidden(&self, address: u64) -> bool {
        let program = &self.images[0];
        program.is_function(address) && program.name_of(address).is_none_or(|name| name.starts_with(HIDDEN))
    }

    /// What goes on after `ngx_http_upstream_init`: functions without a name that it, or what it calls, puts somewhere.
    fn upstream(&mut self) {
        let Ok(start) = self.symbol("ngx_http_upstream_init") else { return };
        let site = SiteTable::global().intern(SiteKind::UpstreamTry, "", "");
        let (mut seen, mut next) = (BTreeSet::from([start]), vec![start]);
        let mut callbacks = BTreeSet::new();
        for _ in 0..UPSTREAM_DEPTH {
            for function in std::mem::take(&mut next) {
                for fact in self.facts(function) {
                    match fact {
                        CodeFact::Calls(to) if self.is_hidden(to) && seen.insert(to) => next.push(to),
                        CodeFact::Fills { value, .. } if self.is_hidden(value) => {
                            callbacks.insert(value);
                        }
                        _ => {}
                    }
                }
            }
        }
        for address in callbacks.into_iter().take(MOST_CALLBACKS) {
            self.add(address, "upstream", FunctionRole::Upstream(site));
        }
    }
}

/// Where a pointer is in a table of them, at any number that the process may have.
fn element(table: u64, number: u64) -> u64 {
    table.wrapping_add(number.wrapping_mul(8))
}

/// Which phase an entry of the engine is of: checkers say so, and those that serve several phases, where they are.
#[derive(Default)]
struct PhaseCheckers {
    last: u8,
}

impl PhaseCheckers {
    fn phase(&mut self, checker: Option<&str>) -> u8 {
        let before = self.last;
        self.last = match checker {
            Some("ngx_http_core_rewrite_phase") if before <= 1 => 1,
            Some("ngx_http_core_find_config_phase") => 2,
            Some("ngx_http_core_rewrite_phase") => 3,
            Some("ngx_http_core_post_rewrite_phase") => 4,
            Some("ngx_http_core_access_phase") => 6,
            Some("ngx_http_core_post_access_phase") => 7,
            Some("ngx_http_core_content_phase") => CONTENT,
            _ if before == 0 => 0,
            _ if before <= 5 => 5,
            _ => 8,
        };
        self.last
    }
}

/// A module's name in trees: `ngx_http_gzip_filter_module` is `gzip`.
fn short(name: &str) -> String {
    let name = name.strip_prefix("ngx_http_").unwrap_or(name);
    let name = name.strip_suffix("_module").unwrap_or(name);
    name.strip_suffix("_filter").unwrap_or(name).to_owned()
}

/// The site of a module's handler.
pub(super) fn handler(phase: u8, name: &str) -> Site {
    SiteTable::global().intern(SiteKind::Handler(phase), "", name)
}

fn header_filter(name: &str) -> Site {
    SiteTable::global().intern(SiteKind::HeaderFilter, "", name)
}

/// The last one, which hands bytes to the kernel, is a step of its own, as in Weir's trees.
fn body_filter(name: &str) -> Site {
    match name {
        "write" => Site::step(ConnectionStep::Write),
        name => SiteTable::global().intern(SiteKind::BodyFilter, "", name),
    }
}

/// Functions that other modules may use, and so have names also in a stripped program.
const EXPORTED: &[(&str, FunctionRole)] = &[
    ("ngx_http_create_request", FunctionRole::Create),
    ("ngx_http_free_request", FunctionRole::Free),
    ("ngx_process_events_and_timers", FunctionRole::Turn),
    ("ngx_http_process_request_uri", FunctionRole::At(Site::step(ConnectionStep::Parse))),
    ("ngx_http_process_request_header", FunctionRole::At(Site::step(ConnectionStep::Parse))),
    ("ngx_http_process_request", FunctionRole::At(Site::NONE)),
    ("ngx_http_handler", FunctionRole::At(Site::NONE)),
    ("ngx_http_internal_redirect", FunctionRole::At(Site::REDIRECT)),
    ("ngx_http_named_location", FunctionRole::At(Site::REDIRECT)),
    ("ngx_http_special_response_handler", FunctionRole::At(Site::step(ConnectionStep::SpecialResponse))),
    ("ngx_http_read_client_request_body", FunctionRole::At(Site::BODY_READ)),
    ("ngx_http_send_header", FunctionRole::Chain(Site::HEADER_FILTERS)),
    ("ngx_http_output_filter", FunctionRole::Chain(Site::BODY_FILTERS)),
    ("ngx_http_finalize_request", FunctionRole::At(Site::step(ConnectionStep::Finalise))),
];

/// Without these nothing can be shown.
const MUST: &[&str] = &["ngx_http_create_request", "ngx_http_free_request", "ngx_http_handler"];
/// Content handlers that hand requests on: after them it is another server that is waited for.
const UPSTREAMS: &[&str] = &["proxy", "fastcgi", "uwsgi", "scgi", "grpc", "memcached"];
/// Modules with a directive that sets a content handler, and without shared memory, whose set-up looks alike.
const VOTERS: &[&str] = &["memcached", "grpc", "stub_status", "empty_gif", "flv", "mp4", "perl"];
/// `NGX_HTTP_MODULE`: "HTTP".
const HTTP_MODULE: u64 = 0x5054_5448;
const CONTENT: u8 = 9;
const LOG: u8 = 10;
const MOST_MODULES: usize = 512;
const MOST_COMMANDS: u64 = 512;
const MOST_HANDLERS: usize = 256;
/// Functions that are probed: nginx with its hundred modules has some eighty.
const MOST_SPOTS: usize = 256;
/// Bytes of code that are read: nginx with its hundred modules has a thirtieth of it.
const MOST_CODE: usize = 8 << 20;
/// From `ngx_http_upstream_init` to what sets the connection's handlers: by way of the request's, and connecting.
/// What functions are called that a program has no names of unless it is not stripped.
const HIDDEN: &str = "ngx_http_upstream_";
const UPSTREAM_DEPTH: usize = 3;
const MOST_CALLBACKS: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_functions_are_probed_than_an_nginx_has() {
        assert!(check_count(MOST_SPOTS).is_ok());
        let error = check_count(MOST_SPOTS + 1).expect_err("too many");
        assert_eq!(error, "more than 256 functions to probe, which no nginx has");
    }

    #[test]
    fn modules_have_the_names_of_weirs_trees() {
        for (name, wanted) in [
            ("ngx_http_gzip_filter_module", "gzip"),
            ("ngx_http_sub_filter_module", "sub"),
            ("ngx_http_write_filter_module", "write"),
            ("ngx_http_proxy_module", "proxy"),
            ("ngx_other", "ngx_other"),
        ] {
            assert_eq!(short(name), wanted);
        }
        assert_eq!(body_filter("copy"), Site::COPY);
        assert_eq!(header_filter("header"), Site::HEADER);
    }

    #[test]
    fn checkers_tell_the_phases_apart() {
        let mut checkers = PhaseCheckers::default();
        let names = [
            ("generic", 0),
            ("rewrite", 1),
            ("find_config", 2),
            ("rewrite", 3),
            ("post_rewrite", 4),
            ("generic", 5),
            ("generic", 5),
            ("access", 6),
            ("access", 6),
            ("post_access", 7),
            ("generic", 8),
            ("content", 9),
            ("content", 9),
        ];
        for (name, phase) in names {
            assert_eq!(checkers.phase(Some(&format!("ngx_http_core_{name}_phase"))), phase, "{name}");
        }
        // Without realip there is no post_read, without `rewrite` of a server none of that.
        let mut checkers = PhaseCheckers::default();
        assert_eq!(checkers.phase(Some("ngx_http_core_find_config_phase")), 2);
        assert_eq!(checkers.phase(None), 5);
    }
}

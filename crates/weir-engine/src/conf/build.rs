//! From a tree of lines to a [`Configuration`]: directives to their modules, blocks inside blocks, inheritance.

use std::any::TypeId;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::path::PathBuf;
use std::sync::Arc;

use weir_conf::{
    ArgCount, Block, ConfTree, Contexts, DirectiveLine, DirectiveSignature, Error, Errors, LineCx,
};
use weir_http::Method;

use super::registry::ConfRegistry;
use super::server_core::ServerCoreConf;
use super::{
    Configuration, LocationConf, LocationMatcher, ServerConf, absent, http_core::HttpCoreConf, listen,
};
use crate::module::{BlockHeirs, BlockKin, ConfSettling, ModuleConfs, ModuleDef, ModuleList, UnnamedBlock};
use crate::name_map::NameHasher;
use crate::plan::blocks::HttpBlocks;
use crate::regex::{LetterCase, RegexPattern};
use crate::settings::main::MainConf;

/// Reads `tree`. Warnings are in the second value, also when there are errors.
///
/// # Errors
/// Everything that is wrong with the file, not just the first.
pub fn build(
    tree: ConfTree,
    modules: &'static [ModuleDef],
    prefix: PathBuf,
) -> (Result<Configuration, (Errors, ConfTree)>, Vec<Error>) {
    build_with(tree, modules, prefix, |_| {})
}

/// As [`build`]; `lend` gives modules what they find by `ConfRegistry::shared` before a line is read.
///
/// # Errors
/// As [`build`].
pub fn build_with(
    tree: ConfTree,
    modules: &'static [ModuleDef],
    prefix: PathBuf,
    lend: impl FnOnce(&mut ConfRegistry),
) -> (Result<Configuration, (Errors, ConfTree)>, Vec<Error>) {
    let modules: Vec<&'static ModuleDef> = modules.iter().collect();
    let mut builder = ConfigurationBuilder::new(&tree, modules.clone());
    builder.registry.shared::<ModuleList>().0.clone_from(&modules);
    lend(&mut builder.registry);
    let (servers, nobody) = builder.main(&tree.lines).unzip();
    let servers = servers.unwrap_or_default();
    let (addresses, problems) = listen::collect(&servers, &tree.source, &modules);
    for problem in problems {
        match problem.level {
            weir_conf::LevelName::Emerg => builder.errors.push(problem),
            _ => builder.warnings.push(problem),
        }
    }
    let ConfigurationBuilder { mut registry, mut errors, mut warnings, .. } = builder;
    warnings.append(&mut registry.warnings);
    let main = registry.main.clone();
    let (tables, mut shared, unknown) = registry.finish();
    let blocks = HttpBlocks { servers, nobody, tables: Arc::new(tables) };
    shared.insert(TypeId::of::<HttpBlocks>(), Box::new(blocks));
    errors.extend(unknown);
    if !errors.is_empty() {
        return (Err((Errors(errors), tree)), warnings);
    }
    let lines = tree.lines.iter().map(DirectiveLine::count).sum();
    let (source, agent) = (tree.source, Default::default());
    let configuration = Configuration { main, addresses, shared, source, lines, prefix, agent };
    (Ok(configuration), warnings)
}

type DirectiveIndex = HashMap<&'static str, Vec<(usize, usize, Contexts)>, BuildHasherDefault<NameHasher>>;

struct ConfigurationBuilder<'t> {
    tree: &'t ConfTree,
    modules: Vec<&'static ModuleDef>,
    /// Directive name → where it is declared: module and row.
    index: DirectiveIndex,
    registry: ConfRegistry,
    /// A block of which nothing was read.
    blank: ModuleConfs,
    errors: Vec<Error>,
    warnings: Vec<Error>,
}

impl<'t> ConfigurationBuilder<'t> {
    fn new(tree: &'t ConfTree, modules: Vec<&'static ModuleDef>) -> Self {
        let mut index = DirectiveIndex::default();
        for (at, module) in modules.iter().enumerate() {
            for (row, directive) in module.directives().iter().enumerate() {
                index.entry(directive.name).or_default().push((at, row, directive.contexts));
            }
        }
        let registry = ConfRegistry::new(&modules, tree.paths.clone());
        let blank = ModuleConfs::new(&modules);
        ConfigurationBuilder {
            tree,
            modules,
            index,
            registry,
            blank,
            errors: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// The servers, and a block of which nothing is said inside `http`; `None` without `http`.
    fn main(&mut self, lines: &'t [DirectiveLine]) -> Option<(Vec<ServerConf>, ServerConf)> {
        let mut main = ModuleConfs::like(&self.blank);
        let mut http = None;
        for line in lines {
            match line.name.str() {
                "events" if main.get::<MainConf>().events => {
                    self.errors.push(Error::new("\"events\" directive is duplicate").at(line.name.span));
                }
                "events" => self.inside(line, Contexts::MAIN, EVENTS, |this, block| {
                    main.get_mut::<MainConf>().events = true;
                    for line in &block.lines {
                        this.directive(line, Contexts::EVENTS, &mut main);
                    }
                }),
                "http" if http.is_some() => {
                    self.errors.push(Error::new("\"http\" directive is duplicate").at(line.name.span));
                }
                "http" => {
                    self.inside(line, Contexts::MAIN, HTTP, |_, block| http = Some(block));
                }
                _ => self.directive(line, Contexts::MAIN, &mut main),
            }
        }
        main.settle_main(&mut self.settling());
        self.registry.main = main.get::<MainConf>().clone();
        if self.registry.main.events {
            self.warnings.extend(self.registry.main.doubts().into_iter().map(Error::warning));
        }
        http.map(|block| self.http(block, &main))
    }

    fn http(&mut self, block: &'t Block, main: &ModuleConfs) -> (Vec<ServerConf>, ServerConf) {
        let mut confs = ModuleConfs::like(&self.blank);
        let mut servers = Vec::new();
        for line in &block.lines {
            match line.name.str() {
                "server" => self.inside(line, Contexts::HTTP, SERVER, |this, block| {
                    servers.push(this.server(line, block));
                }),
                "upstream" => self.inside(line, Contexts::HTTP, UPSTREAM, |this, block| {
                    this.upstream(line, block);
                }),
                _ => self.directive(line, Contexts::HTTP, &mut confs),
            }
        }
        self.registry.settles_http = true;
        BlockHeirs::of(main, BlockKin::Inner).settle(&mut confs, &mut self.settling());
        self.registry.settles_http = false;
        confs.share();
        for end_http in self.modules.iter().filter_map(|module| module.hooks.end_http) {
            self.errors.extend(end_http(&confs, &mut self.registry));
        }
        let mut heirs = BlockHeirs::of(&confs, BlockKin::Inner);
        for server in &mut servers {
            heirs.settle(&mut server.confs, &mut self.settling());
            self.settle_nested(&mut server.nested, &server.confs);
            self.settle_locations(&mut server.locations, &server.confs);
        }
        drop(heirs);
        let (locations, nested) = Default::default();
        (servers, ServerConf { confs, locations, nested, words: 0 })
    }

    /// `upstream name { }`: all its lines together make one upstream.
    fn upstream(&mut self, line: &'t DirectiveLine, block: &'t Block) {
        let mut confs = ModuleConfs::like(&self.blank);
        for line in &block.lines {
            self.directive(line, Contexts::UPSTREAM, &mut confs);
        }
        for (at, module) in self.modules.iter().enumerate() {
            if let Some(end) = module.hooks.end_upstream
                && let Err(error) = end(confs.of_mut(at, module), &mut self.registry, line)
            {
                self.errors.push(error);
            }
        }
    }

    fn server(&mut self, line: &'t DirectiveLine, block: &'t Block) -> ServerConf {
        let mut confs = ModuleConfs::like(&self.blank);
        confs.get_mut::<ServerCoreConf>().span = Some(line.name.span);
        for (at, module) in self.modules.iter().enumerate() {
            if let Some(begin) = module.hooks.begin_server {
                begin(confs.of_mut(at, module), line.name.span);
            }
        }
        let mut locations = SiblingLocations::default();
        let mut nested = Vec::new();
        for line in &block.lines {
            if line.name.is("location") {
                self.inside(line, Contexts::SERVER, LOCATION, |this, block| {
                    this.location(line, block, None, &mut locations);
                });
            } else {
                self.nesting(line, Contexts::SERVER, &mut confs, &mut nested);
            }
        }
        confs.get_mut::<ServerCoreConf>().accepts_connect = self.registry.take_accepts_connect();
        let mut words = NameHasher::default();
        line.hash_words(&mut words);
        ServerConf { confs, locations: locations.confs, nested, words: words.finish() }
    }

    fn location(
        &mut self,
        line: &'t DirectiveLine,
        block: &'t Block,
        outer: Option<&LocationMatcher>,
        into: &mut SiblingLocations,
    ) {
        let mut confs = ModuleConfs::like(&self.blank);
        let mut warnings = std::mem::take(&mut self.warnings);
        let mut cx = self.cx(line, Contexts::SERVER, &mut warnings);
        let matcher =
            matcher(&mut cx).and_then(|matcher| nested(&cx, outer, &matcher, into).map(|()| matcher));
        self.warnings = warnings;
        let matcher = match matcher {
            Ok(matcher) => matcher,
            Err(error) => return self.errors.push(error),
        };
        let core = confs.get_mut::<HttpCoreConf>();
        core.matcher = Some(matcher.clone());
        core.place = Some(line.name.span);
        let path = matcher.path().map(|path| String::from_utf8_lossy(path).into_owned());
        let around = self.registry.enter_location(path);
        let mut locations = SiblingLocations::default();
        let mut limit_except = None;
        let mut nested = Vec::new();
        for line in &block.lines {
            match line.name.str() {
                "location" => self.inside(line, Contexts::LOCATION, LOCATION, |this, block| {
                    this.location(line, block, Some(&matcher), &mut locations);
                }),
                "limit_except" => self.inside(line, Contexts::LOCATION, LIMIT_EXCEPT, |this, block| {
                    limit_except = this.limit_except(line, block);
                }),
                _ => self.nesting(line, Contexts::LOCATION, &mut confs, &mut nested),
            }
        }
        self.registry.enter_location(around);
        into.confs.push(LocationConf { matcher, confs, locations: locations.confs, limit_except, nested });
    }

    fn limit_except(&mut self, line: &'t DirectiveLine, block: &'t Block) -> Option<(u32, ModuleConfs)> {
        let mut methods = 0;
        for word in &line.args {
            match Method::parse(word.bytes()) {
                Method::Other => {
                    self.errors.push(Error::new(format!("invalid method \"{}\"", word.str())).at(word.span));
                    return None;
                }
                Method::Get => methods |= 1 << Method::Get as u32 | 1 << Method::Head as u32,
                method => methods |= 1 << method as u32,
            }
        }
        let mut confs = ModuleConfs::like(&self.blank);
        confs.get_mut::<HttpCoreConf>().place = Some(line.name.span);
        let around = self.registry.enter_location(None);
        for line in &block.lines {
            self.directive(line, Contexts::LIMIT_EXCEPT, &mut confs);
        }
        self.registry.enter_location(around);
        Some((methods, confs))
    }

    /// Hands a line to its module, which may ask with [`ConfRegistry::nest`] that the lines of its block be read as
    /// settings of their own.
    fn nesting(
        &mut self,
        line: &'t DirectiveLine,
        here: Contexts,
        confs: &mut ModuleConfs,
        nested: &mut Vec<ModuleConfs>,
    ) {
        self.registry.begin_line(nested.len());
        self.directive(line, here, confs);
        let (Some(inside), Some(block)) = (self.registry.end_line(), &line.block) else { return };
        let mut inner = ModuleConfs::like(&self.blank);
        let core = inner.get_mut::<HttpCoreConf>();
        core.matcher.clone_from(&confs.get::<HttpCoreConf>().matcher);
        core.place = Some(line.name.span);
        let around = self.registry.enter_location(None);
        for line in &block.lines {
            self.directive(line, inside, &mut inner);
        }
        self.registry.enter_location(around);
        nested.push(inner);
    }

    /// Checks the shape of a structural block and goes into it.
    fn inside(
        &mut self,
        line: &'t DirectiveLine,
        here: Contexts,
        block: DirectiveSignature,
        go: impl FnOnce(&mut Self, &'t Block),
    ) {
        match (block.check(line, here), &line.block) {
            (Err(error), _) => self.errors.push(error),
            (Ok(()), Some(inner)) => go(self, inner),
            (Ok(()), None) => {}
        }
    }

    /// Hands a line to the module that declares it for this context.
    fn directive(&mut self, line: &'t DirectiveLine, here: Contexts, confs: &mut ModuleConfs) {
        let name = line.name.str();
        let rows = self.index.get(name).map_or(&[][..], Vec::as_slice);
        let Some(&(at, row, _)) = rows.iter().find(|(_, _, contexts)| contexts.allows(here)) else {
            let error = self.not_here(line, name);
            return self.errors.push(error);
        };
        let module = self.modules[at];
        if let Err(error) = (module.check)(row, line, here) {
            return self.errors.push(error);
        }
        let mut warnings = std::mem::take(&mut self.warnings);
        let mut cx = self.cx(line, here, &mut warnings);
        let result = (module.set)(confs.of_mut(at, module), row, &mut cx);
        self.warnings = warnings;
        let instructed = self.registry.take_instructed();
        if !instructed.is_empty() {
            confs.get_mut::<HttpCoreConf>().instructed.extend(instructed);
        }
        if let Some(module) = self.registry.take_content() {
            confs.get_mut::<HttpCoreConf>().content = Some(module);
        }
        if let Err(error) = result {
            self.errors.push(error);
        }
    }

    fn cx<'a>(
        &'a mut self,
        line: &'a DirectiveLine,
        here: Contexts,
        warnings: &'a mut Vec<Error>,
    ) -> LineCx<'a> {
        LineCx::new(line, here, &self.tree.source, &self.tree.paths, &mut self.registry, warnings)
    }

    /// A name that is in no table, or in none for this block.
    fn not_here(&self, line: &DirectiveLine, name: &str) -> Error {
        let structural = STRUCTURE.iter().find(|block| block.name == name).map(|block| block.contexts);
        let declared = self.index.get(name).into_iter().flatten().map(|(_, _, contexts)| *contexts);
        match declared.chain(structural).reduce(Contexts::or) {
            Some(contexts) => DirectiveSignature::not_allowed(line, contexts),
            None if let Some(hint) = absent::directive(name) => {
                Error::new(format!("unknown directive \"{name}\"")).at(line.name.span).hint(hint)
            }
            None => {
                let names = self.index.keys().copied().chain(STRUCTURE.iter().map(|block| block.name));
                DirectiveSignature::unknown(line, names)
            }
        }
    }

    fn settling(&mut self) -> ConfSettling<'_> {
        ConfSettling { modules: &self.modules, registry: &mut self.registry, errors: &mut self.errors }
    }

    fn settle_locations(&mut self, locations: &mut [LocationConf], parent: &ModuleConfs) {
        let mut heirs = BlockHeirs::of(parent, BlockKin::Inner);
        for location in locations {
            heirs.settle(&mut location.confs, &mut self.settling());
            if let Some((_, confs)) = &mut location.limit_except {
                confs.get_mut::<HttpCoreConf>().matcher = Some(location.matcher.clone());
                BlockHeirs::of(&location.confs, BlockKin::Nested(UnnamedBlock::LimitExcept))
                    .settle(confs, &mut self.settling());
            }
            self.settle_nested(&mut location.nested, &location.confs);
            self.settle_locations(&mut location.locations, &location.confs);
        }
    }

    fn settle_nested(&mut self, nested: &mut [ModuleConfs], parent: &ModuleConfs) {
        let mut heirs = BlockHeirs::of(parent, BlockKin::Nested(UnnamedBlock::If));
        for confs in nested {
            heirs.settle(confs, &mut self.settling());
        }
    }
}

/// `location [ = | ~ | ~* | ^~ ] uri`, the modifier apart or glued to what follows.
fn matcher(cx: &mut LineCx<'_>) -> Result<LocationMatcher, Error> {
    if cx.args().len() == 2 {
        let path = cx.bytes(1).to_vec();
        return match cx.arg(0) {
            "=" => Ok(LocationMatcher::Exact(path)),
            "^~" => Ok(LocationMatcher::Prefix(path, true)),
            "~" => Ok(LocationMatcher::Regex(RegexPattern::compile(cx, 1, 0, LetterCase::Distinct)?)),
            "~*" => Ok(LocationMatcher::Regex(RegexPattern::compile(cx, 1, 0, LetterCase::Ignored)?)),
            other => Err(cx.fail_arg(0, format!("invalid location modifier \"{other}\""))),
        };
    }
    match cx.bytes(0) {
        [b'=', path @ ..] => Ok(LocationMatcher::Exact(path.to_vec())),
        [b'^', b'~', path @ ..] => Ok(LocationMatcher::Prefix(path.to_vec(), true)),
        [b'~', b'*', ..] => Ok(LocationMatcher::Regex(RegexPattern::compile(cx, 0, 2, LetterCase::Ignored)?)),
        [b'~', ..] => Ok(LocationMatcher::Regex(RegexPattern::compile(cx, 0, 1, LetterCase::Distinct)?)),
        [b'@', ..] => Ok(LocationMatcher::Named(cx.bytes(0).to_vec())),
        path => Ok(LocationMatcher::Prefix(path.to_vec(), false)),
    }
}

/// The locations of one block.
#[derive(Default)]
struct SiblingLocations {
    confs: Vec<LocationConf>,
    /// What is taken: exact paths, prefixes, names. There may be very many of them.
    exact: NameSet,
    prefixes: NameSet,
    named: NameSet,
}

type NameSet = HashSet<Vec<u8>, BuildHasherDefault<NameHasher>>;

impl SiblingLocations {
    /// Whether no other one has been for the same. Patterns are not compared.
    fn take(&mut self, matcher: &LocationMatcher) -> bool {
        match matcher {
            LocationMatcher::Exact(path) => self.exact.insert(path.clone()),
            LocationMatcher::Prefix(path, _) => self.prefixes.insert(path.clone()),
            LocationMatcher::Named(name) => self.named.insert(name.clone()),
            LocationMatcher::Regex(_) => true,
        }
    }
}

/// nginx's rules for a location beside and inside others.
fn nested(
    cx: &LineCx<'_>,
    outer: Option<&LocationMatcher>,
    matcher: &LocationMatcher,
    siblings: &mut SiblingLocations,
) -> Result<(), Error> {
    let name = || bare_name(matcher);
    if let Some(outer) = outer {
        let outside = || bare_name(outer);
        let fault = match (outer, matcher) {
            (LocationMatcher::Exact(_), _) => {
                format!("location \"{}\" cannot be inside the exact location \"{}\"", name(), outside())
            }
            (LocationMatcher::Named(_), _) => {
                format!("location \"{}\" cannot be inside the named location \"{}\"", name(), outside())
            }
            (_, LocationMatcher::Named(_)) => {
                format!("named location \"{}\" can be on the server level only", name())
            }
            (LocationMatcher::Prefix(around, _), _)
                if matcher.path().is_some_and(|path| !path.starts_with(around)) =>
            {
                format!("location \"{}\" is outside location \"{}\"", name(), outside())
            }
            _ => String::new(),
        };
        if !fault.is_empty() {
            return Err(cx.fail(fault));
        }
    }
    if !siblings.take(matcher) {
        return Err(cx.fail(format!("duplicate location \"{}\"", name())));
    }
    Ok(())
}

/// A location's name in nginx's messages: without its modifier.
fn bare_name(matcher: &LocationMatcher) -> String {
    let name = matcher.name();
    match name.split_once(' ') {
        Some(("=" | "^~" | "~" | "~*", bare)) => bare.to_owned(),
        _ => name,
    }
}

const EVENTS: DirectiveSignature = DirectiveSignature {
    syntax: "events",
    doc: "Contains the directives of connection processing. The main context must have one.",
    ..DirectiveSignature::new("events", Contexts::MAIN, ArgCount::NONE.block())
};
const HTTP: DirectiveSignature = DirectiveSignature {
    syntax: "http",
    doc: "Contains the directives of the HTTP server.",
    ..DirectiveSignature::new("http", Contexts::MAIN, ArgCount::NONE.block())
};
const SERVER: DirectiveSignature = DirectiveSignature {
    syntax: "server",
    doc: "Defines a virtual server: `listen` names its addresses, `server_name` its host names.",
    example: "server {\n    listen 80;\n    server_name example.com www.example.com;\n    root /srv/www;\n}",
    ..DirectiveSignature::new("server", Contexts::HTTP, ArgCount::NONE.block())
};
const UPSTREAM: DirectiveSignature = DirectiveSignature {
    syntax: "upstream name",
    doc: "Defines an upstream: servers that `proxy_pass` and its like name together, with the way to choose among them.",
    example: "upstream backend {\n    server 10.0.0.1:8080;\n    server 10.0.0.2:8080;\n    keepalive 32;\n}",
    ..DirectiveSignature::new("upstream", Contexts::HTTP, ArgCount::ONE.block())
};
const LOCATION: DirectiveSignature = DirectiveSignature {
    syntax: "location [ = | ~ | ~* | ^~ ] uri\nlocation @name",
    doc: "Contains the directives for some request URIs. They are those that are equal to `uri` (`=`), match it as a \
          regular expression (`~`, or `~*` regardless of case), or begin with it. With `^~` regular expressions are \
          then not tried. \
          `@name` is for internal redirects only. An exact match comes first, then the longest prefix, which gives way to \
          the first regular expression that matches.",
    example: "location = / {\n    return 302 /start/;\n}\nlocation ~ \\.php$ {\n    fastcgi_pass unix:/run/php.sock;\n}",
    ..DirectiveSignature::new(
        "location",
        Contexts::SERVER.or(Contexts::LOCATION),
        ArgCount::ONE_OR_TWO.block(),
    )
};
const LIMIT_EXCEPT: DirectiveSignature = DirectiveSignature {
    syntax: "limit_except method ...",
    doc: "Contains access rules for all request methods except those named; `GET` includes `HEAD`.",
    example: "limit_except GET {\n    allow 192.168.1.0/24;\n    deny all;\n}",
    ..DirectiveSignature::new("limit_except", Contexts::LOCATION, ArgCount::MORE.block())
};

/// The blocks that the builder itself understands.
pub const STRUCTURE: [DirectiveSignature; 6] = [EVENTS, HTTP, SERVER, UPSTREAM, LOCATION, LIMIT_EXCEPT];

//! From a tree of lines to a [`Configuration`]: directives to their modules, blocks inside blocks, inheritance.

mod locations;

use std::any::TypeId;
use std::collections::HashMap;
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
use crate::module::{
    BlockHeirs, BlockKin, ConfSettling, ModuleConfs, ModuleDef, ModuleList, ProtocolSection, SectionContexts,
    UnnamedBlock,
};
use crate::name_map::NameHasher;
use crate::plan::PlanLevel;
use crate::plan::blocks::ServerBlocks;
use crate::plan::variable::Variable;
use crate::settings::main::MainConf;
use locations::{SiblingLocations, matcher, nested};

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
    lend: impl Fn(&mut ConfRegistry),
) -> (Result<Configuration, (Errors, ConfTree)>, Vec<Error>) {
    let mut builder = ConfigurationBuilder::new(&tree, modules);
    lend(&mut builder.registry);
    let main = builder.main(&tree.lines);
    let http = main.http.map(|block| builder.section(SectionContexts::HTTP, block, &main.confs));
    let ReadSection { mut configuration, mut errors, mut warnings } =
        builder.finish(http, SectionContexts::HTTP);
    for (section, block) in main.sections {
        let mut builder = ConfigurationBuilder::of_section(&tree, section, modules);
        builder.registry.main = configuration.main.clone();
        builder.registry.outer = configuration.shared.clone();
        lend(&mut builder.registry);
        let around = ModuleConfs::like(&builder.blank);
        let blocks = builder.section(SectionContexts::STREAM, block, &around);
        let mut read = builder.finish(Some(blocks), SectionContexts::STREAM);
        errors.append(&mut read.errors);
        warnings.append(&mut read.warnings);
        read.configuration.source = tree.source.clone();
        read.configuration.prefix.clone_from(&prefix);
        errors.extend(listen::join(&mut configuration, &mut read.configuration));
        configuration.stream = Some(Arc::new(read.configuration));
    }
    if !errors.is_empty() {
        return (Err((Errors(errors), tree)), warnings);
    }
    configuration.lines = tree.lines.iter().map(DirectiveLine::count).sum();
    (configuration.source, configuration.prefix) = (tree.source, prefix);
    (Ok(configuration), warnings)
}

/// What the lines outside of the blocks of protocols say, and those blocks.
struct MainLines<'t> {
    confs: ModuleConfs,
    http: Option<&'t Block>,
    sections: Vec<(&'static ProtocolSection, &'t Block)>,
}

/// The servers of a block, and a block of which nothing is said inside it.
type SectionServers = (Vec<ServerConf>, ServerConf);

/// A block of a protocol that was read whole.
struct ReadSection {
    configuration: Configuration,
    errors: Vec<Error>,
    warnings: Vec<Error>,
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
    /// Modules whose directives are for other blocks, for errors.
    others: &'static [ModuleDef],
    errors: Vec<Error>,
    warnings: Vec<Error>,
}

impl<'t> ConfigurationBuilder<'t> {
    /// For the blocks outside of all and `http`.
    fn new(tree: &'t ConfTree, modules: &'static [ModuleDef]) -> Self {
        let variables = modules.iter().flat_map(|module| module.variables);
        Self::with_variables(tree, modules, variables)
    }

    fn with_variables(
        tree: &'t ConfTree,
        modules: &'static [ModuleDef],
        variables: impl Iterator<Item = &'static Variable>,
    ) -> Self {
        let mut registry = ConfRegistry::new(variables, tree.paths.clone());
        let modules: Vec<&'static ModuleDef> = modules.iter().collect();
        registry.shared::<ModuleList>().0.clone_from(&modules);
        let mut index = DirectiveIndex::default();
        for (at, module) in modules.iter().enumerate() {
            for (row, directive) in module.directives().iter().enumerate() {
                index.entry(directive.name).or_default().push((at, row, directive.contexts));
            }
        }
        let blank = ModuleConfs::new(&modules);
        let (errors, warnings) = (Vec::new(), Vec::new());
        ConfigurationBuilder { tree, modules, index, registry, blank, others: &[], errors, warnings }
    }

    /// For the block of another protocol than HTTP; `outer` are the modules of the blocks around.
    fn of_section(
        tree: &'t ConfTree,
        section: &'static ProtocolSection,
        outer: &'static [ModuleDef],
    ) -> Self {
        let is_shared = |module: &ModuleDef| outer.iter().any(|other| other.name == module.name);
        let variables = section.modules.iter().flat_map(|module| {
            let all = !is_shared(module);
            module.variables.iter().filter(move |variable| all || section.variables.contains(&variable.name))
        });
        let mut builder =
            ConfigurationBuilder { others: outer, ..Self::with_variables(tree, section.modules, variables) };
        builder.registry.is_stream = true;
        builder
    }

    /// The lines outside of blocks, and the blocks of protocols, which are not gone into.
    fn main(&mut self, lines: &'t [DirectiveLine]) -> MainLines<'t> {
        let mut main = ModuleConfs::like(&self.blank);
        let (mut http, mut sections) = (None, Vec::<(&'static ProtocolSection, &'t Block)>::new());
        for line in lines {
            let section = self
                .modules
                .iter()
                .find_map(|module| module.hooks.section.filter(|section| line.name.is(section.name)));
            match line.name.str() {
                "events" if main.get::<MainConf>().events => self.duplicate(line),
                "events" => self.inside(line, Contexts::MAIN, EVENTS, |this, block| {
                    main.get_mut::<MainConf>().events = true;
                    for line in &block.lines {
                        this.directive(line, Contexts::EVENTS, &mut main);
                    }
                }),
                "http" if http.is_some() => self.duplicate(line),
                "http" => {
                    self.inside(line, Contexts::MAIN, HTTP, |_, block| http = Some(block));
                }
                _ if let Some(section) = section => {
                    match sections.iter().any(|(known, _)| known.name == section.name) {
                        true => self.duplicate(line),
                        false => self
                            .inside(line, Contexts::MAIN, STREAM, |_, block| sections.push((section, block))),
                    }
                }
                _ => self.directive(line, Contexts::MAIN, &mut main),
            }
        }
        main.settle_main(&mut self.settling());
        self.registry.main = main.get::<MainConf>().clone();
        if self.registry.main.events {
            self.warnings.extend(self.registry.main.doubts().into_iter().map(Error::warning));
        }
        MainLines { confs: main, http, sections }
    }

    fn duplicate(&mut self, line: &DirectiveLine) {
        let message = format!("\"{}\" directive is duplicate", line.name.str());
        self.errors.push(Error::new(message).at(line.name.span));
    }

    /// The block of a protocol: `main` is the one around it.
    fn section(&mut self, here: SectionContexts, block: &'t Block, main: &ModuleConfs) -> SectionServers {
        let mut confs = ModuleConfs::like(&self.blank);
        let mut servers = Vec::new();
        for line in &block.lines {
            match line.name.str() {
                "server" => self.inside(line, here.section, SERVER, |this, block| {
                    servers.push(this.server(here, line, block));
                }),
                "upstream" => self.inside(line, here.section, UPSTREAM, |this, block| {
                    this.upstream(here, line, block);
                }),
                _ => self.directive(line, here.section, &mut confs),
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

    /// The configuration that the `blocks` make, if there are any; without its text.
    fn finish(self, blocks: Option<SectionServers>, here: SectionContexts) -> ReadSection {
        let (servers, nobody) = blocks.unzip();
        let servers = servers.unwrap_or_default();
        let (addresses, problems) = listen::collect(&servers, here, &self.tree.source, &self.modules);
        let ConfigurationBuilder { mut registry, mut errors, mut warnings, .. } = self;
        for problem in problems {
            match problem.level {
                weir_conf::LevelName::Emerg => errors.push(problem),
                _ => warnings.push(problem),
            }
        }
        warnings.append(&mut registry.warnings);
        let main = registry.main.clone();
        let outer = std::mem::take(&mut registry.outer);
        let (tables, mut shared, unknown) = registry.finish();
        let blocks = ServerBlocks { servers, nobody, level: here.level, tables: Arc::new(tables) };
        shared.insert(TypeId::of::<ServerBlocks>(), Arc::new(blocks));
        errors.extend(unknown);
        let configuration = Configuration { main, addresses, shared, outer, ..Configuration::default() };
        ReadSection { configuration, errors, warnings }
    }

    /// `upstream name { }`: all its lines together make one upstream.
    fn upstream(&mut self, here: SectionContexts, line: &'t DirectiveLine, block: &'t Block) {
        let mut confs = ModuleConfs::like(&self.blank);
        for line in &block.lines {
            self.directive(line, here.upstream, &mut confs);
        }
        for (at, module) in self.modules.iter().enumerate() {
            if let Some(end) = module.hooks.end_upstream
                && let Err(error) = end(confs.of_mut(at, module), &mut self.registry, line)
            {
                self.errors.push(error);
            }
        }
    }

    fn server(&mut self, here: SectionContexts, line: &'t DirectiveLine, block: &'t Block) -> ServerConf {
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
                self.inside(line, here.server, LOCATION, |this, block| {
                    this.location(line, block, None, &mut locations);
                });
            } else {
                self.nesting(line, here.server, &mut confs, &mut nested);
            }
        }
        if here.level == PlanLevel::Session && confs.get::<HttpCoreConf>().content.is_none() {
            self.errors.push(Error::new("no handler for server").at(line.name.span));
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
        let sections = self.modules.iter().filter_map(|module| module.hooks.section);
        let others = self.others.iter().chain(sections.flat_map(|section| section.modules));
        let others = others.flat_map(ModuleDef::directives);
        let elsewhere = others.filter(|row| row.name == name).map(|row| row.contexts);
        match declared.chain(structural).chain(elsewhere).reduce(Contexts::or) {
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
const STREAM: DirectiveSignature = DirectiveSignature {
    syntax: "stream",
    doc: "Contains the directives of the server for TCP: sessions, whatever protocol they speak.",
    example: "stream {\n    server {\n        listen 5432;\n        proxy_pass 10.0.0.1:5432;\n    }\n}",
    ..DirectiveSignature::new("stream", Contexts::MAIN, ArgCount::NONE.block())
};
const SERVER: DirectiveSignature = DirectiveSignature {
    syntax: "server",
    doc: "Defines a virtual server: `listen` names its addresses, `server_name` its host names.",
    example: "server {\n    listen 80;\n    server_name example.com www.example.com;\n    root /srv/www;\n}",
    ..DirectiveSignature::new("server", Contexts::HTTP.or(Contexts::STREAM), ArgCount::NONE.block())
};
const UPSTREAM: DirectiveSignature = DirectiveSignature {
    syntax: "upstream name",
    doc: "Defines an upstream: servers that `proxy_pass` and its like name together, with the way to choose among them.",
    example: "upstream backend {\n    server 10.0.0.1:8080;\n    server 10.0.0.2:8080;\n    keepalive 32;\n}",
    ..DirectiveSignature::new("upstream", Contexts::HTTP.or(Contexts::STREAM), ArgCount::ONE.block())
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
pub const STRUCTURE: [DirectiveSignature; 7] =
    [EVENTS, HTTP, STREAM, SERVER, UPSTREAM, LOCATION, LIMIT_EXCEPT];

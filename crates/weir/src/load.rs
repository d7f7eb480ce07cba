//! From a command line to a configuration: which file, which prefix, what is wrong with it.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use weir::check::{ConfFindings, is_lua_block, prefix_of};
use weir::modules::MODULES;
use weir_conf::{ConfFiles, ConfSource, ConfTree, LevelName, LoadFailure, MemoryFiles, RealFiles};
use weir_engine::Configuration;
use weir_engine::conf::build::{build, build_with};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::conf::temp_path;
use weir_engine::log::{self, LogFile, LogLevel, LogTarget};
use weir_engine::rehearsed::RehearsedConfiguration;
use weir_engine::settings::main::MainConf;
use weir_rt::net;

use crate::cli::{CommandLine, DIRECTORY_ADDRESS, EmbeddedConf};
use crate::{mending, pid, settings};

/// Which files are meant.
#[derive(Clone, Debug)]
pub(crate) struct ConfLocation {
    /// The configuration file; `None`: the embedded one.
    pub conf: Option<PathBuf>,
    /// Which of the embedded configurations.
    pub embedded: EmbeddedConf,
    /// Where relative paths begin.
    pub prefix: PathBuf,
    /// `-g`: lines outside of all blocks; `None` without it.
    pub globals: Option<String>,
}

/// What is to be said of a configuration that is used all the same.
pub(crate) struct ConfRemark {
    level: LogLevel,
    text: String,
}

impl ConfRemark {
    fn of(error: &weir_conf::Error, source: &ConfSource) -> ConfRemark {
        let level = match error.level {
            LevelName::Alert => LogLevel::Alert,
            LevelName::Notice => LogLevel::Notice,
            LevelName::Warn | LevelName::Emerg => LogLevel::Warn,
        };
        ConfRemark { level, text: error.render(source) }
    }

    pub(crate) fn log(&self) {
        log::cycle(self.level, &self.text);
    }
}

impl ConfLocation {
    /// `-c` is relative to `-p`; without `-p` the prefix is the file's directory (its parent, if the directory is
    /// called `conf`, as in nginx's own layout). Without both the embedded configuration serves the current directory.
    pub(crate) fn of(line: &CommandLine) -> ConfLocation {
        let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        let (conf, prefix) = match (&line.conf, &line.prefix) {
            (None, Some(prefix)) if matches!(line.embedded, EmbeddedConf::Directory(_)) => {
                (None, here.join(prefix))
            }
            (None, None) => (None, here),
            (None, Some(prefix)) => {
                let prefix = here.join(prefix);
                (Some(prefix.join("conf/nginx.conf")), prefix)
            }
            (Some(conf), Some(prefix)) => {
                let prefix = here.join(prefix);
                (Some(prefix.join(conf)), prefix)
            }
            (Some(conf), None) => {
                let conf = here.join(conf);
                let prefix = prefix_of(&conf);
                (Some(conf), prefix)
            }
        };
        let (embedded, globals) = (line.embedded.clone(), line.globals.clone());
        ConfLocation { conf, embedded, prefix, globals }
    }

    /// The file's name in messages.
    pub(crate) fn name(&self) -> String {
        self.conf.as_ref().map_or_else(|| EMBEDDED.to_owned(), |path| path.display().to_string())
    }

    /// Reads with `load`, which is [`weir_conf::load`] or [`weir_conf::outline`].
    fn read(&self, files: &dyn ConfFiles, load: LoadConf) -> Result<ConfTree, Box<LoadFailure>> {
        let globals = self.globals.as_deref();
        match &self.conf {
            Some(path) => load(path, &self.prefix, files, is_lua_block, globals),
            None => {
                // Not in the current directory: that one is served.
                let elsewhere = format!("{}/weir", std::env::temp_dir().display());
                let text = match &self.embedded {
                    EmbeddedConf::Welcome => WELCOME.to_owned(),
                    EmbeddedConf::Directory(address) => DIRECTORY.replace(DIRECTORY_ADDRESS, address),
                };
                let text = text.replace("  weir", &format!("  {elsewhere}"));
                let files = MemoryFiles::new().with(EMBEDDED, text);
                load(EMBEDDED.as_ref(), &self.prefix, &files, is_lua_block, globals)
            }
        }
    }

    /// Where the server's pid file is, for commands that ask it: nothing else is read, so that this works while the
    /// file is being written, and where the user may not read what it includes.
    ///
    /// # Errors
    /// The file can't be read so far.
    pub(crate) fn pid(&self, files: &dyn ConfFiles) -> Result<PathBuf, Vec<String>> {
        let (tree, errors) = match self.read(files, weir_conf::outline) {
            Ok(tree) => (tree, None),
            Err(failure) => (failure.tree, Some(failure.errors)),
        };
        let line = tree.lines.iter().find(|line| line.name.is("pid"));
        match (line.and_then(|line| line.args.first()), errors) {
            (Some(path), _) => Ok(self.prefix.join(OsStr::from_bytes(path.bytes()))),
            (None, Some(errors)) => Err(errors.0.iter().map(|error| error.render(&tree.source)).collect()),
            (None, None) => Ok(MainConf::default().pid(&self.prefix)),
        }
    }

    fn tree(&self, files: &dyn ConfFiles) -> Result<ConfTree, Vec<String>> {
        self.read(files, weir_conf::load).map_err(|failure| {
            // The rest of the file is checked too: one run shows everything that is wrong.
            let source = &failure.tree.source;
            let mut texts: Vec<String> = failure.errors.0.iter().map(|error| error.render(source)).collect();
            if let (Err((more, tree)), _) = build(failure.tree, MODULES, self.prefix.clone()) {
                texts.extend(more.0.iter().map(|error| error.render(&tree.source)));
            }
            texts
        })
    }

    /// Reads and checks the configuration, whose texts `files` has, and does what [`settle`] does, before it is served.
    /// Warnings are the second value.
    ///
    /// # Errors
    /// Everything that is wrong, each with its place.
    pub(crate) fn prepare(
        &self,
        files: &dyn ConfFiles,
    ) -> Result<(Configuration, Vec<ConfRemark>), Vec<String>> {
        let (configuration, warnings) = self.load(files)?;
        settle(&configuration).map_err(|error| vec![error])?;
        Ok((configuration, warnings))
    }

    /// Reads and checks the configuration; warnings are the second value.
    ///
    /// # Errors
    /// Everything that is wrong, each with its place.
    pub(crate) fn load(
        &self,
        files: &dyn ConfFiles,
    ) -> Result<(Configuration, Vec<ConfRemark>), Vec<String>> {
        self.build(self.tree(files)?)
    }

    /// As [`ConfLocation::load`]; what looks like a trap is a warning, too.
    ///
    /// # Errors
    /// As there.
    fn examine(&self, files: &dyn ConfFiles) -> Result<(Configuration, Vec<ConfRemark>), Vec<String>> {
        let ConfFindings { configuration, found, tree } = self.findings(files);
        match configuration {
            Some(configuration) => {
                Ok((configuration, found.iter().map(|one| ConfRemark::of(one, &tree.source)).collect()))
            }
            None => {
                let errors = found.iter().filter(|one| one.level == LevelName::Emerg);
                Err(errors.map(|error| error.render(&tree.source)).collect())
            }
        }
    }

    /// Reads and checks the configuration: everything there is to say of it, with what mends it.
    pub(crate) fn findings(&self, files: &dyn ConfFiles) -> ConfFindings {
        ConfFindings::of(self.read(files, weir_conf::load), self.prefix.clone())
    }

    /// Reads and checks the configuration for a rehearsal: nothing is opened, bound or run because of it. The tree that it was
    /// made of is the first value.
    ///
    /// # Errors
    /// Everything that is wrong, each with its place.
    pub(crate) fn rehearse(&self, files: &dyn ConfFiles) -> Result<(ConfTree, Configuration), Vec<String>> {
        let tree = self.tree(files)?;
        let lend = |registry: &mut ConfRegistry| {
            registry.shared::<RehearsedConfiguration>();
        };
        match build_with(tree.clone(), MODULES, self.prefix.clone(), lend) {
            (Ok(configuration), _) => Ok((tree, configuration)),
            (Err((errors, tree)), _) => {
                Err(errors.0.iter().map(|error| error.render(&tree.source)).collect())
            }
        }
    }

    fn build(&self, tree: ConfTree) -> Result<(Configuration, Vec<ConfRemark>), Vec<String>> {
        match build(tree, MODULES, self.prefix.clone()) {
            (Ok(configuration), warnings) => {
                let remarks = warnings.iter().map(|warning| ConfRemark::of(warning, &configuration.source));
                let warnings = remarks.collect();
                Ok((configuration, warnings))
            }
            (Err((errors, tree)), _) => {
                Err(errors.0.iter().map(|error| error.render(&tree.source)).collect())
            }
        }
    }
}

/// How a configuration is read.
type LoadConf =
    fn(&Path, &Path, &dyn ConfFiles, fn(&[u8]) -> bool, Option<&str>) -> Result<ConfTree, Box<LoadFailure>>;

/// Opens what messages go to until the configuration names a log: `-e`, where `stderr` is standard error, or
/// `logs/error.log`. As in nginx a
/// configuration that can't be read is reported there, too; but a directory without `logs` is nothing to complain
/// about.
pub(crate) fn open_error_log(line: &CommandLine) {
    let paths = ConfLocation::of(line);
    let target = match &line.error_log {
        Some(path) if path == Path::new("stderr") => LogTarget::Stderr,
        Some(path) => LogTarget::File(paths.prefix.join(path)),
        None if paths.conf.is_none() => return,
        None => LogTarget::File(paths.prefix.join("logs/error.log")),
    };
    if let Err(error) = log::open_early(&target)
        && line.error_log.is_some()
    {
        let reason = settings::reason(&error);
        log::cycle(
            LogLevel::Alert,
            &format_args!("could not open error log file: open() \"{target}\" failed ({reason})"),
        );
    }
}

/// `-t`
pub(crate) fn test(line: &CommandLine) -> ExitCode {
    if let Some(how) = line.mending
        && let Err(message) = mending::run(&ConfLocation::of(line), how)
    {
        say!("weir: {message}");
        return ExitCode::FAILURE;
    }
    tested(line).map_or(ExitCode::FAILURE, |_| ExitCode::SUCCESS)
}

/// `-T`
pub(crate) fn dump(line: &CommandLine) -> ExitCode {
    use std::io::Write;
    let Some(configuration) = tested(line) else { return ExitCode::FAILURE };
    match std::io::stdout().write_all(&configuration.source.dump()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Says how far the configuration is good; `None` if that is not to its end.
fn tested(line: &CommandLine) -> Option<Configuration> {
    let paths = ConfLocation::of(line);
    LogFile::start_no_programs();
    let loaded = paths.examine(&RealFiles).and_then(|(configuration, warnings)| {
        for warning in warnings {
            // The log has the level of a start, and hears no notes; who tests a configuration does.
            match warning.level {
                LogLevel::Notice if line.quiet => {}
                LogLevel::Notice => say!("weir: [notice] {}", warning.text),
                _ => warning.log(),
            }
        }
        if !line.quiet {
            say!("weir: the configuration file {} syntax is ok", paths.name());
        }
        settle(&configuration).map_err(|error| vec![error])?;
        try_binding(&configuration)?;
        let pid = configuration.main.pid(&configuration.prefix);
        pid::probe(&pid).map_err(|error| {
            vec![format!("open() \"{}\" failed ({})", pid.display(), settings::reason(&error))]
        })?;
        Ok(configuration)
    });
    match loaded {
        Ok(configuration) => {
            if !line.quiet {
                say!("weir: configuration file {} test is successful", paths.name());
            }
            Some(configuration)
        }
        Err(errors) => {
            for error in errors {
                log::cycle(LogLevel::Emerg, &error);
            }
            say!("weir: configuration file {} test failed", paths.name());
            None
        }
    }
}

/// What nginx does with a configuration whose syntax is good, as far as nothing is served yet: there must be `events`,
/// and the directories of temporary files are made.
///
/// # Errors
/// nginx's words for what is missing or can't be made.
fn settle(configuration: &Configuration) -> Result<(), String> {
    if !configuration.main.events {
        return Err("no \"events\" section in configuration".to_owned());
    }
    temp_path::create(configuration)
}

/// Whether each address could be listened on. That one is in use says nothing, since the server may be running.
///
/// # Errors
/// nginx's words for each that can't be bound for another reason.
fn try_binding(configuration: &Configuration) -> Result<(), Vec<String>> {
    let wanted = configuration.addresses.iter().filter(|address| address.wildcard_of.is_none());
    let tried = wanted.filter_map(|address| match net::bind(&address.addr, &address.options) {
        Ok(_) => {
            // The file of a unix socket was made just now.
            let _ = net::unlink(&address.addr);
            None
        }
        Err(error) if error.kind() == ErrorKind::AddrInUse => None,
        Err(error) => Some(format!("bind() to {} failed ({})", address.addr, settings::reason(&error))),
    });
    let failed: Vec<String> = tried.collect();
    if failed.is_empty() { Ok(()) } else { Err(failed) }
}

/// What the embedded configuration is called in messages.
const EMBEDDED: &str = "/embedded/nginx.conf";
/// The configuration of a start without arguments.
const WELCOME: &str = include_str!("../assets/nginx.conf");
/// The configuration of `weir DIRECTORY`.
const DIRECTORY: &str = include_str!("../assets/directory.conf");

//! `weir lua FILE`, `weir lua -e CODE`: a program in Lua with the API of a server, and its exit status.
//!
//! What it runs in is a server that listens nowhere, with a configuration made of the options, which are those of
//! OpenResty's `resty`.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;

use weir::modules::MODULES;
use weir_conf::{MemoryFiles, RealFiles};
use weir_engine::Configuration;
use weir_engine::conf::build::build;
use weir_engine::log::{self, LogLevel};
use weir_lua::CliProgram;
use weir_server::{Server, ServerOptions};

/// Whether `weir lua` with these arguments asks a server that runs (`weir lua heap`).
pub(crate) fn asks_a_server(arguments: &[OsString]) -> bool {
    let is = |words: &[&str], at: &OsString| words.iter().any(|word| at == word);
    let mut words = arguments.iter().filter(|at| !at.to_string_lossy().starts_with('-'));
    words
        .next()
        .is_some_and(|first| is(&["gc", "heap", "jit", "objects", "tables", "timers", "traps"], first))
        && arguments.first().is_none_or(|first| !is(&["-e", "-I", "-l"], first))
}

/// Runs the program to its end; `resty`: by that name.
pub(crate) fn run(arguments: &[OsString], resty: bool) -> ExitCode {
    let line = match LuaCommandLine::parse(arguments) {
        Ok(line) if line.help => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Ok(line) => line,
        Err(message) => return failed(&message),
    };
    match line.instead {
        Some(InsteadOfRunning::Version) => return crate::version::long(),
        Some(InsteadOfRunning::Configuration) => {
            print!("{}", line.text());
            return ExitCode::SUCCESS;
        }
        None => {}
    }
    let configuration = match line.configuration() {
        Ok(configuration) => configuration,
        Err(message) => return failed(&message),
    };
    CliProgram { resty, ..line.program }.announce();
    // Of this thread, too: it logs the end.
    log::set_own(configuration.main.error_log_open.clone());
    let options = ServerOptions { workers: Some(1), watched: false, ..ServerOptions::default() };
    let server = match Server::start(Arc::new(configuration), options) {
        Ok(server) => server,
        Err(error) => return failed(&error.to_string()),
    };
    let status = CliProgram::wait();
    // After an error `resty` ends at once, as `os.exit` does: a thread that a module in C has started, and which the end of the Lua
    // state would wait for, may never end.
    if status == 0 {
        log::cycle(LogLevel::Notice, &"gracefully shutting down");
        server.quit();
        server.join(None);
    } else {
        std::mem::forget(server);
    }
    log::flush();
    ExitCode::from(u8::try_from(status & 0xff).unwrap_or(u8::MAX))
}

fn failed(message: &str) -> ExitCode {
    say!("weir lua: {message}");
    ExitCode::FAILURE
}

/// What the command line says.
#[derive(Default)]
struct LuaCommandLine {
    help: bool,
    program: CliProgram,
    /// `-I`
    directories: Vec<String>,
    /// `--shdict`
    dicts: Vec<String>,
    /// `--http-conf`, `--http-include`
    http: Vec<String>,
    /// `--main-conf`, `--main-include`
    main: Vec<String>,
    /// `--ns`
    nameservers: Vec<String>,
    ipv6: bool,
    level: Option<String>,
    /// `-c`
    connections: Option<String>,
    instead: Option<InsteadOfRunning>,
    /// `-j`: what is run before the rest.
    compiler: Option<&'static str>,
}

/// What is written, and nothing run.
#[derive(Clone, Copy)]
enum InsteadOfRunning {
    /// `-V`
    Version,
    /// `--dump-nginx-conf`
    Configuration,
}

/// Options of `resty` without meaning here: there is no `stream`, and no other program is started.
const OF_ITSELF: [&str; 5] = ["--no-stream", "--gdb", "--rr", "--stap", "--valgrind"];
/// As [`OF_ITSELF`], with a value.
const WITH_VALUE: [&str; 7] = [
    "--stream-conf",
    "--stream-include",
    "--nginx",
    "--gdb-opts",
    "--stap-opts",
    "--valgrind-opts",
    "--user-runner",
];

impl LuaCommandLine {
    fn parse(arguments: &[OsString]) -> Result<LuaCommandLine, String> {
        let mut line = LuaCommandLine::default();
        let words: Result<Vec<String>, _> = arguments.iter().cloned().map(OsString::into_string).collect();
        let mut words = words.map_err(|word| format!("{} is no UTF-8", word.display()))?.into_iter();
        while let Some(word) = words.next() {
            if word == "-" || !word.starts_with('-') {
                line.program.file = Some(word);
                break;
            }
            if word == "--" {
                line.program.file = words.next();
                break;
            }
            line.option(&word, &mut words)?;
        }
        line.program.arguments = words.collect();
        let program = &mut line.program;
        if program.file.is_none() && program.codes.is_empty() && !line.help && line.instead.is_none() {
            match std::io::stdin().is_terminal() {
                true => program.interactive = true,
                false if !program.interactive => program.file = Some("-".to_owned()),
                false => {}
            }
        }
        if let Some(code) = line.compiler {
            line.program.codes.insert(0, code.to_owned());
        }
        Ok(line)
    }

    fn option(&mut self, word: &str, words: &mut impl Iterator<Item = String>) -> Result<(), String> {
        let (word, given) = match word.split_once('=') {
            Some((word, value)) if word.starts_with("--") => (word, Some(value.to_owned())),
            _ => (word, None),
        };
        let mut value = || given.clone().or_else(|| words.next()).ok_or(format!("{word} wants a value"));
        match word {
            "-h" | "--help" => self.help = true,
            "-i" => self.program.interactive = true,
            "-e" => self.program.codes.push(value()?),
            "-l" => self.program.modules.push(value()?),
            "-I" => self.directories.push(value()?),
            "-c" => self.connections = Some(value()?),
            "--shdict" => self.dicts.push(value()?),
            "--http-conf" => self.http.push(value()?),
            "--http-include" => self.http.push(format!("include {};", quoted(&value()?))),
            "--main-conf" => self.main.push(value()?),
            "--main-include" => self.main.push(format!("include {};", quoted(&value()?))),
            "--ns" => self.nameservers.push(value()?),
            "--resolve-ipv6" => self.ipv6 = true,
            "--errlog-level" => self.level = Some(value()?),
            "--load-module" => self.main.push(format!("load_module {};", quoted(&value()?))),
            "-V" => self.instead = Some(InsteadOfRunning::Version),
            "--dump-nginx-conf" => self.instead = Some(InsteadOfRunning::Configuration),
            "-j" => self.set_compiler(&value()?)?,
            _ if word.starts_with("-j") => self.set_compiler(&word[2..])?,
            _ if OF_ITSELF.contains(&word) => {}
            _ if WITH_VALUE.contains(&word) => drop(value()?),
            _ => return Err(format!("unknown option \"{word}\"; \"weir lua -h\" lists them")),
        }
        Ok(())
    }

    /// `-j off`, `-j v`, `-j dump`
    fn set_compiler(&mut self, what: &str) -> Result<(), String> {
        let code = match what {
            "off" => "jit.off()",
            "v" => "require('jit.v').on()",
            "dump" => "require('jit.dump').on()",
            _ => return Err(format!("-j {what}: it is off, v or dump")),
        };
        self.compiler = Some(code);
        Ok(())
    }

    /// The configuration's text.
    fn text(&self) -> String {
        let level = self.level.as_deref().unwrap_or("warn");
        let connections = self.connections.as_deref().unwrap_or("1024");
        let path: String = self
            .directories
            .iter()
            .map(|directory| format!("{directory}/?.lua;{directory}/?/init.lua;"))
            .collect();
        let nameservers =
            if self.nameservers.is_empty() { system_nameservers() } else { self.nameservers.clone() };
        let resolver = match nameservers.is_empty() {
            true => String::new(),
            false => {
                format!("resolver {} ipv6={};\n", nameservers.join(" "), if self.ipv6 { "on" } else { "off" })
            }
        };
        let dicts: String = self.dicts.iter().map(|dict| format!("lua_shared_dict {dict};\n")).collect();
        let temporary = std::env::temp_dir();
        let [main, http] = [&self.main, &self.http].map(|lines| lines.join("\n"));
        format!(
            "error_log stderr {level};\nworker_processes 1;\nworker_shutdown_timeout 10s;\n{main}\n\
             events {{ worker_connections {connections}; }}\nhttp {{\naccess_log off;\n\
             client_body_temp_path {};\nlua_package_path {};\nlua_max_pending_timers 65536;\nlua_max_running_timers 4096;\n\
             {resolver}{dicts}{http}\ninit_worker_by_lua_block {{ require(\"weir.cli\").start() }}\n}}\n",
            quoted(&temporary.display().to_string()),
            quoted(&format!("{path};;")),
        )
    }

    fn configuration(&self) -> Result<Configuration, String> {
        let here = std::env::current_dir().map_err(|error| error.to_string())?;
        let name = here.join(NAME);
        let files = ProgramFiles { name: &name, text: MemoryFiles::new().with(&name, self.text()) };
        let raw = |name: &[u8]| name.ends_with(b"_by_lua_block");
        let loaded = weir_conf::load(&name, &here, &files, raw, None);
        let tree = loaded.map_err(|failure| failure.errors.render(&failure.tree.source))?;
        let (result, _) = build(tree, MODULES, here);
        result.map_err(|(errors, tree)| errors.render(&tree.source))
    }
}

/// The text that was made under its name, and the file system.
struct ProgramFiles<'f> {
    name: &'f std::path::Path,
    text: MemoryFiles,
}

impl weir_conf::ConfFiles for ProgramFiles<'_> {
    fn read(&self, path: &std::path::Path) -> std::io::Result<Vec<u8>> {
        if path == self.name { self.text.read(path) } else { RealFiles.read(path) }
    }

    fn glob(&self, pattern: &std::path::Path) -> std::io::Result<Vec<std::path::PathBuf>> {
        RealFiles.glob(pattern)
    }
}

/// The system's name servers; none where there is no such file.
fn system_nameservers() -> Vec<String> {
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let named =
        text.lines().filter_map(|line| line.trim().strip_prefix("nameserver")?.split_whitespace().next());
    named
        .map(|address| if address.contains(':') { format!("[{address}]") } else { address.to_owned() })
        .collect()
}

/// A word of the configuration.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// What the text is called in messages.
const NAME: &str = "weir-lua.conf";

const HELP: &str = "usage: weir lua [OPTION]... [FILE | -] [ARGUMENT]...
       weir lua gc|heap|objects|tables|jit|timers|traps

Runs a program in Lua with the API of the server, outside of requests: timers,
light threads, sockets, dictionaries. Without FILE and -e it reads standard
input: line by line from a terminal. gc, heap and the other words show the VMs
of a running server (\"weir lua gc --help\"); a file of that name is called ./gc.

program:
  -e CODE              runs CODE (before FILE)
  -l MODULE            loads MODULE into a global of its name
  -i                   reads and runs lines after the rest
  -I DIRECTORY         looks for modules in DIRECTORY
  -j off|v|dump        compile nothing; show what is compiled, or all of it

server:
  -c N                 connections at a time (default: 1024)
  --shdict 'NAME SIZE' a shared dictionary
  --ns ADDRESS         a name server, instead of the system's
  --resolve-ipv6       names have IPv6 addresses, too
  --errlog-level LEVEL lowest level that goes to standard error (default: warn)

  --load-module FILE   a module (all are built in)
  --dump-nginx-conf    writes the configuration that the program would run in
  -V                   writes the version

directives:
  --http-conf TEXT     directives for http
  --http-include FILE  the same, in a file
  --main-conf TEXT     directives for the outermost level
  --main-include FILE  the same, in a file

Others of OpenResty's resty have no effect: --stream-conf, --stream-include,
--no-stream, --nginx, --user-runner, --gdb, --rr, --stap, --valgrind and their
options.

examples:
  weir lua -e 'print(ngx.md5(1))'
      runs a line of Lua
  weir lua job.lua x y
      runs a program with two arguments
";

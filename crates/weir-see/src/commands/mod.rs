//! The commands that look into a running server: `weir trace`, `weir top` and their like.

mod attach;
pub(crate) mod blocked;
mod compare;
mod control_calls;
mod diff;
mod doctor;
mod flame;
mod load;
mod options;
mod questions;
mod record;
mod selector;
mod top;
mod visible;

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use options::{CommandLine, CommandOption};
pub use selector::{LocateSocket, ServerSelector};

/// A command: what it is called, what it takes, what it does.
struct SeeCommand {
    name: &'static str,
    /// What follows the name, for the usage line.
    words: &'static str,
    about: &'static str,
    choices: &'static [CommandOption],
    run: fn(&CommandLine, LocateSocket<'_>) -> Result<(), String>,
}

/// Whether `word` is the name of one of these commands.
#[must_use]
pub fn is_command(word: &OsStr) -> bool {
    COMMANDS.iter().any(|command| word == command.name)
}

/// Runs the command `name` with what follows it on the command line.
#[must_use]
pub fn run(name: &OsStr, arguments: &[OsString], locate: LocateSocket<'_>) -> ExitCode {
    let Some(command) = COMMANDS.iter().find(|command| name == command.name) else {
        return fail(&format!("\"{}\" is no command", name.to_string_lossy()));
    };
    if arguments.iter().any(|word| word == "--help" || word == "-h") {
        print!("{}", options::help(command.name, command.words, command.about, command.choices));
        return ExitCode::SUCCESS;
    }
    match CommandLine::parse(arguments, command.choices).and_then(|asked| (command.run)(&asked, locate)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => fail(&message),
    }
}

/// The commands and what they are for, a line each, for the program's own help.
#[must_use]
pub fn summary() -> String {
    COMMANDS
        .iter()
        .map(|command| format!("  weir {:<9} {}\n", command.name, first_sentence(command.about)))
        .collect()
}

fn first_sentence(text: &str) -> &str {
    text.split_once(". ").map_or(text, |(first, _)| first).trim_end_matches('.')
}

fn fail(message: &str) -> ExitCode {
    eprintln!("weir: {}", visible::visible(message));
    ExitCode::FAILURE
}

static COMMANDS: &[SeeCommand] = &[
    SeeCommand {
        name: "trace",
        words: "[URL]",
        about: "Shows the next matching requests as trees of where their time went. Every phase, handler and filter \
                stands with its running time, what it waited for, and the bytes that went through it.",
        choices: questions::TRACE,
        run: questions::trace,
    },
    SeeCommand {
        name: "slow",
        words: "[URL]",
        about: "Lists the slowest requests whose trees were kept. The id is what `weir explain` takes.",
        choices: questions::SLOW,
        run: questions::slow,
    },
    SeeCommand {
        name: "compare",
        words: "A B",
        about: "Compares two sides on the same traffic, in rounds: the mean tree of each, and the difference of each node \
                with its 95% interval. A and B are two paths of one server (or other words for --match), or the \
                configurations, prefixes or control sockets of two servers.",
        choices: compare::CHOICES,
        run: compare::run,
    },
    SeeCommand {
        name: "diff",
        words: "A.json B.json",
        about: "Compares two averages that `weir trace --avg N --save FILE` saved, node by node, each difference with its \
                95% interval. With --fail-over it is a gate for builds.",
        choices: diff::CHOICES,
        run: diff::run,
    },
    SeeCommand {
        name: "explain",
        words: "ID",
        about: "Shows the tree of a kept request. ID is its `$request_id`, or the beginning of it.",
        choices: questions::EXPLAIN,
        run: questions::explain,
    },
    SeeCommand {
        name: "top",
        words: "[routes|phases|modules|workers|upstreams]",
        about: "Shows what the server does right now, as a table that is drawn anew every second. Figures are of the \
                last interval; CPU and waiting times are per request.",
        choices: top::CHOICES,
        run: top::run,
    },
    SeeCommand {
        name: "flame",
        words: "[cpu|wait|wall|alloc|gc|jit]",
        about: "Draws a flame graph of the next seconds. cpu is what runs, by samples; wait is what requests wait for and \
                wall both, by the marks of every request; alloc is what Lua allocates, in bytes, gc its collector and jit \
                its compiler. Frames are location, phase, module, functions and lines of Lua.",
        choices: flame::CHOICES,
        run: flame::run,
    },
    SeeCommand {
        name: "record",
        words: "[URL]",
        about: "Writes what the workers did in the last seconds as a timeline for Perfetto: threads with what they ran, \
                requests with their phases, filters and waits, and blocked loops.",
        choices: record::CHOICES,
        run: record::run,
    },
    SeeCommand {
        name: "attach",
        words: "PID [URL]",
        about: "Shows requests of a running nginx as trees, from outside: phases, handlers and filters by their modules, with \
                what each took. Needs root, or CAP_PERFMON and CAP_SYS_PTRACE; nothing stays behind.",
        choices: attach::CHOICES,
        run: attach::run,
    },
    SeeCommand {
        name: "blocked",
        words: "",
        about: "Lists the times a worker's loop was blocked: how long, in which request, phase and module, what the \
                thread did, and which requests had to wait for it.",
        choices: blocked::CHOICES,
        run: blocked::run,
    },
    SeeCommand {
        name: "bt",
        words: "[WORKER]",
        about: "Shows the stack that a worker has at this moment, or all of them: Rust, C and Lua with lines. Works while \
                workers are stuck.",
        choices: blocked::OF_STACKS,
        run: blocked::stacks_now,
    },
    SeeCommand {
        name: "lua",
        words: "gc|heap|objects|tables|jit|timers|traps",
        about: "Shows the Lua VMs of the workers (\"weir lua FILE\" runs a program instead, see \"weir lua -h\"). gc is what their time goes to: interpreter, compiled code, collector, \
                compiler; heap their memory; objects what that consists of, tables the biggest ones and what holds them; \
                jit the places where the compiler gave up, and why; timers those that wait or run, and their functions; \
                traps the globals that scripts have written and the calls that blocked their worker.",
        choices: &[],
        run: questions::lua,
    },
    SeeCommand {
        name: "dict",
        words: "",
        about: "Shows the shared dictionaries: size, entries, and how long writers waited for one another.",
        choices: &[],
        run: questions::dict,
    },
    SeeCommand {
        name: "reqs",
        words: "",
        about: "Lists the requests in flight, oldest first: where they are and what they wait for. Works while workers \
                are stuck.",
        choices: questions::REQS,
        run: questions::reqs,
    },
    SeeCommand {
        name: "queue",
        words: "",
        about: "Shows how long connections waited to be accepted and requests waited in their sockets, which nobody else \
                sees.",
        choices: questions::QUEUE,
        run: questions::queue,
    },
    SeeCommand {
        name: "use",
        words: "",
        about: "Shows utilisation, saturation and errors of each resource over the next second.",
        choices: questions::USE,
        run: questions::usage,
    },
    SeeCommand {
        name: "doctor",
        words: "",
        about: "Says what of all this works on this machine and with this server, and why not the rest.",
        choices: doctor::CHOICES,
        run: doctor::run,
    },
    SeeCommand {
        name: "profile",
        words: "level off|sampled|full | handshakes on|off",
        about: "Changes how much is recorded, or says how much is. 0, 1 and 2 stand for off, sampled and full; `--for` \
                goes back by itself. With `handshakes on` those of TLS are timed by the CPU time of the worker's thread, \
                too (`weir trace --sites`: tls_cpu), for two system calls each time one goes on.",
        choices: questions::PROFILE,
        run: questions::profile,
    },
];

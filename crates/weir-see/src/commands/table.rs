//! The commands that ask a running server: what each is called and takes, what it does, and how it is called.

use super::help::{CommandExample, CommandHelp, CommandOption};
use super::{SeeCommand, attach, blocked, compare, diff, doctor, flame, questions, record, top};

/// A row of the table.
const fn row(
    name: &'static str,
    words: &'static str,
    about: &'static str,
    options: &'static [CommandOption],
    examples: &'static [CommandExample],
) -> CommandHelp {
    CommandHelp { name, words, about, options, asks_server: true, examples }
}

const fn example(line: &'static str, about: &'static str) -> CommandExample {
    CommandExample { line, about }
}

pub(super) static COMMANDS: &[SeeCommand] = &[
    SeeCommand {
        help: row(
            "trace",
            "[URL]",
            "Shows the next matching requests as trees of where their time went. Every phase, handler and filter is \
             listed with its running time, what it waited for, and the bytes that went through it.",
            questions::TRACE,
            &[
                example("weir trace", "the next request, whatever it is"),
                example("weir trace /api/ -n 3", "the next three under /api/"),
                example("weir trace --match 'status=5xx over=200ms'", "the next one that fails and is slow"),
                example("weir trace --avg 1000 --save before.json", "an average, for weir diff"),
            ],
        ),
        run: questions::trace,
    },
    SeeCommand {
        help: row(
            "slow",
            "[URL]",
            "Lists the slowest requests whose trees were retained. The id is what `weir explain` takes.",
            questions::SLOW,
            &[
                example("weir slow", "the twenty slowest of late"),
                example("weir slow --match location=/api/ -n 5", "the five slowest of a location"),
            ],
        ),
        run: questions::slow,
    },
    SeeCommand {
        help: row(
            "compare",
            "A B",
            "Compares two sides on the same traffic, in rounds: the mean tree of each, and the difference of each node \
             with its 95% interval. A and B are two paths of one server (or other words for --match), or the \
             configurations, prefixes or control sockets of two servers.",
            compare::CHOICES,
            &[
                example(
                    "weir compare /old/ /new/ --load http://127.0.0.1:8080",
                    "two locations, with requests made here",
                ),
                example("weir compare old.conf new.conf", "two servers, under the traffic that they have"),
            ],
        ),
        run: compare::run,
    },
    SeeCommand {
        help: row(
            "diff",
            "A.json B.json",
            "Compares two averages that `weir trace --avg N --save FILE` saved, node by node, each difference with its \
             95% interval. With --fail-over it is a gate for builds.",
            diff::CHOICES,
            &[
                example("weir diff before.json after.json", "what takes longer, and what less"),
                example(
                    "weir diff before.json after.json --fail-over 3%",
                    "exit status 1 if it is slower by more",
                ),
            ],
        ),
        run: diff::run,
    },
    SeeCommand {
        help: row(
            "explain",
            "ID",
            "Shows the tree of a retained request. ID is its `$request_id`, or the beginning of it.",
            questions::EXPLAIN,
            &[example("weir explain 5f3a", "the request whose id begins so, see weir slow")],
        ),
        run: questions::explain,
    },
    SeeCommand {
        help: row(
            "top",
            "[routes|phases|modules|workers|upstreams]",
            "Shows what the server does right now, as a table that is redrawn every second. Figures are of the \
             last interval; CPU and waiting times are per request.",
            top::CHOICES,
            &[
                example("weir top", "by location, until Ctrl-C"),
                example("weir top upstreams -b", "one table of the upstreams"),
            ],
        ),
        run: top::run,
    },
    SeeCommand {
        help: row(
            "flame",
            "[cpu|wait|wall|alloc|gc|jit]",
            "Draws a flame graph of the next seconds. cpu is what runs, by samples; wait is what requests wait for and \
             wall both, by the marks of every request; alloc is what Lua allocates, in bytes, gc its collector and jit \
             its compiler. Frames are location, phase, module, functions and lines of Lua.",
            flame::CHOICES,
            &[
                example("weir flame cpu -o cpu.svg", "ten seconds of CPU time as a picture"),
                example("weir flame wait -t 30s -o wait.html", "what half a minute of requests waits for"),
            ],
        ),
        run: flame::run,
    },
    SeeCommand {
        help: row(
            "record",
            "[URL]",
            "Writes what the workers did in the last seconds as a timeline for Perfetto: threads with what they ran, \
             requests with their phases, filters and waits, and blocked loops.",
            record::CHOICES,
            &[example(
                "weir record -t 5s -o now.pftrace",
                "the last five seconds; open it at ui.perfetto.dev",
            )],
        ),
        run: record::run,
    },
    SeeCommand {
        help: row(
            "attach",
            "PID [URL]",
            "Shows requests of a running nginx as trees, from outside: phases, handlers and filters by their modules, with \
             what each took. Needs root, or CAP_PERFMON and CAP_SYS_PTRACE; nothing is left in nginx when it ends.",
            attach::CHOICES,
            &[
                example("weir attach 1234", "the next request of that worker process"),
                example("weir attach 1234 --avg 100", "the mean of the next hundred"),
            ],
        ),
        run: attach::run,
    },
    SeeCommand {
        help: row(
            "blocked",
            "",
            "Lists the times a worker's loop was blocked: how long, in which request, phase and module, what the \
             thread did, and which requests had to wait for it.",
            blocked::CHOICES,
            &[
                example("weir blocked --over 50ms", "only those of at least 50 ms"),
                example("weir blocked --blame", "which locations make which others wait"),
            ],
        ),
        run: blocked::run,
    },
    SeeCommand {
        help: row(
            "bt",
            "[WORKER]",
            "Shows the stack that a worker has at this moment, or all of them: Rust, C and Lua with lines. Works while \
             workers are stuck.",
            blocked::OF_STACKS,
            &[example("weir bt 0", "the stack of the first worker")],
        ),
        run: blocked::stacks_now,
    },
    SeeCommand {
        help: row(
            "lua",
            "gc|heap|objects|tables|jit|timers|traps",
            "Shows the Lua VMs of the workers, or runs a Lua program (\"weir lua FILE\", see \"weir lua -h\"). gc is what \
             their time goes to: interpreter, compiled code, collector, compiler; heap their memory; objects what that \
             consists of, tables the biggest ones and what holds them; jit the places where the compiler gave up, and why; \
             timers those that wait or run, and their functions; traps the globals that scripts have written and the \
             calls that blocked their worker.",
            &[],
            &[
                example("weir lua heap", "the memory of the workers' Lua VMs"),
                example("weir lua -e 'print(ngx.md5(\"a\"))'", "runs a line of Lua"),
                example("weir lua job.lua x y", "runs a program with two arguments"),
            ],
        ),
        run: questions::lua,
    },
    SeeCommand {
        help: row(
            "dict",
            "",
            "Shows the shared dictionaries: size, entries, and how long writers waited for one another.",
            &[],
            &[example("weir dict", "all dictionaries of lua_shared_dict")],
        ),
        run: questions::dict,
    },
    SeeCommand {
        help: row(
            "reqs",
            "",
            "Lists the requests in flight, oldest first: where they are and what they wait for. Works while workers \
             are stuck.",
            questions::REQS,
            &[example("weir reqs --over 1s", "those that have lasted a second or more")],
        ),
        run: questions::reqs,
    },
    SeeCommand {
        help: row(
            "queue",
            "",
            "Shows how long connections waited to be accepted and requests waited in their sockets, which no log of \
             the server itself shows.",
            questions::QUEUE,
            &[example("weir queue -t 10s", "of the next ten seconds")],
        ),
        run: questions::queue,
    },
    SeeCommand {
        help: row(
            "use",
            "",
            "Shows utilisation, saturation and errors of each resource over the next second.",
            questions::USE,
            &[example("weir use -t 5s", "over five seconds")],
        ),
        run: questions::usage,
    },
    SeeCommand {
        help: row(
            "doctor",
            "",
            "Says which of these commands work fully on this machine and with this server, and why not the rest.",
            doctor::CHOICES,
            &[example("weir doctor", "a line for each thing that was checked")],
        ),
        run: doctor::run,
    },
    SeeCommand {
        help: row(
            "profile",
            "level off|sampled|full | handshakes on|off",
            "Changes how much is recorded, or says how much is. 0, 1 and 2 mean off, sampled and full; `--for` \
             restores the level after that time. With `handshakes on` those of TLS are timed by the CPU time of the \
             worker's thread, too (`weir trace --sites`: tls_cpu), for two system calls each time one goes on.",
            questions::PROFILE,
            &[
                example("weir profile", "the level of each worker"),
                example("weir profile level full --for 10m", "everything, for ten minutes"),
            ],
        ),
        run: questions::profile,
    },
];

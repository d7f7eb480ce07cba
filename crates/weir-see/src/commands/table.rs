//! The commands that ask a running server: what each is called and takes, what it does, and how it is called.

use super::help::{CommandExample, CommandHelp};
use super::{SeeCommand, attach, blocked, compare, diff, doctor, flame, questions, record, top};

pub(super) static COMMANDS: &[SeeCommand] = &[
    SeeCommand {
        help: CommandHelp::new(
            "trace",
            "[URL]",
            "Shows the next matching requests as trees of where their time went. Every phase, handler and filter is \
             listed with its running time, what it waited for, and the bytes that went through it.",
            questions::TRACE,
            &[
                CommandExample::new("weir trace", "the next request, whatever it is"),
                CommandExample::new("weir trace /api/ -n 3", "the next three under /api/"),
                CommandExample::new("weir trace --match 'status=5xx over=200ms'", "the next one that fails and is slow"),
                CommandExample::new("weir trace --avg 1000 --save before.json", "an average, for weir diff"),
            ],
        )
        .asking_server(),
        run: questions::trace,
    },
    SeeCommand {
        help: CommandHelp::new(
            "slow",
            "[URL]",
            "Lists the slowest requests whose trees were retained. The id is what `weir explain` takes.",
            questions::SLOW,
            &[
                CommandExample::new("weir slow", "the twenty slowest of late"),
                CommandExample::new("weir slow --match location=/api/ -n 5", "the five slowest of a location"),
            ],
        )
        .asking_server(),
        run: questions::slow,
    },
    SeeCommand {
        help: CommandHelp::new(
            "compare",
            "A B",
            "Compares two sides on the same traffic, in rounds: the mean tree of each, and the difference of each node \
             with its 95% interval. A and B are two paths of one server (or other words for --match), or the \
             configurations, prefixes or control sockets of two servers.",
            compare::CHOICES,
            &[
                CommandExample::new(
                    "weir compare /old/ /new/ --load http://127.0.0.1:8080",
                    "two locations, with requests made here",
                ),
                CommandExample::new("weir compare old.conf new.conf", "two servers, under the traffic that they have"),
            ],
        )
        .asking_server(),
        run: compare::run,
    },
    SeeCommand {
        help: CommandHelp::new(
            "diff",
            "A.json B.json",
            "Compares two averages that `weir trace --avg N --save FILE` saved, node by node, each difference with its \
             95% interval. With --fail-over it is a gate for builds.",
            diff::CHOICES,
            &[
                CommandExample::new("weir diff before.json after.json", "what takes longer, and what less"),
                CommandExample::new(
                    "weir diff before.json after.json --fail-over 3%",
                    "exit status 1 if it is slower by more",
                ),
            ],
        )
        .asking_server(),
        run: diff::run,
    },
    SeeCommand {
        help: CommandHelp::new(
            "explain",
            "ID",
            "Shows the tree of a retained request. ID is its `$request_id`, or the beginning of it.",
            questions::EXPLAIN,
            &[CommandExample::new("weir explain 5f3a", "the request whose id begins so, see weir slow")],
        )
        .asking_server(),
        run: questions::explain,
    },
    SeeCommand {
        help: CommandHelp::new(
            "top",
            "[routes|phases|modules|workers|upstreams]",
            "Shows what the server does right now, as a table that is redrawn every second. Figures are of the \
             last interval; CPU and waiting times are per request.",
            top::CHOICES,
            &[
                CommandExample::new("weir top", "by location, until Ctrl-C"),
                CommandExample::new("weir top upstreams -b", "one table of the upstreams"),
            ],
        )
        .asking_server(),
        run: top::run,
    },
    SeeCommand {
        help: CommandHelp::new(
            "flame",
            "[cpu|wait|wall|alloc|gc|jit]",
            "Draws a flame graph of the next seconds. cpu is what runs, by samples; wait is what requests wait for and \
             wall both, by the marks of every request; alloc is what Lua allocates, in bytes, gc its collector and jit \
             its compiler. Frames are location, phase, module, functions and lines of Lua.",
            flame::CHOICES,
            &[
                CommandExample::new("weir flame cpu -o cpu.svg", "ten seconds of CPU time as a picture"),
                CommandExample::new("weir flame wait -t 30s -o wait.html", "what half a minute of requests waits for"),
            ],
        )
        .asking_server(),
        run: flame::run,
    },
    SeeCommand {
        help: CommandHelp::new(
            "record",
            "[URL]",
            "Writes what the workers did in the last seconds as a timeline for Perfetto: threads with what they ran, \
             requests with their phases, filters and waits, and blocked loops.",
            record::CHOICES,
            &[CommandExample::new(
                "weir record -t 5s -o now.pftrace",
                "the last five seconds; open it at ui.perfetto.dev",
            )],
        )
        .asking_server(),
        run: record::run,
    },
    SeeCommand {
        help: CommandHelp::new(
            "attach",
            "PID [URL]",
            "Shows requests of a running nginx as trees, from outside: phases, handlers and filters by their modules, with \
             what each took. Needs root, or CAP_PERFMON and CAP_SYS_PTRACE; nothing is left in nginx when it ends.",
            attach::CHOICES,
            &[
                CommandExample::new("weir attach 1234", "the next request of that worker process"),
                CommandExample::new("weir attach 1234 --avg 100", "the mean of the next hundred"),
            ],
        )
        .asking_server(),
        run: attach::run,
    },
    SeeCommand {
        help: CommandHelp::new(
            "blocked",
            "",
            "Lists the times a worker's loop was blocked: how long, in which request, phase and module, what the \
             thread did, and which requests had to wait for it.",
            blocked::CHOICES,
            &[
                CommandExample::new("weir blocked --over 50ms", "only those of at least 50 ms"),
                CommandExample::new("weir blocked --blame", "which locations make which others wait"),
            ],
        )
        .asking_server(),
        run: blocked::run,
    },
    SeeCommand {
        help: CommandHelp::new(
            "bt",
            "[WORKER]",
            "Shows the stack that a worker has at this moment, or all of them: Rust, C and Lua with lines. Works while \
             workers are stuck.",
            blocked::OF_STACKS,
            &[CommandExample::new("weir bt 0", "the stack of the first worker")],
        )
        .asking_server(),
        run: blocked::stacks_now,
    },
    SeeCommand {
        help: CommandHelp::new(
            "lua",
            "gc|heap|objects|tables|jit|timers|traps",
            "Shows the Lua VMs of the workers, or runs a Lua program (\"weir lua FILE\", see \"weir lua -h\"). gc is what \
             their time goes to: interpreter, compiled code, collector, compiler; heap their memory; objects what that \
             consists of, tables the biggest ones and what holds them; jit the places where the compiler gave up, and why; \
             timers those that wait or run, and their functions; traps the globals that scripts have written and the \
             calls that blocked their worker.",
            &[],
            &[
                CommandExample::new("weir lua heap", "the memory of the workers' Lua VMs"),
                CommandExample::new("weir lua -e 'print(ngx.md5(\"a\"))'", "runs a line of Lua"),
                CommandExample::new("weir lua job.lua x y", "runs a program with two arguments"),
            ],
        )
        .asking_server(),
        run: questions::lua,
    },
    SeeCommand {
        help: CommandHelp::new(
            "dict",
            "",
            "Shows the shared dictionaries: size, entries, and how long writers waited for one another.",
            &[],
            &[CommandExample::new("weir dict", "all dictionaries of lua_shared_dict")],
        )
        .asking_server(),
        run: questions::dict,
    },
    SeeCommand {
        help: CommandHelp::new(
            "reqs",
            "",
            "Lists the requests in flight, oldest first: where they are and what they wait for. Works while workers \
             are stuck.",
            questions::REQS,
            &[CommandExample::new("weir reqs --over 1s", "those that have lasted a second or more")],
        )
        .asking_server(),
        run: questions::reqs,
    },
    SeeCommand {
        help: CommandHelp::new(
            "queue",
            "",
            "Shows how long connections waited to be accepted and requests waited in their sockets, which no log of \
             the server itself shows.",
            questions::QUEUE,
            &[CommandExample::new("weir queue -t 10s", "of the next ten seconds")],
        )
        .asking_server(),
        run: questions::queue,
    },
    SeeCommand {
        help: CommandHelp::new(
            "use",
            "",
            "Shows utilisation, saturation and errors of each resource over the next second.",
            questions::USE,
            &[CommandExample::new("weir use -t 5s", "over five seconds")],
        )
        .asking_server(),
        run: questions::usage,
    },
    SeeCommand {
        help: CommandHelp::new(
            "doctor",
            "",
            "Says which of these commands work fully on this machine and with this server, and why not the rest.",
            doctor::CHOICES,
            &[CommandExample::new("weir doctor", "a line for each thing that was checked")],
        )
        .asking_server(),
        run: doctor::run,
    },
    SeeCommand {
        help: CommandHelp::new(
            "profile",
            "level off|sampled|full | handshakes on|off",
            "Changes how much is recorded, or says how much is. 0, 1 and 2 mean off, sampled and full; `--for` \
             restores the level after that time. With `handshakes on` those of TLS are timed by the CPU time of the \
             worker's thread, too (`weir trace --sites`: tls_cpu), for two system calls each time one goes on.",
            questions::PROFILE,
            &[
                CommandExample::new("weir profile", "the level of each worker"),
                CommandExample::new("weir profile level full --for 10m", "everything, for ten minutes"),
            ],
        )
        .asking_server(),
        run: questions::profile,
    },
];

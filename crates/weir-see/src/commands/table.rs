//! The commands that ask a running server: what each is called and takes, what it does, and how it is called.

use super::help::{CommandExample, CommandHelp};
use super::{SeeCommand, attach, blocked, compare, diff, doctor, flame, questions, record, top};

pub(super) static COMMANDS: &[SeeCommand] = &[
    SeeCommand {
        help: CommandHelp::new(
            "why",
            "",
            "Says what is wrong now, in sentences. It looks for two seconds and lists the five heaviest findings: who \
             takes the processor, what blocks workers and in which line, slow and faulty peers, locks, disks, full \
             queues. Below each is the command that shows more. It says nothing of a server that is well.",
            questions::WHY,
            &[
                CommandExample::new("weir why", "what is wrong now"),
                CommandExample::new("weir why -t 10s --json", "the same over ten seconds, for programs"),
            ],
        )
        .asking_server(),
        run: questions::why,
    },
    SeeCommand {
        help: CommandHelp::new(
            "trace",
            "[URL]",
            "Shows the next matching requests as trees of times. Each phase, handler and filter has a line: how long \
             it ran, what it waited for and how long, and the bytes that went through it.",
            questions::TRACE,
            &[
                CommandExample::new("weir trace", "the next request, whatever it is"),
                CommandExample::new("weir trace /api/ -n 3", "the next three under /api/"),
                CommandExample::new("weir trace --match 'status=5xx over=200ms'", "the next one that fails and is slow"),
                CommandExample::new("weir trace --deep /api/", "with variables, patterns, files and scripts' tables by name"),
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
            "Lists the slowest requests whose trees were retained. `weir explain ID` shows the tree of one of them.",
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
            "Compares two sides under the same traffic, in rounds. It prints the mean tree of each side, and the \
             difference of each node with its 95% interval. A and B are two paths of one server (or other words for \
             --match), or the configurations, prefixes or control sockets of two servers.",
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
            "Compares two saved averages node by node. Each difference has its 95% interval. `weir trace --avg N \
             --save FILE` saves an average. With --fail-over the exit status says whether B is slower, for use in a \
             build.",
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
            "Shows the tree of a retained request. ID is the request's `$request_id`, or the beginning of it.",
            questions::EXPLAIN,
            &[CommandExample::new("weir explain 5f3a", "the request whose id begins so, see weir slow")],
        )
        .asking_server(),
        run: questions::explain,
    },
    SeeCommand {
        help: CommandHelp::new(
            "top",
            "[TABLE]",
            "Shows what the server does now, once a second. The table has the figures of the last interval; CPU and \
             waiting times are per request. TABLE is routes (the default), phases, modules, lines, workers, \
             upstreams, keys, closes or memory; with --hosts also hosts.",
            top::CHOICES,
            &[
                CommandExample::new("weir top", "by location, until Ctrl-C"),
                CommandExample::new("weir top upstreams -b", "one table of the upstreams"),
                CommandExample::new("weir top lines", "what each line of the configuration costs"),
                CommandExample::new("weir top keys", "by tenant or host, see profile_key"),
                CommandExample::new("weir top --hosts a:9180,b:9180", "two servers as if they were one"),
                CommandExample::new("weir top closes", "why connections end, and who closes first"),
                CommandExample::new("weir top memory -d 0", "what memory is held for, each connection and all"),
            ],
        )
        .asking_server(),
        run: top::run,
    },
    SeeCommand {
        help: CommandHelp::new(
            "flame",
            "[cpu|wait|wall|off|alloc|gc|jit]",
            "Draws a flame graph of the next seconds. `cpu` shows what runs, by samples. `wait` shows what requests \
             wait for, and `wall` both, by the marks of every request. `off` shows where threads did not run: calls that \
             block, by their stacks, want of a processor, and waits; exactly where the kernel lets the workers record that, \
             else by samples. `alloc` shows what Lua allocates, in bytes, \
             `gc` its collector and `jit` its compiler. Frames are locations, phases, modules, functions and lines of \
             Lua.",
            flame::CHOICES,
            &[
                CommandExample::new("weir flame cpu -o cpu.svg", "ten seconds of CPU time as a picture"),
                CommandExample::new("weir flame wait -t 30s -o wait.html", "what half a minute of requests waits for"),
                CommandExample::new("weir flame off -t 5s -o folded", "which lines put a worker to sleep, as text"),
                CommandExample::new("weir flame cpu -o before.json", "a recording to look at later, or to compare with"),
                CommandExample::new("weir flame cpu --diff before.json", "what takes more than then, and what less"),
                CommandExample::new("weir flame --from before.json --callers memcpy", "who calls a function, and what it calls"),
            ],
        )
        .asking_server(),
        run: flame::run,
    },
    SeeCommand {
        help: CommandHelp::new(
            "record",
            "[URL]",
            "Writes the last seconds as a timeline for Perfetto. It has the threads with what they ran, the requests \
             with their phases, filters and waits, and the times when a loop was blocked.",
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
            "Shows requests of a running nginx as trees. A tree lists phases, handlers and filters by their modules, \
             with the time of each. The command needs root, or CAP_PERFMON and CAP_SYS_PTRACE. It leaves nothing in \
             nginx when it ends.",
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
            "Lists the times when a worker's loop was blocked. A line says for how long, in which request, phase and \
             module, what the thread did, and which requests had to wait.",
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
            "Shows the present stack of a worker, or of all of them. It has frames of Rust, C and Lua with their \
             lines. It works while workers are stuck.",
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
            "Shows the Lua VMs of the workers, or runs a Lua program. `weir lua -h` describes the second form. `gc` \
             shows the time of interpreter, compiled code, collector and compiler; `heap` the memory; `objects` what \
             the memory consists of; `tables` the biggest tables, and what holds them; `jit` where the compiler gave \
             up, and why; `timers` those that wait or run, with their functions; `traps` the globals that scripts \
             have written and the calls that blocked a worker.",
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
            "Shows the shared dictionaries: size, entries, waits. A wait is the time that one writer waited for \
             another.",
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
            "Lists the requests in flight, oldest first. A line says where a request is and what it waits for. It \
             works while workers are stuck.",
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
            "Shows waits that no log of the server shows. Connections wait to be accepted, and requests wait in their \
             sockets to be read.",
            questions::QUEUE,
            &[CommandExample::new("weir queue -t 10s", "of the next ten seconds")],
        )
        .asking_server(),
        run: questions::queue,
    },
    SeeCommand {
        help: CommandHelp::new(
            "tls",
            "[TABLE]",
            "Shows certificates, handshakes, and why they fail. Handshakes are counted by version, cipher, \
             group, application protocol, resumed session and client's certificate; failures by who was first \
             and why, the last ones with the client and the server that it asked for. Then keys of tickets with their \
             age, caches of sessions, and the threads for keys. TABLE shows one of them: certificates, handshakes, \
             times, failures, last_failures, sessions or keys.",
            questions::TLS,
            &[
                CommandExample::new("weir tls", "everything, with rates of the next second"),
                CommandExample::new("weir tls certificates", "which certificates end first, and where they are written"),
                CommandExample::new("weir tls failures -t 10s", "why handshakes fail, over ten seconds"),
            ],
        )
        .asking_server(),
        run: questions::tls,
    },
    SeeCommand {
        help: CommandHelp::new(
            "use",
            "",
            "Shows utilisation, saturation and errors by resource. It measures for a second, or as long as -t says.",
            questions::USE,
            &[CommandExample::new("weir use -t 5s", "over five seconds")],
        )
        .asking_server(),
        run: questions::usage,
    },
    SeeCommand {
        help: CommandHelp::new(
            "perf",
            "[LOCATION]",
            "Counts cycles, misses, faults and switches by location. These are events of the processor and the kernel, \
             by location, phase and module: cycles, instructions, mispredicted branches, cache misses, page faults \
             and context switches. Where the kernel or a virtual \
             machine refuses some of these, the table has the others, and the lines below it say why and what to do.",
            questions::PERF,
            &[
                CommandExample::new("weir perf", "the next five seconds"),
                CommandExample::new("weir perf /img/ -t 30s", "half a minute of one location"),
            ],
        )
        .asking_server(),
        run: questions::perf,
    },
    SeeCommand {
        help: CommandHelp::new(
            "doctor",
            "",
            "Says which commands work fully here, and why not the rest. It tries the machine and the running server.",
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
            "Shows or changes how much is recorded. 0, 1 and 2 mean off, sampled and full. `--for` restores the level \
             after that time. `handshakes on` also measures the CPU time of TLS handshakes (`weir trace --sites`: \
             tls_cpu), with two system calls for each step of a handshake.",
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

//! One simulation: its directory, the program in its world, and what is left of it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use weir_sim::cut::PlanCut;
use weir_sim::oracle::{self, Remains};
use weir_sim::plan::{FILES, Plan, content};
use weir_sim::{tls, upstream_tls};

use crate::arguments::Arguments;

/// A simulation takes some hundredths of a second; one that takes so long will not end.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is run.
#[derive(Debug)]
pub(crate) struct Programs {
    weir: PathBuf,
    world: PathBuf,
}

impl Programs {
    /// Those of the command line, else those beside this program.
    pub(crate) fn find(arguments: &Arguments) -> Result<Programs, String> {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let beside = own.parent().unwrap_or(Path::new("."));
        let found = |given: &Option<PathBuf>, name: &str| {
            let path = given.clone().unwrap_or_else(|| beside.join(name));
            let whole = path.canonicalize();
            whole.map_err(|error| format!("{}: {error} (cargo build -p weir -p weir-world)", path.display()))
        };
        let weir = found(&arguments.weir, "weir")?;
        Ok(Programs { weir, world: found(&arguments.world, "libweir_world.so")? })
    }
}

/// What came of a seed.
#[derive(Debug, Default)]
pub(crate) struct SimulatedRun {
    pub(crate) faults: Vec<String>,
    pub(crate) requests: usize,
    pub(crate) microseconds: u64,
}

impl SimulatedRun {
    /// Runs a seed, twice if that is wanted.
    pub(crate) fn of(seed: u64, programs: &Programs, arguments: &Arguments) -> SimulatedRun {
        let plan = Plan::new(seed).without(&arguments.cut);
        let directory = |which: &str| {
            std::env::temp_dir().join(format!("weir-sim-{:07}-{seed}{which}", std::process::id()))
        };
        let run = |which: &str| {
            let directory = directory(which);
            let is_disturbed = arguments.is_disturbed && which == "-2";
            let profile = arguments.profiles.as_ref().map(|profiles| profiles.join(format!("{seed}{which}")));
            let started = SimulatedStart { plan: &plan, cut: &arguments.cut, is_disturbed, profile };
            let remains = simulated(&started, programs, &directory);
            if arguments.keeps {
                println!("seed {seed}: {}", directory.display());
            } else if let Err(error) = fs::remove_dir_all(&directory) {
                eprintln!("weir-sim: {}: {error}", directory.display());
            }
            remains.map(|remains| {
                (oracle::same_in_all_runs(&remains, &directory.display().to_string()), remains)
            })
        };
        // Their directories' names have one length, in all processes: it is in lines of logs, which may be written in part.
        let (same, remains) = match run("-1") {
            Ok(first) => first,
            Err(error) => return SimulatedRun { faults: vec![error.to_string()], ..SimulatedRun::default() },
        };
        let mut faults = oracle::faults(&plan, &remains);
        if arguments.is_twice {
            match run("-2") {
                Ok((again, _)) if again == same => (),
                Ok((again, _)) => faults.push(difference(&same, &again)),
                Err(error) => faults.push(error.to_string()),
            }
        }
        let requests = remains.journal.lines().filter(|line| line.starts_with("r ")).count();
        let end = remains.journal.lines().find_map(|line| line.strip_prefix("end us="));
        let microseconds = end.and_then(|rest| rest.split(' ').next()?.parse().ok()).unwrap_or(0);
        SimulatedRun { faults, requests, microseconds }
    }
}

/// Where two runs part.
fn difference(one: &str, other: &str) -> String {
    let mut lines = one.lines().zip(other.lines()).enumerate().filter(|(_, (one, other))| one != other);
    match lines.next() {
        Some((at, (one, other))) => format!("twice is not the same, line {}: {one:?} and {other:?}", at + 1),
        None => "twice is not the same: one is longer".to_owned(),
    }
}

/// How the program is started.
struct SimulatedStart<'a> {
    plan: &'a Plan,
    cut: &'a PlanCut,
    /// In another environment and working directory: neither may matter.
    is_disturbed: bool,
    /// Where an instrumented program writes what of it has run, without its end.
    profile: Option<PathBuf>,
}

/// Which server of a simulation it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerTurn {
    First,
    /// After the crash of the first, in its directory.
    Second,
}

/// Runs the program in the world of a plan, and again after a crash.
fn simulated(start: &SimulatedStart<'_>, programs: &Programs, directory: &Path) -> io::Result<Remains> {
    prepare(start.plan, directory)?;
    let mut remains = served(start, ServerTurn::First, programs, directory)?;
    if start.plan.crash.is_some() {
        remains.second = Some(Box::new(served(start, ServerTurn::Second, programs, directory)?));
    }
    Ok(remains)
}

/// Runs a server to its end. Of logs that are there already the rest is its own.
fn served(
    start: &SimulatedStart<'_>,
    turn: ServerTurn,
    programs: &Programs,
    directory: &Path,
) -> io::Result<Remains> {
    let plan = start.plan;
    let length = |name: &str| fs::metadata(directory.join(name)).map_or(0, |meta| meta.len() as usize);
    let before = [length("access.log"), length("error.log")];
    let configuration = directory.join("weir.conf");
    let errors = directory.join("stderr");
    let mut command = Command::new(&programs.weir);
    if start.is_disturbed {
        let burned = format!("{:x<1$}", "", 100 + plan.seed as usize % 3000);
        // Certificates are found from the working directory.
        let working = if plan.tls.is_some() { directory } else { Path::new("/") };
        command.env_clear().env("LANG", "C.UTF-8").env("DISTURBED", burned).current_dir(working);
    } else {
        command.env_clear().current_dir(directory);
    }
    if turn == ServerTurn::Second {
        command.env("WEIR_SIM_SECOND", "1");
    }
    if let Some(profile) = &start.profile {
        let profile = format!("{}-{turn:?}.profraw", profile.display());
        command.env("LLVM_PROFILE_FILE", profile);
    }
    let child = command
        .args(["-e".as_ref(), directory.join("error.log").as_os_str()])
        .args(["-c".as_ref(), configuration.as_os_str()])
        .arg("-p")
        .arg(directory)
        .env("LD_PRELOAD", &programs.world)
        .env("WEIR_SIM_SEED", plan.seed.to_string())
        .env("WEIR_SIM_CUT", start.cut.text())
        .env("WEIR_SIM_DIRECTORY", directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&errors)?)
        .spawn()?;
    let status = ended(child)?;
    let read = |name: &str, from: usize| {
        let bytes = fs::read(directory.join(name))?;
        io::Result::Ok(String::from_utf8_lossy(bytes.get(from..).unwrap_or_default()).into_owned())
    };
    let error_log = read("error.log", before[1]).unwrap_or_default() + &read("stderr", 0)?;
    let journal = if turn == ServerTurn::First { "journal" } else { "journal-2" };
    Ok(Remains {
        journal: read(journal, 0).unwrap_or_default(),
        access_log: read("access.log", before[0]).unwrap_or_default(),
        error_log,
        status,
        left: left(directory),
        second: None,
    })
}

/// The files that the server has made in its directories, without those that it was given.
fn left(directory: &Path) -> Vec<String> {
    let mut left = Vec::new();
    let mut directories: Vec<PathBuf> =
        ["body_temp", "proxy_temp", "cache"].iter().map(|name| directory.join(name)).collect();
    while let Some(next) = directories.pop() {
        // One that is not there was not needed.
        for entry in fs::read_dir(next).into_iter().flatten().flatten() {
            match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                true => directories.push(entry.path()),
                false => left
                    .extend(entry.path().strip_prefix(directory).ok().map(|path| path.display().to_string())),
            }
        }
    }
    left.sort();
    left
}

/// Makes the directory: configuration and files, which are of one time, for their dates are in responses.
fn prepare(plan: &Plan, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory.join("www/file"))?;
    fs::create_dir_all(directory.join("logs"))?;
    tls::write_files(directory)?;
    upstream_tls::write_files(directory)?;
    fs::write(directory.join("weir.conf"), plan.configuration(&directory.display().to_string()))?;
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    for size in FILES {
        let path = directory.join(format!("www/file/{size}"));
        fs::write(&path, content(size, size))?;
        File::options().write(true).open(&path)?.set_modified(then)?;
    }
    Ok(())
}

/// Waits for the program's end; `None`: it was killed, by a signal or for taking too long.
fn ended(mut child: Child) -> io::Result<Option<i32>> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.code());
        }
        if began.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

//! The server where the system lets it do less.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use weir_test::{TempDir, require_program};

/// A program in `directory` that runs the server after it has forbidden itself a system call, as container runtimes do: by a filter
/// that lets everything else pass. It wants the server's own path in `WEIR_PROGRAM`. `None` where the test is to be skipped.
pub(crate) fn without_call(directory: &TempDir, number: u32) -> Option<PathBuf> {
    let python = require_program("python3")?;
    let script = format!("#!{}\n{}", python.display(), WITHOUT_CALL.replace("NUMBER", &number.to_string()));
    Some(executable(directory, "weir-without-call", script))
}

/// Likewise one that runs the server without these capabilities (`-perfmon,-sys_admin`).
pub(crate) fn without_capabilities(directory: &TempDir, capabilities: &str) -> Option<PathBuf> {
    let setpriv = require_program("setpriv")?;
    let script = format!(
        "#!/bin/sh\nexec {} --bounding-set={capabilities} -- \"$WEIR_PROGRAM\" \"$@\"\n",
        setpriv.display()
    );
    Some(executable(directory, "weir-without-capabilities", script))
}

/// Likewise one that runs the server with these signals blocked, as a parent may leave them (`SIGTRAP, SIGPROF`).
pub(crate) fn with_blocked(directory: &TempDir, signals: &str) -> Option<PathBuf> {
    let python = require_program("python3")?;
    let names: String = signals.split(", ").map(|name| format!("signal.{name},")).collect();
    let script = format!(
        "#!{}\nimport os, signal, sys\nsignal.pthread_sigmask(signal.SIG_BLOCK, [{names}])\n\
         os.execv(os.environ[\"WEIR_PROGRAM\"], [\"weir\"] + sys.argv[1:])\n",
        python.display()
    );
    Some(executable(directory, "weir-with-blocked", script))
}

fn executable(directory: &TempDir, name: &str, script: String) -> PathBuf {
    let program = directory.write(name, script);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it is ours");
    program
}

const WITHOUT_CALL: &str = r#"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
code = [(0x20, 0, 0, 0), (0x15, 0, 1, NUMBER), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)]
filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in code))
program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(filters))
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.c_char_p(program), 0, 0):
    sys.exit("prctl: %d" % ctypes.get_errno())
os.execv(os.environ["WEIR_PROGRAM"], ["weir"] + sys.argv[1:])
"#;

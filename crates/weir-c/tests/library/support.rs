//! Compiling and running programs with the library.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use weir_test::{Client, TempDir, require_program};

/// The crate's directory.
pub(crate) fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The repository's directory.
pub(crate) fn repository() -> PathBuf {
    home().join("../..").canonicalize().expect("it is there")
}

/// Where the libraries were built to: beside this test, as what it depends on.
pub(crate) fn built() -> PathBuf {
    let test = std::env::current_exe().expect("it runs");
    let directory = test.parent().expect("below the target directory").to_path_buf();
    let library = directory.join("libweir_c.so");
    assert!(library.exists(), "{} is missing: cargo build -p weir-c", library.display());
    directory
}

/// Programs, and the shared library beside them by the name that they look for.
pub(crate) struct Workshop {
    pub(crate) directory: TempDir,
}

impl Workshop {
    /// `None`: there is no compiler, and the test is to end.
    pub(crate) fn open() -> Option<Workshop> {
        require_program("cc")?;
        let directory = TempDir::new();
        for name in ["libweir.so", "libweir.so.0"] {
            std::os::unix::fs::symlink(built().join("libweir_c.so"), directory.path().join(name))
                .expect("a link");
        }
        Some(Workshop { directory })
    }

    /// Compiles a file of `tests/programs` or `examples/c` without a warning; `false`: the compiler can't.
    pub(crate) fn try_compile(&self, source: &Path, name: &str, more: &[&str]) -> bool {
        let here = self.directory.path();
        let compiler = if source.extension() == Some(OsStr::new("cpp")) { "c++" } else { "cc" };
        let standard = if compiler == "c++" { "-std=c++11" } else { "-std=c99" };
        let output = Command::new(compiler)
            .args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-g", standard, "-D_GNU_SOURCE"])
            .arg(source)
            .arg("-I")
            .arg(home().join("include"))
            .arg("-L")
            .arg(here)
            .args(more)
            .args(["-lweir", "-lpthread", "-ldl"])
            .arg(format!("-Wl,-rpath,{}", here.display()))
            .arg("-o")
            .arg(here.join(name))
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() || more.iter().any(|flag| flag.contains("sanitize")), "{said}");
        output.status.success()
    }

    /// Compiles a file of `tests/programs`.
    pub(crate) fn compile(&self, name: &str) -> PathBuf {
        let source = home().join("tests/programs").join(name);
        let program = Path::new(name).with_extension("");
        self.try_compile(&source, program.to_str().expect("a name"), &[]);
        self.directory.path().join(program)
    }
}

/// A program that runs.
pub(crate) struct RunningProgram {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// Where its standard error goes.
    said: PathBuf,
}

impl RunningProgram {
    pub(crate) fn start(command: &mut Command, directory: &Path) -> RunningProgram {
        let said = directory.join("stderr");
        let log = std::fs::File::create(&said).expect("a file");
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn().expect("it runs");
        let (input, output) = (child.stdin.take(), child.stdout.take().expect("piped"));
        RunningProgram { child, input, output: BufReader::new(output), said }
    }

    /// The next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it writes");
        assert!(!line.is_empty(), "it has ended: {}", self.said());
        line.trim_end().to_owned()
    }

    /// The address in its next line, which may be a URL.
    pub(crate) fn address(&mut self) -> SocketAddr {
        let line = self.line();
        let text = line.strip_prefix("http://").unwrap_or(&line);
        text.split('/').next().and_then(|text| text.parse().ok()).expect("an address")
    }

    /// Lets it go on.
    pub(crate) fn go_on(&mut self) {
        self.input.as_mut().expect("piped").write_all(b"\n").expect("it reads");
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").arg(format!("-{signal}")).arg(self.child.id().to_string()).status();
        assert!(sent.expect("kill runs").success());
    }

    /// What it has written to standard error.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.said).unwrap_or_default()
    }

    /// It ends well.
    pub(crate) fn expect_end(mut self) {
        let status = self.child.wait().expect("it is a child");
        assert!(status.success(), "{status}: {}", self.said());
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // After expect_end there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a request gets: the status and the body.
pub(crate) fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let response = Client::connect(address).get(path);
    (response.status, response.text())
}

/// What a body posted to `path` gets.
pub(crate) fn post(address: SocketAddr, path: &str, body: &[u8]) -> (u16, Vec<u8>) {
    let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut client = Client::connect(address);
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(body);
    let response = client.request(bytes);
    (response.status, response.body)
}

//! The examples of `examples/`, by the commands that their first lines give, with what `dist/install-library` installs.

use std::path::Path;
use std::process::Command;

use weir_test::{Client, TempDir, require_program};

use crate::support::{RunningProgram, built, get, post, repository};

/// Where the library is installed.
fn install(without: &[&str]) -> TempDir {
    let prefix = TempDir::new();
    let output = Command::new(repository().join("dist/install-library"))
        .arg(prefix.path())
        .arg("--from")
        .arg(built())
        .args(without)
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    prefix
}

/// `cc FILE $(pkg-config --cflags --libs weir) MORE -o PROGRAM`, as a user types it.
fn compile(prefix: &Path, file: &str, more: &str, program: &str) {
    let script = format!(
        "cc -Wall -Wextra -pedantic -Werror examples/c/{file} $(pkg-config --cflags --libs weir) {more} -o {}",
        prefix.join(program).display()
    );
    let output = Command::new("sh")
        .args(["-c", &script])
        .current_dir(repository())
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn serve(prefix: &Path, command: &mut Command) -> RunningProgram {
    let command = command
        .env("LD_LIBRARY_PATH", prefix.join("lib"))
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    RunningProgram::start(command, prefix)
}

#[test]
fn in_c() {
    if require_program("cc").is_none() || require_program("pkg-config").is_none() {
        return;
    }
    let installed = install(&[]);
    let prefix = installed.path();
    compile(prefix, "hello.c", "", "hello");
    let mut hello = serve(prefix, Command::new(prefix.join("hello")).arg("127.0.0.1:0"));
    assert_eq!(get(hello.address(), "/hello?you"), (200, "Hello, you!\n".to_owned()));
    hello.signal("TERM");
    hello.expect_end();

    compile(prefix, "stream.c", "-lpthread", "stream");
    let mut stream = serve(prefix, Command::new(prefix.join("stream")).arg("127.0.0.1:0"));
    let address = stream.address();
    let body = vec![b'a'; 5_000_000];
    assert_eq!(post(address, "/upload", &body), (200, b"5000000 bytes\n".to_vec()));
    assert_eq!(Client::connect(address).get("/download?20000000").body.len(), 20_000_000);
    assert_eq!(get(address, "/clock?3"), (200, "tick\n".repeat(3)));
    assert_eq!(get(address, "/clock"), (200, String::new()));
    assert_eq!(get(address, "/prime?1000000007").1, "prime\n");
    assert_eq!(get(address, "/prime?1000000008").1, "not prime\n");
    stream.signal("INT");
    stream.expect_end();

    // The static library, with what pkg-config says of it.
    std::fs::remove_file(prefix.join("lib/libweir.so")).expect("it was installed");
    compile(prefix, "hello.c", "$(pkg-config --static --libs weir)", "static");
    let mut fixed = RunningProgram::start(Command::new(prefix.join("static")).arg("127.0.0.1:0"), prefix);
    assert_eq!(get(fixed.address(), "/hello?you").1, "Hello, you!\n");
    fixed.signal("TERM");
    fixed.expect_end();
}

#[test]
fn in_python() {
    let Some(python) = require_program("python3") else { return };
    let installed = install(&["--no-static"]);
    let prefix = installed.path();
    let mut command = Command::new(python);
    command.arg(repository().join("examples/python/hello.py")).arg("127.0.0.1:0");
    let mut program = serve(prefix, &mut command);
    let address = program.address();
    assert_eq!(get(address, "/hello?you"), (200, "Hello, you!\n".to_owned()));
    assert_eq!(get(address, "/slow"), (200, "slept\n".to_owned()));
    assert_eq!(post(address, "/count", b"words"), (200, b"5 bytes\n".to_vec()));
    program.signal("TERM");
    program.expect_end();
}

#[test]
fn in_go() {
    let (Some(go), Some(_), Some(_)) =
        (require_program("go"), require_program("cc"), require_program("pkg-config"))
    else {
        return;
    };
    let installed = install(&["--no-static"]);
    let prefix = installed.path();
    let output = Command::new(go)
        .args(["build", "-o"])
        .arg(prefix.join("hello"))
        .arg(".")
        .current_dir(repository().join("examples/go"))
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .env("CGO_ENABLED", "1")
        // Go's cache tells builds apart by this, and not by what pkg-config says.
        .env("CGO_LDFLAGS", format!("-L{}", prefix.join("lib").display()))
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut program = serve(prefix, Command::new(prefix.join("hello")).arg("127.0.0.1:0"));
    let address = program.address();
    let clients: Vec<_> = (0..8)
        .map(|n| {
            std::thread::spawn(move || {
                assert_eq!(get(address, &format!("/hello?{n}")).1, format!("Hello, {n}!\n"));
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().expect("as it should be"));
    program.signal("TERM");
    program.expect_end();
}

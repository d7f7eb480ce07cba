//! examples/gateway/ does what its README says: a server is killed under load, and no request notices.

use std::path::Path;
use std::process::Command;

use weir_test::{free_ports, require_program};

#[test]
fn a_server_dies_and_comes_back_and_no_request_notices() {
    let Some(python) = require_program("python3") else { return };
    let ports: Vec<String> = free_ports(7).iter().map(u16::to_string).collect();
    let output = Command::new(python)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gateway/run"))
        .args(["--demo", "--seconds", "0.5", "--ports", &ports.join(",")])
        .env("WEIR", env!("CARGO_BIN_EXE_weir"))
        .output()
        .expect("it is a program");
    let text = String::from_utf8_lossy(&output.stdout);
    let all = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.ends_with("failed in all: 0\n"), "{all}");
    for line in ["200 orders-", "404 no such service", "unhealthy ", "orders-2 back: "] {
        assert!(text.contains(line), "{line} is missing: {all}");
    }
}

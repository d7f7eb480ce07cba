//! Commands that write configurations: `weir init`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use weir_test::TempDir;

fn weir_in(directory: &Path, words: &[&str]) -> Output {
    let weir = Command::new(env!("CARGO_BIN_EXE_weir")).args(words).current_dir(directory).output();
    weir.expect("the program runs")
}

/// Standard output of the program with `words`, which must be a success.
#[track_caller]
fn says(directory: &Path, words: &[&str]) -> String {
    let output = weir_in(directory, words);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What it writes to standard error, with the exit status.
fn fails(directory: &Path, words: &[&str]) -> (String, Option<i32>) {
    let output = weir_in(directory, words);
    (String::from_utf8_lossy(&output.stderr).into_owned(), output.status.code())
}

const KINDS: [&str; 6] = ["proxy", "static", "spa", "php", "lua", "gateway"];

#[test]
fn each_configuration_to_begin_with_passes_the_test_and_overwrites_nothing() {
    let directory = TempDir::new();
    let path = directory.path();
    for kind in KINDS {
        let text = says(path, &["init", kind]);
        let file = format!("{kind}.conf");
        assert!(says(path, &["init", kind, &file]).contains(&format!("weir -t {file}")));
        assert_eq!(fs::read_to_string(path.join(&file)).expect("written"), text, "{kind}");
        let tested = weir_in(path, &["-t", "-q", &file]);
        assert!(tested.status.success(), "{kind}: {}", String::from_utf8_lossy(&tested.stderr));
        fs::write(path.join(&file), "mine").expect("written");
        let (message, status) = fails(path, &["init", kind, &file]);
        assert!(message.contains("File exists") && status == Some(2), "{message}");
        assert_eq!(fs::read_to_string(path.join(&file)).expect("there"), "mine");
    }
    let (message, status) = fails(path, &["init", "prxy"]);
    assert_eq!(
        (message.as_str(), status),
        ("weir: there is no configuration \"prxy\"; did you mean \"proxy\"?\n", Some(2))
    );
}

//! `weir lua`: programs in Lua with the server's API.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use weir_test::TempDir;

fn lua(directory: &TempDir, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .arg("lua")
        .args(arguments)
        .current_dir(directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // A program that has ended without reading has closed it.
    let _ = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
    child.wait_with_output().expect("it ends")
}

fn texts(output: &Output) -> (Option<i32>, String, String) {
    let [out, err] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    (output.status.code(), out, err)
}

#[test]
fn a_file_runs_with_its_arguments() {
    let directory = TempDir::new();
    directory.write(
        "main.lua",
        "local first, second = ...
         ngx.say('args ', first, ' ', second, ' ', arg[0], ' ', #arg)
         ngx.sleep(0.001)
         local thread = ngx.thread.spawn(function() ngx.sleep(0.001) return require('answer') end)
         print(ngx.thread.wait(thread))
         print(ngx.get_phase(), pcall(ngx.req.get_headers))
         ngx.timer.at(3600, function(premature) print('premature', premature) end)
         a_global = 1",
    );
    directory.write("answer.lua", "return 42");
    let (status, out, err) = texts(&lua(&directory, &["-I", ".", "main.lua", "x", "y"], ""));
    assert_eq!(err, "");
    let wanted =
        "args x y main.lua 2\ntrue\t42\ntimer\tfalse\tAPI disabled in the current context\npremature\ttrue\n";
    assert_eq!((status, &*out), (Some(0), wanted));
}

/// Kong's commands print a path after a text.
#[test]
fn called_resty_it_prints_and_ends_as_resty_does() {
    let directory = TempDir::new();
    let resty = directory.path().join("resty");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_weir"), &resty).expect("a link");
    let code = "print('at ', 1, nil, true, { ' b' }) print()";
    let done = Command::new(resty).args(["--errlog-level", "notice", "-e", code]).output().expect("it runs");
    let (status, out, err) = texts(&done);
    assert_eq!((status, &*out), (Some(0), "at 1niltrue b\n\n"));
    assert!(err.contains("gracefully shutting down"), "{err}");
}

#[test]
fn errors_and_exits_are_the_status() {
    let directory = TempDir::new();
    let (status, out, err) = texts(&lua(&directory, &["-e", "print(1) error('wrong')"], ""));
    assert_eq!((status, &*out), (Some(1), "1\n"));
    assert!(err.starts_with("ERROR: (command line -e):1: wrong\nstack traceback:\n"), "{err}");
    let (status, _, err) = texts(&lua(&directory, &["nothing.lua"], ""));
    assert!(status == Some(1) && err.contains("cannot open nothing.lua"), "{err}");
    let (status, ..) = texts(&lua(&directory, &["-e", "ngx.exit(3)"], ""));
    assert_eq!(status, Some(3));
    let (status, _, err) = texts(&lua(&directory, &["--bogus"], ""));
    assert!(status == Some(1) && err.starts_with("weir lua: unknown option \"--bogus\""), "{err}");
    let (status, _, err) = texts(&lua(&directory, &["--http-conf", "bogus on;", "-e", "print(1)"], ""));
    assert!(status == Some(1) && err.contains("unknown directive \"bogus\""), "{err}");
}

#[test]
fn standard_input_is_a_program_or_lines() {
    let directory = TempDir::new();
    let (status, out, err) = texts(&lua(&directory, &[], "print(1 + 1, ...)\n"));
    assert_eq!((status, &*out, &*err), (Some(0), "2\n", ""));
    let (status, out, err) = texts(&lua(&directory, &["-", "a"], "print(...)\n"));
    assert_eq!((status, &*out, &*err), (Some(0), "a\n", ""));
    let lines = "1 + 1, 'x'\nfor i = 1, 2 do\nprint(i)\nend\nerror('wrong')\n= 7\nx x\nngx.sleep(0.001)\n";
    let (status, out, err) = texts(&lua(&directory, &["-i"], lines));
    assert_eq!((status, &*out), (Some(0), "> 2\tx\n> >> >> 1\n2\n> > 7\n> > > \n"));
    assert!(
        err.starts_with("wrong\nstack traceback:") && err.contains("stdin:1: '=' expected near 'x'"),
        "{err}"
    );
}

#[test]
fn options_are_those_of_resty() {
    let directory = TempDir::new();
    let code = "ngx.shared.kept:set('a', 2) print(ngx.shared.kept:get('a'), kept.here, jit.status())";
    directory.write("kept.lua", "return { here = true }");
    let (status, out, err) =
        texts(&lua(&directory, &["--shdict", "kept 1m", "-joff", "-I", ".", "-l", "kept", "-e", code], ""));
    assert_eq!(
        (status, out.split('\t').take(3).collect::<Vec<_>>(), &*err),
        (Some(0), vec!["2", "true", "false"], "")
    );
    let (_, out, err) = texts(&lua(
        &directory,
        &["--errlog-level", "info", "-e", "ngx.log(ngx.INFO, 'told') io.write('io')"],
        "",
    ));
    assert!(
        out == "io" && err.contains("[lua] (command line -e):1: told, context: ngx.timer"),
        "{out} {err}"
    );
    let (status, out, _) = texts(&lua(&directory, &["-h"], ""));
    assert!(status == Some(0) && out.starts_with("usage: weir lua "), "{out}");
}

#[test]
fn options_of_resty_without_meaning_are_taken() {
    let directory = TempDir::new();
    let options = [
        "--stream-conf",
        "",
        "--no-stream",
        "--nginx",
        "/nowhere/nginx",
        "--user-runner",
        "rr",
        "--gdb",
        "--gdb-opts=-x",
        "--rr",
        "--stap",
        "--stap-opts",
        "x",
        "--valgrind",
        "--valgrind-opts",
        "x",
        "--load-module",
        "ngx_http_lua_module.so",
    ];
    let (status, out, _) = texts(&lua(&directory, &[&options[..], &["-e", "print 'run'"]].concat(), ""));
    assert_eq!((status, &*out), (Some(0), "run\n"));
    for words in [&["--nginx"][..], &["--stream-conf"], &["-j"], &["-j", "x"], &["-jx"], &["--nothing"]] {
        let (status, out, err) = texts(&lua(&directory, words, ""));
        assert!(status == Some(1) && out.is_empty() && err.starts_with("weir lua: "), "{words:?} {err}");
    }
}

#[test]
fn the_compiler_is_heard_and_the_configuration_shown() {
    let directory = TempDir::new();
    let code = "local n = 0 for i = 1, 1000 do n = n + i end print(n)";
    for words in [&["-j", "v"][..], &["-jv"]] {
        let (status, out, err) = texts(&lua(&directory, &[words, &["-e", code]].concat(), ""));
        assert!(
            status == Some(0) && out == "500500\n" && err.contains("[TRACE ") && err.contains(" loop]"),
            "{out} {err}"
        );
    }
    let (_, out, err) = texts(&lua(&directory, &["-jdump", "-e", code], ""));
    assert!(format!("{out}{err}").contains("---- TRACE "), "{out} {err}");
    // Without code of its own it is standard input that is run.
    let (_, out, _) = texts(&lua(&directory, &["-joff"], "print((jit.status()))"));
    assert_eq!(out, "false\n");
    let (status, out, err) = texts(&lua(&directory, &["--shdict", "kept 1m", "--dump-nginx-conf"], ""));
    assert!(status == Some(0) && out.contains("lua_shared_dict kept 1m;") && err.is_empty(), "{out} {err}");
    let (status, _, err) = texts(&lua(&directory, &["-V"], ""));
    assert!(status == Some(0) && err.contains("configure arguments:"), "{err}");
}

/// As `resty`: what a Lua state's end does comes after a program that has ended well only. A module's thread in C, whose object waits for
/// it when it is collected, would keep a failed one running.
#[test]
fn after_an_error_nothing_more_runs() {
    let directory = TempDir::new();
    let program = "local object = newproxy(true)
         getmetatable(object).__gc = function() io.stdout:write('collected\\n') io.stdout:flush() end
         held = object
         ngx.timer.at(3600, function() io.stdout:write('premature\\n') io.stdout:flush() end)
         ngx.sleep(0.001)
         ";
    let (status, out, err) = texts(&lua(&directory, &["-e", &format!("{program} error('wrong')")], ""));
    assert_eq!((status, &*out), (Some(1), ""), "{err}");
    let (status, out, err) = texts(&lua(&directory, &["-e", program], ""));
    assert_eq!((status, &*out), (Some(0), "premature\ncollected\n"), "{err}");
}

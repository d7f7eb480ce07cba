//! What blocked a loop, by the names in its stack.

/// What blocked the loop: the function, Lua's own where one was called, and the line of the script. Without a stack the
/// place in which the request was.
pub(crate) fn cause(stack: &[&str], syscall: Option<&str>, site: &str) -> String {
    let line = stack.iter().position(|frame| is_line_of_lua(frame));
    let above = &stack[..line.unwrap_or(stack.len())];
    let called = above.iter().find(|frame| is_function_of_lua(frame)).copied();
    let innermost = above.iter().map(|frame| name(frame)).find(|name| !name.starts_with("0x"));
    let function = match (called, syscall.or(innermost)) {
        (Some(called), Some(within)) if within != called => format!("{called} ({within})"),
        (Some(called), _) => called.to_owned(),
        (None, Some(within)) => within.to_owned(),
        (None, None) => String::new(),
    };
    match (function.is_empty(), line) {
        (true, Some(line)) => stack[line].to_owned(),
        (false, Some(line)) => format!("{function} at {}", stack[line]),
        (true, None) if site == "-" => OUTSIDE.to_owned(),
        (true, None) => site.to_owned(),
        (false, None) if site == "-" => format!("{function}, {OUTSIDE}"),
        (false, None) => format!("{function} in {site}"),
    }
}

/// Where no handler or filter ran.
const OUTSIDE: &str = "outside of modules";

/// A frame without its file and mark.
fn name(frame: &str) -> &str {
    let frame = frame.strip_suffix(" ?").unwrap_or(frame);
    frame.split_once(" (").map_or(frame, |(name, _)| name)
}

/// `/lua/waf.lua:7`, `content_by_lua(nginx.conf:40):1`; not `ngx/var:12`, lines of Weir's own: what calls them is the script's.
pub(crate) fn is_line_of_lua(frame: &str) -> bool {
    let frame = frame.strip_suffix(" ?").unwrap_or(frame);
    if frame.starts_with("ngx/") && !frame.contains(".lua") {
        return false;
    }
    let line = frame.rsplit_once(':').map(|(_, line)| line);
    line.is_some_and(|line| !line.is_empty() && line.bytes().all(|digit| digit.is_ascii_digit()))
}

/// `os.execute`, `string.find`: names of functions in C and Rust have no dot.
fn is_function_of_lua(frame: &str) -> bool {
    let word = |part: &str| {
        !part.is_empty() && part.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_')
    };
    frame.split_once('.').is_some_and(|(library, function)| word(library) && word(function))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_names_the_function_and_the_line() {
        let of = |stack: &[&str], syscall| cause(stack, syscall, "content content_by_lua");
        let stack = [
            "wait4 (w.c:1)",
            "system",
            "os.execute",
            "a.lua:3",
            "content_by_lua(nginx.conf:4):1",
            "main (m.rs:9)",
        ];
        assert_eq!(of(&stack, Some("wait4")), "os.execute (wait4) at a.lua:3");
        assert_eq!(of(&stack[3..], None), "a.lua:3");
        assert_eq!(of(&["os.clock", "a.lua:3"], None), "os.clock at a.lua:3");
        assert_eq!(of(&["usleep", "a.lua:3"], None), "usleep at a.lua:3");
        assert_eq!(
            of(&["0xab", "futex_wait (f.rs:1) ?", "main (m.rs:9)"], None),
            "futex_wait in content content_by_lua"
        );
        let inlined = ["nanosleep", "ngx/ffi:129", "content_by_lua(nginx.conf:4):1"];
        assert_eq!(of(&inlined, None), "nanosleep at content_by_lua(nginx.conf:4):1");
        assert_eq!(of(&["usleep", "ngx/own.lua:3"], None), "usleep at ngx/own.lua:3");
        assert_eq!(of(&["usleep", "/lua/a.lua:3 ?"], None), "usleep at /lua/a.lua:3 ?");
        assert_eq!(of(&["0xab"], None), "content content_by_lua");
        assert_eq!(of(&[], None), "content content_by_lua");
        assert_eq!(cause(&["accept4"], None, "-"), "accept4, outside of modules");
        assert_eq!(cause(&[], None, "-"), "outside of modules");
    }
}

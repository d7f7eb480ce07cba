//! `set` lines that follow each other: constants, values, variables of modules that have to know, with other instructions between
//! them.

use weir_test::{Server, both_drivers};

/// A location's lines, what is asked for, and the text of the response. What is expected is nginx's.
const LINES: &[(&str, &str, &str)] = &[
    ("set $a 1; set $b ''; set $c three; return 200 \"$a|$b|$c\";", "/", "1||three"),
    ("set $a 1; set $a 2; set $b $a; set $a 3; return 200 $a$b;", "/", "32"),
    (
        "set $a 1; set $b 2; if ($arg_x) { set $a x; set $c y; } set $b 3; return 200 \"$a|$b|$c\";",
        "/?x=1",
        "x|3|y",
    ),
    (
        "set $a 1; set $b 2; if ($arg_x) { set $a x; set $c y; } set $b 3; return 200 \"$a|$b|$c\";",
        "/",
        "1|3|",
    ),
    ("set $a 1; break; set $a 2; return 200 unseen;", "/a.txt", "1"),
    // Of a map: what was given to it before it is asked for, and after.
    ("set $mapped given; return 200 $mapped;", "/?m=1", "given"),
    ("set $a $mapped; set $mapped given; return 200 $a$mapped;", "/?m=1", "onegiven"),
    // Of modules that have to know.
    ("set $args b=2; set $a 1; return 200 \"$arg_b $args $a\";", "/?b=1", "2 b=2 1"),
    ("set $a x=$arg_b; set $args $a; set $b $arg_x; return 200 $args$b;", "/?b=1", "x=11"),
    ("set $limit_rate 1m; set $a 1; return 200 \"$limit_rate $a\";", "/", "1048576 1"),
    // Captures are the last pattern's, as they were when the line was run.
    (
        "if ($uri ~ ^/(.)(.)) { set $a $1; } if ($uri ~ ^/.(.)) { set $b $1; set $c 3; } return 200 $a$b$c;",
        "/xy",
        "xy3",
    ),
    // Another location begins with what the one before has set.
    ("set $a 1; set $b 2; rewrite ^ /second last;", "/", "1 2 second"),
    (
        "set_escape_uri $a 'a b'; set $b 1; set_quote_sql_str $c \"it's\"; set $d 2; return 200 \"$a $b $c $d\";",
        "/",
        "a%20b 1 'it\\'s' 2",
    ),
    (
        "set_by_lua_block $a { return ngx.var.b } set $b 1; set_by_lua_block $c { return ngx.var.b } return 200 \"$a|$b|$c\";",
        "/",
        "|1|1",
    ),
];

both_drivers! {
    /// Each twice on a connection, on which other requests give the same variables other values.
    fn they_are_run_in_their_order(driver) {
        for (at, (lines, path, text)) in LINES.iter().enumerate() {
            let conf = format!(
                "http {{ map $arg_m $mapped {{ 1 one; }} uninitialized_variable_warn off;
                    server {{ listen 127.0.0.1:%%PORT%%; root %%DIR%%; set $given_outside 1;
                        location / {{ {lines} add_header X-A $a; }}
                        location /second {{ return 200 \"$a $b second\"; }}
                        location = /other {{ set $a other; set $b other; set $c other; return 200 $a$given_outside; }} }} }}"
            );
            let server = Server::builder(&conf).driver(driver).file("a.txt", "of the file").start();
            let mut client = server.client();
            for _ in 0..2 {
                let response = client.get(path);
                // Of what is no `return` a field shows the variable.
                let said = if *path == "/a.txt" { response.field("x-a").unwrap_or_default().to_owned() } else { response.text() };
                assert_eq!(said, *text, "{at}: {lines}");
                assert_eq!(client.get("/other").text(), "other1", "{lines}");
            }
        }
    }
}

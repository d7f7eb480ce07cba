//! `set_misc`: variables that are encoded, hashed, drawn or counted among the instructions of `rewrite`, and by `ndk.set_var`.

use weir_test::{Server, both_drivers};

fn serve(http: &str, locations: &str) -> Server {
    let conf = format!(
        "worker_processes 1; events {{}}\nhttp {{ {http}\nserver {{ listen 127.0.0.1:%%PORT%%; default_type text/plain;\n{locations}\n}} }}\n"
    );
    Server::builder(&conf).allow("set_").allow("upstream list").start()
}

/// What `weir -t` says of a location with `lines`.
fn refusal(http: &str, lines: &str) -> String {
    let conf = format!(
        "events {{}}\nhttp {{ {http}\nserver {{ listen 127.0.0.1:1;\nlocation / {{\n{lines}\n}} }} }}\n"
    );
    let builder = Server::builder(&conf);
    let stderr = builder.run(&["-t"]).stderr;
    stderr.replace(&format!("{}/", builder.dir().display()), "")
}

both_drivers! {
    /// The manual's examples of the reference, and each directive in both of its forms.
    fn variables_are_set_in_their_place(driver) {
        let two_forms: &[(&str, &str, &str)] = &[
            ("set_escape_uri", "a b/ü", "a%20b%2F%C3%BC"),
            ("set_unescape_uri", "hello+world%21", "hello world!"),
            ("set_quote_sql_str", "it's", "'it\\'s'"),
            ("set_quote_pgsql_str", "it's", "E'it\\'s'"),
            ("set_quote_json_str", "a\"b", "\"a\\\"b\""),
            ("set_encode_base32", "abcde", "c5h66p35"),
            ("set_decode_base32", "c5h66p35", "abcde"),
            ("set_encode_base64", "abcde", "YWJjZGU="),
            ("set_decode_base64", "YWJjZGU=", "abcde"),
            ("set_encode_base64url", "a?~", "YT9-"),
            ("set_decode_base64url", "YT9-", "a?~"),
            ("set_encode_hex", "abcde", "6162636465"),
            ("set_decode_hex", "6162636465", "abcde"),
            ("set_md5", "hello", "5d41402abc4b2a76b9719d911017c592"),
            ("set_sha1", "hello", "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d"),
        ];
        let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
        let block = |(name, text, _): &(&str, &str, &str)| {
            let text = quoted(text);
            format!(
                "location /{name} {{ set $in \"{text}\"; set $place $in; {name} $place; {name} $out $in; {name} $constant \"{text}\";
                    set $in other; return 200 \"$place|$out|$constant\"; }}
                 location /lua_{name} {{ content_by_lua_block {{ ngx.print(ndk.set_var.{name}([==[{}]==])) }} }}\n",
                text.replace("\\\"", "\"")
            )
        };
        let server = serve("", &two_forms.iter().map(block).collect::<String>());
        let mut client = server.client();
        for (name, _, expected) in two_forms {
            assert_eq!(client.get(&format!("/{name}")).text(), format!("{expected}|{expected}|{expected}"), "{name}");
            assert_eq!(client.get(&format!("/lua_{name}")).text(), *expected, "ndk.set_var.{name}");
        }
    }

    fn values_of_several_arguments(driver) {
        let server = serve(
            "upstream_list universe moon sun earth;",
            "location /empty { set_if_empty $a 56; set $b $arg_b; set_if_empty $b $a; return 200 \"$a,$b\"; }
             location /hmac { set $key thisisverysecretstuff; set $text 'some string we want to sign';
                set_hmac_sha1 $one $key $text; set_encode_base64 $one; set_hmac_sha256 $two $key $text; set_encode_base64 $two;
                return 200 \"$one $two\"; }
             location /random { set $to 7; set_random $a 5 $to; set_random $b 7 5; set_random $c 3 3;
                set_random $d 0 9223372036854775807; return 200 \"$a $b $c $d\"; }
             location /text { set_secure_random_alphanum $a 64; set_secure_random_lcalpha $b 1; set $c 3; set_secure_random_lcalpha $c;
                return 200 \"$a $b $c\"; }
             location /kept { set_rotate $n 0 3; return 200 $n; }
             location /given { set $n $arg_n; set_rotate $n 5 1; return 200 $n; }
             location /time { set_local_today $a; set_formatted_gmt_time $b '%Y-%m-%dT%H:%M %Z'; set_formatted_local_time $c '%F';
                return 200 \"$a $b $c\"; }
             location /hash { set $list universe; set_hashed_upstream $a universe $arg_k; set_hashed_upstream $b $list $arg_k; return 200 \"$a $b\"; }
             set_base32_alphabet ABCDEFGHIJKLMNOPQRSTUVWXYZ234567;
             location /base32 { set_encode_base32 $a foob; set_base32_padding off; set_decode_base32 $b MZXW6YQ; return 200 \"$a $b\"; }
             location /if { set $a x; if ($arg_hash) { set_md5 $a hello; } set_encode_hex $a; return 200 $a; }
             location /rewritten { set_escape_uri $a 'a b'; rewrite ^ /there?$a last; } location /there { return 200 $args; }",
        );
        let mut client = server.client();
        let mut get = |path: &str| client.get(path).text().to_owned();
        assert_eq!([get("/empty"), get("/empty?b="), get("/empty?b=32")], ["56,56", "56,56", "56,32"]);
        assert_eq!(get("/hmac"), "R/pvxzHC4NLtj7S+kXFg/NePTmk= 4pU3GRQrKKIoeLb9CqYsavHE2l6Hx+KMmRmesU+Cfrs=");
        for _ in 0..20 {
            let numbers: Vec<u64> = get("/random").split(' ').map(|n| n.parse().expect("a number")).collect();
            assert!((5..=7).contains(&numbers[0]) && (5..=7).contains(&numbers[1]) && numbers[2] == 3, "{numbers:?}");
            let texts = get("/text");
            let texts: Vec<&str> = texts.split(' ').collect();
            assert!(texts[0].len() == 64 && texts[0].bytes().all(|byte| byte.is_ascii_alphanumeric()), "{texts:?}");
            assert!(texts[1].len() == 1 && texts[2].len() == 3, "{texts:?}");
            assert!(texts[1..].concat().bytes().all(|byte| byte.is_ascii_lowercase()), "{texts:?}");
        }
        assert_eq!([0; 6].map(|_| get("/kept")), ["0", "1", "2", "3", "0", "1"]);
        assert_eq!(["/given?n=4", "/given?n=5", "/given?n=x", "/given"].map(&mut get), ["5", "1", "2", "3"]);
        let time = get("/time");
        let parts: Vec<&str> = time.split(' ').collect();
        assert!(parts[0] == parts[3] && parts[0].len() == 10 && parts[1].contains('T') && parts[2] == "GMT", "{time}");
        assert_eq!(["/hash?k=a", "/hash?k=A", "/hash?k=b", "/hash"].map(&mut get), ["sun sun", "sun sun", "earth earth", "moon moon"]);
        assert_eq!(get("/base32"), "MZXW6YQ foob");
        assert_eq!([get("/if"), get("/if?hash=1")], ["78", "3564343134303261626334623261373662393731396439313130313763353932"]);
        assert_eq!(get("/rewritten"), "a%20b");
    }

    /// Logged with the directive, and no value is made up.
    fn what_cannot_be_decoded_is_an_error(driver) {
        let server = serve(
            "upstream_list universe moon;",
            "location /base64 { set_decode_base64 $a $arg_v; return 200 \"$a.\"; }
             location /hex { set_decode_hex $a $arg_v; return 200 \"$a.\"; }
             location /base32 { set_decode_base32 $a $arg_v; return 200 \"$a.\"; }
             location /random { set_random $a 1 $arg_v; return 200 $a; }
             location /text { set_secure_random_alphanum $a $arg_v; return 200 $a; }
             location /rotate { set_rotate $a $arg_v 3; return 200 $a; }
             location /hash { set_hashed_upstream $a $arg_v k; return 200 $a; }
             location /lua { content_by_lua_block { ngx.say(select(2, pcall(ndk.set_var.set_decode_hex, '6'))) } }",
        );
        for (path, status) in [
            ("/base64?v=YQ==", 200), ("/base64?v=*", 500), ("/base64", 200),
            ("/hex?v=61", 200), ("/hex?v=6", 500), ("/hex?v=6g", 500), ("/hex", 200),
            ("/base32?v=!", 200),
            ("/random?v=2", 200), ("/random?v=-2", 500), ("/random", 500), ("/random?v=99999999999999999999", 500),
            ("/text?v=1", 200), ("/text?v=0", 500), ("/text?v=65", 500), ("/text", 500),
            ("/rotate?v=x", 500),
            ("/hash?v=universe", 200), ("/hash?v=none", 500),
        ] {
            assert_eq!(server.get(path).status, status, "{path}");
        }
        assert!(server.get("/lua").text().contains("calling directive set_decode_hex failed with code -1"));
        for line in ["set_decode_base64: invalid value", "set_random: bad \"to\" argument: -2", "upstream list \"none\" is not defined"] {
            assert!(server.error_log_line(line).contains(line));
        }
    }
}

#[test]
fn mistakes_are_told_with_their_place() {
    for (http, lines, expected) in [
        ("", "set_md5 name value;", "invalid variable name \"name\" in nginx.conf:5"),
        ("", "set_md5 $uri;", "the duplicate \"uri\" variable in nginx.conf:5"),
        ("", "set_md5 $a b c;", "invalid number of arguments in \"set_md5\" directive in nginx.conf:5"),
        (
            "",
            "set_hmac_sha1 $a b;",
            "invalid number of arguments in \"set_hmac_sha1\" directive in nginx.conf:5",
        ),
        ("", "set_hashed_upstream $a none k;", "upstream list \"none\" is not defined in nginx.conf:5"),
        (
            "",
            "set_base32_alphabet abc;",
            "an alphabet of 32 bytes is expected, this one has 3 in nginx.conf:5",
        ),
        ("upstream_list a b;upstream_list a c;", "", "duplicate upstream list \"a\" in nginx.conf:2"),
    ] {
        let said = refusal(http, lines);
        assert!(said.contains(expected), "{lines}: {said}");
    }
}

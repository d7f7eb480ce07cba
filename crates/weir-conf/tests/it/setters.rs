//! Right values of each stock setter; the wrong ones are in `wrong.rs`.

use super::*;

/// The values of directives in `http`.
fn http(text: &str) -> Conf {
    values(format!("http {{ {text} }}"))
}

#[test]
fn numbers_and_flags() {
    assert_eq!(http("gzip ON;").gzip, Some(true));
    assert_eq!(http("gzip off;").gzip, Some(false));
    assert_eq!(http("gzip_comp_level 9;").level, Some(9));
    assert_eq!(http("port 65535;").port, Some(65_535));
    assert_eq!(values("worker_processes 1;").workers, Some(1));
}

#[test]
fn sizes_and_times() {
    assert_eq!(http("client_body_buffer_size 16k;").size, Some(16_384));
    assert_eq!(http("client_max_body_size 2g;").offset, Some(2 << 30));
    assert_eq!(http("send_timeout 1m30s;").timeout, Some(90_000));
    assert_eq!(http("send_timeout '1m 30s';").timeout, Some(90_000));
    assert_eq!(http("open_file_cache_valid 1d;").valid, Some(86_400));
    assert_eq!(http("gzip_buffers 16 8k;").bufs, Some(BufferSizes { number: 16, size: 8192 }));
}

#[test]
fn names_and_texts() {
    assert_eq!(http("satisfy ANY;").mode, Some('y'));
    assert_eq!(http("gzip_proxied expired; gzip_proxied no-cache;").bits, Some(3));
    assert_eq!(http("server_name a.b;").name.as_deref(), Some("a.b"));
    assert_eq!(http("index a 'b c';").list, Some(vec!["a".into(), "b c".into()]));
    assert_eq!(http("add a; add b;").pushed, Some(vec!["a".into(), "b".into()]));
    assert_eq!(http("set_header a b;").pairs, Some(vec![("a".into(), (*b"b").into())]));
    assert_eq!(values(b"http { bytes \xff; }".to_vec()).bytes, Some(vec![0xff]));
    let not_utf8 = b"http { server_name \xff; }".to_vec();
    assert_eq!(errors(not_utf8), ["invalid value \"\u{fffd}\" @1:20"]);
}

#[test]
fn paths_have_their_own_directories() {
    assert_eq!(http("root html;").root, Some("/etc/html".into()));
    assert_eq!(http("root /srv;").root, Some("/srv".into()));
    let files = MemoryFiles::new().with("/srv/conf/n.conf", "http { root html; ssl_certificate_key key; }");
    let tree = load("conf/n.conf".as_ref(), "/srv/".as_ref(), &files, |_| false, None).unwrap();
    let (conf, _) = apply(&tree);
    assert_eq!((conf.root, conf.key), (Some("/srv/html".into()), Some("/srv/conf/key".into())));
}

#[test]
fn blocks_of_entries() {
    let conf = http("types { text/html html htm; image/gif gif; }");
    let pairs: Vec<_> = conf.types.iter().map(|(t, e)| format!("{t} {e}")).collect();
    assert_eq!(pairs, ["text/html html", "text/html htm", "image/gif gif"]);
}

#[test]
fn the_caller_lends_what_setters_need() {
    let tree = read("a x;").unwrap();
    let (mut registry, mut warnings) = (Vec::<String>::new(), Vec::new());
    let mut cx = LineCx::new(&tree.lines[0], MAIN, &tree.source, &tree.paths, &mut registry, &mut warnings);
    let argument = cx.arg(0);
    cx.ext::<Vec<String>>().push(argument.into());
    cx.warn_arg(0, "w");
    assert_eq!((cx.arg(1), cx.bytes(7)), ("", &b""[..]));
    assert_eq!(registry, ["x"]);
    assert_eq!(warnings[0].headline(&tree.source), "w in /etc/n.conf:1:3");
    assert_eq!(warnings[0].level.as_str(), "warn");
}

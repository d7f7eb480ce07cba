//! Filters that change bodies, each table asked of Weir and of nginx: `sub_filter`, `charset`,
//! `addition`, `subs_filter` (of an nginx that has the module).

mod common;

use std::fs;
use std::time::{Duration, UNIX_EPOCH};

use common::Site;
use weir_engine::ModuleDef;
use weir_engine::conf::{CORE_MODULES, with_core};
use weir_modules::{Addition, Charset, Headers, Index, NotModified, Range, Rewrite, Static, Sub, Subs};
use weir_test::{Client, Response};

static MODULES: [ModuleDef; CORE_MODULES.len() + 10] = with_core(&[
    ModuleDef::of::<Rewrite>(),
    ModuleDef::of::<Index>(),
    ModuleDef::of::<Static>(),
    ModuleDef::of::<NotModified>(),
    ModuleDef::of::<Headers>(),
    ModuleDef::of::<Subs>(),
    ModuleDef::of::<Addition>(),
    ModuleDef::of::<Sub>(),
    ModuleDef::of::<Charset>(),
    ModuleDef::of::<Range>(),
]);

/// The files of a site, all of the same time.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    let page = |n: usize| format!("<p><span class=n{n}>line {n}</SPAN> and some text</p>\n");
    vec![
        ("page.html", b"<Span>one</span> <span>two</SPAN> three spa".to_vec()),
        ("page.txt", b"span one span".to_vec()),
        ("empty.html", Vec::new()),
        ("long.html", (0..4000).map(page).collect::<String>().into_bytes()),
        ("bin.html", (0..=255).collect()),
        ("utf.html", "<p>\u{43f}\u{440}\u{438} \u{20ac} \u{1f600} x\u{2022}</p>".into()),
        ("koi.html", b"<p>\xd0\xd2\xc9 \x95 x\xff\x95</p>".to_vec()),
        ("bad.html", b"<p>\xd0(\xff\xc0\xe2\x82\xac\xf4\x90\x80\x80\xe2\x82".to_vec()),
        ("ab.html", b"abcabdABCab".to_vec()),
    ]
}

/// What is compared of a response; the server's own pages are as long as its name is.
fn outline(response: &Response) -> String {
    let mut out = response.status.to_string();
    let own = response.text().contains("</center>");
    for name in [
        "Content-Type",
        if own { "" } else { "Content-Length" },
        "Content-Range",
        "Last-Modified",
        "ETag",
        "Accept-Ranges",
        "Transfer-Encoding",
        "Connection",
        "X",
    ] {
        for value in response.all(name) {
            out += &format!(" {name}={value}");
        }
    }
    let body = response.body.escape_ascii().to_string();
    out + "|" + &body.replace("<center>nginx</center>", "<center>weir</center>")
}

/// Asks Weir, and nginx where it is there, `METHOD PATH [VERSION] [| FIELD]...`; the responses are the same, and
/// contain what is given.
fn ask(http: &str, server: &str, requests: &[(&str, &str)]) {
    let nginx = |conf: &str| weir_test::nginx(conf);
    ask_of(nginx, http, server, requests);
}

/// [`ask`], of the nginx that `nginx` makes of a configuration.
fn ask_of(
    nginx: impl FnOnce(&str) -> Option<weir_test::TestServerBuilder>,
    http: &str,
    server: &str,
    requests: &[(&str, &str)],
) {
    let http = format!(
        "server_tokens off; default_type text/plain; types {{ text/html html; text/css css; }} {http}"
    );
    let site = Site::with(&MODULES, &http, server);
    let nginx = nginx(&format!(
        "events {{ }} http {{ {http} server {{ listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/root; absolute_redirect off; {server} }} }}"
    ));
    let root = site.directory.path().join("root");
    put(&root);
    let nginx = nginx.map(|builder| {
        let root = builder.dir().join("root");
        fs::create_dir_all(&root).expect("a fresh folder");
        put(&root);
        builder.start()
    });
    for (request, contains) in requests {
        let ours = outline(&send(Client::connect(site.address), request));
        assert!(ours.contains(contains), "{request}: {ours}");
        if let Some(nginx) = &nginx
            && !DIFFERENT.contains(request)
        {
            assert_eq!(outline(&send(nginx.client(), request)), ours, "{request}: nginx, then weir");
        }
    }
}

/// Characters that end too early: nginx 1.31.5 responds as Weir does, Debian's 1.22 otherwise.
const DIFFERENT: [&str; 2] = ["GET /from/bad.html", "GET /from/bin.html"];

fn put(root: &std::path::Path) {
    for (name, content) in files() {
        let path = root.join(name);
        fs::write(&path, content).expect("writable");
        let file = fs::File::options().write(true).open(path).expect("just written");
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1_500_000_000)).expect("a time");
    }
}

fn send(mut client: Client, request: &str) -> Response {
    let mut fields = request.split(" | ");
    let line = fields.next().unwrap_or_default();
    let line = if line.contains("HTTP/") { line.to_owned() } else { format!("{line} HTTP/1.1") };
    let fields: String = fields.map(|field| format!("{field}\r\n")).collect();
    client.send(format!("{line}\r\nHost: h\r\nConnection: close\r\n{fields}\r\n"));
    if line.starts_with("HEAD") { client.response_to_head() } else { client.response() }
}

#[test]
fn sub_filter() {
    ask(
        "",
        "sub_filter span div;
         location / { }
         location /all/ { alias %%ROOT%%; sub_filter_once off; }
         location = /literal { return 200 'span Span'; }
         location = /html { default_type text/html; return 200 'span Span'; }
         location = /empty { default_type text/html; return 200; }
         location = /gone { default_type text/html; return 404 'span Span'; }
         location = /moved { default_type text/html; return 301 /span; }
         error_page 405 /page.html;"
            .replace("alias %%ROOT%%;", "rewrite ^/all(/.*)$ $1 break;")
            .as_str(),
        &[
            ("GET /page.html", "|<div>one</span> <span>two</SPAN> three spa"),
            ("GET /all/page.html", "|<div>one</div> <div>two</div> three spa"),
            ("HEAD /page.html", "200"),
            ("GET /page.html HTTP/1.0", "|<div>one"),
            ("GET /page.html | Range: bytes=0-3", "200"),
            ("GET /page.html | If-Modified-Since: Fri, 14 Jul 2017 02:40:00 GMT", "304"),
            ("GET /page.txt", "span one"),
            ("GET /page.txt | Range: bytes=0-3", "206"),
            ("GET /empty.html", "Content-Length=0"),
            ("GET /long.html", "<div class=n0>"),
            ("GET /all/long.html", "<div class=n3999>line 3999</div>"),
            ("GET /literal", "span Span"),
            ("GET /html", "div Span"),
            ("GET /empty", "200"),
            ("GET /gone", "div Span"),
            ("GET /moved", "301"),
            ("POST /page.html", "405"),
            ("GET /none.html", "404"),
        ],
    );
}

#[test]
fn several_texts() {
    ask(
        "",
        "sub_filter_once off; sub_filter_types text/plain TEXT/CSS text/html;
         location / { sub_filter a 1; sub_filter c ''; }
         location /first/ { rewrite ^/first(/.*)$ $1 break; sub_filter ab 1; sub_filter abc 2; sub_filter b 3; }
         location /last/ { rewrite ^/last(/.*)$ $1 break; sub_filter abc 2; sub_filter ab 1; sub_filter abd 4; }
         location /tail/ { rewrite ^/tail(/.*)$ $1 break; sub_filter abd 2; sub_filter abx 1; sub_filter b 3; }
         location /once/ { rewrite ^/once(/.*)$ $1 break; sub_filter_once on; sub_filter a 1; sub_filter b 2; }
         location /any/ { rewrite ^/any(/.*)$ $1 break; sub_filter_types *; sub_filter span 1; }
         location = /css { default_type 'text/css; a=b'; sub_filter a 1; return 200 aaa; }
         location = /js { default_type text/javascript; sub_filter a 1; return 200 aaa; }",
        &[
            ("GET /ab.html", "|1b1bd1B1b"),
            ("GET /first/ab.html", "|1c1d1C1"),
            ("GET /last/ab.html", "|21d2ab"),
            ("GET /tail/ab.html", "|a3c2A3Cab"),
            ("GET /once/ab.html", "|12cabdABCab"),
            ("GET /any/page.txt", "|1 one 1"),
            ("GET /page.txt", "sp1n"),
            ("GET /css", "aaa"),
            ("GET /js", "aaa"),
            ("GET /bin.html", "bdefg"),
        ],
    );
}

#[test]
fn texts_with_variables() {
    ask(
        "",
        "sub_filter_once off;
         location / { sub_filter $arg_a '[$arg_b$uri]'; }
         location /two/ { rewrite ^/two(/.*)$ $1 break; sub_filter $arg_a $arg_b; sub_filter x${arg_c} $arg_d; sub_filter one 1; }
         location /keep { sub_filter_last_modified on; rewrite ^/keep(/.*)$ $1 break; sub_filter span $arg_b; }
         location /weak { sub_filter_last_modified on; add_header ETag W/\\\"x\\\"; rewrite ^/weak(/.*)$ $1 break; sub_filter span a; }
         location /odd { sub_filter_last_modified on; add_header ETag x; rewrite ^/odd(/.*)$ $1 break; sub_filter span a; }",
        &[
            ("GET /page.html?a=SPAN&b=x", "|<[x/page.html]>one</[x/page.html]>"),
            ("GET /page.html?a=one&b=y", "[y/page.html]"),
            ("GET /page.html", "ETag="),
            ("GET /two/page.html?a=span&b=&c=x", "|<>1</> <>two</> three spa"),
            ("GET /two/page.html", "|<Span>1</span>"),
            ("GET /keep/page.html?b=Q", "ETag=W/"),
            ("GET /keep/page.html", "|<>one</>"),
            ("GET /weak/page.html", "|<a>"),
            ("GET /odd/page.html", "|<a>"),
        ],
    );
}

/// A few characters of KOI8-R.
const MAPS: &str = "charset_map koi8-r utf-8 { D0 D0BF; D2 D180; C9 D0B8; 95 E280A2; 80 E29480; }
     charset_map koi8-r windows-1251 { d0 ef; D2 f0; c9 E8; }";

#[test]
fn charset_names() {
    ask(
        "charset_map a b { }",
        "charset koi8-r;
         location / { }
         location /off/ { charset off; rewrite ^/off(/.*)$ $1 break; }
         location /var/ { charset $arg_c; rewrite ^/var(/.*)$ $1 break; }
         location /same/ { source_charset KOI8-R; rewrite ^/same(/.*)$ $1 break; }
         location /css/ { default_type text/css; return 200 x; }
         location /csstoo/ { charset_types text/css; default_type text/css; return 200 x; }
         location /plain/ { charset_types text/css; default_type text/plain; return 200 x; }
         location /none/ { types { } default_type ''; rewrite ^/none(/.*)$ $1 break; }
         location /moved { return 301 /x; }
         location /other { return 303 /x; }",
        &[
            ("GET /page.html", "Content-Type=text/html; charset=koi8-r Content-Length=43"),
            ("HEAD /page.html", "Content-Type=text/html; charset=koi8-r Content-Length=43"),
            ("GET /page.txt | Range: bytes=0-3", "charset=koi8-r"),
            ("GET /page.txt | Range: bytes=90-", "416"),
            ("GET /off/page.html", "Content-Type=text/html "),
            ("GET /var/page.html?c=x-y", "charset=x-y"),
            ("GET /same/page.html", "charset=koi8-r"),
            ("GET /css/", "text/css "),
            ("GET /csstoo/", "text/css; charset=koi8-r"),
            ("GET /plain/", "text/plain "),
            ("GET /none/page.html", "|<Span>"),
            ("GET /moved", "301"),
            ("GET /other", "303"),
            ("GET /gone", "404"),
        ],
    );
}

#[test]
fn charset_recoding() {
    ask(
        MAPS,
        "location /to/ { rewrite ^/to(/.*)$ $1 break; source_charset koi8-r; charset utf-8; }
         location /from/ { rewrite ^/from(/.*)$ $1 break; source_charset utf-8; charset koi8-r; }
         location /win/ { rewrite ^/win(/.*)$ $1 break; source_charset koi8-r; charset windows-1251; }
         location /back/ { rewrite ^/back(/.*)$ $1 break; source_charset windows-1251; charset koi8-r; }
         location /any/ { rewrite ^/any(/.*)$ $1 break; source_charset $arg_s; charset $arg_c; }",
        &[
            ("GET /to/koi.html", "charset=utf-8"),
            ("HEAD /to/koi.html", "charset=utf-8"),
            ("GET /to/page.html", "|<Span>one"),
            ("GET /to/bin.html", "charset=utf-8"),
            ("GET /from/utf.html", "|<p>\\xd0\\xd2\\xc9 &#8364; &#128512; x\\x95</p>"),
            ("GET /from/utf.html HTTP/1.0", "&#8364;"),
            ("GET /from/bad.html", "?"),
            ("GET /from/bin.html", "?"),
            ("GET /from/long.html", "line 3999"),
            ("GET /win/koi.html", "charset=windows-1251"),
            ("GET /win/koi.html | Range: bytes=3-4", "206"),
            ("GET /back/koi.html", "|<p>?"),
            ("GET /any/koi.html?s=koi8-r&c=UTF-8", "charset=UTF-8"),
            ("GET /any/koi.html?s=koi8-r&c=odd", "Content-Type=text/html "),
            ("GET /any/koi.html?s=Odd&c=oDD", "charset=oDD"),
        ],
    );
}

#[test]
fn addition() {
    ask(
        "",
        "location / { add_before_body /before; add_after_body /after; }
         location = /before { default_type text/html; return 200 '[before $uri]'; }
         location = /after { default_type text/html; return 200 '[after $uri $args]'; }
         location /only/ { rewrite ^/only(/.*)$ $1 break; add_after_body /after; }
         location /file/ { rewrite ^/file(/.*)$ $1 break; add_before_body /raw/long.html; add_after_body /raw/page.txt; }
         location /raw/ { rewrite ^/raw(/.*)$ $1 break; }
         location /gone/ { rewrite ^/gone(/.*)$ $1 break; add_before_body /raw/none; }
         location /types/ { rewrite ^/types(/.*)$ $1 break; addition_types text/plain; add_before_body /before; }
         location /sub/ { rewrite ^/sub(/.*)$ $1 break; add_before_body /raw/page.html; sub_filter one 1; sub_filter e E; }
         location /status/ { add_before_body /before; default_type text/html; return 201 x; }
         location /inherit/ { rewrite ^/inherit(/.*)$ $1 break; add_before_body /before;
             location /inherit/off/ { add_before_body ''; rewrite ^/inherit/off(/.*)$ $1 break; } }",
        &[
            ("GET /page.html?q", "|[before /before]<Span>one</Span>".trim_end_matches("<Span>one</Span>")),
            ("GET /page.html HTTP/1.0", "[after /after ]"),
            ("HEAD /page.html", "200"),
            ("GET /page.html | Range: bytes=0-3", "200"),
            ("GET /page.html | If-Modified-Since: Fri, 14 Jul 2017 02:40:00 GMT", "304"),
            ("GET /page.txt", "|span one span"),
            ("GET /empty.html", "[before /before][after /after ]"),
            ("GET /only/page.html", "spa[after /after ]"),
            ("GET /file/long.html", "</p>\\nspan one span"),
            ("GET /file/page.html", "span one span"),
            ("GET /gone/page.html", "404 Not Found"),
            ("GET /types/page.txt", "[before /before]span"),
            ("GET /types/page.html", "[before /before]<Span"),
            ("GET /sub/page.html", "|"),
            ("GET /status/", "|x"),
            ("GET /inherit/page.html", "[before"),
            ("GET /inherit/off/page.html", "|<Span"),
        ],
    );
}

/// An nginx with the module, where it is installed.
fn nginx_with_subs(conf: &str) -> Option<weir_test::TestServerBuilder> {
    let module = ["/usr/lib/nginx/modules", "/usr/lib64/nginx/modules"]
        .map(|directory| std::path::Path::new(directory).join("ngx_http_subs_filter_module.so"))
        .into_iter()
        .find(|path| path.exists());
    let nginx = std::path::Path::new("/usr/sbin/nginx");
    let Some(module) = module.filter(|_| nginx.exists()) else {
        weir_test::skip("nginx's subs_filter module is not installed");
        return None;
    };
    let conf = format!("load_module {}; {conf}", module.display());
    Some(weir_test::nginx(&conf)?.binary(nginx))
}

#[test]
fn subs_filter() {
    let location = |name: &str, inside: &str| {
        format!("location /{name}/ {{ rewrite ^/{name}(/.*)$ $1 break; {inside} }}\n")
    };
    let server = SUBS_LOCATIONS.iter().map(|(name, inside)| location(name, inside)).collect::<String>()
        + "location = /made { default_type text/html; subs_filter span div; return 201 'span'; }";
    ask_of(nginx_with_subs, "", &server, SUBS_REQUESTS);
}

/// Names of locations, and what is in them.
const SUBS_LOCATIONS: &[(&str, &str)] = &[
    ("fix", "subs_filter span div;"),
    ("once", "subs_filter span div o;"),
    ("case", "subs_filter span div i;"),
    ("dot", "subs_filter a. x i;"),
    ("odd", "subs_filter span div zq;"),
    ("group", "subs_filter 's(p)a(x)?n' '[$1$2:$uri]' ir;"),
    ("hat", "subs_filter '^.' '<' r; subs_filter 'l.ne' L r;"),
    ("end", "subs_filter '</p>$' '!' r;"),
    ("space", "subs_filter 'p>\\s' 'P' r; subs_filter '^<p' Q r;"),
    ("seq", "subs_filter span div; subs_filter div p; subs_filter '>p' '>' r; subs_filter 'p' q or;"),
    ("by", "subs_filter span div; subs_filter_bypass $arg_a $arg_b;"),
    ("var", "subs_filter span '$arg_a$uri'; subs_filter o $arg_none;"),
    ("name", "subs_filter $arg_a div;"),
    ("types", "subs_filter_types text/plain; subs_filter span div;"),
    ("all", "subs_filter_types *; subs_filter span div;"),
    ("none", "subs_filter nothing div;"),
    ("long", "subs_filter 'line (\\d+)' '$1' r;"),
];

/// Requests, and what is in their responses.
const SUBS_REQUESTS: &[(&str, &str)] = &[
    ("GET /fix/page.html", "|<Span>one"),
    ("HEAD /fix/page.html", "200"),
    ("GET /fix/page.html | Range: bytes=0-3", "200"),
    ("GET /fix/long.html", "<div class=n0>"),
    ("GET /fix/empty.html", "Content-Length=0"),
    ("GET /fix/page.txt", "|span one span"),
    ("GET /once/long.html", "<span class=n1>"),
    ("GET /case/page.html", "<div>one</div>"),
    ("GET /dot/ab.html", "|xcxdxCx"),
    ("GET /odd/page.html", "div"),
    ("GET /group/page.html", "[p:/page.html]"),
    ("GET /hat/ab.html", "|<"),
    ("GET /hat/long.html", "|<"),
    ("GET /end/long.html", "text!"),
    ("GET /space/long.html", "Q><span"),
    ("GET /seq/page.html", "q"),
    ("GET /by/page.html", "div"),
    ("GET /by/page.html?a=1", "<span>two"),
    ("GET /by/page.html?a=0&b=0", "div"),
    ("GET /by/page.html?b=x", "<span>two"),
    ("GET /var/page.html?a=A", "A/page.html"),
    ("GET /name/page.html?a=span", "<span>two"),
    ("GET /types/page.txt", "div one"),
    ("GET /all/page.txt", "div one"),
    ("GET /none/page.html", "|<Span>"),
    ("GET /long/long.html", "3999</SPAN>"),
    ("GET /fix/bin.html", "bcdef"),
    ("GET /made", "|div"),
];

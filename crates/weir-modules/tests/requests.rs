//! Modules that look at a request and say something about it, each table asked of Weir and of nginx: `geo`, `referer`,
//! `browser`, `secure_link`, `userid`, `auth_request`, `empty_gif`.

mod common;

use common::Site;
use weir_engine::ModuleDef;
use weir_engine::conf::{CORE_MODULES, with_core};
use weir_modules::{
    Access, AuthBasic, AuthRequest, Browser, EmptyGif, Geo, Headers, NotModified, Referer, Rewrite,
    SecureLink, TryFiles, UserId,
};
use weir_test::Response;

static MODULES: [ModuleDef; CORE_MODULES.len() + 13] = with_core(&[
    ModuleDef::of::<Geo>(),
    ModuleDef::of::<Referer>(),
    ModuleDef::of::<Browser>(),
    ModuleDef::of::<SecureLink>(),
    ModuleDef::of::<Rewrite>(),
    ModuleDef::of::<Access>(),
    ModuleDef::of::<AuthBasic>(),
    ModuleDef::of::<AuthRequest>(),
    ModuleDef::of::<TryFiles>(),
    ModuleDef::of::<EmptyGif>(),
    ModuleDef::of::<NotModified>(),
    ModuleDef::of::<Headers>(),
    ModuleDef::of::<UserId>(),
]);

/// What is compared of a response: status, the fields that modules here set, and what is no page of the server's own.
fn outline(response: &Response) -> String {
    let mut out = response.status.to_string();
    for name in ["Content-Type", "Last-Modified", "WWW-Authenticate", "P3P", "X"] {
        for value in response.all(name) {
            out += &format!(" {name}={value}");
        }
    }
    match response.status {
        200..=399 => out + "|" + &response.text(),
        _ => out,
    }
}

/// Asks Weir, and nginx where it is there; the responses are the same and, where one is given, this.
fn ask(http: &str, server: &str, requests: &[(&str, &str, &str)]) {
    let site = Site::with(&MODULES, http, server);
    for (path, fields, expected) in requests {
        let reported = outline(&site.get(path, fields));
        assert_eq!(reported, *expected, "weir: {path} {fields}");
    }
    let conf = format!(
        "events {{ }} http {{ {http} server {{ listen 127.0.0.1:%%PORT_0%%; absolute_redirect off; {server} }} }}"
    );
    let Some(builder) = weir_test::nginx(&conf) else { return };
    let nginx = builder.start();
    for (path, fields, expected) in requests {
        let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n");
        assert_eq!(outline(&nginx.client().request(request)), *expected, "nginx: {path} {fields}");
    }
}

#[test]
fn geo_by_networks() {
    ask(
        "geo $arg_ip $net { default other; 10.0.0.0/8 ten; 10.1.0.0/16 'ten one'; 10.1.2.3 host; 2001:db8::/32 doc;
            192.0.2.0/24 gone; delete 192.0.2.0/24; 255.255.255.255 nowhere; 010.2.0.0/16 twice; 10.2.0.0/16 second; }
         geo $own { 127.0.0.0/8 loop; }
         geo $none { 10.0.0.0/8 a; }",
        "default_type text/plain; location / { return 200 \"$net,$own,$none\"; }",
        &[
            ("/?ip=10.9.9.9", "", "200 Content-Type=text/plain|ten,loop,"),
            ("/?ip=10.1.9.9", "", "200 Content-Type=text/plain|ten one,loop,"),
            ("/?ip=10.1.2.3", "", "200 Content-Type=text/plain|host,loop,"),
            ("/?ip=10.1.2.4", "", "200 Content-Type=text/plain|ten one,loop,"),
            ("/?ip=10.2.2.4", "", "200 Content-Type=text/plain|second,loop,"),
            ("/?ip=192.0.2.1", "", "200 Content-Type=text/plain|other,loop,"),
            ("/?ip=2001:db8::7", "", "200 Content-Type=text/plain|doc,loop,"),
            ("/?ip=2001:db9::7", "", "200 Content-Type=text/plain|other,loop,"),
            ("/?ip=::ffff:10.1.2.3", "", "200 Content-Type=text/plain|host,loop,"),
            ("/?ip=none", "", "200 Content-Type=text/plain|nowhere,loop,"),
            ("/", "", "200 Content-Type=text/plain|nowhere,loop,"),
        ],
    );
}

#[test]
fn geo_by_ranges() {
    ask(
        "geo $arg_ip $net { ranges; default other; 10.0.0.0-10.9.255.255 ten; 10.1.0.0-10.1.255.255 'ten one';
            10.3.0.0-10.3.0.255 three; 10.3.0.0-10.3.0.255 again; 11.0.0.0-11.0.0.9 gone; delete 11.0.0.0-11.0.0.9; }",
        "default_type text/plain; location / { return 200 $net; }",
        &[
            ("/?ip=10.0.0.0", "", "200 Content-Type=text/plain|ten"),
            ("/?ip=10.1.0.0", "", "200 Content-Type=text/plain|ten one"),
            ("/?ip=10.2.0.0", "", "200 Content-Type=text/plain|ten"),
            ("/?ip=10.3.0.7", "", "200 Content-Type=text/plain|again"),
            ("/?ip=10.9.255.255", "", "200 Content-Type=text/plain|ten"),
            ("/?ip=10.10.0.0", "", "200 Content-Type=text/plain|other"),
            ("/?ip=11.0.0.1", "", "200 Content-Type=text/plain|other"),
            ("/?ip=::1", "", "200 Content-Type=text/plain|other"),
            ("/?ip=x", "", "200 Content-Type=text/plain|other"),
        ],
    );
}

#[test]
fn geo_behind_proxies() {
    ask(
        "geo $one { default other; proxy 127.0.0.1; 192.0.2.0/24 client; 10.0.0.0/8 proxy; }
         geo $many { default other; proxy 127.0.0.1; proxy 10.0.0.0/8; proxy_recursive; 192.0.2.0/24 client; 10.0.0.0/8 proxy; }",
        "default_type text/plain; location / { return 200 $one,$many; }",
        &[
            ("/", "", "200 Content-Type=text/plain|other,other"),
            ("/", "X-Forwarded-For: 192.0.2.1\r\n", "200 Content-Type=text/plain|client,client"),
            ("/", "X-Forwarded-For: 192.0.2.1, 10.0.0.1\r\n", "200 Content-Type=text/plain|proxy,client"),
            ("/", "X-Forwarded-For: x\r\n", "200 Content-Type=text/plain|other,other"),
        ],
    );
}

#[test]
fn referers() {
    ask(
        "",
        "server_name www.own.test *.wild.test; default_type text/plain;
         valid_referers none blocked server_names a.test *.b.test c.*/path ~\\.d\\.;
         location / { return 200 \"[$invalid_referer]\"; }
         location /names { valid_referers only.test; return 200 \"[$invalid_referer]\"; }",
        &[
            ("/", "", "200 Content-Type=text/plain|[]"),
            ("/", "Referer: secret words here\r\n", "200 Content-Type=text/plain|[]"),
            ("/", "Referer: http://a.test/x\r\n", "200 Content-Type=text/plain|[]"),
            ("/", "Referer: HTTPS://A.TEST:81\r\n", "200 Content-Type=text/plain|[]"),
            ("/", "Referer: http://x.b.test/x\r\n", "200 Content-Type=text/plain|[]"),
            ("/", "Referer: http://b.test.other/x\r\n", "200 Content-Type=text/plain|[1]"),
            ("/", "Referer: http://c.x/path/y\r\n", "200 Content-Type=text/plain|[]"),
            ("/", "Referer: http://c.x:80/other\r\n", "200 Content-Type=text/plain|[1]"),
            ("/", "Referer: http://www.own.test/\r\n", "200 Content-Type=text/plain|[]"),
            ("/", "Referer: http://x.wild.test/\r\n", "200 Content-Type=text/plain|[]"),
            ("/", "Referer: http://e.D.test/\r\n", "200 Content-Type=text/plain|[]"),
            ("/names", "Referer: http://only.test/\r\n", "200 Content-Type=text/plain|[]"),
            ("/names", "Referer: http://a.test/\r\n", "200 Content-Type=text/plain|[1]"),
            ("/names", "Referer: http://x.d.test/\r\n", "200 Content-Type=text/plain|[]"),
            ("/names", "", "200 Content-Type=text/plain|[1]"),
        ],
    );
}

#[test]
fn browsers() {
    ask(
        "",
        "default_type text/plain; modern_browser gecko 1.8; modern_browser msie 6.0; modern_browser_value new;
         ancient_browser Lynx;
         location / { return 200 \"$modern_browser,$ancient_browser,$msie\"; }
         location /unlisted { modern_browser unlisted; ancient_browser_value old; return 200 \"$modern_browser,$ancient_browser\"; }",
        &[
            ("/", "", "200 Content-Type=text/plain|,1,"),
            ("/", "User-Agent: Mozilla/4.0 (compatible; MSIE 6.0; Windows)\r\n", "200 Content-Type=text/plain|new,,1"),
            ("/", "User-Agent: Mozilla/4.0 (compatible; MSIE 5.0; Windows)\r\n", "200 Content-Type=text/plain|,1,1"),
            ("/", "User-Agent: Mozilla/5.0 (X11; U; rv:1.8.1) Gecko\r\n", "200 Content-Type=text/plain|new,,"),
            ("/", "User-Agent: Opera/9.01 (X11)\r\n", "200 Content-Type=text/plain|,1,"),
            ("/unlisted", "User-Agent: x\r\n", "200 Content-Type=text/plain|new,"),
            ("/unlisted", "User-Agent: Lynx/2\r\n", "200 Content-Type=text/plain|,old"),
        ],
    );
}

#[test]
fn links_that_were_signed() {
    ask(
        "",
        "default_type text/plain;
         location /text { secure_link $arg_md5,$arg_e; secure_link_md5 'secret/text$secure_link_expires';
             return 200 \"[$secure_link][$secure_link_expires]\"; }
         location /plain { secure_link $arg_md5; secure_link_md5 secret; return 200 \"[$secure_link]\"; }
         location /p/ { secure_link_secret word; return 200 \"[$secure_link]\"; }
         location /none { return 200 \"[$secure_link]\"; }",
        &[
            (
                "/text?md5=p0d-RX7Vm_X5sMFEB52HhQ&e=2147483647",
                "",
                "200 Content-Type=text/plain|[1][2147483647]",
            ),
            ("/text?md5=ePdrjMsNZNe2CLNRNrQJYQ&e=1", "", "200 Content-Type=text/plain|[0][1]"),
            ("/text?md5=fPdrjMsNZNe2CLNRNrQJYQ&e=1", "", "200 Content-Type=text/plain|[][1]"),
            ("/text?md5=ePdrjMsNZNe2CLNRNrQJYQ&e=x", "", "200 Content-Type=text/plain|[][]"),
            ("/plain?md5=Xr4ilOzQ4PCOq3aQ0qbuaQ", "", "200 Content-Type=text/plain|[1]"),
            ("/plain?md5=Xr4ilOzQ4PCOq3aQ0qbuaQ==", "", "200 Content-Type=text/plain|[1]"),
            ("/plain?md5=Xr4ilOzQ4PCOq3aQ0qbuaQ===", "", "200 Content-Type=text/plain|[]"),
            ("/plain?md5=Xr4ilOzQ4PCOq3aQ0qbuaR", "", "200 Content-Type=text/plain|[1]"),
            ("/plain?md5=Xr4il", "", "200 Content-Type=text/plain|[]"),
            ("/p/29245bdc2d04a9e0e729927ed0f84e26/link", "", "200 Content-Type=text/plain|[link]"),
            ("/p/29245BDC2d04a9e0e729927ed0f84e26/link", "", "200 Content-Type=text/plain|[link]"),
            ("/p/29245bdc2d04a9e0e729927ed0f84e26/link?x", "", "200 Content-Type=text/plain|[]"),
            ("/p/x/link", "", "200 Content-Type=text/plain|[]"),
            ("/none", "", "200 Content-Type=text/plain|[]"),
        ],
    );
}

#[test]
fn a_picture_of_one_pixel() {
    let last = "Last-Modified=Mon, 28 Sep 1970 06:00:00 GMT";
    let site = Site::new(&MODULES, "location / { empty_gif; }");
    let response = site.get("/", "");
    assert_eq!((response.status, response.body.len()), (200, 43));
    assert!(response.body.starts_with(b"GIF89a") && response.body.ends_with(b";"));
    let body = response.text();
    ask(
        "",
        "location / { empty_gif; }",
        &[
            ("/", "", &format!("200 Content-Type=image/gif {last}|{body}")),
            ("/", "If-Modified-Since: Mon, 28 Sep 1970 06:00:00 GMT\r\n", &format!("304 {last}|")),
        ],
    );
}

#[test]
fn a_subrequest_decides_who_gets_in() {
    ask(
        "",
        "default_type text/plain;
         location /ok { auth_request /ok-auth; auth_request_set $told '$v $request_uri $uri'; try_files /none @in; }
         location @in { return 200 \"in $told $arg_s\"; }
         location = /ok-auth { set $v told; return 204; }
         location /any { satisfy any; allow 127.0.0.1; auth_request /no; try_files /none @in; }
         location /any2 { satisfy any; deny all; auth_request /ok-auth; try_files /none @in; }
         location /no { return 403; }
         location /401 { auth_request /ask; }
         location = /ask { return 401; }
         location /500 { auth_request /404; }
         location /off { auth_request /no; location /off/on { auth_request off; return 200 on; } }",
        &[
            ("/ok", "", "200 Content-Type=text/plain|in told /ok /ok-auth "),
            ("/any", "", "200 Content-Type=text/plain|in  "),
            ("/any2?s=1", "", "200 Content-Type=text/plain|in  1"),
            ("/401", "", "401 Content-Type=text/html"),
            ("/500", "", "500 Content-Type=text/html"),
            ("/off", "", "403 Content-Type=text/html"),
            ("/off/on", "", "200 Content-Type=text/plain|on"),
        ],
    );
}

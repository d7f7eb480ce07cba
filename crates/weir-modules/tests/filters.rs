//! What filters make of responses: conditional requests, ranges, added fields; and `return`.

mod common;

use common::Site;
use weir_engine::ModuleDef;
use weir_engine::conf::{CORE_MODULES, with_core};
use weir_modules::{Headers, Index, NotModified, Range, Rewrite, Static};
use weir_test::{Client, Response};

static MODULES: [ModuleDef; CORE_MODULES.len() + 6] = with_core(&[
    ModuleDef::of::<Rewrite>(),
    ModuleDef::of::<Index>(),
    ModuleDef::of::<Static>(),
    ModuleDef::of::<NotModified>(),
    ModuleDef::of::<Headers>(),
    ModuleDef::of::<Range>(),
]);

fn site(inside: &str) -> Site {
    Site::new(&MODULES, inside)
}

fn head(site: &Site, path: &str, fields: &str) -> Response {
    let mut client = Client::connect(site.address);
    client.send(format!("HEAD {path} HTTP/1.1\r\nHost: h\r\n{fields}\r\n"));
    client.response_to_head()
}

/// The names of the fields, in order.
fn names(response: &Response) -> Vec<&str> {
    response.fields.iter().map(|(name, _)| name.as_str()).collect()
}

#[test]
fn conditional_requests() {
    let site =
        site("location /off { if_modified_since off; } location /before { if_modified_since before; }");
    for name in ["f", "off", "before"] {
        site.write(name, "hello");
    }
    let whole = site.get("/f", "");
    let tag = whole.field("ETag").expect("a file has a tag").to_owned();
    let date = whole.field("Last-Modified").expect("a file has a time").to_owned();
    let later = "Fri, 31 Dec 2100 23:59:59 GMT";
    for (path, fields, status) in [
        ("/f", format!("If-None-Match: {tag}\r\n"), 304),
        ("/f", format!("If-None-Match: \"x\", W/{tag}\r\n"), 304),
        ("/f", "If-None-Match: *\r\n".to_owned(), 304),
        ("/f", "If-None-Match: \"x\"\r\n".to_owned(), 200),
        ("/f", format!("If-Modified-Since: {date}\r\n"), 304),
        ("/f", format!("If-Modified-Since: {later}\r\n"), 200),
        ("/f", format!("If-Modified-Since: {date}\r\nIf-None-Match: \"x\"\r\n"), 200),
        ("/before", format!("If-Modified-Since: {later}\r\n"), 304),
        ("/off", format!("If-Modified-Since: {later}\r\n"), 200),
        ("/f", format!("If-Match: {tag}\r\n"), 200),
        ("/f", "If-Match: \"x\"\r\n".to_owned(), 412),
        ("/f", format!("If-Unmodified-Since: {date}\r\n"), 200),
        ("/f", "If-Unmodified-Since: Thu, 01 Jan 1970 00:00:01 GMT\r\n".to_owned(), 412),
        ("/gone", "If-None-Match: *\r\n".to_owned(), 404),
    ] {
        assert_eq!(site.get(path, &fields).status, status, "{path} {fields}");
    }
    let response = site.get("/f", &format!("If-None-Match: {tag}\r\n"));
    assert_eq!(names(&response), ["Server", "Date", "Last-Modified", "Connection", "ETag"]);
    let response = site.get("/f", "If-Match: \"x\"\r\n");
    assert_eq!(response.field("Content-Type"), Some("text/html"));
    assert_eq!(response.field("ETag"), None);
    assert!(response.text().contains("<h1>412 Precondition Failed</h1>"), "{}", response.text());
}

#[test]
fn single_ranges() {
    let site = site("location /none { max_ranges 0; }");
    let large: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
    site.write("large", &large);
    site.write("f", "0123456789");
    site.write("none", "0123456789");
    let whole = site.get("/f", "");
    assert_eq!((whole.status, whole.field("Accept-Ranges")), (200, Some("bytes")));
    for (range, content_range, body) in [
        ("bytes=0-4", "bytes 0-4/10", "01234"),
        ("bytes=5-", "bytes 5-9/10", "56789"),
        ("bytes=-3", "bytes 7-9/10", "789"),
        ("BYTES= 9 - 100 ", "bytes 9-9/10", "9"),
    ] {
        let response = site.get("/f", &format!("Range: {range}\r\n"));
        assert_eq!((response.status, response.text().as_str()), (206, body), "{range}");
        assert_eq!(response.field("Content-Range"), Some(content_range));
        assert_eq!(response.field("Content-Length"), Some(body.len().to_string().as_str()));
        assert_eq!(response.field("Accept-Ranges"), None);
    }
    for path in ["/f", "/none"] {
        for range in ["bytes=", "lines=0-4", "bytes=0-9,0-9"] {
            assert_eq!(site.get(path, &format!("Range: {range}\r\n")).status, 200, "{path} {range}");
        }
    }
    let none = site.get("/none", "Range: bytes=0-4\r\n");
    assert_eq!((none.status, none.field("Accept-Ranges")), (200, None));
    let response = site.get("/large", "Range: bytes=3-399998\r\n");
    assert!(response.status == 206 && response.body == large[3..399_999]);
    let response = head(&site, "/f", "Range: bytes=0-4\r\n");
    assert_eq!((response.status, response.field("Content-Length")), (206, Some("5")));
}

#[test]
fn ranges_that_are_not_there() {
    let site = site("add_header X 1 always; add_header Y 2;");
    site.write("f", "0123456789");
    for range in ["bytes=10-", "bytes=x", "bytes=5-4"] {
        let response = site.get("/f", &format!("Range: {range}\r\n"));
        assert_eq!((response.status, response.field("Content-Range")), (416, Some("bytes */10")), "{range}");
        assert_eq!((response.field("ETag"), response.field("Last-Modified")), (None, None));
        assert_eq!((response.all("X"), response.all("Y")), (vec!["1"], vec!["2"]));
        assert!(response.text().contains("416 Requested Range Not Satisfiable"), "{}", response.text());
    }
}

#[test]
fn several_ranges() {
    let site = site("types { text/plain txt; } location /two { max_ranges 2; }");
    site.write("f.txt", "0123456789");
    site.write("two", "0123456789");
    let response = site.get("/f.txt", "Range: bytes=6-8,0-1\r\n");
    assert_eq!(response.status, 206);
    let kind = response.field("Content-Type").expect("a type").to_owned();
    let boundary = kind.strip_prefix("multipart/byteranges; boundary=").expect("a boundary");
    assert_eq!(boundary.len(), 20);
    let head = format!("\r\n--{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes ");
    let body = format!("{head}6-8/10\r\n\r\n678{head}0-1/10\r\n\r\n01\r\n--{boundary}--\r\n");
    assert_eq!(response.text(), body);
    assert_eq!(response.field("Content-Range"), None);
    assert_eq!(site.get("/two", "Range: bytes=0-0,2-2\r\n").status, 206);
    assert_eq!(site.get("/two", "Range: bytes=0-0,2-2,4-4\r\n").status, 200);
}

#[test]
fn ranges_on_condition() {
    let site = site("");
    site.write("f", "0123456789");
    let whole = site.get("/f", "");
    let tag = whole.field("ETag").expect("a tag").to_owned();
    let date = whole.field("Last-Modified").expect("a time").to_owned();
    for (condition, status) in
        [(&*tag, 206), (&*date, 206), ("\"x\"", 200), ("Thu, 01 Jan 1970 00:00:01 GMT", 200), ("", 200)]
    {
        let response = site.get("/f", &format!("Range: bytes=0-4\r\nIf-Range: {condition}\r\n"));
        assert_eq!(response.status, status, "{condition}");
    }
}

#[test]
fn fields_are_added() {
    let site = site(
        "add_header X $arg_x; add_header Y y always; add_header etag '\"mine\"'; add_header Cache-Control a;
        add_header Cache-Control b; expires 1h;
        location /date { add_header Last-Modified 'Sun, 06 Nov 1994 08:49:37 GMT'; }
        location /text { add_header Last-Modified yesterday; }
        location /clear { add_header Last-Modified ''; add_header ETag ''; }
        location = /return { return 404 no; }",
    );
    for name in ["f", "date", "text", "clear"] {
        site.write(name, "hello");
    }
    let response = site.get("/f?x=1", "");
    assert_eq!((response.all("X"), response.all("Y")), (vec!["1"], vec!["y"]));
    assert_eq!(response.all("ETag"), ["\"mine\""]);
    assert_eq!(response.all("Cache-Control"), ["max-age=3600", "a", "b"]);
    assert_eq!(site.get("/f", "").field("X"), None);
    let response = site.get("/gone?x=1", "");
    assert_eq!(
        (response.field("X"), response.field("Y"), response.field("Expires")),
        (None, Some("y"), None)
    );
    let response = site.get("/return?x=1", "");
    assert_eq!((response.status, response.field("X"), response.field("Y")), (404, None, Some("y")));
    let response = site.get("/f?x=1", "If-None-Match: *\r\n");
    assert_eq!((response.status, response.field("X")), (304, Some("1")));
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    assert_eq!(site.get("/date", "").all("Last-Modified"), [date]);
    let part = site.get("/date", &format!("Range: bytes=0-1\r\nIf-Range: {date}\r\n"));
    assert_eq!(part.status, 206);
    assert_eq!(site.get("/text", "").all("Last-Modified"), ["yesterday"]);
    let response = site.get("/clear", "");
    assert_eq!((response.field("Last-Modified"), response.field("ETag")), (None, None));
}

#[test]
fn expires_in_all_its_forms() {
    let site = site(
        "location /epoch { expires epoch; } location /max { expires max; } location /off { expires off; }
        location /zero { expires 0; } location /past { expires -1; } location /daily { expires @15h30m; }
        location /modified { expires modified 1d; } location /variable { expires $arg_e; }",
    );
    for name in ["epoch", "max", "off", "zero", "past", "daily", "modified", "variable"] {
        site.write(name, "x");
    }
    for (path, expires, control) in [
        ("/epoch", Some("Thu, 01 Jan 1970 00:00:01 GMT"), Some("no-cache")),
        ("/max", Some("Thu, 31 Dec 2037 23:55:55 GMT"), Some("max-age=315360000")),
        ("/off", None, None),
        ("/variable?e=epoch", Some("Thu, 01 Jan 1970 00:00:01 GMT"), Some("no-cache")),
        ("/variable?e=nonsense", None, None),
        ("/variable?e=off", None, None),
        ("/variable", None, None),
    ] {
        let response = site.get(path, "");
        assert_eq!(
            (response.field("Expires"), response.field("Cache-Control")),
            (expires, control),
            "{path}"
        );
    }
    let zero = site.get("/zero", "");
    assert_eq!((zero.field("Expires"), zero.field("Cache-Control")), (zero.field("Date"), Some("max-age=0")));
    assert_eq!(site.get("/past", "").field("Cache-Control"), Some("no-cache"));
    let ends =
        |path: &str, text: &str| site.get(path, "").field("Expires").is_some_and(|e| e.ends_with(text));
    assert!(ends("/modified", " GMT"));
    assert!(site.get("/daily", "").field("Cache-Control").is_some_and(|c| c.starts_with("max-age=")));
}

#[test]
fn trailers_follow_the_body() {
    let site = site("add_trailer X $body_bytes_sent; add_trailer Y ''; add_trailer Z always always;");
    site.write("f", "hello");
    let response = site.get("/f", "");
    assert_eq!(
        (response.field("Transfer-Encoding"), response.field("Content-Length")),
        (Some("chunked"), None)
    );
    assert_eq!(response.text(), "hello");
    let trailers: Vec<_> = response.trailers.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(trailers.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["X", "Z"]);
    let response = site.get("/gone", "");
    assert_eq!(response.trailers, [("Z".to_owned(), "always".to_owned())]);
    let response = head(&site, "/f", "");
    assert_eq!((response.field("Transfer-Encoding"), response.field("Content-Length")), (None, Some("5")));
    let old = Client::connect(site.address).request("GET /f HTTP/1.0\r\n\r\n");
    assert_eq!((old.field("Content-Length"), old.text().as_str()), (Some("5"), "hello"));
}

#[test]
fn return_answers() {
    let site = site(
        "types { application/json json; } default_type text/x; error_page 403 /own; error_page 410 =200 /own;
        location = /own { return 200 own; }
        location /text { return 200 \"$uri $args\"; } location /empty { return 200; }
        location /none { return 204; } location /moved { return 301 /to$uri; } location /far { return https://h/x; }
        location /error { return 404; } location /page { return 403; } location /page_text { return 403 no; }
        location /redirected { return 410; } location /drop { return 444; } location /odd { return 599 odd; }",
    );
    for (path, status, kind, body) in [
        ("/text.json?a=b", 200, Some("application/json"), "/text.json a=b"),
        ("/text", 200, Some("text/x"), "/text "),
        ("/empty", 200, Some("text/x"), ""),
        ("/none", 204, None, ""),
        ("/page", 403, Some("text/x"), "own"),
        ("/page_text", 403, Some("text/x"), "no"),
        ("/redirected", 200, Some("text/x"), "own"),
        ("/odd", 599, Some("text/x"), "odd"),
    ] {
        let response = site.get(path, "");
        assert_eq!((response.status, response.field("Content-Type")), (status, kind), "{path}");
        assert_eq!(response.text(), body, "{path}");
    }
    assert_eq!(site.get("/empty", "").field("Content-Length"), Some("0"));
    for (path, status, location) in [("/moved", 301, "/to/moved"), ("/far", 302, "https://h/x")] {
        let response = site.get(path, "");
        assert_eq!((response.status, response.field("Location")), (status, Some(location)));
        assert_eq!(response.field("Content-Type"), Some("text/html"));
        assert!(response.text().contains(&format!("<h1>{status} ")), "{}", response.text());
    }
    assert!(site.get("/error", "").text().contains("<h1>404 Not Found</h1>"));
    let mut client = Client::connect(site.address);
    client.send("GET /drop HTTP/1.1\r\nHost: h\r\n\r\n").expect_close();
}

#[test]
fn return_of_a_server_comes_before_its_locations() {
    let site = site("return 200 server; location / { return 200 location; }");
    assert_eq!(site.get("/x", "").text(), "server");
}

/// The page of a status that an `error_page` turned into 200 is judged by the filters again: it must not be taken
/// for a 200 then, or they refuse it for ever.
#[test]
fn what_a_filter_refuses_ends_with_its_page() {
    let site = site(
        "error_page 412 =200 /own; location = /own { return 200 own; } location = /again { error_page 416 =200 /f; }",
    );
    site.write("f", "0123456789");
    site.write("again", "0123456789");
    assert_eq!(site.get("/f", "If-Match: \"x\"\r\n").status, 412);
    assert_eq!(site.get("/again", "Range: bytes=20-\r\n").status, 416);
}

#[test]
fn an_address_comes_with_the_other_fields_and_a_completed_path_before_them() {
    let site = site(
        "location /far { return 301 http://h/; } location /path { return 301 /x; }
        location /completed { absolute_redirect on; return 301 /x; }",
    );
    let before = ["Server", "Date", "Content-Type", "Content-Length"];
    for (path, after) in [
        ("/far", ["Connection", "Location"]),
        ("/path", ["Connection", "Location"]),
        ("/completed", ["Location", "Connection"]),
    ] {
        let response = site.get(path, "");
        assert_eq!(names(&response), [&before[..], &after].concat(), "{path}");
    }
}

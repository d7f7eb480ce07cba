//! Every rule for what is compressed, against nginx.

use weir_test::both_drivers;

use crate::compress::sides::Sides;

const CONF: &str = r#"
events { }
http {
    types { text/html html; text/css css; text/plain txt; application/json json; }
    default_type application/octet-stream;
    server_tokens off;
    port_in_redirect off;
    gzip on;
    gzip_vary on;
    gzip_disable "old robot" msie6;
    server {
        listen 127.0.0.1:%%PORT_0%%;
        root %%DIR%%/html;
        error_page 410 /page.html;
        location / { }
        location /plain/ { alias %%DIR%%/html/; gzip off; }
        location /no_vary/ { alias %%DIR%%/html/; gzip_vary off; }
        location /types/ { alias %%DIR%%/html/; gzip_types text/plain Application/JSON; }
        location /every/ { alias %%DIR%%/html/; gzip_types *; }
        location /long/ { alias %%DIR%%/html/; gzip_min_length 1000; }
        location /old/ { alias %%DIR%%/html/; gzip_http_version 1.0; }
        location /if/ { alias %%DIR%%/html/; gzip off; if ($arg_gzip) { gzip on; } }
        location /small_window/ { alias %%DIR%%/html/; gzip_window 1k; gzip_hash 1k; gzip_comp_level 9; }
        location /postponed/ { alias %%DIR%%/html/; postpone_gzipping 100k; gzip_no_buffer on; }
        location /no_etag/ { alias %%DIR%%/html/; etag off; }
        location /bad_tag/ { alias %%DIR%%/html/; add_header ETag not-quoted; }
        location /weak_tag/ { alias %%DIR%%/html/; add_header ETag W/"weak"; }
        location /text { default_type text/html; return 200 "a text that is longer than twenty bytes\n"; }
        location /short { default_type text/html; return 200 "exactly 19 bytes..."; }
        location /twenty { default_type text/html; return 200 "exactly 20 bytes...."; }
        location /nothing { default_type text/html; return 200; }
        location /created { default_type text/html; return 201 "a text that is longer than twenty bytes\n"; }
        location /forbidden { return 403; }
        location /gone { return 410; }
        location /failed { return 500; }
        location /moved { return 301 /text; }
        location /no_content { return 204; }

        location /any/ { alias %%DIR%%/html/; gzip_proxied any; }
        location /auth/ { alias %%DIR%%/html/; gzip_proxied auth; }
        location /no_lm/ { alias %%DIR%%/html/; gzip_proxied no_last_modified; }
        location /no_lm_set/ { alias %%DIR%%/html/; gzip_proxied no_last_modified; add_header Last-Modified "Tue, 14 Nov 2023 22:13:20 GMT"; }
        location /no_tag/ { alias %%DIR%%/html/; gzip_proxied no_etag; }
        location /no_tag_off/ { alias %%DIR%%/html/; gzip_proxied no_etag; etag off; }
        location /expired/ { alias %%DIR%%/html/; gzip_proxied expired; expires -1; }
        location /expires/ { alias %%DIR%%/html/; gzip_proxied expired; expires 1h; }
        location /expires_other/ { alias %%DIR%%/html/; gzip_proxied no-cache private no-store; expires -1; }
        location /expired_none/ { alias %%DIR%%/html/; gzip_proxied expired; }
        location /no_cache/ { alias %%DIR%%/html/; gzip_proxied no-cache; add_header Cache-Control "max-age=3, no-cache"; }
        location /no_cache_not/ { alias %%DIR%%/html/; gzip_proxied no-cache; add_header Cache-Control no-cached; }
        location /no_cache_value/ { alias %%DIR%%/html/; gzip_proxied no-cache; add_header Cache-Control no-cache=x; }
        location /no_store/ { alias %%DIR%%/html/; gzip_proxied no-store; add_header Cache-Control NO-STORE; }
        location /private/ { alias %%DIR%%/html/; gzip_proxied private; add_header Cache-Control private; }
        location /private_not/ { alias %%DIR%%/html/; gzip_proxied no-cache no-store; add_header Cache-Control private; }
        location /several/ { alias %%DIR%%/html/; gzip_proxied no-cache; gzip_proxied private; add_header Cache-Control private; }
    }
}
"#;

/// Requests; fields follow ` | `. `gz` at the end means `Accept-Encoding: gzip`.
const REQUESTS: &str = "
    GET /page.html
    GET /page.html gz
    HEAD /page.html gz
    HEAD /page.html
    GET /page.html | Accept-Encoding: gzip, deflate, br
    GET /page.html | Accept-Encoding: deflate, GZip;q=0.5
    GET /page.html | Accept-Encoding: gzip;q=0
    GET /page.html | Accept-Encoding: gzip;q=0.000
    GET /page.html | Accept-Encoding: gzip;q=1.5
    GET /page.html | Accept-Encoding: gzip;q=0.0005
    GET /page.html | Accept-Encoding: gzip ; q=1.0
    GET /page.html | Accept-Encoding: gzip;level=3
    GET /page.html | Accept-Encoding: x-gzip
    GET /page.html | Accept-Encoding: *
    GET /page.html | Accept-Encoding: br
    GET /page.html | Accept-Encoding:
    GET /page.html | Accept-Encoding: identity | Accept-Encoding: gzip
    GET /page.html | Accept-Encoding: gzip | Accept-Encoding: identity
    GET /page.html HTTP/1.0 gz
    GET /old/page.html HTTP/1.0 gz
    HEAD /old/page.html HTTP/1.0 gz
    GET /page.html gz | User-Agent: an Old Robot 1.0
    GET /page.html gz | User-Agent: Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.0)
    GET /page.html gz | User-Agent: Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1; SV1)
    GET /page.html gz | User-Agent: Mozilla/4.0 (compatible; MSIE 7.0; Windows NT 5.1)
    GET /page.html gz | Range: bytes=0-9
    GET /page.html | Range: bytes=0-9
    GET /page.html gz | If-Modified-Since: Tue, 14 Nov 2023 22:13:20 GMT
    GET /page.html gz | If-None-Match: *
    GET /page.html gz | If-None-Match: W/\"6553f130-fa00\"
    GET /page.html gz | If-None-Match: \"6553f130-fa00\"
    GET /page.html gz | If-Match: W/\"6553f130-fa00\"
    GET /style.css gz
    GET /data.json gz
    GET /noext gz
    GET /plain/page.html gz
    GET /no_vary/page.html gz
    GET /no_vary/page.html
    GET /types/page.html gz
    GET /types/note.txt gz
    GET /types/data.json gz
    GET /types/style.css gz
    GET /every/style.css gz
    GET /every/noext gz
    GET /every/empty.html gz
    GET /long/page.html gz
    GET /long/note.txt gz
    GET /long/short.html gz
    GET /if/page.html gz
    GET /if/page.html?gzip=1 gz
    GET /small_window/page.html gz
    GET /postponed/page.html gz
    GET /no_etag/page.html gz
    GET /bad_tag/page.html gz
    GET /weak_tag/page.html gz
    GET /text gz
    HEAD /text gz
    GET /text HTTP/1.0 gz
    GET /short gz
    GET /twenty gz
    GET /nothing gz
    GET /created gz
    GET /forbidden gz
    GET /gone gz
    GET /failed gz
    GET /moved gz
    GET /no_content gz
    GET /missing gz
    GET /missing
    POST /page.html gz | Content-Length: 0
    GET /page.html gz | Via: 1.1 proxy
    GET /page.html | Via: 1.1 proxy
    GET /any/page.html gz | Via: 1.1 proxy
    GET /auth/page.html gz | Via: 1.1 proxy | Authorization: Basic eDp5
    GET /auth/page.html gz | Via: 1.1 proxy
    GET /no_lm/page.html gz | Via: 1.1 proxy
    GET /no_lm_set/page.html gz | Via: 1.1 proxy
    GET /no_tag/page.html gz | Via: 1.1 proxy
    GET /no_tag_off/page.html gz | Via: 1.1 proxy
    GET /expired/page.html gz | Via: 1.1 proxy
    GET /expires/page.html gz | Via: 1.1 proxy
    GET /expires_other/page.html gz | Via: 1.1 proxy
    GET /expired_none/page.html gz | Via: 1.1 proxy
    GET /no_cache/page.html gz | Via: 1.1 proxy
    GET /no_cache_not/page.html gz | Via: 1.1 proxy
    GET /no_cache_value/page.html gz | Via: 1.1 proxy
    GET /no_store/page.html gz | Via: 1.1 proxy
    GET /private/page.html gz | Via: 1.1 proxy
    GET /private_not/page.html gz | Via: 1.1 proxy
    GET /several/page.html gz | Via: 1.1 proxy
";

both_drivers! {
    /// Heads are equal, bodies mean the same.
    fn gzip_is_used_where_nginx_uses_it(driver) {
        let sides = Sides::start(driver, CONF, crate::compress::sides::files);
        for line in REQUESTS.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let request = match line.split_once(" gz") {
                Some((before, behind)) if behind.is_empty() || behind.starts_with(" |") => {
                    format!("{before} | Accept-Encoding: gzip{behind}")
                }
                _ => line.to_owned(),
            };
            sides.ask(&request);
        }
        sides.assert_same();
        assert_eq!(sides.ask("GET /page.html | Accept-Encoding: gzip").field("content-encoding"), Some("gzip"));
    }
}

#[test]
fn wrong_lines_are_refused_in_nginx_words() {
    for (line, message) in [
        ("gzip_comp_level 0", "value must be between 1 and 9"),
        ("gzip_window 3k", "\"gzip_window\" directive must be 512, 1k, 2k, 4k, 8k, 16k, or 32k"),
        ("gzip_hash 256k", "\"gzip_hash\" directive must be 512, 1k, 2k, 4k, 8k, 16k, 32k, 64k, or 128k"),
        ("gzip_window 1k; gzip_window 1k", "\"gzip_window\" directive is duplicate"),
        ("gzip_http_version 2.0", "invalid value \"2.0\""),
        ("gzip_proxied sometimes", "invalid value \"sometimes\""),
        ("gzip_types text/html", "duplicate MIME type \"text/html\""),
        ("gzip_buffers 0 8k", "\"gzip_buffers\" directive invalid value"),
    ] {
        let conf = format!("events {{ }} http {{ {line}; server {{ listen 127.0.0.1:%%PORT_0%%; }} }}");
        let said = |builder: weir_test::TestServerBuilder| builder.run(&["-t"]).to_string();
        let ours = said(weir_test::Server::builder(&conf));
        assert!(ours.contains(message), "{line}: {ours}");
        if let Some(nginx) = weir_test::nginx(&conf) {
            let theirs = said(nginx);
            assert!(theirs.contains(message), "{line}: {theirs}");
        }
    }
}

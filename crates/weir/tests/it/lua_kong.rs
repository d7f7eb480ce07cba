//! What Kong's nginx is built with: the directives, variables and C functions of lua-kong-nginx-module. And APIcast's: the C
//! functions of apicast-nginx-module, which do a part of the same.
//!
//! The functions are declared and called as that module's Lua does it; none of it is needed here.

use crate::support::tls as support;

use support::{Pair, TlsClient, authority, client, own};
use weir_test::{Backend, Server, TestServerBuilder, both_drivers};

/// Declarations, and the names by which scripts here call.
const KONG: &str = r#"
local ffi = require "ffi"
local base = require "resty.core.base"
ffi.cdef [[
int ngx_http_lua_kong_ffi_set_grpc_authority(ngx_http_request_t *r, const char *buf, size_t buf_len);
int ngx_http_lua_kong_ffi_set_dynamic_log_level(int log_level, int timeout);
int ngx_http_lua_kong_ffi_get_dynamic_log_level(ngx_http_request_t *r, int *current, int *timeout, int *original);
ngx_str_t *ngx_http_lua_kong_ffi_get_static_tag(ngx_http_request_t *r);
int ngx_http_lua_kong_ffi_get_full_client_certificate_chain(ngx_http_request_t *r, char *buf, size_t *buf_len);
const char *ngx_http_lua_kong_ffi_disable_session_reuse(ngx_http_request_t *r);
int ngx_http_lua_kong_ffi_set_upstream_client_cert_and_key(ngx_http_request_t *r, void *chain, void *key);
int ngx_http_lua_kong_ffi_set_upstream_ssl_trusted_store(ngx_http_request_t *r, void *store);
int ngx_http_lua_kong_ffi_set_upstream_ssl_verify(ngx_http_request_t *r, int verify);
int ngx_http_lua_kong_ffi_set_upstream_ssl_verify_depth(ngx_http_request_t *r, int depth);
int ngx_http_lua_kong_ffi_set_upstream_ssl_sans_dnsnames(ngx_http_request_t *r, const char *input, size_t input_len);
int ngx_http_lua_kong_ffi_set_upstream_ssl_sans_uris(ngx_http_request_t *r, const char *input, size_t input_len);
int ngx_http_lua_kong_ffi_get_socket_ssl(void *u, void **ssl_conn);
int ngx_http_lua_kong_ffi_get_request_ssl(ngx_http_request_t *r, void **ssl_conn);
int ngx_http_lua_ffi_set_next_upstream(ngx_http_request_t *r, uint32_t next_upstream, char **err);
int ngx_http_apicast_ffi_set_proxy_cert_key(ngx_http_request_t *r, void *cdata_chain, void *cdata_key);
int ngx_http_apicast_ffi_set_proxy_ca_cert(ngx_http_request_t *r, void *cdata_ca);
int ngx_http_apicast_ffi_set_ssl_verify(ngx_http_request_t *r, int verify, int verify_deph);
int ngx_http_apicast_ffi_get_full_client_certificate_chain(ngx_http_request_t *r, char **value, size_t *value_len);
const uint32_t ngx_http_lua_kong_next_upstream_mask_error;
const uint32_t ngx_http_lua_kong_next_upstream_mask_http_404;
const uint32_t ngx_http_lua_kong_next_upstream_mask_http_500;
const uint32_t ngx_http_lua_kong_next_upstream_mask_off;
int ngx_http_lua_kong_ffi_var_get_by_index(ngx_http_request_t *r, unsigned int var_index, char **value, size_t *value_len, char **err);
int ngx_http_lua_kong_ffi_var_set_by_index(ngx_http_request_t *r, unsigned int index, const unsigned char *value, size_t value_len, char **err);
unsigned int ngx_http_lua_kong_ffi_var_load_indexes(ngx_str_t **names);
]]
local C = ffi.C
local M = { C = C, request = base.get_request }

function M.tag()
    local tag = C.ngx_http_lua_kong_ffi_get_static_tag(base.get_request())
    return tag.len > 0 and ffi.string(tag.data, tag.len) or nil
end

function M.next_upstream(...)
    local mask = 0
    for _, name in ipairs { ... } do mask = bit.bor(mask, C["ngx_http_lua_kong_next_upstream_mask_" .. name]) end
    local err = ffi.new "char *[1]"
    return C.ngx_http_lua_ffi_set_next_upstream(base.get_request(), mask, err)
end

M.indexes = {}
function M.load()
    local count = tonumber(C.ngx_http_lua_kong_ffi_var_load_indexes(nil))
    local names = ffi.new("ngx_str_t *[?]", count)
    assert(C.ngx_http_lua_kong_ffi_var_load_indexes(names) == 0)
    for at = 0, count - 1 do M.indexes[ffi.string(names[at].data, names[at].len)] = at end
    return count
end

local value, length, err = ffi.new "unsigned char *[1]", ffi.new "size_t[1]", ffi.new "char *[1]"
function M.get(name)
    local code = C.ngx_http_lua_kong_ffi_var_get_by_index(base.get_request(), M.indexes[name], value, length, err)
    if code == 0 then return ffi.string(value[0], length[0]) end
    return code == -1 and ffi.string(err[0]) or nil, code
end
function M.set(name, text)
    local code = C.ngx_http_lua_kong_ffi_var_set_by_index(base.get_request(), M.indexes[name], text, text and #text or 0, err)
    return code, code ~= 0 and ffi.string(err[0]) or nil
end

function M.level()
    local now, left, configured = ffi.new "int[1]", ffi.new "int[1]", ffi.new "int[1]"
    assert(C.ngx_http_lua_kong_ffi_get_dynamic_log_level(base.get_request(), now, left, configured) == 0)
    return now[0] .. " " .. left[0] .. " " .. configured[0]
end

return M
"#;

fn conf(http: &str) -> TestServerBuilder {
    let text = format!(
        "events {{}}\nhttp {{ lua_package_path '$prefix/?.lua;;'; default_type text/plain; {http} }}\n"
    );
    Server::builder(&text).file("kong.lua", KONG)
}

both_drivers! {
    fn tags_are_of_their_location(driver) {
        let say = "content_by_lua_block { ngx.print(tostring(require 'kong'.tag())) }";
        let server = conf(&format!("server {{ listen 127.0.0.1:%%PORT%%;
            location /one {{ lua_kong_set_static_tag 'one more'; {say} location /one/inside {{ {say} }} }}
            location /none {{ {say} }}
            location /empty {{ lua_kong_set_static_tag ''; {say} }}
            location /moved {{ lua_kong_set_static_tag moved; rewrite ^ /one last; }} }}")).driver(driver).start();
        for (path, tag) in [("/one", "one more"), ("/one/inside", "nil"), ("/none", "nil"), ("/empty", "nil"), ("/moved", "one more")] {
            assert_eq!(server.get(path).text(), tag, "{path}");
        }
    }

    fn variables_have_numbers(driver) {
        let server = conf("lua_kong_load_var_index default; lua_kong_load_var_index $http_x_own;
            init_by_lua_block { require 'kong'.load() }
            server { listen 127.0.0.1:%%PORT%%; set $mine '';
                location / { content_by_lua_block {
                    local kong = require 'kong'
                    local function show(...) ngx.say(table.concat({ tostring((...)), tostring((select(2, ...))) }, ' ')) end
                    show(kong.get 'http_x_own')
                    show(kong.get 'request_method')
                    show(kong.get 'args')
                    show(kong.get 'mine')
                    show(kong.set('mine', 'new'))
                    show(ngx.var.mine, kong.get 'mine')
                    show(kong.set('mine', nil))
                    show(kong.get 'mine')
                    show(kong.set('args', 'c=d'))
                    show(ngx.var.arg_c, kong.get 'args')
                    show(kong.set('request_method', 'X'))
                    ngx.say(#kong.get 'kong_request_id', ' ', kong.get 'kong_request_id' == ngx.var.kong_request_id)
                    ngx.say(tostring(kong.get 'upstream_start_timestamp_us'))
                } }
                location /timer { content_by_lua_block {
                    local kong, said = require 'kong', nil
                    ngx.timer.at(0, function() said = kong.get 'args' end)
                    repeat ngx.sleep(0.001) until said
                    ngx.print(said)
                } } }").driver(driver).start();
        let mut client = server.client();
        for _ in 0..2 {
            let text = client.request("GET /?a=b HTTP/1.1\r\nHost: a\r\nX-Own: 1\r\n\r\n").text();
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines, [
                "1 nil", "GET nil", "a=b nil", " nil", "0 nil", "new new", "0 nil", "nil -5", "0 nil", "d c=d",
                "-1 variable not changeable", "32 true", "nil",
            ], "{text}");
        }
        assert_eq!(server.get("/timer").text(), "API disabled in the current context");
    }

    fn lines_of_the_error_log_end_with_the_request(driver) {
        let server = conf("lua_kong_error_log_request_id $kong_request_id;
            server { listen 127.0.0.1:%%PORT%%;
                location / { content_by_lua_block { ngx.log(ngx.ERR, 'seen') ngx.print(ngx.var.kong_request_id) } }
                location /own { lua_kong_error_log_request_id $own; set $own mine; content_by_lua_block { ngx.log(ngx.ERR, 'own one') } }
                location /in { error_page 404 /error; return 404; }
                location /error { internal; content_by_lua_block { ngx.log(ngx.ERR, 'redirected') ngx.print(ngx.var.kong_request_id) } }
                location /sub { content_by_lua_block { ngx.print(ngx.location.capture('/').body == ngx.var.kong_request_id) } } }")
            .driver(driver).allow("[lua]").start();
        let id = server.get("/").text();
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        let line = server.error_log_line("seen");
        assert!(line.ends_with(&format!(", host: \"localhost\", request_id: \"{id}\"")), "{line}");
        let _ = server.get("/own");
        assert!(server.error_log_line("own one").ends_with(", request_id: \"mine\""));
        let id = server.get("/in").text();
        assert!(server.error_log_line("redirected").ends_with(&format!(", request_id: \"{id}\"")));
        assert_eq!(server.get("/sub").text(), "true");
    }

    fn the_level_of_the_log_changes_for_a_while(driver) {
        let server = conf("server { listen 127.0.0.1:%%PORT%%;
            location /level { content_by_lua_block { ngx.print(require 'kong'.level()) } }
            location /set { content_by_lua_block {
                local kong = require 'kong'
                ngx.log(ngx.DEBUG, 'before')
                ngx.print(kong.C.ngx_http_lua_kong_ffi_set_dynamic_log_level(tonumber(ngx.var.arg_l), tonumber(ngx.var.arg_t)))
                ngx.log(ngx.DEBUG, 'heard ' .. ngx.var.arg_l)
            } } }").driver(driver).allow("[lua]").start();
        assert_eq!(server.get("/level").text(), "7 0 7");
        assert_eq!(server.get("/set?l=8&t=60").text(), "0");
        let level = server.get("/level").text();
        assert!(level == "8 60 7" || level == "8 59 7", "{level}");
        let _ = server.error_log_line("heard 8");
        assert_eq!(server.get("/set?l=9&t=60").text(), "-1", "no such level");
        assert_eq!(server.get("/set?l=3&t=60").text(), "0", "fewer lines than before");
        assert!(server.get("/level").text().starts_with("3 "));
        assert_eq!(server.get("/set?l=99&t=0").text(), "0", "over");
        assert_eq!(server.get("/level").text(), "7 0 7");
        let log = server.error_log();
        let count = |text| log.matches(text).count();
        // The first `before` of all was not heard; each later one while the level was 8 was.
        assert_eq!((count("before"), count("heard 9"), count("heard 3"), count("heard 99")), (2, 1, 0, 0), "{log}");
    }

    fn a_script_says_when_another_server_is_asked(driver) {
        let failing = Backend::start(|visit| {
            while visit.head().is_some() {
                visit.send("HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\n404");
            }
        });
        let good = Backend::answering("good");
        let server = conf(&format!("upstream two {{ server 127.0.0.1:{} max_fails=0; server 127.0.0.1:{} backup; }}
            server {{ listen 127.0.0.1:%%PORT%%;
                location / {{ access_by_lua_block {{
                    local words = {{}}
                    for word in (ngx.var.arg_w or ''):gmatch '[^,]+' do words[#words + 1] = word end
                    if ngx.var.arg_w then assert(require 'kong'.next_upstream(unpack(words)) == 0) end
                }} proxy_pass http://two; proxy_next_upstream http_404; }}
                location /moved {{ access_by_lua_block {{ require 'kong'.next_upstream('off') ngx.exec('/') }} }} }}",
            failing.port(), good.port())).driver(driver).start();
        for (query, body) in [("/", "good"), ("/?w=error", "404"), ("/?w=http_404", "good"), ("/?w=http_500", "404"),
            ("/?w=error,http_404", "good"), ("/?w=off", "404"), ("/?w=off,http_404", "404"), ("/?w=", "good"),
            // As nginx's modules forget a request that goes elsewhere.
            ("/moved", "good")] {
            assert_eq!(server.get(query).text(), body, "{query}");
        }
    }

    fn times_of_tries_are_told(driver) {
        let good = Backend::answering("good");
        let server = conf(&format!("log_format times '$msec $upstream_start_timestamp_us $upstream_connect_timestamp_us $upstream_request_timestamp_us $upstream_header_timestamp_us $upstream_response_timestamp_us';
            server {{ listen 127.0.0.1:%%PORT%%;
            access_log %%DIR%%/access.log times;
            location / {{ proxy_pass http://127.0.0.1:{}; }} location /none {{ return 200; }} }}", good.port())).driver(driver).start();
        let _ = server.get("/");
        let _ = server.get("/none");
        let lines = server.access_log_lines(2);
        let times: Vec<f64> = lines[0].split(' ').map(|time| time.parse().expect("a time")).collect();
        assert!(times[1..].is_sorted() && times[0] - times[1] < 60.0 && times[5] <= times[0] + 0.002, "{}", lines[0]);
        assert_eq!(lines[0].split(' ').nth(1).and_then(|time| time.split('.').nth(1)).map(str::len), Some(6));
        assert!(lines[1].ends_with(" - - - - -"), "{}", lines[1]);
    }
}

struct Keys {
    ca: Pair,
    a: Pair,
    client: Pair,
    other: Pair,
}

/// A server that demands certificates of clients, and one before it.
fn tls(locations: &str) -> (TestServerBuilder, Keys) {
    let ca = authority("ca");
    let keys = Keys { a: ca.issue("a.example.com"), client: ca.issue("client"), other: own("other"), ca };
    let builder = conf(&format!(
        "upstream kept {{ server 127.0.0.1:%%PORT_1%%; keepalive 8; }} upstream open {{ server 127.0.0.1:%%PORT_2%%; keepalive 8; }}
         server {{ listen 127.0.0.1:%%PORT%%; proxy_http_version 1.1; proxy_set_header Connection '';
             proxy_ssl_name $arg_n; proxy_ssl_server_name on; {locations} }}
         server {{ listen 127.0.0.1:%%PORT_1%% ssl; ssl_certificate a.crt; ssl_certificate_key a.key;
             ssl_verify_client on; ssl_client_certificate ca.crt; return 200 '$ssl_client_s_dn|$connection'; }}
         server {{ listen 127.0.0.1:%%PORT_2%% ssl; ssl_certificate a.crt; ssl_certificate_key a.key; return 200 open; }}"
    ));
    let mut builder = builder;
    for (name, text) in [
        ("ca.crt", &keys.ca.certificate),
        ("a.crt", &keys.a.certificate),
        ("a.key", &keys.a.key),
        ("client.crt", &keys.client.certificate),
        ("client.key", &keys.client.key),
        ("other.crt", &keys.other.certificate),
        ("other.key", &keys.other.key),
    ] {
        builder = builder.file(name, text);
    }
    (builder, keys)
}

/// Shows the pair `$arg_c` to the upstream server.
const SHOW: &str = "local kong, ssl = require 'kong', require 'ngx.ssl'
    local function read(name) local file = assert(io.open(ngx.config.prefix() .. name)) return file:read '*a' end
    local name = ngx.var.arg_c
    local function parsed()
        return assert(ssl.parse_pem_cert(read(name .. '.crt'))), assert(ssl.parse_pem_priv_key(read(name .. '.key')))
    end
    local set = ngx.var.arg_apicast and kong.C.ngx_http_apicast_ffi_set_proxy_cert_key
        or kong.C.ngx_http_lua_kong_ffi_set_upstream_client_cert_and_key
    if name then assert(set(kong.request(), parsed()) == 0) end";

both_drivers! {
    fn upstream_servers_are_shown_a_scripts_certificate(driver) {
        let (builder, _) = tls(&format!(
            "location / {{ access_by_lua_block {{ {SHOW} }} proxy_pass https://kept; }}
             location /fixed {{ proxy_ssl_certificate client.crt; proxy_ssl_certificate_key client.key;
                 access_by_lua_block {{ {SHOW} }} proxy_pass https://kept; }}"));
        let server = builder.driver(driver).allow("upstream").allow("client SSL").start();
        let get = |path: &str| {
            let response = server.get(path);
            let text = response.text();
            let (name, connection) = text.split_once('|').unwrap_or_default();
            (response.status, name.to_owned(), connection.to_owned())
        };
        assert_eq!(get("/").0, 400, "no certificate");
        let (status, name, connection) = get("/?c=client");
        assert_eq!((status, name.as_str()), (200, "CN=client"));
        assert_eq!(get("/?c=client").2, connection, "requests with the same wishes share connections");
        assert_eq!(get("/?apicast=1&c=client").2, connection, "which function says it does not matter");
        assert_eq!(get("/").0, 400, "and others don't");
        assert_eq!(get("/?c=other").0, 400, "of no authority that is trusted");
        assert_eq!(get("/?c=client").1, "CN=client");
        assert_eq!(get("/fixed").1, "CN=client");
        assert_eq!(get("/fixed?c=other").0, 400, "the script's goes before the configuration's");
    }

    fn what_a_server_has_shown_is_in_variables(driver) {
        let (builder, keys) = tls("add_header X-Tls '$kong_upstream_ssl_protocol';
            header_filter_by_lua_block { local pem = ngx.var.kong_upstream_ssl_server_raw_cert
                ngx.header['X-Pem'] = pem and pem:gsub('\\n', '|') or 'none' }
            location / { proxy_pass https://127.0.0.1:%%PORT_2%%/; proxy_ssl_protocols TLSv1.3; }
            location /old { proxy_pass https://127.0.0.1:%%PORT_2%%/; proxy_ssl_protocols TLSv1.2; }
            location /kept { proxy_pass https://open/; }
            location /plain { proxy_pass http://127.0.0.1:%%PORT%%/none; }
            location /none { return 200; }");
        let server = builder.driver(driver).start();
        let ask = |path: &str| {
            let response = server.get(path);
            let field = |name: &str| response.field(name).unwrap_or_default().to_owned();
            (field("X-Tls"), field("X-Pem"))
        };
        let pem = || keys.a.certificate.trim().replace("\r\n", "|").replace('\n', "|") + "|";
        assert_eq!(ask("/"), ("TLSv1.3".to_owned(), pem()));
        assert_eq!(ask("/old"), ("TLSv1.2".to_owned(), pem()));
        for _ in 0..3 {
            assert_eq!(ask("/kept"), ("TLSv1.3".to_owned(), pem()), "a connection that was kept alive too");
        }
        assert_eq!(ask("/plain"), (String::new(), "none".to_owned()));
        assert_eq!(ask("/none"), (String::new(), "none".to_owned()));
    }

    fn upstream_servers_are_verified_as_a_script_wants(driver) {
        let (builder, keys) = tls("location / { access_by_lua_block {
                local kong, ffi = require 'kong', require 'ffi'
                local C, request, arg = kong.C, kong.request(), ngx.var
                local is_apicast = arg.arg_apicast
                if is_apicast then
                    assert(C.ngx_http_apicast_ffi_set_ssl_verify(request, arg.arg_v == '1', tonumber(arg.arg_d or 1)) == 0)
                elseif arg.arg_v then assert(C.ngx_http_lua_kong_ffi_set_upstream_ssl_verify(request, arg.arg_v == '1') == 0) end
                if arg.arg_d then assert(C.ngx_http_lua_kong_ffi_set_upstream_ssl_verify_depth(request, tonumber(arg.arg_d)) == 0) end
                if arg.arg_h then assert(C.ngx_http_lua_kong_ffi_set_upstream_ssl_sans_dnsnames(request, 'x ' .. arg.arg_h, 2 + #arg.arg_h) == 0) end
                if arg.arg_t then
                    ffi.cdef [[
                        typedef struct x509_st X509; typedef struct x509_store_st X509_STORE;
                        X509 *d2i_X509(X509 **, const unsigned char **, long); void X509_free(X509 *);
                        X509_STORE *X509_STORE_new(void); int X509_STORE_load_locations(X509_STORE *, const char *, const char *);
                        int X509_STORE_add_cert(X509_STORE *, X509 *); void X509_STORE_free(X509_STORE *);
                    ]]
                    local file = assert(io.open(ngx.config.prefix() .. arg.arg_t .. '.crt'))
                    local der = require 'ngx.ssl'.cert_pem_to_der(file:read '*a')
                    local at = ffi.new('const unsigned char *[1]', ffi.cast('const unsigned char *', der))
                    local certificate = ffi.gc(C.d2i_X509(nil, at, #der), C.X509_free)
                    local store = ffi.gc(C.X509_STORE_new(), C.X509_STORE_free)
                    if arg.arg_dir then assert(C.X509_STORE_load_locations(store, nil, ngx.config.prefix() .. arg.arg_dir) == 1)
                    else assert(C.X509_STORE_add_cert(store, certificate) == 1) end
                    local trust = is_apicast and C.ngx_http_apicast_ffi_set_proxy_ca_cert
                        or C.ngx_http_lua_kong_ffi_set_upstream_ssl_trusted_store
                    assert(trust(request, store) == 0)
                end
            } proxy_pass https://127.0.0.1:%%PORT_2%%/; }");
        let hashed = builder.file("hashed/0123abcd.0", &keys.ca.certificate);
        let server = hashed.driver(driver).allow("upstream SSL certificate").start();
        let status = |query: &str| server.get(&format!("/{query}")).status;
        for _ in 0..2 {
            assert_eq!(status("?n=a.example.com"), 200, "not verified");
            assert_eq!(status("?n=a.example.com&v=1"), 502, "nobody is trusted");
            assert_eq!(status("?n=a.example.com&v=1&t=ca"), 200);
            assert_eq!(status("?n=a.example.com&v=1&t=other"), 502);
            assert_eq!(status("?n=a.example.com&v=1&t=ca&dir=hashed"), 200, "of a directory");
            assert_eq!(status("?n=a.example.com&v=1&t=ca&dir=nowhere"), 502);
            assert_eq!(status("?apicast=1&n=a.example.com&v=1&t=ca"), 200);
            assert_eq!(status("?apicast=1&n=a.example.com&v=1&t=other"), 502);
            assert_eq!(status("?apicast=1&n=a.example.com&v=0&t=other"), 200);
            assert_eq!(status("?n=a.example.com&v=0&t=other"), 200);
            assert_eq!(status("?n=b.example.com&v=1&t=ca"), 502, "another name");
            assert_eq!(status("?n=b.example.com&v=1&t=ca&h=a.example.com"), 200, "one of the others");
            assert_eq!(status("?n=b.example.com&v=1&t=ca&h=c.example.com"), 502);
            assert_eq!(status("?n=a.example.com&v=1&t=ca&d=0"), 200, "nothing between the two");
        }
    }

    /// As Kong does it: the third argument of `set_current_peer` names a pool, while the location names the server.
    fn the_locations_name_goes_before_the_balancers(driver) {
        let (_, keys) = tls("");
        let server = conf("upstream chosen { server 0.0.0.1; keepalive 8; balancer_by_lua_block {
                assert(require 'ngx.balancer'.set_current_peer('127.0.0.1', %%PORT_1%%, ngx.var.arg_p))
            } }
            server { listen 127.0.0.1:%%PORT%%; proxy_http_version 1.1; proxy_set_header Connection '';
                proxy_ssl_server_name on; proxy_ssl_verify on; proxy_ssl_trusted_certificate ca.crt;
                location /named { proxy_ssl_name a.example.com; proxy_pass https://chosen; }
                location /free { proxy_pass https://chosen; } }
            server { listen 127.0.0.1:%%PORT_1%% ssl; ssl_certificate a.crt; ssl_certificate_key a.key;
                return 200 '$ssl_server_name|$connection'; }")
            .file("ca.crt", &keys.ca.certificate).file("a.crt", &keys.a.certificate).file("a.key", &keys.a.key)
            .driver(driver).allow("upstream SSL certificate").start();
        let get = |path: &str| server.get(path).text();
        let first = get("/named?p=one");
        assert!(first.starts_with("a.example.com|"), "{first}");
        assert_eq!(get("/named?p=one"), first, "the connection is shared");
        let second = get("/named?p=two");
        assert!(second.starts_with("a.example.com|") && second != first, "{second}, another pool than {first}");
        assert!(get("/free?p=a.example.com").starts_with("a.example.com|"));
        assert_eq!(server.get("/free?p=b.example.com").status, 502);
    }

    fn the_clients_chain_and_sessions(driver) {
        let (_, keys) = tls("");
        let text = "server { listen 127.0.0.1:%%PORT%% ssl; ssl_certificate a.crt; ssl_certificate_key a.key;
            ssl_verify_client optional_no_ca; ssl_session_cache shared:S:1m;
            ssl_certificate_by_lua_block {
                local kong = require 'kong'
                local name = require 'ngx.ssl'.server_name()
                if name == 'once' then assert(kong.C.ngx_http_lua_kong_ffi_disable_session_reuse(kong.request()) == nil) end
            }
            location / { content_by_lua_block {
                local kong, ffi = require 'kong', require 'ffi'
                local room = ffi.new('size_t[1]', 10)
                local function ask()
                    local buffer = ffi.new('char[?]', room[0])
                    local code = kong.C.ngx_http_lua_kong_ffi_get_full_client_certificate_chain(kong.request(), buffer, room)
                    return code, code == 0 and ffi.string(buffer, room[0]) or ''
                end
                local first = ask()
                local code, chain = ask()
                local into = ffi.new 'void *[1]'
                local value = ffi.new 'unsigned char *[1]'
                local other = kong.C.ngx_http_apicast_ffi_get_full_client_certificate_chain(kong.request(), value, room)
                assert(other == code and (code ~= 0 or ffi.string(value[0], room[0]) == chain))
                ngx.print(first, ' ', code, ' ', ngx.var.ssl_session_reused, ' ',
                    kong.C.ngx_http_lua_kong_ffi_get_request_ssl(kong.request(), into), ' ',
                    kong.C.ngx_http_lua_kong_ffi_get_socket_ssl(nil, into), '\\n', chain)
            } } }
            server { listen 127.0.0.1:%%PORT_1%%; location / { content_by_lua_block {
                local kong, ffi = require 'kong', require 'ffi'
                ngx.print(kong.C.ngx_http_lua_kong_ffi_get_full_client_certificate_chain(kong.request(), nil, ffi.new('size_t[1]', 0)))
            } } }";
        let server = conf(text).file("a.crt", &keys.a.certificate).file("a.key", &keys.a.key).driver(driver).start();
        let get = |name: &str, config: &weir_tls::ClientConfig| {
            TlsClient::connect(server.addr(0), name, config).get("/", name).text()
        };
        for tls13 in [true, false] {
            let text = get("a", &client(tls13, Some(keys.client.shown())));
            let (said, chain) = text.split_once('\n').expect("two parts");
            assert_eq!(said, "-2 0 . 0 -1");
            assert_eq!(chain.trim(), keys.client.certificate.trim().replace("\r\n", "\n"));
            assert_eq!(get("a", &client(tls13, None)).trim(), "-5 -5 . 0 -1", "no certificate");
            for (name, resumed) in [("a", "r"), ("once", ".")] {
                let config = client(tls13, None);
                let _ = get(name, &config);
                let said = get(name, &config);
                assert_eq!(said.split(' ').nth(2), Some(resumed), "{name}: {said}");
            }
        }
        assert_eq!(weir_test::Client::connect(server.addr(1)).get("/").text(), "-6", "no TLS");
    }
}

#[test]
fn what_is_wrong_in_the_configuration() {
    for (line, words) in [
        ("http { lua_kong_load_var_index args; }", "invalid variable name \"args\""),
        ("http { lua_kong_load_var_index $nobodys; }", "unknown \"nobodys\" variable"),
        ("http { lua_kong_error_log_request_id request_id; }", "invalid variable name \"request_id\""),
        (
            "http { lua_kong_error_log_request_id $a $b; }",
            "invalid number of arguments in \"lua_kong_error_log_request_id\" directive",
        ),
        ("http { lua_kong_set_static_tag a; }", "\"lua_kong_set_static_tag\" directive is not allowed here"),
        (
            "http { server { lua_kong_load_var_index default; } }",
            "\"lua_kong_load_var_index\" directive is not allowed here",
        ),
        (
            "http { server { location / { lua_kong_set_static_tag a; lua_kong_set_static_tag b; } } }",
            "\"lua_kong_set_static_tag\" directive is duplicate",
        ),
        ("lmdb_map_size x;", "\"lmdb_map_size\" directive invalid value"),
        ("http { lmdb_environment_path a; }", "\"lmdb_environment_path\" directive is not allowed here"),
    ] {
        let exit = Server::builder(&format!("events {{}} {line}")).run(&["-t"]);
        assert!(exit.stderr.contains(words), "{line}: {}", exit.stderr);
    }
}

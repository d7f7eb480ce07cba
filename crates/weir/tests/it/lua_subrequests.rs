//! `ngx.location.capture`: servers of its own, options, jumps, and what a subrequest that fails gives.

use weir_test::{Driver, Server, both_drivers};

/// `t(function, arguments…)` says what a call gives, errors without the place that they name.
const TELL: &str = "init_by_lua_block {
    function t(f, ...)
        local said = { pcall(f, ...) }
        for at = 1, 4 do said[at] = tostring(said[at]):gsub('^[^ ]+:%d+: ', '') end
        ngx.say(table.concat(said, ' ', 1, 3))
    end }";

fn serve(driver: Driver, http: &str, locations: &str) -> Server {
    let text = format!(
        "worker_processes 1;\nevents {{}}\nhttp {{ {TELL} {http} server {{ listen 127.0.0.1:%%PORT%%;\n\
         default_type text/plain; error_log %%DIR%%/error.log info;\n{locations}\n}} }}\n"
    );
    Server::builder(&text).driver(driver).start()
}

both_drivers! {
    /// Each subrequest knows of the servers that it asked alone, and the request of its own.
    fn subrequests_have_servers_of_their_own(driver) {
        let server = serve(driver, "", "
            location /each { content_by_lua_block {
                for _ = 1, 2 do ngx.say(ngx.location.capture('/asks').header['X-Asked']) end
                ngx.say(tostring(ngx.var.upstream_addr)) } }
            location /asks { proxy_pass http://127.0.0.1:%%PORT%%/answers;
                header_filter_by_lua_block { ngx.header['X-Asked'] = ngx.var.upstream_status } }
            location /answers { return 200 x; }
            location /checked { auth_request /asks; proxy_pass http://127.0.0.1:%%PORT%%/gone; add_header X-Asked $upstream_status always; }
            location /gone { return 410; }");
        assert_eq!(server.get("/each").text(), "200\n200\nnil\n");
        assert_eq!(server.get("/checked").field("x-asked"), Some("410"));
    }

    fn jumps_wait_for_subrequests(driver) {
        let server = serve(driver, "", "
            location /jump { rewrite_by_lua_block {
                GO = require('ngx.semaphore').new()
                local thread = ngx.thread.spawn(function() ngx.location.capture('/slow') end)
                local ok, why = pcall(ngx.req.set_uri, '/other', true)
                ngx.ctx.why = tostring(why) GO:post() ngx.thread.wait(thread)
            } content_by_lua_block { ngx.say(ngx.ctx.why) } }
            location /slow { content_by_lua_block { GO:wait(3600) } }
            location /other { return 200 other; }");
        assert!(server.get("/jump").text().ends_with("attempt to abort with pending subrequests\n"));
    }

    fn subrequests_that_fail_have_a_status_and_no_page(driver) {
        let server = serve(driver, "", "
            location = / { content_by_lua_block {
                for _, uri in ipairs { '/500', '/text', '/404', '/301', '/exit', '/raise', '/page', '/none' } do
                    local r = ngx.location.capture(uri)
                    ngx.say(r.status, ' ', #r.body, ' ', tostring(r.truncated), ' ', tostring(r.header['Content-Type']),
                        ' ', type(r.header['Content-Length']), ' ', tostring(r.header.Location))
                end } }
            location /500 { return 500; }
            location /text { return 500 text; }
            location /404 { return 404; }
            location /301 { return 301 /there; }
            location /exit { content_by_lua_block { ngx.exit(403) } }
            location /raise { content_by_lua_block { error('raised') } }
            location /page { error_page 418 = /text; return 418; }");
        assert_eq!(
            server.get("/").text(),
            "500 0 true text/plain nil nil\n\
             500 4 false text/plain number nil\n\
             404 0 true text/plain nil nil\n\
             301 0 true text/plain nil /there\n\
             403 0 true text/plain nil nil\n\
             500 0 true text/plain nil nil\n\
             418 0 true text/plain nil nil\n\
             404 0 true text/plain nil nil\n"
        );
    }

    fn options_of_subrequests(driver) {
        let server = serve(driver, "", "
            location / { content_by_lua_block {
                local capture, multi = ngx.location.capture, ngx.location.capture_multi
                local r = capture('/fields', { headers = { ['X-Own'] = 'own', ['X-Other'] = 5, ['X-Cut'] = 'a\\r\\nb' } })
                ngx.say(r.body, ' ', ngx.var.http_x_own)
                ngx.say(capture('/length', { method = ngx.HTTP_POST, body = 'abc' }).body)
                t(capture, '') t(capture, '/', 1) t(capture, '/', { method = -1 }) t(capture, '/', { headers = 1 })
                t(capture, '/', { headers = { a = {} } }) t(capture, '/', { vars = { none = '1' } })
                t(capture, '/', { share_all_vars = 1 }) t(capture, '/', { ctx = 1 })
                t(multi) t(multi, {}) t(multi, { {} }) t(multi, { { '/', 1 } }) } }
            location /fields { return 200 '$http_x_own $http_x_other $http_x_cut'; }
            location /length { content_by_lua_block { ngx.print(ngx.req.get_headers()['Content-Length']) } }
            location /again { content_by_lua_block { local r = ngx.location.capture('/again') ngx.print(r.status) } }");
        let mut client = server.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\nX-Own: client\r\n\r\n");
        assert_eq!(
            client.response().text(),
            "own 5 a%0D%0Ab client\n3\n\
             false unsafe uri in argument #1:  nil\n\
             false expecting table as the 2nd argument for subrequest 0, but got number nil\n\
             false failed to adjust the subrequest: -1 nil\n\
             false Bad headers option value nil\n\
             false attempt to use bad variable value type table nil\n\
             false failed to adjust the subrequest: -1 nil\n\
             false Bad share_all_vars option value nil\n\
             false Bad ctx option value type number, expected a Lua table nil\n\
             false only one argument is expected, but got 0 nil\n\
             false at least one subrequest should be specified nil\n\
             false query argument 0 expecting one or two arguments nil\n\
             false expecting table as the 2nd argument for subrequest 0, but got number nil\n"
        );
        let _ = server.error_log_line("variable \"none\" cannot be assigned a value (maybe you forgot to define it first?) ");
        assert_eq!(server.get("/again").text(), "200");
        let _ = server.error_log_line("lua subrequests cycle while processing \"/again\"");
        let _ = server.error_log_line("failed to issue subrequest: -1");
    }
}

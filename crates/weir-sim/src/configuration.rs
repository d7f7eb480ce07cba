//! The configuration of a plan.

use std::fmt::Write;

use crate::plan::{Plan, SERVER_PORT, UPSTREAM_PATIENCE, UPSTREAM_PORTS};

impl Plan {
    /// The configuration for a server in `directory`.
    pub fn configuration(&self, directory: &str) -> String {
        let s = &self.settings;
        // Of two logs of one path that are opened apart, with a buffer and without, a line that a full disk has cut off goes on in the other's.
        let has_one_log = self.stream.is_empty() && self.tunnels.settings.is_none();
        let log_buffer = if s.buffers_log && has_one_log { " buffer=2k flush=300ms" } else { "" };
        let word = |on: bool| if on { "on" } else { "off" };
        let mut servers = format!("        {}\n", s.balance);
        for port in UPSTREAM_PORTS {
            let _ = writeln!(servers, "        server 127.0.0.1:{port} max_fails=0;");
        }
        if s.upstream_keepalive > 0 {
            let _ = writeln!(servers, "        keepalive {};", s.upstream_keepalive);
        }
        let reuseport = if s.reuseport { " reuseport" } else { "" };
        let close = if s.upstream_keepalive > 0 { "" } else { "close" };
        let (http2, http2_server) = self.http2.configuration();
        let (ssl, ssl_listen, ssl_verified) = self.tls.map(|tls| tls.configuration()).unwrap_or_default();
        let proxied = format!(
            "            proxy_http_version 1.1;
            proxy_set_header Connection '{close}';
            proxy_request_buffering {request_buffering};
            proxy_buffer_size {buffer};
            proxy_buffers 4 {buffer};
            proxy_busy_buffers_size {busy};
            proxy_connect_timeout 3s;
            proxy_read_timeout {UPSTREAM_PATIENCE}s;
            proxy_next_upstream_tries 2;
",
            request_buffering = word(s.request_buffering),
            buffer = s.buffer,
            busy = 2 * s.buffer,
        );
        let (cache, cached) = match self.cache {
            Some(cache) => (cache.configuration(directory), cache.location(&format!("{PLAIN}{proxied}"))),
            None => Default::default(),
        };
        let (secret, secrets) = match &self.upstream_tls {
            Some(tls) => (tls.block(s.upstream_keepalive), tls.locations(directory, &proxied)),
            None => Default::default(),
        };
        let locations = format!(
            "        client_max_body_size 10m;
        client_body_buffer_size 8k;
{http2_server}        location /return {{ return 200 'n=$arg_n\\n'; }}
        location /file/ {{ root {directory}/www; }}
        location /lua {{ content_by_lua_block {{
            ngx.sleep(ngx.var.arg_ms / 1000)
            ngx.say('n=', ngx.var.arg_n){own}
        }} }}
        location /up/ {{
            proxy_buffering {buffering};
{PLAIN}{proxied}        }}
{cached}{secrets}{limited}{watched}{tunnels}{framed}",
            tunnels = self.tunnels.locations(directory),
            framed = self.framed.map_or_else(String::new, |framed| {
                framed.locations(&proxied, s.buffering, UPSTREAM_PATIENCE)
            }),
            limited = self.limits.map_or_else(String::new, |limits| limits.locations()),
            buffering = word(s.buffering),
            own = if s.logs_own { OWN } else { "" },
            watched = self.health.location(),
        );
        let routed = format!(
            "        root /absent;\n        access_log {directory}/access.log routed{log_buffer};\n{http2_server}"
        );
        let verified = match self.tls {
            Some(_) => format!("    server {{\n{ssl_verified}{locations}    }}\n"),
            None => String::new(),
        };
        format!(
            "daemon off;
master_process off;
worker_processes {workers};
pid {directory}/weir.pid;
error_log {directory}/error.log info;
events {{ use epoll; worker_connections 512; }}
http {{
    log_format sim '$arg_n $status $request_completion $body_bytes_sent $connection .';
    log_format routed '$http_x_n $status $request_completion $body_bytes_sent $connection .';
    access_log {directory}/access.log sim{log_buffer};
    profile off;
    keepalive_requests {requests};
    keepalive_timeout {seconds}s;
    sendfile {sendfile};
    gzip {gzip};
    gzip_types *;
{open_files}    client_body_temp_path {directory}/body_temp 1;
    proxy_temp_path {directory}/proxy_temp 1 2;
{cache}{http2}{ssl}{limits}    upstream up {{
{servers}    }}
{secret}{watched}{tunnels}{framed}    server {{
        listen 127.0.0.1:{SERVER_PORT}{reuseport};
{ssl_listen}{locations}    }}
{verified}{routing}}}
{stream}",
            stream = self.stream.configuration(directory, SERVER_PORT, self.tls.as_ref()),
            routing = self.routing.configuration(&routed),
            open_files = if s.keeps_files { OPEN_FILES } else { "" },
            limits = self.limits.map_or_else(String::new, |limits| limits.configuration()),
            watched = self.health.block(),
            tunnels = self.tunnels.block(),
            framed = self.framed.map_or_else(String::new, |framed| framed.block()),
            workers = s.workers,
            requests = s.keepalive_requests,
            seconds = s.keepalive_seconds,
            sendfile = word(s.sendfile),
            gzip = word(s.gzip),
        )
    }
}

/// The line of locations whose upstream servers speak no TLS.
const PLAIN: &str = "            proxy_pass http://up;\n";
/// Errors are not among what is held: a file that could not be read would be missing for longer than it was.
const OPEN_FILES: &str = "    open_file_cache max=3 inactive=2s;\n    open_file_cache_valid 1s;\n    open_file_cache_min_uses 1;\n";

/// A script's line of what a process knows of itself and of its machine: numbers, times, addresses, random numbers. Two runs of a
/// seed must agree in it, as in all that is logged.
const OWN: &str = "
            local v = ngx.var
            ngx.log(ngx.INFO, table.concat({ 'own', ngx.worker.pid(), ngx.worker.id(), v.pid, ngx.now(), ngx.time(),
                v.msec, v.request_time, os.time(), os.clock(), v.request_id, v.connection, v.connection_requests,
                v.remote_port, math.random(), tostring({}), tostring(ngx.log), tostring(coroutine.create(print)),
                ngx.worker.count(), ngx.get_phase() }, ' '))";

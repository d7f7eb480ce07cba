//! The lines of the configuration about WebSockets.

use std::fmt::Write;

use super::plan::{TUNNEL_SERVERS, TUNNELS_KEPT, TunnelsPlan};

impl TunnelsPlan {
    /// Lines of `http`; none where nothing of WebSockets is drawn.
    pub(crate) fn block(&self) -> String {
        if self.settings.is_none() {
            return String::new();
        }
        let mut text = "    log_format tunnels 'T $arg_t $status $bytes_sent \
                        $upstream_bytes_sent|$upstream_bytes_received .';\n    map $http_upgrade $tunnel { '' ''; default upgrade; }\n    \
                        upstream tunnels {\n"
            .to_owned();
        for port in TUNNEL_SERVERS {
            let _ = writeln!(text, "        server 127.0.0.1:{port} max_fails=0;");
        }
        let _ = writeln!(text, "        keepalive {TUNNELS_KEPT};\n    }}");
        text
    }

    /// The locations, for a server in `directory`.
    pub(crate) fn locations(&self, directory: &str) -> String {
        let Some(settings) = self.settings else { return String::new() };
        let common = format!(
            "access_log {directory}/access.log tunnels; proxy_pass http://tunnels; proxy_connect_timeout 3s; \
             proxy_read_timeout {}s; proxy_buffering {};",
            settings.timeout,
            if settings.buffering { "on" } else { "off" },
        );
        format!(
            "        location /ws/own {{ {common} proxy_upgrade on; }}
        location /ws/lines {{ {common} proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $tunnel; }}
        location /ws/first {{ access_log off; return 200 'first\\n'; }}\n"
        )
    }
}

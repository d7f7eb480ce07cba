//! The block `stream`.

use std::fmt::Write;

use super::plan::{
    CONNECT_PATIENCE, HTTP_PASS_PORT, RETURNED, SESSION_PATIENCE, SESSION_SERVERS, SentHeader, SessionDoor,
    StreamPlan,
};
use crate::tls::TlsSettings;

/// The format of lines of sessions in the access log: they begin with a word that is no number, as those of requests do.
const FORMAT: &str = "S $remote_port $server_port $protocol $status $bytes_received $bytes_sent $proxy_protocol_port \
                      $upstream_bytes_sent|$upstream_bytes_received .";

impl StreamPlan {
    /// The block for a server in `directory` whose `http` listens on `http_port`; empty where nothing of `stream` is drawn.
    pub(crate) fn configuration(&self, directory: &str, http_port: u16, tls: Option<&TlsSettings>) -> String {
        if self.is_empty() {
            return String::new();
        }
        let mut text = format!(
            "stream {{\n    log_format sessions '{FORMAT}';\n    access_log {directory}/access.log sessions;\n{}",
            self.settings()
        );
        let [first, second] = SESSION_SERVERS;
        let group = "proxy_pass sessions;";
        let plain = SessionDoor::Plain.port();
        self.server(&mut text, SessionDoor::Plain, "", group);
        self.server(
            &mut text,
            SessionDoor::Headed(super::plan::ClientHeader::Text),
            " proxy_protocol",
            group,
        );
        if let Some(tls) = tls {
            self.server(&mut text, SessionDoor::Secure, " ssl", &format!("{} {group}", tls.session_server()));
        }
        let _ = writeln!(
            text,
            "    map $ssl_preread_server_name $named {{ a.sim 127.0.0.1:{first}; b.sim 127.0.0.1:{second}; \
             default sessions; }}"
        );
        self.server(&mut text, SessionDoor::Named(None), "", "ssl_preread on; proxy_pass $named;");
        self.server(&mut text, SessionDoor::Passed, "", &format!("pass 127.0.0.1:{plain};"));
        self.server(&mut text, SessionDoor::Returned, "", &format!("return '{RETURNED}';"));
        let limit = self.settings.limit;
        self.server(&mut text, SessionDoor::Limited, "", &format!("limit_conn all {limit}; {group}"));
        let _ = writeln!(
            text,
            "    server {{ listen 127.0.0.1:{HTTP_PASS_PORT}; pass 127.0.0.1:{http_port}; }}\n{}}}",
            self.flows.configuration()
        );
        text
    }

    /// The lines of the block itself, and the group of servers.
    fn settings(&self) -> String {
        let s = &self.settings;
        let word = |on: bool| if on { "on" } else { "off" };
        let mut text = String::new();
        for (name, value) in [
            ("proxy_half_close", word(s.half_close).to_owned()),
            ("proxy_timeout", format!("{}s", s.timeout)),
            ("proxy_connect_timeout", format!("{CONNECT_PATIENCE}s")),
            ("proxy_protocol_timeout", format!("{SESSION_PATIENCE}s")),
            ("preread_timeout", format!("{SESSION_PATIENCE}s")),
            ("proxy_buffer_size", s.buffer.to_string()),
            ("proxy_upload_rate", s.rates.0.to_string()),
            ("proxy_download_rate", s.rates.1.to_string()),
            ("proxy_next_upstream", word(s.tries_next).to_owned()),
            (
                "proxy_protocol",
                match s.sends_header {
                    SentHeader::None => "off".to_owned(),
                    SentHeader::Text => "on".to_owned(),
                    SentHeader::Binary => "v2".to_owned(),
                },
            ),
            ("limit_conn_zone", "$server_port zone=all:1m".to_owned()),
        ] {
            let _ = writeln!(text, "    {name} {value};");
        }
        let _ = writeln!(text, "    upstream sessions {{");
        for port in SESSION_SERVERS {
            let _ = writeln!(text, "        server 127.0.0.1:{port} max_fails=0;");
        }
        text.push_str("    }\n");
        text
    }

    fn server(&self, text: &mut String, door: SessionDoor, parameters: &str, lines: &str) {
        let reuseport = if self.settings.reuseport { " reuseport" } else { "" };
        let port = door.port();
        let _ = writeln!(text, "    server {{ listen 127.0.0.1:{port}{parameters}{reuseport}; {lines} }}");
    }
}

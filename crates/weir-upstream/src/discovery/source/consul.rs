//! Consul: the healthy instances of a service, by blocking queries, whose response comes when something has changed.

use std::fmt::Write;
use std::time::Duration;

use weir_http::json::{JsonValue, JsonWriter};

use super::{SourceConfig, SourceKind};
use crate::discovery::server_list;
use crate::discovery::server_list::ServerEntry;

/// How far the service was read.
#[derive(Default)]
pub(crate) struct ConsulSource {
    index: u64,
    asked: bool,
}

impl ConsulSource {
    /// The next list.
    pub(super) async fn next(&mut self, config: &SourceConfig) -> Result<Vec<ServerEntry>, String> {
        let SourceKind::Consul { url, service, tag, passing } = &config.kind else {
            return Err("no Consul".to_owned());
        };
        let mut target = format!("{}/v1/health/service/", url.path.trim_end_matches('/'));
        escape(&mut target, service);
        target.push_str(if *passing { "?passing=1" } else { "?" });
        if let Some(tag) = tag {
            target.push_str("&tag=");
            escape(&mut target, tag);
        }
        let token =
            config.token.as_ref().map_or(String::new(), |token| format!("X-Consul-Token: {token}\r\n"));
        loop {
            if std::mem::replace(&mut self.asked, true) && self.index == 0 {
                // There is nothing to wait for: it is looked at now and then.
                weir_rt::sleep(Duration::from_millis(config.interval)).await;
            }
            let before = self.index;
            // Whatever goes wrong has the whole be read again.
            self.index = 0;
            let asked = format!("{target}&index={before}&wait={WAIT}s");
            // A sixteenth more is what Consul adds by chance.
            let patience = if before == 0 { 0 } else { WAIT * 1000 * 17 / 16 };
            let answer = url.ask(&asked, &token, None, config.timeout + patience).await?;
            let index = answer.field("x-consul-index").and_then(|index| index.parse().ok()).unwrap_or(0);
            let body = answer.body().await?;
            // One that goes back has to be read from its beginning.
            self.index = if index < before { 0 } else { index };
            if self.index != before || before == 0 {
                return instances(&JsonValue::parse(&body).map_err(|error| error.to_string())?);
            }
        }
    }
}

/// The servers of a response, each address once.
fn instances(value: &JsonValue) -> Result<Vec<ServerEntry>, String> {
    let all = value.list().ok_or("the answer is no array")?;
    let mut seen = std::collections::HashSet::new();
    let mut servers = Vec::new();
    for one in all {
        let service = one.field("Service").ok_or("an instance without service")?;
        let own = service.field("Address").and_then(JsonValue::text).filter(|address| !address.is_empty());
        let address = own.or_else(|| one.path(&["Node", "Address"]).and_then(JsonValue::text));
        let address = address.ok_or("an instance without address")?;
        let port =
            service.field("Port").and_then(JsonValue::number).filter(|port| (1..=65_535).contains(port));
        let port = port.ok_or("an instance without port")?;
        let name =
            if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") };
        if !seen.insert(name.clone()) {
            continue;
        }
        let weight =
            service.path(&["Weights", "Passing"]).and_then(JsonValue::number).filter(|weight| *weight > 0);
        let server = JsonWriter::object(|json| {
            json.key("server").text(&name);
            json.key("weight").raw(weight.unwrap_or(1));
        });
        servers.push(JsonValue::parse(server.as_bytes()).map_err(|error| error.to_string())?);
    }
    server_list::read(&JsonValue::List(servers))
}

/// Everything but letters, digits and `-._~` as in RFC 3986 section 2.1.
fn escape(out: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => write!(out, "%{byte:02X}").expect("writing to a String does not fail"),
        }
    }
}

/// Seconds that Consul may wait for a change.
const WAIT: u64 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_are_servers() {
        let text = r#"[{"Node":{"Address":"10.0.0.9"},"Service":{"Address":"","Port":80,"Weights":{"Passing":3}}},
            {"Node":{"Address":"10.0.0.9"},"Service":{"Address":"::1","Port":81}},
            {"Node":{"Address":"10.0.0.9"},"Service":{"Address":"","Port":80}}]"#;
        let list = instances(&JsonValue::parse(text.as_bytes()).expect("JSON")).expect("servers");
        let written = r#"[{"server":"10.0.0.9:80","weight":3},{"server":"[::1]:81"}]"#;
        assert_eq!(server_list::write(&list), written);
        let wrong = JsonValue::parse(br#"[{"Node":{"Address":"a"},"Service":{"Port":0}}]"#).expect("JSON");
        assert_eq!(instances(&wrong).expect_err("no port"), "an instance without port");
        let mut out = String::new();
        escape(&mut out, "a/b c");
        assert_eq!(out, "a%2Fb%20c");
    }
}

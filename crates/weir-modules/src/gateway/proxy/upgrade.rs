//! `proxy_upgrade`: which protocols a client may change to on its connection, through the proxy.

use std::sync::Arc;

use weir_conf::{LineCx, Result};
use weir_engine::Exchange;
use weir_http::KnownField;

use super::http::HttpPass;

/// The protocols whose names go on in `Upgrade`; none of them for `off`.
///
/// What a server speaks after an upgrade is not looked at any more. HTTP/2 is therefore never passed: its requests would
/// reach the server past all locations (h2c smuggling).
#[derive(Clone, Default)]
pub(super) struct UpgradeProtocols(Arc<[Box<str>]>);

impl UpgradeProtocols {
    /// `proxy_upgrade on | off | protocol ...`
    pub(super) fn set(slot: &mut Option<UpgradeProtocols>, line: &mut LineCx<'_>) -> Result {
        let mut names: Vec<Box<str>> = Vec::new();
        for at in 0..line.args().len() {
            match line.arg(at) {
                "off" if line.args().len() == 1 => {}
                "on" if line.args().len() == 1 => names.push("websocket".into()),
                "on" | "off" | "" => return Err(line.invalid_parameter(at)),
                name if name.to_ascii_lowercase().starts_with("h2") => {
                    return Err(line
                        .fail_arg(at, "HTTP/2 can't be passed: its requests would be seen by no location"));
                }
                name => names.push(name.into()),
            }
        }
        line.once(slot, UpgradeProtocols(names.into()))
    }

    /// No protocol is passed.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Of the protocols in an `Upgrade` field those that are passed, as they are written there.
    pub(super) fn of<'v>(&self, value: &'v [u8]) -> Vec<&'v [u8]> {
        let is_known = |word: &&[u8]| self.0.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes()));
        value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(is_known).collect()
    }
}

/// Whether the server of `x` was asked for another protocol, so that it may switch to one: by the client, and by what
/// the configuration passes on.
pub(super) fn was_asked(http: &HttpPass, x: &mut Exchange) -> bool {
    let Some(wish) = x.request.head.fields.iter().find(|field| field.known == KnownField::Upgrade) else {
        return false;
    };
    let wish = wish.value;
    match http.fields.set_value("Upgrade") {
        Some(value) => {
            let value = value.get(x);
            !x.text(&value).is_empty()
        }
        None => !http.fields.sets("Connection") && !http.upgrade.of(x.arena.get(wish)).is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_protocols_go_on() {
        let upgrades = UpgradeProtocols(Arc::from([Box::from("websocket"), Box::from("TLS/1.0")]));
        assert_eq!(upgrades.of(b"h2c"), Vec::<&[u8]>::new());
        assert_eq!(upgrades.of(b"WebSocket"), [b"WebSocket"]);
        assert_eq!(upgrades.of(b"h2c , websocket,HTTP/2.0, tls/1.0"), [&b"websocket"[..], b"tls/1.0"]);
    }
}

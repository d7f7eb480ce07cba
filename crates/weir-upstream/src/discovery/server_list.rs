//! What the members of an upstream are made of: `server` lines, and the like of them that come at run time.

use std::collections::HashMap;
use std::sync::Arc;

use weir_conf::split_port;
use weir_http::json::{JsonValue, JsonWriter};
use weir_rt::net::SockAddr;

use crate::discovery::dns::FollowedName;
use crate::discovery::server_address::resolve;
use crate::peer::Peer;
use crate::peer::members::UpstreamMembers;
use weir_engine::resolver;

/// The servers of an upstream, and where the list of them comes from.
#[derive(Debug, Default)]
pub(crate) struct ServerList {
    /// In their order.
    pub(crate) list: Vec<ServerEntry>,
    /// What the configuration says, as [`write`](write()) writes it: a configuration that says something else has its way.
    pub(crate) written: String,
    /// The list was changed at run time.
    pub(crate) moved: bool,
}

/// A server: a `server` line, or one of a list that came at run time.
#[derive(Clone, Debug)]
pub(crate) struct ServerEntry {
    /// `backup`
    pub(crate) backup: bool,
    /// What each of its addresses has: `server` is how it is written, address and state are of no meaning.
    pub(crate) model: Peer,
    pub(crate) place: ServerPlace,
}

/// Where a server is.
#[derive(Clone, Debug)]
pub(crate) enum ServerPlace {
    /// There, as long as it is listed.
    Fixed(Vec<SockAddr>),
    /// Where its name says at the moment.
    Name(Arc<FollowedName>),
}

impl ServerEntry {
    /// One whose addresses are known.
    pub(crate) fn of(model: Peer, addrs: Vec<SockAddr>) -> ServerEntry {
        ServerEntry { backup: false, model, place: ServerPlace::Fixed(addrs) }
    }

    /// Reads a server of a list: `"10.0.0.1:80"`, or an object with `server` and what else a `server` line may say.
    ///
    /// # Errors
    /// What is wrong, in words for the author of the list.
    pub(crate) fn read(value: &JsonValue) -> Result<ServerEntry, String> {
        let text = value.text().or_else(|| value.field("server").and_then(JsonValue::text));
        let text = text.ok_or("a server is a string, or an object with \"server\"")?;
        if text.is_empty() || text.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(format!("\"{}\" is no server", text.escape_default()));
        }
        let service = value.field("service").and_then(JsonValue::text);
        let literal = text.starts_with("unix:")
            || split_port(text).is_ok_and(|(host, _)| resolver::literal(host).is_some());
        let place = match literal {
            true => ServerPlace::Fixed(resolve(text, 80)?),
            // A caller that writes a name at run time wants it followed.
            false => ServerPlace::Name(Arc::new(FollowedName::new(text, service)?)),
        };
        let mut origin =
            ServerEntry { backup: false, model: Peer::plain(SockAddr::UNSPECIFIED, text), place };
        if let JsonValue::Object(fields) = value {
            origin.set(fields)?;
        }
        Ok(origin)
    }

    /// Takes over what an object says; what it is silent about stays.
    ///
    /// # Errors
    /// What is wrong, in words for the author of the list; then some of it may have been taken over.
    pub(crate) fn set(&mut self, fields: &[(String, JsonValue)]) -> Result<(), String> {
        for (key, value) in fields {
            self.set_one(key, value)
                .ok_or_else(|| format!("invalid value of \"{}\"", key.escape_default()))??;
        }
        Ok(())
    }

    /// `None`: the value is not one of this key.
    fn set_one(&mut self, key: &str, value: &JsonValue) -> Option<Result<(), String>> {
        let model = &mut self.model;
        let small = || value.number().and_then(|number| u32::try_from(number).ok());
        match key {
            "server" | "service" => drop(value.text()?),
            "weight" => model.weight = small().filter(|weight| (1..=WEIGHT).contains(weight))?,
            "max_conns" => model.max_conns = small()?,
            "max_fails" => model.max_fails = small()?,
            "fail_timeout" => model.fail_timeout = value.number()?,
            "slow_start" => model.slow_start = value.number()?.checked_mul(1000)?,
            "route" => model.route = value.text()?.into(),
            "bind" => model.bind = local(value.text()?)?,
            "down" => model.down = value.bool()?,
            "drain" => model.drain = value.bool()?,
            "backup" => self.backup = value.bool()?,
            _ => return Some(Err(format!("unknown key \"{}\"", key.escape_default()))),
        }
        Some(Ok(()))
    }

    /// Writes what [`read`](ServerEntry::read) reads; numbers of nginx's defaults are left out.
    pub(crate) fn write(&self, json: &mut JsonWriter) {
        let ServerEntry { backup, model, place } = self;
        json.nested(|json| {
            json.key("server").text(&model.server);
            if let ServerPlace::Name(named) = place
                && let Some(service) = named.service()
            {
                json.key("service").text(service);
            }
            let plain = Peer::plain(SockAddr::UNSPECIFIED, "");
            let mut number = |key, value: u64, default: u64| {
                if value != default {
                    json.key(key).raw(value);
                }
            };
            number("weight", model.weight.into(), 1);
            number("max_conns", model.max_conns.into(), 0);
            number("max_fails", model.max_fails.into(), plain.max_fails.into());
            number("fail_timeout", model.fail_timeout, plain.fail_timeout);
            number("slow_start", model.slow_start / 1000, 0);
            if !model.route.is_empty() {
                json.key("route").text(&model.route);
            }
            if let Some(bind) = &model.bind {
                json.key("bind").text(&bind.to_string());
            }
            for (key, set) in [("backup", *backup), ("down", model.down), ("drain", model.drain)] {
                if set {
                    json.key(key).raw(true);
                }
            }
        });
    }

    /// Whether `text` means this server: as it is written, or one of its addresses.
    pub(crate) fn is(&self, text: &str) -> bool {
        let at = |addr: &SockAddr| addr.to_string() == text;
        *self.model.server == *text
            || matches!(&self.place, ServerPlace::Fixed(addrs) if addrs.iter().any(at))
    }

    /// The entry for another configuration: each configuration follows names by itself.
    pub(crate) fn anew(&self) -> ServerEntry {
        let place = match &self.place {
            ServerPlace::Fixed(addrs) => ServerPlace::Fixed(addrs.clone()),
            ServerPlace::Name(named) => ServerPlace::Name(Arc::new(named.anew())),
        };
        ServerEntry { place, ..self.clone() }
    }

    /// Takes over what one of `before` knows of the same name, until it is asked for again.
    pub(crate) fn adopt_name(&self, before: &[ServerEntry]) {
        let ServerPlace::Name(named) = &self.place else { return };
        let same = before.iter().find_map(|old| match &old.place {
            ServerPlace::Name(old) if old.asks_as(named) => Some(old),
            _ => None,
        });
        if let Some(old) = same {
            named.adopt(old);
        }
    }

    /// Whether `peer` is as those of [`ServerEntry::peers`].
    pub(crate) fn has_made(&self, peer: &Peer, backup: bool) -> bool {
        match &self.place {
            ServerPlace::Fixed(_) => backup == self.backup && peer.is_set_as(&self.model),
            // What DNS records say may change weights, and which peer is a backup.
            ServerPlace::Name(_) => peer.server == self.model.server && peer.bind == self.model.bind,
        }
    }

    /// Its peers, each with whether it is to be asked when others fail.
    pub(crate) fn peers(&self) -> Vec<(Peer, bool)> {
        let peer = |addr: &SockAddr| Peer {
            name: addr.to_string().into(),
            addr: addr.clone(),
            state: Arc::default(),
            ..self.model.clone()
        };
        match &self.place {
            ServerPlace::Fixed(addrs) => addrs.iter().map(|addr| (peer(addr), self.backup)).collect(),
            ServerPlace::Name(named) => {
                let peers = named.peers(&self.model).into_iter();
                peers.map(|(peer, behind)| (peer, self.backup || behind)).collect()
            }
        }
    }
}

/// Reads a list of servers: an array, alone or as `servers` of an object.
///
/// # Errors
/// What is wrong, in words for the author of the list.
pub(crate) fn read(value: &JsonValue) -> Result<Vec<ServerEntry>, String> {
    let list = value.list().or_else(|| value.field("servers").and_then(JsonValue::list));
    let list = list.ok_or("a list of servers is an array, or an object with the array \"servers\"")?;
    let mut origins: Vec<ServerEntry> = Vec::with_capacity(list.len());
    for value in list {
        origins.push(ServerEntry::read(value)?);
    }
    let mut seen = std::collections::HashSet::new();
    match origins.iter().find(|origin| !seen.insert(&origin.model.server)) {
        Some(twice) => Err(format!("\"{}\" is listed twice", twice.model.server)),
        None => Ok(origins),
    }
}

/// Writes what [`read`] reads.
pub(crate) fn write(list: &[ServerEntry]) -> String {
    JsonWriter::array(|json| list.iter().for_each(|origin| origin.write(json)))
}

/// The peers of `list`. Of the peers of `before` one at the same address, and best of the same server, is the same, if
/// nothing else is said of it even the same peer.
pub(crate) fn members(list: &[ServerEntry], before: &UpstreamMembers) -> UpstreamMembers {
    let mut old: HashMap<&str, Vec<&Arc<Peer>>> = HashMap::new();
    for peer in before.all() {
        old.entry(&peer.name).or_default().push(peer);
    }
    let mut members = UpstreamMembers::default();
    for (peer, backup) in list.iter().flat_map(ServerEntry::peers) {
        let known = old.get_mut(&*peer.name).filter(|known| !known.is_empty()).map(|known| {
            let same = |old: &&Arc<Peer>| old.server == peer.server;
            let at = known.iter().position(|old| same(old) && old.bind == peer.bind);
            known.remove(at.or_else(|| known.iter().position(same)).unwrap_or(0))
        });
        let peer = match known {
            Some(old) if old.is_set_as(&peer) => old.clone(),
            Some(old) => Arc::new(Peer { state: old.state.clone(), ..peer }),
            None => Arc::new(peer),
        };
        if backup { &mut members.backup } else { &mut members.primary }.push(peer);
    }
    members
}

/// `bind=`: an address with or without a port; nothing takes it back. `None`: it is not one.
pub(crate) fn local(text: &str) -> Option<Option<SockAddr>> {
    if text.is_empty() {
        return Some(None);
    }
    let with_port = text.parse().or_else(|_| format!("{text}:0").parse());
    with_port.ok().filter(|addr: &SockAddr| addr.port().is_some()).map(Some)
}

/// The largest weight at run time: sums of them stay far from the end of 32 bits.
const WEIGHT: u32 = 65_535;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(text: &str) -> Result<Vec<ServerEntry>, String> {
        read(&JsonValue::parse(text.as_bytes()).expect("JSON"))
    }

    #[test]
    fn a_list_is_written_as_it_is_read() {
        let text = r#"[{"server":"127.0.0.1:80"},{"server":"[::1]:81","weight":3,"max_fails":0,"slow_start":2,"route":"a","bind":"127.0.0.2:0","backup":true,"drain":true},{"server":"example.org","service":"http","down":true}]"#;
        let origins = list(text).expect("a list");
        assert_eq!(write(&origins), text);
        assert_eq!((origins[1].model.weight, origins[1].model.slow_start), (3, 2000));
        assert_eq!(write(&list(r#"{"servers":["unix:/s"]}"#).expect("a list")), r#"[{"server":"unix:/s"}]"#);
        assert!(origins[0].is("127.0.0.1:80") && !origins[0].is("127.0.0.1"));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for (text, why) in [
            ("{}", "a list of servers is an array, or an object with the array \"servers\""),
            ("[1]", "a server is a string, or an object with \"server\""),
            (r#"["a b"]"#, "\"a b\" is no server"),
            (r#"["127.0.0.1:99999"]"#, "invalid port in upstream \"127.0.0.1:99999\""),
            (r#"[{"server":"127.0.0.1","weight":0}]"#, "invalid value of \"weight\""),
            (r#"[{"server":"127.0.0.1","bind":"here"}]"#, "invalid value of \"bind\""),
            (r#"[{"server":"127.0.0.1","colour":1}]"#, "unknown key \"colour\""),
            (r#"["127.0.0.1","127.0.0.1"]"#, "\"127.0.0.1\" is listed twice"),
            (r#"["unix:"]"#, "no path in the unix domain socket in upstream \"unix:\""),
        ] {
            assert_eq!(list(text).expect_err(text), why, "{text}");
        }
    }

    #[test]
    fn who_stays_keeps_what_is_known() {
        let before =
            members(&list(r#"["127.0.0.1:1","127.0.0.1:2"]"#).expect("a list"), &UpstreamMembers::default());
        let changed = r#"["127.0.0.1:3",{"server":"127.0.0.1:2","weight":5},"127.0.0.1:1"]"#;
        let after = members(&list(changed).expect("a list"), &before);
        assert!(Arc::ptr_eq(&after.primary[2], &before.primary[0]));
        assert!(Arc::ptr_eq(&after.primary[1].state, &before.primary[1].state));
        assert_eq!((after.primary[1].weight, &*after.primary[0].name), (5, "127.0.0.1:3"));
    }

    proptest! {
        /// Any JSON is a list or refused; what is a list is read again as it was written.
        #[test]
        fn any_value(servers in prop::collection::vec(("[0-9a-z.:]{0,12}", any::<u32>(), any::<bool>()), 0..4)) {
            let text = JsonWriter::array(|json| servers.iter().for_each(|(server, number, flag)| json.nested(|json| {
                json.key("server").text(server);
                json.key("weight").raw(number);
                json.key("down").raw(flag);
            })));
            if let Ok(origins) = list(&text) {
                prop_assert_eq!(write(&list(&write(&origins)).expect("our own")), write(&origins));
            }
        }
    }
}

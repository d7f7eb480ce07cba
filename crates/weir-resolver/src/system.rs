//! The system's own settings: `/etc/resolv.conf` and `/etc/hosts`, as texts.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use crate::name::DnsName;
use crate::settings::ResolverSettings;

/// Takes name servers, search list and `ndots` of a resolv.conf(5) into `settings`. As there, three name servers count,
/// the machine itself is asked when none is named, and the last `domain` or `search` holds.
pub fn apply(text: &str, settings: &mut ResolverSettings) {
    let mut servers = Vec::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("nameserver") => {
                servers.extend(words.next().and_then(address).map(|ip| SocketAddr::new(ip, 53)));
            }
            Some("search" | "domain") => settings.search = words.filter_map(DnsName::parse).collect(),
            Some("options") => {
                for number in words.filter_map(|word| word.strip_prefix("ndots:")?.parse::<usize>().ok()) {
                    settings.ndots = number.min(15);
                }
            }
            _ => {}
        }
    }
    servers.truncate(3);
    if servers.is_empty() {
        servers.push(SocketAddr::from(([127, 0, 0, 1], 53)));
    }
    settings.servers = servers;
}

/// The names of a hosts(5) file with their addresses.
pub fn hosts(text: &str) -> HashMap<DnsName, Vec<IpAddr>> {
    let mut hosts: HashMap<DnsName, Vec<IpAddr>> = HashMap::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        let Some(ip) = words.next().and_then(address) else { continue };
        for name in words.filter_map(DnsName::parse) {
            hosts.entry(name).or_default().push(ip);
        }
    }
    hosts
}

/// An address; of one with a zone (`fe80::1%eth0`) nothing is taken, since a zone has no meaning for others.
fn address(text: &str) -> Option<IpAddr> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_is_read_as_resolvers_read_it() {
        let text = "# c\nnameserver 10.0.0.1\nnameserver fe80::1%eth0\nnameserver ::1\ndomain a.org\n\
                    search b.org c.org\noptions edns0 ndots:2\n; x";
        let mut settings = ResolverSettings::default();
        apply(text, &mut settings);
        assert_eq!(settings.servers, [([10, 0, 0, 1], 53).into(), "[::1]:53".parse().expect("an address")]);
        assert_eq!(settings.search, [DnsName::parse("b.org"), DnsName::parse("c.org")].map(Option::unwrap));
        assert_eq!(settings.ndots, 2);
        let mut nothing = ResolverSettings::default();
        apply("", &mut nothing);
        assert_eq!(nothing.servers, [([127, 0, 0, 1], 53).into()]);
    }

    #[test]
    fn hosts_have_several_names_and_names_several_hosts() {
        let hosts = hosts("127.0.0.1 localhost # me\n::1 localhost ip6\n#1.1.1.1 x\nbad name\n");
        let of = |name: &str| DnsName::parse(name).and_then(|name| hosts.get(&name));
        assert_eq!(of("localhost").map(Vec::len), Some(2));
        assert_eq!(of("ip6").map(Vec::len), Some(1));
        assert_eq!((of("x"), of("name")), (None, None));
    }
}

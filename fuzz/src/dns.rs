//! Messages of name servers.

use weir_resolver::{DnsQuestion, Resolver, ResolverSettings, Transmit, system, wire};

/// Messages are read or refused, as an answer to a query in flight, too; so are the system's files.
pub fn dns(data: &[u8]) {
    let _ = wire::parse(data);
    let text = String::from_utf8_lossy(data);
    let mut settings =
        ResolverSettings { servers: vec![([127, 0, 0, 1], 53).into()], ..ResolverSettings::default() };
    system::hosts(&text);
    let mut resolver = Resolver::new(settings.clone(), || 1);
    let name = weir_resolver::DnsName::parse("a").expect("a label");
    resolver.resolve(0, DnsQuestion::Addresses(name), 1_000);
    while let Some(transmit) = resolver.poll_transmit() {
        if let Transmit::Datagram { token, .. } = transmit {
            resolver.handle_datagram(1, token, data);
        }
    }
    system::apply(&text, &mut settings);
    resolver.set_servers(2, &settings);
    resolver.recall(3, 1_800_000_000_000, &String::from_utf8_lossy(data));
    resolver.handle_timeout(u64::MAX / 4);
}

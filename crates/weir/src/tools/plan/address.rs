//! Which of the addresses that are listened on a request would come to.

use std::net::IpAddr;

use weir_engine::settings::listen::ListenAddress;

use super::PlanRequest;

/// The address that a request comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChosenAddress {
    /// Its index among the configuration's.
    pub(crate) index: usize,
    /// As it is written: `0.0.0.0:443`.
    pub(crate) name: String,
    /// It speaks TLS.
    pub(crate) ssl: bool,
    /// Others that the request might come to as well: which one says the destination's address alone.
    pub(crate) others: Vec<String>,
}

/// The address that `request` comes to: of its port, and where the host is an address, that one, else one of all
/// interfaces before one of a single interface.
///
/// # Errors
/// None has its port.
pub(super) fn choose(addresses: &[ListenAddress], request: &PlanRequest) -> Result<ChosenAddress, String> {
    let all = || addresses.iter().map(|address| address.addr.to_string()).collect::<Vec<_>>().join(", ");
    let mut fitting: Vec<usize> = match (&request.listen, request.port) {
        (Some(listen), _) => indices(addresses, |address| is_written(address, listen)),
        (None, Some(port)) => indices(addresses, |address| address.addr.port() == Some(port)),
        (None, None) => indices(addresses, |_| true),
    };
    let host = request.host.trim_matches(['[', ']']).parse::<IpAddr>().ok();
    fitting.sort_by_key(|index| rank(&addresses[*index], host, request.tls));
    let Some(index) = fitting.first().copied() else {
        let wanted = request.listen.clone().or_else(|| Some(format!("port {}", request.port?)));
        let wanted = wanted.unwrap_or_else(|| "any address".to_owned());
        let there = if addresses.is_empty() { "there are no addresses".to_owned() } else { all() };
        return Err(format!("nothing listens on {wanted}; the configuration has: {there}"));
    };
    let chosen = &addresses[index];
    let is_sure = request.listen.is_some() || host.is_some_and(|host| chosen.addr.ip() == Some(host));
    // Over QUIC come the same requests as over TLS.
    let others = fitting.iter().skip(1).filter(|index| !is_sure && !addresses[**index].quic);
    let others = others.map(|index| addresses[*index].addr.to_string()).collect();
    Ok(ChosenAddress { index, name: chosen.addr.to_string(), ssl: chosen.ssl || chosen.quic, others })
}

fn indices(addresses: &[ListenAddress], fits: impl Fn(&ListenAddress) -> bool) -> Vec<usize> {
    let fitting = addresses.iter().enumerate().filter(|(_, address)| !address.stream && fits(address));
    fitting.map(|(index, _)| index).collect()
}

/// Lower is better.
fn rank(address: &ListenAddress, host: Option<IpAddr>, tls: bool) -> (bool, bool, bool, bool, bool) {
    let is_host = host.is_some() && address.addr.ip() == host;
    let family = host.unwrap_or(IpAddr::from([0; 4])).is_ipv4();
    let other_family = address.addr.ip().is_none_or(|ip| ip.is_ipv4() != family);
    (address.quic, !is_host, address.ssl != tls, !address.addr.is_wildcard(), other_family)
}

/// Whether `text` means the address: as it is shown, or a port alone.
fn is_written(address: &ListenAddress, text: &str) -> bool {
    let port = text.strip_prefix("*:").unwrap_or(text).parse::<u16>();
    address.addr.to_string() == text
        || port.is_ok_and(|port| address.addr.port() == Some(port) && address.addr.is_wildcard())
}

//! Networks as nginx writes them: an IPv4 or IPv6 address, with or without `/BITS`, or `unix:`.

use std::net::IpAddr;

use weir_conf::{Error, LineCx};
use weir_rt::net::SockAddr;

/// A set of client addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cidr {
    /// IPv4; also IPv4 addresses mapped into IPv6.
    V4 {
        /// The network, its low bits zero.
        net: u32,
        /// One bits for the network.
        mask: u32,
    },
    /// IPv6.
    V6 {
        /// The network, its low bits zero.
        net: u128,
        /// One bits for the network.
        mask: u128,
    },
    /// Every client of a unix socket.
    Unix,
}

impl Cidr {
    /// The network in argument `at`, counted from 0 without the directive's name. Where the address has bits below the
    /// mask, it logs nginx's warning `low address bits of … are meaningless`. `None` where the text is not a network
    /// ([`Cidr::parse`]).
    pub fn argument(line: &mut LineCx<'_>, at: usize) -> Option<Cidr> {
        let (cidr, low_bits) = Cidr::parse(line.bytes(at))?;
        if low_bits {
            let message = format!("low address bits of {} are meaningless", line.arg(at));
            line.warn_arg(at, message);
        }
        Some(cidr)
    }

    /// As [`Cidr::argument`], for a parameter that must be a network; `at` counts arguments from 0.
    ///
    /// # Errors
    /// nginx's `invalid parameter`.
    pub fn required(line: &mut LineCx<'_>, at: usize) -> Result<Cidr, Error> {
        Cidr::argument(line, at).ok_or_else(|| line.invalid_parameter(at))
    }

    /// Reads `ADDRESS`, `ADDRESS/BITS` or `unix:` (nginx's `ngx_ptocidr`): the network, and whether the address has
    /// bits below its mask. `None` where the address or the number of bits is invalid.
    pub fn parse(text: &[u8]) -> Option<(Cidr, bool)> {
        if text == b"unix:" {
            return Some((Cidr::Unix, false));
        }
        let text = std::str::from_utf8(text).ok()?;
        let (addr, bits) = match text.split_once('/') {
            Some((addr, bits)) => (addr, Some(weir_conf::parse_number(bits.as_bytes())?)),
            None => (text, None),
        };
        match ip(addr)? {
            IpAddr::V4(addr) => {
                let addr = u32::from(addr);
                let mask = u32::MAX.checked_shl(32 - below(bits, 32)?).unwrap_or(0);
                Some((Cidr::V4 { net: addr & mask, mask }, addr & !mask != 0))
            }
            IpAddr::V6(addr) => {
                let addr = u128::from(addr);
                let mask = u128::MAX.checked_shl(128 - below(bits, 128)?).unwrap_or(0);
                Some((Cidr::V6 { net: addr & mask, mask }, addr & !mask != 0))
            }
        }
    }

    /// The network that contains only `addr`.
    pub fn host(addr: IpAddr) -> Cidr {
        match addr {
            IpAddr::V4(addr) => Cidr::V4 { net: addr.into(), mask: u32::MAX },
            IpAddr::V6(addr) => Cidr::V6 { net: addr.into(), mask: u128::MAX },
        }
    }

    /// Whether `addr` is in the network.
    pub fn contains(&self, addr: &SockAddr) -> bool {
        self.contains_ip(canonical(addr))
    }

    /// As [`Cidr::contains`], for many networks: [`canonical`] needs to look at the address once only.
    #[inline]
    pub fn contains_ip(&self, ip: Option<IpAddr>) -> bool {
        match (self, ip) {
            (Cidr::V4 { net, mask }, Some(IpAddr::V4(ip))) => u32::from(ip) & mask == *net,
            (Cidr::V6 { net, mask }, Some(IpAddr::V6(ip))) => u128::from(ip) & mask == *net,
            (Cidr::Unix, None) => true,
            _ => false,
        }
    }
}

/// The address in `addr`, as IPv4 where it is mapped into IPv6; `None` for a unix socket.
pub fn canonical(addr: &SockAddr) -> Option<IpAddr> {
    addr.ip().map(|ip| ip.to_canonical())
}

/// An address without port or brackets, as nginx reads one.
pub fn ip(text: &str) -> Option<IpAddr> {
    ipv4(text).or_else(|| text.parse().ok())
}

/// Four numbers of any number of digits, as nginx reads them: 010 is ten. Byte by byte, since `geo` reads addresses
/// of variables with it.
fn ipv4(text: &str) -> Option<IpAddr> {
    let (mut address, mut octet, mut digits, mut dots) = (0_u32, 0_u32, 0_u32, 0_u32);
    for byte in text.bytes() {
        match byte {
            b'0'..=b'9' => {
                octet = octet * 10 + u32::from(byte - b'0');
                digits += 1;
                if octet > 255 {
                    return None;
                }
            }
            b'.' if digits > 0 && dots < 3 => {
                address = address << 8 | octet;
                (octet, digits) = (0, 0);
                dots += 1;
            }
            _ => return None,
        }
    }
    (dots == 3 && digits > 0).then(|| IpAddr::from((address << 8 | octet).to_be_bytes()))
}

/// The number of bits, `all` without one; `None` for more than that.
fn below(bits: Option<u64>, all: u32) -> Option<u32> {
    let bits = u32::try_from(bits.unwrap_or(u64::from(all))).ok()?;
    (bits <= all).then_some(bits)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use proptest::prelude::*;

    use super::*;

    fn contains(cidr: &str, addr: &str) -> bool {
        let addr: SocketAddr = addr.parse().expect("an address");
        Cidr::parse(cidr.as_bytes()).expect(cidr).0.contains(&addr.into())
    }

    #[test]
    fn addresses_are_in_their_networks() {
        for (cidr, addr, inside) in [
            ("127.0.0.1", "127.0.0.1:1", true),
            ("127.0.0.1", "127.0.0.2:1", false),
            ("10.0.0.0/8", "10.255.1.2:1", true),
            ("10.0.0.0/8", "11.0.0.0:1", false),
            ("10.9.9.9/8", "10.1.1.1:1", true),
            ("0.0.0.0/0", "203.0.113.9:1", true),
            ("10.0.0.0/8", "[::ffff:10.1.1.1]:1", true),
            ("::ffff:0:0/96", "[::ffff:10.1.1.1]:1", false),
            ("0.0.0.0/0", "[2001:db8::1]:1", false),
            ("2001:db8::/32", "[2001:db8:1::9]:1", true),
            ("2001:db8::/32", "[2001:db9::]:1", false),
            ("::/0", "[2001:db9::]:1", true),
            ("::1", "[::1]:1", true),
            ("unix:", "127.0.0.1:1", false),
            ("010.0.0.1", "10.0.0.1:1", true),
        ] {
            assert_eq!(contains(cidr, addr), inside, "{cidr} {addr}");
        }
    }

    #[test]
    fn what_is_no_network_is_refused_and_low_bits_are_noticed() {
        for text in
            ["", "all", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/", "10.0.0.0/x", "host", "unix"]
        {
            assert_eq!(Cidr::parse(text.as_bytes()), None, "{text}");
        }
        for (text, low) in [("10.0.0.1/8", true), ("10.0.0.0/8", false), ("::1/64", true), ("::1", false)] {
            assert_eq!(Cidr::parse(text.as_bytes()).map(|(_, low)| low), Some(low), "{text}");
        }
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "[0-9a-f:./u]{0,20}") {
            Cidr::parse(text.as_bytes());
        }

        #[test]
        fn an_address_is_in_each_network_around_it(ip in any::<u32>(), bits in 0..=32_u32) {
            let ip = std::net::Ipv4Addr::from(ip);
            let cidr = format!("{ip}/{bits}");
            let addr = format!("{ip}:1");
            prop_assert!(contains(&cidr, &addr));
        }
    }
}

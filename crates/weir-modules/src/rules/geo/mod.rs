//! `geo`: a variable whose value depends on an address, by networks or by ranges (nginx's `ngx_http_geo_module`).
//!
//! Networks and ranges are turned into one sorted list of where a value begins. A look-up is a jump by the address's
//! first 16 bits and a short search, whatever the depth of networks inside one another.

mod flat;
mod networks;
mod ranges;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use weir_conf::names::{HTTP_OR_STREAM, ONE_OR_TWO};
use weir_conf::{Directive, LineCx, Result};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::variable::VarIndex;
use weir_engine::{Exchange, Module, Text};
use weir_http::KnownField;
use weir_rt::net::SockAddr;

use crate::support::computed::{self, ValueLifetime};
use crate::support::forwarded::ProxyTrust;
use flat::FlatGeo;
use networks::GeoNetworks;
use ranges::GeoRanges;
use weir_engine::cidr::{self, Cidr};

/// The module `geo`.
pub struct Geo;

impl Module for Geo {
    const NAME: &'static str = "geo";
    type Conf = ();
    const DIRECTIVES: &'static [Directive<()>] =
        &[Directive::new("geo", HTTP_OR_STREAM, ONE_OR_TWO.block(), set_geo)
            .syntax("geo [$address] $variable")
            .doc(
                "Defines a variable whose value depends on the client address, or on the address \
             in another variable. Entries in the block are networks with their values; the \
             most specific network wins. Special lines: `default`, `delete`, `include`, \
             `proxy`, `proxy_recursive`, `ranges` and `volatile`.",
            )
            .example(
                "geo $country {\n\
             \x20   default        ZZ;\n\
             \x20   192.0.2.0/24   DE;\n\
             \x20   2001:db8::/32  FR;\n\
             }",
            )];
}

/// `geo [$address] $variable { ... }`
fn set_geo(_conf: &mut (), line: &mut LineCx<'_>) -> Result {
    let name = computed::name_at(line, 0)?;
    let (address, name) = match line.args().get(1) {
        None => (None, name),
        Some(_) => {
            let span = line.args()[0].span;
            let address = line.ext::<ConfRegistry>().use_variable(name, span);
            (Some(address), computed::name_at(line, 1)?)
        }
    };
    let mut block = GeoBlock::default();
    for entry in line.entries()? {
        block.entry(&mut line.entry(entry))?;
    }
    let volatile = block.volatile;
    let table = block.table(address);
    computed::define(line, name, ValueLifetime::of(volatile), move |x| Some(table.find(x)))
}

/// A block while it is read.
#[derive(Default)]
struct GeoBlock {
    values: GeoValues,
    base: GeoBase,
    proxies: Vec<Cidr>,
    recursive: bool,
    volatile: bool,
}

/// What addresses are matched against.
enum GeoBase {
    /// Networks, the smallest counts.
    Networks(GeoNetworks),
    /// Ranges of IPv4 addresses, and the value of all others.
    Ranges(GeoRanges, Option<u32>),
}

impl Default for GeoBase {
    fn default() -> GeoBase {
        GeoBase::Networks(GeoNetworks::default())
    }
}

/// The values, each once; the first is the empty one.
struct GeoValues {
    texts: Vec<Box<[u8]>>,
    known: HashMap<Box<[u8]>, u32>,
}

impl Default for GeoValues {
    fn default() -> GeoValues {
        GeoValues { texts: vec![Box::default()], known: HashMap::from([(Box::default(), 0)]) }
    }
}

impl GeoValues {
    fn number(&mut self, text: &[u8]) -> u32 {
        if let Some(number) = self.known.get(text) {
            return *number;
        }
        let number = self.texts.len() as u32;
        self.texts.push(text.into());
        self.known.insert(text.into(), number);
        number
    }

    fn shown(&self, number: u32) -> String {
        String::from_utf8_lossy(&self.texts[number as usize]).into_owned()
    }
}

impl GeoBlock {
    fn entry(&mut self, entry: &mut LineCx<'_>) -> Result {
        match (entry.line().name.bytes(), entry.args().len()) {
            (b"ranges", 0) => return self.set_ranges(entry),
            (b"proxy_recursive", 0) => self.recursive = true,
            (b"volatile", 0) => self.volatile = true,
            (b"proxy", 1) => self.proxies.push(network(entry, Some(0))?),
            (_, 1) => return self.add(entry),
            _ => return Err(entry.fail("invalid number of the geo parameters")),
        }
        Ok(())
    }

    fn set_ranges(&mut self, entry: &LineCx<'_>) -> Result {
        match &self.base {
            GeoBase::Networks(networks) if networks.is_begun() => {
                Err(entry.fail("the \"ranges\" directive must be the first directive inside \"geo\" block"))
            }
            GeoBase::Networks(_) => {
                self.base = GeoBase::Ranges(GeoRanges::default(), None);
                Ok(())
            }
            GeoBase::Ranges(..) => Ok(()),
        }
    }

    fn add(&mut self, entry: &mut LineCx<'_>) -> Result {
        match &mut self.base {
            GeoBase::Networks(networks) => networks.add(entry, &mut self.values),
            GeoBase::Ranges(_, default) if entry.line().name.bytes() == b"default" => {
                if let Some(old) = default {
                    let (new, old) = (entry.arg(0), self.values.shown(*old));
                    entry.warn(format!("duplicate default geo range value: \"{new}\", old value: \"{old}\""));
                }
                *default = Some(self.values.number(entry.bytes(0)));
                Ok(())
            }
            GeoBase::Ranges(ranges, _) => ranges.add(entry, &mut self.values),
        }
    }

    fn table(self, address: Option<VarIndex>) -> GeoTable {
        let (v4, v6) = match self.base {
            GeoBase::Networks(networks) => {
                let (v4, v6) = networks.flat();
                (v4, Some(v6))
            }
            GeoBase::Ranges(ranges, default) => (ranges.flat(default.unwrap_or(0)), None),
        };
        let proxies = (!self.proxies.is_empty()).then(|| ProxyTrust::new(&self.proxies, self.recursive));
        GeoTable { address, proxies, values: self.values.texts.into(), v4, v6 }
    }
}

/// The network that argument `at` is, or the line's first word, with nginx's words for what is wrong with it.
fn network(entry: &mut LineCx<'_>, at: Option<usize>) -> Result<Cidr> {
    let name = &entry.line().name;
    let (bytes, shown) = at.map_or((name.bytes(), name.str()), |at| (entry.bytes(at), entry.arg(at)));
    match Cidr::parse(bytes) {
        Some((Cidr::Unix, _)) | None => Err(entry.fail(format!("invalid network \"{shown}\""))),
        Some((cidr, low_bits)) => {
            if low_bits {
                entry.warn(format!("low address bits of {shown} are meaningless"));
            }
            Ok(cidr)
        }
    }
}

/// A `geo`.
struct GeoTable {
    /// The variable with the address; `None`: the client's.
    address: Option<VarIndex>,
    /// Whose X-Forwarded-For is believed.
    proxies: Option<ProxyTrust>,
    values: Box<[Box<[u8]>]>,
    v4: FlatGeo<u32>,
    /// `None` with ranges, which are IPv4's.
    v6: Option<FlatGeo<u128>>,
}

impl GeoTable {
    fn find(&self, x: &mut Exchange) -> Text {
        let number = match self.ip(x) {
            Some(IpAddr::V4(ip)) => self.v4.find(ip.into()),
            Some(IpAddr::V6(ip)) => match (ip.to_ipv4_mapped(), &self.v6) {
                (Some(ip), _) => self.v4.find(ip.into()),
                (None, Some(v6)) => v6.find(ip.into()),
                (None, None) => self.v4.find(NOWHERE.into()),
            },
            None => self.v4.find(NOWHERE.into()),
        };
        match &*self.values[number as usize] {
            b"" => Text::EMPTY,
            value => Text::Span(x.arena.push(value)),
        }
    }

    /// The address in question; `None` for a unix socket and for a text that is no address.
    fn ip(&self, x: &mut Exchange) -> Option<IpAddr> {
        let named;
        let addr = match self.address {
            None => x.client(),
            Some(index) => {
                let text = x.variable(index)?;
                let ip = cidr::ip(std::str::from_utf8(x.text(&text)).ok()?)?;
                named = SockAddr::from((ip, 0));
                &named
            }
        };
        if let Some(trust) = &self.proxies {
            let fields = x.request.head.fields.iter().rev();
            let named = fields.filter(|field| field.known == KnownField::XForwardedFor);
            if let Some(reported) = trust.many(addr, named.map(|field| x.arena.get(field.value))) {
                return reported.ip();
            }
        }
        addr.ip()
    }
}

/// The address that nginx looks up for whom it has none.
const NOWHERE: Ipv4Addr = Ipv4Addr::BROADCAST;

#[cfg(test)]
mod tests {
    use weir_engine::testing::value;

    use crate::testing::{WITH_ONE, asked, whole_core_and};

    use weir_engine::ModuleDef;
    use weir_engine::conf;

    use super::*;
    use crate::testing::core_and;

    static MODULES: [ModuleDef; 4] = core_and::<Geo>();

    fn text(lines: &str) -> String {
        format!("events {{ }} http {{ {lines} server {{ }} }}")
    }

    #[test]
    fn mistakes_in_nginx_words() {
        for (lines, words) in [
            ("geo x { }", "invalid variable name \"x\""),
            ("geo $uri x { }", "invalid variable name \"x\""),
            ("geo $host { }", "the duplicate \"host\" variable"),
            ("geo $x { a; }", "invalid number of the geo parameters"),
            ("geo $x { 10.0.0.0/8 a b; }", "invalid number of the geo parameters"),
            ("geo $x { 10.0.0.0/33 a; }", "invalid network \"10.0.0.0/33\""),
            ("geo $x { unix: a; }", "invalid network \"unix:\""),
            ("geo $x { delete x; }", "invalid network \"x\""),
            ("geo $x { proxy x; }", "invalid network \"x\""),
            (
                "geo $x { default a; ranges; }",
                "the \"ranges\" directive must be the first directive inside \"geo\" block",
            ),
            ("geo $x { ranges; 10.0.0.0/8 a; }", "invalid range \"10.0.0.0/8\""),
            ("geo $x { ranges; 10.0.0.9-10.0.0.1 a; }", "invalid range \"10.0.0.9-10.0.0.1\""),
            (
                "geo $x { ranges; 10.0.0.0-10.0.0.9 a; 10.0.0.5-10.0.0.12 b; }",
                "range \"10.0.0.5-10.0.0.12\" overlaps \"10.0.0.0-10.0.0.9\"",
            ),
            ("geo $no $x { }", "unknown \"no\" variable"),
        ] {
            let found = conf::test::headlines(&text(lines), &MODULES);
            assert!(found[0].starts_with(words), "{lines}: {found:?}");
        }
    }

    #[test]
    fn what_nginx_takes_is_taken() {
        for lines in [
            "geo $x { }",
            "geo $x { volatile; proxy 10.0.0.0/8; proxy_recursive; ranges; default a; default b; }",
            "geo $arg_a $x { default a; 10.0.0.1/8 b; 10.0.0.0/8 c; delete 10.0.0.0/8; delete 1.1.1.1; ::/0 d; }",
        ] {
            assert!(conf::test::load(&text(lines), &MODULES).is_ok(), "{lines}");
        }
    }

    static WHOLE: [ModuleDef; WITH_ONE] = whole_core_and::<Geo>();

    /// `$x` of a request of 192.0.2.1 with these fields.
    fn found(lines: &str, fields: &str) -> String {
        let http = format!("{lines} server {{ }}");
        asked(&WHOLE, &http, ("/", fields), |x| value(x, "x")).expect("geo has a value for all addresses")
    }

    #[test]
    fn the_smallest_network_counts() {
        let lines = "geo $http_a $x { default d; 10.0.0.0/8 a; 10.1.0.0/16 b; 10.1.2.3 c; 10.9.0.0/16 gone; delete 10.9.0.0/16;
            2001:db8::/32 v; 2001:db8:1::/48 w; 255.255.255.255 nowhere; 172.16.0.0/12 a; }";
        for (address, value) in [
            ("10.0.0.0", "a"),
            ("10.255.255.255", "a"),
            ("11.0.0.0", "d"),
            ("9.255.255.255", "d"),
            ("10.1.0.0", "b"),
            ("10.1.255.255", "b"),
            ("10.1.2.3", "c"),
            ("10.1.2.4", "b"),
            ("10.9.1.1", "a"),
            ("172.31.0.1", "a"),
            ("::ffff:10.1.2.3", "c"),
            ("2001:db8::1", "v"),
            ("2001:db8:1::1", "w"),
            ("2001:db8:2::1", "v"),
            ("2001:db9::", "d"),
            ("::1", "d"),
            ("no address", "nowhere"),
        ] {
            assert_eq!(found(lines, &format!("A: {address}\r\n")), value, "{address}");
        }
        assert_eq!(found(lines, ""), "nowhere");
        assert_eq!(found("geo $x { 192.0.2.0/24 client; }", ""), "client");
        assert_eq!(found("geo $x { 192.0.3.0/24 client; }", ""), "");
    }

    #[test]
    fn ranges_include_their_ends() {
        let lines = "geo $http_a $x { ranges; default d; 10.0.255.250-10.2.0.5 a; 10.1.0.10-10.1.0.19 b; 10.5.0.0-10.5.0.9 e;
            delete 10.5.0.0-10.5.0.9; 10.6.0.0-10.6.0.0 one; }";
        for (address, value) in [
            ("10.0.255.249", "d"),
            ("10.0.255.250", "a"),
            ("10.1.0.9", "a"),
            ("10.1.0.10", "b"),
            ("10.1.0.19", "b"),
            ("10.1.0.20", "a"),
            ("10.2.0.5", "a"),
            ("10.2.0.6", "d"),
            ("10.5.0.1", "d"),
            ("10.6.0.0", "one"),
            ("10.6.0.1", "d"),
            ("::ffff:10.1.0.10", "b"),
            ("2001:db8::1", "d"),
            ("no address", "d"),
        ] {
            assert_eq!(found(lines, &format!("A: {address}\r\n")), value, "{address}");
        }
        assert_eq!(found("geo $x { ranges; 10.0.0.1-10.0.0.2 a; }", ""), "");
    }

    #[test]
    fn only_a_proxy_says_whose_address_is_looked_up() {
        let block = |lines: &str| {
            format!("geo $x {{ {lines} default d; 192.0.2.0/24 me; 10.0.0.0/8 a; 11.0.0.0/8 b; }}")
        };
        let fields = "X-Forwarded-For: 11.0.0.1\r\nX-Forwarded-For: 11.0.0.2, 10.0.0.1\r\n";
        for (lines, value) in [
            ("", "me"),
            ("proxy 192.0.2.1;", "a"),
            ("proxy 198.51.100.1;", "me"),
            ("proxy 192.0.2.1; proxy 10.0.0.0/8;", "a"),
            ("proxy 192.0.2.1; proxy 10.0.0.0/8; proxy_recursive;", "b"),
            ("proxy_recursive;", "me"),
        ] {
            assert_eq!(found(&block(lines), fields), value, "{lines}");
            assert_eq!(found(&block(lines), ""), "me", "{lines}");
        }
    }
}

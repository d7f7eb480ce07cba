//! Networks with values, as a `geo` block has them.

use std::collections::BTreeMap;

use weir_conf::{LineCx, Result};

use super::flat::FlatGeo;
use super::{GeoValues, network};
use weir_engine::cidr::Cidr;

/// The networks read so far: by first address and number of bits.
#[derive(Default)]
pub(super) struct GeoNetworks {
    v4: BTreeMap<(u32, u32), u32>,
    v6: BTreeMap<(u128, u32), u32>,
    begun: bool,
}

impl GeoNetworks {
    /// `network value`, `default value` or `delete network`.
    pub(super) fn add(&mut self, entry: &mut LineCx<'_>, values: &mut GeoValues) -> Result {
        self.begun = true;
        let name = &entry.line().name;
        match name.bytes() {
            b"default" => {
                let value = values.number(entry.bytes(0));
                for cidr in [Cidr::V4 { net: 0, mask: 0 }, Cidr::V6 { net: 0, mask: 0 }] {
                    self.put(entry, &cidr, name.str(), value, values);
                }
            }
            b"delete" => {
                let cidr = network(entry, Some(0))?;
                if self.remove(&cidr).is_none() {
                    entry.warn(format!("no network \"{}\" to delete", entry.arg(0)));
                }
            }
            _ => {
                let cidr = network(entry, None)?;
                let value = values.number(entry.bytes(0));
                self.put(entry, &cidr, name.str(), value, values);
            }
        }
        Ok(())
    }

    /// A line about networks was read.
    pub(super) fn is_begun(&self) -> bool {
        self.begun
    }

    fn put(&mut self, entry: &mut LineCx<'_>, cidr: &Cidr, shown: &str, value: u32, values: &GeoValues) {
        // nginx reports the value of the network's first address, which may be that of a smaller network.
        let before = self.find(cidr);
        let taken = match *cidr {
            Cidr::V4 { net, mask } => self.v4.insert((net, mask.count_ones()), value).is_some(),
            Cidr::V6 { net, mask } => self.v6.insert((net, mask.count_ones()), value).is_some(),
            Cidr::Unix => false,
        };
        if let (true, Some(old)) = (taken, before) {
            let (value, old) = (values.shown(value), values.shown(old));
            entry.warn(format!("duplicate network \"{shown}\", value: \"{value}\", old value: \"{old}\""));
        }
    }

    fn remove(&mut self, cidr: &Cidr) -> Option<u32> {
        match *cidr {
            Cidr::V4 { net, mask } => self.v4.remove(&(net, mask.count_ones())),
            Cidr::V6 { net, mask } => self.v6.remove(&(net, mask.count_ones())),
            Cidr::Unix => None,
        }
    }

    /// The value of the first address of `cidr` as of now, if it is in a network.
    fn find(&self, cidr: &Cidr) -> Option<u32> {
        match *cidr {
            Cidr::V4 { net, .. } => (0..=32).rev().find_map(|bits| {
                self.v4.get(&(net & u32::MAX.checked_shl(32 - bits).unwrap_or(0), bits)).copied()
            }),
            Cidr::V6 { net, .. } => (0..=128).rev().find_map(|bits| {
                self.v6.get(&(net & u128::MAX.checked_shl(128 - bits).unwrap_or(0), bits)).copied()
            }),
            Cidr::Unix => None,
        }
    }

    /// For look-ups.
    pub(super) fn flat(self) -> (FlatGeo<u32>, FlatGeo<u128>) {
        let rest4 = |bits| u32::MAX.checked_shr(bits).unwrap_or(0);
        let rest6 = |bits| u128::MAX.checked_shr(bits).unwrap_or(0);
        let v4 = self.v4.into_iter().map(|((net, bits), value)| (net, net | rest4(bits), value));
        let v6 = self.v6.into_iter().map(|((net, bits), value)| (net, net | rest6(bits), value));
        (FlatGeo::new(v4, 0), FlatGeo::new(v6, 0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_smallest_network_counts(nets in vec((any::<u32>(), 0..=32_u32), 0..300), asked in vec(any::<u32>(), 20)) {
            let mut networks = GeoNetworks::default();
            for (value, (net, bits)) in nets.iter().enumerate() {
                let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
                networks.v4.insert((net & mask, *bits), value as u32 + 1);
            }
            let expected = |ip: u32| networks.find(&Cidr::V4 { net: ip, mask: u32::MAX }).unwrap_or(0);
            let asked: Vec<_> = asked.iter().chain(nets.iter().map(|(net, _)| net)).map(|ip| (*ip, expected(*ip))).collect();
            let (flat, _) = networks.flat();
            for (ip, value) in asked {
                prop_assert_eq!(flat.find(ip), value);
            }
        }
    }
}

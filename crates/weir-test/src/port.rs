//! Free ports of the loopback.

use std::net::{Ipv4Addr, TcpListener};

/// Different ports that nobody listens on at this moment.
///
/// Before a server binds one of them another process may take it: starting is tried again with new ports then.
///
/// # Panics
/// When there are not as many.
#[must_use]
#[track_caller]
pub fn free_ports(count: usize) -> Vec<u16> {
    // All are held until the last is chosen, so that none is given twice.
    let held: Vec<_> = (0..count).map(|_| bind()).collect();
    held.iter().map(number).collect()
}

/// A port nobody listens on at this moment, for a peer of the test's own or for a connection to be refused.
///
/// # Panics
/// When there is none.
#[must_use]
#[track_caller]
pub fn free_port() -> u16 {
    number(&bind())
}

#[track_caller]
fn bind() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap_or_else(|error| panic!("no free port: {error}"))
}

fn number(listener: &TcpListener) -> u16 {
    listener.local_addr().expect("it is bound").port()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_chosen_together_differ() {
        let mut numbers = free_ports(8);
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 8);
    }
}

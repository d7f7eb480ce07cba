//! Free ports of the loopback.
//!
//! Not by bind to port 0: such a number is given again, to the next process that asks or as the local end of any
//! connection, in the moment between its choice and its use, and as soon as a test's peer is gone. So the numbers come
//! from outside the range the kernel chooses from, each process has blocks of its own, and none is given twice.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Mutex, PoisonError};

/// Different ports that nothing listens on, and that no other test is given.
///
/// # Panics
/// When there are not as many.
#[must_use]
#[track_caller]
pub fn free_ports(count: usize) -> Vec<u16> {
    (0..count).map(|_| free_port()).collect()
}

/// A port nothing listens on, for a peer of the test's own or for a connection to be refused.
///
/// # Panics
/// When none is free.
#[must_use]
#[track_caller]
pub fn free_port() -> u16 {
    free_listener().local_addr().expect("it is bound").port()
}

/// A listener on such a port.
///
/// # Panics
/// When none is free.
#[must_use]
#[track_caller]
pub fn free_listener() -> TcpListener {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let port = pool.next();
        // A number may be in use by something that is no test.
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return listener;
        }
    }
}

/// The ports of this process.
struct PortPool {
    /// The rest of the block in use.
    left: Range<u16>,
    /// What says that a block is taken: a name that goes with the process, in the network namespace the ports are of.
    claims: Vec<UnixDatagram>,
}

impl PortPool {
    #[track_caller]
    fn next(&mut self) -> u16 {
        if self.left.is_empty() {
            self.left = self.claim();
        }
        self.left.next().expect("a block just claimed is not empty")
    }

    #[track_caller]
    fn claim(&mut self) -> Range<u16> {
        let all = outside(&fs::read_to_string(CHOSEN_BY_KERNEL).unwrap_or_default());
        let blocks = all.len() / usize::from(BLOCK);
        // Processes begin at different places, so that one does not follow another at once.
        let first = std::process::id() as usize;
        for block in (0..blocks).map(|n| (first + n) % blocks) {
            let start = all.start + block as u16 * BLOCK;
            let name =
                SocketAddr::from_abstract_name(format!("weir-test-ports-{start}")).expect("a short name");
            if let Ok(claim) = UnixDatagram::bind_addr(&name) {
                self.claims.push(claim);
                return start..start + BLOCK;
            }
        }
        panic!("no free ports in {all:?}: {blocks} blocks are taken");
    }
}

/// The larger part of the unprivileged ports below or above the kernel's range (two numbers); all of them where it
/// leaves too few.
fn outside(range: &str) -> Range<u16> {
    let mut numbers = range.split_whitespace().filter_map(|number| number.parse::<u16>().ok());
    let (low, high) = (numbers.next().unwrap_or(LOWEST), numbers.next().unwrap_or(LOWEST));
    let (below, above) = (LOWEST..low.max(LOWEST), high.max(LOWEST).saturating_add(1)..u16::MAX);
    let larger = if below.len() > above.len() { below } else { above };
    if larger.len() < usize::from(BLOCK) * FEW_BLOCKS { LOWEST..u16::MAX } else { larger }
}

const CHOSEN_BY_KERNEL: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// Below are the usual ports of services.
const LOWEST: u16 = 10_000;
/// Most test programs need one.
const BLOCK: u16 = 64;
const FEW_BLOCKS: usize = 16;

static POOL: Mutex<PortPool> = Mutex::new(PortPool { left: 0..0, claims: Vec::new() });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let mut numbers = free_ports(usize::from(BLOCK) + 8);
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), usize::from(BLOCK) + 8);
    }

    #[test]
    fn ports_are_none_that_the_kernel_chooses() {
        assert_eq!(outside("32768\t60999\n"), 10_000..32_768);
        assert_eq!(outside("10500 20000"), 20_001..65_535);
        assert_eq!(outside("1024 65535"), 10_000..65_535);
        assert_eq!(outside(""), 10_001..65_535);
    }
}

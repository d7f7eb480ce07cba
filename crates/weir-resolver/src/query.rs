//! A query in flight: attempts at name servers until one responds.

use crate::cache::CacheKey;
use crate::dns_answer::DnsFailure;
use crate::event::SocketToken;
use crate::name::DnsName;
use crate::wire::{DnsResponse, RecordData, RecordType};

/// A query in flight.
#[derive(Debug)]
pub(crate) struct DnsQuery {
    /// What is wanted.
    pub(crate) key: CacheKey,
    /// What is asked: the name, or what it is an alias of.
    pub(crate) name: DnsName,
    /// Aliases that were followed.
    pub(crate) aliases: u32,
    /// Seconds that the aliases hold.
    pub(crate) ttl: u32,
    /// The servers that are still to be asked in this round.
    pub(crate) order: Vec<usize>,
    /// How often a server was asked.
    pub(crate) asked: u32,
    /// The worst that a server said.
    pub(crate) code: Option<u8>,
    /// Sockets whose answers are waited for.
    pub(crate) attempts: Vec<QueryAttempt>,
    /// A connection was opened for it, since a datagram was truncated: there is one at the most for each name that is asked.
    pub(crate) streamed: bool,
    /// When it is given up.
    pub(crate) until: u64,
}

/// One message on its way.
#[derive(Debug)]
pub(crate) struct QueryAttempt {
    pub(crate) token: SocketToken,
    pub(crate) server: usize,
    pub(crate) id: u16,
    pub(crate) stream: bool,
    /// With options.
    pub(crate) edns: bool,
    /// Counted as failed: the answer was late.
    pub(crate) late: bool,
}

/// What a response means for a query.
#[derive(Debug)]
pub(crate) enum ResponseMeaning {
    /// Records, and how many seconds they hold.
    Found(Vec<RecordData>, u32),
    /// There is nothing, for this many seconds.
    Nothing(Option<u32>),
    /// It is an alias: another name is to be asked for.
    Alias(DnsName, u32),
    /// The server can't say.
    Failed(u8),
}

/// Aliases that are followed at most.
pub(crate) const ALIASES: u32 = 16;

/// Milliseconds that the next attempt waits for, after `asked` attempts.
pub(crate) fn patience(asked: u32) -> u64 {
    match asked {
        0 | 1 => 1_000,
        2 | 3 => 2_000,
        _ => 5_000,
    }
}

impl DnsQuery {
    /// Reads a response to this query.
    pub(crate) fn meaning(&self, response: &DnsResponse) -> ResponseMeaning {
        match response.code {
            0 => {}
            3 => return ResponseMeaning::Nothing(response.negative),
            code => return ResponseMeaning::Failed(code),
        }
        let (mut name, mut ttl, mut aliases) = (&self.name, self.ttl, self.aliases);
        loop {
            let own = || response.records.iter().filter(|record| record.name == *name);
            let found: Vec<_> = own().filter(|record| is_of(&record.data, self.key.1)).collect();
            if !found.is_empty() {
                let ttl = found.iter().map(|record| record.ttl).fold(ttl, u32::min);
                return ResponseMeaning::Found(
                    found.into_iter().map(|record| record.data.clone()).collect(),
                    ttl,
                );
            }
            let alias = own().find_map(|record| match &record.data {
                RecordData::Alias(to) => Some((to, record.ttl)),
                _ => None,
            });
            match alias {
                None if name == &self.name => return ResponseMeaning::Nothing(response.negative),
                None => return ResponseMeaning::Alias(name.clone(), ttl),
                // A circle, perhaps.
                Some(_) if aliases >= ALIASES => return ResponseMeaning::Failed(2),
                Some((to, lasts)) => (name, ttl, aliases) = (to, ttl.min(lasts), aliases + 1),
            }
        }
    }

    /// Why it has no result when its time is over.
    pub(crate) fn failure(&self) -> DnsFailure {
        self.code.map_or(DnsFailure::TimedOut, DnsFailure::Code)
    }
}

fn is_of(data: &RecordData, kind: RecordType) -> bool {
    match data {
        RecordData::Address(address) if address.is_ipv4() => kind == RecordType::A,
        RecordData::Address(_) => kind == RecordType::Aaaa,
        RecordData::Name(_) => kind == RecordType::Ptr,
        RecordData::Service { .. } => kind == RecordType::Srv,
        RecordData::Alias(_) => false,
    }
}

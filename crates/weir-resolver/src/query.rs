//! A query in flight: attempts at name servers until one answers.

use crate::answer::Failure;
use crate::cache::Key;
use crate::event::Token;
use crate::name::Name;
use crate::wire::{Data, Response, Type};

/// A query in flight.
#[derive(Debug)]
pub(crate) struct Query {
    /// What is wanted.
    pub(crate) key: Key,
    /// What is asked: the name, or what it is an alias of.
    pub(crate) name: Name,
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
    pub(crate) attempts: Vec<Attempt>,
    /// A connection was opened for it, since a datagram was truncated: there is one at the most for each name that is asked.
    pub(crate) streamed: bool,
    /// When it is given up.
    pub(crate) until: u64,
}

/// One message on its way.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) token: Token,
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
pub(crate) enum Meaning {
    /// Records, and how many seconds they hold.
    Found(Vec<Data>, u32),
    /// There is nothing, for so many seconds.
    Nothing(Option<u32>),
    /// It is an alias: another name is to be asked for.
    Alias(Name, u32),
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

impl Query {
    /// Reads a response to this query.
    pub(crate) fn meaning(&self, response: &Response) -> Meaning {
        match response.code {
            0 => {}
            3 => return Meaning::Nothing(response.negative),
            code => return Meaning::Failed(code),
        }
        let (mut name, mut ttl, mut aliases) = (&self.name, self.ttl, self.aliases);
        loop {
            let own = || response.records.iter().filter(|record| record.name == *name);
            let found: Vec<_> = own().filter(|record| is_of(&record.data, self.key.1)).collect();
            if !found.is_empty() {
                let ttl = found.iter().map(|record| record.ttl).fold(ttl, u32::min);
                return Meaning::Found(found.into_iter().map(|record| record.data.clone()).collect(), ttl);
            }
            let alias = own().find_map(|record| match &record.data {
                Data::Alias(to) => Some((to, record.ttl)),
                _ => None,
            });
            match alias {
                None if name == &self.name => return Meaning::Nothing(response.negative),
                None => return Meaning::Alias(name.clone(), ttl),
                // A circle, perhaps.
                Some(_) if aliases >= ALIASES => return Meaning::Failed(2),
                Some((to, lasts)) => (name, ttl, aliases) = (to, ttl.min(lasts), aliases + 1),
            }
        }
    }

    /// Why it has no result when its time is over.
    pub(crate) fn failure(&self) -> Failure {
        self.code.map_or(Failure::TimedOut, Failure::Code)
    }
}

fn is_of(data: &Data, kind: Type) -> bool {
    match data {
        Data::Address(address) if address.is_ipv4() => kind == Type::A,
        Data::Address(_) => kind == Type::Aaaa,
        Data::Name(_) => kind == Type::Ptr,
        Data::Service { .. } => kind == Type::Srv,
        Data::Alias(_) => false,
    }
}

//! `split_clients`: a variable that divides clients into groups of given sizes by a hash of some text (nginx's
//! `ngx_http_split_clients_module`); the same text is always in the same group.

use weir_conf::names::{HTTP_OR_STREAM, TWO};
use weir_conf::{Directive, LineCx, Result, parse_fixed};
use weir_engine::variable::ValueScript;
use weir_engine::{Exchange, Module, Text};

use crate::support::computed::{self, ValueLifetime};

/// The module `split_clients`.
pub struct SplitClients;

impl Module for SplitClients {
    const NAME: &'static str = "split_clients";
    type Conf = ();
    const DIRECTIVES: &'static [Directive<()>] =
        &[Directive::new("split_clients", HTTP_OR_STREAM, TWO.block(), set_split_clients)
            .syntax("split_clients string $variable")
            .doc(
                "Defines a variable for A/B testing: the hash (MurmurHash2) of the string \
                 chooses among values, each with its percentage; `*` has the rest.",
            )
            .example("split_clients $remote_addr $variant {\n    10%  .beta;\n    *    \"\";\n}")];
}

/// `split_clients string $variable { ... }`
fn set_split_clients(_conf: &mut (), line: &mut LineCx<'_>) -> Result {
    let source = ValueScript::compile(line, 0)?;
    let name = computed::name(line)?;
    let mut groups = ClientShares::default();
    for entry in line.entries()? {
        groups.entry(&line.entry(entry))?;
    }
    computed::define(line, name, ValueLifetime::Request, move |x| Some(groups.find(x, &source)))
}

/// The groups and their bounds.
#[derive(Default)]
struct ClientShares {
    /// Hashes below the bound, and not below that of the group before, have the text.
    groups: Vec<(ShareBound, Box<[u8]>)>,
    /// What is given away, in hundredths of a percent.
    total: u64,
}

#[derive(Clone, Copy)]
enum ShareBound {
    Below(u32),
    /// `*`
    Rest,
}

impl ClientShares {
    fn entry(&mut self, entry: &LineCx<'_>) -> Result {
        let key = &entry.line().name;
        if entry.args().is_empty() {
            return Err(entry.fail("invalid number of the split_clients parameters"));
        }
        let bound = match key.bytes() {
            b"*" => {
                self.total = WHOLE;
                ShareBound::Rest
            }
            [percent @ .., b'%'] => {
                let share = parse_fixed(percent, 2).filter(|share| *share > 0);
                let share = share.ok_or_else(|| invalid(entry))?;
                self.total = self.total.saturating_add(share);
                if self.total > WHOLE {
                    return Err(entry.fail("percent total is greater than 100%"));
                }
                ShareBound::Below((self.total * u64::from(u32::MAX) / WHOLE) as u32)
            }
            _ => return Err(invalid(entry)),
        };
        self.groups.push((bound, entry.bytes(0).into()));
        Ok(())
    }

    fn find(&self, x: &mut Exchange, source: &ValueScript) -> Text {
        let text = source.value(x);
        let hash = murmur2(x.text(&text));
        match self.group(hash) {
            Some(text) => Text::Span(x.arena.push(text)),
            None => Text::EMPTY,
        }
    }

    fn group(&self, hash: u32) -> Option<&[u8]> {
        let is_in = |bound: ShareBound| match bound {
            ShareBound::Below(bound) => hash < bound,
            ShareBound::Rest => true,
        };
        self.groups.iter().find(|(bound, _)| is_in(*bound)).map(|(_, text)| &**text)
    }
}

fn invalid(entry: &LineCx<'_>) -> weir_conf::Error {
    entry.fail(format!("invalid percent value \"{}\"", entry.name()))
}

/// Appleby's MurmurHash2, 32 bits, with the text's length as seed, as nginx has it.
fn murmur2(text: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = text.len() as u32;
    let (words, rest) = text.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !rest.is_empty() {
        let tail = rest.iter().rev().fold(0, |tail, byte| tail << 8 | u32::from(*byte));
        hash = (hash ^ tail).wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ hash >> 15
}

/// A hundred percent, in hundredths.
const WHOLE: u64 = 10_000;

#[cfg(test)]
mod tests {
    use weir_engine::ModuleDef;
    use weir_engine::conf;

    use super::*;
    use crate::testing::core_and;

    static MODULES: [ModuleDef; 4] = core_and::<SplitClients>();

    fn text(lines: &str) -> String {
        format!("events {{ }} http {{ {lines} server {{ }} }}")
    }

    #[test]
    fn mistakes_in_nginx_words() {
        for (lines, words) in [
            ("split_clients $uri x { }", "invalid variable name \"x\""),
            ("split_clients $uri $host { * b; }", "the duplicate \"host\" variable"),
            ("split_clients $uri $x { 0% a; }", "invalid percent value \"0%\""),
            ("split_clients $uri $x { 50 a; }", "invalid percent value \"50\""),
            ("split_clients $uri $x { 50.123% a; }", "invalid percent value \"50.123%\""),
            ("split_clients $uri $x { 50% a; 51% b; }", "percent total is greater than 100%"),
            ("split_clients $uri $x { * b; 50% c; }", "percent total is greater than 100%"),
        ] {
            let found = conf::test::headlines(&text(lines), &MODULES);
            assert!(found[0].starts_with(words), "{lines}: {found:?}");
        }
        let lines = "split_clients $uri $x { 0.5% a; 50% $b; * c; * d; }";
        assert!(conf::test::load(&text(lines), &MODULES).is_ok());
    }

    #[test]
    fn groups_have_their_shares() {
        let groups = ClientShares {
            groups: vec![
                (ShareBound::Below(u32::MAX / 10), Box::from(*b"a")),
                (ShareBound::Below(u32::MAX / 2), Box::from(*b"b")),
            ],
            total: 5000,
        };
        let mut counts = [0; 3];
        for n in 0..10_000_u32 {
            let hash = murmur2(format!("client {n}").as_bytes());
            match groups.group(hash) {
                Some(b"a") => counts[0] += 1,
                Some(_) => counts[1] += 1,
                None => counts[2] += 1,
            }
        }
        for (count, share) in counts.into_iter().zip([1000_i32, 4000, 5000]) {
            assert!((count - share).abs() < 200, "{counts:?}");
        }
    }
}

//! In which blocks a directive is allowed, how many arguments it takes, and what ends it.

use std::fmt;
use std::ops::BitOr;

/// A set of blocks in which a directive is allowed, or the one block that is being read.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Contexts(u32);

impl Contexts {
    /// The empty set: allowed in no block.
    pub const NONE: Self = Self(0);
    /// The top of the file.
    pub const MAIN: Self = Self(1);
    /// `events { }`.
    pub const EVENTS: Self = Self(1 << 1);
    /// `http { }`.
    pub const HTTP: Self = Self(1 << 2);
    /// `server { }` in `http`.
    pub const SERVER: Self = Self(1 << 3);
    /// `location { }`.
    pub const LOCATION: Self = Self(1 << 4);
    /// `upstream { }` in `http`.
    pub const UPSTREAM: Self = Self(1 << 5);
    /// `if { }` in `server`.
    pub const SERVER_IF: Self = Self(1 << 6);
    /// `if { }` in `location`.
    pub const LOCATION_IF: Self = Self(1 << 7);
    /// `limit_except { }`.
    pub const LIMIT_EXCEPT: Self = Self(1 << 8);
    /// `stream { }`.
    pub const STREAM: Self = Self(1 << 9);
    /// `server { }` in `stream`.
    pub const STREAM_SERVER: Self = Self(1 << 10);
    /// `upstream { }` in `stream`.
    pub const STREAM_UPSTREAM: Self = Self(1 << 11);
    /// `http`, `server` and `location`: what is inherited downwards.
    pub const ANY: Self = Self::HTTP.or(Self::SERVER).or(Self::LOCATION);
    /// [`Contexts::ANY`] and `if` in `location`.
    pub const ANY_OR_IF: Self = Self::ANY.or(Self::LOCATION_IF);
    /// `stream` and the servers in it: what is inherited downwards there.
    pub const STREAM_ANY: Self = Self::STREAM.or(Self::STREAM_SERVER);
    /// [`Contexts::ANY`] and [`Contexts::STREAM_ANY`].
    pub const ANY_OR_STREAM: Self = Self::ANY.or(Self::STREAM_ANY);
    /// `http` and `stream`.
    pub const HTTP_OR_STREAM: Self = Self::HTTP.or(Self::STREAM);
    /// `upstream` in `http` and in `stream`.
    pub const ANY_UPSTREAM: Self = Self::UPSTREAM.or(Self::STREAM_UPSTREAM);

    /// The union of both sets.
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the block `here` is in the set.
    pub const fn allows(self, here: Self) -> bool {
        self.0 & here.0 != 0
    }

    const NAMES: [(Self, &'static str); 12] = [
        (Self::MAIN, "the main context"),
        (Self::EVENTS, "\"events\""),
        (Self::HTTP, "\"http\""),
        (Self::SERVER, "\"server\""),
        (Self::LOCATION, "\"location\""),
        (Self::UPSTREAM, "\"upstream\""),
        (Self::SERVER_IF, "\"if\" in \"server\""),
        (Self::LOCATION_IF, "\"if\" in \"location\""),
        (Self::LIMIT_EXCEPT, "\"limit_except\""),
        (Self::STREAM, "\"stream\""),
        (Self::STREAM_SERVER, "\"server\" in \"stream\""),
        (Self::STREAM_UPSTREAM, "\"upstream\" in \"stream\""),
    ];
}

impl BitOr for Contexts {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.or(other)
    }
}

/// As in nginx's manual: `"http", "server"`.
impl fmt::Display for Contexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Self::NAMES.iter().filter(|(one, _)| self.allows(*one));
        for (i, (_, name)) in names.enumerate() {
            write!(f, "{}{name}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Contexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Contexts({self})")
    }
}

/// How many arguments a directive takes, and what ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArgCount {
    /// Bit n means n arguments, the highest one for 63 and more.
    counts: u64,
    /// How the directive ends: by `;`, by a block, ...
    pub kind: DirectiveEnd,
}

/// What ends a directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectiveEnd {
    /// `;`
    Plain,
    /// `;` after one `on` or `off`.
    Flag,
    /// `{`, lines and `}`.
    Block,
    /// `{`, text of another language and `}`, as in `content_by_lua_block`.
    Raw,
}

impl ArgCount {
    /// No argument.
    pub const NONE: Self = Self::range(0, 0);
    /// One argument.
    pub const ONE: Self = Self::range(1, 1);
    /// Two arguments.
    pub const TWO: Self = Self::range(2, 2);
    /// Three arguments.
    pub const THREE: Self = Self::range(3, 3);
    /// None or one.
    pub const NONE_OR_ONE: Self = Self::range(0, 1);
    /// One or two.
    pub const ONE_OR_TWO: Self = Self::range(1, 2);
    /// One to three.
    pub const ONE_TO_THREE: Self = Self::range(1, 3);
    /// Two or three.
    pub const TWO_OR_THREE: Self = Self::range(2, 3);
    /// One or more.
    pub const MORE: Self = Self::range(1, u8::MAX);
    /// Two or more.
    pub const TWO_OR_MORE: Self = Self::range(2, u8::MAX);
    /// Any number, none included.
    pub const ANY_NUMBER: Self = Self::range(0, u8::MAX);
    /// `on` or `off`.
    pub const FLAG: Self = Self { kind: DirectiveEnd::Flag, ..Self::ONE };

    /// From `min` to `max` arguments; a `max` of 63 and above is any number.
    pub const fn range(min: u8, max: u8) -> Self {
        let upto = if max >= 63 { u64::MAX } else { (1 << (max + 1)) - 1 };
        let below = if min >= 63 { u64::MAX >> 1 } else { (1 << min) - 1 };
        Self { counts: upto & !below, kind: DirectiveEnd::Plain }
    }

    /// This number of arguments or that one: `ArgCount::ONE.or(ArgCount::THREE)`.
    pub const fn or(mut self, other: Self) -> Self {
        self.counts |= other.counts;
        self
    }

    /// Only even numbers of these.
    pub const fn even(mut self) -> Self {
        self.counts &= u64::MAX / 3;
        self
    }

    /// With a block of lines after the arguments.
    pub const fn block(mut self) -> Self {
        self.kind = DirectiveEnd::Block;
        self
    }

    /// With a block of raw text after the arguments.
    pub const fn raw(mut self) -> Self {
        self.kind = DirectiveEnd::Raw;
        self
    }

    /// Whether `count` arguments are right.
    pub const fn allows(self, count: usize) -> bool {
        self.counts >> (if count < 63 { count } else { 63 }) & 1 == 1
    }
}

/// The constants by their bare names, for tables: `use weir_conf::names::*`.
#[allow(missing_docs, reason = "each is the constant of the same name, documented there")]
pub mod names {
    use super::{ArgCount, Contexts};

    pub const MAIN: Contexts = Contexts::MAIN;
    pub const EVENTS: Contexts = Contexts::EVENTS;
    pub const HTTP: Contexts = Contexts::HTTP;
    pub const SERVER: Contexts = Contexts::SERVER;
    pub const LOCATION: Contexts = Contexts::LOCATION;
    pub const UPSTREAM: Contexts = Contexts::UPSTREAM;
    pub const SERVER_IF: Contexts = Contexts::SERVER_IF;
    pub const LOCATION_IF: Contexts = Contexts::LOCATION_IF;
    pub const LIMIT_EXCEPT: Contexts = Contexts::LIMIT_EXCEPT;
    pub const STREAM: Contexts = Contexts::STREAM;
    pub const STREAM_SERVER: Contexts = Contexts::STREAM_SERVER;
    pub const STREAM_UPSTREAM: Contexts = Contexts::STREAM_UPSTREAM;
    pub const ANY: Contexts = Contexts::ANY;
    pub const ANY_OR_IF: Contexts = Contexts::ANY_OR_IF;
    pub const STREAM_ANY: Contexts = Contexts::STREAM_ANY;
    pub const ANY_OR_STREAM: Contexts = Contexts::ANY_OR_STREAM;
    pub const HTTP_OR_STREAM: Contexts = Contexts::HTTP_OR_STREAM;
    pub const ANY_UPSTREAM: Contexts = Contexts::ANY_UPSTREAM;

    pub const NONE: ArgCount = ArgCount::NONE;
    pub const ONE: ArgCount = ArgCount::ONE;
    pub const TWO: ArgCount = ArgCount::TWO;
    pub const THREE: ArgCount = ArgCount::THREE;
    pub const NONE_OR_ONE: ArgCount = ArgCount::NONE_OR_ONE;
    pub const ONE_OR_TWO: ArgCount = ArgCount::ONE_OR_TWO;
    pub const ONE_TO_THREE: ArgCount = ArgCount::ONE_TO_THREE;
    pub const TWO_OR_THREE: ArgCount = ArgCount::TWO_OR_THREE;
    pub const MORE: ArgCount = ArgCount::MORE;
    pub const TWO_OR_MORE: ArgCount = ArgCount::TWO_OR_MORE;
    pub const ANY_NUMBER: ArgCount = ArgCount::ANY_NUMBER;
    pub const FLAG: ArgCount = ArgCount::FLAG;
    pub const LUA_BLOCK: ArgCount = ArgCount::NONE.raw();
    pub const NAMED_LUA_BLOCK: ArgCount = ArgCount::ONE.raw();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_arguments() {
        let counts = |args: ArgCount| (0..100).filter(|&n| args.allows(n)).collect::<Vec<_>>();
        assert_eq!(counts(ArgCount::NONE), [0]);
        assert_eq!(counts(ArgCount::TWO_OR_THREE), [2, 3]);
        assert_eq!(counts(ArgCount::ONE.or(ArgCount::THREE)), [1, 3]);
        assert_eq!(counts(ArgCount::range(2, 7).even()), [2, 4, 6]);
        assert_eq!(counts(ArgCount::MORE).len(), 99);
        assert_eq!(counts(ArgCount::ANY_NUMBER).len(), 100);
        assert_eq!(counts(ArgCount::range(0, 62)).len(), 63);
    }

    #[test]
    fn contexts_name_themselves() {
        assert_eq!(
            Contexts::ANY_OR_IF.to_string(),
            "\"http\", \"server\", \"location\", \"if\" in \"location\""
        );
        assert!((Contexts::MAIN | Contexts::HTTP).allows(Contexts::MAIN));
        assert!(!Contexts::ANY.allows(Contexts::MAIN));
    }
}

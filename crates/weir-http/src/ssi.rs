//! Server side includes as nginx reads them: `<!--#command name="value" ... -->` within any other bytes.
//!
//! A page comes in pieces of any size, so the [`Parser`] keeps its state between them; the same page gives the same
//! items however it is cut. What is wrong is told twice, as in nginx: when it is seen, with the reason, and when the
//! command ends, for the place in the page where its error message stands.

use memchr::memchr;

/// Finds commands in a page that comes piece by piece.
#[derive(Debug)]
pub struct Parser {
    state: State,
    command: Command,
    /// The longest value, `ssi_value_length`.
    longest: usize,
}

/// A command as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// Its name.
    pub name: Vec<u8>,
    /// Its parameters, in order; backslashes stand in values as written.
    pub params: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What [`Parser::step`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// So many bytes of the input, from its first one, are text.
    Text(usize),
    /// Text of a piece before: it looked like the beginning of a command.
    Held(&'static [u8]),
    /// A command.
    Command(Command),
    /// Something is wrong with a command, in nginx's words.
    Wrong(Vec<u8>),
    /// A command with which something is wrong ends.
    Error,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Text; so many bytes of [`OPENING`] were the last ones of the piece before.
    Text(usize),
    BeforeCommand,
    Command,
    BeforeParam,
    Param,
    BeforeEqual,
    BeforeValue,
    Value(u8),
    /// Behind a backslash in a value with these quotes.
    Quoted(u8),
    AfterValue,
    Closing,
    Closing2,
    /// Something was wrong: so many bytes of the closing `-->` were seen.
    Wrong(usize),
}

impl Parser {
    /// A parser at the beginning of a page; values longer than `longest` are wrong.
    pub fn new(longest: usize) -> Parser {
        Parser { state: State::Text(0), command: Command::default(), longest }
    }

    /// Reads from `input`, which is not empty: how many of its bytes were used, and what was found. Is
    /// called again with the rest, if there is one.
    pub fn step(&mut self, input: &[u8]) -> (usize, Option<Item>) {
        if let State::Text(held) = self.state {
            return self.text(input, held);
        }
        for (at, byte) in input.iter().enumerate() {
            if let Some(item) = self.byte(*byte) {
                return (at + 1, Some(item));
            }
        }
        (input.len(), None)
    }

    /// The page is over: what was held back in case it became a command.
    pub fn finish(&mut self) -> &'static [u8] {
        match std::mem::replace(&mut self.state, State::Text(0)) {
            State::Text(held) => OPENING.get(..held).unwrap_or_default(),
            _ => b"",
        }
    }

    fn text(&mut self, input: &[u8], held: usize) -> (usize, Option<Item>) {
        if held > 0 {
            return self.opening(input, held);
        }
        let mut from = 0;
        while let Some(at) = memchr(b'<', input.get(from..).unwrap_or_default()) {
            let start = from + at;
            let rest = input.get(start..).unwrap_or_default();
            let same = rest.iter().zip(OPENING).take_while(|(one, other)| one == other).count();
            let whole = same == OPENING.len();
            if !whole && same < rest.len() {
                from = start + 1;
                continue;
            }
            if start > 0 {
                // The opening is read again when the text before it is taken.
                return (start, Some(Item::Text(start)));
            }
            self.state = if whole { State::BeforeCommand } else { State::Text(same) };
            return (same, None);
        }
        (input.len(), Some(Item::Text(input.len())))
    }

    /// The piece before ended within what may be an opening.
    fn opening(&mut self, input: &[u8], held: usize) -> (usize, Option<Item>) {
        let wanted = OPENING.get(held..).unwrap_or_default();
        let same = input.iter().zip(wanted).take_while(|(one, other)| one == other).count();
        if same == wanted.len() {
            self.state = State::BeforeCommand;
            return (same, None);
        }
        if same == input.len() {
            self.state = State::Text(held + same);
            return (same, None);
        }
        self.state = State::Text(0);
        (0, Some(Item::Held(OPENING.get(..held).unwrap_or_default())))
    }

    /// One byte inside a command.
    fn byte(&mut self, byte: u8) -> Option<Item> {
        let space = matches!(byte, b' ' | b'\r' | b'\n' | b'\t');
        match self.state {
            State::BeforeCommand | State::BeforeParam | State::BeforeEqual | State::BeforeValue if space => {}
            State::Command if space => self.state = State::BeforeParam,
            State::Param if space => self.state = State::BeforeEqual,
            State::AfterValue if space => self.state = State::BeforeParam,
            State::BeforeParam | State::Command | State::AfterValue if byte == b'-' => {
                self.state = State::Closing;
            }
            State::BeforeCommand => {
                self.command.name.push(byte);
                self.state = State::Command;
            }
            State::Command => return self.name(byte),
            State::BeforeParam => {
                self.command.params.push((vec![byte], Vec::new()));
                self.state = State::Param;
            }
            State::Param | State::BeforeEqual if byte == b'=' => self.state = State::BeforeValue,
            State::Param if byte != b'-' => return self.param(byte),
            State::Param | State::BeforeEqual => {
                let reason =
                    [b"unexpected \"", &[byte][..], b"\" symbol after \"", self.key(), b"\""].concat();
                return self.wrong_param(byte, reason);
            }
            State::BeforeValue if matches!(byte, b'"' | b'\'') => self.state = State::Value(byte),
            State::BeforeValue => {
                let reason =
                    [b"unexpected \"", &[byte][..], b"\" symbol before value of \"", self.key(), b"\""]
                        .concat();
                return self.wrong_param(byte, reason);
            }
            State::Value(quote) if byte == quote => self.state = State::AfterValue,
            State::Value(quote) => {
                self.state = if byte == b'\\' { State::Quoted(quote) } else { self.state };
                return self.value(byte);
            }
            State::Quoted(quote) => {
                self.state = State::Value(quote);
                return self.value(byte);
            }
            State::AfterValue => {
                let (key, value) = self.last();
                let reason = [
                    b"unexpected \"",
                    &[byte][..],
                    b"\" symbol after \"",
                    value,
                    b"\" value of \"",
                    key,
                    b"\"",
                ];
                return self.wrong_param(b' ', reason.concat());
            }
            State::Closing if byte == b'-' => self.state = State::Closing2,
            State::Closing2 if byte == b'>' => {
                self.state = State::Text(0);
                return Some(Item::Command(std::mem::take(&mut self.command)));
            }
            State::Closing | State::Closing2 => {
                let name = &self.command.name[..];
                let reason =
                    [b"unexpected \"", &[byte][..], b"\" symbol in \"", name, b"\" SSI command"].concat();
                return self.wrong(reason, b' ');
            }
            State::Wrong(seen) => return self.skip(byte, seen),
            // Text is not read byte by byte.
            State::Text(_) => {}
        }
        None
    }

    fn name(&mut self, byte: u8) -> Option<Item> {
        if self.command.name.len() == LONGEST_NAME {
            let reason =
                [b"the \"", &self.command.name[..], &[byte], b"...\" SSI command is too long"].concat();
            return self.wrong(reason, b' ');
        }
        self.command.name.push(byte);
        None
    }

    fn param(&mut self, byte: u8) -> Option<Item> {
        if self.key().len() == LONGEST_NAME {
            let name = &self.command.name[..];
            let reason =
                [b"too long \"", self.key(), &[byte], b"...\" parameter in \"", name, b"\" SSI command"]
                    .concat();
            return self.wrong(reason, b' ');
        }
        if let Some((key, _)) = self.command.params.last_mut() {
            key.push(byte);
        }
        None
    }

    fn value(&mut self, byte: u8) -> Option<Item> {
        let (key, value) = self.last();
        if value.len() == self.longest {
            let reason = [b"too long \"", value, &[byte], b"...\" value of \"", key, b"\""].concat();
            return self.wrong_param(b' ', reason);
        }
        if let Some((_, value)) = self.command.params.last_mut() {
            value.push(byte);
        }
        None
    }

    fn key(&self) -> &[u8] {
        self.last().0
    }

    fn last(&self) -> (&[u8], &[u8]) {
        self.command.params.last().map_or((b"", b""), |(key, value)| (key, value))
    }

    fn wrong_param(&mut self, byte: u8, mut reason: Vec<u8>) -> Option<Item> {
        reason.extend_from_slice(b" parameter in \"");
        reason.extend_from_slice(&self.command.name);
        reason.extend_from_slice(b"\" SSI command");
        self.wrong(reason, byte)
    }

    /// From here on only the end is looked for; `byte` may be its first one.
    fn wrong(&mut self, reason: Vec<u8>, byte: u8) -> Option<Item> {
        self.state = State::Wrong(usize::from(byte == b'-'));
        Some(Item::Wrong(reason))
    }

    fn skip(&mut self, byte: u8, seen: usize) -> Option<Item> {
        self.state = match (seen, byte) {
            (0 | 1, b'-') => State::Wrong(seen + 1),
            (2, b'>') => {
                self.command = Command::default();
                self.state = State::Text(0);
                return Some(Item::Error);
            }
            _ => State::Wrong(0),
        };
        None
    }
}

const OPENING: &[u8] = b"<!--#";
/// The longest name of a command or parameter.
const LONGEST_NAME: usize = 32;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a page is read as, neighbouring texts joined.
    #[derive(Debug, PartialEq, Eq)]
    enum Read {
        Text(Vec<u8>),
        Command(Command),
        Wrong(String),
        Error,
    }

    fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>, longest: usize) -> Vec<Read> {
        let mut parser = Parser::new(longest);
        let mut found = Vec::new();
        let text = |found: &mut Vec<Read>, more: &[u8]| match found.last_mut() {
            _ if more.is_empty() => {}
            Some(Read::Text(text)) => text.extend_from_slice(more),
            _ => found.push(Read::Text(more.to_vec())),
        };
        for mut piece in pieces {
            while !piece.is_empty() {
                let (used, item) = parser.step(piece);
                match item {
                    None => assert!(used > 0, "no step"),
                    Some(Item::Text(length)) => text(&mut found, &piece[..length]),
                    Some(Item::Held(held)) => text(&mut found, held),
                    Some(Item::Command(command)) => found.push(Read::Command(command)),
                    Some(Item::Wrong(reason)) => {
                        found.push(Read::Wrong(String::from_utf8_lossy(&reason).into_owned()));
                    }
                    Some(Item::Error) => found.push(Read::Error),
                }
                piece = &piece[used..];
            }
        }
        text(&mut found, parser.finish());
        found
    }

    fn whole(page: &str) -> Vec<Read> {
        read([page.as_bytes()].into_iter(), 20)
    }

    fn command(name: &str, params: &[(&str, &str)]) -> Read {
        let params = params.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec()));
        Read::Command(Command { name: name.as_bytes().to_vec(), params: params.collect() })
    }

    fn text(text: &str) -> Read {
        Read::Text(text.as_bytes().to_vec())
    }

    #[test]
    fn commands_stand_between_texts() {
        assert_eq!(
            whole("no <b>command</b> <!-- at all --> <!-"),
            [text("no <b>command</b> <!-- at all --> <!-")]
        );
        assert_eq!(
            whole("a<<!--# include virtual = \"/x\" wait='\\'y' -->b<!--#endif--><!--#echo var=\"a\"-->"),
            [
                text("a<"),
                command("include", &[("virtual", "/x"), ("wait", "\\'y")]),
                text("b"),
                command("endif", &[]),
                command("echo", &[("var", "a")]),
            ]
        );
        assert_eq!(whole("<!--#unfinished"), []);
    }

    #[test]
    fn what_is_wrong_is_told_in_nginx_words() {
        for (page, reason) in [
            ("<!--#echo x-y -->", "unexpected \"-\" symbol after \"x\" parameter in \"echo\" SSI command"),
            ("<!--#echo x y -->", "unexpected \"y\" symbol after \"x\" parameter in \"echo\" SSI command"),
            (
                "<!--#echo x=y -->",
                "unexpected \"y\" symbol before value of \"x\" parameter in \"echo\" SSI command",
            ),
            (
                "<!--#echo x='y'z -->",
                "unexpected \"z\" symbol after \"y\" value of \"x\" parameter in \"echo\" SSI command",
            ),
            ("<!--#echo -x -->", "unexpected \"x\" symbol in \"echo\" SSI command"),
            ("<!--#echo --x -->", "unexpected \"x\" symbol in \"echo\" SSI command"),
            (
                "<!--#echo x='012345678901234567890' -->",
                "too long \"012345678901234567890...\" value of \"x\" parameter in \"echo\" SSI command",
            ),
            (
                "<!--#012345678901234567890123456789012 -->",
                "the \"012345678901234567890123456789012...\" SSI command is too long",
            ),
            (
                "<!--#e 012345678901234567890123456789012='' -->",
                "too long \"012345678901234567890123456789012...\" parameter in \"e\" SSI command",
            ),
        ] {
            assert_eq!(
                whole(&format!("{page}b")),
                [Read::Wrong(reason.into()), Read::Error, text("b")],
                "{page}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_page_reads_the_same_however_it_is_cut(
            parts in prop::collection::vec(prop::sample::select(PARTS), 0..24),
            cuts in prop::collection::vec(1_usize..9, 1..40),
        ) {
            let page = parts.concat();
            let expected = read([page.as_bytes()].into_iter(), 8);
            let mut rest = page.as_bytes();
            let mut pieces = Vec::new();
            for cut in cuts.iter().cycle().take(page.len() + 1) {
                let (piece, left) = rest.split_at(rest.len().min(*cut));
                pieces.push(piece);
                rest = left;
            }
            prop_assert_eq!(read(pieces.into_iter(), 8), expected);
        }
    }

    const PARTS: &[&str] = &[
        "<",
        "!",
        "-",
        "--",
        "#",
        "<!--#",
        "-->",
        " ",
        "echo",
        "var",
        "=",
        "\"",
        "'",
        "\\",
        "x",
        "<!--#echo var=\"x\" -->",
        "0123456789",
        "<!--#if expr='$a = b'-->",
    ];
}

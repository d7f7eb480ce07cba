//! Server side includes as nginx reads them: `<!--#command name="value" ... -->` within any other bytes.
//!
//! A page comes in pieces of any size, so the [`SsiParser`] keeps its state between them; the same page gives the same
//! items however it is cut. Errors are reported twice, as in nginx: when it is seen, with the reason, and when the
//! command ends, for the place in the page where its error message goes.

use memchr::memchr;

/// Finds commands in a page that comes piece by piece.
#[derive(Debug)]
pub struct SsiParser {
    state: SsiParserState,
    command: SsiCommand,
    /// The longest value, `ssi_value_length`.
    longest: usize,
}

/// A command as written: its name and parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SsiCommand {
    /// The command's name, such as `include`.
    pub name: Vec<u8>,
    /// Its parameters, in order; backslashes are in values as written.
    pub params: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What [`SsiParser::step`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SsiItem {
    /// This many bytes of the input, from its first one, are text.
    Text(usize),
    /// Text of a piece before: it looked like the beginning of a command.
    Held(&'static [u8]),
    /// A command.
    Command(SsiCommand),
    /// Something is wrong with a command, in nginx's words.
    Wrong(Vec<u8>),
    /// A command with which something is wrong ends.
    Error,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SsiParserState {
    /// Text; this many bytes of [`OPENING`] were the last ones of the piece before.
    Text(usize),
    BeforeCommand,
    Command,
    BeforeParam,
    Param,
    BeforeEqual,
    BeforeValue,
    Value(u8),
    /// After a backslash in a value with these quotes.
    Quoted(u8),
    AfterValue,
    Closing,
    Closing2,
    /// Something was wrong: this many bytes of the closing `-->` were seen.
    Wrong(usize),
}

impl SsiParser {
    /// A parser at the beginning of a page; a parameter's value longer than `longest` bytes is an error
    /// (`ssi_value_length`).
    pub fn new(longest: usize) -> SsiParser {
        SsiParser { state: SsiParserState::Text(0), command: SsiCommand::default(), longest }
    }

    /// Reads from `input`, which is not empty: how many of its bytes were used, and what was found. Is
    /// called again with the rest, if there is one.
    pub fn step(&mut self, input: &[u8]) -> (usize, Option<SsiItem>) {
        if let SsiParserState::Text(held) = self.state {
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
        match std::mem::replace(&mut self.state, SsiParserState::Text(0)) {
            SsiParserState::Text(held) => OPENING.get(..held).unwrap_or_default(),
            _ => b"",
        }
    }

    fn text(&mut self, input: &[u8], held: usize) -> (usize, Option<SsiItem>) {
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
                return (start, Some(SsiItem::Text(start)));
            }
            self.state = if whole { SsiParserState::BeforeCommand } else { SsiParserState::Text(same) };
            return (same, None);
        }
        (input.len(), Some(SsiItem::Text(input.len())))
    }

    /// The piece before ended within what may be an opening.
    fn opening(&mut self, input: &[u8], held: usize) -> (usize, Option<SsiItem>) {
        let wanted = OPENING.get(held..).unwrap_or_default();
        let same = input.iter().zip(wanted).take_while(|(one, other)| one == other).count();
        if same == wanted.len() {
            self.state = SsiParserState::BeforeCommand;
            return (same, None);
        }
        if same == input.len() {
            self.state = SsiParserState::Text(held + same);
            return (same, None);
        }
        self.state = SsiParserState::Text(0);
        (0, Some(SsiItem::Held(OPENING.get(..held).unwrap_or_default())))
    }

    /// One byte inside a command.
    fn byte(&mut self, byte: u8) -> Option<SsiItem> {
        if matches!(byte, b' ' | b'\r' | b'\n' | b'\t') && self.space() {
            return None;
        }
        match self.state {
            SsiParserState::BeforeParam | SsiParserState::Command | SsiParserState::AfterValue
                if byte == b'-' =>
            {
                self.state = SsiParserState::Closing;
            }
            SsiParserState::BeforeCommand => {
                self.command.name.push(byte);
                self.state = SsiParserState::Command;
            }
            SsiParserState::Command => return self.name(byte),
            SsiParserState::BeforeParam => {
                self.command.params.push((vec![byte], Vec::new()));
                self.state = SsiParserState::Param;
            }
            SsiParserState::Param | SsiParserState::BeforeEqual if byte == b'=' => {
                self.state = SsiParserState::BeforeValue;
            }
            SsiParserState::Param if byte != b'-' => return self.param(byte),
            SsiParserState::Param | SsiParserState::BeforeEqual => {
                let reason =
                    [b"unexpected \"", &[byte][..], b"\" symbol after \"", self.key(), b"\""].concat();
                return self.wrong_param(byte, reason);
            }
            SsiParserState::BeforeValue if matches!(byte, b'"' | b'\'') => {
                self.state = SsiParserState::Value(byte);
            }
            SsiParserState::BeforeValue => {
                let reason =
                    [b"unexpected \"", &[byte][..], b"\" symbol before value of \"", self.key(), b"\""]
                        .concat();
                return self.wrong_param(byte, reason);
            }
            SsiParserState::Value(quote) if byte == quote => self.state = SsiParserState::AfterValue,
            SsiParserState::Value(quote) => {
                self.state = if byte == b'\\' { SsiParserState::Quoted(quote) } else { self.state };
                return self.value(byte);
            }
            SsiParserState::Quoted(quote) => {
                self.state = SsiParserState::Value(quote);
                return self.value(byte);
            }
            SsiParserState::AfterValue => return self.after_value(byte),
            SsiParserState::Closing | SsiParserState::Closing2 => return self.closing(byte),
            SsiParserState::Wrong(seen) => return self.skip(byte, seen),
            // Text is not read byte by byte.
            SsiParserState::Text(_) => {}
        }
        None
    }

    /// White space inside a command; `false` where it is a byte like others.
    fn space(&mut self) -> bool {
        self.state = match self.state {
            SsiParserState::BeforeCommand
            | SsiParserState::BeforeParam
            | SsiParserState::BeforeEqual
            | SsiParserState::BeforeValue => return true,
            SsiParserState::Command | SsiParserState::AfterValue => SsiParserState::BeforeParam,
            SsiParserState::Param => SsiParserState::BeforeEqual,
            _ => return false,
        };
        true
    }

    /// What follows a value is neither white space nor the end of the command.
    fn after_value(&mut self, byte: u8) -> Option<SsiItem> {
        let (key, value) = self.last();
        let reason =
            [b"unexpected \"", &[byte][..], b"\" symbol after \"", value, b"\" value of \"", key, b"\""];
        self.wrong_param(b' ', reason.concat())
    }

    /// One byte of `-->`, of which the first was read.
    fn closing(&mut self, byte: u8) -> Option<SsiItem> {
        match (self.state, byte) {
            (SsiParserState::Closing, b'-') => {
                self.state = SsiParserState::Closing2;
                None
            }
            (SsiParserState::Closing2, b'>') => {
                self.state = SsiParserState::Text(0);
                Some(SsiItem::Command(std::mem::take(&mut self.command)))
            }
            _ => {
                let name = &self.command.name[..];
                let reason =
                    [b"unexpected \"", &[byte][..], b"\" symbol in \"", name, b"\" SSI command"].concat();
                self.wrong(reason, b' ')
            }
        }
    }

    fn name(&mut self, byte: u8) -> Option<SsiItem> {
        if self.command.name.len() == LONGEST_NAME {
            let reason =
                [b"the \"", &self.command.name[..], &[byte], b"...\" SSI command is too long"].concat();
            return self.wrong(reason, b' ');
        }
        self.command.name.push(byte);
        None
    }

    fn param(&mut self, byte: u8) -> Option<SsiItem> {
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

    fn value(&mut self, byte: u8) -> Option<SsiItem> {
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

    fn wrong_param(&mut self, byte: u8, mut reason: Vec<u8>) -> Option<SsiItem> {
        reason.extend_from_slice(b" parameter in \"");
        reason.extend_from_slice(&self.command.name);
        reason.extend_from_slice(b"\" SSI command");
        self.wrong(reason, byte)
    }

    /// From here on only the end is looked for; `byte` may be its first one.
    fn wrong(&mut self, reason: Vec<u8>, byte: u8) -> Option<SsiItem> {
        self.state = SsiParserState::Wrong(usize::from(byte == b'-'));
        Some(SsiItem::Wrong(reason))
    }

    fn skip(&mut self, byte: u8, seen: usize) -> Option<SsiItem> {
        self.state = match (seen, byte) {
            (0 | 1, b'-') => SsiParserState::Wrong(seen + 1),
            (2, b'>') => {
                self.command = SsiCommand::default();
                self.state = SsiParserState::Text(0);
                return Some(SsiItem::Error);
            }
            _ => SsiParserState::Wrong(0),
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
        Command(SsiCommand),
        Wrong(String),
        Error,
    }

    fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>, longest: usize) -> Vec<Read> {
        let mut parser = SsiParser::new(longest);
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
                    Some(SsiItem::Text(length)) => text(&mut found, &piece[..length]),
                    Some(SsiItem::Held(held)) => text(&mut found, held),
                    Some(SsiItem::Command(command)) => found.push(Read::Command(command)),
                    Some(SsiItem::Wrong(reason)) => {
                        found.push(Read::Wrong(String::from_utf8_lossy(&reason).into_owned()));
                    }
                    Some(SsiItem::Error) => found.push(Read::Error),
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
        Read::Command(SsiCommand { name: name.as_bytes().to_vec(), params: params.collect() })
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

//! Parsers of the modules as functions of any bytes, for `fuzz/`: each asserts what its callers rely on. No part of what
//! the crate offers.

use std::rc::Rc;

use weir_engine::body::{BodyBuf, BodyChain};
use weir_engine::regex::LetterCase;
use weir_http::Span;
use weir_http::deflate::DeflateSettings;
use weir_http::h1::{HeadParse, ResponseHead};

use crate::content::mp4;
use crate::filters::compress::{BodyCoder, DeflateOp};
use crate::filters::gunzip::GunzipCoder;
use crate::filters::gzip::GzipCoder;
use crate::filters::sub::replace::TextReplacer;
use crate::filters::sub::search::TextPatterns;
use crate::filters::userid;
use crate::gateway::cgi;
use crate::log::LogLineFormat;
use crate::rules::{auth_basic, secure_link};
use crate::support::password;

/// Packed data: read or refused, and how it is cut makes no difference.
pub fn gunzip(data: &[u8]) {
    let (whole, pieces) = (unpack(data, data.len().max(1)), unpack(data, 7));
    assert_eq!(whole, pieces);
}

/// A format, and after a newline a line: each variable of the format has a value in a line that is read.
pub fn log_line(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == b'\n');
    let (Some(format), Some(line)) = (parts.next(), parts.next()) else { return };
    let Ok(format) = LogLineFormat::new(&String::from_utf8_lossy(format)) else { return };
    let Some(read) = format.read(line) else { return };
    assert!(read.raw().is_empty() || read.raw().len() == format.variables().count());
    assert!(read.raw().iter().map(|value| value.len()).sum::<usize>() <= line.len());
    for name in format.variables() {
        assert!(read.value(name).is_none_or(|value| value.len() <= line.len().max(3) * 3));
    }
}

/// What is packed at any level, cut and flushed anyhow, unpacks to the same. The first bytes choose level, window and
/// pieces.
pub fn gzip(data: &[u8]) {
    let [level, window, cut, text @ ..] = data else { return };
    let settings = DeflateSettings { level: 1 + level % 9, window: 9 + window % 7, memory: 1 + level % 9 };
    let mut coder = GzipCoder::new(settings, (cut % 2 == 0).then_some(text.len() as u64));
    let mut packed = Vec::new();
    for (at, piece) in text.chunks(usize::from(*cut).max(1)).enumerate() {
        let op = if at % 3 == 2 { DeflateOp::Flush } else { DeflateOp::Run };
        drive(&mut coder, piece, op, &mut packed).expect("it takes any bytes");
    }
    drive(&mut coder, b"", DeflateOp::Finish, &mut packed).expect("it takes any bytes");
    assert_eq!(unpack(&packed, packed.len()), Some(text.to_vec()));
}

/// Content of packed data that comes in pieces of `size`; `None` if it is broken. Of a bomb no more than [`MOST`].
fn unpack(data: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut coder = GunzipCoder::default();
    let mut content = Vec::new();
    for piece in data.chunks(size) {
        drive(&mut coder, piece, DeflateOp::Run, &mut content)?;
    }
    drive(&mut coder, b"", DeflateOp::Finish, &mut content)?;
    content.truncate(MOST);
    Some(content)
}

/// Passes `input` through `coder`.
fn drive(coder: &mut impl BodyCoder, input: &[u8], op: DeflateOp, content: &mut Vec<u8>) -> Option<()> {
    let mut output = [0; 500];
    let mut at = 0;
    while content.len() < MOST {
        let progress = coder.run(&input[at..], &mut output, op).ok()?;
        content.extend_from_slice(&output[..progress.given]);
        at += progress.taken;
        if progress.done || (op == DeflateOp::Run && at == input.len() && progress.given == 0) {
            return Some(());
        }
        assert!(progress.taken + progress.given > 0, "it goes on");
    }
    Some(())
}

/// `text\nvalue\n...\n\ncontent`: replacing is the same however the content is cut. Caseless, since sub_filter is.
pub fn sub(data: &[u8]) {
    let split = data.windows(2).position(|pair| pair == b"\n\n");
    let (head, content) = split.map_or((data, &b""[..]), |at| (&data[..at], &data[at + 2..]));
    let lines: Vec<&[u8]> = head.split(|byte| *byte == b'\n').collect();
    let pairs: Vec<(&[u8], &[u8])> =
        lines.chunks_exact(2).map(|pair| (pair[0], pair[1])).filter(|pair| !pair.0.is_empty()).collect();
    if pairs.is_empty() {
        return;
    }
    for once in [false, true] {
        let whole = replaced(&pairs, once, content, content.len().max(1));
        assert_eq!(whole, replaced(&pairs, once, content, 3));
        assert!(!once || whole.len() <= content.len() + pairs.iter().map(|pair| pair.1.len()).sum::<usize>());
    }
}

fn replaced(pairs: &[(&[u8], &[u8])], once: bool, content: &[u8], size: usize) -> Vec<u8> {
    let texts: Vec<Vec<u8>> = pairs.iter().map(|pair| pair.0.to_vec()).collect();
    let mut replacer = TextReplacer::new(Rc::new(TextPatterns::new(&texts, LetterCase::Ignored)), once);
    let mut whole = Vec::new();
    let mut pieces = content.chunks(size).peekable();
    while let Some(piece) = pieces.next() {
        let mut input = BodyChain::default();
        input.push(BodyBuf::Bytes(piece.to_vec()));
        input.last = pieces.peek().is_none();
        let mut done = false;
        while !done {
            let mut output = BodyChain::default();
            done = replacer.step(&mut input, &mut output, &mut |which| Rc::from(pairs[which].1));
            while let Some(buf) = output.pop() {
                whole.extend_from_slice(buf.memory().unwrap_or_default());
            }
        }
    }
    whole
}

/// A file of passwords: a user that is found is in a line of its own, and no password is one of all kinds at once.
pub fn htpasswd(data: &[u8]) {
    for user in data.split(|byte| matches!(byte, b'\n' | b':')).take(8) {
        let Some(stored) = auth_basic::find(data, user) else { continue };
        assert!(!stored.contains(&b'\n') && !stored.contains(&b':'));
        if !password::is_slow(stored) {
            let right = password::is_right(user, stored);
            assert!(!right || !password::is_right(&[user, b"x"].concat(), stored) || stored.len() <= 13);
        }
    }
}

/// A target of the older form of links: what is found is its end.
pub fn secure_link(data: &[u8]) {
    if let Some((start, end)) = secure_link::rest(data, b"secret") {
        assert!(start < end && end as usize == data.len());
    }
}

/// A file of `mp4`: a clip of it, or a reason. The first bytes choose the times.
pub fn mp4(data: &[u8]) {
    let [start, length, key_frame, file @ ..] = data else { return };
    let ms = |byte: &u8| u64::from(*byte) * 10;
    let span = mp4::ClipSpan { start: ms(start), length: ms(length), key_frame: key_frame % 2 == 0 };
    let buffers = mp4::Mp4Buffers { size: 64, max: 1 << 20 };
    if let Ok(Some(clip)) = mp4::clip(&file, file.len() as u64, span, buffers) {
        assert!(clip.offset.checked_add(clip.len).is_some_and(|end| end <= file.len() as u64));
        assert!(clip.head.len() <= file.len() + 200 * (1 + file.len() / 8));
    }
}

/// A cookie of userid: a number or a reason.
pub fn user_id(data: &[u8]) {
    if let Err(reason) = userid::in_cookie(data) {
        assert!(reason == "invalid" || data.len() < 22);
    }
}

/// The head of an SCGI or uwsgi server's response: what is found lies in it, and comes out the same however much of the
/// content has come with it, but not before it is whole.
pub fn cgi_head(data: &[u8]) {
    let mut head = ResponseHead::default();
    let whole = cgi::answer::parse(data, MOST_HEAD, &mut head);
    if whole == Ok(HeadParse::Complete) {
        assert!(head.len <= data.len().min(MOST_HEAD));
        let found = &data[..head.len];
        for field in &head.fields {
            let text = |span: Span| &found[span.start as usize..span.end as usize];
            let (name, value) = (text(field.name), text(field.value));
            assert!(!name.is_empty() && !name.contains(&b':'), "a name");
            assert!(!value.iter().any(|byte| b"\r\n\0".contains(byte)), "no line ends in a value");
            let number = cgi::head::number(value);
            assert!(
                number.is_none_or(|number| number == 101 || (200..=999).contains(&number)),
                "one response"
            );
        }
    }
    // Every prefix of a short input, some of a long one.
    for length in (0..data.len()).step_by(data.len() / 128 + 1) {
        let mut part = ResponseHead::default();
        match (cgi::answer::parse(&data[..length], MOST_HEAD, &mut part), &whole) {
            (Ok(HeadParse::Complete), Ok(HeadParse::Complete)) => {
                assert_eq!(
                    (part.len, part.status, part.fields.len()),
                    (head.len, head.status, head.fields.len())
                );
            }
            (Ok(HeadParse::Complete), other) => panic!("{other:?} of more than a whole head"),
            (Ok(HeadParse::Incomplete { .. }), Ok(HeadParse::Complete)) => assert!(length < head.len),
            (Ok(HeadParse::Incomplete { .. }), _) | (Err(_), Err(_)) => {}
            (Err(bad), _) => panic!("{bad:?} in the front of a right head"),
        }
    }
}

/// The room for a head, as `scgi_buffer_size` gives it.
const MOST_HEAD: usize = 1024;
/// A thousand times an input, where a bomb shall not fill memory.
const MOST: usize = 1 << 20;

//! httparse reads the same heads: where both take one they must agree on every part, and where only one does the
//! difference must be one that is written down here.

use proptest::prelude::*;

use super::super::*;
use super::parse;

/// httparse's reading: method, target, minor version, fields, length.
struct Other<'b> {
    method: &'b str,
    target: &'b str,
    minor: u8,
    fields: Vec<(&'b str, &'b [u8])>,
    len: usize,
}

fn other(buf: &[u8]) -> Option<Other<'_>> {
    let mut slots = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut slots);
    let httparse::Status::Complete(len) = request.parse(buf).ok()? else { return None };
    Some(Other {
        method: request.method?,
        target: request.path?,
        minor: request.version?,
        fields: request.headers.iter().map(|field| (field.name, field.value)).collect(),
        len,
    })
}

/// Heads both may take; the alphabets leave out what the two are known to see differently: methods in lower case,
/// targets that are not paths, several spaces, versions above 1.1, DEL and other control bytes.
fn head() -> impl Strategy<Value = String> {
    let field = ("[A-Za-z][A-Za-z0-9_!-]{0,20}", " ?[ -~]{0,40} ?", "\r?\n");
    ("(\r?\n){0,2}[A-Z]{1,8} /[!-~]{0,40} HTTP/1\\.[01]\r?\n", prop::collection::vec(field, 0..8)).prop_map(
        |(line, fields)| {
            let fields = fields.into_iter().map(|(name, value, end)| format!("{name}:{value}{end}"));
            [line, fields.collect(), "\r\n".into()].concat()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    #[test]
    fn good_heads_read_the_same(text in head()) {
        let buf = text.as_bytes();
        let (Ok((HeadParse::Complete, head)), Some(other)) = (parse(buf), other(buf)) else {
            // Framing is not httparse's business, and `CONNECT /` is no request to us.
            let framing = ["content-length", "transfer-encoding", "host", "expect", "if-", "connect"];
            prop_assert!(framing.iter().any(|name| text.to_ascii_lowercase().contains(name)), "{text:?}");
            return Ok(());
        };
        prop_assert_eq!(head.method_span.of(buf), other.method.as_bytes());
        prop_assert_eq!(head.target.of(buf), other.target.as_bytes());
        prop_assert_eq!(u8::from(head.version == crate::Version::V11), other.minor);
        prop_assert_eq!(head.len, other.len);
        let fields: Vec<_> = head.fields.iter().map(|field| (field.name.of(buf), field.value.of(buf))).collect();
        let others: Vec<_> = other.fields.iter().map(|&(name, value)| (name.as_bytes(), value)).collect();
        prop_assert_eq!(fields, others);
    }

    /// One byte changed: what httparse refuses for its form and we take is nginx's liberty, in one of these ways.
    #[test]
    fn damaged_heads_are_taken_by_us_alone_only_where_nginx_takes_them(
        text in head(), place in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut buf = text.into_bytes();
        let place = place.index(buf.len());
        buf[place] = byte;
        if let (Ok((HeadParse::Complete, head)), None) = (parse(&buf), other(&buf)) {
            let line = head.line.of(&buf);
            let liberties = [
                buf.starts_with(b"\r\r"),
                head.protocol.of(&buf) != b"HTTP/1.1" && head.protocol.of(&buf) != b"HTTP/1.0",
                line.iter().filter(|&&byte| byte == b' ').count() > 2,
                head.target.of(&buf).iter().any(|byte| !byte.is_ascii()),
                head.fields.iter().any(|field| !field.valid),
                head.fields.iter().any(|field| field.value.of(&buf).iter().any(u8::is_ascii_control)),
                buf.get(..head.leading_crlf).is_some_and(|blank| blank.windows(2).any(|pair| pair == b"\r\r")),
                head.leading_crlf > 0,
            ];
            prop_assert!(liberties.contains(&true), "{}", buf.escape_ascii());
        }
    }
}

//! What may differ between two servers with the same responses: the date, a random boundary, ports, directories.

use weir_http::date;

/// What a server's own responses and log lines contain of its place.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Its ports, by number.
    pub(crate) ports: Vec<u16>,
    /// Those of the server it is compared with. What only looks like a port (the size in an `ETag` did) is in the
    /// responses of both, so both must name it the same.
    pub(crate) other_ports: Vec<u16>,
    /// Its directory.
    pub(crate) directory: String,
    /// The name it gives itself.
    pub(crate) product: String,
}

/// `bytes` with its changing parts replaced by their names, where they are what they should be.
pub(crate) fn mask(bytes: &[u8], place: &Place) -> Vec<u8> {
    let mut masked = replace(bytes, place.directory.as_bytes(), b"%%DIR%%");
    masked = replace_word(&masked, place.product.as_bytes(), b"%%PRODUCT%%");
    for (number, port) in place.ports.iter().enumerate().chain(place.other_ports.iter().enumerate()) {
        masked = replace_word(&masked, port.to_string().as_bytes(), format!("%%PORT_{number}%%").as_bytes());
    }
    boundary(&dates(&masked))
}

/// `Date` becomes a word, and an `Expires` of about now the seconds between the two.
fn dates(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut today = None;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let value = |name: &[u8]| date::parse(line.strip_prefix(name)?.strip_suffix(b"\r\n")?);
        if let Some(date) = value(b"Date: ") {
            today = Some(date);
            out.extend_from_slice(b"Date: now\r\n");
        } else if let Some(after) = value(b"Expires: ").zip(today).map(|(expires, today)| expires - today)
            && after.abs() < NEAR
        {
            out.extend_from_slice(format!("Expires: now {after:+}\r\n").as_bytes());
        } else {
            out.extend_from_slice(line);
        }
    }
    out
}

/// nginx's boundary: 20 digits.
fn boundary(bytes: &[u8]) -> Vec<u8> {
    let name = b"multipart/byteranges; boundary=";
    let mut masked = bytes.to_vec();
    let mut from = 0;
    while let Some(at) = find(&masked[from..], name).map(|at| from + at + name.len()) {
        from = at;
        let digits = masked[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == BOUNDARY.len() {
            let found = masked[at..at + digits].to_vec();
            masked = replace(&masked, &found, BOUNDARY);
        }
    }
    masked
}

const BOUNDARY: &[u8; 20] = b"%%%%%%BOUNDARY%%%%%%";

/// Replaces every `what`.
pub(crate) fn replace(bytes: &[u8], what: &[u8], with: &[u8]) -> Vec<u8> {
    replace_if(bytes, what, with, |_, _| true)
}

/// Replaces every `what` that is not a part of a longer word or number.
fn replace_word(bytes: &[u8], what: &[u8], with: &[u8]) -> Vec<u8> {
    let ends = |byte: Option<&u8>| byte.is_none_or(|byte| !byte.is_ascii_alphanumeric());
    replace_if(bytes, what, with, |before, after| ends(before) && ends(after))
}

fn replace_if(
    bytes: &[u8],
    what: &[u8],
    with: &[u8],
    fits: impl Fn(Option<&u8>, Option<&u8>) -> bool,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = find(rest, what) {
        let end = at + what.len();
        let before = if at > 0 { rest.get(at - 1) } else { out.last() };
        let fits = fits(before, rest.get(end));
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(if fits { with } else { what });
        rest = &rest[end..];
    }
    out.extend_from_slice(rest);
    out
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// Two years, in seconds: fixed dates in configurations are further away.
const NEAR: i64 = 2 * 366 * 86_400;

#[test]
fn changing_parts_get_names() {
    let place = Place {
        ports: vec![34567, 40000],
        other_ports: vec![11170],
        directory: "/tmp/weir-1".to_owned(),
        product: "nginx/1.2.3".to_owned(),
    };
    let masked = |text: &str| String::from_utf8_lossy(&mask(text.as_bytes(), &place)).into_owned();
    assert_eq!(masked("Server: nginx/1.2.3\r\n nginx/1.2.33"), "Server: %%PRODUCT%%\r\n nginx/1.2.33");
    assert_eq!(masked("http://a:34567/ 12345678 /tmp/weir-1/x"), "http://a:%%PORT_0%%/ 12345678 %%DIR%%/x");
    assert_eq!(masked("ETag: \"6553f100-11170\""), "ETag: \"6553f100-%%PORT_0%%\"");
    let day = "Thu, 01 Jan 2026 00:00:00 GMT";
    assert_eq!(
        masked(&format!("Date: {day}\r\nExpires: Thu, 01 Jan 2026 01:00:00 GMT\r\nDate: x\r\n")),
        "Date: now\r\nExpires: now +3600\r\nDate: x\r\n"
    );
    assert_eq!(
        masked(
            "Content-Type: multipart/byteranges; boundary=00000000000000000007\r\n\r\n--00000000000000000007--"
        ),
        "Content-Type: multipart/byteranges; boundary=%%%%%%BOUNDARY%%%%%%\r\n\r\n--%%%%%%BOUNDARY%%%%%%--"
    );
}

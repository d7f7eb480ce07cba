//! Targets for the parsers of `weir-http` that need no connection.
//!
//! Each takes any bytes, calls public functions only, and asserts what callers rely on.

use weir_http::TraceParent;
use weir_http::etag::{self, IfModifiedSince, RequestConditions, TagComparison};
use weir_http::range::{self, ByteRange, MultipartLayout, RangeOutcome};
use weir_http::{
    accept, cookie, date, escape, fastcgi, host, memcached, mime, proxy_protocol, ssi, status, uri,
    uri_reference::{HttpAuthority, HttpReference},
};

/// Any bytes are messages with headers, wherever they are cut; what is taken out is not longer than what came.
pub fn messages(data: &[u8]) {
    let Some((&cut, stream)) = data.split_first() else { return };
    let mut taken = Vec::new();
    for part in [stream.len(), usize::from(cut).max(1)] {
        let mut buffer = weir_http::json::MessageBuffer::default();
        let mut found = Vec::new();
        'stream: for part in stream.chunks(part.max(1)) {
            buffer.push(part);
            loop {
                match buffer.next_message() {
                    Ok(Some(message)) => found.push(message),
                    Ok(None) => break,
                    Err(_) => break 'stream,
                }
            }
        }
        assert!(found.iter().map(Vec::len).sum::<usize>() <= stream.len());
        taken.push(found);
    }
    assert_eq!(taken[0], taken[1], "the same however it is cut");
}

/// Any text is JSON or refused inside of it; what strings hold is read again as it was written.
pub fn json(data: &[u8]) {
    use weir_http::json::{JsonValue, JsonWriter};
    match JsonValue::parse(data) {
        Err(malformed) => assert!(malformed.at <= data.len()),
        Ok(JsonValue::Text(text)) => {
            let written = JsonWriter::array(|json| json.text(&text));
            let again = JsonValue::parse(written.as_bytes());
            assert_eq!(again.as_ref().map(|list| list.list()), Ok(Some(&[JsonValue::Text(text)][..])));
        }
        Ok(_) => {}
    }
}

/// Pages with server side includes: every byte is used once, text stays as it is, and how the page is cut changes
/// nothing. The first byte says how long the pieces are, and values may be.
pub fn ssi(data: &[u8]) {
    let Some((size, page)) = data.split_first() else { return };
    let size = usize::from(*size).max(1);
    let (whole, text) = ssi_items(page, page.len().max(1), size);
    let (pieces, _) = ssi_items(page, size, size);
    assert_eq!(whole, pieces);
    assert!(text <= page.len());
    assert!(page.windows(5).any(|part| part == b"<!--#") || text == page.len());
}

/// What a page is read as, texts joined, and how many bytes of it are text.
fn ssi_items(page: &[u8], size: usize, longest: usize) -> (Vec<Result<Vec<u8>, ssi::SsiItem>>, usize) {
    let mut parser = ssi::SsiParser::new(longest);
    let (mut items, mut length) = (Vec::new(), 0);
    let mut text = |items: &mut Vec<Result<Vec<u8>, ssi::SsiItem>>, more: &[u8]| {
        length += more.len();
        match items.last_mut() {
            _ if more.is_empty() => {}
            Some(Ok(text)) => text.extend_from_slice(more),
            _ => items.push(Ok(more.to_vec())),
        }
    };
    for mut piece in page.chunks(size) {
        while !piece.is_empty() {
            let (used, item) = parser.step(piece);
            assert!(used > 0 || matches!(item, Some(ssi::SsiItem::Held(_))));
            match item {
                None => {}
                Some(ssi::SsiItem::Text(length)) => text(&mut items, piece.get(..length).unwrap_or_default()),
                Some(ssi::SsiItem::Held(held)) => text(&mut items, held),
                Some(other) => items.push(Err(other)),
            }
            piece = piece.get(used..).unwrap_or_default();
        }
    }
    text(&mut items, parser.finish());
    (items, length)
}

/// Request targets: nothing is left to resolve, spans lie inside, and escaping brings the same path back.
pub fn target(data: &[u8]) {
    let (mut out, mut escaped, mut again) = (Vec::new(), Vec::new(), Vec::new());
    for merge_slashes in [true, false] {
        let Ok(found) = uri::normalize(data, merge_slashes, &mut out) else { continue };
        assert_eq!(found.path_len, out.len());
        assert!(out.starts_with(b"/") && !out.contains(&0) && !uri::is_unsafe(&out));
        assert!(out.split(|&byte| byte == b'/').all(|segment| segment != b"."));
        assert!(!merge_slashes || !out.windows(2).any(|pair| pair == b"//"));
        assert!(found.changed || data.get(..found.path_len) == Some(&out));
        assert!(found.args.is_none_or(|span| span.of(data).len() == span.len()));
        assert!(found.exten.is_none_or(|span| !span.of(&out).is_empty() && !span.of(&out).contains(&b'/')));
        escaped.clear();
        escape::escape(&mut escaped, &out, escape::EscapeSet::Uri);
        assert!(uri::normalize(&escaped, merge_slashes, &mut again).is_ok());
        assert_eq!(out, again);
    }
    // Its only other job is the empty path.
    if uri::normalize_absolute(data, true, &mut out).is_ok() {
        assert!(out.starts_with(b"/"));
    }
}

/// URIs named by upstreams and scripts never climb, whatever they look like.
pub fn internal_target(data: &[u8]) {
    if let Ok(found) = uri::internal_target(data) {
        assert!(!found.path.is_empty() || data.contains(&b'%'));
        assert!(!uri::is_unsafe(&found.path));
        let exten = uri::exten(&found.path);
        assert!(exten.is_none_or(|span| span.of(&found.path).len() == span.len()));
    }
}

/// References to URLs, which servers and scripts name: what they mean is an absolute path without dots, and a host is read
/// as it was written.
pub fn uri_reference(data: &[u8]) {
    let Ok(read) = HttpReference::parse(data) else { return };
    let target = read.target(b"/a/b", Some(b"c"));
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    assert!(
        path.starts_with(b"/") && !path.split(|byte| *byte == b'/').any(|part| matches!(part, b"." | b".."))
    );
    assert!(target.iter().all(|byte| *byte > b' ' && *byte != 0x7f));
    if let Some(authority @ HttpAuthority::Host { name, .. }) = &read.authority {
        let mut written = Vec::new();
        authority.write(&mut written);
        assert!(!name.is_empty() && !written.iter().any(|byte| matches!(byte, b'/' | b'@' | b'?' | b'#')));
        assert_eq!(HttpAuthority::parse(&written).as_ref(), Ok(authority));
    }
}

/// Hosts: a valid one is lower-case, without dots at its end, and valid again.
pub fn host_field(data: &[u8]) {
    let (mut once, mut twice) = (Vec::new(), Vec::new());
    if let Ok(found) = host::normalize(data, &mut once) {
        assert_eq!(found.name.len(), once.len());
        assert!(!once.is_empty() && !once.ends_with(b".") && !once.contains(&b'/'));
        assert_eq!(host::normalize(&once, &mut twice).map(|found| found.upper), Ok(false));
        assert_eq!(once, twice);
    }
}

/// Dates: one that can be written is read back the same.
pub fn http_date(data: &[u8]) {
    if let Some(seconds) = date::parse(data)
        && seconds >= 0
    {
        assert_eq!(date::parse(&date::http(seconds)), Some(seconds));
        assert_eq!(date::iso8601(seconds, 0).get(..4), date::error_log(seconds, 0).get(..4));
    }
}

/// `Range`: the parts lie inside, are not empty, and the multipart body is as long as announced. The first byte
/// chooses the length and the limit.
pub fn range_field(data: &[u8]) {
    let Some((&first, value)) = data.split_first() else { return };
    let length = u64::from(first) * 7;
    let mut ranges = Vec::new();
    for limit in [None, Some(u32::from(first % 8))] {
        ranges.clear();
        if range::parse(value, length, limit, &mut ranges) == RangeOutcome::Partial {
            assert!(!ranges.is_empty());
            assert!(ranges.iter().all(|range| range.start < range.end && range.end <= length));
            let sum: u64 = ranges.iter().map(ByteRange::size).sum();
            assert!(ranges.len() == 1 || sum <= length);
            multipart(&ranges, length);
        }
    }
    let _ = range::if_range(value, Some(b"\"1-2\""), Some(0));
    let _ = range::first_byte(value);
    if let Some((part, Some(whole))) = range::parse_content_range(value) {
        let mut text = Vec::new();
        range::content_range(&mut text, part, whole);
        assert_eq!(range::parse_content_range(&text), Some((part, Some(whole))));
    }
}

fn multipart(ranges: &[ByteRange], length: u64) {
    let parts = MultipartLayout::new(length, b"text/plain", None);
    let mut body = Vec::new();
    for &range in ranges {
        parts.part(&mut body, range, length);
        body.resize(body.len() + range.size() as usize, b'.');
    }
    parts.last(&mut body);
    assert_eq!(parts.content_length(ranges, length), body.len() as u64);
}

/// Conditional fields: a list that matches strongly also matches weakly.
pub fn conditions(data: &[u8]) {
    for tag in [Some(b"\"5f3c1a2b-1f4\"".as_slice()), Some(b"W/\"a\""), None] {
        let strong = etag::list_matches(data, tag, TagComparison::Strong);
        assert!(
            !strong || etag::list_matches(data, tag, TagComparison::Weak) || tag.is_some_and(etag::is_weak)
        );
    }
    let fields = RequestConditions {
        if_match: Some(data),
        if_none_match: Some(data),
        if_modified_since: Some(data),
        if_unmodified_since: None,
    };
    let _ = fields.evaluate(Some(b"\"a\""), Some(784_111_777), IfModifiedSince::Before);
    let mut tag = data.to_vec();
    etag::weaken(&mut tag);
    assert!(tag.is_empty() || etag::is_weak(&tag));
}

/// `Accept-Encoding`: what names no gzip accepts none.
pub fn accept_encoding(data: &[u8]) {
    let named = data.windows(4).any(|word| word.eq_ignore_ascii_case(b"gzip"));
    assert!(named || !accept::gzip(data));
    let _ = accept::accepts(data, b"br");
}

/// Cookies, list fields and arguments: what is found lies inside what was given.
pub fn cookies(data: &[u8]) {
    let inside = |value: Option<&[u8]>| {
        value.is_none_or(|value| data.as_ptr_range().contains(&value.as_ptr()) || value.is_empty())
    };
    assert!(inside(cookie::find([data], b"a")));
    assert!(inside(cookie::directive([data], b"max-age")));
    assert!(inside(cookie::set_cookie(data, b"a")));
    assert!(inside(cookie::arg(data, b"a")));
    assert!(cookie::arg(data, b"a").is_none_or(|value| !value.contains(&b'&')));
    let _ = cookie::has_token([data], b"no-cache");
}

/// Trace parents: what is taken is written again with the same numbers.
pub fn traceparent(data: &[u8]) {
    let Some(parent) = TraceParent::parse(data) else { return };
    assert!(parent.trace != 0 && parent.span != 0);
    let written = parent.to_string();
    assert_eq!(written.as_bytes().get(2..53), data.get(2..53));
    assert_eq!(TraceParent::parse(written.as_bytes()), Some(parent));
}

/// PROXY headers: a prefix of a header is never refused, and values are found inside it.
pub fn proxy_header(data: &[u8]) {
    if let Ok(proxy_protocol::ProxyProtocolParse::Complete(header)) = proxy_protocol::parse(data) {
        assert!(header.len <= data.len() && header.len <= proxy_protocol::MAX_HEADER);
        for end in 0..header.len {
            let prefix = data.get(..end).unwrap_or_default();
            assert_eq!(proxy_protocol::parse(prefix), Ok(proxy_protocol::ProxyProtocolParse::Incomplete));
        }
        for name in ["alpn", "authority", "ssl_verify", "ssl_cn", "0x30"] {
            let _ = proxy_protocol::tlv(header.tlvs.of(data), name);
        }
        assert!(proxy_protocol::tlvs(header.tlvs.of(data)).count() <= header.len);
    }
}

/// Escaping: nothing raw that the set forbids, unescaping brings it back, log lines stay lines.
pub fn escapes(data: &[u8]) {
    use escape::{EscapeSet, UnescapeMode};
    for set in [
        EscapeSet::Uri,
        EscapeSet::Args,
        EscapeSet::UriComponent,
        EscapeSet::Html,
        EscapeSet::Memcached,
        EscapeSet::Refresh,
    ] {
        let (mut out, mut back) = (Vec::new(), Vec::new());
        escape::escape(&mut out, data, set);
        assert_eq!(out.len(), data.len() + 2 * escape::count(data, set));
        escape::unescape(&mut back, &out, UnescapeMode::All);
        assert!(set == EscapeSet::Refresh || back == data);
    }
    for until in [UnescapeMode::All, UnescapeMode::Uri, UnescapeMode::Redirect] {
        let mut out = Vec::new();
        assert!(escape::unescape(&mut out, data, until) <= data.len() && out.len() <= data.len());
    }
    for write in [escape::log_default, escape::json, escape::html] {
        let mut out = Vec::new();
        write(&mut out, data);
        assert!(out.len() >= data.len());
    }
}

/// Types: a line of words is inserted and every word is found again.
pub fn types(data: &[u8]) {
    let mut types = mime::MediaTypeTable::new();
    for word in data.split(|&byte| byte == b' ') {
        types.insert(word, word);
        assert_eq!(types.find(&word.to_ascii_uppercase()), Some(word));
    }
    for status in data.chunks_exact(2).map(|pair| u16::from(pair[0]) << 8 | u16::from(pair[1])) {
        assert!(status::line(status).is_none_or(|line| line.len() > 4));
        let _ = (status::reason(status), status::page(status));
    }
}

/// memcached's answers to a key: what the first line says lies inside, and how a value is cut changes nothing. The first
/// byte says how long the key is.
pub fn memcached_answer(data: &[u8]) {
    let Some((length, rest)) = data.split_first() else { return };
    let (name, answer) = rest.split_at(usize::from(*length).min(rest.len()));
    let key = memcached::key(name);
    assert!(!key.iter().any(|byte| matches!(byte, b' ' | b'\r' | b'\n' | 0)));
    match memcached::head(answer, &key) {
        Ok(memcached::MemcachedHead::Value { flags, length, len }) => {
            assert!(len <= answer.len());
            let _number_or_not = memcached::flags(flags.of(answer));
            assert_eq!(value(&answer[len..], length, 1), value(&answer[len..], length, answer.len()));
        }
        Ok(memcached::MemcachedHead::NotFound { len }) => {
            assert_eq!(answer.get(..len), Some(&b"END\r\n"[..]));
        }
        Ok(memcached::MemcachedHead::Incomplete) => assert!(!answer.contains(&b'\n')),
        Err(wrong) => {
            assert!(wrong.message(memcached::line(answer), &key).to_string().starts_with("memcached sent"));
        }
    }
}

/// The bytes of a value, and whether they are over and right.
fn value(bytes: &[u8], length: u64, piece: usize) -> (Vec<u8>, bool) {
    let mut reader = memcached::MemcachedValue::new(length);
    let mut out = Vec::new();
    for piece in bytes.chunks(piece.max(1)) {
        match reader.take(piece) {
            Ok(value) => out.extend_from_slice(&piece[..value]),
            Err(bad) => {
                out.extend_from_slice(&piece[..bad.value]);
                return (out, false);
            }
        }
    }
    (out, reader.is_over())
}

/// FastCGI records: ranges lie inside, every byte is taken once, and what is read does not depend on the pieces.
pub fn fastcgi_records(data: &[u8]) {
    let read = |piece: usize| {
        let mut reader = fastcgi::RecordReader::new(fastcgi::RecordWriter::Application);
        let mut stdout = Vec::new();
        for piece in data.chunks(piece) {
            let mut at = 0;
            loop {
                let rest = piece.get(at..).unwrap_or_default();
                let Ok((taken, event)) = reader.read(rest) else { return (stdout, false) };
                at += taken;
                match event {
                    fastcgi::RecordEvent::More => break,
                    fastcgi::RecordEvent::Data(fastcgi::RecordKind::Stdout, range) => {
                        stdout.extend_from_slice(&rest[range]);
                    }
                    fastcgi::RecordEvent::Data(..) | fastcgi::RecordEvent::End { .. } => {}
                }
            }
            assert_eq!(at, piece.len());
        }
        (stdout, true)
    };
    assert_eq!(read(1), read(data.len().max(1)));
    assert!(fastcgi::pairs(data).map(|(name, value)| name.len() + value.len()).sum::<usize>() <= data.len());
}

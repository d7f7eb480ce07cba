//! Header sections as messages: which pseudo-header fields there are, and what makes a message malformed (RFC 9113
//! section 8, RFC 9114 section 4).

use std::fmt;

use crate::header::{KnownField, Span, decimal};
use crate::hpack::{DecodedSection, NameKind, SectionField};
use crate::priority::Priority;

/// What the pseudo-header fields and the fields that the protocol itself needs say. Spans are of the section's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SectionMessage {
    /// `:method`; `None` when absent, as in responses.
    pub method: Option<Span>,
    /// `:scheme`; `None` when absent.
    pub scheme: Option<Span>,
    /// `:authority`; `None` when absent.
    pub authority: Option<Span>,
    /// `:path`; `None` when absent.
    pub path: Option<Span>,
    /// `:protocol` (RFC 8441); `None` without it.
    pub protocol: Option<Span>,
    /// `:status`; `None` for a request.
    pub status: Option<u16>,
    /// `Content-Length`, in bytes; `None` when absent.
    pub content_length: Option<u64>,
    /// `Priority` (RFC 9218); `None` when it is absent.
    pub priority: Option<Priority>,
    /// Pseudo-header fields: they are before all others.
    pub pseudo: usize,
}

/// Why a message is malformed. The stream is to end with PROTOCOL_ERROR, or H3_MESSAGE_ERROR; a server may respond
/// with 400 before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MalformedMessage {
    /// A name in capital letters, or with bytes that no name has.
    Name(Span),
    /// A value with NUL, CR or LF, or with space around it.
    Value(Span),
    /// A pseudo-header field that there is not, or not in this kind of message.
    UnknownPseudo(Span),
    /// A pseudo-header field after other fields.
    LatePseudo(Span),
    /// A pseudo-header field twice.
    RepeatedPseudo(Span),
    /// `:method` is missing or empty.
    NoMethod,
    /// `:method` is not one that a request line could have.
    Method(Span),
    /// `:scheme` is missing or empty.
    NoScheme,
    /// `:scheme` is not a scheme (RFC 3986 section 3.1).
    Scheme(Span),
    /// `:path` is missing or empty.
    NoPath,
    /// `:protocol` in a request other than CONNECT (RFC 8441 section 4).
    Protocol(Span),
    /// `:authority` is missing in a CONNECT request.
    NoAuthority,
    /// A field about one connection of HTTP/1 (section 8.2.2).
    ConnectionField(Span),
    /// `Content-Length` is not a number, or is repeated.
    ContentLength,
    /// `:status` is missing or no number.
    NoStatus,
}

impl fmt::Display for MalformedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MalformedMessage::Name(_) => "sent invalid header name",
            MalformedMessage::Value(_) => "sent header with invalid value",
            MalformedMessage::UnknownPseudo(_) => "sent unknown pseudo-header",
            MalformedMessage::LatePseudo(_) => "sent out of order pseudo-headers",
            MalformedMessage::RepeatedPseudo(_) => "sent duplicate pseudo-header",
            MalformedMessage::NoMethod => "sent no :method header",
            MalformedMessage::Method(_) => "sent invalid method",
            MalformedMessage::NoScheme => "sent no :scheme header",
            MalformedMessage::Scheme(_) => "sent invalid \":scheme\" header",
            MalformedMessage::NoPath => "sent no :path header",
            MalformedMessage::Protocol(_) => "sent \":protocol\" header in a request other than CONNECT",
            MalformedMessage::NoAuthority => "sent no :authority header",
            MalformedMessage::ConnectionField(_) => "sent connection-specific header",
            MalformedMessage::ContentLength => "sent invalid \"Content-Length\" header",
            MalformedMessage::NoStatus => "sent no :status header",
        })
    }
}

impl MalformedMessage {
    /// The name of the offending field in the section's text, or the value of a pseudo-header field that can't have it.
    /// `None` for errors that no single field is to blame for, such as a missing `:path`.
    pub fn place(&self) -> Option<Span> {
        match self {
            MalformedMessage::Name(span)
            | MalformedMessage::Value(span)
            | MalformedMessage::UnknownPseudo(span)
            | MalformedMessage::LatePseudo(span)
            | MalformedMessage::RepeatedPseudo(span)
            | MalformedMessage::Method(span)
            | MalformedMessage::Scheme(span)
            | MalformedMessage::Protocol(span)
            | MalformedMessage::ConnectionField(span) => Some(*span),
            _ => None,
        }
    }
}

/// Whether anything follows on a stream: END_STREAM of HTTP/2 (RFC 9113 section 5.1), or the end of a stream of QUIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// Something follows.
    More,
    /// Nothing follows.
    Last,
}

impl StreamEnd {
    /// [`StreamEnd::Last`] if `last`.
    #[inline]
    pub const fn last_if(last: bool) -> StreamEnd {
        if last { StreamEnd::Last } else { StreamEnd::More }
    }
}

/// What kind of message a section is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessagePart {
    Request,
    Response,
    Trailers,
}

impl SectionMessage {
    /// Reads `section` as `part` of a message. What can be had of a malformed one is there, too, for logs and
    /// responses.
    pub(crate) fn read(
        section: &DecodedSection,
        part: MessagePart,
        message: &mut SectionMessage,
    ) -> Result<(), MalformedMessage> {
        *message = SectionMessage::default();
        let mut wrong = None;
        for (at, item) in section.items.iter().enumerate() {
            if let Err(malformed) = message.item(at, item, section, part) {
                wrong.get_or_insert(malformed);
            }
        }
        if let Some(malformed) = wrong {
            return Err(malformed);
        }
        match part {
            MessagePart::Request if !section.too_large => message.check_request(section),
            MessagePart::Response if message.status.is_none() => Err(MalformedMessage::NoStatus),
            _ => Ok(()),
        }
    }

    #[inline]
    fn item(
        &mut self,
        at: usize,
        item: &SectionField,
        section: &DecodedSection,
        part: MessagePart,
    ) -> Result<(), MalformedMessage> {
        if !item.clean {
            return Err(MalformedMessage::Value(item.label));
        }
        if item.name.kind.is_pseudo() {
            if part == MessagePart::Trailers {
                return Err(MalformedMessage::UnknownPseudo(item.label));
            }
            if self.pseudo != at {
                return Err(MalformedMessage::LatePseudo(item.label));
            }
            self.pseudo = at + 1;
            return self.set(item, section, part);
        }
        if item.name.kind == NameKind::Malformed {
            return Err(MalformedMessage::Name(item.label));
        }
        match item.name.known {
            KnownField::Connection
            | KnownField::KeepAlive
            | KnownField::ProxyConnection
            | KnownField::TransferEncoding
            | KnownField::Upgrade => Err(MalformedMessage::ConnectionField(item.label)),
            KnownField::Te if !item.value.of(&section.text).eq_ignore_ascii_case(b"trailers") => {
                Err(MalformedMessage::ConnectionField(item.label))
            }
            KnownField::ContentLength if part != MessagePart::Trailers => {
                let length = decimal(item.value.of(&section.text)).ok_or(MalformedMessage::ContentLength)?;
                match self.content_length.replace(length) {
                    Some(before) if part == MessagePart::Request || before != length => {
                        Err(MalformedMessage::ContentLength)
                    }
                    _ => Ok(()),
                }
            }
            KnownField::Priority if part == MessagePart::Request => {
                self.priority = Some(Priority::parse(item.value.of(&section.text)));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn set(
        &mut self,
        item: &SectionField,
        section: &DecodedSection,
        part: MessagePart,
    ) -> Result<(), MalformedMessage> {
        let request = part == MessagePart::Request;
        let slot = match item.name.kind {
            NameKind::Method if request => &mut self.method,
            NameKind::Scheme if request => &mut self.scheme,
            NameKind::Authority if request => &mut self.authority,
            NameKind::Path if request => &mut self.path,
            NameKind::Protocol if request => &mut self.protocol,
            NameKind::Status if part == MessagePart::Response => {
                let [a, b, c] = *item.value.of(&section.text) else { return Err(MalformedMessage::NoStatus) };
                let status = decimal(&[a, b, c]).and_then(|status| u16::try_from(status).ok());
                let status = status.filter(|status| *status >= 100).ok_or(MalformedMessage::NoStatus)?;
                return match self.status.replace(status) {
                    Some(_) => Err(MalformedMessage::RepeatedPseudo(item.label)),
                    None => Ok(()),
                };
            }
            _ => return Err(MalformedMessage::UnknownPseudo(item.label)),
        };
        match slot.replace(item.value) {
            Some(_) => Err(MalformedMessage::RepeatedPseudo(item.label)),
            None => Ok(()),
        }
    }

    fn check_request(&self, section: &DecodedSection) -> Result<(), MalformedMessage> {
        let given = |span: Option<Span>| span.filter(|span| !span.is_empty());
        let method = given(self.method).ok_or(MalformedMessage::NoMethod)?;
        // Upstream servers get it at the front of a request line.
        if !method.of(&section.text).iter().all(|byte| matches!(byte, b'A'..=b'Z' | b'_' | b'-')) {
            return Err(MalformedMessage::Method(method));
        }
        let connects = method.of(&section.text) == b"CONNECT";
        if let Some(protocol) = self.protocol
            && !connects
        {
            return Err(MalformedMessage::Protocol(protocol));
        }
        if connects && self.protocol.is_none() {
            // Section 8.5: a tunnel has neither scheme nor path. One that has is no other request for it: nginx refuses
            // both by their method.
            return given(self.authority).map(|_| ()).ok_or(MalformedMessage::NoAuthority);
        }
        let scheme = given(self.scheme).ok_or(MalformedMessage::NoScheme)?;
        if !is_scheme(scheme.of(&section.text)) {
            return Err(MalformedMessage::Scheme(scheme));
        }
        given(self.path).map(|_| ()).ok_or(MalformedMessage::NoPath)
    }
}

/// RFC 3986 section 3.1.
fn is_scheme(text: &[u8]) -> bool {
    let more = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    text.first().is_some_and(u8::is_ascii_alphabetic) && text.iter().all(more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::{DEFAULT_TABLE, FieldIndexing, HpackDecoder, HpackEncoder, SectionLimits};

    fn read(fields: &[(&str, &str)], part: MessagePart) -> Result<SectionMessage, MalformedMessage> {
        let (mut out, mut section, mut message) =
            (Vec::new(), DecodedSection::default(), SectionMessage::default());
        let mut encoder = HpackEncoder::new();
        for (name, value) in fields {
            encoder.field(name.as_bytes(), value.as_bytes(), FieldIndexing::Not, &mut out);
        }
        let limits = SectionLimits::new(4096, 100);
        HpackDecoder::new(DEFAULT_TABLE).decode(&out, limits, &mut section).expect("a good block");
        SectionMessage::read(&section, part, &mut message).map(|()| message)
    }

    const GET: [(&str, &str); 4] =
        [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a")];

    #[test]
    fn a_request_has_its_pseudo_header_fields_once_and_first() {
        let with = |field| read(&[&GET[..], &[field]].concat(), MessagePart::Request);
        let message = with(("content-length", "5")).expect("a good request");
        assert_eq!((message.content_length, message.pseudo), (Some(5), 4));
        assert!(matches!(with((":path", "/b")), Err(MalformedMessage::RepeatedPseudo(_))));
        assert!(matches!(with((":status", "200")), Err(MalformedMessage::UnknownPseudo(_))));
        assert!(matches!(with((":own", "1")), Err(MalformedMessage::UnknownPseudo(_))));
        assert!(matches!(with(("Name", "1")), Err(MalformedMessage::Name(_))));
        assert!(matches!(with(("name", "a\nb")), Err(MalformedMessage::Value(_))));
        assert!(matches!(with(("connection", "close")), Err(MalformedMessage::ConnectionField(_))));
        assert!(matches!(with(("te", "gzip")), Err(MalformedMessage::ConnectionField(_))));
        assert!(with(("te", "trailers")).is_ok());
        assert_eq!(with(("content-length", "5x")), Err(MalformedMessage::ContentLength));
        // A request's length comes once, a response's once more if it is the same.
        let lengths = |first, second, begin: &[(&'static str, &'static str)], part| {
            read(&[begin, &[("content-length", first), ("content-length", second)]].concat(), part)
        };
        for second in ["5", "6"] {
            let twice = lengths("5", second, &GET, MessagePart::Request);
            assert_eq!(twice, Err(MalformedMessage::ContentLength), "{second}");
        }
        assert!(lengths("5", "5", &[(":status", "200")], MessagePart::Response).is_ok());
        let differing = lengths("5", "6", &[(":status", "200")], MessagePart::Response);
        assert_eq!(differing, Err(MalformedMessage::ContentLength));
        let late = [&[("a", "b")], &GET[..]].concat();
        assert!(matches!(read(&late, MessagePart::Request), Err(MalformedMessage::LatePseudo(_))));
        assert_eq!(read(&GET[1..], MessagePart::Request), Err(MalformedMessage::NoMethod));
        assert_eq!(read(&[GET[0], GET[2]], MessagePart::Request), Err(MalformedMessage::NoScheme));
        assert_eq!(read(&GET[..2], MessagePart::Request), Err(MalformedMessage::NoPath));
        for method in ["get", "GET /x", "G\tT", "GET\u{e4}", "G(T"] {
            let odd = read(&[(":method", method), GET[1], GET[2]], MessagePart::Request);
            assert!(matches!(odd, Err(MalformedMessage::Method(_))), "{method}");
        }
        for scheme in ["ht tp", "1x", "http:", "-"] {
            let odd = read(&[GET[0], (":scheme", scheme), GET[2]], MessagePart::Request);
            assert!(matches!(odd, Err(MalformedMessage::Scheme(_))), "{scheme}");
        }
        let odd = [("M-SEARCH", "ht+p.1-"), ("VERSION_CONTROL", "H")];
        assert!(odd.iter().all(|(method, scheme)| {
            read(&[(":method", method), (":scheme", scheme), GET[2]], MessagePart::Request).is_ok()
        }));
        assert_eq!(
            read(&[GET[0], GET[1], (":path", "")], MessagePart::Request),
            Err(MalformedMessage::NoPath)
        );
        let priority = with(("priority", "u=1")).expect("a good request").priority;
        assert_eq!(priority, Some(Priority { urgency: 1, incremental: false }));
    }

    #[test]
    fn what_one_part_has_the_others_have_not() {
        for field in [GET[0], GET[1], GET[2], GET[3], (":protocol", "x")] {
            let response = read(&[(":status", "200"), field], MessagePart::Response);
            let Err(malformed @ MalformedMessage::UnknownPseudo(place)) = response else {
                panic!("{response:?}")
            };
            assert_eq!(malformed.place(), Some(place));
            assert_eq!(place.len(), field.0.len());
        }
        assert_eq!(MalformedMessage::NoPath.place(), None);
        let status =
            |status| read(&[(":status", status)], MessagePart::Response).map(|message| message.status);
        assert_eq!((status("100"), status("099")), (Ok(Some(100)), Err(MalformedMessage::NoStatus)));
        let fields = [(":status", "200"), ("priority", "u=1")];
        assert_eq!(read(&fields, MessagePart::Response).map(|message| message.priority), Ok(None));
        assert!(read(&[("content-length", "x"), ("content-length", "y")], MessagePart::Trailers).is_ok());
        // Of a request that is too large the rest is not there.
        let (mut cut, mut message) = (DecodedSection::default(), SectionMessage::default());
        cut.too_large = true;
        assert_eq!(SectionMessage::read(&cut, MessagePart::Request, &mut message), Ok(()));
    }

    #[test]
    fn tunnels_responses_and_trailers_have_others() {
        let connect = [(":method", "CONNECT"), (":authority", "a:443")];
        assert!(read(&connect, MessagePart::Request).is_ok());
        assert_eq!(read(&connect[..1], MessagePart::Request), Err(MalformedMessage::NoAuthority));
        let extended = [&[("x", "x"); 0], &connect[..1], &GET[1..], &[(":protocol", "websocket")]].concat();
        assert!(read(&extended, MessagePart::Request).expect("a good request").protocol.is_some());
        for protocol in ["websocket", ""] {
            let fields = [&GET[..], &[(":protocol", protocol)]].concat();
            let other = read(&fields, MessagePart::Request);
            assert!(matches!(other, Err(MalformedMessage::Protocol(_))), "{other:?}");
        }
        assert_eq!(
            read(&[(":status", "204")], MessagePart::Response).map(|message| message.status),
            Ok(Some(204))
        );
        assert_eq!(read(&[(":status", "99")], MessagePart::Response), Err(MalformedMessage::NoStatus));
        assert_eq!(read(&[], MessagePart::Response), Err(MalformedMessage::NoStatus));
        assert!(read(&[("grpc-status", "0")], MessagePart::Trailers).is_ok());
        assert!(matches!(read(&GET, MessagePart::Trailers), Err(MalformedMessage::UnknownPseudo(_))));
    }
}

//! The static table (RFC 9204 appendix A), which counts from 0.

use crate::header::KnownField;
use crate::hpack::name::{FieldName, NameKind};
use crate::hpack::table::{StaticEntry, TableField, pseudo, usual};

/// The entry at `index`.
#[inline]
pub(super) fn fixed(index: u64) -> Option<TableField<'static>> {
    STATIC.get(usize::try_from(index).ok()?).map(StaticEntry::field)
}

/// What the static table has of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FixedMatch {
    /// Name and value, at this index.
    Field(u8),
    /// The name.
    Name(u8),
    /// Neither.
    Absent,
}

impl FixedMatch {
    /// The field of a known name.
    #[inline]
    pub(super) fn known(known: KnownField, value: &[u8]) -> FixedMatch {
        match NAMES.get(known as usize) {
            Some(&index) if index != ABSENT => FixedMatch::from_first(index, value),
            _ => FixedMatch::Absent,
        }
    }

    /// The field of a name that is not known, or is a pseudo-header field's.
    pub(super) fn named(name: &[u8], value: &[u8]) -> FixedMatch {
        let first = match name {
            b":authority" => 0,
            b":path" => 1,
            b":method" => 15,
            b":scheme" => 22,
            b":status" => 24,
            b"x-xss-protection" => 62,
            b"expect-ct" => 87,
            b"purpose" => 91,
            b"timing-allow-origin" => 93,
            _ => return FixedMatch::Absent,
        };
        FixedMatch::from_first(first, value)
    }

    /// Rows of a name lie together, but for two names, which go on later.
    fn from_first(first: u8, value: &[u8]) -> FixedMatch {
        let mut index = first;
        while index != ABSENT {
            let Some(StaticEntry { label, text, .. }) = STATIC.get(usize::from(index)) else { break };
            if text.as_bytes().get(*label..) == Some(value) {
                return FixedMatch::Field(index);
            }
            index = NEXT.get(usize::from(index)).copied().unwrap_or(ABSENT);
        }
        FixedMatch::Name(first)
    }
}

/// The row of a status, where one has it.
#[inline]
pub(super) fn fixed_status(status: u16) -> Option<u8> {
    Some(match status {
        103 => 24,
        200 => 25,
        304 => 26,
        404 => 27,
        503 => 28,
        100 => 63,
        204 => 64,
        206 => 65,
        302 => 66,
        400 => 67,
        403 => 68,
        421 => 69,
        425 => 70,
        500 => 71,
        _ => return None,
    })
}

/// The first row of `:status`.
pub(super) const STATUS: u8 = 24;
/// No row.
const ABSENT: u8 = u8::MAX;
/// Rows.
pub(super) const FIXED: usize = 99;

/// The first row of each known name.
#[allow(clippy::indexing_slicing, reason = "at compile time")]
static NAMES: [u8; KnownField::COUNT] = {
    let (mut names, mut row) = ([ABSENT; KnownField::COUNT], FIXED);
    while row > 0 {
        row -= 1;
        let known = STATIC[row].name.known;
        if !matches!(known, KnownField::Other) {
            names[known as usize] = row as u8;
        }
    }
    names
};

/// The next row of the same name.
#[allow(clippy::indexing_slicing, reason = "at compile time")]
static NEXT: [u8; FIXED] = {
    let (mut next, mut row) = ([ABSENT; FIXED], 0);
    while row < FIXED {
        let mut later = row + 1;
        while later < FIXED && !same_name(row, later) {
            later += 1;
        }
        if later < FIXED {
            next[row] = later as u8;
        }
        row += 1;
    }
    next
};

#[allow(clippy::indexing_slicing, reason = "at compile time")]
const fn same_name(one: usize, other: usize) -> bool {
    let (one, other) = (&STATIC[one], &STATIC[other]);
    if one.label != other.label {
        return false;
    }
    let (mut at, first, second) = (0, one.text.as_bytes(), other.text.as_bytes());
    while at < one.label {
        if first[at] != second[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// A row with a value.
const fn valued(label: usize, text: &'static str, known: KnownField) -> StaticEntry {
    StaticEntry { label, text, name: FieldName { known, kind: NameKind::Usual } }
}

/// RFC 9204 appendix A: names and after them values.
static STATIC: [StaticEntry; FIXED] = [
    pseudo(10, ":authority", NameKind::Authority),
    pseudo(5, ":path/", NameKind::Path),
    valued(3, "age0", KnownField::Age),
    usual("content-disposition", KnownField::ContentDisposition),
    valued(14, "content-length0", KnownField::ContentLength),
    usual("cookie", KnownField::Cookie),
    usual("date", KnownField::Date),
    usual("etag", KnownField::Etag),
    usual("if-modified-since", KnownField::IfModifiedSince),
    usual("if-none-match", KnownField::IfNoneMatch),
    usual("last-modified", KnownField::LastModified),
    usual("link", KnownField::Link),
    usual("location", KnownField::Location),
    usual("referer", KnownField::Referer),
    usual("set-cookie", KnownField::SetCookie),
    pseudo(7, ":methodCONNECT", NameKind::Method),
    pseudo(7, ":methodDELETE", NameKind::Method),
    pseudo(7, ":methodGET", NameKind::Method),
    pseudo(7, ":methodHEAD", NameKind::Method),
    pseudo(7, ":methodOPTIONS", NameKind::Method),
    pseudo(7, ":methodPOST", NameKind::Method),
    pseudo(7, ":methodPUT", NameKind::Method),
    pseudo(7, ":schemehttp", NameKind::Scheme),
    pseudo(7, ":schemehttps", NameKind::Scheme),
    pseudo(7, ":status103", NameKind::Status),
    pseudo(7, ":status200", NameKind::Status),
    pseudo(7, ":status304", NameKind::Status),
    pseudo(7, ":status404", NameKind::Status),
    pseudo(7, ":status503", NameKind::Status),
    valued(6, "accept*/*", KnownField::Accept),
    valued(6, "acceptapplication/dns-message", KnownField::Accept),
    valued(15, "accept-encodinggzip, deflate, br", KnownField::AcceptEncoding),
    valued(13, "accept-rangesbytes", KnownField::AcceptRanges),
    valued(28, "access-control-allow-headerscache-control", KnownField::AccessControlAllowHeaders),
    valued(28, "access-control-allow-headerscontent-type", KnownField::AccessControlAllowHeaders),
    valued(27, "access-control-allow-origin*", KnownField::AccessControlAllowOrigin),
    valued(13, "cache-controlmax-age=0", KnownField::CacheControl),
    valued(13, "cache-controlmax-age=2592000", KnownField::CacheControl),
    valued(13, "cache-controlmax-age=604800", KnownField::CacheControl),
    valued(13, "cache-controlno-cache", KnownField::CacheControl),
    valued(13, "cache-controlno-store", KnownField::CacheControl),
    valued(13, "cache-controlpublic, max-age=31536000", KnownField::CacheControl),
    valued(16, "content-encodingbr", KnownField::ContentEncoding),
    valued(16, "content-encodinggzip", KnownField::ContentEncoding),
    valued(12, "content-typeapplication/dns-message", KnownField::ContentType),
    valued(12, "content-typeapplication/javascript", KnownField::ContentType),
    valued(12, "content-typeapplication/json", KnownField::ContentType),
    valued(12, "content-typeapplication/x-www-form-urlencoded", KnownField::ContentType),
    valued(12, "content-typeimage/gif", KnownField::ContentType),
    valued(12, "content-typeimage/jpeg", KnownField::ContentType),
    valued(12, "content-typeimage/png", KnownField::ContentType),
    valued(12, "content-typetext/css", KnownField::ContentType),
    valued(12, "content-typetext/html; charset=utf-8", KnownField::ContentType),
    valued(12, "content-typetext/plain", KnownField::ContentType),
    valued(12, "content-typetext/plain;charset=utf-8", KnownField::ContentType),
    valued(5, "rangebytes=0-", KnownField::Range),
    valued(25, "strict-transport-securitymax-age=31536000", KnownField::StrictTransportSecurity),
    valued(
        25,
        "strict-transport-securitymax-age=31536000; includesubdomains",
        KnownField::StrictTransportSecurity,
    ),
    valued(
        25,
        "strict-transport-securitymax-age=31536000; includesubdomains; preload",
        KnownField::StrictTransportSecurity,
    ),
    valued(4, "varyaccept-encoding", KnownField::Vary),
    valued(4, "varyorigin", KnownField::Vary),
    valued(22, "x-content-type-optionsnosniff", KnownField::XContentTypeOptions),
    valued(16, "x-xss-protection1; mode=block", KnownField::Other),
    pseudo(7, ":status100", NameKind::Status),
    pseudo(7, ":status204", NameKind::Status),
    pseudo(7, ":status206", NameKind::Status),
    pseudo(7, ":status302", NameKind::Status),
    pseudo(7, ":status400", NameKind::Status),
    pseudo(7, ":status403", NameKind::Status),
    pseudo(7, ":status421", NameKind::Status),
    pseudo(7, ":status425", NameKind::Status),
    pseudo(7, ":status500", NameKind::Status),
    usual("accept-language", KnownField::AcceptLanguage),
    valued(32, "access-control-allow-credentialsFALSE", KnownField::AccessControlAllowCredentials),
    valued(32, "access-control-allow-credentialsTRUE", KnownField::AccessControlAllowCredentials),
    valued(28, "access-control-allow-headers*", KnownField::AccessControlAllowHeaders),
    valued(28, "access-control-allow-methodsget", KnownField::AccessControlAllowMethods),
    valued(28, "access-control-allow-methodsget, post, options", KnownField::AccessControlAllowMethods),
    valued(28, "access-control-allow-methodsoptions", KnownField::AccessControlAllowMethods),
    valued(29, "access-control-expose-headerscontent-length", KnownField::AccessControlExposeHeaders),
    valued(30, "access-control-request-headerscontent-type", KnownField::AccessControlRequestHeaders),
    valued(29, "access-control-request-methodget", KnownField::AccessControlRequestMethod),
    valued(29, "access-control-request-methodpost", KnownField::AccessControlRequestMethod),
    valued(7, "alt-svcclear", KnownField::AltSvc),
    usual("authorization", KnownField::Authorization),
    valued(
        23,
        "content-security-policyscript-src 'none'; object-src 'none'; base-uri 'none'",
        KnownField::ContentSecurityPolicy,
    ),
    valued(10, "early-data1", KnownField::EarlyData),
    usual("expect-ct", KnownField::Other),
    usual("forwarded", KnownField::Forwarded),
    usual("if-range", KnownField::IfRange),
    usual("origin", KnownField::Origin),
    valued(7, "purposeprefetch", KnownField::Other),
    usual("server", KnownField::Server),
    valued(19, "timing-allow-origin*", KnownField::Other),
    valued(25, "upgrade-insecure-requests1", KnownField::UpgradeInsecureRequests),
    usual("user-agent", KnownField::UserAgent),
    usual("x-forwarded-for", KnownField::XForwardedFor),
    valued(15, "x-frame-optionsdeny", KnownField::XFrameOptions),
    valued(15, "x-frame-optionssameorigin", KnownField::XFrameOptions),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::table::row;

    #[test]
    fn the_static_table_is_classified_as_its_texts_are() {
        for index in 0..FIXED as u64 {
            let found = fixed(index).expect("a row");
            let read = row(found.text, found.label);
            assert_eq!((found.name, read.clean), (read.name, true), "{index}");
        }
        assert!(fixed(99).is_none() && fixed(u64::MAX).is_none());
    }

    #[test]
    fn every_row_is_found_by_what_it_says() {
        for index in 0..FIXED as u8 {
            let found = fixed(u64::from(index)).expect("a row");
            let (name, value) = found.text.split_at(found.label);
            let matched = match found.name.known {
                KnownField::Other => FixedMatch::named(name, value),
                known => FixedMatch::known(known, value),
            };
            assert_eq!(matched, FixedMatch::Field(index), "{}", found.text.escape_ascii());
            if name == b":status" {
                let status = std::str::from_utf8(value).expect("digits").parse().expect("a number");
                assert_eq!(fixed_status(status), Some(index));
            }
        }
        assert_eq!(FixedMatch::known(KnownField::Vary, b"Accept-Encoding"), FixedMatch::Name(59));
        assert_eq!(FixedMatch::known(KnownField::Host, b"a"), FixedMatch::Absent);
        assert_eq!(FixedMatch::named(b":status", b"201"), FixedMatch::Name(STATUS));
        assert_eq!(FixedMatch::named(b"x-own", b""), FixedMatch::Absent);
        assert_eq!(fixed_status(201), None);
    }
}

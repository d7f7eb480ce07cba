//! What writes header sections field by field, whichever the version of HTTP.

use crate::header::KnownField;

/// A writer of header sections: HPACK's or QPACK's.
pub trait SectionCoder {
    /// Appends the pseudo-header field `:status`.
    fn status(&mut self, status: u16, out: &mut Vec<u8>);

    /// Appends a field of a known name, which is written in lower case.
    fn known(&mut self, known: KnownField, value: &[u8], out: &mut Vec<u8>);

    /// Appends a field of any name, which is in lower case.
    fn field(&mut self, name: &[u8], value: &[u8], indexing: FieldIndexing, out: &mut Vec<u8>);
}

/// What may be done with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldIndexing {
    /// It may enter the table.
    Allowed,
    /// It stays out of the table: it will not come again.
    Not,
    /// It stays out of all tables on its way: a secret (RFC 7541 section 7.1.3).
    Never,
}

impl FieldIndexing {
    /// What may be done with a known field: lengths and the like come once, and secrets stay out of tables (RFC 7541 section
    /// 7.1.3, RFC 9204 section 7.1.3). A short cookie could be guessed byte by byte.
    #[inline]
    pub(crate) fn of(known: KnownField, value: &[u8]) -> FieldIndexing {
        match known {
            KnownField::ContentLength | KnownField::ContentRange | KnownField::Location | KnownField::Age => {
                FieldIndexing::Not
            }
            KnownField::Authorization | KnownField::ProxyAuthorization => FieldIndexing::Never,
            KnownField::SetCookie | KnownField::Cookie if value.len() < 20 => FieldIndexing::Never,
            KnownField::SetCookie => FieldIndexing::Not,
            _ => FieldIndexing::Allowed,
        }
    }
}

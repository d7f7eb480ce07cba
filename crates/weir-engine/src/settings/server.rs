//! The core's settings of a virtual server: its names, and how request heads are read. The directives that fill them are
//! in [`server_core`](crate::conf::server_core).

use weir_http::IgnoredFields;
use weir_http::h1::HeadLimits;

use super::server_name::ServerName;

/// Gives the list of settings to the macro `$make`, of which there are two: one makes [`ServerSettings`], one
/// [`ServerCoreConf`](crate::conf::server_core::ServerCoreConf), its inheritance and its defaults. A new directive whose
/// setting is plain needs its row in the table and one line here; another one needs the slot as written and, apart from
/// it, what becomes of it.
macro_rules! server_settings {
    ($make:ident) => {
        $make! {
            // As written an `Option`, inherited, and what follows `=` where nothing was written.
            plain {
                /// `client_header_timeout`, in milliseconds.
                client_header_timeout: u64 = 60_000,
                /// `client_header_buffer_size`, in bytes.
                client_header_buffer_size: u64 = 1024,
                /// `max_headers`: maximum number of fields of a request.
                max_headers: usize = 1000,
                /// `ignore_invalid_headers`: whether fields with invalid names are left out.
                ignore_invalid_headers: bool = true,
                /// `underscores_in_headers`: whether underscores are valid in names.
                underscores_in_headers: bool = false,
                /// `merge_slashes`: whether adjacent slashes of a URI are merged.
                merge_slashes: bool = true,
            }
            // As written an `Option`, and inherited; `ServerCoreConf::settings` says what becomes of them.
            written {
                /// `large_client_header_buffers`: number, and bytes of each.
                large_client_header_buffers: BufferSizes,
                /// `invalid_header_values`: what becomes of fields with control bytes in their values.
                invalid_header_values: InvalidValues,
                /// `connection_pool_size`, in bytes; only checked.
                connection_pool_size: u64,
                /// `server_product`: the name in the `Server` field.
                product: ServerProduct,
            }
        }
    };
}

pub(crate) use server_settings;

macro_rules! make_settings {
    (
        plain { $($(#[$plain_doc:meta])* $plain:ident: $plain_type:ty = $default:expr,)* }
        written { $($(#[$written_doc:meta])* $written:ident: $written_type:ty,)* }
    ) => {
        /// What a server needs before a request's location is known, resolved. Times are milliseconds, sizes bytes.
        #[derive(Clone)]
        pub struct ServerSettings {
            /// `$server_name`: the first name; empty without one.
            pub name: Vec<u8>,
            /// `server_name`, all names in order.
            pub names: Vec<ServerName>,
            /// `large_client_header_buffers`: number and size.
            pub large_client_header_buffers: (u64, u64),
            /// `invalid_header_values` for fields of clients.
            pub invalid_received: InvalidValues,
            /// What becomes of control bytes in values that the configuration's variables make, as
            /// [`ServerSettings::invalid_received`] for the client's.
            pub invalid_made: InvalidValues,
            /// True when the directive was written: all control bytes count in such values; else only those that end a field.
            pub judges_controls: bool,
            /// True when requests with the method CONNECT are taken: a `tunnel_pass` is in the server.
            pub accepts_connect: bool,
            /// The name in the `Server` field (`server_product`).
            pub product: ServerProduct,
            $($(#[$plain_doc])* pub $plain: $plain_type,)*
        }
    };
}

server_settings!(make_settings);

/// What the server calls itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerProduct {
    /// Without version: `weir`.
    pub name: String,
    /// With version: `weir/0.1.0`.
    pub full: String,
    /// The `Server` field with version, line end included.
    pub line_on: Vec<u8>,
    /// The `Server` field without version, line end included.
    pub line_off: Vec<u8>,
}

impl ServerProduct {
    /// From `name` or `name/version`.
    pub fn new(full: &str) -> ServerProduct {
        let name = full.split_once('/').map_or(full, |(name, _)| name);
        ServerProduct {
            name: name.to_owned(),
            full: full.to_owned(),
            line_on: format!("Server: {full}\r\n").into_bytes(),
            line_off: format!("Server: {name}\r\n").into_bytes(),
        }
    }
}

impl Default for ServerProduct {
    fn default() -> ServerProduct {
        ServerProduct::new(concat!("weir/", env!("CARGO_PKG_VERSION")))
    }
}

impl ServerSettings {
    /// What the parser of request heads is bound by. A line is as long as the larger buffer; a head may fill the
    /// first buffer and all large ones.
    pub fn limits(&self) -> HeadLimits {
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let (number, large) = self.large_client_header_buffers;
        HeadLimits {
            max_line: size(large.max(self.client_header_buffer_size)),
            max_head: size(number.saturating_mul(large).saturating_add(self.client_header_buffer_size)),
            max_fields: self.max_headers,
            ignored: self.ignored_fields(),
        }
    }

    /// The fields of requests that are left out, as `ignore_invalid_headers` and `underscores_in_headers` have it.
    pub(crate) fn ignored_fields(&self) -> IgnoredFields {
        match (self.ignore_invalid_headers, self.underscores_in_headers) {
            (false, _) => IgnoredFields::None,
            (true, true) => IgnoredFields::Invalid,
            (true, false) => IgnoredFields::InvalidOrUnderscored,
        }
    }
}

/// What becomes of a field whose value holds control bytes (RFC 9110 section 5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidValues {
    /// It is taken, as in nginx.
    Off,
    /// The field is left out.
    Drop,
    /// The request is refused.
    Reject,
}

impl InvalidValues {
    pub(crate) const NAMES: &[(&str, InvalidValues)] =
        &[("off", InvalidValues::Off), ("drop", InvalidValues::Drop), ("reject", InvalidValues::Reject)];
}

/// Whether a field's value holds control bytes other than the tab.
pub(crate) fn has_control(value: &[u8]) -> bool {
    let is_control = |byte: &u8| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f;
    // Eight bytes at a time, the last ones again where their number is no multiple of it: most values have none.
    match value.last_chunk::<8>() {
        None => value.iter().any(is_control),
        Some(last) => {
            let words = value.as_chunks::<8>().0.iter().chain([last]);
            words
                .into_iter()
                .any(|word| has_suspect(u64::from_ne_bytes(*word)) && word.iter().any(is_control))
        }
    }
}

/// Whether one of the eight bytes is below a space, or 0x7f.
#[inline]
fn has_suspect(word: u64) -> bool {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const TOPS: u64 = ONES << 7;
    let deletes = word ^ (ONES * 0x7f);
    let below = word.wrapping_sub(ONES * 0x20) & !word;
    let zero = deletes.wrapping_sub(ONES) & !deletes;
    (below | zero) & TOPS != 0
}

/// Whether a value holds what ends a field, or is read as its end (RFC 9110 section 5.5).
pub(crate) fn ends_field(value: &[u8]) -> bool {
    value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0))
}

/// Whether a value has no other control bytes than folds: each line end is followed by a tab, as `$ssl_client_cert` has
/// them. Without a colon what follows is no field even for a server that takes no notice of the tab.
pub(crate) fn is_folded(value: &[u8]) -> bool {
    let mut lines = value.split(|byte| *byte == b'\n');
    let is_plain = |line: &[u8]| !has_control(line);
    lines.next().is_some_and(is_plain)
        && lines.all(|line| line.first() == Some(&b'\t') && is_plain(line) && !line.contains(&b':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_bytes_are_found_wherever_they_are() {
        for length in 0..40 {
            for fill in [b' ', b'\t', b'~', 0x80, 0x9f, 0xff] {
                let mut value = vec![fill; length];
                assert!(!has_control(&value), "{value:?}");
                for at in 0..length {
                    for byte in 0..=u8::MAX {
                        value[at] = byte;
                        let expected = byte < b' ' && byte != b'\t' || byte == 0x7f;
                        assert_eq!(has_control(&value), expected, "{value:?}");
                    }
                    value[at] = fill;
                }
            }
        }
    }
}

//! Settings: what each side announces to the other (RFC 9114 section 7.2.4).

use super::frame::{frame_head, kind};
use super::{H3ErrorCode, H3Failure, varint};

/// The settings of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct H3Settings {
    /// `SETTINGS_QPACK_MAX_TABLE_CAPACITY`: bytes (RFC 9204 section 5).
    pub table: u64,
    /// `SETTINGS_QPACK_BLOCKED_STREAMS` (RFC 9204 section 5).
    pub blocked: u64,
    /// `SETTINGS_MAX_FIELD_SECTION_SIZE`: bytes; `None`: no limit was set.
    pub section: Option<u64>,
    /// `SETTINGS_ENABLE_CONNECT_PROTOCOL` (RFC 9220).
    pub connect_protocol: bool,
    /// `SETTINGS_H3_DATAGRAM` (RFC 9297).
    pub datagrams: bool,
}

const TABLE: u64 = 1;
const SECTION: u64 = 6;
const BLOCKED: u64 = 7;
const CONNECT_PROTOCOL: u64 = 8;
const DATAGRAMS: u64 = 0x33;
/// One of those that mean nothing, so that peers get used to it (RFC 9114 section 7.2.4.1).
const GREASE: u64 = 0x1f * 0x57 + 0x21;

impl H3Settings {
    /// Reads the payload of a SETTINGS frame.
    ///
    /// # Errors
    /// A value out of bounds, a setting of HTTP/2, one that comes twice, or half a setting.
    pub(super) fn read(payload: &[u8]) -> Result<H3Settings, H3Failure> {
        let (mut settings, mut seen, mut rest) = (H3Settings::default(), Vec::new(), payload);
        while !rest.is_empty() {
            let number = take(&mut rest)?;
            let value = take(&mut rest)?;
            seen.push(number);
            settings.set(number, value)?;
        }
        seen.sort_unstable();
        if seen.windows(2).any(|pair| pair.first() == pair.last()) {
            return Err(wrong("sent SETTINGS frame with a setting twice"));
        }
        Ok(settings)
    }

    fn set(&mut self, number: u64, value: u64) -> Result<(), H3Failure> {
        let flag = |reason| if value > 1 { Err(wrong(reason)) } else { Ok(value == 1) };
        match number {
            TABLE => self.table = value,
            SECTION => self.section = Some(value),
            BLOCKED => self.blocked = value,
            CONNECT_PROTOCOL => {
                self.connect_protocol =
                    flag("sent SETTINGS frame with incorrect ENABLE_CONNECT_PROTOCOL value")?;
            }
            DATAGRAMS => self.datagrams = flag("sent SETTINGS frame with incorrect H3_DATAGRAM value")?,
            // HTTP/2's, which have no meaning here (RFC 9114 section 11.2.2).
            0 | 2..=5 => return Err(wrong("sent SETTINGS frame with a setting of HTTP/2")),
            _ => {}
        }
        Ok(())
    }

    /// Appends the frame with what differs from the defaults.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mut payload = Vec::with_capacity(32);
        let mut tell = |number: u64, value: u64| {
            varint::write(&mut payload, number);
            varint::write(&mut payload, value);
        };
        if self.table > 0 {
            tell(TABLE, self.table);
        }
        if let Some(most) = self.section {
            tell(SECTION, most);
        }
        if self.blocked > 0 {
            tell(BLOCKED, self.blocked);
        }
        if self.connect_protocol {
            tell(CONNECT_PROTOCOL, 1);
        }
        if self.datagrams {
            tell(DATAGRAMS, 1);
        }
        tell(GREASE, 0);
        frame_head(kind::SETTINGS, payload.len() as u64, out);
        out.extend_from_slice(&payload);
    }
}

fn take(rest: &mut &[u8]) -> Result<u64, H3Failure> {
    let cut = H3Failure::new(H3ErrorCode::Frame, "sent SETTINGS frame with incorrect length");
    let (value, used) = varint::read(rest).ok_or(cut)?;
    *rest = rest.get(used..).unwrap_or_default();
    Ok(value)
}

const fn wrong(reason: &'static str) -> H3Failure {
    H3Failure::new(H3ErrorCode::Settings, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_they_were_written() {
        let all = H3Settings {
            table: 4096,
            blocked: 100,
            section: Some(65_536),
            connect_protocol: true,
            datagrams: true,
        };
        for settings in [all, H3Settings::default()] {
            let mut out = Vec::new();
            settings.write(&mut out);
            assert_eq!(usize::from(out[1]), out.len() - 2);
            assert_eq!(H3Settings::read(&out[2..]), Ok(settings));
        }
    }

    #[test]
    fn settings_that_are_wrong_are_refused() {
        for (payload, code) in [
            (&b"\x00\x01"[..], H3ErrorCode::Settings),
            (b"\x02\x00", H3ErrorCode::Settings),
            (b"\x03\x24", H3ErrorCode::Settings),
            (b"\x04\x01", H3ErrorCode::Settings),
            (b"\x05\x01", H3ErrorCode::Settings),
            (b"\x08\x02", H3ErrorCode::Settings),
            (b"\x33\x02", H3ErrorCode::Settings),
            (b"\x01\x00\x07\x00\x01\x00", H3ErrorCode::Settings),
            (b"\x21\x00\x21\x01", H3ErrorCode::Settings),
            (b"\x01", H3ErrorCode::Frame),
            (b"\x01\x40", H3ErrorCode::Frame),
            (b"\x01\x00\x80", H3ErrorCode::Frame),
        ] {
            let read = H3Settings::read(payload).map_err(|failure| failure.code);
            assert_eq!(read, Err(code), "{}", payload.escape_ascii());
        }
        assert_eq!(H3Settings::read(b"\x21\x05\x40\x52\x01"), Ok(H3Settings::default()), "unknown ones");
    }
}

//! Settings: what each side announces to the other (RFC 9113 section 6.5).

use super::conn::MIN_FRAME;
use super::frame::{self, kind};
use super::{ErrorCode, H2Failure};

/// The settings of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct H2Settings {
    /// `SETTINGS_HEADER_TABLE_SIZE`: bytes.
    pub header_table: u32,
    /// True when the peer accepts server push (`SETTINGS_ENABLE_PUSH`).
    pub push: bool,
    /// `SETTINGS_MAX_CONCURRENT_STREAMS`; `None`: no limit was set.
    pub max_streams: Option<u32>,
    /// `SETTINGS_INITIAL_WINDOW_SIZE`: bytes.
    pub window: u32,
    /// `SETTINGS_MAX_FRAME_SIZE`: bytes.
    pub max_frame: u32,
    /// `SETTINGS_MAX_HEADER_LIST_SIZE`: bytes; `None`: no limit was set.
    pub header_list: Option<u32>,
    /// `SETTINGS_ENABLE_CONNECT_PROTOCOL` (RFC 8441)
    pub connect_protocol: bool,
    /// `SETTINGS_NO_RFC7540_PRIORITIES` (RFC 9218)
    pub no_tree: bool,
}

impl Default for H2Settings {
    /// What holds until a side says something else.
    fn default() -> H2Settings {
        H2Settings {
            header_table: 4096,
            push: true,
            max_streams: None,
            window: 65_535,
            max_frame: MIN_FRAME,
            header_list: None,
            connect_protocol: false,
            no_tree: false,
        }
    }
}

const HEADER_TABLE: u16 = 1;
const PUSH: u16 = 2;
const MAX_STREAMS: u16 = 3;
const WINDOW: u16 = 4;
const MAX_FRAME: u16 = 5;
const HEADER_LIST: u16 = 6;
const CONNECT_PROTOCOL: u16 = 8;
const NO_TREE: u16 = 9;

impl H2Settings {
    /// Takes over what a SETTINGS frame says.
    ///
    /// # Errors
    /// A value out of bounds, or half a setting.
    pub(super) fn read(&mut self, payload: &[u8]) -> Result<(), H2Failure> {
        let (entries, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() {
            return Err(H2Failure::new(ErrorCode::FrameSize, "sent SETTINGS frame with incorrect length"));
        }
        for &[a, b, w, x, y, z] in entries {
            self.set(u16::from_be_bytes([a, b]), u32::from_be_bytes([w, x, y, z]))?;
        }
        Ok(())
    }

    fn set(&mut self, name: u16, value: u32) -> Result<(), H2Failure> {
        let protocol = |reason| Err(H2Failure::new(ErrorCode::Protocol, reason));
        match name {
            HEADER_TABLE => self.header_table = value,
            PUSH if value > 1 => return protocol("sent SETTINGS frame with incorrect ENABLE_PUSH value"),
            PUSH => self.push = value == 1,
            MAX_STREAMS => self.max_streams = Some(value),
            WINDOW if value > 0x7fff_ffff => {
                let reason = "sent SETTINGS frame with incorrect INITIAL_WINDOW_SIZE value";
                return Err(H2Failure::new(ErrorCode::FlowControl, reason));
            }
            WINDOW => self.window = value,
            MAX_FRAME if !(16_384..1 << 24).contains(&value) => {
                return protocol("sent SETTINGS frame with incorrect MAX_FRAME_SIZE value");
            }
            MAX_FRAME => self.max_frame = value,
            HEADER_LIST => self.header_list = Some(value),
            CONNECT_PROTOCOL if value > 1 || (self.connect_protocol && value == 0) => {
                return protocol("sent SETTINGS frame with incorrect ENABLE_CONNECT_PROTOCOL value");
            }
            CONNECT_PROTOCOL => self.connect_protocol = value == 1,
            NO_TREE if value > 1 => {
                return protocol("sent SETTINGS frame with incorrect NO_RFC7540_PRIORITIES value");
            }
            NO_TREE => self.no_tree = value == 1,
            _ => {}
        }
        Ok(())
    }

    /// Appends the frame with what differs from the defaults.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let usual = H2Settings::default();
        let mut payload = Vec::with_capacity(48);
        let mut tell = |name: u16, value: u32| {
            payload.extend_from_slice(&name.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        };
        if self.header_table != usual.header_table {
            tell(HEADER_TABLE, self.header_table);
        }
        if !self.push {
            tell(PUSH, 0);
        }
        if let Some(most) = self.max_streams {
            tell(MAX_STREAMS, most);
        }
        if self.window != usual.window {
            tell(WINDOW, self.window);
        }
        if self.max_frame != usual.max_frame {
            tell(MAX_FRAME, self.max_frame);
        }
        if let Some(most) = self.header_list {
            tell(HEADER_LIST, most);
        }
        if self.connect_protocol {
            tell(CONNECT_PROTOCOL, 1);
        }
        if self.no_tree {
            tell(NO_TREE, 1);
        }
        frame::write(out, kind::SETTINGS, 0, 0, &payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_they_were_written() {
        let settings = H2Settings {
            header_table: 1,
            push: false,
            max_streams: Some(128),
            window: 65_536,
            max_frame: 20_000,
            header_list: Some(9),
            connect_protocol: true,
            no_tree: true,
        };
        let (mut out, mut read) = (Vec::new(), H2Settings::default());
        settings.write(&mut out);
        assert_eq!(read.read(&out[frame::HEAD..]), Ok(()));
        assert_eq!(read, settings);
    }

    #[test]
    fn values_out_of_bounds_are_refused() {
        for (name, value, code) in [
            (2, 2, ErrorCode::Protocol),
            (4, 1 << 31, ErrorCode::FlowControl),
            (5, 16_383, ErrorCode::Protocol),
            (5, 1 << 24, ErrorCode::Protocol),
            (8, 2, ErrorCode::Protocol),
            (9, 2, ErrorCode::Protocol),
        ] {
            let failed = H2Settings::default().set(name, value);
            assert_eq!(failed.map_err(|failure| failure.code), Err(code), "{name}");
        }
        assert_eq!(
            H2Settings::default().read(&[0; 5]).map_err(|failure| failure.code),
            Err(ErrorCode::FrameSize)
        );
        assert_eq!(H2Settings::default().set(0x0a0a, 7), Ok(()), "what is not known is no error");
    }
}

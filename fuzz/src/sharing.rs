//! What processes that share sockets say to each other.

use weir_engine::transport::sharing::SharingFrame;

/// A frame that is read reads back from what it is written as; others are refused, or have more to come.
pub fn sharing_frames(data: &[u8]) {
    let mut rest = data;
    while let Ok(Some((frame, length))) = SharingFrame::read(rest) {
        let written = frame.write();
        assert_eq!(SharingFrame::read(&written), Ok(Some((frame, written.len()))));
        rest = &rest[length..];
    }
}

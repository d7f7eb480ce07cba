//! What is spoken on the control socket: questions, frames, and stacks.

use weir_see::control::protocol::{ControlQuestion, LONGEST_FRAME, read_frame};
use weir_see::raw_stacks::RawStacks;

/// A question means the same when it is written and read again; frames are read or refused.
pub fn control(data: &[u8]) {
    let question = ControlQuestion::parse(&String::from_utf8_lossy(data));
    assert_eq!(ControlQuestion::parse(&question.line()), question);
    let mut input = data;
    while let Ok(Some(_)) = read_frame(&mut input, LONGEST_FRAME) {}
}

/// Stacks are the same when they are written and read again.
pub fn stacks(data: &[u8]) {
    if let Ok(raw) = RawStacks::parse(&String::from_utf8_lossy(data)) {
        assert_eq!(RawStacks::parse(&raw.write()), Ok(raw));
    }
}

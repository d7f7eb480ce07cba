//! What is spoken on the control socket: questions, frames, and stacks.

use weir_see::control::protocol::{LONGEST_FRAME, Question, read_frame};
use weir_see::raw_stacks::Raw;

/// A question means the same when it is written and read again; frames are read or refused.
pub fn control(data: &[u8]) {
    let question = Question::parse(&String::from_utf8_lossy(data));
    assert_eq!(Question::parse(&question.line()), question);
    let mut input = data;
    while let Ok(Some(_)) = read_frame(&mut input, LONGEST_FRAME) {}
}

/// Stacks are the same when they are written and read again.
pub fn stacks(data: &[u8]) {
    if let Ok(raw) = Raw::parse(&String::from_utf8_lossy(data)) {
        assert_eq!(Raw::parse(&raw.write()), Ok(raw));
    }
}

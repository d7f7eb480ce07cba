//! What all pages of a request have in common: variables, blocks, captures.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use weir_engine::Exchange;
use weir_engine::regex::PatternMatch;

/// The common state; shared by subrequests that run at the same time.
#[derive(Default)]
pub(super) struct SsiState(RefCell<SsiStateInner>);

#[derive(Default)]
struct SsiStateInner {
    /// Names are in lower case.
    variables: Vec<(Vec<u8>, Vec<u8>)>,
    blocks: Vec<(Vec<u8>, Vec<u8>)>,
    /// `$0` to `$9` of the last `if` with a regular expression that matched.
    captures: Vec<Range<usize>>,
    subject: Vec<u8>,
}

impl SsiState {
    /// That of the request to which `x` belongs.
    pub(super) fn of(x: &mut Exchange) -> Rc<SsiState> {
        x.common()
    }

    /// The value of the page's own variable or capture `name`, in lower case.
    pub(super) fn variable(&self, name: &[u8]) -> Option<Vec<u8>> {
        let inner = self.0.borrow();
        if let [digit @ b'0'..=b'9'] = name
            && let Some(range) = inner.captures.get(usize::from(digit - b'0'))
        {
            return Some(inner.subject.get(range.clone()).unwrap_or_default().to_vec());
        }
        inner.variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    /// Gives a variable a value.
    pub(super) fn set(&self, name: &[u8], value: Vec<u8>) {
        let name = name.to_ascii_lowercase();
        let variables = &mut self.0.borrow_mut().variables;
        match variables.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => variables.push((name, value)),
        }
    }

    /// Makes sure that a variable has a value, if only an empty one.
    pub(super) fn declare(&self, name: &[u8]) {
        if self.variable(&name.to_ascii_lowercase()).is_none() {
            self.set(name, Vec::new());
        }
    }

    /// An expression has matched `subject`.
    pub(super) fn matched(&self, subject: Vec<u8>, matched: PatternMatch) {
        for (name, group) in &matched.names {
            let value = matched.groups.get(*group).and_then(|range| subject.get(range.clone()));
            self.set(name.as_bytes(), value.unwrap_or_default().to_vec());
        }
        let mut inner = self.0.borrow_mut();
        inner.captures = matched.groups;
        inner.subject = subject;
    }

    /// Begins a block.
    pub(super) fn begin_block(&self, name: &[u8]) {
        self.0.borrow_mut().blocks.push((name.to_vec(), Vec::new()));
    }

    /// Adds to the block that was begun last.
    pub(super) fn add_to_block(&self, text: &[u8]) {
        if let Some((_, block)) = self.0.borrow_mut().blocks.last_mut() {
            block.extend_from_slice(text);
        }
    }

    /// What is in the first block of that name.
    pub(super) fn block(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.0.borrow().blocks.iter().find(|(known, _)| known == name).map(|(_, block)| block.clone())
    }
}

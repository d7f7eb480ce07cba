//! Memory that an exchange keeps for its next request.

use weir_http::Field;

/// Memory that an exchange keeps for its next request.
#[derive(Default)]
pub(crate) struct AttemptScratch {
    head: Vec<u8>,
    fields: Vec<Field>,
}

impl AttemptScratch {
    /// A vector for the head of a request.
    pub(crate) fn head(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.head)
    }

    /// A vector for the fields of a response.
    pub(crate) fn fields(&mut self) -> Vec<Field> {
        std::mem::take(&mut self.fields)
    }

    pub(crate) fn keep_head(&mut self, mut head: Vec<u8>) {
        if head.capacity() <= KEPT {
            head.clear();
            self.head = head;
        }
    }

    pub(crate) fn keep_fields(&mut self, mut fields: Vec<Field>) {
        if fields.capacity() <= KEPT / size_of::<Field>() {
            fields.clear();
            self.fields = fields;
        }
    }
}

/// Bytes that an exchange keeps of each.
pub(crate) const KEPT: usize = 4096;

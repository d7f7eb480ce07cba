//! What a priority says of a stream (RFC 9218).

use crate::header::{tokens, trim};

/// A stream's priority (RFC 9218): urgency, and whether it is incremental.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// 0 is the most urgent, 7 the least.
    pub urgency: u8,
    /// True when its response is of use in pieces.
    pub incremental: bool,
}

impl Default for Priority {
    fn default() -> Priority {
        Priority { urgency: 3, incremental: false }
    }
}

impl Priority {
    /// Reads a Priority field or the value of a PRIORITY_UPDATE frame; what is missing or wrong is as usual (RFC 9218
    /// section 4). The members that count are an integer and a boolean, so the dictionary is split at its commas.
    pub fn parse(value: &[u8]) -> Priority {
        Priority::default().with(value)
    }

    /// This priority with what a Priority field of the response says otherwise (RFC 9218 section 8).
    #[must_use]
    pub fn with(self, value: &[u8]) -> Priority {
        let mut priority = self;
        for member in tokens(value) {
            // Parameters of a member mean nothing.
            let member = member.split(|byte| *byte == b';').next().map(trim).unwrap_or_default();
            match member {
                [b'u', b'=', urgency @ b'0'..=b'7'] => priority.urgency = urgency - b'0',
                b"i" | b"i=?1" => priority.incremental = true,
                b"i=?0" => priority.incremental = false,
                _ => {}
            }
        }
        priority
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_the_rfc_has_them() {
        let of = |urgency, incremental| Priority { urgency, incremental };
        for (value, priority) in [
            ("", of(3, false)),
            ("u=5, i", of(5, true)),
            ("i, i=?0", of(3, false)),
            ("i=?1,u=0", of(0, true)),
            ("u=1, i=?0", of(1, false)),
            ("u=7;x=1, i;y", of(7, true)),
            ("u=8, u=-1, u=a, j", of(3, false)),
            ("u=2,u=4", of(4, false)),
        ] {
            assert_eq!(Priority::parse(value.as_bytes()), priority, "{value}");
        }
        let client = of(5, true);
        for (value, priority) in
            [("", client), ("u=0", of(0, true)), ("i=?0", of(5, false)), ("u=9, x", client)]
        {
            assert_eq!(client.with(value.as_bytes()), priority, "{value}");
        }
    }
}

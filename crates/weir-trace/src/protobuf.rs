//! The encoding of protocol buffers, as far as exports need it, written by hand.

/// A protocol buffers message that is being written: varints, fixed numbers and length-delimited fields.
#[derive(Clone, Debug, Default)]
pub struct ProtobufMessage(pub Vec<u8>);

impl ProtobufMessage {
    /// A number; 0 is what a reader assumes without it.
    pub fn number(&mut self, field: u32, value: u64) {
        if value > 0 {
            self.varint(u64::from(field) << 3);
            self.varint(value);
        }
    }

    /// A number that is written though it may be 0: inside of a `oneof`, where its being there says which one it is.
    pub fn chosen(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3);
        self.varint(value);
    }

    /// A number of eight bytes (`fixed64`).
    pub fn fixed(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Bytes, or text; an empty one is written, too.
    pub fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// An embedded message as the value of `field`: its length and its bytes.
    pub fn message(&mut self, field: u32, message: ProtobufMessage) {
        self.bytes(field, &message.0);
    }

    /// Numbers, one after the other.
    pub fn packed(&mut self, field: u32, values: impl IntoIterator<Item = u64>) {
        let mut packed = ProtobufMessage::default();
        values.into_iter().for_each(|value| packed.varint(value));
        self.message(field, packed);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// A field of a message that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtobufField<'m> {
    /// A varint, or a number of four or eight bytes.
    Number(u64),
    /// Text, bytes, or a message inside.
    Bytes(&'m [u8]),
}

impl<'m> ProtobufField<'m> {
    /// The value, if it is a number; `None` for a text.
    #[must_use]
    pub fn number(self) -> Option<u64> {
        if let ProtobufField::Number(number) = self { Some(number) } else { None }
    }

    /// The bytes, if it is no number.
    #[must_use]
    pub fn bytes(self) -> Option<&'m [u8]> {
        if let ProtobufField::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    /// The fields of the message inside, if it is one.
    #[must_use]
    pub fn fields(self) -> Option<Vec<(u64, ProtobufField<'m>)>> {
        read(self.bytes()?)
    }
}

/// The fields of a message by their numbers, in order; `None`: it is cut, or no message.
#[must_use]
pub fn read(mut bytes: &[u8]) -> Option<Vec<(u64, ProtobufField<'_>)>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let field = match tag & 7 {
            0 => ProtobufField::Number(varint(&mut bytes)?),
            1 => ProtobufField::Number(u64::from_le_bytes(*take(&mut bytes, 8)?.first_chunk()?)),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                ProtobufField::Bytes(take(&mut bytes, length)?)
            }
            5 => ProtobufField::Number(u32::from_le_bytes(*take(&mut bytes, 4)?.first_chunk()?).into()),
            _ => return None,
        };
        fields.push((tag >> 3, field));
    }
    Some(fields)
}

fn take<'m>(bytes: &mut &'m [u8], length: usize) -> Option<&'m [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

/// A number of seven bits a byte, the least first, the last one without its upper bit; what is beyond 64 bits is lost.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_back() {
        let mut message = ProtobufMessage::default();
        message.number(1, 300);
        message.number(2, 0);
        message.bytes(3, b"ab");
        message.packed(4, [1, 128]);
        assert_eq!(message.0, [0x08, 0xac, 0x02, 0x1a, 2, b'a', b'b', 0x22, 3, 1, 0x80, 0x01]);
        message.chosen(5, 0);
        message.fixed(6, u64::MAX);
        let expected = [
            (1, ProtobufField::Number(300)),
            (3, ProtobufField::Bytes(b"ab")),
            (4, ProtobufField::Bytes(&[1, 0x80, 1])),
            (5, ProtobufField::Number(0)),
            (6, ProtobufField::Number(u64::MAX)),
        ];
        assert_eq!(read(&message.0).as_deref(), Some(&expected[..]));
    }

    #[test]
    fn what_is_cut_is_no_message() {
        let mut message = ProtobufMessage::default();
        message.bytes(3, b"ab");
        message.fixed(6, 1);
        for end in (1..4).chain(5..13) {
            assert_eq!(read(&message.0[..end]), None, "{end}");
        }
        assert_eq!(read(&[0x80; 11]), None, "a number without end");
        assert_eq!(read(&[0x0b]), None, "a group");
    }
}

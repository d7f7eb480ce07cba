//! The encoding of protocol buffers, as far as the files here need it, written by hand.

/// A protocol buffers message: varints and length-delimited fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message(pub(crate) Vec<u8>);

impl Message {
    /// A number; 0 is what a reader assumes without it.
    pub(crate) fn number(&mut self, field: u32, value: u64) {
        if value > 0 {
            self.varint(u64::from(field) << 3);
            self.varint(value);
        }
    }

    /// Bytes, or text; an empty one is written, too.
    pub(crate) fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// A message inside.
    pub(crate) fn message(&mut self, field: u32, message: Message) {
        self.bytes(field, &message.0);
    }

    /// Numbers, one after the other.
    pub(crate) fn packed(&mut self, field: u32, values: impl IntoIterator<Item = u64>) {
        let mut packed = Message::default();
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A field of a message that was read back.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) enum Field {
        Number(u64),
        Bytes(Vec<u8>),
    }

    impl Field {
        pub(crate) fn number(&self) -> u64 {
            if let Field::Number(number) = self { *number } else { panic!("{self:?} is no number") }
        }

        pub(crate) fn text(&self) -> String {
            let Field::Bytes(bytes) = self else { panic!("{self:?} is no text") };
            String::from_utf8(bytes.clone()).expect("text")
        }

        /// The fields of a message inside.
        pub(crate) fn fields(&self) -> Vec<(u64, Field)> {
            if let Field::Bytes(bytes) = self { read(bytes) } else { panic!("{self:?} is no message") }
        }
    }

    /// The fields of a message by their numbers, in order: varints and length-delimited ones are all there are.
    pub(crate) fn read(mut bytes: &[u8]) -> Vec<(u64, Field)> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let value = varint(&mut bytes);
            fields.push((
                tag >> 3,
                match tag & 7 {
                    0 => Field::Number(value),
                    2 => {
                        let (inside, rest) = bytes.split_at(value as usize);
                        bytes = rest;
                        Field::Bytes(inside.to_vec())
                    }
                    kind => panic!("wire type {kind}"),
                },
            ));
        }
        fields
    }

    /// The values of one field.
    pub(crate) fn all(fields: &[(u64, Field)], number: u64) -> Vec<&Field> {
        fields.iter().filter(|(field, _)| *field == number).map(|(_, value)| value).collect()
    }

    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (first, rest) = bytes.split_first().expect("a whole varint");
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                return value;
            }
        }
        panic!("a varint without end");
    }

    #[test]
    fn numbers_are_varints() {
        let mut message = Message::default();
        message.number(1, 300);
        message.number(2, 0);
        message.bytes(3, b"ab");
        message.packed(4, [1, 128]);
        assert_eq!(message.0, [0x08, 0xac, 0x02, 0x1a, 2, b'a', b'b', 0x22, 3, 1, 0x80, 0x01]);
        let fields = read(&message.0);
        assert_eq!(fields[..2], [(1, Field::Number(300)), (3, Field::Bytes(b"ab".to_vec()))]);
    }
}

//! The encoding of protocol buffers for the files here.

pub(crate) use weir_trace::protobuf::ProtobufMessage;

#[cfg(test)]
pub(crate) mod tests {
    use weir_trace::protobuf;

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

    /// The fields of a message by their numbers, in order.
    pub(crate) fn read(bytes: &[u8]) -> Vec<(u64, Field)> {
        let fields = protobuf::read(bytes).expect("a message");
        let own = |field| match field {
            protobuf::ProtobufField::Number(number) => Field::Number(number),
            protobuf::ProtobufField::Bytes(bytes) => Field::Bytes(bytes.to_vec()),
        };
        fields.into_iter().map(|(number, field)| (number, own(field))).collect()
    }

    /// The values of one field.
    pub(crate) fn all(fields: &[(u64, Field)], number: u64) -> Vec<&Field> {
        fields.iter().filter(|(field, _)| *field == number).map(|(_, value)| value).collect()
    }
}

//! What a collector of OpenTelemetry reads.

use weir_test::BackendVisit;
use weir_trace::protobuf::ProtobufField;

/// A message, field by field.
pub(crate) type Fields<'m> = Vec<(u64, ProtobufField<'m>)>;

pub(crate) fn fields(field: ProtobufField<'_>) -> Fields<'_> {
    field.fields().expect("a message")
}

/// All values of field `number`.
pub(crate) fn all<'m>(fields: &Fields<'m>, number: u64) -> Vec<ProtobufField<'m>> {
    fields.iter().filter(|(field, _)| *field == number).map(|(_, value)| *value).collect()
}

/// The first text of field `number`; empty without one.
pub(crate) fn text(fields: &Fields<'_>, number: u64) -> String {
    let bytes = all(fields, number).first().and_then(|field| field.bytes());
    String::from_utf8(bytes.unwrap_or_default().to_vec()).expect("text")
}

/// The next request: its head and body.
pub(crate) fn request(visit: &mut BackendVisit) -> Option<(String, Vec<u8>)> {
    let head = visit.head()?;
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let length = length.and_then(|length| length.parse().ok()).expect("a length");
    let body = visit.bytes(length)?;
    Some((head, body))
}

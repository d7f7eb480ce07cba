//! HTTP/2: header blocks.

use weir_http::hpack::{Decoder, Encoder, Indexing, Limits, Section};

/// Two header blocks on one table; what was read is written, and read again the same.
pub fn hpack(data: &[u8]) {
    let limits = Limits { text: 4096, fields: 64 };
    let (mut decoder, mut section) = (Decoder::new(512), Section::default());
    for block in data.chunks(data.len().div_ceil(2).max(1)) {
        if decoder.decode(block, limits, &mut section).is_err() {
            return;
        }
        assert!(section.text.len() <= limits.text && section.items.len() <= limits.fields);
        let mut out = Vec::new();
        let mut encoder = Encoder::new();
        encoder.begin(&mut out);
        for item in &section.items {
            let (name, value) = (item.label.of(&section.text), item.value.of(&section.text));
            encoder.field(name, value, Indexing::Allowed, &mut out);
        }
        let mut again = Section::default();
        Decoder::new(4096).decode(&out, limits, &mut again).expect("what was written is good");
        assert_eq!(again.text, section.text);
        assert_eq!(again.items, section.items);
    }
}

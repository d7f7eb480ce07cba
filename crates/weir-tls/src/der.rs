//! The few pieces of DER that are read here and by no library: containers of keys, auxiliary data after certificates.

/// An element: its tag, its content, and what follows it.
pub(crate) struct DerElement<'b> {
    pub(crate) tag: u8,
    pub(crate) content: &'b [u8],
    /// The element whole.
    pub(crate) all: &'b [u8],
    pub(crate) rest: &'b [u8],
}

pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BITS: u8 = 0x03;
pub(crate) const OCTETS: u8 = 0x04;
pub(crate) const OID: u8 = 0x06;
pub(crate) const SEQUENCE: u8 = 0x30;

/// The object identifier id-ecPublicKey (RFC 5480, section 2.1.1), without its header.
pub(crate) const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
/// The object identifier rsaEncryption (RFC 8017, appendix C).
pub(crate) const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];

/// The first element of `bytes`; tags of one byte, lengths of up to four.
pub(crate) fn element(bytes: &[u8]) -> Option<DerElement<'_>> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0usize, |len, digit| len << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(len)?;
    Some(DerElement { tag, content, all: &bytes[..bytes.len() - rest.len()], rest })
}

/// The content of the first element, which must have `tag`, and what follows.
pub(crate) fn expect(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let element = element(bytes)?;
    (element.tag == tag).then_some((element.content, element.rest))
}

/// A small unsigned number.
pub(crate) fn number(content: &[u8]) -> Option<u32> {
    let digits = content.strip_prefix(&[0]).unwrap_or(content);
    (digits.len() <= 4).then(|| digits.iter().fold(0, |n, digit| n << 8 | u32::from(*digit)))
}

/// An element with this content, given in parts.
pub(crate) fn encode(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = Vec::with_capacity(len + 6);
    out.push(tag);
    match len {
        0..=0x7f => out.push(len as u8),
        _ => {
            let digits = len.to_be_bytes();
            let digits = &digits[digits.iter().take_while(|digit| **digit == 0).count()..];
            out.push(0x80 | digits.len() as u8);
            out.extend_from_slice(digits);
        }
    }
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths_of_one_and_of_several_bytes() {
        let mut long = vec![0x30, 0x82, 0x01, 0x00];
        long.extend([7; 256]);
        long.push(9);
        let element = element(&long).expect("an element");
        assert_eq!((element.content.len(), element.all.len(), element.rest), (256, 260, &[9][..]));
        assert_eq!(encode(0x30, &[&[7; 200], &[7; 56]]), long[..260]);
        assert_eq!(expect(&[2, 1, 5], INTEGER), Some((&[5][..], &[][..])));
        assert_eq!(expect(&[2, 2, 5], INTEGER), None);
        assert_eq!(number(&[0, 0x80, 0]), Some(0x8000));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Some(element) = element(&bytes) {
                prop_assert_eq!(element.all.len() + element.rest.len(), bytes.len());
            }
        }
    }
}

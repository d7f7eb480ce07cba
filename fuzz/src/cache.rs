//! Files of the cache, and what heads say about keeping answers.

use weir_http::freshness::Freshness;
use weir_upstream::cache::head::{CacheHead, CacheTimes, length, parse, seal};

/// The beginning of a file, as it is and with a checksum that fits: read as something that is written the same way again, or
/// refused.
pub fn cache_head(data: &[u8]) {
    check(data);
    let mut sealed = data.to_vec();
    if let Ok(length) = length(data)
        && let Some(head) = sealed.get_mut(..length)
    {
        seal(head);
        check(&sealed);
    }
}

fn check(data: &[u8]) {
    let Ok(head) = parse(data) else { return };
    assert!(head.len() <= data.len() && length(data) == Ok(head.len()));
    assert!((100..=999).contains(&head.status));
    assert_eq!(parse(&head.compose()), Ok(head));
    let later = CacheHead { times: CacheTimes { valid: 1, ..head.times }, ..head };
    assert_eq!(parse(&later.compose()), Ok(later));
}

/// Lines of fields, each behind a letter that says which it is.
pub fn freshness(data: &[u8]) {
    const NOW: u64 = 1_700_000_000;
    let mut freshness = Freshness::default();
    for line in data.split(|byte| *byte == b'\n') {
        match line.split_first() {
            Some((b'x', value)) => freshness.accel_expires(value, NOW),
            Some((b'e', value)) => freshness.expires(value, NOW),
            Some((_, value)) => freshness.cache_control(value, NOW),
            None => {}
        }
    }
    assert!(freshness.updating <= 1 << 31 && freshness.error <= 1 << 31);
}

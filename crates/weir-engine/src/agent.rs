//! Recognises old browsers that need workarounds by `User-Agent`, with nginx's tests.

/// An Internet Explorer, or a browser that says it is one.
pub fn msie(agent: &[u8]) -> bool {
    msie_at(agent).is_some() && !has(agent, b"Opera")
}

/// An Internet Explorer up to 6.0, before Windows XP's second service pack: it can't keep a connection after POST.
pub fn msie6(agent: &[u8]) -> bool {
    let Some(rest) = msie_at(agent).filter(|_| !has(agent, b"Opera")) else { return false };
    match rest {
        [b'4' | b'5', b'.', ..] => true,
        [b'6', b'.', rest @ ..] => !has(rest, b"SV1"),
        _ => false,
    }
}

/// Chrome, whose own pages replace short error pages, too.
pub(crate) fn chrome(agent: &[u8]) -> bool {
    is_neither(agent) && !has(agent, b"Gecko/") && has(agent, b"Chrome/")
}

/// Safari on a Mac, whose old versions could not keep connections either.
pub(crate) fn safari(agent: &[u8]) -> bool {
    is_neither(agent)
        && !has(agent, b"Gecko/")
        && !has(agent, b"Chrome/")
        && has(agent, b"Safari/")
        && has(agent, b"Mac OS X")
}

fn is_neither(agent: &[u8]) -> bool {
    msie_at(agent).is_none() && !has(agent, b"Opera")
}

/// What follows `MSIE `, the version; at least three bytes of it.
fn msie_at(agent: &[u8]) -> Option<&[u8]> {
    let at = memchr::memmem::find(agent, b"MSIE ")?;
    agent.get(at + 5..).filter(|rest| rest.len() >= 3)
}

fn has(text: &[u8], needle: &[u8]) -> bool {
    memchr::memmem::find(text, needle).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explorers_are_old_up_to_six() {
        for (agent, any, six) in [
            ("Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.0)", true, true),
            ("Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1; SV1)", true, false),
            ("MSIE 5.0", true, true),
            ("MSIE 5.", false, false),
            ("MSIE 7.0", true, false),
            ("Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1) Opera 8.0", false, false),
            ("curl/8", false, false),
        ] {
            assert_eq!((msie(agent.as_bytes()), msie6(agent.as_bytes())), (any, six), "{agent}");
        }
    }

    #[test]
    fn chrome_says_it_is_safari_too() {
        let mac = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36";
        let (chromium, real) =
            (format!("{mac} Chrome/120.0 Safari/537.36"), format!("{mac} Safari/605.1.15"));
        assert!(chrome(chromium.as_bytes()) && !safari(chromium.as_bytes()));
        assert!(!chrome(real.as_bytes()) && safari(real.as_bytes()));
        assert!(!safari(b"Mozilla/5.0 (Windows) Safari/605.1.15") && !chrome(b"Gecko/1 Chrome/1"));
    }
}

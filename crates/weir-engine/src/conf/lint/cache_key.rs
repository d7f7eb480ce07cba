//! A cache without a key: of FastCGI, SCGI and uwsgi nothing names a response by itself, and all requests would get the
//! same one. nginx warns in the same words.

use weir_conf::Error;

use super::scope::LintScope;

pub(super) fn trap(scope: &LintScope<'_>, found: &mut Vec<Error>) {
    for (cache, key) in NAMES {
        for line in scope.all(cache).filter(|line| !line.args.first().is_some_and(|word| word.is("off"))) {
            if !scope.outwards().any(|outer| outer.has(key)) {
                found.push(Error::warning(format!("no \"{key}\" for \"{cache}\"")).at(line.name.span));
            }
        }
    }
}

const NAMES: [(&str, &str); 3] = [
    ("fastcgi_cache", "fastcgi_cache_key"),
    ("scgi_cache", "scgi_cache_key"),
    ("uwsgi_cache", "uwsgi_cache_key"),
];

#[cfg(test)]
mod tests {
    use super::super::testing::found;

    #[test]
    fn a_cache_has_a_key_here_or_around() {
        assert_eq!(
            found("location / {\nfastcgi_cache one; }"),
            ["2: no \"fastcgi_cache_key\" for \"fastcgi_cache\""]
        );
        for good in [
            "fastcgi_cache_key $uri; location / { fastcgi_cache one; }",
            "uwsgi_cache one; uwsgi_cache_key $uri;",
            "scgi_cache off;",
            "proxy_cache one;",
        ] {
            assert_eq!(found(good), [""; 0], "{good}");
        }
    }
}

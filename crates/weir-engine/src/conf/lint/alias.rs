//! `alias` takes the place of the location's prefix, byte for byte: where one ends with a slash and the other does
//! not, names run together, or `/img../secret` leads out of the directory.

use weir_conf::Error;

use super::scope::LintScope;

pub(super) fn trap(scope: &LintScope<'_>, found: &mut Vec<Error>) {
    let Some(("" | "^~", prefix)) = scope.location() else { return };
    let Some(alias) = scope.all("alias").next() else { return };
    let Some(path) = alias.args.first().filter(|word| !word.bytes().contains(&b'$')) else { return };
    let prefix = String::from_utf8_lossy(prefix);
    let message = match (prefix.ends_with('/'), path.bytes().ends_with(b"/")) {
        (true, false) => format!(
            "\"{prefix}a\" becomes \"{path}a\": this \"alias\" needs a slash at its end, as its location has"
        ),
        (false, true) => format!(
            "\"{prefix}../a\" leads to \"{path}../a\", out of the folder: the location needs a slash at its end"
        ),
        _ => return,
    };
    found.push(Error::warning(message).at(path.span));
}

#[cfg(test)]
mod tests {
    use crate::conf::lint::testing::found;

    #[test]
    fn a_slash_on_one_side_only() {
        assert_eq!(
            found("location /img/ {\nalias /data; }"),
            [
                "2: \"/img/a\" becomes \"/dataa\": this \"alias\" needs a slash at its end, as its location has"
            ]
        );
        assert_eq!(
            found("location ^~ /img {\nalias /data/; }"),
            [
                "2: \"/img../a\" leads to \"/data/../a\", out of the folder: the location needs a slash at its end"
            ]
        );
    }

    #[test]
    fn both_or_none_is_good() {
        for good in [
            "location /img/ { alias /data/; }",
            "location /img { alias /data; }",
            "location = /img/ { alias /data; }",
            "location ~ ^/img/(.*)$ { alias /data/$1; }",
            "location /img/ { alias /data/$host; }",
            "location /img/ { root /data; }",
        ] {
            assert_eq!(found(good), [""; 0], "{good}");
        }
    }
}

//! Tables of the parameters that follow a directive's first arguments: `backup`, `weight=5`.

/// A parameter of a directive: a word, or a name with `=` at its end, which a value follows.
#[derive(Clone, Copy, Debug)]
pub struct NamedParameter<S> {
    /// `backup`, `weight=`.
    pub name: &'static str,
    /// Records it.
    pub set: S,
}

impl<S> NamedParameter<S> {
    /// The parameter `name`.
    pub const fn new(name: &'static str, set: S) -> Self {
        Self { name, set }
    }

    /// The parameter of `table` that `text` is, with its value; the value of a word is empty.
    pub fn find<'t>(table: &'t [Self], text: &'t [u8]) -> Option<(&'t Self, &'t [u8])> {
        table.iter().find_map(|parameter| {
            let value = text.strip_prefix(parameter.name.as_bytes())?;
            (value.is_empty() || parameter.name.ends_with('=')).then_some((parameter, value))
        })
    }

    /// The names of `table`.
    pub fn names(table: &[Self]) -> impl Iterator<Item = &'static str> + Clone + '_ {
        table.iter().map(|parameter| parameter.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_whole_and_names_have_values() {
        let table = [NamedParameter::new("down", 1), NamedParameter::new("weight=", 2)];
        let found = |text: &str| {
            let (parameter, value) = NamedParameter::find(&table, text.as_bytes())?;
            Some((parameter.set, String::from_utf8_lossy(value).into_owned()))
        };
        assert_eq!(found("down"), Some((1, String::new())));
        assert_eq!(found("weight=3"), Some((2, "3".to_owned())));
        assert_eq!(found("weight="), Some((2, String::new())));
        for text in ["downs", "down=1", "weight", "Weight=1", ""] {
            assert_eq!(found(text), None, "{text}");
        }
        assert_eq!(NamedParameter::names(&table).collect::<Vec<_>>(), ["down", "weight="]);
    }
}

//! YAML as a tree of nodes with places. Keys of a mapping may repeat, as `listen` does in H2O's files.

use std::borrow::Cow;

use crate::{Error, Result, Span};

/// A value and where it is.
#[derive(Clone, Debug)]
pub(super) struct YamlNode {
    pub(super) span: Span,
    pub(super) value: YamlValue,
}

#[derive(Clone, Debug)]
pub(super) enum YamlValue {
    Scalar(String),
    List(Vec<YamlNode>),
    Map(Vec<(YamlNode, YamlNode)>),
}

impl YamlNode {
    /// Its text; an error in the words of its key when it is not text.
    pub(super) fn text(&self) -> Result<&str> {
        match &self.value {
            YamlValue::Scalar(text) => Ok(text),
            _ => Err(Error::new("a single value is expected").at(self.span)),
        }
    }

    /// Its text, for a directive that has no variables but in which `$` begins one.
    pub(super) fn plain(&self) -> Result<&str> {
        let text = self.text()?;
        match text.contains('$') {
            true => Err(Error::new("\"$\" is not supported here").at(self.span)),
            false => Ok(text),
        }
    }

    /// Its text, for a directive that has variables: a `$` in it is that of [`DOLLAR`].
    pub(super) fn literal(&self) -> Result<Cow<'_, str>> {
        Ok(escaped_dollars(self.text()?))
    }

    /// Its entries, none for an empty value.
    pub(super) fn map(&self) -> Result<&[(YamlNode, YamlNode)]> {
        match &self.value {
            YamlValue::Map(entries) => Ok(entries),
            YamlValue::Scalar(text) if text.is_empty() => Ok(&[]),
            _ => Err(Error::new("a mapping is expected").at(self.span)),
        }
    }

    /// Its items; a single value is its own only item.
    pub(super) fn items(&self) -> &[YamlNode] {
        match &self.value {
            YamlValue::List(items) => items,
            _ => std::slice::from_ref(self),
        }
    }

    /// `ON` or `OFF`, as H2O writes it.
    pub(super) fn flag(&self) -> Result<bool> {
        match self.text()?.to_ascii_lowercase().as_str() {
            "on" | "yes" | "true" => Ok(true),
            "off" | "no" | "false" => Ok(false),
            _ => Err(Error::new("\"ON\" or \"OFF\" is expected").at(self.span)),
        }
    }

    /// A number that is not negative.
    pub(super) fn number(&self) -> Result<u64> {
        self.text()?.parse().map_err(|_| Error::new("a number is expected").at(self.span))
    }
}

/// `text` with the variable [`DOLLAR`] for each `$`.
pub(super) fn escaped_dollars(text: &str) -> Cow<'_, str> {
    match text.contains('$') {
        true => Cow::Owned(text.replace('$', &format!("${{{DOLLAR}}}"))),
        false => Cow::Borrowed(text),
    }
}

/// The variable whose value is a dollar sign.
pub(super) const DOLLAR: &str = "h2o_dollar";

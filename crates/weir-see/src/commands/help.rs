//! What is said of a command: its help, from one table that man pages and completions are made of, too.

use std::fmt::Write;
use std::io::IsTerminal;

use weir_conf::nearest;
use weir_http::json::JsonWriter;

/// What there is to say of a command.
#[derive(Clone, Copy, Debug)]
pub struct CommandHelp {
    /// Its name, the first word after `weir`.
    pub name: &'static str,
    /// What follows the name, for the usage line: `[URL]`.
    pub words: &'static str,
    /// What it does: the first sentence is its line in the list of all commands.
    pub about: &'static str,
    /// Its options, without [`SERVER_OPTIONS`].
    pub options: &'static [CommandOption],
    /// It asks a running server: it has the [`SERVER_OPTIONS`], too.
    pub asks_server: bool,
    /// At least one way to call it.
    pub examples: &'static [CommandExample],
}

/// An option of a command.
#[derive(Clone, Copy, Debug)]
pub struct CommandOption {
    /// `--name` or `-n`.
    pub name: &'static str,
    /// What its value is called; empty without value.
    pub value: &'static str,
    /// What it does.
    pub about: &'static str,
}

/// A way to call a command.
#[derive(Clone, Copy, Debug)]
pub struct CommandExample {
    /// What is typed.
    pub line: &'static str,
    /// What comes of it.
    pub about: &'static str,
}

/// What every command takes that asks a server.
pub(crate) const SERVER_OPTIONS: &[CommandOption] = &[
    CommandOption { name: "--json", value: "", about: "for programs: JSON, times in nanoseconds" },
    CommandOption { name: "-c", value: "FILE", about: "the server's configuration file" },
    CommandOption { name: "-p", value: "PREFIX", about: "the server's prefix" },
    CommandOption { name: "--socket", value: "FILE", about: "its control socket, instead of -c and -p" },
];

impl CommandHelp {
    /// All options.
    pub(crate) fn all_options(&self) -> impl Iterator<Item = &'static CommandOption> {
        let common = if self.asks_server { SERVER_OPTIONS } else { &[] };
        self.options.iter().chain(common)
    }

    /// The option of this name.
    ///
    /// # Errors
    /// There is none: the message names the nearest one.
    pub fn option(&self, name: &str) -> Result<&'static CommandOption, String> {
        self.all_options().find(|option| option.name == name).ok_or_else(|| {
            let near = nearest(name, self.all_options().map(|option| option.name));
            let hint = near.map_or_else(
                || format!("\"weir {} --help\" lists those there are", self.name),
                |near| format!("did you mean \"{near}\"?"),
            );
            format!("unknown option \"{name}\"; {hint}")
        })
    }

    /// The first sentence of what it does.
    #[must_use]
    pub fn summary(&self) -> &'static str {
        self.about.split_once(". ").map_or(self.about, |(first, _)| first).trim_end_matches('.')
    }

    /// What `--help` prints; `style` marks headings.
    #[must_use]
    pub fn text(&self, style: TextStyle) -> String {
        let mut out = format!("usage: weir {} {}", self.name, self.words).trim_end().to_owned();
        if self.all_options().next().is_some() {
            out.push_str(" [options]");
        }
        out.push_str("\n\n");
        out.push_str(&filled(self.about));
        if self.all_options().next().is_some() {
            out.push_str(&style.heading("\noptions:"));
        }
        for option in self.all_options() {
            let name = format!("{} {}", option.name, option.value);
            write!(out, "\n  {:<18} {}", name.trim_end(), option.about).expect("writing to a String");
        }
        if self.all_options().next().is_some() {
            out.push('\n');
        }
        if !self.examples.is_empty() {
            out.push_str(&style.heading("\nexamples:"));
            out.push('\n');
        }
        for example in self.examples {
            writeln!(out, "  {}\n      {}", example.line, example.about).expect("writing to a String");
        }
        out
    }

    /// The command as an object, for programs that make man pages and completions.
    pub fn json(&self, json: &mut JsonWriter) {
        json.nested(|json| {
            json.key("name").text(self.name);
            json.key("words").text(self.words);
            json.key("summary").text(self.summary());
            json.key("about").text(&filled(self.about).trim_end().replace('\n', " "));
            json.key("asks_server").raw(self.asks_server);
            json.key("options").list(|json| self.all_options().for_each(|option| option.json(json)));
            json.key("examples").list(|json| {
                for example in self.examples {
                    json.nested(|json| {
                        json.key("line").text(example.line);
                        json.key("about").text(example.about);
                    });
                }
            });
        });
    }
}

impl CommandOption {
    /// The option as an object.
    pub fn json(&self, json: &mut JsonWriter) {
        json.nested(|json| {
            json.key("name").text(self.name);
            json.key("value").text(self.value);
            json.key("about").text(self.about);
        });
    }
}

/// How text is marked on standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextStyle {
    /// Not at all.
    Plain,
    /// With the escape sequences of a terminal.
    Terminal,
}

impl TextStyle {
    /// That of standard output: plain unless it is a terminal, and where `NO_COLOR` is set and not empty
    /// (no-color.org), or the terminal is a `dumb` one.
    #[must_use]
    pub fn of_stdout() -> TextStyle {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        match std::io::stdout().is_terminal() && !is_set("NO_COLOR") && !dumb {
            true => TextStyle::Terminal,
            false => TextStyle::Plain,
        }
    }

    /// A heading, in bold.
    #[must_use]
    pub fn heading(self, text: &str) -> String {
        self.marked("1", text)
    }

    /// Something that is good or was added, in green.
    #[must_use]
    pub fn good(self, text: &str) -> String {
        self.marked("32", text)
    }

    /// Something that is bad or was removed, in red.
    #[must_use]
    pub fn bad(self, text: &str) -> String {
        self.marked("31", text)
    }

    /// Line ends before `text` stay outside of the mark.
    fn marked(self, code: &str, text: &str) -> String {
        let bare = text.trim_start_matches('\n');
        let ends = &text[..text.len() - bare.len()];
        match self {
            TextStyle::Plain => text.to_owned(),
            TextStyle::Terminal => format!("{ends}\x1b[{code}m{bare}\x1b[0m"),
        }
    }
}

/// `text` in lines of at most 100 letters.
fn filled(text: &str) -> String {
    let mut out = String::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if line.len() + word.len() > 100 {
            out.push_str(line.trim_end());
            out.push('\n');
            line.clear();
        }
        line.push_str(word);
        line.push(' ');
    }
    out.push_str(line.trim_end());
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: CommandHelp = CommandHelp {
        name: "trace",
        words: "[URL]",
        about: "Shows it. And more.",
        options: &[CommandOption { name: "-n", value: "N", about: "how many" }],
        asks_server: true,
        examples: &[CommandExample { line: "weir trace /", about: "the next request of /" }],
    };

    #[test]
    fn help_is_the_table() {
        let text = HELP.text(TextStyle::Plain);
        assert!(text.starts_with("usage: weir trace [URL] [options]\n\nShows it. And more.\n\noptions:\n"));
        assert!(text.contains("  -n N               how many\n") && text.contains("  --json "), "{text}");
        assert!(text.ends_with("\nexamples:\n  weir trace /\n      the next request of /\n"), "{text}");
        assert!(HELP.text(TextStyle::Terminal).contains("\n\x1b[1mexamples:\x1b[0m\n"));
        assert_eq!(HELP.summary(), "Shows it");
    }

    #[test]
    fn a_mistyped_option_gets_the_nearest_one() {
        let message = HELP.option("--jsn").expect_err("there is none");
        assert_eq!(message, "unknown option \"--jsn\"; did you mean \"--json\"?");
        let message = HELP.option("--colours").expect_err("there is none");
        assert_eq!(message, "unknown option \"--colours\"; \"weir trace --help\" lists those there are");
    }
}

//! What is said of a command: its help, from one table that man pages and completions are made of, too.

use std::fmt::Write;
use std::io::IsTerminal;

use weir_conf::did_you_mean;
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
    CommandOption::new("--json", "", "JSON for programs, with times in nanoseconds"),
    CommandOption::new("-c", "FILE", "the server's configuration file"),
    CommandOption::new("-p", "PREFIX", "the server's prefix"),
    CommandOption::new("--socket", "FILE", "its control socket, instead of -c and -p"),
];

impl CommandHelp {
    /// A command that needs no running server.
    #[must_use]
    pub const fn new(
        name: &'static str,
        words: &'static str,
        about: &'static str,
        options: &'static [CommandOption],
        examples: &'static [CommandExample],
    ) -> CommandHelp {
        CommandHelp { name, words, about, options, asks_server: false, examples }
    }

    /// The same command, of those that ask a running server.
    #[must_use]
    pub(crate) const fn asking_server(self) -> CommandHelp {
        CommandHelp { asks_server: true, ..self }
    }

    /// All options.
    pub(crate) fn all_options(&self) -> impl Iterator<Item = &'static CommandOption> {
        let common = if self.asks_server { SERVER_OPTIONS } else { &[] };
        self.options.iter().chain(common)
    }

    /// The option of this name.
    ///
    /// # Errors
    /// No option has this name: the message suggests the nearest one.
    pub fn option(&self, name: &str) -> Result<&'static CommandOption, String> {
        self.all_options().find(|option| option.name == name).ok_or_else(|| {
            let hint = did_you_mean(name, self.all_options().map(|option| option.name))
                .unwrap_or_else(|| format!("\"weir {} --help\" lists those there are", self.name));
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
        let options: String = self.all_options().map(CommandOption::text).collect();
        let mut out = format!("usage: weir {} {}", self.name, self.words).trim_end().to_owned();
        out.push_str(if options.is_empty() { "\n\n" } else { " [options]\n\n" });
        out.push_str(&filled("", self.about));
        if !options.is_empty() {
            write!(out, "{}\n{options}", style.heading("\noptions:")).expect("writing to a String");
        }
        if !self.examples.is_empty() {
            out.push_str(&style.heading("\nexamples:"));
            out.push('\n');
        }
        for example in self.examples {
            writeln!(out, "  {}", example.line).expect("writing to a String");
            out.push_str(&filled("      ", example.about));
        }
        out
    }

    /// The command as an object, for programs that make man pages and completions.
    pub fn json(&self, json: &mut JsonWriter) {
        json.nested(|json| {
            json.key("name").text(self.name);
            json.key("words").text(self.words);
            json.key("summary").text(self.summary());
            json.key("about").text(self.about);
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

impl CommandExample {
    /// A line, and what comes of it.
    #[must_use]
    pub const fn new(line: &'static str, about: &'static str) -> CommandExample {
        CommandExample { line, about }
    }
}

impl CommandOption {
    /// An option; `value` is empty where it takes none.
    #[must_use]
    pub const fn new(name: &'static str, value: &'static str, about: &'static str) -> CommandOption {
        CommandOption { name, value, about }
    }

    /// Its line in the help of its command.
    fn text(&self) -> String {
        let name = format!("{} {}", self.name, self.value);
        filled(&format!("  {:<18} ", name.trim_end()), self.about)
    }

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

    /// A heading, in bold. Line ends before `text` stay outside of the mark.
    #[must_use]
    pub fn heading(self, text: &str) -> String {
        let bare = text.trim_start_matches('\n');
        let ends = &text[..text.len() - bare.len()];
        match self {
            TextStyle::Plain => text.to_owned(),
            TextStyle::Terminal => format!("{ends}\x1b[1m{bare}\x1b[0m"),
        }
    }
}

/// `text` in lines of at most 80 columns. The first begins with `start`, others with as many spaces.
#[must_use]
pub fn filled(start: &str, text: &str) -> String {
    let indent = start.chars().count();
    let (mut out, mut column) = (start.to_owned(), indent);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column + length > COLUMNS && column > indent {
            out.truncate(out.trim_end().len());
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        }
        out.push_str(word);
        out.push(' ');
        column += length + 1;
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

/// Those of a terminal.
const COLUMNS: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: CommandHelp = CommandHelp {
        name: "trace",
        words: "[URL]",
        about: "Shows it. And more.",
        options: &[CommandOption::new("-n", "N", "how many")],
        asks_server: true,
        examples: &[CommandExample::new("weir trace /", "the next request of /")],
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
    fn lines_have_at_most_80_columns() {
        let text = filled("  -n N  ", &"word ".repeat(40));
        assert!(text.lines().all(|line| line.len() <= 80) && text.lines().count() == 3, "{text}");
        assert!(text.starts_with("  -n N  word") && text.contains("word\n        word"), "{text}");
        assert_eq!(filled("a ", &"b".repeat(90)), format!("a {}\n", "b".repeat(90)));
        assert_eq!(filled("a ", ""), "a\n");
    }

    #[test]
    fn a_mistyped_option_gets_the_nearest_one() {
        let message = HELP.option("--jsn").expect_err("no option has this name");
        assert_eq!(message, "unknown option \"--jsn\"; did you mean \"--json\"?");
        let message = HELP.option("--colours").expect_err("no option has this name");
        assert_eq!(message, "unknown option \"--colours\"; \"weir trace --help\" lists those there are");
    }
}

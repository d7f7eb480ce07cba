//! `lines` and `text`: which lines of the configuration put something into a location, and the texts themselves.

use std::path::Path;

use weir_conf::{ConfTree, DirectiveLine, MemoryFiles};
use weir_engine::Configuration;
use weir_engine::module::ModuleDef;
use weir_http::json::JsonWriter;
use weir_rt::sampler::names;

use super::reply::ReplyFailure;
use crate::control::protocol::ControlQuestion;
use crate::source::ServerSource;

/// The lines by which the module, handler or filter `name` came into the `location`, nearest first: those of its
/// directives in the block and around it; the line of the block itself without a name, or where none is written (what
/// is there by default). As JSON: `[{"file","line","text"}]`.
pub(crate) fn lines(source: &ServerSource, question: &ControlQuestion) -> Result<String, ReplyFailure> {
    let configuration = source.configuration();
    let tree = written(&configuration)?;
    let (location, name) = (question.value("location").unwrap_or(""), question.value("name").unwrap_or(""));
    let mut best: Vec<&DirectiveLine> = Vec::new();
    find(&tree.lines, location, &mut Vec::new(), &mut best);
    let directives = directives(configuration.modules(), name);
    let mut found = Vec::new();
    for block in best.iter().rev() {
        let lines = block.block.iter().flat_map(|block| &block.lines);
        found.extend(lines.filter(|line| directives.iter().any(|directive| line.name.is(directive))));
    }
    if found.is_empty() {
        found.extend(best.last());
    }
    let text = JsonWriter::array(|json| {
        for line in found.iter().take(MOST) {
            let Some(place) = tree.source.place(line.span) else { continue };
            json.nested(|json| {
                json.key("file").text(&place.path.to_string_lossy());
                json.key("line").raw(place.line);
                json.key("text").text(&without_secret(&shown(line)));
            });
        }
    });
    Ok(text + "\n")
}

/// The text of a `file` around a `line`, as JSON: of the configuration in force, or of a script that runs.
pub(crate) fn text(source: &ServerSource, question: &ControlQuestion) -> Result<String, ReplyFailure> {
    let file = question.value("file").unwrap_or("");
    let line = question.number("line", 1)?.max(1) as usize;
    let configuration = source.configuration();
    let mut files = configuration.source.files().iter();
    // Findings and frames of inline scripts name files of the configuration without directories.
    let of_configuration =
        files.find(|known| known.path == Path::new(file) || known.path.file_name() == Some(file.as_ref()));
    let bytes = match of_configuration {
        Some(known) => known.text.to_vec(),
        // A client of this interface may read the scripts the server runs, and no other file of the machine.
        None if file.ends_with(".lua") && names::is_known(format!("@{file}").as_bytes()) => {
            std::fs::read(file).map_err(|error| format!("\"{file}\": {error}"))?
        }
        None => {
            return Err(ReplyFailure::Wrong(format!(
                "\"{file}\" is neither configuration nor a script that was seen"
            )));
        }
    };
    let text = String::from_utf8_lossy(&bytes);
    let first = line.saturating_sub(AROUND).max(1);
    let text = JsonWriter::object(|json| {
        json.key("file").text(file);
        json.key("first").raw(first);
        json.key("lines").list(|json| {
            text.lines()
                .skip(first - 1)
                .take(2 * AROUND + 1)
                .for_each(|line| json.text(&without_secret(line)));
        });
    });
    Ok(text + "\n")
}

/// A line without the tokens of `admin` listeners: a client of one of them may not ask all.
pub(super) fn without_secret(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("token=") {
        let end = at + "token=".len();
        out.push_str(&rest[..end]);
        out.push_str("***");
        let value = &rest[end..];
        let quote = rest[..at].chars().next_back().filter(|c| matches!(c, '"' | '\''));
        let stop = match quote {
            Some(quote) => value.find(quote),
            None => value.find(|c: char| c.is_whitespace() || c == ';'),
        };
        rest = &value[stop.unwrap_or(value.len())..];
    }
    out + rest
}

/// The configuration's lines again, from the texts that were read when it was loaded.
pub(super) fn written(configuration: &Configuration) -> Result<ConfTree, ReplyFailure> {
    let files = configuration.source.files().iter().filter(|file| !file.parameter);
    let main = files.clone().next().ok_or_else(|| "the configuration is no file".to_owned())?;
    let memory =
        files.clone().fold(MemoryFiles::new(), |memory, file| memory.with(&file.path, file.text.to_vec()));
    let raw = |name: &[u8]| name.ends_with(b"_by_lua_block");
    // It was read before, so nothing can be wrong with it but what the disk had that is gone.
    Ok(match weir_conf::load(&main.path, &configuration.prefix, &memory, raw, None) {
        Ok(tree) => tree,
        Err(failure) => failure.tree,
    })
}

/// The blocks down to the one that is called `location` in traces: the innermost match, the first of several.
fn find<'t>(
    lines: &'t [DirectiveLine],
    location: &str,
    above: &mut Vec<&'t DirectiveLine>,
    best: &mut Vec<&'t DirectiveLine>,
) {
    for line in lines {
        let Some(block) = &line.block else { continue };
        above.push(line);
        let is_server = line.name.is("server") && server_names(line).any(|name| name == location);
        let is_it = line.name.is("location") && location_names(line, above).any(|name| name == location);
        if is_it || (is_server && best.is_empty()) {
            // A location is more than the server it is in.
            let has_location = best.last().is_some_and(|line| line.name.is("location"));
            if !has_location {
                best.clone_from(above);
            }
        }
        find(&block.lines, location, above, best);
        above.pop();
    }
}

/// The names of a `server` block.
pub(super) fn server_names(server: &DirectiveLine) -> impl Iterator<Item = &str> {
    let lines = server.block.iter().flat_map(|block| &block.lines);
    lines.filter(|line| line.name.is("server_name")).flat_map(|line| line.args.iter().map(|word| word.str()))
}

/// What traces call a `location` block: as it is written, and where several have one of that name after a name of its server, which
/// is among those `above`.
pub(super) fn location_names(line: &DirectiveLine, above: &[&DirectiveLine]) -> impl Iterator<Item = String> {
    let written = shown_words(line.args.iter().map(|word| word.str()));
    let server = above.iter().rfind(|line| line.name.is("server"));
    let names = server.into_iter().flat_map(|server| server_names(server));
    let after: Vec<String> =
        names.flat_map(|name| [format!("{name}{written}"), format!("{name} {written}")]).collect();
    after.into_iter().chain([written])
}

/// The directives of the modules that have handlers or filters of this name.
pub(super) fn directives(modules: &[&'static ModuleDef], name: &str) -> Vec<&'static str> {
    let of = |module: &&&ModuleDef| module.name == name;
    let mut found: Vec<&'static str> =
        modules.iter().filter(of).flat_map(|module| module.directives()).map(|row| row.name).collect();
    // A content handler may be called after its directive, and a script after the phase that it runs in.
    if found.is_empty() {
        let all = modules.iter().flat_map(|module| module.directives()).map(|row| row.name);
        found.extend(all.filter(|row| {
            *row == name || row.strip_suffix("_pass").is_some_and(|row| row == name) || is_script(row, name)
        }));
    }
    found
}

/// Whether a directive runs the script that is called `content_by_lua(nginx.conf:12)`.
fn is_script(directive: &str, name: &str) -> bool {
    let phase = name.split('(').next().unwrap_or(name);
    phase.ends_with("_by_lua") && directive.starts_with(phase)
}

pub(super) fn shown(line: &DirectiveLine) -> String {
    let text = shown_words(line.words().map(|word| word.str()));
    if line.block.is_some() || line.raw.is_some() { text + " {" } else { text + ";" }
}

fn shown_words<'w>(words: impl Iterator<Item = &'w str>) -> String {
    words.collect::<Vec<_>>().join(" ")
}

/// Lines shown at most.
const MOST: usize = 50;
/// Lines of a text before and after the one that is meant.
const AROUND: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_not_shown() {
        assert_eq!(without_secret("admin 0.0.0.0:1 token=abc; # x"), "admin 0.0.0.0:1 token=***; # x");
        assert_eq!(
            without_secret("admin a 'token=a b' \"token=c\" token=d"),
            "admin a 'token=***' \"token=***\" token=***"
        );
        assert_eq!(without_secret("root html;"), "root html;");
    }

    const CONF: &str = "http {\n gzip on;\n server {\n  server_name a;\n  location /x {\n   sub_filter a b;\n  }\n }\n\
        server {\n  server_name b;\n  sub_filter c d;\n  location /x { }\n  location ~ \\.php$ {\n   location /y { }\n  }\n } }";

    fn found(location: &str) -> Vec<String> {
        let files = MemoryFiles::new().with("/n.conf", CONF);
        let tree = weir_conf::load("/n.conf".as_ref(), "/".as_ref(), &files, |_| false, None).expect("lines");
        let mut best = Vec::new();
        find(&tree.lines, location, &mut Vec::new(), &mut best);
        best.iter()
            .map(|line| {
                format!("{}:{}", line.name.str(), tree.source.place(line.span).expect("a place").line)
            })
            .collect()
    }

    #[test]
    fn a_location_is_found_by_what_traces_call_it() {
        for (location, expected) in [
            ("/x", &["http:1", "server:3", "location:5"][..]),
            ("a/x", &["http:1", "server:3", "location:5"]),
            ("b/x", &["http:1", "server:9", "location:12"]),
            ("~ \\.php$", &["http:1", "server:9", "location:13"]),
            ("/y", &["http:1", "server:9", "location:13", "location:14"]),
            ("b", &["http:1", "server:9"]),
            ("/none", &[]),
        ] {
            assert_eq!(found(location), expected, "{location}");
        }
    }

    #[test]
    fn scripts_belong_to_their_directives() {
        assert!(is_script("content_by_lua_block", "content_by_lua(nginx.conf:12)"));
        assert!(
            !is_script("content_by_lua_block", "access_by_lua(nginx.conf:12)")
                && !is_script("content", "content")
        );
    }
}

//! What holds for every text.

use proptest::prelude::*;

use super::*;

/// Texts of pieces that mean something to the lexer.
pub(crate) fn text() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop::sample::select(vec![
        &b"a"[..],
        b"http",
        b"gzip",
        b" ",
        b" ",
        b"\n",
        b";",
        b";",
        b"{",
        b"}",
        b"\"",
        b"'",
        b"\\",
        b"$",
        b"${",
        b"#",
        b"x_by_lua_block {",
        b"--",
        b"[[",
        b"]]",
        b"[=[",
        b"include n.conf;",
        b"include *;",
        b"\xff",
        b"\xc3\xa9",
        b"\r\n",
        b")",
    ]);
    prop::collection::vec(pieces, 0..60).prop_map(|pieces| pieces.concat())
}

/// Words that a line may have: any bytes, but for a name that means something to the loader.
fn word() -> impl Strategy<Value = Vec<u8>> {
    let letters = prop::sample::select(b"ab\\\"' \t\r\n;{}$#)\xff\xc3\xa9\0".to_vec());
    prop::collection::vec(letters, 0..12)
}

/// A tree of words to be printed and read again.
#[derive(Clone, Debug)]
struct Node {
    words: Vec<Vec<u8>>,
    block: Option<Vec<Node>>,
}

fn nodes() -> impl Strategy<Value = Vec<Node>> {
    let words = || prop::collection::vec(word(), 1..4);
    let leaf = words().prop_map(|words| Node { words, block: None });
    let node = leaf.prop_recursive(4, 24, 4, move |inner| {
        let block = prop::option::of(prop::collection::vec(inner, 0..4));
        (words(), block).prop_map(|(words, block)| Node { words, block })
    });
    prop::collection::vec(node, 0..5)
}

/// Prints with every word in quotes, in which all bytes are allowed.
fn print(nodes: &[Node], out: &mut Vec<u8>) {
    for node in nodes {
        for word in &node.words {
            out.push(b'"');
            for &byte in word {
                match byte {
                    b'\n' => out.extend(b"\\n"),
                    b'"' | b'\\' => out.extend([b'\\', byte]),
                    _ => out.push(byte),
                }
            }
            out.extend(b"\" ");
        }
        match &node.block {
            None => out.extend(b";\n"),
            Some(block) => {
                out.extend(b"{\n");
                print(block, out);
                out.extend(b"}\n");
            }
        }
    }
}

fn same(nodes: &[Node], lines: &[DirectiveLine]) -> bool {
    nodes.len() == lines.len()
        && nodes.iter().zip(lines).all(|(node, line)| {
            let words = line.words().map(weir_conf::Word::bytes).eq(node.words.iter().map(Vec::as_slice));
            let block = match (&node.block, &line.block) {
                (Some(nodes), Some(block)) => same(nodes, &block.lines),
                (None, None) => true,
                _ => false,
            };
            words && block
        })
}

proptest! {
    #[test]
    fn every_text_gives_a_tree_or_errors_with_places(text in text()) {
        let (tree, errors) = match read(text) {
            Ok(tree) => (tree, Vec::new()),
            Err(failure) => (failure.tree, failure.errors.0),
        };
        let all = errors.into_iter().chain(apply(&tree).1);
        for error in all {
            let span = error.span.expect("the main file is there");
            prop_assert!(tree.source.place(span).is_some());
            let control = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
            let shown = error.render(&tree.source);
            prop_assert!(!shown.contains(control), "{}", shown);
        }
    }

    /// Words of a file that is UTF-8 refer to its text, those of another are texts of their own.
    #[test]
    fn words_that_refer_to_the_text_are_those_of_their_own(text in text()) {
        let text: Vec<u8> = String::from_utf8_lossy(&text).into_owned().into();
        // What is not closed ends where its file does.
        let (Ok(other), Ok(own)) = (read([&text[..], b"\n#\xff"].concat()), read(text)) else { return Ok(()) };
        let (other, own) = (other.lines, own.lines);
        prop_assert_eq!(format!("{own:?}"), format!("{other:?}"));
        let words = |lines: &[DirectiveLine]| -> Vec<Vec<u8>> {
            lines.iter().flat_map(DirectiveLine::words).map(|word| word.bytes().to_vec()).collect()
        };
        prop_assert_eq!(words(&own), words(&other));
    }

    #[test]
    fn every_bytes_give_a_tree_or_errors(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Err(failure) = read(bytes) {
            prop_assert!(!failure.errors.is_ok());
            prop_assert!(!failure.errors.render(&failure.tree.source).is_empty());
        }
    }

    #[test]
    fn what_is_printed_is_read_again(nodes in nodes()) {
        let mut text = Vec::new();
        print(&nodes, &mut text);
        let tree = read(text.clone()).map_err(|f| TestCaseError::fail(f.errors.render(&f.tree.source)))?;
        prop_assert!(same(&nodes, &tree.lines), "{}", String::from_utf8_lossy(&text));
    }
}

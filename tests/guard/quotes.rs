//! The code in `docs/guard.md` is that of the examples, which are tested.

use std::fs;
use std::path::Path;

/// Returns the code blocks of a language, each with the line of text before it.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<(&'a str, &'a str)> {
    let fence = format!("```{language}\n");
    let mut parts = page.split(&fence);
    let mut before = parts.next().expect("what comes first");
    let mut blocks = Vec::new();
    for part in parts {
        let (code, after) = part.split_once("```\n").expect("the end of a block");
        let line = before.trim_end().rsplit('\n').next().expect("a line");
        blocks.push((line, code));
        before = after;
    }
    blocks
}

#[test]
fn the_documentation_shows_the_code_of_the_examples() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/guard.md")).expect("the page");
    for (language, example) in [("python", "examples/guard.py"), ("rust", "examples/guard_database/guard.rs")] {
        let file = fs::read_to_string(root.join(example)).expect("the example");
        let link = format!("](../{example})");
        let quoted: Vec<_> = blocks(&page, language).into_iter().filter(|(line, _)| line.contains(&link)).collect();
        assert!(!quoted.is_empty(), "no block of {language} comes after a link to {example}");
        for (_, code) in quoted {
            assert!(file.contains(code.trim_end()), "{example} does not have this:\n{code}");
        }
    }
}

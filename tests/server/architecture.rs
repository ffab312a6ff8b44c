//! The call figures in docs/architecture.md and its table of questions match the code.

use std::fs;
use std::path::Path;

/// A line of a figure: a function, its file, and how deep it is indented.
struct Call<'a> {
    depth: usize,
    function: &'a str,
    file: &'a str,
}

/// Returns the bodies of the functions with a name in a file: in formatted code, each ends at the next brace that is indented as its
/// `fn` is.
fn bodies<'a>(code: &'a str, function: &str) -> Vec<&'a str> {
    let begin = format!("fn {function}");
    let starts = code.match_indices(&begin).filter(|(at, _)| code[at + begin.len()..].starts_with(['(', '<']));
    starts
        .map(|(at, _)| {
            let line = code[..at].rfind('\n').map_or(0, |newline| newline + 1);
            let indent = code[line..].len() - code[line..].trim_start_matches(' ').len();
            let end = code[at..].find(&format!("\n{}}}", " ".repeat(indent))).expect("the end of a function");
            &code[at + begin.len()..at + end]
        })
        .collect()
}

/// Returns the text of a file as the page names it: `F/` is the filter crate's.
fn code_of(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file.replacen("F/", "crates/filter/src/", 1));
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Whether a body calls functions in this order.
fn calls(mut body: &str, functions: &[&str]) -> bool {
    functions.iter().all(|function| {
        let call = format!("{function}(");
        let is_name = |before: &str| !before.ends_with(|last: char| last.is_alphanumeric() || last == '_');
        let found = body.match_indices(&call).map(|(at, _)| at).find(|at| is_name(&body[..*at]));
        body = found.map_or("", |at| &body[at + call.len()..]);
        found.is_some()
    })
}

#[test]
fn the_walks_match_the_code() {
    let page = code_of("docs/architecture.md");
    for (heading, files_max) in [
        ("## BF.MADD, from the command to the bits\n", 15),
        ("## BF.FETCH of a hit\n", 8),
        ("## From a load to the end of a lease\n", 6),
        ("## BGSAVE, from fork to flush\n", 10),
        ("## Loading a filter from a snapshot\n", 9),
    ] {
        let figure = page.split_once(heading).expect(heading).1.split("```").nth(1).unwrap();
        let way: Vec<_> = figure
            .lines()
            .filter(|line| !line.is_empty())
            .map(|line| {
                let mut words = line.split_whitespace();
                let (function, file) = (words.next().unwrap(), words.next().unwrap());
                Call { depth: line.len() - line.trim_start().len(), function, file }
            })
            .collect();
        for (index, call) in way.iter().enumerate() {
            let code = code_of(call.file);
            let called = way[index + 1..].iter().take_while(|other| other.depth > call.depth);
            let called: Vec<_> =
                called.filter(|other| other.depth == call.depth + 2).map(|other| other.function).collect();
            let bodies = bodies(&code, call.function);
            assert!(
                bodies.iter().any(|body| calls(body, &called)),
                "{}: {} calls {called:?}",
                call.file,
                call.function
            );
        }
        let mut files: Vec<_> = way.iter().map(|call| call.file).collect();
        files.sort();
        files.dedup();
        assert!(files.len() <= files_max, "{heading}{files:#?}");
    }
}

#[test]
fn the_answers_name_files_and_their_functions() {
    let page = code_of("docs/architecture.md");
    let table = page.split_once("## Where to look\n").expect("the table").1.split("\n## ").next().unwrap();
    let mut functions = 0;
    for row in table.lines().filter(|line| line.starts_with("| ")) {
        let answer = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let mut code = String::new();
        for name in answer.split('`').skip(1).step_by(2) {
            if name.contains('/') {
                code = code_of(name);
            } else if !code.is_empty() {
                assert!(!bodies(&code, name).is_empty(), "{row}: {name}");
                functions += 1;
            }
        }
    }
    assert!(functions >= 10, "{functions}");
}

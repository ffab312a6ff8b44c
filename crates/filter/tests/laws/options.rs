//! The tables of options in `docs/commands.md` match the table in `arguments/options.rs`.

use std::fmt::Write as _;

use bloomgate_filter::arguments::options::{CommandOption, OPTIONS, Value};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");

/// The row of an option in the reference page.
fn row(option: &CommandOption) -> String {
    let (name, argument) = (option.name.to_str().unwrap(), option.argument.to_str().unwrap());
    let syntax = match option.value {
        Value::Flag => name.to_owned(),
        Value::Rest => format!("{name} {argument} [{argument} ...]"),
        _ => format!("{name} {argument}"),
    };
    let commands: Vec<_> = option.commands.iter().map(|command| command.name()).collect();
    format!("| `{syntax}` | {} | {} |\n", commands.join(", "), option.meaning)
}

/// Returns the page with each table replaced by the generated one.
fn with_tables(page: &str) -> String {
    let mut text = page.to_owned();
    for (section, is_extension) in [("standard", false), ("extensions", true)] {
        let begin = format!("<!-- options: {section} -->\n");
        let (before, rest) = text.split_once(&begin).unwrap();
        let (_, after) = rest.split_once("<!-- end of options -->").unwrap();
        let mut table = "| option | commands | description |\n| --- | --- | --- |\n".to_owned();
        for option in OPTIONS.iter().filter(|option| option.is_extension == is_extension) {
            write!(table, "{}", row(option)).unwrap();
        }
        text = format!("{before}{begin}\n{table}\n<!-- end of options -->{after}");
    }
    text
}

/// `BLOOMGATE_UPDATE=1 cargo test -p bloomgate-filter --test laws options::` rewrites the tables.
#[test]
fn the_reference_page_has_the_tables_of_options() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let generated = with_tables(&page);
    if std::env::var_os("BLOOMGATE_UPDATE").is_some() {
        std::fs::write(PAGE, &generated).unwrap();
    } else {
        assert!(page == generated, "docs/commands.md differs: BLOOMGATE_UPDATE=1 rewrites its tables of options");
    }
}

//! The Rust lines of docs/clients.md: this test has them word for word, compiles them, and runs them on a server, twice.

use std::error::Error;
use std::fs;
use std::path::Path;

use testing::{Server, servers};

/// What the page has in place of the arguments of the test.
const ON_PAGE: (&str, &str) = ("Client::open(server)", "Client::open(\"redis://localhost:6379\")");

/// Runs the lines between the marks, in the order of the page.
fn run(server: &str) -> Result<(), Box<dyn Error>> {
    // begin
    use bloomgate_client::{Client, Filter, Options};

    let client = Client::open(server)?;
    let seen = Filter::new(&client, "seen");
    seen.reserve_exist_ok(0.001, 1_000_000, &Options::default())?;
    seen.clear()?; // an earlier run may have added items

    assert!(seen.add("https://example.org/")?);
    assert!(!seen.add("https://example.org/")?);
    assert_eq!(seen.add_many(["a", "b", "a"])?, [true, true, false]);
    assert_eq!(seen.exists_many(["a", "x"])?, [true, false]);
    // end
    // begin
    use std::cell::RefCell;
    use std::collections::HashMap;
    use std::time::Duration;

    use bloomgate_client::{Durability, Guard, GuardOptions, Json, fill_filter};

    let users = RefCell::new(HashMap::from([(17, "Ann".to_owned())])); // stands for the database
    let select = |id| std::io::Result::Ok(users.borrow().get(&id).cloned());
    let siphash = Options { hash: Some("siphash".to_owned()), ..Options::default() };
    fill_filter(&client, "users", [17], 0.001, 100_000, &siphash, &Durability::default())?;
    let options = GuardOptions { fail_safe: Duration::from_secs(3600), ..GuardOptions::default() };
    let guard = Guard::with_codec(&client, "users", Json::default(), options)?.with_loader(select);

    assert_eq!(guard.get(17)?.as_deref(), Some("Ann"));
    let load_many = |ids: &[i32]| {
        let users = users.borrow();
        std::io::Result::Ok(ids.iter().filter_map(|id| Some((*id, users.get(id)?.clone()))).collect())
    };
    assert_eq!(guard.get_many(&[17, 18], load_many)?, [Some("Ann".to_owned()), None]);
    guard.changed([18], || {
        users.borrow_mut().insert(18, "Eve".to_owned()); // the transaction ends in here
        std::io::Result::Ok(())
    })?;
    assert_eq!(guard.get(18)?.as_deref(), Some("Eve"));
    // end
    // begin
    use bloomgate_client::ShardedFilter;

    let links = ShardedFilter::create(&client, "links", 0.001, 1_000_000, 16, &Options::default())?;
    assert_eq!(links.add_many(["a", "b", "a"])?, [true, true, false]);

    let links = ShardedFilter::open(&client, "links")?; // in another process
    assert_eq!(links.exists_many(["a", "x"])?, [true, false]);
    assert_eq!(links.card()?, 2);
    links.drop()?; // otherwise the next `create` fails
    // end
    Ok(())
}

/// Returns the parts of a text between two lines, those of this file without the indentation of the function.
fn parts(text: &str, begin: &str, end: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    let mut is_inside = false;
    for line in text.lines() {
        match line.trim() {
            mark if mark == begin => {
                is_inside = true;
                parts.push(String::new());
            }
            mark if mark == end => is_inside = false,
            _ if is_inside => {
                let line = if begin == "// begin" { line.strip_prefix("    ").unwrap_or(line) } else { line };
                *parts.last_mut().unwrap() += &format!("{line}\n");
            }
            _ => (),
        }
    }
    parts
}

#[test]
fn the_rust_lines_of_the_page_run_twice() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/clients.md");
    let on_page = parts(&fs::read_to_string(page).unwrap(), "```rust", "```");
    let here = parts(&include_str!("page.rs").replace(ON_PAGE.0, ON_PAGE.1), "// begin", "// end");
    assert_eq!(on_page.len(), 3);
    assert_eq!(on_page, here);
    let server = Server::start(&servers()[0]);
    for _ in 0..2 {
        run(&format!("redis://127.0.0.1:{}", server.port)).unwrap();
    }
}

//! `crawl`: passes lines through a filter.

use crate::running::{run_with, url};
use testing::{Server, on_every_server};

#[test]
fn each_distinct_line_is_new_once() {
    on_every_server(|program| {
        let server = Server::start(program);
        let words = ["crawl", "-", "--key", "links", "--url", &url(&server), "--exact"];
        let text = run_with(words, "a\nb\r\n\na\nc\nb\n").success().text();
        let figure = |name: &str| {
            let line =
                text.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_else(|| panic!("{text}"));
            line.trim_start()[name.len()..].split_whitespace().next().unwrap().to_owned()
        };
        assert_eq!(["links read", "new", "already seen", "wrongly called new"].map(figure), ["5", "3", "2", "0"]);
        assert_eq!(server.connect().run("BF.CARD links").number(), 3);
        run_with(words, "a\n").refused("--exact");
        server.connect().run("SET links 1");
        run_with(words, "a\n").refused("a value that is not a filter");
    });
}

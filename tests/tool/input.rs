//! The input of every subcommand that reads lines: compressed, with a byte order mark, or not text at all.

use testing::{Connection, Server, on_every_server};

use crate::running::{Ended, Files, run, run_with, url, with_servers};

/// The command lines that read lines from the file PATH into the key `seen`.
const READERS: [&str; 4] = [
    "dedup PATH --key seen",
    "load PATH --key seen --create 1e-9 5000",
    "load PATH --key seen --create 1e-9 5000 --column 1",
    "build 1e-9 5000 PATH --key seen -o OUT",
];

/// Returns a Zstandard frame of one block without compression.
fn zstandard(text: &[u8]) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap();
    // According to the descriptor, the content length has 4 bytes, and this is the only segment.
    let frame =
        [&[0x28, 0xb5, 0x2f, 0xfd, 0xa0], &length.to_le_bytes()[..], &(length << 3 | 1).to_le_bytes()[..3], text];
    frame.concat()
}

fn read_into(server: &Server, line: &str, contents: &[u8]) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("in"), contents).unwrap();
    let url = url(server);
    let words = line.split(' ').map(|word| match word {
        "PATH" => path("in"),
        "OUT" => path("out"),
        word => word.to_owned(),
    });
    if line.starts_with("build") {
        let ended = run(words);
        if ended.status == Some(0) {
            run(["restore", "--replace", "--url", &url, &path("out")]).success();
        }
        return ended;
    }
    run(words.chain(["--url".to_owned(), url]))
}

/// Returns how many items are in the filter, and whether it has the first and the last of them.
fn contents(client: &mut Connection) -> (i64, i64, i64) {
    let mut ask = |line: &str| client.run(line).number();
    (ask("BF.CARD seen"), ask("BF.EXISTS seen 1"), ask("BF.EXISTS seen 1000"))
}

#[test]
fn compressed_lines_and_a_byte_order_mark_are_read_alike() {
    with_servers(|server| {
        let mut client = server.connect();
        let lines: String = (1..=1000).map(|number| format!("{number}\n")).collect();
        let marked = format!("\u{feff}{lines}");
        for line in READERS {
            for input in [marked.as_bytes(), &zstandard(lines.as_bytes()), &zstandard(marked.as_bytes())] {
                client.run("DEL seen");
                client.run("BF.RESERVE seen 1e-9 5000");
                read_into(&server, line, input).success();
                assert_eq!(contents(&mut client), (1000, 1, 1), "{line}");
            }
        }
    });
}

#[test]
fn input_that_is_not_text_is_refused_and_the_filter_stays() {
    with_servers(|server| {
        let mut client = server.connect();
        client.run("BF.RESERVE seen 1e-9 5000");
        client.run("BF.MADD seen 1 1000");
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("database");
        rusqlite::Connection::open(&database)
            .unwrap()
            .execute_batch("CREATE TABLE t (id); INSERT INTO t VALUES (7)")
            .unwrap();
        let utf_16: Vec<u8> = "\u{feff}1\n2\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let others: [(&[u8], &str); 4] = [
            (b"\xfd7zXZ\0\0\x04\n\n\n", "xz -dc"),
            (&std::fs::read(&database).unwrap(), "load --sqlite"),
            (&utf_16, "iconv"),
            (&zstandard(&utf_16), "iconv"),
        ];
        for line in READERS {
            for (input, part) in others {
                read_into(&server, line, input).refused(part);
                assert_eq!((contents(&mut client), client.run("DBSIZE").number()), ((2, 1, 1), 1), "{line}: {part}");
            }
            let folder = line.replace("PATH", &folder.path().display().to_string());
            read_into(&server, &folder, b"").refused("Is a directory");
        }
        // The standard input has no name to detect the format by.
        run_with(["dedup", "--key", "seen", "--url", &url(&server)], utf_16).refused("iconv");
    });
}

// Columns and NUL-terminated lines: `dedup` and `load` have the same options and extract the same items.

const EXACT: [&str; 3] = ["--create", "1e-9", "1000"];

/// CSV with quoted commas, quotes and line ends, and with both kinds of line ends.
const CSV: &str = "\u{feff}id,\"full name\"\r\n1,\"a, \"\"b\"\"\nc\"\r\n\n2,d\n3,\"a, \"\"b\"\"\nc\"\n4,\"d\"";

#[test]
fn csv_records_are_printed_unchanged_and_the_header_once() {
    on_every_server(|program| {
        let (server, files) = (Server::start(program), Files::new());
        let url = url(&server);
        let path = |name: &str, text: &str| {
            std::fs::write(files.path(name), text).unwrap();
            files.path(name).display().to_string()
        };
        let (one, other) = (path("one", CSV), path("other", "full name,more\nd,x\ne,\"y\nz\"\n"));
        let by_name = ["dedup", "--url", &url, "--key", "names", "--column", "full name"];
        let new = run([&by_name[..], &EXACT, &[&one, &other]].concat()).success().text();
        let records = "1,\"a, \"\"b\"\"\nc\"\r\n2,d\ne,\"y\nz\"\n";
        assert_eq!(new, format!("\u{feff}id,\"full name\"\r\n{records}"));
        // A second run prints only the header.
        assert_eq!(run([&by_name[..], &[&one, &other]].concat()).success().text(), "\u{feff}id,\"full name\"\r\n");
        let seen = run([&by_name[..], &["--seen", &other]].concat()).success().text();
        assert_eq!(seen, "full name,more\nd,x\ne,\"y\nz\"\n");
        // By number, with and without a header.
        let by_number = ["dedup", "--url", &url, "--key", "ids", "--column", "1"];
        let text = run([&by_number[..], &EXACT, &["--header", &one]].concat()).success().text();
        assert_eq!(text.lines().count(), 7);
        assert_eq!(run_with(by_number, "1\n5\n5\n\"5\"").success().text(), "5\n");
        run([&by_name[..], &[&*path("none", "a,b\n1,2\n")]].concat())
            .refused("no column in the first line is named `full name`");
        let short = path("short", "id,full name\n1,\"x\ny\"\n\n2\n3,z\n");
        let ended = run([&by_name[..], &[&*short]].concat()).refused("line 5: there is no column 2");
        assert_eq!(ended.text(), "id,full name\n1,\"x\ny\"\n");
        let ended = run([&by_name[..], &[&*short, "--skip-bad"]].concat()).success();
        assert_eq!((ended.text(), ended.stderr.contains("1 line without")), ("id,full name\n3,z\n".to_owned(), true));
    });
}

#[test]
fn dedup_and_load_extract_the_same_items() {
    on_every_server(|program| {
        let (server, files) = (Server::start(program), Files::new());
        let url = url(&server);
        let tsv = "x\ty\n\"a\tb\"\nlast\tline";
        let nul = b"a\nb\0\r\0c\xff\0d".as_slice();
        for (number, (bytes, words)) in [
            (CSV.as_bytes(), vec!["--column", "full name"]),
            (CSV.as_bytes(), vec!["--column", "2"]),
            (CSV.as_bytes(), vec!["--column", "2", "--header"]),
            (tsv.as_bytes(), vec!["--tsv", "--column", "2"]),
            (tsv.as_bytes(), vec!["--tsv", "--column", "y"]),
            (tsv.as_bytes(), vec!["--tsv", "--column", "1"]),
            (b"\nx\ty\n\r\n1\t2\n\n", vec!["--tsv", "--column", "y"]),
            (nul, vec!["-z"]),
            (nul, vec!["--zero-terminated"]),
        ]
        .into_iter()
        .enumerate()
        {
            let (key, path) = (format!("key:{number}"), files.path("input"));
            std::fs::write(&path, bytes).unwrap();
            let path = path.display().to_string();
            let reach = ["--url", &*url, "--key", &key];
            run([&["load", &*path], &reach[..], &words, &EXACT[..2]].concat()).success();
            let items = server.connect().run(&format!("BF.CARD {key}")).number();
            let new = run([&["dedup"], &reach[..], &words, &["--verbose", &path]].concat()).success();
            assert!(new.stderr.contains(", 0 of them new"), "{words:?}: {new:?}");
            // In an empty filter, every loaded item is new.
            let fresh = format!("fresh:{number}");
            let reach = ["--url", &*url, "--key", &fresh];
            let new = run([&["dedup"], &reach[..], &words, &EXACT, &["--summary-json", &path]].concat()).success();
            assert!(new.stderr.contains(&format!("\"new\":{items},")), "{words:?}: {new:?}");
        }
    });
}

#[test]
fn nul_terminated_lines_are_printed_nul_terminated() {
    with_servers(|server| {
        let words = ["dedup", "-z", "--url", &url(&server), "--key", "names", "--create", "1e-9", "100"];
        assert_eq!(run_with(words, "a\nb\0a\nb\0\0c\r\0d").success().text(), "a\nb\0\0c\r\0d\0");
        let json = [&words[..], &["--json", "id"]].concat();
        assert_eq!(run_with(json, "{\n\"id\":7}\0{\"id\":\n7}\0").success().text(), "{\n\"id\":7}\0");
    });
}

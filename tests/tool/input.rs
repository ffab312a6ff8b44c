//! The input of every subcommand that reads lines: compressed, with a byte order mark, or not text at all.

use crate::running::{Ended, run, run_with, url};
use testing::{Connection, Server, on_every_server};

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
    // The descriptor says that the length of the content has 4 bytes, and that this is the only segment.
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
    on_every_server(|program| {
        let server = Server::start(program);
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
fn what_is_not_text_is_refused_and_the_filter_stays() {
    on_every_server(|program| {
        let server = Server::start(program);
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
        // The standard input has no name that could tell.
        run_with(["dedup", "--key", "seen", "--url", &url(&server)], utf_16).refused("iconv");
    });
}

//! Checks that a payload of RESTORE is either refused at a cost proportional to its size, or accepted as a filter that works like any
//! other.

use super::Server;
use super::dump::dump;
use super::replication::digest;
use super::resident::Resident;
use super::resp::{Connection, Reply, integer};

/// Larger filters are queried and deleted, but not copied: two copies would not fit below `maxmemory`.
const COPIED_TO_BYTES: i64 = 4 << 20;

/// Uses and deletes the filter at `k` if the payload was accepted. Returns whether it was.
pub fn is_accepted(client: &mut Connection, reply: &Reply) -> bool {
    if reply.is_error() {
        assert_eq!(client.run("EXISTS k"), integer(0), "{reply:?}");
        return false;
    }
    let info = client.run("BF.INFO k");
    let is_live = !info.is_error();
    assert!(is_live || info.error_text() == "ERR filter is still being loaded", "{info:?}");
    let card = client.run("BF.CARD k");
    for line in ["BF.DEBUG k", "BF.MEXISTS k 0 1 2 3 4 5 x y z", "MEMORY USAGE k", "INFO bf"] {
        let reply = client.run(line);
        assert!(!reply.is_error() || !is_live && line.starts_with("BF."), "{line}: {reply:?}");
    }
    client.run("BF.SCANDUMP k 0");
    let before = digest(client, "k");
    assert_eq!(client.run("COPY k twin REPLACE"), integer(1));
    assert_eq!(digest(client, "twin"), before);
    // An accepted payload is saved unchanged.
    let again = dump(client, "k");
    let reply = client.call(&[b"RESTORE".as_slice(), b"twin", b"0", &again, b"REPLACE"]);
    assert!(!reply.is_error(), "a filter does not load what it saved: {reply:?}");
    assert_eq!(digest(client, "twin"), before);
    assert_eq!(client.run("BF.CARD twin"), card);
    // The filter may refuse to grow, but it answers, and it contains the items that it accepted, unless it is a ring, which forgets.
    let is_ring = !client.run("BF.ROTATE k").is_error();
    let items: Vec<String> = (0..60).map(|number| format!("new/{number}")).collect();
    let words: Vec<&str> = ["BF.MADD", "k"].into_iter().chain(items.iter().map(String::as_str)).collect();
    let answers = client.call(&words);
    if is_live && !is_ring {
        let taken = answers.elements().iter().take_while(|answer| !answer.is_error()).count();
        let present = client.batched(&[b"BF.MEXISTS", b"k"], &items[..taken]);
        assert!(!present.contains(&false), "an item that was just added is absent");
    }
    client.run("BF.ADD k x");
    assert_eq!(client.run("DEL k twin"), integer(2));
    true
}

/// Uses and deletes the filter at `k`, if there is one. Returns whether there was.
pub fn use_and_delete(client: &mut Connection) -> bool {
    match client.run("MEMORY USAGE k") {
        Reply::Integer(..=COPIED_TO_BYTES) => is_accepted(client, &integer(1)),
        Reply::Integer(_) => {
            for line in ["BF.CARD k", "BF.INFO k", "BF.EXISTS k x", "BF.ADD k x"] {
                client.run(line);
            }
            client.run("DEL k") == integer(1)
        }
        _ => false,
    }
}

/// Prints the sent bytes if a test fails.
struct ShownInPanic<'a>(&'a [u8]);

impl Drop for ShownInPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("sent: {}", self.0.escape_ascii());
        }
    }
}

/// Sends a payload to an empty server. Returns whether it was accepted. A refused payload makes at most its own bytes resident: memory for
/// the filter that it announces is never touched. An accepted filter is used and deleted.
pub fn restore_by_law(server: &Server, client: &mut Connection, payload: &[u8]) -> bool {
    let _shown = ShownInPanic(payload);
    let words: [&[u8]; 4] = [b"RESTORE", b"k", b"0", payload];
    Resident::bounded(server, client, |client| {
        let reply = client.call(&words);
        if reply.is_error() {
            assert_eq!(client.run("DBSIZE"), integer(0), "{reply:?}");
            return (false, Some(payload.len()));
        }
        assert!(use_and_delete(client), "the accepted bytes are not a filter");
        (true, None)
    })
}

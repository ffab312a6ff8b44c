//! What is given to a server by RESTORE is refused, at the cost of its bytes, or is a filter that can be used like one.

use super::Server;
use super::resident::Resident;
use super::resp::{Connection, Reply, integer};

/// Larger filters are asked and deleted, but not copied: two copies would not fit below `maxmemory`.
const COPIED_TO_BYTES: i64 = 4 << 20;
/// What the server needs for itself meanwhile.
pub const PEAK_SLACK_BYTES: i64 = 2 << 20;

/// Uses what was accepted at `k`, and says whether something was.
pub fn is_accepted(client: &mut Connection, reply: &Reply) -> bool {
    if reply.is_error() {
        assert_eq!(client.run("EXISTS k"), integer(0), "{reply:?}");
        return false;
    }
    // The server keeps names of commands' errors apart from a filter's: any answer will do, but there must be one.
    let card = client.run("BF.CARD k");
    let info = client.run("BF.INFO k");
    assert!(!info.is_error() || info.error_text() == "ERR filter is still being loaded", "{info:?}");
    client.run("BF.MEXISTS k 0 1 2 3 4 5 x y z");
    client.run("MEMORY USAGE k");
    let digest = client.run("DEBUG DIGEST-VALUE k");
    assert_eq!(client.run("COPY k twin REPLACE"), integer(1));
    assert_eq!(client.run("DEBUG DIGEST-VALUE twin"), digest);
    // What was accepted saves as itself.
    let again = client.run("DUMP k").bytes().to_vec();
    let words: [&[u8]; 5] = [b"RESTORE", b"twin", b"0", &again, b"REPLACE"];
    let reply = client.call(&words);
    assert!(!reply.is_error(), "a filter does not load what it saved: {reply:?}");
    assert_eq!(client.run("DEBUG DIGEST-VALUE twin"), digest);
    assert_eq!(client.run("BF.CARD twin"), card);
    client.run("BF.MADD twin 0 1 2 3 x y z");
    client.run("BF.ADD k x");
    assert_eq!(client.run("DEL k twin"), integer(2));
    true
}

/// Uses what is at `k`, if something is, and deletes it; whether something was.
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

/// Prints what was sent where a test fails.
struct ShownInPanic<'a>(&'a [u8]);

impl Drop for ShownInPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("sent: {}", self.0.escape_ascii());
        }
    }
}

/// Sends a payload to an empty server, and says whether it was accepted. While it is refused, its bytes are the most that
/// becomes resident: of what it promises nothing is touched. What was accepted is used and deleted.
pub fn restore_by_law(server: &Server, client: &mut Connection, payload: &[u8]) -> bool {
    let before = Resident::with_peak_forgotten(server);
    let _shown = ShownInPanic(payload);
    let words: [&[u8]; 4] = [b"RESTORE", b"k", b"0", payload];
    let reply = client.call(&words);
    if !reply.is_error() {
        assert!(use_and_delete(client), "what was accepted is no filter");
        return true;
    }
    assert_eq!(client.run("DBSIZE"), integer(0), "{reply:?}");
    if let (Some(before), Some(after)) = (before, Resident::of(server)) {
        let allowed = before.now + 8 * payload.len() as i64 + PEAK_SLACK_BYTES;
        assert!(after.peak <= allowed, "{} bytes resident for {}", after.peak - before.now, payload.len());
    }
    false
}

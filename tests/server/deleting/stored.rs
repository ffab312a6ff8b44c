//! Tables of deleted items in files, copies, payloads and dumps.

use super::{FILTERS, assert_written, call, numbered, reserve_all, write_some};
use crate::harness::{
    Connection, Server, Stop, digest, integer, ok, on_every_server, rewritten_commands, with_append_only_file,
};
use crate::persistence::rewrite_append_only_file;

#[test]
fn a_restart_brings_everything_back() {
    on_every_server(|program| {
        let mut server = with_append_only_file(program);
        let mut client = server.connect();
        reserve_all(&mut client);
        write_some(&mut client);
        assert_written(&mut client);
        let digests = |client: &mut Connection| FILTERS.map(|(key, _)| digest(client, key));
        let before = digests(&mut client);
        server.restart(Stop::Kill);
        client = server.connect();
        assert_eq!(digests(&mut client), before, "the file as it grew");

        rewrite_append_only_file(&mut client);
        assert!(rewritten_commands(&server).iter().any(|words| words[0] == b"BF.LOADCHUNK"));
        for (key, _) in FILTERS {
            call(&mut client, &format!("BF.MDEL {key}"), &numbered(20..25));
            call(&mut client, &format!("BF.MADD {key}"), &numbered(20..25));
        }
        assert_eq!(digests(&mut client)[..2], before[..2], "what was deleted and added again is as it was");
        let before = digests(&mut client);
        server.restart(Stop::Kill);
        client = server.connect();
        assert_eq!(digests(&mut client), before, "the rewritten file, and what came after it");
        assert_written(&mut client);

        assert_eq!(client.run("CONFIG SET appendonly no"), ok());
        assert_eq!(client.run("SAVE"), ok());
        assert_eq!(client.run("DEBUG RELOAD"), ok());
        assert_eq!(digests(&mut client), before, "a snapshot");
        assert_written(&mut client);
    });
}

#[test]
fn copies_payloads_and_dumps_have_the_entries() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        reserve_all(&mut client);
        write_some(&mut client);
        for (key, _) in FILTERS {
            let before = digest(&mut client, key);
            assert_eq!(client.run(&format!("COPY {key} copy")), integer(1));
            assert_eq!(digest(&mut client, "copy"), before);
            let payload = client.run(&format!("DUMP {key}"));
            assert_eq!(client.call(&[b"RESTORE".as_slice(), b"restored", b"0", payload.bytes()]), ok());
            assert_eq!(digest(&mut client, "restored"), before);
            dump(&mut client, key, |_| {});
            assert_eq!(digest(&mut client, "loaded"), before);
            // The table changed since: what was deleted is a maybe in the copy.
            dump(&mut client, key, |client| _ = call(client, &format!("BF.DEL {key}"), &numbered(20..21)));
            let found = client.batched(&[b"BF.MEXISTS", b"loaded"], &numbered(100..120));
            assert_eq!(found.iter().all(|present| *present), digest(&mut client, key) != before);
            client.run("DEL copy restored loaded");
        }
    });
}

/// Loads a dump of a filter; something is done after its first record.
fn dump(client: &mut Connection, key: &str, then: impl Fn(&mut Connection)) {
    client.run("DEL loaded");
    let mut iterator = 0;
    loop {
        let record = client.run(&format!("BF.SCANDUMP {key} {iterator}"));
        iterator = record.elements()[0].number();
        if iterator == 0 {
            return;
        }
        let text = iterator.to_string();
        let words = [b"BF.LOADCHUNK".as_slice(), b"loaded", text.as_bytes(), record.elements()[1].bytes()];
        assert_eq!(client.call(&words), ok(), "{key}");
        then(client);
    }
}

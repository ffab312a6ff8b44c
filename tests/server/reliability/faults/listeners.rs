//! Another module that listens to key space events is called during a command, and may delete the key of the event. So no key
//! is open when an event is sent, because its filter could be freed.

use super::{Words, raw, with_faults, with_items, words};
use crate::persistence::rewrite_append_only_file;
use testing::{Connection, Reply, Server, array, integer, ok, on_every_server, rewritten_commands};

#[test]
fn events_are_sent_after_the_key_is_closed() {
    on_every_server(|program| {
        let server = with_faults(program).line("appendonly yes").line("aof-use-rdb-preamble no").start();
        let mut client = server.connect();
        let all_new = |count| array(vec![integer(1); count]);
        let grown = words("BF.INSERT k CAPACITY 1 ITEMS a b c d");
        let cases: [(&str, Words, Reply, i64); 7] = [
            ("a reservation", words("BF.RESERVE k 0.01 100"), ok(), 1),
            ("one to be read by RedisBloom", words("BF.RESERVE k 0.01 100 LAYOUT redisbloom"), ok(), 1),
            ("a first item", words("BF.ADD k a"), integer(1), 2),
            ("first items", with_items("BF.MADD k", 0, 40), all_new(40), 2),
            ("a filter that grows at once", grown.clone(), all_new(4), 3),
            ("a filter of valkey-bloom's", words("BF.INSERT k TIGHTENING 0.5 ITEMS a"), all_new(1), 2),
            ("one that comes whole", raw("BF.LOAD k", &load_argument(&server, &mut client)), ok(), 1),
        ];
        for deletes in [0, 1] {
            assert_eq!(client.run(&format!("FAULTS.DELETE {deletes}")), integer(0));
            for (what, words, reply, events) in &cases {
                client.run("DEL k");
                client.run("FAULTS.NOTIFIED");
                assert_eq!(&client.call(words), reply, "{what}");
                assert_eq!(client.run("FAULTS.NOTIFIED"), array([integer(*events), integer(0)]), "{what}");
                assert_eq!(client.run("EXISTS k"), integer(1 - deletes), "{what}");
            }
            // Also for an existing filter.
            for (what, words, events) in
                [("an item", words("BF.ADD k e"), 1), ("items that make it grow", with_items("BF.MADD k", 0, 40), 2)]
            {
                client.run("FAULTS.DELETE 0");
                client.run("DEL k");
                client.call(&grown);
                client.run(&format!("FAULTS.DELETE {deletes}"));
                client.run("FAULTS.NOTIFIED");
                assert!(!client.call(&words).is_error(), "{what}");
                assert_eq!(client.run("FAULTS.NOTIFIED"), array([integer(events), integer(0)]), "{what}");
                assert_eq!(client.run("EXISTS k"), integer(1 - deletes), "{what}");
            }
        }
        assert_eq!(client.info_number("bf_bloom_num_objects"), 0, "nothing is left of what was deleted");
    });
}

/// Returns the commands in the append-only file for a filter of valkey-bloom's layout.
fn load_argument(server: &Server, client: &mut Connection) -> Vec<u8> {
    client.run("BF.INSERT their TIGHTENING 0.5 ITEMS a b c");
    rewrite_append_only_file(client);
    let commands = rewritten_commands(server);
    client.run("DEL their");
    commands.iter().find(|words| words[0] == b"BF.LOAD").expect("a record")[2].clone()
}

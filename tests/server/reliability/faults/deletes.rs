//! Deletes, and merges of filters with tables of deleted items.

use super::{Words, case, run_under, state, try_all, with_faults, with_items, words};
use testing::{Reply, figures, on_every_server};

/// Returns the options for a filter that allows deletes. All such filters can be merged.
fn keyed(key: &str) -> Words {
    words(&format!("BF.RESERVE {key} 0.01 5000 HASH siphash SEED 000102030405060708090a0b0c0d0e0f"))
}

#[test]
fn a_merge_without_memory_changes_nothing() {
    try_all("unions", 30, |_, _| {
        let of_other = [keyed("other"), with_items("BF.MADD other", 500, 1500)];
        let deleted_of_other = [with_items("BF.MDEL other", 500, 200), with_items("BF.MDEL other", 900, 50)];
        let of_k = [keyed("k"), with_items("BF.MADD k", 0, 1000)];
        let deleted_of_k = [with_items("BF.MDEL k", 0, 250)];
        let merge = || words("BF.MERGE k other");
        vec![
            case("no tables", &[&of_k[..], &of_other].concat(), merge()),
            case("a table here", &[&of_k[..], &of_other, &deleted_of_k].concat(), merge()),
            case("a table there", &[&of_k[..], &of_other, &deleted_of_other].concat(), merge()),
            case("two tables", &[&of_k[..], &of_other, &deleted_of_k, &deleted_of_other].concat(), merge()),
            case("no destination", &[&of_other[..], &deleted_of_other].concat(), merge()),
            case(
                "three",
                &[&of_k[..], &of_other, &deleted_of_k, &deleted_of_other, &[words("COPY other third")]].concat(),
                words("BF.MERGE k other third"),
            ),
        ]
    });
}

/// If the table cannot grow, the items before that are deleted, and the array ends with the error.
#[test]
fn a_delete_without_memory_changes_nothing() {
    on_every_server(|program| {
        let server = with_faults(program).start();
        let mut client = server.connect();
        let mut faults = 0;
        // The first entries, those that turn a list into a table, and a table that grows.
        for deleted in [0, 1, 14, 40, 150] {
            let delete = with_items("BF.MDEL k", deleted, 60);
            for mode in ["", " ON"] {
                for number in 1.. {
                    assert!(number < 200, "no end of it");
                    client.run("FLUSHALL");
                    client.call(&keyed("k"));
                    client.call(&with_items("BF.MADD k", 0, 2000));
                    if deleted > 0 {
                        client.call(&with_items("BF.MDEL k", 0, deleted));
                    }
                    let before = state(&mut client).numbers[0].number();
                    let (reply, [_, refused, unrefusable]) =
                        run_under(&mut client, &format!("{number}{mode}"), &delete);
                    assert_eq!(unrefusable, 0, "asks for what ends the server when it is refused");
                    faults += refused;
                    let done = match &reply {
                        Reply::Error(_) => 0,
                        reply => reply.elements().iter().filter(|answer| !answer.is_error() && answer.truth()).count(),
                    };
                    assert_eq!(client.run("BF.CARD k").number(), before - done as i64, "{reply:?}");
                    let present = client.batched(&[b"BF.MEXISTS", b"k"], &delete[2..]);
                    assert!(!present[..done].contains(&true) && !present[done..].contains(&false), "{done}");
                    let has_ended = done == 60;
                    assert!(has_ended || refused > 0, "{reply:?}, and nothing was refused");
                    client.call(&delete);
                    assert_eq!(client.run("BF.CARD k").number(), before - 60, "not even afterwards");
                    if refused == 0 {
                        break;
                    }
                }
            }
        }
        figures(&format!("memory refused, deletes: {faults} faults injected"));
        assert!(faults >= 10, "{faults} faults");
    });
}

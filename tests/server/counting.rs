//! Counting filters: creation, the replies and effects of adds, BF.COUNT, dumps and loads, and deletes.

use testing::{Connection, array, digest, error, in_both_protocols, integer, nil, ok, with_client};

const FULL: &str = "ERR non scaling filter is full";

#[test]
fn every_add_counts_and_says_whether_the_item_was_new() {
    in_both_protocols(|client, protocol| {
        let (yes, no) = (client.answer(true), client.answer(false));
        assert_eq!(client.run("BF.RESERVE k 0.01 100 COUNTING"), ok());
        assert_eq!(client.run("BF.ADD k a"), yes);
        assert_eq!(client.run("BF.ADD k a"), no);
        // Items are added in order, so the repeated ones are found.
        assert_eq!(client.run("BF.MADD k b a b b"), array([yes.clone(), no.clone(), no.clone(), no.clone()]));
        assert_eq!(client.run("BF.INSERT k ITEMS c"), array([yes.clone()]));
        assert_eq!(client.run("BF.CARD k"), integer(7));
        for (item, count) in [("a", 3), ("b", 3), ("c", 1), ("d", 0)] {
            assert_eq!(client.run(&format!("BF.COUNT k {item}")), integer(count), "{item}");
            assert_eq!(client.run(&format!("BF.EXISTS k {item}")), client.answer(count > 0), "{item}");
        }
        assert_eq!(client.run("BF.MEXISTS k a d c"), array([yes, no, client.answer(true)]));
        assert_eq!(client.run("BF.INFO k").field("Expansion rate"), &nil(protocol));
        assert_eq!(client.run("BF.INFO k").field("Number of items inserted"), &integer(7));
        assert_eq!(client.run("BF.INFO k").field("Capacity"), &integer(100));
        assert_eq!(client.run("BF.INFO k").field("Number of filters"), &integer(1));
    });
}

#[test]
fn a_count_ends_at_fifteen() {
    with_client(|_, client| {
        client.run("BF.INSERT k CAPACITY 1000 COUNTING ITEMS a");
        for count in 1..20 {
            assert_eq!(client.run("BF.COUNT k a"), integer(count.min(15)));
            assert_eq!(client.run("BF.ADD k a"), integer(0));
        }
        assert_eq!(client.run("BF.CARD k"), integer(20));
    });
}

#[test]
fn bf_count_needs_counters_and_bf_rotate_a_window() {
    with_client(|_, client| {
        let refusal = error("ERR this filter has no CUCKOO or COUNTING");
        for (words, key) in [
            ("BF.RESERVE native 0.01 100 NONSCALING", "native"),
            ("BF.RESERVE keyed 0.01 100 HASH siphash", "keyed"),
            ("BF.RESERVE windowed 0.01 100 WINDOW 60", "windowed"),
            ("BF.RESERVE theirs 0.01 100 LAYOUT redisbloom", "theirs"),
            ("BF.INSERT valkeys TIGHTENING 0.5 ITEMS a", "valkeys"),
        ] {
            assert!(!client.run(words).is_error(), "{words}");
            client.run(&format!("BF.ADD {key} a"));
            assert_eq!(client.run(&format!("BF.COUNT {key} a")), refusal, "{key}");
        }
        client.run("BF.RESERVE counting 0.01 100 COUNTING");
        for key in ["native", "keyed", "theirs", "valkeys", "counting"] {
            assert_eq!(client.run(&format!("BF.ROTATE {key}")), error("ERR this filter has no WINDOW"), "{key}");
        }
    });
}

#[test]
fn a_full_filter_refuses_every_add() {
    with_client(|_, client| {
        client.run("BF.RESERVE k 0.01 3 COUNTING");
        let full = || error(FULL);
        assert_eq!(client.run("BF.MADD k a b a a c"), array([integer(1), integer(1), integer(0), full()]));
        let before = digest(client, "k");
        assert_eq!(client.run("BF.ADD k a"), full(), "also a member");
        assert_eq!(client.run("BF.MADD k c a"), array([full()]));
        assert_eq!(client.run("BF.INSERT k ITEMS a"), array([full()]));
        assert_eq!(digest(client, "k"), before);
        assert_eq!(client.run("BF.CARD k"), integer(3));
        // If a command has more items than the filter has room for, it adds the items that fit.
        let reply = client.run("BF.INSERT n CAPACITY 1 COUNTING ITEMS x x");
        assert_eq!(reply, array([integer(1), full()]));
        assert_eq!(client.run("BF.COUNT n x"), integer(1));
    });
}

#[test]
fn info_and_debug_describe_counters() {
    with_client(|_, client| {
        client.run("BF.RESERVE k 0.01 1000000 COUNTING");
        client.run("BF.RESERVE bits 0.01 1000000 NONSCALING");
        client.run("BF.MADD k a b a");
        let size =
            |client: &mut Connection, key: &str| client.run(&format!("BF.INFO {key} SIZE")).elements()[0].number();
        let (counters, bits) = (size(client, "k"), size(client, "bits"));
        assert!((counters - 4 * bits).abs() < 4 * 4096, "four times the memory: {counters}, {bits}");
        let debug = client.run("BF.DEBUG k");
        let [filter, layer] = debug.elements() else { panic!("not two lines: {debug:?}") };
        assert_eq!(filter.text(), "size:3");
        let expected = "hashes:7 hashwidth:128 capacity:1000000 size:3 ratio:0.01";
        assert!(layer.text().ends_with(expected), "{layer:?}");
        assert_eq!(client.run("BF.INFO k ERROR").text(), "0.01");
        assert!(client.run("MEMORY USAGE k").number() >= counters);
        assert_eq!(client.run("TYPE k").text(), "bloomgate");
    });
}

// Deletes from counting filters: BF.DEL and BF.MDEL count down, and so do their effects.

#[test]
fn a_delete_counts_down_the_items_that_it_finds() {
    in_both_protocols(|client, _| {
        let (yes, no) = (client.answer(true), client.answer(false));
        client.run("BF.INSERT k CAPACITY 4 COUNTING ITEMS a a a b");
        assert_eq!(client.run("BF.DEL k a"), yes);
        assert_eq!(client.run("BF.EXISTS k a"), yes, "it was added more than once");
        assert_eq!((client.run("BF.COUNT k a"), client.run("BF.CARD k")), (integer(2), integer(3)));
        // The filter now has room for one item, not for two.
        assert_eq!(client.run("BF.MADD k c c"), array([yes.clone(), error(FULL)]));
        let answers = [yes.clone(), yes.clone(), no.clone(), yes.clone(), no.clone()];
        assert_eq!(client.run("BF.MDEL k a a a b never"), array(answers), "in order");
        assert_eq!((client.run("BF.COUNT k a"), client.run("BF.CARD k")), (integer(0), integer(1)));
        assert_eq!(client.run("BF.DEL k a"), no);
        assert_eq!(client.run("BF.ADD k a"), yes);
        // With COUNTING, HASH siphash creates no table of deleted items.
        client.run("BF.INSERT keyed HASH siphash CAPACITY 100 COUNTING ITEMS a a");
        let size = client.run("BF.INFO keyed SIZE");
        assert_eq!(client.run("BF.MDEL keyed a a a"), array([yes.clone(), yes.clone(), no.clone()]));
        assert_eq!(client.run("BF.INFO keyed SIZE"), size);
    });
}

//! The redis crate: every BF method that it has, with its own parsing of the replies, in both protocols.

use redis::bloom::{
    BloomFilterDumpChunk, BloomFilterDumpIterator, BloomFilterInfoType, BloomFilterInsertOptions,
    BloomFilterScalingOptions,
};
use redis::{Connection, TypedCommands};

use testing::{Server, on_every_server};

/// Calls the test with a connection in RESP2 and one in RESP3, each to a server of its own.
fn in_both_protocols(test: impl Fn(&mut Connection)) {
    on_every_server(|program| {
        for protocol in [2, 3] {
            let server = Server::start(program);
            test(&mut server.library_client(protocol));
        }
    });
}

#[test]
fn items_go_in_and_are_found() {
    in_both_protocols(|client| {
        assert_eq!(client.bf_add("k", "a"), Ok(true));
        assert_eq!(client.bf_add("k", "a"), Ok(false));
        assert_eq!(client.bf_madd("k", &["a", "b", "c", "c"]), Ok(vec![false, true, true, false]));
        assert_eq!(client.bf_exists("k", "b"), Ok(true));
        assert_eq!(client.bf_exists("k", "z"), Ok(false));
        assert_eq!(client.bf_exists("missing", "z"), Ok(false));
        assert_eq!(client.bf_mexists("k", &["a", "z"]), Ok(vec![true, false]));
        assert_eq!(client.bf_card("k"), Ok(3));
        assert_eq!(client.bf_card("missing"), Ok(0));
        let binary: &[u8] = b"\0\xff\r\n";
        assert_eq!(client.bf_add("k", binary), Ok(true));
        assert_eq!(client.bf_exists("k", binary), Ok(true));
    });
}

#[test]
fn filters_are_made_as_asked() {
    in_both_protocols(|client| {
        client.bf_reserve("plain", 0.01, 1000).unwrap();
        client.bf_reserve_options("four", 0.001, 50, BloomFilterScalingOptions::ExpansionRate(4)).unwrap();
        client.bf_reserve_options("fixed", 1e-9, 2, BloomFilterScalingOptions::NonScaling).unwrap();
        let info = client.bf_info("plain").unwrap();
        assert_eq!(info.len(), 5);
        assert_eq!(info["Capacity"], 1000.0);
        assert_eq!(info["Number of filters"], 1.0);
        assert_eq!(info["Number of items inserted"], 0.0);
        assert_eq!(info["Expansion rate"], 2.0);

        let mut field = |key, field| *client.bf_info_type(key, field).unwrap();
        assert_eq!(field("four", BloomFilterInfoType::Capacity), 50.0);
        assert_eq!(field("four", BloomFilterInfoType::Expansion), 4.0);
        assert_eq!(field("four", BloomFilterInfoType::Filters), 1.0);
        assert_eq!(field("four", BloomFilterInfoType::Items), 0.0);
        assert!(field("four", BloomFilterInfoType::Size) > 64.0);
        assert_eq!(field("four", BloomFilterInfoType::Error), 0.001);
        assert!(field("four", BloomFilterInfoType::MaximumScaledCapacity) > 1e6);
        // RedisBloom's null in an array, which this client cannot read.
        assert!(client.bf_info_type("fixed", BloomFilterInfoType::Expansion).is_err());
        assert!(client.bf_info_type("fixed", BloomFilterInfoType::MaximumScaledCapacity).is_err());
        assert!(client.bf_info_type("four", BloomFilterInfoType::Tightening).is_err());

        let error = client.bf_reserve("plain", 0.01, 1000).unwrap_err();
        assert_eq!(error.detail(), Some("item exists"));
        client.bf_madd("fixed", &["a", "b"]).unwrap();
        let error = client.bf_add("fixed", "c").unwrap_err();
        assert_eq!(error.detail(), Some("non scaling filter is full"));
    });
}

#[test]
fn an_insert_makes_and_fills() {
    in_both_protocols(|client| {
        assert_eq!(client.bf_insert("k", &["a", "b", "a"]), Ok(vec![true, true, false]));
        let options = BloomFilterInsertOptions::default()
            .capacity(77)
            .error_rate(0.001)
            .expansion(BloomFilterScalingOptions::ExpansionRate(3));
        assert_eq!(client.bf_insert_options("made", &["a"], options), Ok(vec![true]));
        assert_eq!(*client.bf_info_type("made", BloomFilterInfoType::Capacity).unwrap(), 77.0);
        assert_eq!(*client.bf_info_type("made", BloomFilterInfoType::Expansion).unwrap(), 3.0);
        let error =
            client.bf_insert_options("missing", &["a"], BloomFilterInsertOptions::default().nocreate()).unwrap_err();
        assert_eq!(error.detail(), Some("not found"));
    });
}

#[test]
fn a_dump_is_loaded() {
    in_both_protocols(|client| {
        let items: Vec<String> = (0..5000).map(|number| format!("https://example.org/{number}")).collect();
        client.bf_madd("k", &items).unwrap();
        let records: Vec<BloomFilterDumpChunk> =
            BloomFilterDumpIterator::new(client, "k").map(|record| record.unwrap()).collect();
        assert!(records.len() > 5, "a header and a chunk for each layer");
        let (last, others) = records.split_last().unwrap();
        for record in others {
            client.bf_loadchunk("copy", record.clone()).unwrap();
            assert_eq!(client.bf_exists("copy", "x").unwrap_err().detail(), Some("filter is still being loaded"));
        }
        client.bf_loadchunk("copy", last.clone()).unwrap();
        assert_eq!(client.bf_card("copy"), client.bf_card("k"));
        let present = client.bf_mexists("copy", &items).unwrap();
        assert!(present.into_iter().all(|present| present));
        let end = client.bf_scandump("k", last.iterator).unwrap();
        assert_eq!(end, BloomFilterDumpChunk { iterator: 0, data: vec![] });
    });
}

//! BF.EXISTS, BF.MEXISTS and BF.CARD: the questions, which change nothing.

use testing::{Server, array, error, integer, on_every_server};

#[test]
fn a_missing_key_holds_nothing() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            assert_eq!(client.run("BF.EXISTS missing a"), client.answer(false));
            assert_eq!(client.run("BF.MEXISTS missing a b c"), client.answers([0, 0, 0]));
            assert_eq!(client.run("BF.CARD missing"), integer(0));
            assert_eq!(client.run("BF.INFO missing"), error("ERR not found"));
            assert_eq!(client.run("EXISTS missing"), integer(0), "no question creates a filter");
        }
    });
}

#[test]
fn an_expired_key_holds_nothing() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("BF.ADD k a");
        client.run("DEBUG SET-ACTIVE-EXPIRE 0");
        client.run("PEXPIRE k 1");
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(client.run("BF.EXISTS k a"), integer(0));
        assert_eq!(client.run("BF.CARD k"), integer(0));
        assert_eq!(client.run("BF.ADD k a"), integer(1));
        assert_eq!(client.run("TTL k"), integer(-1));
    });
}

#[test]
fn a_batch_answers_as_its_items_would_one_by_one() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        // Enough to cross batches of 32, from one layer and from many.
        client.run("BF.RESERVE one 0.01 100000 SEED 1");
        client.run("BF.RESERVE many 0.01 20 SEED 1");
        let items: Vec<String> = (0..3000).map(|number| format!("https://example.org/page/{number}")).collect();
        for key in ["one", "many"] {
            client.batched(&[b"BF.MADD", key.as_bytes()], &items[..1500]);
            let together = client.batched(&[b"BF.MEXISTS", key.as_bytes()], &items);
            for (item, &answer) in items.iter().zip(&together) {
                assert_eq!(client.call(&["BF.EXISTS", key, item]).truth(), answer, "{item} in {key}");
            }
            assert!(together[..1500].iter().all(|&answer| answer));
            assert!(!together[1500..].iter().all(|&answer| answer));
            // One batch that ends in the middle.
            for length in [1, 31, 32, 33, 63, 64, 65, 100] {
                let mut words = vec!["BF.MEXISTS", key];
                words.extend(items[..length].iter().map(String::as_str));
                assert_eq!(client.call(&words), array(vec![integer(1); length]));
            }
        }
    });
}

#[test]
fn card_counts_the_items_that_were_new() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let items: Vec<String> = (0..5000).map(|number| (number % 3000).to_string()).collect();
        let new = client.batched(&[b"BF.MADD", b"k"], &items).iter().filter(|&&answer| answer).count();
        assert_eq!(client.run("BF.CARD k"), integer(new as i64));
        assert_eq!(client.run("BF.INFO k ITEMS"), array([integer(new as i64)]));
        assert!(new <= 3000);
    });
}

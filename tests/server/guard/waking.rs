//! What ends a lease that clients wait for: one of them loads then, long before the lease would have expired.

use super::{load, wait_with, waiters, with_filter, word};
use crate::harness::{Connection, Server, ok, on_every_server};

/// Longer than any test.
const LONG: u64 = 1_000_000_000;

#[test]
fn leases_that_a_lower_limit_evicts_let_a_waiter_load_each() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        let fetch = |number: usize| format!("BF.FETCH {{f}} 42 {{f}}:{number} LEASE {LONG}");
        let mut clients: Vec<Connection> = (0..20)
            .map(|number| {
                load(&mut client, &fetch(number));
                wait_with(&server, &format!("{} WAIT {LONG}", fetch(number)))
            })
            .collect();
        assert_eq!(client.run("CONFIG SET bf.max-leases 1"), ok());
        load(&mut client, &fetch(20));
        for waiter in &mut clients {
            assert_eq!(word(&waiter.receive().unwrap()), "load");
        }
        assert_eq!((waiters(&mut client), client.info_number("bf_bloom_leases")), (0, 1));
    });
}

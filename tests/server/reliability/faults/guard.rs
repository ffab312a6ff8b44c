//! The guard when allocations fail: a lease that cannot be stored keeps nobody from loading, a NONE takes the place of its lease, a
//! client that cannot be queued is told to retry, and waiters without a timer are served later.

use super::{run_under, with_faults, words};
use testing::{Connection, Reply, eventually, figures, nil, ok, on_every_server};

const FETCH: &str = "BF.FETCH {f} 42 {f}:42 LEASE 100000";

/// Empties the server, which also resets the guard.
fn begin(client: &mut Connection) {
    client.run("FLUSHALL");
    client.run("BF.RESERVE {f} 0.01 1000 SEED 500");
    client.run("BF.ADD {f} 42");
}

fn word(reply: &Reply) -> String {
    reply.elements()[0].text()
}

/// Fails each allocation of a command in turn, alone and together with all later ones; `look` checks the reply.
fn each_fault(
    client: &mut Connection,
    prepare: &dyn Fn(&mut Connection) -> String,
    look: &dyn Fn(&mut Connection, Reply),
) -> i64 {
    let mut faults = 0;
    for mode in ["", " ON"] {
        for number in 1.. {
            assert!(number < 1000, "no end of it");
            begin(client);
            let line = prepare(client);
            let (reply, [_, refused, unrefusable]) = run_under(client, &format!("{number}{mode}"), &words(&line));
            assert_eq!(unrefusable, 0, "{line}: asks for what ends the server when it is refused");
            look(client, reply);
            faults += refused;
            if refused == 0 {
                break;
            }
        }
    }
    faults
}

#[test]
fn without_memory_rows_are_loaded_but_not_cached() {
    on_every_server(|program| {
        let server = with_faults(program).start();
        let mut client = server.connect();
        let fetch = each_fault(&mut client, &|_| FETCH.to_owned(), &|client, reply| {
            assert_eq!(word(&reply), "load");
            let token = reply.elements()[1].text();
            let filled = client.run(&format!("BF.FILL {{f}} 42 {{f}}:42 {token} VALUE v"));
            assert!(filled == ok() || filled == nil(2), "{filled:?}");
            assert_eq!(word(&client.run(FETCH)), if filled == ok() { "hit" } else { "load" });
        });
        let load = |client: &mut Connection| client.run(FETCH).elements()[1].text();
        let none = each_fault(
            &mut client,
            &|client| format!("BF.FILL {{f}} 42 {{f}}:42 {} NONE EX 100", load(client)),
            &|client, reply| {
                assert_eq!(reply, ok());
                assert_eq!(word(&client.run(FETCH)), "absent");
            },
        );
        let changed = each_fault(
            &mut client,
            &|client| {
                load(client);
                "BF.CHANGED {f} 42 {f}:42".to_owned()
            },
            &|client, reply| {
                assert_eq!(reply, client.answer(false));
                assert_eq!(word(&client.run(FETCH)), "load");
            },
        );
        let wait = each_fault(
            &mut client,
            &|client| {
                load(client);
                format!("{FETCH} WAIT 5")
            },
            &|_, reply| assert_eq!(word(&reply), "wait"),
        );
        figures(&format!("memory refused, the guard: {fetch} + {none} + {changed} + {wait} faults"));
        assert!(fetch > 0 && wait > 0, "{fetch}, {wait}");
        assert_eq!(none, 0, "a NONE takes the place of its lease");
    });
}

/// If memory for the timer is refused when a lease ends, the next caller serves its waiters.
#[test]
fn waiters_that_could_not_be_scheduled_are_served_by_the_next_caller() {
    on_every_server(|program| {
        let mut refusals = 0;
        // The timer's queue allocates when it is full, which depends on the number of waiters on a new server.
        for crowd in 1..=8 {
            let server = with_faults(program).start();
            let mut client = server.connect();
            begin(&mut client);
            let token = client.run(FETCH).elements()[1].text();
            let mut waiters: Vec<Connection> = (0..crowd).map(|_| server.connect()).collect();
            for (number, waiter) in waiters.iter_mut().enumerate() {
                waiter.send(&words(&format!("{FETCH} WAIT 100000000"))).unwrap();
                eventually("the client to wait", || client.info_number("bf_bloom_waiting") == number as i64 + 1);
            }
            let give_up = words(&format!("BF.FILL {{f}} 42 {{f}}:42 {token} GIVEUP"));
            let (reply, [_, refused, unrefusable]) = run_under(&mut client, "1 ON", &give_up);
            assert_eq!((reply, unrefusable), (ok(), 0));
            if refused > 0 {
                refusals += 1;
                assert_eq!(client.info_number("bf_bloom_waiting"), crowd, "no waiter is served yet");
                assert_eq!(word(&client.run(FETCH)), "wait", "a caller does not overtake them");
            }
            assert_eq!(word(&waiters[0].receive().unwrap()), "load");
            assert_eq!(client.info_number("bf_bloom_waiting"), crowd - 1);
        }
        assert!(refusals > 0, "no request was refused");
    });
}

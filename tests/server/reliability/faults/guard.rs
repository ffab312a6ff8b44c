//! The guard where memory is refused: a lease that cannot be noted is one that nobody can fill, a miss that cannot be noted is
//! loaded again, and who cannot be put into the queue is told to come again.

use super::{run_under, with_faults, words};
use crate::harness::{Connection, Reply, figures, nil, ok, on_every_server};

const FETCH: &str = "BF.FETCH {f} 42 {f}:42 LEASE 100000";

/// On a server that is as it was at its start, as far as the guard goes.
fn begin(client: &mut Connection) {
    client.run("FLUSHALL");
    client.run("BF.RESERVE {f} 0.01 1000 SEED 500");
    client.run("BF.ADD {f} 42");
}

fn word(reply: &Reply) -> String {
    reply.elements()[0].text()
}

/// Refuses each request of a command in turn, alone and with all after it; `look` sees the reply, and whether any was refused.
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
fn without_memory_a_row_is_loaded_and_not_cached() {
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
                assert!(["absent", "load"].contains(&word(&client.run(FETCH)).as_str()));
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
        assert!(fetch > 0 && none > 0 && wait > 0, "{fetch}, {none}, {wait}");
    });
}

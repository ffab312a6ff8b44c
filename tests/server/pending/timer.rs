//! When pending adds are flushed: by a timer. The fault module holds the timer.

use testing::{Connection, Server, integer, ok, on_every_server};

use super::{
    ADDS, add, all_written, assert_has, begin_endless_save, kill_child, list, pending, reserve, start_with_faults,
};

/// The number of timers that were held, which start now.
fn held_timers(client: &mut Connection) -> i64 {
    client.run("FAULTS.HOLD 0").number()
}

/// Has `adds` adds pending in the filter `k`, and the timer held.
fn hold(server: &Server, client: &mut Connection, adds: u32) {
    list(server, client, &["k".to_owned()], adds);
}

/// Only the timer flushes, so that commands take as long as ever. Their own items go to the bits.
#[test]
fn commands_leave_pending_adds_to_the_timer() {
    on_every_server(|program| {
        let (server, mut client) = start_with_faults(program);
        assert_eq!(client.run("BF.RESERVE k 0.01 3500000 HASH siphash"), ok());
        hold(&server, &mut client, ADDS);
        let before = pending(&mut client);
        assert!(before > 0);
        assert_eq!(add(&mut client, "k", ADDS..ADDS + 100), 100);
        assert_eq!(client.run("BF.ADD k another"), integer(1));
        assert_eq!(client.run("BF.DEL k another"), integer(1));
        assert_eq!(client.run("BF.EXISTS k absent"), integer(0));
        assert_eq!(pending(&mut client), before);
        assert_eq!(held_timers(&mut client), 1);
        all_written(&mut client);
        assert_has(&mut client, "k", 0..ADDS + 100);
    });
}

#[test]
fn there_is_one_timer_and_only_while_adds_are_pending() {
    on_every_server(|program| {
        let (server, mut client) = start_with_faults(program);
        reserve(&mut client, "k");
        client.run("FAULTS.HOLD 1");
        begin_endless_save(&mut client);
        kill_child(&server, &mut client);
        assert_eq!(held_timers(&mut client), 0, "nothing is pending");
        hold(&server, &mut client, ADDS);
        begin_endless_save(&mut client);
        kill_child(&server, &mut client);
        assert_eq!(held_timers(&mut client), 1);
        all_written(&mut client);
        client.run("FAULTS.HOLD 1");
        tick(&mut client);
        assert_eq!(held_timers(&mut client), 0, "nothing is pending any more");
    });
}

/// Lets a timer go off that is due in a millisecond.
fn tick(client: &mut Connection) {
    client.run("DEBUG SLEEP 0.005");
    client.run("PING");
}

#[test]
fn a_child_that_is_born_while_the_timer_runs_stops_it() {
    on_every_server(|program| {
        let (server, mut client) = start_with_faults(program);
        reserve(&mut client, "k");
        hold(&server, &mut client, ADDS);
        begin_endless_save(&mut client);
        let before = pending(&mut client);
        assert_eq!(held_timers(&mut client), 1);
        client.run("FAULTS.HOLD 1");
        tick(&mut client);
        assert_eq!(held_timers(&mut client), 0, "a child lives");
        assert_eq!(client.run("BF.ADD k known"), integer(1));
        assert!(pending(&mut client) >= before, "a child lives");
        kill_child(&server, &mut client);
        all_written(&mut client);
        assert_has(&mut client, "k", 0..ADDS);
    });
}

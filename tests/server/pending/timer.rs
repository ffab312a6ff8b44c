//! When pending adds are flushed, and by what: the timer, and commands on the same filter. The fault module holds the timer.

use crate::harness::{Connection, Server, integer, ok, on_every_server};

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

/// How many commands it takes to flush what is pending.
fn commands_until_flushed(client: &mut Connection, command: &[&str]) -> u32 {
    let mut commands = 0;
    while pending(client) > 0 {
        assert!(!client.call(command).is_error());
        commands += 1;
    }
    commands
}

/// A command flushes as many adds as it writes itself, but from 2 to 512. The last one may find nothing but an empty set.
#[test]
fn commands_flush_some_adds_beside_their_own() {
    on_every_server(|program| {
        let (server, mut client) = start_with_faults(program);
        assert_eq!(client.run("BF.RESERVE k 0.01 3500000 HASH siphash"), ok());
        let known: Vec<String> = (0..600).map(|number| format!("item {number}")).collect();
        let words = |command, items| -> Vec<&str> {
            [command, "k"].into_iter().chain(known.iter().take(items).map(String::as_str)).collect()
        };
        let cases = [
            (words("BF.ADD", 1), 1000, 500),
            (words("BF.MADD", 10), 1000, 100),
            (words("BF.MADD", 600), 5120, 10),
            (vec!["BF.DEL", "k", "absent"], 1000, 500),
            (vec!["BF.MDEL", "k", "absent", "neither", "nor this"], 999, 333),
        ];
        let mut first = 600;
        add(&mut client, "k", 0..first);
        for (command, adds, expected) in cases {
            begin_endless_save(&mut client);
            assert_eq!(add(&mut client, "k", first..first + adds), adds as usize);
            client.run("FAULTS.HOLD 1");
            kill_child(&server, &mut client);
            first += adds;
            let commands = commands_until_flushed(&mut client, &command);
            assert!(
                (expected..=expected + 1).contains(&commands),
                "{}: {commands} commands for {adds} adds",
                command[0]
            );
            assert_has(&mut client, "k", 0..first);
            held_timers(&mut client);
        }
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

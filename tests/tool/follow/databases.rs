//! Laws of every database, which differ in the words of SQL only.

use std::ops::RangeInclusive;

use testing::database::Database;
use testing::mariadb::MariaDb;
use testing::{Connection, Server, integer, on_every_server};

use crate::follow::connections::Proxy;
use crate::follow::synchronous::{answer, open_keys};
use crate::follow::{Followed, Sql, USERS_TABLE, World, beats, catch_up, followed_on, has, soon};

#[test]
fn a_dropped_table_is_skipped_until_it_exists_again() {
    dropped_table::<Database>();
    dropped_table::<MariaDb>();
}

fn dropped_table<D: Followed>() {
    let (orders, name) = (D::create("orders"), format!("{}orders", D::PREFIX));
    let tables = format!("{USERS_TABLE}{}", USERS_TABLE.replace("users", "orders"));
    followed_on::<D>(D::MODES, &[], &format!("{}; {orders}", D::USERS), &tables, |world, follower, client, session| {
        let orders_beat = |client: &mut Connection| client.run("EXISTS {orders}:feed") == integer(1);
        soon(|| orders_beat(client));
        session.run("INSERT INTO orders VALUES (1, 1); DROP TABLE orders");
        let skipped = format!("{name} is not followed: there is no table {name}");
        follower.says(&skipped);
        catch_up(world, client, 1);
        assert!(!orders_beat(client));
        // A standby follower changes nothing.
        let epoch = client.run("GET {orders}:feed:epoch");
        let mut standby = world.follow();
        standby.says("standing by");
        assert_eq!(client.run("GET {orders}:feed:epoch"), epoch);
        standby.end();

        // A new follower skips the table, too.
        world.demand("");
        follower.end();
        *follower = world.following();
        follower.says(&skipped);
        catch_up(world, client, 2);
        assert!(!orders_beat(client));

        // The same definition, and other rows.
        session.run(&format!("{orders}; INSERT INTO orders VALUES (7, 1)"));
        soon(|| orders_beat(client));
        assert_eq!(client.run("BF.EXISTS {orders} 7"), integer(1));
        assert_eq!(client.run("BF.EXISTS {orders} 1"), integer(0));
        catch_up(world, client, 3);
    });
}

#[test]
fn a_table_with_two_filters_changes_both() {
    two_filters::<Database>();
    two_filters::<MariaDb>();
}

fn two_filters<D: Followed>() {
    // The same table under another name.
    let versions =
        USERS_TABLE.replace("public.users", D::ALIAS).replace("{id}", "{version}").replace("{users}", "{versions}");
    let schema = format!("{}; {}", D::USERS, D::FULL);
    followed_on::<D>(D::MODES, &[], &schema, &format!("{USERS_TABLE}{versions}"), |_, _, client, session| {
        let has_version =
            |client: &mut Connection, version: &str| client.call(&["BF.EXISTS", "{versions}", version]) == integer(1);
        session.run("INSERT INTO users VALUES (1, 71), (2, 72)");
        soon(|| has(client, 1) && has(client, 2) && has_version(client, "71") && has_version(client, "72"));
        client.run("MSET {users}:1 x {users}:2 x");
        client.run("SET {versions}:71 x");
        session.run("UPDATE users SET version = 73 WHERE id = 1; DELETE FROM users WHERE id = 2");
        soon(|| has_version(client, "73") && !has(client, 2));
        soon(|| {
            ["{users}:1", "{users}:2", "{versions}:71"].iter().all(|key| client.call(&["EXISTS", key]) == integer(0))
        });
        session.run("TRUNCATE TABLE users; INSERT INTO users VALUES (3, 74)");
        soon(|| has(client, 3) && has_version(client, "74") && !has(client, 1) && !has_version(client, "73"));
    });
}

#[test]
fn a_hanging_follower_is_replaced_and_changes_nothing_afterwards() {
    take_over::<Database>();
    take_over::<MariaDb>();
}

fn take_over<D: Followed>() {
    followed_on::<D>(D::MODES, &[], D::USERS, USERS_TABLE, |world, zombie, client, session| {
        let mut second = world.follow();
        second.says("standing by");
        zombie.signal("STOP");
        // In synchronous mode, the COMMIT returns once the second follower has taken over.
        world.while_running("INSERT INTO users VALUES (1, 1)", || second.says("taking over"));
        soon(|| has(client, 1) && beats(client));
        let epoch = client.run("GET {users}:feed:epoch");
        zombie.signal("CONT");
        zombie.says("standing by");
        session.run("INSERT INTO users VALUES (2, 1)");
        assert!(world.mode == "eventual" || answer(client, 2) != "absent");
        soon(|| has(client, 2));
        assert_eq!(client.run("GET {users}:feed:epoch"), epoch);
        second.end();
    });
}

/// Filters that refuse items: the options that create them, and their errors.
const LIMITS: [(&str, &str); 3] = [
    ("1e-12 100 NONSCALING", "non scaling filter is full"),
    ("1e-12 100 EXPANSION 0", "non scaling filter is full"),
    ("1e-12 100", "Insufficient memory to create filter"),
];

#[test]
fn refused_items_are_not_skipped_if_the_reply_is_lost() {
    refused_items::<Database>();
    refused_items::<MariaDb>();
}

/// Loses the reply to a transaction in which a filter refuses an item.
fn refused_items<D: Followed>() {
    let rows = |ids: RangeInclusive<u64>| ids.map(|id| format!("({id}, 1)")).collect::<Vec<_>>().join(",");
    on_every_server(|program| {
        for (mode, (create, error)) in D::MODES.iter().flat_map(|mode| LIMITS.map(|limit| (mode, limit))) {
            let table = USERS_TABLE.replace("0.000001 100000 HASH siphash", create);
            let world = World::between(mode, D::start(&[]), Server::with(program), D::USERS, &table);
            let proxy = Proxy::before_server(&world);
            let mut follower = world.following();
            let (mut client, mut session) = (world.server.connect(), world.session());
            session.run(&format!("INSERT INTO users VALUES {}", rows(1..=60)));
            soon(|| has(&mut client, 60) && open_keys(&mut client) == 0);
            client.run("CONFIG SET bf.max-filter-bytes 1");
            proxy.lose_reply(error);
            let replace = format!("BEGIN; DELETE FROM users; INSERT INTO users VALUES {}; COMMIT", rows(61..=140));
            world.while_running(&replace, || {
                soon(|| proxy.has_lost_reply());
                client.run("CONFIG SET bf.max-filter-bytes 0");
            });
            soon(|| (61..=140).all(|id| has(&mut client, id)) && beats(&mut client));
            follower.end();
        }
    });
}

//! Changes of role: a killed primary, a failover on request under load, and a former primary that rejoins. The new primary has
//! everything that WAIT confirmed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::{GROWING, LAYOUTS, StopAtEnd, assert_equal, catch_up, denied, effort, follow};
use testing::{Connection, Reply, Rng, Server, Stop, eventually, figures, integer, ok, on_every_server};

/// The items of each layout's filter that must be found from now on.
type Kept = [Mutex<Vec<String>>; GROWING];

/// Returns the arguments of an add to a filter of the layout, which creates the filter if it is missing.
fn add(layout: usize, items: &[String]) -> Vec<&str> {
    let (key, words) = LAYOUTS[layout];
    let mut line = vec!["BF.INSERT", key, "CAPACITY", "100"];
    line.extend(words.iter().chain(&["ITEMS"]));
    line.extend(items.iter().map(String::as_str));
    line
}

fn assert_nothing_lost(occasion: &str, client: &mut Connection, kept: &Kept) -> usize {
    let mut checked = 0;
    for ((key, _), items) in LAYOUTS.iter().zip(kept) {
        let items = items.lock().unwrap();
        assert_eq!(denied(client, key, &items), 0, "{occasion}: {key} lost some of {}", items.len());
        checked += items.len();
    }
    checked
}

/// Adds items and waits for the replica's confirmation until the server is gone.
fn add_until_killed(mut client: Connection, name: &str, kept: &Kept) {
    for number in 0.. {
        let layout = number % GROWING;
        let items: Vec<String> = (0..number % 20 + 1).map(|item| format!("{name}/{number}/{item}")).collect();
        let new = match client.try_call(&add(layout, &items)) {
            Ok(Reply::Array(answers)) => answers.iter().any(Reply::truth),
            Ok(other) => panic!("an add answered {other:?}"),
            Err(_) => return,
        };
        // If nothing was new, nothing was sent to the replica, and WAIT has nothing to wait for.
        if let Ok(Reply::Integer(1..)) = client.try_call(&["WAIT", "1", "1000"])
            && new
        {
            kept[layout].lock().unwrap().extend(items);
        }
    }
}

#[test]
fn adds_confirmed_by_wait_survive_a_killed_primary() {
    on_every_server(|program| {
        let mut servers = [Server::start(program), Server::start(program)];
        let kept = Kept::default();
        let mut rng = Rng::new(4);
        let (kills, mut checked) = (effort(8), 0);
        for round in 0..kills {
            let (first, second) = servers.split_at_mut(1);
            let (old, new) =
                if round % 2 == 0 { (&mut first[0], &mut second[0]) } else { (&mut second[0], &mut first[0]) };
            let mut replica = new.connect();
            // Before the first replica's link is up, WAIT may confirm writes that no replica has; see the test below.
            follow(&mut replica, old.port);
            catch_up(&mut old.connect(), &mut replica);
            let before: usize = kept.iter().map(|items| items.lock().unwrap().len()).sum();
            thread::scope(|scope| {
                for worker in 0..3 {
                    let (client, kept) = (old.connect(), &kept);
                    scope.spawn(move || add_until_killed(client, &format!("{round}/{worker}"), kept));
                }
                // The kill happens in the middle of a stream that a replica follows.
                let confirmed = || kept.iter().map(|items| items.lock().unwrap().len()).sum::<usize>();
                eventually("something to be confirmed", || confirmed() > before);
                thread::sleep(Duration::from_millis(rng.below(300)));
                old.stop(Stop::Kill);
            });
            assert_eq!(replica.run("REPLICAOF NO ONE"), ok());
            checked = assert_nothing_lost(&format!("round {round}"), &mut replica, &kept);

            // The former primary restarts empty, synchronises, and is promoted next.
            old.start_again();
            let mut former = old.connect();
            follow(&mut former, new.port);
            catch_up(&mut replica, &mut former);
            assert_equal("the former primary", &mut replica, &mut former);
        }
        figures(&format!("failover: {kills} kills survived, {checked} adds verified after the last"));
    });
}

/// A replica that receives the stream but never acknowledges it, like one that is still loading.
fn silent_replica(port: u16) -> Connection {
    let mut link = Connection::open(port).expect("the primary accepts a connection");
    assert_eq!(link.run("REPLCONF capa eof capa psync2"), ok());
    let reply = link.run("PSYNC ? -1");
    assert!(reply.text().starts_with("FULLRESYNC "), "{reply:?}");
    link
}

/// Not about filters: WAIT may wrongly confirm a string, which is why applications must wait for the replica's link before
/// they rely on it.
#[test]
fn wait_may_confirm_a_write_from_before_the_first_replica_that_no_replica_has() {
    on_every_server(|program| {
        let primary = Server::start(program);
        let (mut client, mut control) = (primary.connect(), primary.connect());
        assert_eq!(client.run("SET string made-before"), ok());
        let link = silent_replica(primary.port);
        eventually("the primary to have sent everything", || control.info("slave0").contains("state=online"));
        // The write is at offset 0, which every replica has reached: the server starts counting with its first replica.
        assert_eq!(client.run("WAIT 1 100"), integer(1), "although nothing was acknowledged");
        // For later writes it waits.
        assert_eq!(client.run("SET string made-after"), ok());
        assert_eq!(client.run("WAIT 1 100"), integer(0));
        drop(link);
    });
}

/// Adds to whichever server accepts writes, and records the acknowledged adds.
fn add_until_stopped(servers: &[Server; 2], name: &str, stop: &AtomicBool, refused: &AtomicUsize, kept: &Kept) {
    let mut clients = [servers[0].connect(), servers[1].connect()];
    let mut current = 0;
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let layout = number % GROWING;
        let items: Vec<String> = (0..number % 20 + 1).map(|item| format!("{name}/{number}/{item}")).collect();
        loop {
            match clients[current].call(&add(layout, &items)) {
                Reply::Array(_) => break,
                Reply::Error(text) if text.starts_with("READONLY") || text.starts_with("LOADING") => {
                    refused.fetch_add(1, Ordering::Relaxed);
                    current = 1 - current;
                }
                other => panic!("an add answered {other:?}"),
            }
        }
        kept[layout].lock().unwrap().extend(items);
    }
}

#[test]
fn a_failover_under_load_loses_no_acknowledged_add() {
    on_every_server(|program| {
        let servers = [Server::start(program), Server::start(program)];
        let mut clients = [servers[0].connect(), servers[1].connect()];
        follow(&mut clients[1], servers[0].port);
        let [one, two] = &mut clients;
        catch_up(one, two);
        let kept = Kept::default();
        let (stop, refused) = (AtomicBool::new(false), AtomicUsize::new(0));
        let hand_overs = effort(8);
        let mut primary = 0;
        thread::scope(|scope| {
            for worker in 0..3 {
                let (servers, stop, refused, kept) = (&servers, &stop, &refused, &kept);
                scope.spawn(move || add_until_stopped(servers, &worker.to_string(), stop, refused, kept));
            }
            let _end = StopAtEnd(&stop);
            for _ in 0..hand_overs {
                thread::sleep(Duration::from_millis(50));
                let before = refused.load(Ordering::Relaxed);
                assert_eq!(clients[primary].run("FAILOVER"), ok());
                eventually("the roles to change", || {
                    clients[primary].info("role") == "slave"
                        && clients[1 - primary].info("role") == "master"
                        && clients[primary].info("master_link_status") == "up"
                });
                eventually("a writer to be sent on", || refused.load(Ordering::Relaxed) > before);
                primary = 1 - primary;
            }
        });
        let (first, second) = clients.split_at_mut(1);
        let (new, old) = if primary == 0 { (&mut first[0], &mut second[0]) } else { (&mut second[0], &mut first[0]) };
        catch_up(new, old);
        assert_equal("after the hand-overs", new, old);
        let checked = assert_nothing_lost("new primary", new, &kept);
        assert_nothing_lost("former primary", old, &kept);
        let refused = refused.into_inner();
        figures(&format!(
            "hand-over: {hand_overs} hand-overs, {checked} adds verified, {refused} sent to the other server"
        ));
    });
}

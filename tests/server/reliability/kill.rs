//! Repeats kill -9 during pipelined adds to filters of every layout, and during deletes, with `appendfsync always`, also while
//! the append-only file is rewritten. A reply means that the add or delete is on disk: nothing that was acknowledged is lost,
//! and afterwards the false positive rate is within the requested one.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use super::{LAYOUTS, hits, most_hits, rate_of, scaled};
use testing::{Connection, Reply, Rng, Server, Stop, eventually, figures, on_every_server};

/// The maximum number of commands in flight.
const WINDOW: usize = 24;

/// The acknowledged items, by layout.
type Acknowledged = [Mutex<Vec<String>>; LAYOUTS.len()];

/// Adds to all filters in turn until the connection breaks, and reads every reply that still arrives.
fn add_until_the_end(mut client: Connection, name: &str, acknowledged: &Acknowledged) {
    let mut waiting: VecDeque<(usize, Vec<String>)> = VecDeque::new();
    let mut number = 0;
    let mut alive = true;
    loop {
        while alive && waiting.len() < WINDOW {
            let layout = number % LAYOUTS.len();
            let items: Vec<String> = (0..number % 7 * 3 + 1).map(|item| format!("{name}/{number}/{item}")).collect();
            let mut words = vec![if items.len() == 1 { "BF.ADD" } else { "BF.MADD" }, LAYOUTS[layout].0];
            words.extend(items.iter().map(String::as_str));
            alive = client.send(&words).is_ok();
            waiting.push_back((layout, items));
            number += 1;
        }
        let (Ok(reply), Some((layout, items))) = (client.receive(), waiting.pop_front()) else { return };
        let answers = if let Reply::Array(answers) = reply { answers } else { vec![reply] };
        assert_eq!(answers.len(), items.len());
        assert!(!answers.iter().any(Reply::is_error), "an add failed: {answers:?}");
        acknowledged[layout].lock().unwrap().extend(items);
    }
}

/// Filters that allow deletes: the options of each, and whether a deleted item is certainly absent.
const DELETING: [(&str, &str, bool); 4] = [
    ("keyed", "0.01 100000 HASH siphash", true),
    ("sliding", "0.01 800000 WINDOW 100000000 SLIDING HASH siphash", true),
    ("rolling", "0.01 1000000 ROLLING HASH siphash", true),
    ("counting", "0.01 1000000 COUNTING", false),
];

/// The items acknowledged as added, and those acknowledged as deleted, by filter.
type Answered = [Mutex<[Vec<String>; 2]>; DELETING.len()];

/// Adds eight items, deletes five of them, and adds two of these again, until the connection breaks.
fn delete_until_the_end(mut client: Connection, name: &str, answered: &Answered) {
    for number in 0.. {
        let filter = number % DELETING.len();
        let items: Vec<String> = (0..8).map(|item| format!("{name}/{number}/{item}")).collect();
        let lines = [("BF.MADD", &items[..]), ("BF.MDEL", &items[..5]), ("BF.MADD", &items[..2])];
        for (command, items) in lines {
            let mut words = vec![command, DELETING[filter].0];
            words.extend(items.iter().map(String::as_str));
            if client.send(&words).is_err() {
                return;
            }
        }
        let replies = lines.map(|_| client.receive());
        let mut answered = answered[filter].lock().unwrap();
        let [is_in, is_out] = &mut *answered;
        let [Ok(_), deleted, again] = replies else { return };
        // An unacknowledged item may be present or absent. If the table is full, the array ends with an error.
        if let Ok(deleted) = deleted {
            let gone = deleted.elements().iter().filter(|answer| !answer.is_error()).count();
            is_out.extend_from_slice(&items[2.min(gone)..gone]);
            is_in.extend_from_slice(&items[gone.max(2)..5]);
        }
        if again.is_ok() {
            is_in.extend_from_slice(&items[..2]);
        }
        is_in.extend_from_slice(&items[5..]);
    }
}

#[test]
fn no_acknowledged_delete_is_lost_over_many_kills() {
    on_every_server(|program| {
        let mut server = Server::with(program)
            .line("appendonly yes")
            .line("appendfsync always")
            .line("auto-aof-rewrite-percentage 0")
            .start();
        let mut client = server.connect();
        for (name, words, _) in DELETING {
            assert!(!client.run(&format!("BF.RESERVE {name} {words}")).is_error(), "{name}");
        }
        let mut rng = Rng::new(0xde1);
        let answered = Answered::default();
        let kills = scaled(10);
        for round in 0..kills {
            thread::scope(|scope| {
                for worker in 0..2 {
                    let (client, answered) = (server.connect(), &answered);
                    scope.spawn(move || delete_until_the_end(client, &format!("{round}/{worker}"), answered));
                }
                let mut control = server.connect();
                if round == 0 {
                    let has_deletes = || answered.iter().all(|lists| !lists.lock().unwrap()[1].is_empty());
                    eventually("a delete in every filter to be answered", has_deletes);
                }
                thread::sleep(Duration::from_millis(20 + rng.below(40)));
                if round % 2 == 1 {
                    control.run(&format!("CONFIG SET aof-use-rdb-preamble {}", ["yes", "no"][round / 2 % 2]));
                    control.run("BGREWRITEAOF");
                }
                thread::sleep(Duration::from_millis(rng.below(30)));
                server.stop(Stop::Kill);
            });
            server.start_again();
            let mut client = server.connect();
            for ((name, _, is_certain), answered) in DELETING.iter().zip(&answered) {
                let [is_in, is_out] = &*answered.lock().unwrap();
                let lost = is_in.len() - hits(&mut client, name, is_in);
                assert_eq!(lost, 0, "round {round}, {name}: {lost} of {} items are lost", is_in.len());
                let back = hits(&mut client, name, is_out);
                let is_sound = if *is_certain { back == 0 } else { back <= most_hits(is_out.len(), 0.01) };
                assert!(is_sound, "round {round}, {name}: {back} of {} deleted items are back", is_out.len());
            }
        }
        let count = |side: usize| answered.iter().map(|lists| lists.lock().unwrap()[side].len()).sum::<usize>();
        assert!(count(1) > 0, "no delete was answered");
        figures(&format!(
            "kill among deletes: {kills} kills survived, {} adds verified, {} deletes",
            count(0),
            count(1)
        ));
    });
}

#[test]
fn no_acknowledged_add_is_lost_over_many_kills() {
    on_every_server(|program| {
        let mut server = Server::with(program)
            .line("appendonly yes")
            .line("appendfsync always")
            .line("auto-aof-rewrite-percentage 0")
            .start();
        let mut client = server.connect();
        for (name, line) in LAYOUTS {
            assert!(!client.run(line).is_error(), "{name}");
        }
        let mut rng = Rng::new(0x5eed);
        let acknowledged = Acknowledged::default();
        let kills = scaled(25);
        let mut during_rewrite = 0;
        let mut checked = [0; LAYOUTS.len()];
        for round in 0..kills {
            thread::scope(|scope| {
                for worker in 0..2 {
                    let (client, list) = (server.connect(), &acknowledged);
                    scope.spawn(move || add_until_the_end(client, &format!("{round}/{worker}"), list));
                }
                let mut control = server.connect();
                if round == 0 {
                    // However slow the disk is, every filter has more than its first layer holds.
                    let all_grow = || acknowledged.iter().all(|list| list.lock().unwrap().len() > 300);
                    eventually("every filter to grow", all_grow);
                }
                thread::sleep(Duration::from_millis(rng.below(40)));
                if round % 2 == 1 {
                    control.run(&format!("CONFIG SET aof-use-rdb-preamble {}", ["yes", "no"][round / 2 % 2]));
                    control.run("BGREWRITEAOF");
                    thread::sleep(Duration::from_millis(rng.below(12)));
                    during_rewrite += usize::from(control.info("aof_rewrite_in_progress") == "1");
                }
                thread::sleep(Duration::from_millis(rng.below(30)));
                server.stop(Stop::Kill);
            });
            server.start_again();
            let mut client = server.connect();
            // The items of this round; sometimes, and at the end, all items.
            let whole = round % 25 == 24 || round + 1 == kills;
            for ((name, _), (list, checked)) in LAYOUTS.iter().zip(acknowledged.iter().zip(&mut checked)) {
                let list = list.lock().unwrap();
                let asked = &list[if whole { 0 } else { *checked }..];
                let lost = asked.len() - hits(&mut client, name, asked);
                assert_eq!(lost, 0, "round {round}, {name}: {lost} of {} acknowledged items are lost", asked.len());
                *checked = list.len();
            }
        }
        let mut client = server.connect();
        let strangers: Vec<String> = (0..20_000).map(|number| format!("never added {number}")).collect();
        let mut verified = 0;
        for ((name, _), list) in LAYOUTS.iter().zip(&acknowledged) {
            let items = list.lock().unwrap().len();
            let card = client.run(&format!("BF.CARD {name}")).number();
            let layers = client.run(&format!("BF.INFO {name}")).field("Number of filters").number();
            assert!(layers > 1 && card > 100, "{name} did not grow: {card} items in {layers} layers");
            let wrong = hits(&mut client, name, &strangers);
            assert!(
                wrong <= most_hits(strangers.len(), rate_of(name)),
                "{name}: {wrong} of {} strangers pass",
                strangers.len()
            );
            eprintln!(
                "  {name}: {items} adds acknowledged, {card} items, {layers} layers, {wrong}/20000 strangers pass"
            );
            verified += items;
        }
        figures(&format!("kill: {kills} kills survived, {during_rewrite} during a rewrite, {verified} adds verified"));
    });
}

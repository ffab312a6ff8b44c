//! A stampede: many clients wait for one row in BF.FETCH until one fills it, compared with PUBLISH to the same number of
//! subscribers.

use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::instance::Instance;
use crate::results::Results;
use crate::statistics::Samples;
use crate::table::{Cell, Table, summary};
use crate::variants::Bench;
use testing::{Connection, Reply};

use super::rows::{FILTER, cached, first_word, value};

/// The number of waiting clients, and of subscribers.
const CLIENTS: u64 = 1_000;
const CHANNEL: &str = "rows";
/// A wait longer than a round, in ms.
const LONG: &str = "60000";

/// Measures, and adds the table to the results. The filter exists.
pub fn run(bench: &Bench, server: &Instance, results: &mut Results) -> Result<()> {
    let rounds = bench.rounds(15, 5);
    let many = "cannot connect (`ulimit -n` has to be above 2000)";
    let mut filler = Connection::open(server.port)?;
    let [mut waiting, mut subscribed] = [clients(server).context(many)?, clients(server).context(many)?];
    for client in &mut subscribed {
        client.try_call(&["SUBSCRIBE", CHANNEL])?;
    }
    let (mut fills, mut publishes) = (Samples::new(), Samples::new());
    for round in 0..rounds {
        eprintln!("bench: guard, stampede {} of {rounds}", round + 1);
        let token = crowd(server, &mut filler, &mut waiting)?;
        let fill = ["BF.FILL", FILTER, "0", &cached(0), &token, "VALUE", &value()];
        fills.push(answered(&mut filler, &fill, &mut waiting, "hit")?);
        publishes.push(answered(&mut filler, &["PUBLISH", CHANNEL, &value()], &mut subscribed, "message")?);
    }
    let mut table =
        Table::new("guard-stampede", "A stampede", &["what", "clients", "rounds", "ms", "least", "most", "x PUBLISH"]);
    for (name, samples) in [("PUBLISH to subscribers", &publishes), ("BF.FILL for those in BF.FETCH WAIT", &fills)] {
        let mut cells: Vec<Cell> = vec![name.into(), CLIENTS.into(), (rounds as u64).into()];
        cells.extend(summary(samples));
        cells.push(samples.ratio_to(&publishes).into());
        table.row(cells);
    }
    table.note(
        "From sending the command until the last client has read its answer, one round of each in turn on one server; the same \
         value in both. All clients are connections of one program. The aim is 1.3 times PUBLISH.",
    );
    results.table(&table)
}

fn clients(server: &Instance) -> std::io::Result<Vec<Connection>> {
    (0..CLIENTS).map(|_| Connection::open(server.port)).collect()
}

/// Makes all clients wait for a row that is not cached. Returns the token of its lease.
fn crowd(server: &Instance, filler: &mut Connection, waiting: &mut [Connection]) -> Result<String> {
    let key = cached(0);
    filler.try_call(&["DEL", &key])?;
    let reply = filler.try_call(&["BF.FETCH", FILTER, "0", &key, "LEASE", LONG])?;
    ensure!(first_word(&reply) == "load", "BF.FETCH gives no lease: {reply:?}");
    let token = reply.elements().last().map(first_word).unwrap_or_default();
    for client in waiting {
        client.send(&["BF.FETCH", FILTER, "0", &key, "WAIT", LONG])?;
    }
    let start = Instant::now();
    while server.info_number("bf", "bf_bloom_waiting")? < CLIENTS {
        ensure!(start.elapsed().as_secs() < 10, "not all clients wait");
    }
    Ok(token)
}

/// Sends a command and reads the replies that the other clients get. Returns the duration in ms.
fn answered(filler: &mut Connection, words: &[&str], others: &mut [Connection], expected: &str) -> Result<f64> {
    let mut last = Reply::Null;
    let start = Instant::now();
    filler.send(words)?;
    for client in others {
        last = client.receive()?;
        ensure!(first_word(&last) == expected, "{expected} was expected, and is answered {last:?}");
    }
    let taken = start.elapsed();
    let reply = filler.receive()?;
    ensure!(!reply.is_error() && reply != Reply::NullBulk, "{} is answered {reply:?}", words[0]);
    let got = last.elements().last().map(first_word);
    ensure!(got == Some(value()), "the value is not the one that was sent: {last:?}");
    Ok(taken.as_secs_f64() * 1e3)
}

//! Random commands on filters of every kind, while the servers fork, are killed, fail over and change places. A model knows
//! every acknowledged item, and what a failover may lose.
//!
//! A round begins with a fresh primary and replica and is drawn from one number. The first round has the number
//! `BLOOMGATE_SEED` (1 where it is not set), the next one more, and `BLOOMGATE_EFFORT` (1) is the factor for how many rounds
//! there are. What the servers do with their own time, such as a save or the expiry of a window, differs between runs.
//!
//! Each reply has to be what the model allows, each error too. After quiet moments, restarts and failovers, the digests of
//! primary and replica are equal, every member is found, and what was deleted is not. A failure prints the last commands.

mod check;
mod commands;
mod draw;
mod driver;
mod faults;
mod filter;
mod guard;
mod model;
mod pair;
mod replies;
mod shapes;
mod trail;

use crate::fleet::effort;
use crate::harness::{figures, on_every_server};
use driver::{Counts, Driver};

/// Rounds of a usual run on each server.
const ROUNDS: usize = 4;

#[test]
fn random_commands_survive_forks_kills_and_promotions() {
    let first: u64 = std::env::var("BLOOMGATE_SEED").map_or(1, |text| text.parse().expect("a number"));
    on_every_server(|program| {
        let mut counts = Counts::default();
        let rounds = effort(ROUNDS);
        for round in 0..rounds {
            Driver::start(program, first + round as u64, &mut counts).round();
        }
        assert!(rounds < ROUNDS || counts.has_everything(), "a usual run has some of each: {counts:?}");
        figures(&format!("chaos: {rounds} rounds from {first}, {counts}"));
    });
}

//! Random commands on filters of every kind, while the servers fork, are killed and fail over. A model knows every
//! acknowledged item, and which of them a failover may lose.
//!
//! Each round starts a fresh primary and replica, and is determined by its seed. The first round's seed is `BLOOMGATE_SEED`
//! (default 1), and each later round adds 1. `BLOOMGATE_EFFORT` (default 1) multiplies the number of rounds. The timing of
//! saves and the expiry of windows still differ between runs.
//!
//! The model checks every reply, errors included. After idle moments, restarts and failovers, primary and replica have equal
//! digests, every member is found, and deleted items are not. A failing test prints the last commands.

mod check;
mod commands;
mod draw;
mod driver;
mod faults;
mod filter;
mod guard;
mod model;
mod pair;
mod records;
mod replies;
mod shapes;
mod trail;

use crate::fleet::effort;
use driver::{Counts, Driver};
use testing::{figures, on_every_server};

/// The number of rounds per server.
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

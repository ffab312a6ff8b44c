//! The same commands to both, right ones and wrong ones, in RESP2 and RESP3: the replies are the same, type and text, and so
//! are the filters, to the byte, but for what the table of differences has.

mod differences;
mod lines;
mod twins;

use super::{Peer, Side, beside_redisbloom, rng};
use crate::reliability::scaled;
use differences::DIFFERENCES;
use testing::figures;
use twins::{LINES, Twins};

/// So many sets of keys there are, enough for every difference to occur.
const ROUNDS: usize = 100;

fn random_commands(peer: &Peer) {
    let mut rng = rng("random commands");
    let [ours, theirs] = Side::BOTH.map(|side| peer.start(side, &[]));
    let mut twins = Twins::new(peer.major, &ours, &theirs);
    let rounds = scaled(ROUNDS);
    for round in 0..rounds {
        twins.speak(&ours, &theirs, if round % 2 == 0 { 2 } else { 3 });
        twins.round(&mut rng);
    }
    let unknown: Vec<&str> = twins.unknown.values().map(String::as_str).collect();
    assert!(unknown.is_empty(), "{} differences are not in the table:\n\n{}", unknown.len(), unknown.join("\n\n"));
    for (place, difference) in DIFFERENCES.iter().enumerate().filter(|(_, it)| (it.releases)(peer.major)) {
        let count = twins.occurred.get(&place).copied().unwrap_or(0);
        eprintln!("{count:6} {}", difference.what);
        // A shorter run need not meet all of them.
        assert!(count > 0 || rounds < ROUNDS, "this did not occur, is it still a difference? {}", difference.what);
    }
    figures(&format!("random commands beside RedisBloom {}: {} executions", peer.major, rounds * LINES));
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn random_commands_get_the_same_replies_but_for_known_differences() {
    beside_redisbloom(random_commands);
}

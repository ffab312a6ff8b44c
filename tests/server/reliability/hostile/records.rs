//! Damages the input of BF.LOADCHUNK and BF.LOAD: the bytes of a record, its iterator, and the order of records.

use super::damage::{EDGES, damage_bytes, pick};
use super::values::{dumpable, kept, make};
use testing::{Connection, Rng, Server};

/// A dump: iterators and data.
pub type Dump = Vec<(String, Vec<u8>)>;

/// The arguments of a command.
type Words = Vec<Vec<u8>>;

/// Dumps the filter at `k`.
pub fn dump_of(client: &mut Connection) -> Dump {
    let mut records = Vec::new();
    let mut iterator = "0".to_owned();
    loop {
        let reply = client.run(&format!("BF.SCANDUMP k {iterator}"));
        iterator = reply.elements()[0].number().to_string();
        if iterator == "0" {
            return records;
        }
        records.push((iterator.clone(), reply.elements()[1].bytes().to_vec()));
    }
}

/// Returns dumps of filters of every shape.
pub fn dumps(server: &Server) -> Vec<Dump> {
    let mut client = server.connect();
    let mut dump = |(words, items): (&str, usize)| {
        make(&mut client, words, items);
        let dump = dump_of(&mut client);
        client.run("DEL k");
        dump
    };
    dumpable().map(&mut dump).collect()
}

/// Returns the kept inputs of the fuzz target of BF.LOAD.
pub fn loads() -> Vec<Vec<u8>> {
    kept("valkey_bloom_load")
}

/// Returns a BF.LOAD command with damaged data.
pub fn damaged_load(rng: &mut Rng, loads: &[Vec<u8>]) -> Vec<Words> {
    let mut data = pick(rng, loads).clone();
    if rng.below(4) > 0 {
        let other = pick(rng, loads);
        damage_bytes(rng, &mut data, other);
    }
    vec![vec![b"BF.LOAD".to_vec(), b"k".to_vec(), data]]
}

/// Returns the BF.LOADCHUNK commands of a damaged dump.
pub fn damaged_dump(rng: &mut Rng, dumps: &[Dump]) -> Vec<Words> {
    let mut dump = pick(rng, dumps).clone();
    for _ in 0..rng.below(3) {
        if dump.is_empty() {
            break;
        }
        let place = rng.below(dump.len() as u64) as usize;
        let other = pick(rng, dumps);
        match rng.below(8) {
            0 => drop(dump.remove(place)),
            1 => dump.insert(place, dump[place].clone()),
            2 => dump.insert(place, pick(rng, other).clone()),
            3 => {
                let with = rng.below(dump.len() as u64) as usize;
                dump.swap(place, with);
            }
            4 => dump[place].0 = (*pick(rng, &EDGES) as i64).to_string(),
            5 => {
                let iterator = dump[place].0.parse::<i64>().unwrap_or(0);
                dump[place].0 = iterator.wrapping_add(rng.below(9) as i64 - 4).to_string();
            }
            _ => damage_bytes(rng, &mut dump[place].1, &other[0].1),
        }
    }
    let command = |(iterator, data): (String, Vec<u8>)| {
        vec![b"BF.LOADCHUNK".to_vec(), b"k".to_vec(), iterator.into_bytes(), data]
    };
    dump.into_iter().map(command).collect()
}

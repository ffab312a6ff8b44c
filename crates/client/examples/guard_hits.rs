//! Compares hits of the guard with GET: prints `threads,hits per second,GETs per second` for each round.
//!
//! `cargo run --release -p bloomgate-client --example guard_hits -- --callers 64 --rounds 7 --lookups 64000 URL`. The server needs
//! the module; the program replaces the keys that begin with `bench` or `{bench}`. 1000 rows of 200 bytes are cached, and each caller
//! looks up one random row after another. Each caller of GET has its own connection; the guard's client has the same number of
//! connections.

use std::env;
use std::error::Error;
use std::io;
use std::thread;
use std::time::Instant;

use bloomgate_client::{Client, Filter, Guard, GuardOptions, Options, fill_filter};
use redis::Commands;

const ROWS: u64 = 1000;
/// The length of a row in bytes.
const LENGTH: usize = 200;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ["--callers", callers, "--rounds", rounds, "--lookups", lookups, url] = words.as_slice() else {
        return Err("usage: guard_hits --callers N --rounds N --lookups N URL".into());
    };
    let (callers, rounds, lookups): (usize, usize, usize) = (callers.parse()?, rounds.parse()?, lookups.parse()?);
    let server = redis::Client::open(*url)?;
    let client = Client::of(server.clone()).with_connections(callers);
    prepare(&server, &client)?;
    let guard = Guard::new(&client, "bench", GuardOptions::default())?;
    let connections = (0..callers).map(|_| server.get_connection());
    let mut connections: Vec<_> = connections.collect::<redis::RedisResult<_>>()?;
    let never = |_| Err(io::Error::other("a row was not cached"));
    for _ in 0..rounds {
        let hits = rate((0..callers).map(|_| |id: u64| Ok(guard.get(id, never)?)), lookups)?;
        let gets = rate(connections.iter_mut().map(|one| |id: u64| Ok(one.get(format!("{{bench}}:{id}"))?)), lookups)?;
        println!("threads,{hits:.0},{gets:.0}");
    }
    Ok(())
}

/// Announces and caches every row, for an hour.
fn prepare(server: &redis::Client, client: &Client) -> Result<()> {
    Filter::new(client, "bench").drop()?;
    fill_filter(client, "bench", 0..ROWS, 0.001, ROWS, &Options::default(), &Default::default())?;
    let mut connection = server.get_connection()?;
    for id in 0..ROWS {
        connection.set_ex::<_, _, ()>(format!("{{bench}}:{id}"), [b'x'; LENGTH].as_slice(), 3600)?;
    }
    Ok(())
}

/// Returns the total lookups per second of the callers, each in its own thread.
fn rate<C>(callers: impl ExactSizeIterator<Item = C>, lookups: usize) -> Result<f64>
where
    C: FnMut(u64) -> Result<Option<Vec<u8>>> + Send,
{
    let each = lookups / callers.len();
    let begun = Instant::now();
    thread::scope(|scope| {
        let work = |mut look_up: C| {
            for _ in 0..each {
                let row = look_up(fastrand::u64(..ROWS))?;
                if row.is_none_or(|row| row.len() != LENGTH) {
                    return Err("a row was not cached".into());
                }
            }
            Result::Ok(())
        };
        let running: Vec<_> = callers.map(|caller| scope.spawn(move || work(caller))).collect();
        running.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a caller panicked")?)
    })?;
    Ok(lookups as f64 / begun.elapsed().as_secs_f64())
}

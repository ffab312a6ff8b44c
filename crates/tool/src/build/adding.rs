//! Adds the lines of the input to a filter. Several threads split and hash the lines, and one adds them in the order of the
//! input, because the order decides which items count as new and where the filter grows. So the filter equals the one that a
//! server builds.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use anyhow::{Result, anyhow};
use bloomgate_filter::hash::{HashBatch, Hasher};
use bloomgate_filter::kinds::{Origin, Spec};
use bloomgate_filter::words::Refusal;
use bloomgate_filter::{BATCH, CLIENT_LAYERS_MAX, Ceiling, Error, Filter, Moment};
use indicatif::HumanCount;

use super::lines::{Blocks, lines};
use crate::progress::Bar;
use crate::report::counted;
use crate::stream::input::BytesRead;

/// The maximum number of blocks that wait for each thread.
const WAITING: usize = 4;

/// The ceiling of `build`: as many layers as a server's client can create, and any amount of memory.
pub struct AsAClient;

impl Ceiling for AsAClient {
    fn available_bytes(&self, _filter_bytes: u64, _asked_bytes: u64) -> u64 {
        u64::MAX
    }

    fn layers_max(&self) -> usize {
        CLIENT_LAYERS_MAX
    }
}

/// The result of adding lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Lines read.
    pub lines: u64,
    /// Lines that were new.
    pub new: u64,
}

/// A block on its way to the thread that adds.
enum Work {
    /// The hashes of the lines, which are enough for a native filter.
    Hashes(Vec<HashBatch>),
    /// The lines, for any other filter.
    Lines(Vec<u8>),
}

impl Work {
    fn of(block: Vec<u8>, hasher: Option<Hasher>) -> Self {
        let Some(hasher) = hasher else { return Self::Lines(block) };
        let mut hashes = Vec::with_capacity(block.len() / 16 / BATCH);
        let mut lines = lines(&block);
        loop {
            let batch = hasher.hash_batch(&mut lines);
            hashes.push(batch);
            if batch.len() < BATCH {
                return Self::Hashes(hashes);
            }
        }
    }
}

/// Adds all lines of `inputs`.
///
/// # Errors
/// A file cannot be read; the filter is full or cannot grow.
pub fn add_all(filter: &mut Filter, inputs: &[PathBuf], threads: usize, bar: &Bar) -> Result<Tally> {
    let hasher = if let Spec::Native(spec) = filter.spec() { Some(spec.hasher) } else { None };
    let read_bytes = BytesRead::default();
    let blocks = || Blocks::of(inputs, read_bytes.clone());
    let mut tally = Tally::default();
    let mut add = |work: Work| -> Result<()> {
        add_block(filter, work, &mut tally)?;
        let message = || format!("{}, {} of them new", counted(tally.lines, "line"), HumanCount(tally.new));
        bar.set(read_bytes.load(Ordering::Relaxed), message);
        Ok(())
    };
    if threads < 2 {
        let mut blocks = blocks();
        while let Some(block) = blocks.next()? {
            add(Work::of(block, hasher))?;
        }
        return Ok(tally);
    }
    thread::scope(|scope| {
        let (mut to_threads, mut from_threads) = (Vec::new(), Vec::new());
        for _ in 1..threads {
            let (to_thread, blocks) = sync_channel::<Vec<u8>>(WAITING);
            let (works, from_thread) = sync_channel(WAITING);
            scope.spawn(move || hash_all(&blocks, &works, hasher));
            to_threads.push(to_thread);
            from_threads.push(from_thread);
        }
        // Blocks are sent to the threads in turn and received in the same order, which preserves the order of the input.
        let reader = scope.spawn(move || read_all(blocks(), &to_threads));
        let added = from_threads.iter().cycle().map_while(|thread| thread.recv().ok()).try_for_each(&mut add);
        // Threads that are blocked on sending end now.
        drop(from_threads);
        let read = reader.join().map_err(|_| anyhow!("the thread that reads the input panicked"))?;
        added.and(read)
    })?;
    Ok(tally)
}

fn read_all(mut blocks: Blocks, threads: &[SyncSender<Vec<u8>>]) -> Result<()> {
    for thread in threads.iter().cycle() {
        let Some(block) = blocks.next()? else { break };
        // The receivers are gone if adding failed.
        if thread.send(block).is_err() {
            break;
        }
    }
    Ok(())
}

fn hash_all(blocks: &Receiver<Vec<u8>>, works: &SyncSender<Work>, hasher: Option<Hasher>) {
    for block in blocks {
        if works.send(Work::of(block, hasher)).is_err() {
            break;
        }
    }
}

fn add_block(filter: &mut Filter, work: Work, tally: &mut Tally) -> Result<()> {
    match (work, filter) {
        (Work::Hashes(hashes), Filter::Native(filter)) => {
            for batch in &hashes {
                let added = filter.add_batch(batch, &AsAClient);
                tally.count(added.done, added.new.len().into(), added.error)?;
            }
        }
        (Work::Lines(block), filter) => {
            let mut lines = lines(&block).peekable();
            while lines.peek().is_some() {
                let batch = lines.by_ref().take(BATCH);
                let added = filter.add_batch(batch, Origin::Client, &Moment(0), &AsAClient);
                tally.count(added.done, added.new.len().into(), added.error)?;
            }
        }
        // Only lines for native filters are hashed.
        (Work::Hashes(_), _) => return Err(anyhow!("lines were hashed for a filter that is not native")),
    }
    Ok(())
}

impl Tally {
    fn count(&mut self, done: usize, new: u64, error: Option<Error>) -> Result<()> {
        self.lines += done as u64;
        self.new += new;
        let Some(error) = error else { return Ok(()) };
        let refusal = Refusal::from(error).to_string();
        Err(anyhow!("line {} was refused: {}", HumanCount(self.lines + 1), refusal.trim_start_matches("ERR "))
            .context(format!("after {}", counted(self.lines, "line"))))
    }
}

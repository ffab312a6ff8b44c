//! `bloomgate watch`: a live view of a server's filters: how full they are, their false positive rates, and adds and lookups per second. It
//! only reads, and scans a limited number of keys per sample.

mod screen;
mod table;

use std::io::{IsTerminal, stdout};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Error, Result, anyhow};

use crate::numbers;
use crate::report::{print, wait_with_reader};
use crate::sampler::{Filter, Sampler, Settings, State};
use crate::server::{ConnectionLost, Options};
use crate::stats::Rank;
use crate::watch::screen::{Request, Screen};
use crate::watch::table::View;

/// The pause between two attempts to reconnect.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(500);

/// How long a reply may take. Every command of a sample is short.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest time that a sample spends on finding and querying filters, if the interval is long.
const BUSY_MAX: Duration = Duration::from_secs(1);

/// Show the filters of a server live: how full, how accurate and how busy they are
#[derive(clap::Args)]
#[command(after_help = "Examples:
  bloomgate watch                           on a terminal, once per second
  bloomgate watch --match 'seen:*' --once   a single table
  bloomgate watch --json --interval 10      a line of JSON every ten seconds

On a terminal, m sorts by memory, a by activity, f by fullness, and q quits. Adds and lookups per second are counted by the
server for all its filters together (INFO bf). New items per second are shown for each filter, from the second sample on. If
the server is lost, watch waits until it is back.")]
pub struct Arguments {
    /// Show only filters whose keys match this glob pattern, as in SCAN
    #[arg(long = "match", value_name = "PATTERN")]
    pattern: Option<String>,
    /// The order of the filters
    #[arg(long, value_enum, default_value = "memory")]
    sort: Order,
    /// The number of filters to show; 0 for all. A terminal shows as many as fit
    #[arg(long, value_name = "NUMBER", default_value = "20")]
    top: usize,
    /// Seconds between samples
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = |text: &str| numbers::seconds(text, 86_400.0))]
    interval: Duration,
    /// Print one sample and exit, which is the default if the output is not a terminal
    #[arg(long)]
    once: bool,
    /// Print a line of JSON for each sample, until the reader of the output exits
    #[arg(long)]
    json: bool,
    /// Exit after this many samples
    #[arg(long, value_name = "NUMBER", conflicts_with = "once")]
    samples: Option<u64>,
}

pub fn run(options: &Options, arguments: &Arguments) -> Result<()> {
    let settings = Settings {
        interval: arguments.interval,
        filters_max: usize::MAX,
        pattern: arguments.pattern.clone(),
        patience: PATIENCE,
        keeps_history: false,
    };
    let mut sampler = Sampler::new(options.clone(), settings)?;
    sampler.connect()?;
    let mut watch = Watch { sampler, order: arguments.sort, last_queried: Vec::new() };
    if stdout().is_terminal() && !arguments.once && !arguments.json {
        return watch.live(arguments);
    }
    let samples =
        if arguments.once || !arguments.json && arguments.samples.is_none() { Some(1) } else { arguments.samples };
    let top = if arguments.top == 0 { usize::MAX } else { arguments.top };
    let (mut next, mut taken) = (Instant::now(), 0);
    while samples.is_none_or(|samples| taken < samples) {
        if !wait_with_reader(next)? {
            break;
        }
        next = Instant::now() + arguments.interval;
        // The first sample covers every key, because later ones are compared with it.
        match watch.sample(taken == 0, top) {
            Err(error) if error.is::<ConnectionLost>() && samples != Some(1) => {
                if !watch.await_server(&error)? {
                    break;
                }
                next = Instant::now();
                continue;
            }
            result => result?,
        }
        taken += 1;
        let view = View { board: &watch.sampler.board, order: watch.order, top };
        if !print(&if arguments.json { format!("{}\n", view.json()) } else { view.plain() })? {
            break;
        }
    }
    Ok(())
}

struct Watch {
    sampler: Sampler,
    order: Order,
    last_queried: Vec<u8>,
}

impl Watch {
    /// Takes a sample of all filters, or of the first `top` and of others for as long as a tenth of the interval allows. Each sample
    /// continues with the next ones.
    fn sample(&mut self, whole: bool, top: usize) -> Result<()> {
        let Self { sampler, order, last_queried } = self;
        let begun = Instant::now();
        let most = (sampler.board.interval / 10).min(BUSY_MAX);
        let goes_on = || whole || begun.elapsed() < most;
        let nodes = sampler.count()?;
        while Instant::now() >= sampler.walk.due() && goes_on() {
            sampler.step()?;
        }
        let (shown, mut keys) = {
            let state = sampler.board.state();
            let shown: Vec<Vec<u8>> = order.first(&state, top).into_iter().map(|(key, _)| key.clone()).collect();
            (shown, state.filters.keys().cloned().collect::<Vec<_>>())
        };
        let next = keys.partition_point(|key| *key <= *last_queried);
        keys.rotate_left(next);
        let mut queried = Vec::new();
        sampler.query(&keys, &mut queried, |_, _| Ok(goes_on()))?;
        *last_queried = queried.last().map(|(key, _)| key.clone()).unwrap_or_default();
        if queried.len() < keys.len() {
            sampler.query(&shown, &mut queried, |_, _| Ok(true))?;
        }
        sampler.store(nodes, queried, begun.elapsed());
        let problem = sampler.board.state().filters.values().find_map(|filter| filter.problem.clone());
        problem.map_or(Ok(()), |problem| Err(anyhow!("the server at {} replied: {problem}", sampler.board.server)))
    }

    /// Retries until the server accepts a connection. Returns false if the reader of the output exits first.
    fn await_server(&mut self, lost: &Error) -> Result<bool> {
        eprintln!("bloomgate: {lost:#}; waiting for it");
        while self.sampler.connect().is_err() {
            if !wait_with_reader(Instant::now() + RECONNECT_INTERVAL)? {
                return Ok(false);
            }
        }
        eprintln!("bloomgate: the server at {} is back", self.sampler.board.server);
        Ok(true)
    }

    /// Redraws the table on a terminal until a key ends it.
    fn live(&mut self, arguments: &Arguments) -> Result<()> {
        let mut number = 0u64;
        // The first sample precedes the switch to the screen, so that an error is printed as a plain line.
        self.sample(false, screen::rows())?;
        let mut lost = None;
        let board = Arc::clone(&self.sampler.board);
        let screen = Screen::enter(&board.server)?;
        loop {
            let interval = if lost.is_none() { arguments.interval } else { arguments.interval.min(RECONNECT_INTERVAL) };
            let next = Instant::now() + interval;
            screen.draw(&board, self.order, lost.as_deref())?;
            if lost.is_none() {
                number += 1;
                if arguments.samples.is_some_and(|samples| number >= samples) {
                    return Ok(());
                }
            }
            while let Some(request) = screen.wait(next)? {
                match request {
                    Request::End => return Ok(()),
                    Request::Order(order) => self.order = order,
                    Request::Draw => {}
                }
                screen.draw(&board, self.order, lost.as_deref())?;
            }
            if lost.is_some() && self.sampler.connect().is_err() {
                continue;
            }
            match self.sample(false, screen::rows()) {
                Err(error) if error.is::<ConnectionLost>() => lost = Some(format!("{error:#}")),
                result => {
                    result?;
                    lost = None;
                }
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Order {
    /// The largest filters first
    Memory,
    /// The filters with the most new items per second first
    Activity,
    /// The fixed filters that are nearly full first
    Full,
}

impl Order {
    /// Returns the first `top` filters that have been sampled, with their keys.
    fn first(self, state: &State, top: usize) -> Vec<(&Vec<u8>, &Filter)> {
        let compared = |filter: &Filter| {
            let sampled = filter.sampled.as_ref()?;
            let activity = if self == Self::Activity { filter.new_a_second.unwrap_or(0.0) } else { 0.0 };
            let rank = if self == Self::Full { sampled.rank() } else { Rank::default() };
            Some((activity, rank, sampled.stats.size_bytes))
        };
        let mut filters: Vec<_> =
            state.filters.iter().filter_map(|(key, filter)| Some((compared(filter)?, (key, filter)))).collect();
        // Stable, so that equal ones stay in the order of their keys.
        filters.sort_by(|(one, _), (other, _)| {
            other.0.total_cmp(&one.0).then(other.1.cmp(&one.1)).then(other.2.cmp(&one.2))
        });
        filters.into_iter().map(|(_, filter)| filter).take(top).collect()
    }
}

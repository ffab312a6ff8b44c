//! `bloomgate watch`: a live view of a server's filters: how full they are, their false positive rates, and adds and lookups per second. It
//! only reads, and scans a limited number of keys per sample.

mod sampler;
mod screen;
mod table;

use std::io::{IsTerminal, stdout};
use std::time::{Duration, Instant};

use anyhow::{Error, Result};

use crate::numbers;
use crate::report::{print, wait_with_reader};
use crate::server::{ConnectionLost, Options, Server};
use crate::watch::sampler::{Order, Sampler};
use crate::watch::screen::{Request, Screen};

/// The pause between two attempts to reconnect.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(500);

/// How long a reply may take. Every command of a sample is short.
const PATIENCE: Duration = Duration::from_secs(5);

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
    let mut server = Server::connect(options)?;
    server.set_patience(PATIENCE)?;
    let mut sampler = Sampler::new(server, arguments.pattern.clone());
    if stdout().is_terminal() && !arguments.once && !arguments.json {
        return live(&mut sampler, arguments);
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
        let sample = match sampler.sample(taken == 0, arguments.sort, top) {
            Err(error) if error.is::<ConnectionLost>() && samples != Some(1) => {
                if !await_server(&mut sampler, &error)? {
                    break;
                }
                next = Instant::now();
                continue;
            }
            sample => sample?,
        };
        taken += 1;
        let text = if arguments.json { format!("{}\n", sample.json()) } else { table::plain(&sample) };
        if !print(&text)? {
            break;
        }
    }
    Ok(())
}

/// Retries until the server accepts a connection. Returns false if the reader of the output exits first.
fn await_server(sampler: &mut Sampler, lost: &Error) -> Result<bool> {
    eprintln!("bloomgate: {lost:#}; waiting for it");
    while sampler.reconnect().is_err() {
        if !wait_with_reader(Instant::now() + RECONNECT_INTERVAL)? {
            return Ok(false);
        }
    }
    eprintln!("bloomgate: the server at {} is back", sampler.server());
    Ok(true)
}

/// Redraws the table on a terminal until a key ends it.
fn live(sampler: &mut Sampler, arguments: &Arguments) -> Result<()> {
    let (mut order, mut number) = (arguments.sort, 0u64);
    // The first sample precedes the switch to the screen, so that an error is printed as a plain line.
    let mut sample = sampler.sample(false, order, screen::rows())?;
    let mut lost = None;
    let screen = Screen::enter(&sample.server)?;
    loop {
        let interval = if lost.is_none() { arguments.interval } else { arguments.interval.min(RECONNECT_INTERVAL) };
        let next = Instant::now() + interval;
        screen.draw(&sample, order, lost.as_deref())?;
        if lost.is_none() {
            number += 1;
            if arguments.samples.is_some_and(|samples| number >= samples) {
                return Ok(());
            }
        }
        while let Some(request) = screen.wait(next)? {
            match request {
                Request::End => return Ok(()),
                Request::Order(wanted) => order = wanted,
                Request::Draw => {}
            }
            sample.sort(order);
            screen.draw(&sample, order, lost.as_deref())?;
        }
        if lost.is_some() && sampler.reconnect().is_err() {
            continue;
        }
        match sampler.sample(false, order, screen::rows()) {
            Err(error) if error.is::<ConnectionLost>() => lost = Some(format!("{error:#}")),
            result => (sample, lost) = (result?, None),
        }
    }
}

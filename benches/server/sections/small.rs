//! Many small filters, one per user: memory, snapshot, adds, saving and loading, compared with other modules. Each filter is
//! created by its first BF.MADD with the module's defaults.

use std::fs;
use std::io::Write;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::info;
use crate::instance::Instance;
use crate::statistics::Samples;
use crate::table::{Cell, Results, Table, summary};
use crate::variants::Bench;
use testing::{Connection, Reply};

/// The numbers of items per filter.
const ITEMS: [u64; 7] = [1, 20, 100, 300, 700, 1500, 3100];
/// Pipelined commands.
const PIPELINE: u64 = 500;
/// Saves and loads of the filters per round.
const SAVES: usize = 3;

/// The measures, in the order of the rows.
const MEASURES: [&str; 6] = [
    "used_memory per filter, bytes",
    "snapshot per filter, bytes",
    "BF.MADD that creates a filter, us/call",
    "items added per second",
    "SAVE per filter, us of CPU",
    "loading, s",
];

/// The figures of a variant with one number of items.
type Figures = [Samples; MEASURES.len()];

/// Runs the section.
pub fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    let rounds = bench.rounds(3, 1);
    let mut faults = Vec::new();
    let mut columns = vec!["measure".to_owned()];
    for variant in &bench.variants {
        columns.extend([variant.name.to_owned(), "least".to_owned(), "most".to_owned(), "x bloomgate".to_owned()]);
    }
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    for items in ITEMS {
        let filters = bench.size(1_000_000, 50_000) / items.div_ceil(100);
        let mut figures: Vec<Figures> =
            bench.variants.iter().map(|_| std::array::from_fn(|_| Samples::new())).collect();
        for number in 0..rounds {
            for (index, figures) in figures.iter_mut().enumerate() {
                let name = &bench.variants[index].name;
                eprintln!("bench: small, {items} items, round {} of {rounds}, {name}", number + 1);
                bench.attempt(index, &mut faults, || round(bench, index, filters, items, figures));
            }
        }
        let title = format!("{filters} filters of {items} items");
        let mut table = Table::new(&title, &columns);
        for (at, measure) in MEASURES.iter().enumerate() {
            let mut cells = vec![Cell::from(*measure)];
            for figures_of in &figures {
                cells.extend(summary(&figures_of[at]));
                cells.push(figures_of[at].ratio_to(&figures[0][at]).into());
            }
            table.row(cells);
        }
        table.note(format!(
            "Each filter is created by one BF.MADD of {items} items with the module's defaults: 100 items at 1%. Rounds: \
             {rounds}, each on a fresh server; {SAVES} saves and loads per round. The server's memory includes its own entry for each \
             key, whose name has 8 bytes."
        ));
        faults.iter().for_each(|fault| table.note(fault.clone()));
        results.table(&table)?;
    }
    Ok(())
}

fn round(bench: &Bench, index: usize, filters: u64, items: u64, figures: &mut Figures) -> Result<()> {
    let mut running = bench.start(index, false)?;
    running.use_layout()?;
    let server = &mut running.server;
    let per_filter = |bytes: u64| bytes as f64 / filters as f64;
    let empty = server.info_number("memory", "used_memory")?;
    let (statistics, seconds) = server.statistics_of("BF.MADD", || fill(server, filters, items))?;
    let used = server.info_number("memory", "used_memory")?.saturating_sub(empty);
    let [used_bytes, snapshot_bytes, creating, adds, save, load] = figures;
    for _ in 0..SAVES {
        let before = cpu_seconds(server)?;
        server.call(&["SAVE"])?;
        save.push((cpu_seconds(server)? - before) * 1e6 / filters as f64);
    }
    let snapshot = fs::metadata(server.snapshot())?.len();
    used_bytes.push(per_filter(used));
    snapshot_bytes.push(per_filter(snapshot));
    creating.push(statistics.microseconds_per_call());
    adds.push((filters * items) as f64 / seconds);
    for _ in 0..SAVES {
        server.start_again()?;
        load.push(info::seconds_to_load(&server.log()).context("the log does not say how long loading took")?);
    }
    Ok(())
}

/// Returns the CPU time that the server's command thread has used.
fn cpu_seconds(server: &Instance) -> Result<f64> {
    let text = server.info("cpu")?;
    let of = |name| info::field(&text, name).and_then(|value| value.parse::<f64>().ok()).context(name);
    Ok(of("used_cpu_user_main_thread")? + of("used_cpu_sys_main_thread")?)
}

/// Returns the name of a filter's key.
fn name_of(filter: u64) -> String {
    format!("u{filter:07}")
}

/// Creates the filters, and returns the seconds from the first byte sent to the last reply. The client's own time to create the commands is
/// not included.
fn fill(server: &Instance, filters: u64, items: u64) -> Result<f64> {
    let mut client = Connection::open(server.port)?;
    let mut seconds = 0.0;
    for first in (0..filters).step_by(PIPELINE as usize) {
        let numbers = first..filters.min(first + PIPELINE);
        let mut commands = Vec::new();
        for filter in numbers.clone() {
            let name = name_of(filter);
            write!(commands, "*{}\r\n$7\r\nBF.MADD\r\n${}\r\n{name}\r\n", items + 2, name.len())?;
            for item in 0..items {
                let item = format!("{filter}/{item}");
                write!(commands, "${}\r\n{item}\r\n", item.len())?;
            }
        }
        let start = Instant::now();
        client.stream().get_mut().write_all(&commands)?;
        for _ in numbers {
            let reply = client.receive()?;
            ensure!(matches!(&reply, Reply::Array(answers) if answers.len() as u64 == items), "BF.MADD: {reply:?}");
        }
        seconds += start.elapsed().as_secs_f64();
    }
    Ok(seconds)
}

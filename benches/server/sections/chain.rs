//! A filter that grew from 100 items to many layers, next to one that was reserved for the same number: the cost of growth for
//! a lookup.

use anyhow::Result;

use crate::grid::{Base, Case, Grid};
use crate::items::Set;
use crate::load::{self, ABSENT, Draw, MANY};
use crate::results::Results;
use crate::table::{Cell, Table};
use crate::variants::{Bench, Growth, KEY, Running};

/// The temporary name of the filter that grew while the other one is created.
const GROWN: &str = "grown";

/// Runs the section.
pub fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    let items = bench.size(10_000_000, 1_000_000);
    let rounds = bench.rounds(5, 2);
    let requests = bench.size(20_000, 2_000);
    let mut faults = Vec::new();
    let all = bench.start_all(&mut faults);
    let mut layers = vec![0; bench.variants.len()];
    let mut ready = Vec::new();
    for running in &all {
        if let Some(count) = bench.attempt(running.index, &mut faults, || prepare(running, items)) {
            layers[running.index] = count;
            ready.push(running);
        }
    }
    let mut grid = Grid::new(&bench.variants, cases(items));
    for round in 0..rounds {
        eprintln!("bench: chain, round {} of {rounds}", round + 1);
        for running in &ready {
            bench.attempt(running.index, &mut faults, || measure_all(bench, running, items, requests, &mut grid));
        }
    }
    let mut table = grid.table("chain", "A chain of layers");
    table.note(format!(
        "Two filters at 1% with the same {items} items of 70 bytes: one grew from a capacity of 100 by factors of 2, the \
         other was reserved for them. BF.MEXISTS of {MANY} items, pipeline 4; {rounds} rounds."
    ));
    faults.into_iter().for_each(|fault| table.note(fault));
    results.table(&table)?;

    let columns = ["variant", "layers", "absent: grown / reserved", "present: grown / reserved"];
    let mut ratios = Table::new("chain-ratios", "Grown and reserved filters", &columns);
    for running in &ready {
        let ratio = |grown: usize, reserved: usize| -> Cell {
            let [grown, reserved] = [grown, reserved].map(|case| grid.microseconds(case, running.index));
            grown.zip(reserved).and_then(|(grown, reserved)| grown.ratio_to(reserved)).into()
        };
        let layers = layers[running.index].into();
        ratios.row([running.variant.name.as_str().into(), layers, ratio(0, 1), ratio(2, 3)]);
    }
    ratios.note("Ratios of the medians of the time inside the command.");
    results.table(&ratios)
}

fn cases(items: u64) -> Vec<Case> {
    let (grown, reserved) = (format!("grown to {items}"), format!("reserved for {items}"));
    let case = |command: &str, filter: &str| Case { command: command.into(), filter: filter.into(), base: Base::Many };
    vec![
        case("BF.MEXISTS, absent", &grown),
        case("BF.MEXISTS, absent", &reserved),
        case("BF.MEXISTS, present", &grown),
        case("BF.MEXISTS, present", &reserved),
    ]
}

/// Creates both filters. Returns the number of layers of the one that grew.
fn prepare(running: &Running, items: u64) -> Result<u64> {
    running.reserve(100, Growth::Growing)?;
    load::add_members(&running.server, 0..items)?;
    running.server.call(&["RENAME", KEY, GROWN])?;
    running.reserve(items, Growth::Growing)?;
    load::add_members(&running.server, 0..items)?;
    running.server.number(&["BF.INFO", GROWN, "FILTERS"])
}

fn measure_all(bench: &Bench, running: &Running, items: u64, requests: u64, grid: &mut Grid<'_>) -> Result<()> {
    let present = Draw { set: Set::Members, below: items };
    let measure =
        |words: &[&str], draw| load::measure(&running.server, bench.processors.as_ref(), words, MANY, draw, requests);
    grid.push_base(Base::Many, &running.variant, measure(&["EXISTS"], ABSENT)?);
    for (case, (key, draw)) in
        [(GROWN, ABSENT), (KEY, ABSENT), (GROWN, present), (KEY, present)].into_iter().enumerate()
    {
        grid.push(case, running.index, measure(&["BF.MEXISTS", key], draw)?);
    }
    Ok(())
}

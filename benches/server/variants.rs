//! The variants that are compared: our module with its native layout, and the same module with RedisBloom's layout or another
//! module in its place. Each runs in its own server. If one does not start or refuses a filter, the notes of the table name it,
//! and the others continue.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::arguments::Database;
use super::instance::Instance;
use super::machine::{self, Processors};

/// The key of the measured filter.
pub const KEY: &str = "f";
/// The requested rate of all filters.
pub const RATE: &str = "0.01";

/// The file in the server's folder to which callgrind writes.
const COUNTS_FILE: &str = "--callgrind-out-file=callgrind.out";

/// A variant.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The name in the tables.
    pub name: &'static str,
    module: PathBuf,
    is_ours: bool,
    layout: Option<&'static str>,
}

impl Variant {
    /// Our module, whose filters have this layout.
    pub fn ours(name: &'static str, module: &Path, layout: Option<&'static str>) -> Self {
        Self { name, module: module.to_owned(), is_ours: true, layout }
    }

    /// Another module.
    pub const fn peer(name: &'static str, module: PathBuf) -> Self {
        Self { name, module, is_ours: false, layout: None }
    }

    /// Whether it is our module with its native layout.
    pub const fn is_main(&self) -> bool {
        self.is_ours && self.layout.is_none()
    }
}

/// The settings of a section.
pub struct Bench {
    /// In the order of the tables; ours is the first.
    pub variants: Vec<Variant>,
    /// The server's program.
    pub server: PathBuf,
    /// Smaller filters and fewer rounds.
    pub quick: bool,
    /// Items of the largest filter of `scale`.
    pub largest: u64,
    /// The database of `feed`.
    pub database: Database,
    /// The processors of the programs, if they can be chosen.
    pub processors: Option<Processors>,
}

/// A variant with its server.
pub struct Running {
    /// Its index among the variants.
    pub index: usize,
    /// The variant.
    pub variant: Variant,
    /// Its server.
    pub server: Instance,
}

impl Bench {
    /// Returns the name and version of the server's program, such as `Redis 8.2.3`.
    pub fn server_name(&self) -> String {
        let text = machine::output_of(&self.server, &["--version"]).unwrap_or_default();
        let words: Vec<&str> = text.split_whitespace().filter(|word| *word != "server").take(2).collect();
        words.join(" ").replace("v=", "")
    }

    /// Returns the number of rounds: the first number, or the second in a quick run.
    pub const fn rounds(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }

    /// Returns a size: the full one, or that of a quick run.
    pub const fn size(&self, full: u64, quick: u64) -> u64 {
        if self.quick { quick } else { full }
    }

    /// Starts a variant's server: on the servers' processor, or with `spread` on any.
    pub fn start(&self, index: usize, spread: bool) -> Result<Running> {
        self.start_under(index, spread, &[])
    }

    /// Starts a variant's server under callgrind, which counts instructions inside the server's function `call`.
    pub fn start_counted(&self, index: usize) -> Result<Running> {
        self.start_under(index, false, &["valgrind", "--tool=callgrind", "--toggle-collect=call", COUNTS_FILE])
    }

    /// The command line before a server's program that chooses its processors.
    fn chosen(&self, spread: bool) -> Vec<&str> {
        let processors = self.processors.as_ref().map(|found| if spread { &found.all } else { &found.server });
        processors.into_iter().flat_map(|list| ["taskset", "-c", list]).collect()
    }

    fn start_under(&self, index: usize, spread: bool, before: &[&str]) -> Result<Running> {
        let variant = self.variants.get(index).context("a variant")?.clone();
        let processors = self.chosen(spread);
        let server = Instance::start(&[&processors, before].concat(), &self.server, &variant.module)?;
        Ok(Running { index, variant, server })
    }

    /// Starts all servers; those that do not start are noted.
    pub fn start_all(&self, faults: &mut Vec<String>) -> Vec<Running> {
        (0..self.variants.len()).filter_map(|index| self.attempt(index, faults, || self.start(index, false))).collect()
    }

    /// Runs an action for a variant; a failure is noted once.
    pub fn attempt<T>(&self, index: usize, faults: &mut Vec<String>, run: impl FnOnce() -> Result<T>) -> Option<T> {
        run()
            .inspect_err(|fault| {
                let name = self.variants.get(index).map_or("", |variant| variant.name);
                let sentence = format!("{name}: {fault:#}.");
                eprintln!("{sentence}");
                if !faults.contains(&sentence) {
                    faults.push(sentence);
                }
            })
            .ok()
    }
}

impl Running {
    /// Sets the module's defaults to the variant's kind of filter.
    pub fn use_layout(&self) -> Result<()> {
        if let Some(layout) = self.variant.layout {
            self.server.call(&["CONFIG", "SET", "bf.layout", layout])?;
        }
        Ok(())
    }

    /// Replaces the filter with an empty fixed one.
    pub fn reserve(&self, capacity: u64) -> Result<()> {
        self.server.call(&["DEL", KEY])?;
        self.create(KEY, RATE, capacity, &["NONSCALING"])
    }

    /// Creates a filter.
    pub fn create(&self, key: &str, rate: &str, capacity: u64, options: &[&str]) -> Result<()> {
        let capacity = capacity.to_string();
        let mut words = vec!["BF.RESERVE", key, rate, &capacity];
        words.extend(options);
        words.extend(self.variant.layout.into_iter().flat_map(|layout| ["LAYOUT", layout]));
        self.server.call(&words)?;
        Ok(())
    }
}

/// Returns the version that a server's module reports. Modules that are part of the server have no path.
pub fn module_version(server: &Instance) -> Result<String> {
    let modules = server.call(&["MODULE", "LIST"])?;
    let loaded = modules.elements().iter().find(|module| !module.field("path").text().is_empty());
    let module = loaded.context("no module")?;
    Ok(format!("{} {}", module.field("name").text(), module.field("ver").number()))
}

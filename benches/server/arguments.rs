//! The arguments of `scripts/bench` and `cargo bench --bench server --`.

use std::fmt;

use clap::{Parser, ValueEnum};

/// Measures the module in a server, next to the server's own commands and other modules.
///
/// The server is the first of BLOOMGATE_SERVERS, by default the redis-server or valkey-server on the PATH; the module is BLOOMGATE_MODULE,
/// by default the one that scripts/bench builds. The tables are written to target/bench.
#[derive(Debug, Parser)]
#[command(name = "scripts/bench", disable_version_flag = true)]
pub struct Arguments {
    /// Use smaller filters and fewer rounds: within two minutes. The figures are only for a first look.
    #[arg(long)]
    pub quick: bool,
    /// Also measure other modules in the same rounds, in place of our filter of RedisBloom's layout.
    ///
    /// BLOOMGATE_PEERS names the folder of redisbloom-8.so and valkeybloom-0.1.so. The server is the first of Redis 8 among
    /// BLOOMGATE_SERVERS, the PATH and target/servers. The section `peer` is then repeated with valkey-bloom on the first Valkey.
    #[arg(long)]
    pub peer: bool,
    /// Run only this section. It may be given several times.
    #[arg(long = "only", value_name = "SECTION", default_values_t = Section::value_variants().to_vec(), hide_default_value = true)]
    pub sections: Vec<Section>,
    /// Items of the largest filter of the section `scale`. Filters of `kinds` have at most 100000000, those of `pauses` at
    /// most 1 GiB.
    #[arg(long, value_name = "ITEMS", default_value_t = 1_000_000_000)]
    pub largest: u64,
    /// The database of the section `feed`.
    #[arg(long, value_name = "NAME", default_value = "postgresql")]
    pub database: Database,
    /// Given by cargo bench.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A section of the benchmark. Sections run in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Section {
    Saving,
    Scale,
    Small,
    Peer,
    Pauses,
    Kinds,
    Feed,
    Clients,
    Instructions,
}

/// A database that `bloomgate follow` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Database {
    Postgresql,
    Mariadb,
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_possible_value().map_or(Ok(()), |value| f.write_str(value.get_name()))
    }
}

#[cfg(test)]
#[allow(unused, reason = "cargo bench compiles this too, without the test functions")]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_section_runs_by_default() {
        let arguments = Arguments::parse_from(["bench", "--bench"]);
        assert_eq!(arguments.sections, Section::value_variants());
        let arguments = Arguments::parse_from(["bench", "--only", "small", "--only", "scale", "--peer"]);
        assert_eq!(arguments.sections, [Section::Small, Section::Scale]);
    }

    /// `scripts/bench --help` prints the file without building anything.
    #[test]
    fn the_usage_file_is_the_help() {
        let help = Arguments::command().render_long_help().to_string();
        assert!(
            help.lines().map(str::trim_end).eq(include_str!("usage.txt").lines()),
            "usage.txt should have:\n{help}"
        );
    }
}

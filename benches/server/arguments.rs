//! The arguments of `scripts/bench` and `cargo bench --bench server --`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{CommandFactory, FromArgMatches, Parser, ValueEnum};

/// Measures the module in a server, next to the server's own commands and other modules.
///
/// Paths are relative to the root of the repository.
#[derive(Debug, Parser)]
#[command(name = "scripts/bench", disable_version_flag = true)]
pub struct Arguments {
    /// Use smaller filters and fewer rounds: within two minutes. The figures are only for a first look.
    #[arg(long)]
    pub quick: bool,
    /// Another module to measure in the same rounds. It may be given several times.
    ///
    /// NAME is its name in the tables. If it needs another server, SERVER is that server's program.
    ///
    /// Without a value it is RedisBloom 8: redisbloom-8.so in the folder that BLOOMGATE_PEERS names. All modules then run on a
    /// server of Redis 8 from BLOOMGATE_SERVERS, the PATH or target/servers, and RedisBloom replaces our filter of its layout.
    #[arg(long = "peer", value_name = "NAME=MODULE[@SERVER]", num_args = 0..=1, default_missing_value = "")]
    pub peers: Vec<Peer>,
    /// Run only this section. It may be given several times.
    #[arg(long = "only", value_name = "SECTION", default_values_t = Section::value_variants().to_vec(), hide_default_value = true)]
    pub sections: Vec<Section>,
    /// The folder for tables. The repository's own copy is in benches/results.
    #[arg(long, value_name = "FOLDER", default_value = "target/bench")]
    pub out: PathBuf,
    /// Items of the largest filter of the section `scale`. Filters of `kinds` have at most 100000000, those of `pauses` at
    /// most 1 GiB.
    #[arg(long, value_name = "ITEMS", default_value_t = 1_000_000_000)]
    pub largest: u64,
    /// The server to start: redis-server, or the one that RedisBloom needs.
    #[arg(long, value_name = "PROGRAM")]
    pub server: Option<String>,
    /// Our module. By default the one that scripts/bench builds.
    #[arg(long, value_name = "FILE")]
    pub module: Option<PathBuf>,
    /// Given by cargo bench.
    #[arg(long, hide = true)]
    bench: bool,
    /// The arguments for the notes of the tables.
    #[arg(skip)]
    pub shown: String,
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

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_possible_value().map_or(Ok(()), |value| f.write_str(value.get_name()))
    }
}

/// Another module to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// RedisBloom, from the folder that `BLOOMGATE_PEERS` names.
    RedisBloom,
    /// Any module.
    Module(PeerModule),
}

/// Another module, with its name, library and server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerModule {
    /// Its name in the tables.
    pub name: String,
    /// Its library.
    pub module: PathBuf,
    /// The server that it needs, if that differs from the others'.
    pub server: Option<String>,
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::RedisBloom);
        }
        let (name, rest) = text.split_once('=').unwrap_or_default();
        let (module, server) = rest.split_once('@').map_or((rest, None), |(module, server)| (module, Some(server)));
        if name.is_empty() || module.is_empty() || server == Some("") {
            return Err("expected NAME=path/to/module.so".to_owned());
        }
        Ok(Self::Module(PeerModule { name: name.to_owned(), module: module.into(), server: server.map(str::to_owned) }))
    }
}

impl Arguments {
    /// Parses the arguments of a program, without its name.
    ///
    /// # Errors
    /// An error that prints itself and has an exit status. A request for help is also an error.
    pub fn read(words: impl IntoIterator<Item = String>) -> Result<Self, clap::Error> {
        let words: Vec<String> = words.into_iter().collect();
        let matches = Self::command().no_binary_name(true).try_get_matches_from(&words)?;
        let mut arguments = Self::from_arg_matches(&matches)?;
        arguments.shown = shown(&words);
        Ok(arguments)
    }
}

/// Removes what scripts/bench and cargo add, and the folder of the results.
fn shown(words: &[String]) -> String {
    let mut shown = Vec::new();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--bench" => {}
            "--module" | "--out" => drop(rest.next()),
            other => shown.push(other),
        }
    }
    shown.join(" ")
}

#[cfg(test)]
#[allow(unused, reason = "cargo bench compiles this too, without the test functions")]
mod tests {
    use super::*;

    fn read(words: &str) -> Result<Arguments, clap::Error> {
        Arguments::read(words.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn every_section_runs_by_default() {
        let arguments = read("--out target/bench --module a.so --bench").expect("a run");
        assert_eq!(arguments.sections, Section::value_variants());
        assert!(!arguments.quick && arguments.peers.is_empty() && arguments.shown.is_empty());
    }

    #[test]
    fn peers_and_sections_repeat() {
        let words = "--quick --peer A=a.so --peer B=b.so@/opt/valkey-server --only small --only scale --largest 1000";
        let arguments = read(words).expect("a run");
        assert_eq!(arguments.sections, [Section::Small, Section::Scale]);
        assert_eq!((arguments.quick, arguments.largest), (true, 1000));
        let peer = |name: &str, module: &str, server: Option<&str>| {
            Peer::Module(PeerModule { name: name.into(), module: module.into(), server: server.map(str::to_owned) })
        };
        assert_eq!(arguments.peers, [peer("A", "a.so", None), peer("B", "b.so", Some("/opt/valkey-server"))]);
        assert_eq!(arguments.shown, words);
    }

    #[test]
    fn a_peer_without_a_value_is_redisbloom() {
        for (words, others) in [("--peer", 0), ("--quick --peer --only peer --bench", 0), ("--peer --peer A=a.so", 1)] {
            let peers = read(words).expect("a run").peers;
            assert_eq!(peers[0], Peer::RedisBloom, "{words}");
            assert_eq!(peers.len(), 1 + others, "{words}");
        }
    }

    #[test]
    fn bad_arguments_are_refused() {
        for words in ["--fast", "--only speed", "--peer a.so", "--peer =a.so", "--peer A=", "--out", "--largest many"] {
            let error = read(words).expect_err(words);
            assert_eq!(error.exit_code(), 2, "{words}");
        }
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

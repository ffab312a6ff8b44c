//! The words of `scripts/bench` and `cargo bench --bench server --`.

use std::path::PathBuf;

/// The sections, in the order in which they run.
pub const SECTIONS: [&str; 10] =
    ["commands", "chain", "snapshot", "saving", "scale", "peer", "pauses", "kinds", "guard", "instructions"];

/// What `--help` prints.
pub const USAGE: &str = include_str!("usage.txt");

/// Another module to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// What the tables call it.
    pub name: String,
    /// Its library.
    pub module: PathBuf,
    /// The server that it needs, where it is not the same.
    pub server: Option<String>,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// Smaller and fewer.
    pub quick: bool,
    /// Other modules.
    pub peers: Vec<Peer>,
    /// RedisBloom itself, out of the folder that `BLOOMGATE_PEERS` names.
    pub redisbloom: bool,
    /// The sections to run.
    pub sections: Vec<String>,
    /// Where results go.
    pub out: PathBuf,
    /// Items of the largest filter of `scale`.
    pub largest: u64,
    /// The server's program, where one is named.
    pub server: Option<String>,
    /// Our module.
    pub module: Option<PathBuf>,
    /// The words, for the tables.
    pub words: String,
}

/// What the words mean.
#[derive(Debug, PartialEq, Eq)]
pub enum Request {
    /// To measure.
    Run(Arguments),
    /// To run a loop over the filter's kernel, for a program that counts its instructions: the name of the loop.
    Loop(String, u64),
    /// To draw the plots of the tables in a folder again.
    Plots(PathBuf),
    /// To say how it is used.
    Help,
}

/// Reads the words; an error is a sentence.
pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Request, String> {
    let words: Vec<String> = words.into_iter().collect();
    let mut arguments = Arguments {
        quick: false,
        peers: Vec::new(),
        redisbloom: false,
        sections: Vec::new(),
        out: PathBuf::from("target/bench"),
        largest: 1_000_000_000,
        server: None,
        module: None,
        words: String::new(),
    };
    arguments.words = shown(&words);
    let mut rest = words.into_iter().peekable();
    while let Some(word) = rest.next() {
        let named = rest.peek().is_some_and(|next| !next.starts_with("--"));
        let mut value = || rest.next().ok_or_else(|| format!("{word} needs a word after it"));
        match word.as_str() {
            // cargo bench adds it.
            "--bench" => {}
            "--help" | "-h" => return Ok(Request::Help),
            "--quick" => arguments.quick = true,
            "--peer" if !named => arguments.redisbloom = true,
            "--peer" => arguments.peers.push(peer(&value()?)?),
            "--only" => {
                let section = value()?;
                if !SECTIONS.contains(&section.as_str()) {
                    return Err(format!("there is no section `{section}`; there are {}", SECTIONS.join(", ")));
                }
                arguments.sections.push(section);
            }
            "--out" => arguments.out = value()?.into(),
            "--largest" => arguments.largest = number(&word, &value()?)?,
            "--server" => arguments.server = Some(value()?),
            "--module" => arguments.module = Some(value()?.into()),
            "--plots" => return Ok(Request::Plots(value()?.into())),
            "--loop" => return Ok(Request::Loop(value()?, number(&word, &value()?)?)),
            _ => return Err(format!("unknown word `{word}` (--help tells the known ones)")),
        }
    }
    if arguments.sections.is_empty() {
        arguments.sections = SECTIONS.map(str::to_owned).into();
    }
    Ok(Request::Run(arguments))
}

/// The words for the tables: without those that scripts/bench or cargo adds, and without the place of the results.
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

fn number(word: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{word} needs a number, `{text}` is none"))
}

fn peer(text: &str) -> Result<Peer, String> {
    let wrong = || format!("--peer is NAME=path/to/module.so, `{text}` is not");
    let (name, rest) = text.split_once('=').ok_or_else(wrong)?;
    let (module, server) = rest.split_once('@').map_or((rest, None), |(module, server)| (module, Some(server)));
    if name.is_empty() || module.is_empty() || server == Some("") {
        return Err(wrong());
    }
    Ok(Peer { name: name.to_owned(), module: module.into(), server: server.map(str::to_owned) })
}

#[cfg(test)]
#[allow(unused, reason = "cargo bench compiles this too, without the test functions")]
mod tests {
    use super::*;

    fn parsed(words: &str) -> Result<Request, String> {
        parse(words.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn nothing_asked_is_everything() {
        let Ok(Request::Run(arguments)) = parsed("--out target/bench --module a.so --bench") else { panic!("a run") };
        assert_eq!(arguments.sections, SECTIONS);
        assert!(!arguments.quick && arguments.peers.is_empty() && arguments.words.is_empty());
    }

    #[test]
    fn words_repeat_where_it_makes_sense() {
        let words = "--quick --peer A=a.so --peer B=b.so@/opt/valkey-server --only chain --only scale --largest 1000";
        let Ok(Request::Run(arguments)) = parsed(words) else { panic!("a run") };
        assert!(arguments.quick);
        assert_eq!(arguments.sections, ["chain", "scale"]);
        assert_eq!(arguments.largest, 1000);
        let peer = |name: &str, module: &str, server: Option<&str>| Peer {
            name: name.into(),
            module: module.into(),
            server: server.map(str::to_owned),
        };
        assert_eq!(arguments.peers, [peer("A", "a.so", None), peer("B", "b.so", Some("/opt/valkey-server"))]);
        assert_eq!(arguments.words, words);
    }

    #[test]
    fn a_peer_without_a_name_is_redisbloom() {
        for (words, others) in [("--peer", 0), ("--quick --peer --only peer --bench", 0), ("--peer --peer A=a.so", 1)] {
            let Ok(Request::Run(arguments)) = parsed(words) else { panic!("a run") };
            assert!(arguments.redisbloom, "{words}");
            assert_eq!(arguments.peers.len(), others, "{words}");
        }
    }

    #[test]
    fn what_is_not_understood_is_said() {
        for words in ["--fast", "--only speed", "--peer a.so", "--peer =a.so", "--peer A=", "--out", "--largest many"] {
            assert!(parsed(words).is_err(), "{words}");
        }
        assert_eq!(parsed("--quick --help"), Ok(Request::Help));
        assert_eq!(parsed("--plots a"), Ok(Request::Plots("a".into())));
        assert_eq!(parsed("--loop single 10"), Ok(Request::Loop("single".into(), 10)));
    }
}

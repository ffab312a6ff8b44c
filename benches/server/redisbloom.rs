//! Finds RedisBloom for `--peer` without a path: the newest release in a folder for which there is a server. The project does
//! not include RedisBloom. The choice is a pure function of paths and versions.

use std::path::{Path, PathBuf};

use super::arguments::PeerModule;

/// A release of RedisBloom and a server that loads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The module, whose file name contains its release.
    pub peer: PeerModule,
    /// The server's program.
    pub server: String,
}

/// Returns the newest library that one of the servers loads, and the first such server. A server is its path and the output of
/// its `--version`.
pub fn choose(libraries: &[PathBuf], servers: &[(PathBuf, String)]) -> Option<Found> {
    let mut releases: Vec<(Vec<u32>, String, &PathBuf)> = libraries
        .iter()
        .filter_map(|path| release_of(path).map(|release| (numbers(&release), release, path)))
        .collect();
    releases.sort();
    releases.into_iter().rev().find_map(|(numbers, release, path)| {
        let (program, _) = servers.iter().find(|(_, version)| suits(&numbers, version))?;
        let peer = PeerModule { name: format!("RedisBloom {release}"), module: path.clone(), server: None };
        Some(Found { peer, server: program.display().to_string() })
    })
}

/// Returns `2.6.28` for `redisbloom-2.6.28.so`.
fn release_of(library: &Path) -> Option<String> {
    Some(library.file_name()?.to_str()?.strip_prefix("redisbloom-")?.strip_suffix(".so")?.to_owned())
}

fn numbers(release: &str) -> Vec<u32> {
    release.split('.').map_while(|number| number.parse().ok()).collect()
}

/// Releases from 8 on need functions that Redis 8 introduced; earlier ones need the servers of their time.
fn suits(release: &[u32], version: &str) -> bool {
    let server = version.strip_prefix("Redis server v=").and_then(|rest| numbers(rest).first().copied());
    match (release.first(), server) {
        (Some(8..), Some(server)) => server >= 8,
        (Some(_), Some(server)) => server == 7,
        _ => false,
    }
}

#[cfg(test)]
#[allow(unused, reason = "cargo bench compiles this too, without the test functions")]
mod tests {
    use super::*;

    const REDIS_7: (&str, &str) =
        ("/usr/bin/redis-server", "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0");
    const REDIS_8: (&str, &str) = ("/opt/redis-server", "Redis server v=8.2.3 sha=00000000:1 malloc=jemalloc-5.3.0");
    const VALKEY: (&str, &str) = ("/opt/valkey-server", "Valkey server v=9.1.2 sha=00000000:0 malloc=libc");

    fn chosen(libraries: &[&str], servers: &[(&str, &str)]) -> Option<(String, String)> {
        let libraries: Vec<PathBuf> = libraries.iter().map(PathBuf::from).collect();
        let servers: Vec<_> =
            servers.iter().map(|(program, version)| (PathBuf::from(program), (*version).to_owned())).collect();
        choose(&libraries, &servers).map(|found| (found.peer.name, found.server))
    }

    #[test]
    fn the_newest_release_that_a_server_loads_is_chosen() {
        let libraries = ["p/redisbloom-2.6.28.so", "p/redisbloom-8.so", "p/redisbloom-2.10.1.so", "p/README.md"];
        let is = |name: &str, server: (&str, &str)| Some((name.to_owned(), server.0.to_owned()));
        assert_eq!(chosen(&libraries, &[VALKEY, REDIS_7, REDIS_8]), is("RedisBloom 8", REDIS_8));
        assert_eq!(chosen(&libraries, &[REDIS_7]), is("RedisBloom 2.10.1", REDIS_7));
        assert_eq!(chosen(&libraries[..1], &[REDIS_8]), None);
        assert_eq!(chosen(&libraries, &[VALKEY]), None);
        assert_eq!(chosen(&["p/redisbloom-new.so", "p/libfoo.so"], &[REDIS_7, REDIS_8]), None);
    }
}

//! Beside RedisBloom itself: replicas of it and for it, its snapshots and append-only files and ours, and the same commands
//! to both.
//!
//! `BLOOMGATE_PEERS` names a folder with RedisBloom's libraries: `redisbloom-8.so`, `redisbloom-2.6.28.so`, a release after
//! the dash. Each is loaded into the first server that suits it: Redis 8 for releases from 8 on, Redis 7 for earlier ones.
//! The same server program runs our module beside it. Nothing of RedisBloom comes with the project, so these tests are
//! ignored unless they are asked for. They then fail without a library, or without a server for one.
//!
//! Commands are drawn from `BLOOMGATE_SEED` (default 1), and there are `BLOOMGATE_EFFORT` (default 1) times as many.

mod append_only;
mod carried;
mod commands;
mod edges;
mod extremes;
mod replicas;
mod settings;
mod snapshots;
mod stream;
mod view;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testing::{Builder, Rng, Server, Stop, module, ok, servers, watched};

/// A release of RedisBloom and a server that it was made for.
pub struct Peer {
    /// 2 or 8, say.
    pub major: u32,
    library: PathBuf,
    program: PathBuf,
}

/// Which of the two modules a server has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Side {
    Ours,
    Theirs,
}

impl Side {
    pub const BOTH: [Self; 2] = [Self::Ours, Self::Theirs];

    pub fn other(self) -> Self {
        match self {
            Self::Ours => Self::Theirs,
            Self::Theirs => Self::Ours,
        }
    }
}

impl Peer {
    /// A server with the module of one side, to be configured.
    pub fn with(&self, side: Side) -> Builder {
        let builder = Server::with(&self.program);
        if side == Side::Theirs { builder.module(&self.library) } else { builder }
    }

    /// A server with the module of one side, where new filters are RedisBloom's.
    pub fn start(&self, side: Side, lines: &[&str]) -> Server {
        let server = lines.iter().fold(self.with(side), |builder, line| builder.line(line)).start();
        use_redisblooms_layout(&server, side);
        server
    }

    /// Stops a server and starts it on its files with the module of one side.
    pub fn restart_with(&self, side: Side, server: &mut Server, how: Stop) {
        server.stop(how);
        match side {
            Side::Ours => server.load_instead(&module()),
            Side::Theirs => server.load_instead(&self.library),
        }
        server.start_again();
        use_redisblooms_layout(server, side);
    }
}

/// New filters of ours get RedisBloom's layout. It is no line of the configuration file: RedisBloom has no such setting, and
/// the file stays when the modules change places.
fn use_redisblooms_layout(server: &Server, side: Side) {
    if side == Side::Ours {
        assert_eq!(server.connect().run("CONFIG SET bf.layout redisbloom"), ok());
    }
}

/// Runs a test beside each release of RedisBloom in the folder.
fn beside_redisbloom(test: impl Fn(&Peer)) {
    beside_releases(|_| true, test);
}

/// Runs a test beside each release whose first number is wanted. Panics where there is none, or no server for one.
fn beside_releases(wanted: impl Fn(u32) -> bool, test: impl Fn(&Peer)) {
    let folder = env::var_os("BLOOMGATE_PEERS").expect("BLOOMGATE_PEERS names a folder with RedisBloom's libraries");
    assert!(!watched(), "the memory of RedisBloom is not ours to watch");
    let mut libraries = libraries(Path::new(&folder));
    libraries.retain(|(major, _)| wanted(*major));
    assert!(!libraries.is_empty(), "BLOOMGATE_PEERS names {}: no redisbloom-*.so of this test there", folder.display());
    for (major, library) in libraries {
        // Modules of Redis 8 want functions that came with it; 2.x was released for the servers of its time.
        let (least, most) = if major >= 8 { (8, u32::MAX) } else { (7, 7) };
        let suits = |program: &PathBuf| redis_version(program).is_some_and(|version| (least..=most).contains(&version));
        let program = servers().into_iter().find(suits);
        let program =
            program.unwrap_or_else(|| panic!("{} needs a Redis {least} in BLOOMGATE_SERVERS", library.display()));
        eprintln!("{} in {}", library.display(), program.display());
        test(&Peer { major, library, program });
    }
}

/// The libraries of a folder with the first number of their releases, the oldest first.
fn libraries(folder: &Path) -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir(folder).unwrap_or_else(|fault| panic!("BLOOMGATE_PEERS: {}: {fault}", folder.display()));
    let mut libraries: Vec<(u32, PathBuf)> = entries
        .map(|entry| entry.expect("a directory entry").path().canonicalize().expect("a file that is there"))
        .filter_map(|path| {
            let release = path.file_name()?.to_str()?.strip_prefix("redisbloom-")?.strip_suffix(".so")?;
            Some((release.split('.').next()?.parse().ok()?, path))
        })
        .collect();
    libraries.sort();
    libraries
}

/// The first number of a Redis server's version; nothing for another server.
fn redis_version(program: &Path) -> Option<u32> {
    let output = Command::new(program).arg("--version").output().expect("the server says its version");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.strip_prefix("Redis server v=")?.split('.').next()?.parse().ok()
}

/// Numbers for one test: equal for equal `BLOOMGATE_SEED`s.
fn rng(test: &str) -> Rng {
    let seed: u64 = env::var("BLOOMGATE_SEED").map_or(1, |text| text.parse().expect("a number"));
    eprintln!("{test}: BLOOMGATE_SEED={seed}");
    Rng::new(test.bytes().fold(seed, |seed, letter| seed.wrapping_mul(31).wrapping_add(letter.into())))
}

//! Finds the servers to test with and the module to load. There is no silent fallback: without a server or a module the test
//! fails with instructions.

use std::collections::HashSet;
use std::env;
use std::path::{Path, PathBuf};

/// The servers of `BLOOMGATE_SERVERS`, or every `redis-server` and `valkey-server` on the PATH.
pub fn servers() -> Vec<PathBuf> {
    if let Some(list) = env::var_os("BLOOMGATE_SERVERS") {
        let listed: Vec<PathBuf> = env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect();
        assert!(!listed.is_empty(), "BLOOMGATE_SERVERS is set but names no server");
        for program in &listed {
            assert!(program.is_file(), "BLOOMGATE_SERVERS names {}, which is not a file", program.display());
        }
        return listed;
    }
    // One program often has several names: /bin is a link to /usr/bin, and valkey-server has a compatibility link named
    // redis-server. It is run under the name by which it was found, because servers inspect that name.
    let mut seen = HashSet::new();
    let path = env::var_os("PATH").unwrap_or_default();
    let found: Vec<PathBuf> = env::split_paths(&path)
        .flat_map(|folder| ["redis-server", "valkey-server"].map(|name| folder.join(name)))
        .filter(|program| program.is_file())
        .filter(|program| seen.insert(program.canonicalize().expect("a file that was just seen")))
        .collect();
    assert!(
        !found.is_empty(),
        "no redis-server and no valkey-server on the PATH: install one, or list some in BLOOMGATE_SERVERS"
    );
    found
}

/// The server in `BLOOMGATE_OLD_SERVER`, which is older than 7.0.
pub fn old_server() -> PathBuf {
    named_by("BLOOMGATE_OLD_SERVER")
}

/// The server in `BLOOMGATE_OTHER_SERVER`, which was built for another processor.
pub fn server_of_other_processor() -> PathBuf {
    named_by("BLOOMGATE_OTHER_SERVER")
}

/// The module in `BLOOMGATE_OTHER_MODULE`, for that server.
pub fn module_of_other_processor() -> PathBuf {
    named_by("BLOOMGATE_OTHER_MODULE")
}

/// The file that an environment variable names.
fn named_by(variable: &str) -> PathBuf {
    let file = PathBuf::from(env::var_os(variable).unwrap_or_else(|| panic!("{variable} is not set")));
    assert!(file.is_file(), "{variable} is {}, which is not a file", file.display());
    file
}

/// Returns a file that an earlier build put into this profile's folder.
fn built(name: &str, command: &str) -> PathBuf {
    let program = env::current_exe().expect("this program's own path");
    let folder = program.parent().and_then(Path::parent).expect("target/<profile>/deps");
    let file = folder.join(name);
    assert!(file.is_file(), "no {}: run `{command}`", file.display());
    file
}

/// The test module that intercepts allocations and makes them fail.
pub fn fault_module() -> PathBuf {
    let name = if cfg!(target_os = "macos") { "libfault_module.dylib" } else { "libfault_module.so" };
    built(&format!("examples/{name}"), "cargo build --example fault_module")
}

/// The command-line tool.
pub fn tool() -> PathBuf {
    built("bloomgate", "cargo build -p bloomgate-tool")
}

/// The module in `BLOOMGATE_MODULE`, or the library next to this test program. `cargo test` rebuilds the one in `deps/`; only
/// `cargo build` updates its link one folder up.
pub fn module() -> PathBuf {
    let module = match env::var_os("BLOOMGATE_MODULE") {
        Some(path) => PathBuf::from(path),
        None => {
            let name = if cfg!(target_os = "macos") { "libbloomgate.dylib" } else { "libbloomgate.so" };
            env::current_exe().expect("this program's own path").with_file_name(name)
        }
    };
    assert!(module.is_file(), "no module at {}: run `cargo build`, or name one in BLOOMGATE_MODULE", module.display());
    module.canonicalize().expect("a file that was just seen")
}

//! The configuration of Debian's package redis-bloomgate, on servers whose redis.conf loads the module in every way that an
//! administrator, or CONFIG REWRITE, may have chosen. `scripts/package --test` installs the package itself.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use testing::{Server, Stop, array, bulk, integer, module, ok, on_every_server};

/// The service's options and the settings of the package, with its paths.
const DROP_IN: &str = include_str!("../../packaging/debian/redis-server.service.d.conf");
const SETTINGS: &str = include_str!("../../packaging/debian/bloomgate.conf");
const AFTER_REMOVAL: &str = include_str!("../../packaging/debian/scripts/postrm");
const LIBRARY: &str = "/usr/lib/redis/modules/bloomgate.so";
/// The beginning of the command that the drop-in shares with the package redis-server.
const COMMAND: &str = "ExecStart=/usr/bin/redis-server /etc/redis/redis.conf --supervised systemd --daemonize no ";

/// A way to load the module or not: lines of redis.conf, files beside it, and the library that is finally loaded. In lines and files, ETC
/// is the folder, PACKAGE the package's library, and OWN a library that the administrator has built.
type Form = (&'static str, &'static [&'static str], &'static [(&'static str, &'static str)], &'static str);

const FORMS: [Form; 16] = [
    ("nothing", &[], &[], "PACKAGE"),
    ("an unrelated file", &["include ETC/bloom.conf"], &[("bloom.conf", "maxclients 100")], "PACKAGE"),
    ("comments", &["# loadmodule OWN", "#include ETC/bloom.conf"], &[], "PACKAGE"),
    ("the package's library", &["loadmodule PACKAGE"], &[], "PACKAGE"),
    ("with words", &["LOADMODULE PACKAGE INITIAL_SIZE 50"], &[], "PACKAGE"),
    ("another library", &["loadmodule OWN"], &[], "OWN"),
    ("a file", &["include ETC/a.conf"], &[("a.conf", "loadmodule PACKAGE")], "PACKAGE"),
    ("a file, another library", &["include ETC/a.conf"], &[("a.conf", "loadmodule OWN")], "OWN"),
    ("a relative path", &["dir ETC", "include a.conf"], &[("a.conf", "loadmodule OWN")], "OWN"),
    ("quotes", &["include \"ETC/a.conf\""], &[("a.conf", "loadmodule \"OWN\"")], "OWN"),
    ("quotes with an escape", &["include \"ETC/\\x61.conf\""], &[("a.conf", "loadmodule OWN")], "OWN"),
    ("a pattern", &["include ETC/conf.d/*.conf"], &[("conf.d/50-a.conf", "loadmodule OWN")], "OWN"),
    ("a pattern without a file", &["include ETC/conf.d/*.conf"], &[], "PACKAGE"),
    (
        "nested",
        &["include ETC/a.conf"],
        &[("a.conf", "maxclients 100\ninclude ETC/conf.d/b*.conf\nmaxclients 99"), ("conf.d/b.conf", "loadmodule OWN")],
        "OWN",
    ),
    ("the package's file", &["include ETC/bloomgate.conf"], &[], "PACKAGE"),
    ("the package's file by a pattern", &["loadmodule OWN", "include ETC/b*.conf"], &[], "OWN"),
];

struct Machine {
    etc: TempDir,
    package: String,
    own: String,
}

impl Machine {
    fn new() -> Self {
        let etc = tempfile::Builder::new().prefix("bloomgate-").tempdir().expect("a temporary directory");
        let own = etc.path().join("own.so");
        fs::copy(module(), &own).expect("a copy of the module");
        Self { package: module().display().to_string(), own: own.display().to_string(), etc }
    }

    /// Replaces the paths of Debian and the words of a form by the paths of this machine.
    fn here(&self, text: &str) -> String {
        let etc = self.etc.path().display().to_string();
        let text = text.replace(LIBRARY, &self.package).replace("/etc/redis", &etc);
        text.replace("PACKAGE", &self.package).replace("OWN", &self.own).replace("ETC", &etc)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.etc.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("the folder");
        fs::write(path, format!("{}\n", self.here(text))).expect("the file");
    }

    /// The server that systemd starts with the drop-in.
    fn server(&self, program: &Path, lines: &[&str]) -> Server {
        let options = DROP_IN.lines().find_map(|line| line.strip_prefix(COMMAND)).expect("the command of the package");
        let options = self.here(options);
        let options: Vec<&str> = options.split(' ').collect();
        let server = Server::with(program).without_module().arguments(&options);
        lines.iter().fold(server, |server, line| server.line(&self.here(line))).start()
    }
}

/// The path of the loaded module.
fn loaded_from(server: &Server) -> String {
    let modules = server.connect().run("MODULE LIST");
    let ours: Vec<_> = modules.elements().iter().filter(|module| module.field("name").text() == "bf").collect();
    assert_eq!(ours.len(), 1, "{modules:?}");
    ours[0].field("path").text()
}

#[test]
fn the_module_is_loaded_once_whatever_redis_conf_includes() {
    on_every_server(|program| {
        for (name, lines, files, loaded) in FORMS {
            let machine = Machine::new();
            machine.write("bloomgate.conf", SETTINGS);
            files.iter().for_each(|(name, text)| machine.write(name, text));
            let mut server = machine.server(program, lines);
            let configuration = server.folder().join("redis.conf");
            for round in ["installed", "rewritten", "rewritten twice"] {
                assert_eq!(loaded_from(&server), machine.here(loaded), "{name}, {round}");
                let mut client = server.connect();
                assert_eq!(client.run("BF.ADD k x"), integer(1), "{name}, {round}");
                assert_eq!(client.run("CONFIG REWRITE"), ok(), "{name}, {round}");
                let text = fs::read_to_string(&configuration).unwrap();
                let line = |line: &&str| line.to_lowercase().starts_with("loadmodule ");
                assert_eq!(text.lines().filter(line).count(), 1, "{name}, {round}:\n{text}");
                server.restart(Stop::NoSave);
            }
        }
    });
}

#[test]
fn settings_of_the_package_take_precedence_and_its_file_may_be_deleted() {
    on_every_server(|program| {
        let machine = Machine::new();
        machine.write("bloomgate.conf", &SETTINGS.replace("#bf.initial-size 100", "bf.initial-size 77"));
        let mut server = machine.server(program, &["loadmodule OWN INITIAL_SIZE 60", "bf.expansion-factor 5"]);
        let mut client = server.connect();
        for (name, value) in [("bf.initial-size", "77"), ("bf.expansion-factor", "5")] {
            assert_eq!(client.run(&format!("CONFIG GET {name}")), array([bulk(name), bulk(value)]));
        }
        fs::remove_file(machine.etc.path().join("bloomgate.conf")).unwrap();
        server.restart(Stop::NoSave);
        assert_eq!(loaded_from(&server), machine.own);
    });
}

#[test]
fn the_removed_package_names_the_files_that_still_load_it() {
    let etc = tempfile::Builder::new().prefix("bloomgate-").tempdir().expect("a temporary directory");
    fs::create_dir(etc.path().join("conf.d")).unwrap();
    fs::write(etc.path().join("bloomgate.conf"), SETTINGS).unwrap();
    let others = format!("# loadmodule {LIBRARY}\nloadmodule /usr/local/lib/libbloomgate.so\n");
    fs::write(etc.path().join("redis.conf"), others).unwrap();
    fs::write(etc.path().join("conf.d/50.conf"), format!("  LoadModule \"{LIBRARY}\" INITIAL_SIZE 50\n")).unwrap();
    let etc = etc.path().display().to_string();
    let script = AFTER_REMOVAL.replace("/etc/redis", &etc).replace("/etc/valkey", "/nonexistent");
    let output = Command::new("sh").args(["-c", &script, "postrm", "remove"]).output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    let files: Vec<&str> = said.lines().filter(|line| line.contains("still loads the module")).collect();
    let line =
        format!("bloomgate: {etc}/conf.d/50.conf still loads the module: remove that line before the next start");
    assert_eq!(files, [line]);
}

//! Reads the append-only file, which has the same commands as the replication stream, and starts servers on files that a test has written.

use std::fs;
use std::path::{Path, PathBuf};

use super::process::{Server, Stop};

/// Starts a server that writes its append-only file as commands, and rewrites it only on request.
pub fn with_append_only_file(program: &Path) -> Server {
    Server::with(program)
        .line("appendonly yes")
        .line("aof-use-rdb-preamble no")
        .line("auto-aof-rewrite-percentage 0")
        .start()
}

/// The commands written since the last rewrite as lines of text, without the server's SELECT, MULTI and EXEC.
pub fn lines(server: &Server) -> Vec<String> {
    let join = |words: &Vec<Vec<u8>>| String::from_utf8_lossy(&words.join(&b' ')).into_owned();
    append_only_commands(server).iter().map(join).filter(|line| line != "MULTI" && line != "EXEC").collect()
}

/// The commands written since the last rewrite, without the SELECTs, each as its words.
pub fn append_only_commands(server: &Server) -> Vec<Vec<Vec<u8>>> {
    commands_in(&newest(server, ".incr.aof"))
}

/// The commands that the last rewrite wrote, if it wrote commands instead of a snapshot.
pub fn rewritten_commands(server: &Server) -> Vec<Vec<Vec<u8>>> {
    commands_in(&newest(server, ".base.aof"))
}

fn commands_in(file: &Path) -> Vec<Vec<Vec<u8>>> {
    commands_of(&fs::read(file).expect("the append-only file is readable"))
}

/// Splits a line at single spaces into the words of a command.
pub fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// Parses the commands in the bytes of an append-only file, without the SELECTs, each as its words.
pub fn commands_of(mut rest: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let mut commands = Vec::new();
    while !rest.is_empty() {
        let words = read_number(&mut rest, b'*');
        let command: Vec<Vec<u8>> = (0..words)
            .map(|_| {
                let length = read_number(&mut rest, b'$');
                let word = rest[..length].to_vec();
                rest = &rest[length + 2..];
                word
            })
            .collect();
        if !command[0].eq_ignore_ascii_case(b"SELECT") {
            commands.push(command);
        }
    }
    commands
}

/// Encodes commands in the format of an append-only file.
pub fn encode<W: AsRef<[u8]>>(commands: impl IntoIterator<Item = impl AsRef<[W]>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for words in commands {
        bytes.extend(format!("*{}\r\n", words.as_ref().len()).bytes());
        for word in words.as_ref().iter().map(AsRef::as_ref) {
            bytes.extend(format!("${}\r\n", word.len()).bytes());
            bytes.extend_from_slice(word);
            bytes.extend(b"\r\n");
        }
    }
    bytes
}

/// Starts a server on a snapshot.
pub fn start_on_snapshot(program: &Path, lines: &[&str], snapshot: &[u8]) -> Server {
    let builder = lines.iter().fold(Server::with(program), |builder, line| builder.line(line));
    let mut server = builder.start();
    server.stop(Stop::NoSave);
    fs::write(server.folder().join("dump.rdb"), snapshot).expect("the snapshot is written");
    server.start_again();
    server
}

/// Starts a server on an append-only file of plain commands.
pub fn start_on_commands(program: &Path, lines: &[&str], commands: &[u8]) -> Server {
    let mut server = stopped_on_commands(program, lines, commands);
    server.start_again();
    server
}

/// Prepares a server that will start on an append-only file of plain commands.
pub fn stopped_on_commands(program: &Path, lines: &[&str], commands: &[u8]) -> Server {
    let builder = Server::with(program).line("appendonly yes").line("aof-use-rdb-preamble no");
    let mut server = lines.iter().fold(builder, |builder, line| builder.line(line)).start();
    server.stop(Stop::NoSave);
    let folder: PathBuf = server.folder().join("appendonlydir");
    fs::remove_dir_all(&folder).expect("the server's own file is removed");
    fs::create_dir(&folder).expect("an empty folder");
    fs::write(folder.join("appendonly.aof.1.base.aof"), commands).expect("the commands are written");
    let manifest = "file appendonly.aof.1.base.aof seq 1 type b\n";
    fs::write(folder.join("appendonly.aof.manifest"), manifest).expect("the manifest is written");
    server
}

/// The length of the append-only file in bytes, since the last rewrite.
pub fn append_only_length(server: &Server) -> u64 {
    fs::metadata(newest(server, ".incr.aof")).expect("an append-only file").len()
}

/// The newest file of its kind: `appendonlydir/appendonly.aof.<n>.incr.aof`, and `.base.aof` for a rewrite.
pub fn newest(server: &Server, ending: &str) -> PathBuf {
    let folder = server.folder().join("appendonlydir");
    let number = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?.strip_suffix(ending)?;
        name.rsplit('.').next()?.parse::<u64>().ok()
    };
    fs::read_dir(&folder)
        .unwrap_or_else(|fault| panic!("{}: {fault}", folder.display()))
        .map(|entry| entry.expect("a directory entry").path())
        .filter(|path| number(path).is_some())
        .max_by_key(number)
        .unwrap_or_else(|| panic!("no file {ending} in {}", folder.display()))
}

fn read_number(rest: &mut &[u8], kind: u8) -> usize {
    assert_eq!(rest[0], kind, "the append-only file holds commands: {}", rest.escape_ascii());
    let end = rest.windows(2).position(|pair| pair == b"\r\n").expect("an end of line");
    let number = std::str::from_utf8(&rest[1..end]).expect("digits").parse().expect("a number");
    *rest = &rest[end + 2..];
    number
}

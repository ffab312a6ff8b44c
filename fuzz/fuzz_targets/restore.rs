//! Fuzzes RESTORE through a server. The input is the value of a DUMP payload. The server's module has coverage counters, which
//! are passed to the fuzzer. `BLOOMGATE_MODULE` names that module (`counted-module`), `BLOOMGATE_SERVERS` a server.
#![no_main]

use std::env;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::panic;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex};

use testing::{Connection, Server, integer, restore_by_law, with_fixed_checksum};

/// The number of counters: at least one for each branch of the module.
const COUNTERS: usize = 1 << 16;
/// The maximum growth of the server's memory over any number of inputs, in bytes.
const SLACK_BYTES: i64 = 256 << 10;

/// The counters that libFuzzer treats as the program's own: it resets them before each input and reads them after it.
#[allow(unsafe_code, reason = "it finds them by the name of the section")]
#[used]
#[unsafe(link_section = "__libfuzzer_extra_counters")]
static EXTRA_COUNTERS: [AtomicU8; COUNTERS] = [const { AtomicU8::new(0) }; COUNTERS];

/// A server, and the address of its module's counters.
struct Target {
    server: Server,
    client: Connection,
    /// `None` if the system does not let a process read the memory of its child.
    memory: Option<File>,
    first: u64,
    counts: Vec<u8>,
    inputs: u64,
    /// The memory after the first inputs.
    used: Option<i64>,
}

impl Target {
    fn start() -> Self {
        let servers = env::var_os("BLOOMGATE_SERVERS").expect("BLOOMGATE_SERVERS names a server");
        let program = env::split_paths(&servers).next().expect("a server");
        // Strings are not compressed, so that the bytes of a payload are those of the value.
        let server = Server::with(&program).line("rdbcompression no").line("bf.max-filter-bytes 2mb").start();
        let text = server.log();
        let said = text.lines().find_map(|line| line.strip_prefix("counters: ")).expect("a module that counts");
        let (first, end) = said.split_once(' ').expect("two addresses");
        let [first, end] = [first, end].map(|address| address.parse::<u64>().expect("an address"));
        let count = usize::try_from(end - first).expect("so many counters");
        assert!((1000..=COUNTERS).contains(&count), "{count} counters");
        let path = format!("/proc/{}/mem", server.process_id());
        let memory = OpenOptions::new().read(true).write(true).open(path);
        let memory =
            memory.inspect_err(|fault| eprintln!("not guided: cannot read the server's memory: {fault}")).ok();
        let client = server.connect();
        let log = server.log_path();
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |what| {
            eprintln!("the server's log:\n{}", fs::read_to_string(&log).unwrap_or_default());
            report(what);
        }));
        Self { server, client, memory, first, counts: vec![0; count], inputs: 0, used: None }
    }

    fn check(&mut self, value: &[u8]) {
        // 7 means that a module's value follows. After it come the version of the format and the checksum.
        let payload = with_fixed_checksum([&[7], value, &[10, 0], &[0; 8]].concat());
        self.counts.fill(0);
        if let Some(memory) = &self.memory {
            memory.write_all_at(&self.counts, self.first).expect("the counters");
        }
        restore_by_law(&self.server, &mut self.client, &payload);
        if let Some(memory) = &self.memory {
            memory.read_exact_at(&mut self.counts, self.first).expect("the counters");
        }
        for (counter, count) in EXTRA_COUNTERS.iter().zip(&self.counts) {
            counter.store(*count, Relaxed);
        }
        self.inputs += 1;
        if self.inputs.is_multiple_of(1000) {
            // A log line for each refused payload would fill the disk.
            File::create(self.server.log_path()).expect("the log");
            assert_eq!(self.client.run("DBSIZE"), integer(0));
            let now = self.client.info_number("used_memory");
            let before = *self.used.get_or_insert(now);
            assert!(now <= before + SLACK_BYTES, "{now} bytes used, {before} at the start");
        }
    }
}

static TARGET: LazyLock<Mutex<Target>> = LazyLock::new(|| Mutex::new(Target::start()));

libfuzzer_sys::fuzz_target!(|value: &[u8]| TARGET.lock().expect("no panic before").check(value));

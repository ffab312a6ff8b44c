//! The machine: its description in the tables, and the processors on which the server and its clients run.

use std::ffi::OsStr;
use std::fs;
use std::process::Command;

use super::info;

/// The processors for the programs.
#[derive(Clone, Debug)]
pub struct Processors {
    /// All processors that this program may use, in taskset's format.
    pub all: String,
    /// The server's processors.
    pub server: String,
    /// The clients' processors.
    pub client: String,
}

impl Processors {
    /// The first processor for servers, the last one for clients; `None` if there is only one, or no taskset.
    pub fn find() -> Option<Self> {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let all = info::field(&status, "Cpus_allowed_list")?.to_owned();
        let ends = all.split([',', '-']).collect::<Vec<_>>();
        let (server, client) = (ends.first()?.to_string(), ends.last()?.to_string());
        let usable = server != client && Command::new("taskset").arg("--version").output().is_ok();
        usable.then_some(Self { all, server, client })
    }

    /// Moves this program, which is a client, to the clients' processor.
    pub fn move_this_program(&self) {
        let own = std::process::id().to_string();
        let _ = Command::new("taskset").args(["-apc", &self.client, &own]).output();
    }

    /// Lets this program use all processors again.
    pub fn spread_this_program(&self) {
        let own = std::process::id().to_string();
        let _ = Command::new("taskset").args(["-apc", &self.all, &own]).output();
    }
}

/// Returns the output of a program without the trailing line end, or an empty string if it cannot be run.
pub fn output_of(program: impl AsRef<OsStr>, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns names and values that describe the machine.
pub fn describe() -> Vec<(&'static str, String)> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let unknown = || "unknown".to_owned();
    let cpu = info::field(&read("/proc/cpuinfo"), "model name")
        .map(str::to_owned)
        .or_else(|| output_of("sysctl", &["-n", "machdep.cpu.brand_string"]))
        .unwrap_or_else(unknown);
    let details = |name: &str| info::field(&read("/proc/cpuinfo"), name).map(str::to_owned);
    let family = details("cpu family").zip(details("model"));
    let family = family.map_or_else(String::new, |(family, model)| format!(" (family {family}, model {model})"));
    let bytes = info::number(&read("/proc/meminfo"), "MemTotal")
        .map(|kilobytes| kilobytes * 1024)
        .or_else(|| output_of("sysctl", &["-n", "hw.memsize"])?.parse().ok());
    let memory = bytes.map_or_else(unknown, |bytes| format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    vec![
        ("processor", format!("{cpu}{family}, {cores} cores")),
        ("memory", memory),
        ("system", output_of("uname", &["-srm"]).unwrap_or_else(unknown)),
        ("huge pages", read("/sys/kernel/mm/transparent_hugepage/enabled").trim().to_owned()),
        ("date", output_of("date", &["-u", "+%Y-%m-%d"]).unwrap_or_else(unknown)),
    ]
}

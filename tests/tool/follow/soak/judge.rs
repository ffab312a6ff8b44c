//! The measurements of a soak for each process, and the verdict: compares the medians of the last and the second quarter of a run. The
//! first quarter is the warm-up.

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use testing::Server;

/// The measurements of a server, and the tolerated growth: per cent, and units. The replication backlog fills up to 1 MiB, and the
/// append-only file grows until it is rewritten.
const SERVER: [(&str, i64, i64); 9] = [
    ("used_memory kB", 5, 1024),
    ("keys", 10, 50),
    ("leases", 10, 20),
    ("NONEs", 10, 50),
    ("filters kB", 10, 32),
    ("RSS kB", 10, 4096),
    ("descriptors", 0, 5),
    ("threads", 0, 1),
    ("folder kB", 25, 1024),
];
const FOLLOWER: [(&str, i64, i64); 3] = [("RSS kB", 10, 4096), ("descriptors", 0, 5), ("threads", 0, 1)];
/// The log that the follower has not confirmed, which PostgreSQL keeps.
const SLOT: (&str, i64, i64) = ("log kB", 0, 4096);

/// The samples of a run: for each series its name, its limits and its values.
pub struct Samples(Vec<(String, i64, i64, Vec<i64>)>);

impl Samples {
    pub fn new() -> Self {
        let of = |process: &'static str, measures: &'static [(&str, i64, i64)]| {
            measures
                .iter()
                .map(move |(name, percent, units)| (format!("{process}: {name}"), *percent, *units, Vec::new()))
        };
        let servers = of("first", &SERVER).chain(of("second", &SERVER));
        let series: Vec<_> = servers.chain(of("follower", &FOLLOWER)).chain(of("slot", &[SLOT])).collect();
        let names: Vec<&str> = series.iter().map(|(name, ..)| name.as_str()).collect();
        eprintln!("sample: seconds,{}", names.join(","));
        Self(series)
    }

    /// Adds a sample.
    pub fn take(&mut self, time: Duration, servers: [&Server; 2], follower: u32, session: &mut postgres::Client) {
        let mut values = Vec::new();
        for server in servers {
            let mut client = server.connect();
            values.extend([client.info_number("used_memory") >> 10, client.run("DBSIZE").number()]);
            values.extend(["leases", "nones"].map(|name| client.info_number(&format!("bf_bloom_{name}"))));
            values.push(client.info_number("bf_bloom_total_memory_bytes") >> 10);
            values.extend(process(server.process_id()));
            values.push(size_bytes(server.folder()) >> 10);
        }
        values.extend(process(follower));
        let text = "SELECT (pg_current_wal_lsn() - confirmed_flush_lsn)::bigint FROM pg_replication_slots";
        values.push(session.query_one(text, &[]).unwrap().get::<_, i64>(0) >> 10);
        let line: Vec<String> = values.iter().map(i64::to_string).collect();
        eprintln!("sample: {},{}", time.as_secs(), line.join(","));
        assert_eq!(values.len(), self.0.len());
        self.0.iter_mut().zip(values).for_each(|((.., series), value)| series.push(value));
    }

    /// Returns the series whose last quarter exceeds the second one.
    pub fn grown(&self) -> Vec<String> {
        let grown = self.0.iter().filter_map(|(name, percent, units, values)| {
            let [second, last] = quarters(values);
            (last > second + second * percent / 100 + units).then(|| format!("{name} grew from {second} to {last}"))
        });
        grown.collect()
    }
}

impl fmt::Display for Samples {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "| series | first sample | second quarter, median | last quarter, median | last sample | most |"
        )?;
        writeln!(out, "| --- | --- | --- | --- | --- | --- |")?;
        for (name, .., values) in &self.0 {
            let [second, last] = quarters(values);
            let [first, now, most] =
                [values.first(), values.last(), values.iter().max()].map(|value| value.unwrap_or(&0));
            writeln!(out, "| {name} | {first} | {second} | {last} | {now} | {most} |")?;
        }
        Ok(())
    }
}

/// Returns the medians of the second and of the last quarter.
fn quarters(values: &[i64]) -> [i64; 2] {
    let quarter = values.len() / 4;
    [&values[quarter..2 * quarter], &values[values.len() - quarter..]].map(|part| {
        let mut part = part.to_vec();
        part.sort_unstable();
        part.get(part.len() / 2).copied().unwrap_or(0)
    })
}

/// Returns the resident kilobytes, the open file descriptors and the threads of a process.
fn process(id: u32) -> [i64; 3] {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_end_matches(" kB").trim().parse::<i64>().unwrap()
    };
    [number("VmRSS:"), fs::read_dir(format!("/proc/{id}/fd")).unwrap().count() as i64, number("Threads:")]
}

/// Returns the size of the files in a folder. A rewrite may remove files meanwhile.
fn size_bytes(folder: &Path) -> i64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| {
        let data = entry.metadata().ok()?;
        Some(if data.is_dir() { size_bytes(&entry.path()) } else { data.len() as i64 })
    });
    sizes.sum()
}

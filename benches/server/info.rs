//! Parses the output of servers and programs: the lines of INFO, the statistics of a command, and /proc. These are pure functions of text.

/// Returns the value after `name:` in INFO, /proc/PID/status and similar texts, trimmed.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':')).map(str::trim)
}

/// Returns the number after `name:`, without the unit after it.
pub fn number(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.split_whitespace().next()?.parse().ok()
}

/// A command's line of `INFO commandstats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandStatistics {
    /// The number of calls.
    pub calls: u64,
    /// The total time inside the command.
    pub microseconds: u64,
}

impl CommandStatistics {
    /// The time per call. `usec_per_call` in INFO is the same with two decimals.
    pub fn microseconds_per_call(&self) -> f64 {
        self.microseconds as f64 / self.calls as f64
    }
}

/// Returns the statistics of a command, whose name may be in any case.
pub fn command_statistics(text: &str, command: &str) -> Option<CommandStatistics> {
    text.lines().find_map(|line| {
        let (name, rest) = line.trim().strip_prefix("cmdstat_")?.split_once(':')?;
        if !name.eq_ignore_ascii_case(command) {
            return None;
        }
        let value = |wanted: &str| rest.split(',').find_map(|pair| pair.strip_prefix(wanted)?.strip_prefix('='));
        Some(CommandStatistics { calls: value("calls")?.parse().ok()?, microseconds: value("usec")?.parse().ok()? })
    })
}

/// Returns the seconds that the server took to load its snapshot, according to its log.
pub fn seconds_to_load(log: &str) -> Option<f64> {
    let line = log.lines().rev().find(|line| line.contains("DB loaded from disk: "))?;
    line.split("DB loaded from disk: ").nth(1)?.split_whitespace().next()?.parse().ok()
}

/// Returns why a server exited, according to its log: the line about the failure, or else the last line, without PID and
/// time.
pub fn exit_reason(log: &str) -> String {
    let line = log.lines().find(|line| line.contains("failed") && !line.contains("WARNING"));
    let line = line.or_else(|| log.lines().last()).unwrap_or("its log is empty");
    line.split_once(" # ").map_or(line, |(_, text)| text).to_owned()
}

#[cfg(test)]
#[allow(unused, reason = "cargo bench compiles this too, without the test functions")]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let info = "# Persistence\r\nrdb_last_cow_size:53248\r\nrdb_last_cow:7\r\n";
        assert_eq!(number(info, "rdb_last_cow"), Some(7));
        assert_eq!(number(info, "rdb_last_cow_size"), Some(53248));
        assert_eq!(field(info, "rdb_last"), None);
        assert_eq!(number("VmHWM:\t  123 kB\n", "VmHWM"), Some(123));
        assert_eq!(field("model name\t: AMD EPYC\n", "model name"), Some("AMD EPYC"));
    }

    #[test]
    fn the_time_of_a_call_has_more_digits_than_info_prints() {
        let info = "# Commandstats\r\ncmdstat_BF.EXISTS:calls=3000,usec=1001,usec_per_call=0.33,rejected_calls=0\r\n\
                    cmdstat_config|resetstat:calls=1,usec=9,usec_per_call=9.00\r\n";
        let exists = command_statistics(info, "bf.exists").unwrap();
        assert_eq!(exists, CommandStatistics { calls: 3000, microseconds: 1001 });
        assert!((exists.microseconds_per_call() - 1001.0 / 3000.0).abs() < 1e-12);
        assert_eq!(command_statistics(info, "exists"), None);
        assert_eq!(command_statistics(info, "config|resetstat").unwrap().microseconds, 9);
    }

    #[test]
    fn the_log_says_why_a_server_exited() {
        let log = "7:M 1 Jan 2024 00:00:00.000 # WARNING it may have failed\n\
                   7:M 1 Jan 2024 00:00:00.000 # Module a.so failed to load: no such file\n\
                   7:M 1 Jan 2024 00:00:00.000 # Can't load module from a.so: server aborting\n";
        assert_eq!(exit_reason(log), "Module a.so failed to load: no such file");
        assert_eq!(exit_reason("bye"), "bye");
        assert_eq!(exit_reason(""), "its log is empty");
    }

    #[test]
    fn the_log_says_how_long_loading_took() {
        let log = "1:M * DB loaded from disk: 9.000 seconds\n1:M * DB loaded from disk: 1.250 seconds\n1:M * Ready\n";
        assert_eq!(seconds_to_load(log), Some(1.25));
        assert_eq!(seconds_to_load("1:M * Ready\n"), None);
    }
}

//! The configuration file of the follower, in TOML.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use bloomgate_filter::arguments::reserve;
use bloomgate_filter::kinds::{Defaults, Spec};
use serde::Deserialize;

use crate::database;
use crate::server::slot;

/// The range of `max-lag`.
const MAX_LAG_RANGE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3600));

/// The field of the journal that represents every cache key.
pub const EVERY_KEY: &[u8] = b"*";

/// A table of every setting of the file, from which the help and the manual page are generated.
pub const SETTINGS: &str = include_str!("../settings.md");

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// The database's URL. If it contains no password, the environment variable `PGPASSWORD` or `MYSQL_PWD` does.
    #[serde(default)]
    pub database: String,
    /// The source of changes, if it is not a database's log.
    pub source: Option<JsonSource>,
    /// The URL of the Redis or Valkey server.
    pub server: String,
    /// Whether the server is a node of a cluster.
    #[serde(default)]
    pub cluster: bool,
    /// The name of the replication slot. With another source it only labels the metrics.
    #[serde(default)]
    pub slot: String,
    /// The name of the publication, `slot` unless given.
    pub publication: Option<String>,
    /// Whether COMMIT waits.
    #[serde(default)]
    pub mode: Mode,
    /// The number of the server's replicas that must have a change before it is confirmed to the database.
    #[serde(default)]
    pub wait: u16,
    /// Whether a change must also be in the server's append-only file on disk before it is confirmed.
    #[serde(default)]
    pub waitaof: bool,
    /// The address and port at which metrics for Prometheus are served, under `/metrics`.
    pub metrics: Option<SocketAddr>,
    #[serde(rename = "table", default)]
    pub tables: Vec<Table>,
}

/// The followed source.
pub enum Log<'a> {
    Postgres,
    Binlog,
    Json(&'a JsonSource),
}

/// The time at which the writers' COMMITs return.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Without waiting for the follower.
    #[default]
    Eventual,
    /// Once the follower has announced the transaction to readers.
    Synchronous,
}

/// JSON changes of a tool that reads the database's log.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct JsonSource {
    #[serde(rename = "kind")]
    _kind: JsonKind,
    pub format: Format,
    /// The key of a Redis stream; standard input without it.
    pub stream: Option<String>,
    /// The URL of the server with the stream, if it is not the server of the filters.
    pub server: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum JsonKind {
    Json,
}

/// The tool that writes the JSON.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    Debezium,
    Canal,
    Maxwell,
}

/// The type of a column of a primary key, which is not in the JSON.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum KeyType {
    Integer,
    Unsigned,
    Uuid,
    Text,
}

/// A table and its filter.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Table {
    /// `SCHEMA.TABLE`, or a table in the search path.
    pub name: String,
    /// The filter's key.
    pub filter: String,
    /// The arguments of BF.RESERVE after the key.
    pub create: String,
    /// The template of the filter's items.
    pub item: String,
    /// The templates of the cache keys.
    #[serde(deserialize_with = "one_or_more")]
    pub cache_key: Vec<String>,
    /// The columns of the primary key with their types, for JSON changes.
    #[serde(default)]
    pub key: BTreeMap<String, KeyType>,
    /// The maximum age of the filter's state for the answer `absent`.
    #[serde(deserialize_with = "duration")]
    pub max_lag: Duration,
    /// The keys of all tables of the file. A cache key must not equal any of them.
    #[serde(skip)]
    pub reserved: Vec<String>,
}

impl Config {
    /// Reads a file. Errors contain the line.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} is invalid", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let mut config: Self = toml::from_str(text).map_err(|error| {
            let line =
                error.span().and_then(|span| text.get(..span.start)).map(|before| before.matches('\n').count() + 1);
            let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
            anyhow!("{place}{}", error.message().replace('\n', "; "))
        })?;
        let is_name = |name: &str| {
            (1..=63).contains(&name.len())
                && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        };
        if let Some(source) = &config.source {
            let has_other = !config.database.is_empty() || !config.slot.is_empty() || config.publication.is_some();
            let waits = config.mode == Mode::Synchronous || config.wait > 0 || config.waitaof;
            ensure!(
                !has_other && !waits,
                "`database`, `slot`, `publication`, `mode`, `wait` and `waitaof` are not for JSON changes"
            );
            if let Some(table) = config.tables.iter().find(|table| table.key.is_empty()) {
                bail!("the table {} has no `key`: the columns of its primary key", table.name);
            }
            config.slot = source.stream.clone().unwrap_or_else(|| "stdin".to_owned());
        } else {
            ensure!(!config.database.is_empty(), "there is no `database`");
            ensure!(config.tables.iter().all(|table| table.key.is_empty()), "`key` is for JSON changes");
            ensure!(is_name(&config.slot), "`slot` must be 1 to 63 of the characters a-z, 0-9 and _");
        }
        ensure!(!config.tables.is_empty(), "there is no [[table]]");
        let mut reserved = Vec::new();
        for table in &config.tables {
            ensure!(!table.cache_key.is_empty(), "the table {} has no cache-key", table.name);
            let (least, most) = MAX_LAG_RANGE;
            ensure!((least..=most).contains(&table.max_lag), "the max-lag of {} must be 100ms to 1h", table.name);
            table.check_create()?;
            let keys = Keys::of(&table.filter);
            ensure!(
                slot(keys.filter.as_bytes()) == slot(keys.feed.as_bytes()),
                "no other key can share the slot of the filter `{}` because of its braces",
                table.filter
            );
            let elsewhere = table.cache_key.iter().find(|key| tag(key) != Some(table.tag()));
            if let Some(key) = elsewhere.filter(|_| config.cluster) {
                bail!(
                    "the cache-key `{key}` must begin with `{{{}}}`: in a cluster its slot differs from the filter's",
                    table.tag()
                );
            }
            let own = keys.all();
            if let Some(key) = own.iter().find(|key| reserved.contains(*key)) {
                bail!("two tables need the key `{key}`: name another filter than `{}`", table.filter);
            }
            reserved.extend(own);
        }
        config.tables.iter_mut().for_each(|table| table.reserved.clone_from(&reserved));
        Ok(config)
    }

    /// Returns which log is followed.
    pub fn log(&self) -> Log<'_> {
        match &self.source {
            Some(source) => Log::Json(source),
            None if ["mysql://", "mariadb://"].iter().any(|scheme| self.database.starts_with(scheme)) => Log::Binlog,
            None => Log::Postgres,
        }
    }

    /// Returns the connection settings for PostgreSQL, with the password from the environment if the URL has none.
    pub fn settings(&self) -> Result<tokio_postgres::Config> {
        let mut settings =
            database::parse(&self.database).context("`database` is not the URL of a PostgreSQL server")?;
        // The name for `synchronous_standby_names`.
        settings.application_name(&self.slot);
        Ok(settings)
    }

    /// Returns the name of the publication.
    pub fn publication(&self) -> &str {
        self.publication.as_deref().unwrap_or(&self.slot)
    }
}

/// The keys of a table, all in one slot.
#[derive(Clone, Debug)]
pub struct Keys {
    pub filter: String,
    /// The heartbeat. Readers pass it to WHILE.
    pub feed: String,
    /// The position up to which the log is applied to the filter.
    pub position: String,
    /// The number of the follower that may write.
    pub epoch: String,
    /// The journal: cache keys with a write in flight. Readers pass it to UNLESS.
    pub open: String,
    /// Exists while a follower is active, with or without a heartbeat.
    pub alive: String,
    /// The filter under construction during a fill.
    pub filling: String,
    /// The prefix of a substitute cache key for rows without one. Nothing is stored there.
    pub null: String,
}

impl Keys {
    fn of(filter: &str) -> Self {
        let base = if tag(filter).is_some() { filter.to_owned() } else { format!("{{{filter}}}") };
        Self {
            filter: filter.to_owned(),
            feed: format!("{base}:feed"),
            position: format!("{base}:feed:position"),
            epoch: format!("{base}:feed:epoch"),
            open: format!("{base}:feed:open"),
            alive: format!("{base}:feed:alive"),
            filling: format!("{base}:feed:filling"),
            null: format!("{base}:feed:null:"),
        }
    }

    fn all(self) -> [String; 7] {
        [self.filter, self.feed, self.position, self.epoch, self.open, self.alive, self.filling]
    }
}

impl Table {
    /// Returns the keys of the table.
    pub fn keys(&self) -> Keys {
        Keys::of(&self.filter)
    }

    /// Returns the settings that determine the filter's items and the cached values. If they change, both are invalid.
    pub fn contents(&self) -> String {
        let words = [&self.create, &self.item].into_iter().chain(&self.cache_key);
        words.map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    /// Checks the arguments of BF.RESERVE like the server. If the server refused them later, COMMITs would keep waiting.
    fn check_create(&self) -> Result<()> {
        let words: Vec<_> =
            ["BF.RESERVE", &self.filter].into_iter().chain(self.create.split_ascii_whitespace()).collect();
        let reserve = reserve::parse(&words, &Defaults::default()).map_err(|refusal| {
            let text = refusal.to_string();
            anyhow!("the `create` of {} is wrong: {}", self.name, text.strip_prefix("ERR ").unwrap_or(&text))
        })?;
        let creation = reserve.creation;
        if matches!(creation.spec, Spec::Windowed(_) | Spec::Counting(_) | Spec::Cuckoo(_)) {
            let kind = creation.spec.names().kind.to_string_lossy();
            bail!("the filter of {} cannot be {kind}: its rows are added again whenever they change", self.name);
        }
        ensure!(creation.expires.is_none(), "the filter of {} cannot expire: its rows do not", self.name);
        ensure!(
            !reserve.exist_ok,
            "the filter of {} cannot be EXIST_OK: the follower always creates a new one",
            self.name
        );
        Ok(())
    }

    /// Returns the hash tag of the table's keys.
    pub fn tag(&self) -> &str {
        tag(&self.filter).unwrap_or(&self.filter)
    }
}

/// Returns the text between the first `{` of a key and the next `}`, unless it is empty.
fn tag(key: &str) -> Option<&str> {
    key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag).filter(|tag| !tag.is_empty())
}

fn one_or_more<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Texts {
        One(String),
        More(Vec<String>),
    }
    Ok(match Texts::deserialize(input)? {
        Texts::One(text) => vec![text],
        Texts::More(texts) => texts,
    })
}

/// `250ms`, `1s`, `2m` or `1h`.
fn duration<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(input)?;
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => 0,
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(milliseconds))
        .filter(|milliseconds| *milliseconds > 0)
        .map(Duration::from_millis)
        .ok_or_else(|| serde::de::Error::custom(format!("`{text}` is not a time: write 250ms, 1s, 2m or 1h")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const FILE: &str = r#"
database = "postgres://gate@db/shop"
server = "redis://cache:6379"
slot = "bloomgate"
mode = "eventual"
[[table]]
name = "public.users"
filter = "{users}"
create = "0.001 10000000 HASH siphash"
item = "{id}"
cache-key = ["{users}:{id}", "{users}:mail:{email}"]
max-lag = "1s"
"#;

    #[test]
    fn a_file_names_tables_and_their_keys() {
        let config = Config::parse(FILE).unwrap();
        let table = &config.tables[0];
        assert_eq!(
            (config.publication(), table.cache_key.len(), table.max_lag),
            ("bloomgate", 2, Duration::from_secs(1))
        );
        let keys = table.keys();
        assert_eq!(
            (keys.feed.as_str(), keys.filling.as_str(), table.tag()),
            ("{users}:feed", "{users}:feed:filling", "users")
        );
        let keys = Keys::of("users");
        assert_eq!((keys.filter.as_str(), keys.feed.as_str()), ("users", "{users}:feed"));
    }

    #[test]
    fn the_lag_has_a_unit() {
        for (text, seconds) in [("1500ms", 1.5), ("2s", 2.0), ("60m", 3600.0), ("1h", 3600.0)] {
            let config = Config::parse(&FILE.replace("\"1s\"", &format!("\"{text}\""))).unwrap();
            assert_eq!(config.tables[0].max_lag, Duration::from_secs_f64(seconds), "{text}");
        }
        for text in ["2h", "61m", "1d", "h", ""] {
            assert!(Config::parse(&FILE.replace("\"1s\"", &format!("\"{text}\""))).is_err(), "{text}");
        }
    }

    #[test]
    fn there_are_two_modes() {
        assert_eq!(Config::parse(FILE).unwrap().mode, Mode::Eventual);
        assert_eq!(Config::parse(&FILE.replace("eventual", "synchronous")).unwrap().mode, Mode::Synchronous);
    }

    #[test]
    fn invalid_keys_are_refused_by_name() {
        for (from, to, part) in [
            ("eventual", "sometimes", "line 5: unknown variant `sometimes`"),
            ("slot = \"bloomgate\"", "slot = \"Bloom gate\"", "`slot`"),
            ("\"1s\"", "\"1 s\"", "`1 s`"),
            ("\"1s\"", "\"99ms\"", "max-lag"),
            ("max-lag", "lag", "lag"),
            ("[\"{users}:{id}\", \"{users}:mail:{email}\"]", "[]", "cache-key"),
            ("filter = \"{users}\"", "filter = \"a}b\"", "braces"),
            ("HASH siphash", "COUNTING", "cannot be counting"),
            ("HASH siphash", "CUCKOO", "cannot be cuckoo"),
            ("HASH siphash", "WINDOW 60", "cannot be window"),
            ("HASH siphash", "EX 60", "cannot expire"),
            ("HASH siphash", "EXIST_OK", "cannot be EXIST_OK"),
            ("HASH siphash", "HASH sipphash", "bad hash"),
            ("0.001", "2", "the `create` of public.users is wrong: error rate must be in the range"),
            ("0.001 10000000 HASH siphash", "", "wrong number of arguments"),
            ("[\"{users}:{id}\", ", "[\"users:{id}\", ", "the cache-key `users:{id}` must begin with `{users}`"),
        ] {
            let error = Config::parse(&format!("cluster = true{}", FILE.replace(from, to))).unwrap_err();
            assert!(format!("{error:#}").contains(part), "{to}: {error:#}");
        }
        for (filter, key) in [("{users}", "{users}"), ("users", "{users}:feed"), ("{users}:feed", "{users}:feed")] {
            let second = FILE[FILE.find("[[").unwrap()..].replace("\"{users}\"", &format!("\"{filter}\""));
            let error = Config::parse(&format!("{FILE}{second}")).unwrap_err().to_string();
            assert!(error.contains(&format!("two tables need the key `{key}`")), "{error}");
        }
    }

    // The table of the settings.

    const JSON: &str = r#"
server = "redis://cache:6379"
[source]
kind = "json"
format = "maxwell"
[[table]]
name = "shop.users"
key = { id = "integer" }
filter = "{users}"
create = "0.001 10000000 HASH siphash"
item = "{id}"
cache-key = "{users}:{id}"
max-lag = "1s"
"#;

    /// Returns the rows: a section, a key, its default, and whether it is required.
    fn rows() -> Vec<(&'static str, &'static str, &'static str, &'static str)> {
        let cells = SETTINGS.lines().skip(2).map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
        cells
            .map(|cells| {
                let (section, name) = cells[1].split_once(' ').unwrap_or(("", cells[1]));
                (section.trim_matches('`'), name.trim_matches('`'), cells[3].trim_matches('`'), cells[4])
            })
            .collect()
    }

    /// Returns a file with an additional line at the beginning of a section.
    fn with_line(file: &str, section: &str, line: &str) -> String {
        match section {
            "" => format!("{line}\n{file}"),
            _ => file.replacen(section, &format!("{section}\n{line}"), 1),
        }
    }

    #[test]
    fn the_table_has_exactly_the_keys_that_a_file_may_have() {
        for (section, file) in [("", FILE), ("[source]", JSON), ("[[table]]", FILE)] {
            let error = Config::parse(&with_line(file, section, "zzz = 1")).unwrap_err().to_string();
            let (_, names) = error.split_once("unknown field `zzz`, expected one of ").unwrap();
            let accepted: Vec<_> = names.split(", ").map(|name| name.trim_matches('`')).collect();
            let mut listed: Vec<_> = rows().into_iter().filter(|row| row.0 == section).map(|row| row.1).collect();
            if section.is_empty() {
                listed.extend(["source", "table"]);
            }
            assert_eq!(listed.iter().collect::<BTreeSet<_>>(), accepted.iter().collect(), "{section}");
        }
    }

    #[test]
    fn keys_are_required_and_have_defaults_as_the_table_says() {
        for (section, name, default, required) in rows() {
            for file in [FILE, JSON].into_iter().filter(|file| file.contains(section)) {
                let is_required = match required {
                    "yes" => true,
                    "without `[source]`" => file == FILE,
                    "with `[source]`" => file == JSON,
                    _ => false,
                };
                let mut lines = file[file.find(section).unwrap()..].lines();
                let line = lines.find(|line| line.split_once(" = ").is_some_and(|(key, _)| key.trim() == name));
                assert!(line.is_some() || !is_required, "{section} {name} is not in the example");
                let without = line.map_or_else(|| file.to_owned(), |line| file.replacen(&format!("{line}\n"), "", 1));
                let config = Config::parse(&without);
                assert_eq!(config.is_err(), is_required, "{section} {name}: {config:?}");
                let value = format!("{name} = {default}");
                // Other defaults are descriptions, or do not apply to JSON changes.
                if file == FILE && toml::from_str::<toml::Table>(&value).is_ok() {
                    let explicit = Config::parse(&with_line(&without, section, &value));
                    assert_eq!(format!("{config:?}"), format!("{explicit:?}"), "{value}");
                }
            }
        }
    }
}

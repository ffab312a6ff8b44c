//! A soak test of ordinary use, which checks for growth that should not happen. A crawler, a guarded table with a writer and a reader, and
//! small filters for users work on a primary and a replica; both save, and the roles change. The load has a steady state: fixed numbers of
//! rows and links, a fixed lifetime of users and cached values. The processes run for the whole test, so that leaks accumulate.
//!
//! A run takes 8 s times `BLOOMGATE_EFFORT` (default 1): 450 is an hour. Each sample is printed as a line of CSV after `sample: `, and each
//! save prints a table of all samples so far, so that an interrupted run also has figures.

mod judge;

use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use testing::database::Database;
use testing::nodes::{Client, SLOTS, add_replica, node};
use testing::{Connection, Reply, Server, eventually, figures, integer, ok, on_every_server};

use crate::follow::soak::judge::Samples;
use crate::follow::{Follower, USERS, USERS_TABLE, World, permissions, permissions_for, soon};

/// The duration of a run at effort 1.
const SECONDS: f64 = 8.0;
/// Rows with an id below this are inserted, updated and deleted. The same number of ids above it never exist.
const ROWS: usize = 200;
/// `max-lag` of the table.
const MAX_LAG: Duration = Duration::from_secs(2);
/// The number of links in a crawl, and in each batch of the crawler.
const LINKS: usize = 20_000;
const FOUND: usize = 100;
/// Items of a user.
const ITEMS: u64 = 20;
/// Pauses between the steps of a thread, so that a soak uses a small part of a processor.
const CRAWLER_PAUSE: Duration = Duration::from_millis(50);
const USER_PAUSE: Duration = Duration::from_millis(50);
const WRITER_PAUSE: Duration = Duration::from_millis(50);
const READER_PAUSE: Duration = Duration::from_millis(5);

/// The version of a row if it exists, and when its COMMIT returned. `None` while the row is being written.
type Row = Mutex<Option<(Option<u64>, Instant)>>;

/// The state shared by the threads of a run.
struct Run<'a> {
    servers: [&'a Server; 2],
    time: Duration,
    /// Whether users are never deleted, and the connection for each is never closed.
    leaks: bool,
    rows: Vec<Row>,
    done: AtomicBool,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    links: AtomicU64,
    users: AtomicU64,
    /// The number of items found at the end of a crawl or of a user's life.
    verified: AtomicU64,
    commits: AtomicU64,
    /// Answers about a row whose last COMMIT had returned `max-lag` before.
    checked: AtomicU64,
    absent: AtomicU64,
}

impl Run<'_> {
    /// Waits for a thread's next step. Returns false at the end of the run. A late thread catches up by at most a second, so that the load
    /// hardly depends on how busy the machine is.
    fn goes_on(&self, turn: &mut Instant, pause: Duration) -> bool {
        let now = Instant::now();
        *turn = (*turn + pause).max(now - Duration::from_secs(1));
        thread::sleep(turn.saturating_duration_since(now));
        !self.done.load(SeqCst)
    }

    /// Returns a fraction of the run, but at most `most`, so that lifetimes and intervals do not grow with a long run.
    fn part(&self, parts: u32, most: u64) -> Duration {
        (self.time / parts).min(Duration::from_secs(most))
    }

    /// Adds links. An acknowledged link must be found until the next crawl.
    fn crawl(&self) {
        let mut client = Client::of(self.servers);
        let mut turn = Instant::now();
        while !self.done.load(SeqCst) {
            let (begin, mut seen) = (Instant::now(), HashSet::new());
            client.call("seen", &["UNLINK", "seen"]);
            assert_eq!(client.call("seen", &["BF.RESERVE", "seen", "0.01", "1000"]).0, ok());
            let mut ask = |command: &str, links: &[usize]| {
                let links = links.iter().map(|number| format!("https://example.org/page/{number}"));
                let words: Vec<_> = [command.to_owned(), "seen".to_owned()].into_iter().chain(links).collect();
                client.call("seen", &words).0
            };
            while begin.elapsed() < self.part(16, 60) && self.goes_on(&mut turn, CRAWLER_PAUSE) {
                let found = [(); FOUND].map(|()| fastrand::usize(..LINKS));
                for (number, is_new) in found.iter().zip(ask("BF.MADD", &found).elements()) {
                    assert!(seen.insert(*number) || !is_new.truth(), "{number} was acknowledged and is new again");
                }
                self.counts.links.fetch_add(FOUND as u64, SeqCst);
            }
            let seen: Vec<usize> = seen.into_iter().collect();
            let is_complete = seen.is_empty() || ask("BF.MEXISTS", &seen).elements().iter().all(Reply::truth);
            assert!(is_complete, "an acknowledged link is lost");
            self.counts.verified.fetch_add(seen.len() as u64, SeqCst);
        }
    }

    /// Creates a small filter for each user. Half of them expire, the others are deleted.
    fn serve_users(&self) {
        let mut client = Client::of(self.servers);
        let lifetime = self.part(32, 30);
        let (mut turn, mut live, mut kept) = (Instant::now(), VecDeque::new(), Vec::new());
        for user in 0_u64.. {
            if !self.goes_on(&mut turn, USER_PAUSE) {
                return;
            }
            let (key, expires) = (format!("user:{user}"), user % 2 == 1);
            let words = |words: &[&str]| -> Vec<String> {
                let items = (0..ITEMS).map(|item| format!("{user}:{item}"));
                words.iter().map(|word| (*word).to_owned()).chain(items).collect()
            };
            let insert = words(&["BF.INSERT", &key, "CAPACITY", "100", "ITEMS"]);
            assert_eq!(client.call(&key, &insert).0.elements().len() as u64, ITEMS);
            if self.leaks {
                kept.push(self.servers[0].connect());
            } else if expires {
                let milliseconds = (2 * lifetime).as_millis().to_string();
                assert_eq!(client.call(&key, &["PEXPIRE", &key, &milliseconds]).0, integer(1));
            }
            live.push_back((Instant::now(), expires, words(&["BF.MEXISTS", &key]), key));
            while live.front().is_some_and(|(begin, ..)| begin.elapsed() > lifetime)
                && let Some((_, expires, exists, key)) = live.pop_front()
            {
                let reply = client.call(&key, &exists).0;
                let is_complete = reply.elements().iter().all(Reply::truth);
                // On a machine that was suspended, the whole filter may have expired.
                let is_gone = expires && client.call(&key, &["EXISTS", &key]).0 == integer(0);
                assert!(is_complete || is_gone, "{key} has lost an item: {reply:?}");
                assert!(expires || self.leaks || client.call(&key, &["UNLINK", &key]).0 == integer(1), "{key} is lost");
                self.counts.users.fetch_add(1, SeqCst);
                self.counts.verified.fetch_add(if is_complete { ITEMS } else { 0 }, SeqCst);
            }
        }
    }

    /// Writes rows without using the guard.
    fn write(&self, mut session: postgres::Client) {
        let mut turn = Instant::now();
        for version in 2_u64.. {
            if !self.goes_on(&mut turn, WRITER_PAUSE) {
                return;
            }
            let id = fastrand::usize(..self.rows.len());
            let (old, _) = self.rows[id].lock().unwrap().take().expect("there is one writer");
            let new = (old.is_none() || fastrand::u8(..4) > 0).then_some(version);
            let statement = match (old, new) {
                (None, _) => format!("INSERT INTO users VALUES ({id}, {version})"),
                (_, None) => format!("DELETE FROM users WHERE id = {id}"),
                _ => format!("UPDATE users SET version = {version} WHERE id = {id}"),
            };
            session.batch_execute(&statement).unwrap();
            *self.rows[id].lock().unwrap() = Some((new, Instant::now()));
            self.counts.commits.fetch_add(1, SeqCst);
        }
    }

    /// Looks rows up. A row inserted more than `max-lag` ago must not be absent.
    fn read(&self, mut session: postgres::Client) {
        let mut client = Client::of(self.servers);
        let lifetime = self.part(16, 60).as_millis().to_string();
        let mut turn = Instant::now();
        while self.goes_on(&mut turn, READER_PAUSE) {
            let id = fastrand::usize(..2 * self.rows.len());
            let state = || self.rows.get(id).and_then(|row| *row.lock().unwrap());
            let (before, asked) = (state(), Instant::now());
            let answer = fetch(&mut client, id);
            if let [kind, token] = &answer[..]
                && kind == "load"
            {
                let row = session.query_opt("SELECT version FROM users WHERE id = $1", &[&(id as i64)]).unwrap();
                let version = row.map(|row| row.get::<_, i32>(0).to_string());
                let (item, key) = (id.to_string(), format!("{{users}}:{id}"));
                let mut words = vec!["BF.FILL", "{users}", &item, &key, token];
                words.extend(version.as_ref().map_or(vec!["NONE"], |version| vec!["VALUE", version]));
                words.extend(["PX", &lifetime]);
                client.call("{users}", &words);
            }
            self.counts.absent.fetch_add(u64::from(answer[0] == "absent"), SeqCst);
            if let Some((Some(version), since)) = before
                && asked.saturating_duration_since(since) > MAX_LAG
                && state() == before
            {
                assert_ne!(answer[0], "absent", "row {id} has version {version} since {:?}", since.elapsed());
                self.counts.checked.fetch_add(1, SeqCst);
            }
        }
    }

    /// Samples, saves, and changes the roles, until the time is up or a thread has failed.
    fn supervise(&self, world: &World, follower: &Follower, samples: &mut Samples, failed: impl Fn() -> bool) {
        let (mut saves, mut failovers) = (0, 0);
        let begin = Instant::now();
        let mut session = world.session();
        loop {
            thread::sleep(self.part(40, 15));
            let now = begin.elapsed();
            if now >= self.time || failed() {
                break;
            }
            samples.take(now, self.servers, follower.running.0.id(), &mut session);
            if now > self.part(8, 300) * (saves + 1) {
                saves += 1;
                for mut client in self.servers.map(Server::connect) {
                    client.run("BGREWRITEAOF");
                    eventually("a save to begin", || !client.run("BGSAVE SCHEDULE").is_error());
                }
                eprintln!("{self}, {saves} saves, {failovers} failovers\n{samples}");
            }
            // Redis counts the votes of a node's previous election again if its next one begins within four node timeouts, four minutes. So
            // a short run has only one failover besides the one before it.
            if now > self.part(2, 1800) * (failovers + 1) {
                failovers += 1;
                fail_over(self.servers);
            }
        }
        let seconds = begin.elapsed().as_secs();
        figures(&format!("ordinary use: {seconds} s, {self}, {saves} saves, {failovers} failovers"));
    }

    /// Compares all answers with the table, once all changes are applied.
    fn check_the_end(&self, session: &mut postgres::Client) {
        let mut client = Client::of(self.servers);
        catch_up(&mut client, session, 2 * ROWS + 1);
        for (id, row) in self.rows.iter().enumerate() {
            let version = row.lock().unwrap().expect("no writer is active").0.map(|version| version.to_string());
            let answer = fetch(&mut client, id);
            match &*answer[0] {
                "absent" => assert_eq!(version, None, "row {id}"),
                "hit" => assert_eq!(Some(&answer[1]), version.as_ref(), "row {id}"),
                _ => {}
            }
        }
    }
}

impl fmt::Display for Run<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { links, users, verified, commits, checked, absent } = &self.counts;
        let [links, users, verified] = [links, users, verified].map(|count| count.load(SeqCst));
        let [commits, checked, absent] = [commits, checked, absent].map(|count| count.load(SeqCst));
        write!(out, "{links} links, {users} users, {verified} adds verified, ")?;
        write!(out, "{commits} commits, {checked} answers checked, {absent} absent")?;
        for server in self.servers {
            let (mut client, log) = (server.connect(), server.log());
            let (slow, errors) = (client.run("SLOWLOG LEN").number(), client.run("INFO errorstats").text());
            // Clients learn the node of a slot by MOVED.
            let errors = errors.lines().filter_map(|line| line.strip_prefix("errorstat_")?.split_once(":count="));
            let errors = errors.filter(|(code, _)| *code != "MOVED").map(|(_, count)| count.parse::<u64>().unwrap());
            let (errors, warnings) = (errors.sum::<u64>(), log.lines().filter(|line| line.contains(" # ")).count());
            write!(out, ", {slow} slow commands, {errors} error replies, {warnings} warnings")?;
        }
        Ok(())
    }
}

/// Fetches a row. Returns the parts of the answer.
fn fetch(client: &mut Client, id: usize) -> Vec<String> {
    let (item, key) = (id.to_string(), format!("{{users}}:{id}"));
    let words = ["BF.FETCH", "{users}", &item, &key, "WHILE", "{users}:feed"];
    let reply = client.call("{users}", &words).0;
    reply.elements().iter().map(|part| if let Reply::Bulk(_) = part { part.text() } else { String::new() }).collect()
}

/// Waits until all changes are applied: the last one is a new row.
fn catch_up(client: &mut Client, session: &mut postgres::Client, id: usize) {
    session.batch_execute(&format!("INSERT INTO users VALUES ({id}, 1)")).unwrap();
    soon(|| client.call("{users}", &["BF.EXISTS", "{users}", &id.to_string()]).0 == integer(1));
}

/// Promotes the replica without losing data.
fn fail_over(servers: [&Server; 2]) {
    let mut clients = servers.map(Server::connect);
    let [role, other] = clients.each_mut().map(|client| client.info("role"));
    assert_ne!(role, other);
    if other == "slave" {
        clients.reverse();
    }
    let [replica, primary] = &mut clients;
    let is_joined =
        |client: &mut Connection| client.info("role") == "slave" && client.info("master_link_status") == "up";
    let mut next = Instant::now();
    eventually("the roles to change", || {
        // A server never repeats a lost request, and gives up after 5 s.
        if replica.info("role") == "slave" && Instant::now() >= next {
            assert_eq!(replica.run("CLUSTER FAILOVER"), ok());
            next = Instant::now() + Duration::from_secs(6);
        }
        replica.info("role") == "master" && is_joined(primary)
    });
}

/// Runs the load. Returns the series that have grown.
fn soak(program: &Path, effort: f64, leaks: bool) -> Vec<String> {
    let primary = node(program).0.line("appendonly yes").start();
    let all = format!("CLUSTER ADDSLOTSRANGE 0 {}", SLOTS - 1);
    assert_eq!(primary.connect().run(&all), ok());
    eventually("the cluster to be up", || primary.connect().run("CLUSTER INFO").text().contains("cluster_state:ok"));
    let replica = add_replica(program, &primary);
    assert_eq!(replica.connect().run("CONFIG SET appendonly yes"), ok());
    for mut client in [&primary, &replica].map(Server::connect) {
        let rights = format!("ACL SETUSER follower on >secret {} {}", permissions(), permissions_for("cluster"));
        assert_eq!(client.run(&rights), ok());
    }
    let database = Database::logical();
    let rows = format!("{USERS}; INSERT INTO users SELECT id, 1 FROM generate_series(0, {}) id", ROWS - 1);
    database.connect().unwrap().batch_execute(&rows).unwrap();
    let world = World { mode: "eventual", database, server: primary, folder: tempfile::tempdir().unwrap() };
    world.configure(&format!("cluster = true\n{USERS_TABLE}"));
    let mut follower = world.following();
    let run = Run {
        servers: [&world.server, &replica],
        time: Duration::from_secs_f64(SECONDS * effort),
        leaks,
        rows: (0..ROWS).map(|_| Mutex::new(Some((Some(1), Instant::now())))).collect(),
        done: AtomicBool::new(false),
        counts: Counts::default(),
    };
    // With the first change of a guarded filter, a node allocates 2 MiB for its table of changes, and keeps the table as a replica.
    let mut client = Client::of(run.servers);
    fetch(&mut client, 0);
    client.call("{users}", &["BF.CHANGED", "{users}", "0", "{users}:0"]);
    fail_over(run.servers);
    catch_up(&mut client, &mut world.session(), 2 * ROWS);
    let mut samples = Samples::new();
    thread::scope(|scope| {
        let (run, writer, reader) = (&run, world.session(), world.session());
        let threads = [
            scope.spawn(|| run.crawl()),
            scope.spawn(|| run.serve_users()),
            scope.spawn(move || run.write(writer)),
            scope.spawn(move || run.read(reader)),
        ];
        let failed = || threads.iter().any(thread::ScopedJoinHandle::is_finished);
        let result = catch_unwind(AssertUnwindSafe(|| run.supervise(&world, &follower, &mut samples, failed)));
        run.done.store(true, SeqCst);
        result.unwrap_or_else(|panic| resume_unwind(panic));
    });
    run.check_the_end(&mut world.session());
    let Counts { users, verified, checked, absent, .. } = &run.counts;
    assert!([users, verified, checked, absent].iter().all(|count| count.load(SeqCst) > 0), "{run}");
    follower.end();
    eprintln!("{samples}");
    samples.grown()
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs /proc")]
fn memory_and_keys_stay_constant_in_ordinary_use() {
    let effort = std::env::var("BLOOMGATE_EFFORT").map_or(1.0, |text| text.parse().expect("a factor"));
    on_every_server(|program| assert_eq!(soak(program, effort, false), [""; 0]));
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs /proc")]
fn leaks_are_found() {
    on_every_server(|program| {
        let grown = soak(program, 3.0, true).join("\n");
        for name in ["first: keys", "second: keys", "first: descriptors"] {
            assert!(grown.contains(name), "{name} has not grown: {grown}");
        }
    });
}

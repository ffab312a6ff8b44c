//! Servers behind Sentinels: the tool finds the primary, also after a failover.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::thread;

use testing::{Connection, Reply, Server, Stop, catch_up, eventually, follow, integer, ok, on_every_server};

use crate::running::{Ended, run, start};

/// Three Sentinels that watch one primary under the name `main`.
pub struct Sentinels(Vec<Server>);

impl Sentinels {
    pub fn start(program: &Path, primary: &Server) -> Self {
        let sentinel = || {
            let monitor = format!("sentinel monitor main 127.0.0.1 {} 2", primary.port);
            let sentinel = Server::with(program).without_module().arguments(&["--sentinel"]).line(&monitor);
            sentinel.line("sentinel down-after-milliseconds main 2000").start()
        };
        Self(vec![sentinel(), sentinel(), sentinel()])
    }

    /// Waits until the Sentinels know each other and the replica. If a Sentinel has not queried a server since its demotion, it would
    /// demote the server again as soon as another Sentinel promotes it.
    pub fn agree(&self) {
        for sentinel in &self.0 {
            let mut client = sentinel.connect();
            eventually("the Sentinels to know each other and the replica", || {
                let primary = client.run("SENTINEL MASTER main");
                let replicas = client.run("SENTINEL REPLICAS main");
                let is_replica =
                    |server: &Reply| ["flags", "role-reported"].iter().all(|name| server.field(name).text() == "slave");
                primary.field("num-other-sentinels").text() == "2"
                    && replicas.elements().len() == 1
                    && replicas.elements().iter().all(is_replica)
            });
        }
    }

    /// Waits until all Sentinels name this server.
    pub fn name(&self, server: &Server) {
        for sentinel in &self.0 {
            let mut client = sentinel.connect();
            let port = |reply: Reply| reply.elements()[1].text();
            eventually("a failover", || {
                port(client.run("SENTINEL GET-MASTER-ADDR-BY-NAME main")) == server.port.to_string()
            });
        }
    }

    /// Makes the Sentinels promote the replica while the primary is alive.
    pub fn fail_over(&self) {
        let mut client = self.0[0].connect();
        eventually("the failover to begin", || !client.run("SENTINEL FAILOVER main").is_error());
    }

    /// Returns a URL with this user and password. No server listens at the first address.
    pub fn url(&self, user: &str) -> String {
        let addresses: Vec<_> = self.0.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect();
        format!("redis-sentinel://{user}127.0.0.1:1,{}#main", addresses.join(","))
    }
}

/// Sends a command on a new connection. Sentinels close the connections of a server whose role they change.
pub fn ask(server: &Server, line: &str) -> Option<Reply> {
    Connection::open(server.port).ok()?.try_call(&line.split(' ').collect::<Vec<_>>()).ok()
}

#[test]
fn a_running_subcommand_continues_on_the_new_primary() {
    on_every_server(|program| {
        let (mut primary, replica) = (Server::start(program), Server::start(program));
        follow(&mut replica.connect(), &primary);
        let sentinels = Sentinels::start(program, &primary);
        sentinels.agree();
        let url = sentinels.url("");
        let mut child = start(["dedup", "--url", &url, "--key", "seen", "--create", "1e-9", "1000"]);
        let (mut stdin, mut lines) =
            (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
        stdin.write_all(b"one\n").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "one");
        catch_up(&mut primary.connect(), &mut replica.connect());
        primary.stop(Stop::Kill);

        stdin.write_all(b"two\n").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "two");
        drop(stdin);
        let ended = Ended::from(child.wait_with_output().unwrap()).success();
        assert!(ended.stderr.contains(&format!("lost the server at 127.0.0.1:{}", primary.port)), "{ended:?}");
        assert_eq!(replica.connect().run("BF.EXISTS seen two"), integer(1));
        sentinels.name(&replica);
        assert!(run(["survey", "--url", &url]).success().text().contains("filters of bloomgate"));

        // The old primary returns as a replica.
        primary.start_again();
        sentinels.agree();
        run(["shards", "create", "--url", &url, "--shards", "2", "many", "0.001", "100"]).success();
        catch_up(&mut replica.connect(), &mut primary.connect());
        assert_eq!(primary.connect().run("EXISTS many:{0} many:{1}"), integer(2));
    });
}

#[test]
fn sentinels_may_demand_the_password_of_the_server() {
    on_every_server(|program| {
        let server = Server::start(program);
        server.connect().run("ACL SETUSER gate on >s3cret ~* +@all");
        server.connect().run("BF.ADD seen one");
        let sentinels = Sentinels::start(program, &server);
        let survey =
            |user: &str, primary: &str| run(["survey", "--url", &sentinels.url(user).replace("#main", primary)]);
        for has_password in [false, true] {
            if has_password {
                for sentinel in &sentinels.0 {
                    let mut client = sentinel.connect();
                    for line in ["ACL SETUSER gate on >s3cret +@all", "ACL SETUSER default resetpass >other"] {
                        assert_eq!(client.run(line), ok(), "{line}");
                    }
                }
                survey("", "#main").refused("NOAUTH");
            }
            assert!(survey("gate:s3cret@", "#main").success().text().contains("filters of bloomgate"));
            let refused = survey("gate:wr0ng@", "#main").refused("rejects the user or password");
            assert!(!refused.stderr.contains("wr0ng"), "{refused:?}");
            survey("gate:s3cret@", "#other").refused("knows no primary named other");
        }
    });
}

/// Starts a mock Sentinel that always names the same server. Returns its port.
fn stale_sentinel(server: &Server) -> u16 {
    let address = format!("*2\r\n$9\r\n127.0.0.1\r\n$5\r\n{}\r\n", server.port);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut asked) = (stream.unwrap(), String::new());
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while let Some(Ok(line)) = lines.next() {
                // The last words of CLIENT SETINFO and of the query.
                asked = match (&*asked, &*line) {
                    ("LIB-NAME" | "LIB-VER", word) if !word.starts_with('$') => {
                        stream.write_all(b"+OK\r\n").unwrap();
                        String::new()
                    }
                    (_, "main") => {
                        stream.write_all(address.as_bytes()).unwrap();
                        String::new()
                    }
                    (_, word @ ("LIB-NAME" | "LIB-VER")) => word.to_owned(),
                    _ => asked,
                };
            }
        }
    });
    port
}

#[test]
fn a_sentinel_that_names_a_replica_is_passed_over() {
    on_every_server(|program| {
        let (primary, replica) = (Server::start(program), Server::start(program));
        follow(&mut replica.connect(), &primary);
        let stale = stale_sentinel(&replica);
        let url = format!("redis-sentinel://127.0.0.1:{stale}#main");
        let create = |url: &str| run(["shards", "create", "--url", url, "--shards", "1", "seen", "0.001", "100"]);
        create(&url).refused(&format!("name 127.0.0.1:{} as the primary, and it is a replica", replica.port));
        let url = format!("redis-sentinel://127.0.0.1:{stale},127.0.0.1:{}#main", stale_sentinel(&primary));
        create(&url).success();
        assert_eq!(primary.connect().run("EXISTS seen:{0}"), integer(1));
    });
}

#[test]
fn a_url_of_sentinels_that_cannot_be_used_is_refused() {
    on_every_server(|program| {
        let server = Server::start(program);
        for url in
            ["redis-sentinel://127.0.0.1:1", "redis-sentinel://127.0.0.1:1#", "redis-sentinel://127.0.0.1:x#main"]
        {
            run(["survey", "--url", url]).misused("redis-sentinel://[[USER]:PASSWORD@]HOST");
        }
        let nowhere = run(["survey", "--url", "redis-sentinel://127.0.0.1:1,127.0.0.1:2#main"]);
        assert!(nowhere.refused("127.0.0.1:1: ").stderr.contains("127.0.0.1:2: "));
        let url = format!("redis-sentinel://127.0.0.1:{}#main", server.port);
        run(["survey", "--url", &url]).refused("replied: ");
    });
}

//! Connections that silently drop all data, as when a firewall forgets a connection.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use testing::database::Database;
use testing::{Server, Stop, free_port, integer, on_every_server};

use crate::connecting::certificates;
use crate::follow::synchronous::answer;
use crate::follow::{One, Sql, USERS, USERS_TABLE, World, beats, followed, has, soon};
use crate::running::{Ended, Running, command, run};

/// A proxy whose connections can go dark.
pub struct Proxy {
    port: u16,
    connections: Arc<Mutex<Vec<Connection>>>,
    /// A connection ends instead of forwarding a reply that contains this.
    lost_reply: Arc<Mutex<Option<&'static str>>>,
}

struct Connection {
    /// The first bytes from the client.
    begin: Arc<Mutex<Vec<u8>>>,
    is_dark: Arc<Mutex<bool>>,
}

impl Proxy {
    /// Starts a proxy to a port of this machine.
    fn to(to: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let (port, connections) = (listener.local_addr().unwrap().port(), Arc::new(Mutex::new(Vec::new())));
        let lost_reply = Arc::default();
        let (all, lost) = (Arc::clone(&connections), Arc::clone(&lost_reply));
        thread::spawn(move || {
            for client in listener.incoming() {
                let (begin, is_dark) = (Arc::default(), Arc::new(Mutex::new(false)));
                // Without a server, the client's connection ends.
                let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                let client = client.unwrap();
                let until = (Arc::clone(&is_dark), Arc::clone(&lost));
                let both = (client.try_clone().unwrap(), server.try_clone().unwrap());
                pass(both.0, both.1, until.clone(), Some(Arc::clone(&begin)));
                pass(server, client, until, None);
                all.lock().unwrap().push(Connection { begin, is_dark });
            }
        });
        Self { port, connections, lost_reply }
    }

    /// Starts a proxy between a follower that starts later and the server of a world.
    pub fn before_server<D>(world: &World<D>) -> Self {
        let proxy = Self::to(world.server.port);
        proxy.configure(world);
        proxy
    }

    /// Replaces the server of a world by the proxy in the configuration.
    pub fn configure<D>(&self, world: &World<D>) {
        let text = std::fs::read_to_string(world.path()).unwrap();
        let text = text.replace(&format!(":{}\"", world.server.port), &format!(":{}\"", self.port));
        std::fs::write(world.path(), text).unwrap();
    }

    /// Closes a connection instead of forwarding the next reply that contains a text.
    pub fn lose_reply(&self, text: &'static str) {
        *self.lost_reply.lock().unwrap() = Some(text);
    }

    /// Whether that reply has been lost.
    pub fn has_lost_reply(&self) -> bool {
        self.lost_reply.lock().unwrap().is_none()
    }

    /// Makes all connections go dark whose first bytes contain a text. New connections are forwarded.
    fn darken(&self, text: &str) {
        let mut count = 0;
        for connection in self.connections.lock().unwrap().iter() {
            if String::from_utf8_lossy(&connection.begin.lock().unwrap()).contains(text) {
                *connection.is_dark.lock().unwrap() = true;
                count += 1;
            }
        }
        assert_ne!(count, 0, "no connection with {text}");
    }
}

/// Forwards one direction.
fn pass(
    mut from: TcpStream,
    mut to: TcpStream,
    (is_dark, lost_reply): (Arc<Mutex<bool>>, Arc<Mutex<Option<&'static str>>>),
    begin: Option<Arc<Mutex<Vec<u8>>>>,
) {
    thread::spawn(move || {
        let mut buffer = [0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if let Some(begin) = begin.as_ref().map(|begin| begin.lock().unwrap()).filter(|begin| begin.is_empty()) {
                { begin }.extend(&buffer[..count]);
            }
            let is_lost = |text: &mut &str| String::from_utf8_lossy(&buffer[..count]).contains(*text);
            if begin.is_none() && lost_reply.lock().unwrap().take_if(is_lost).is_some() {
                break;
            }
            if !*is_dark.lock().unwrap() && to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        if !*is_dark.lock().unwrap() {
            _ = to.shutdown(Shutdown::Both);
        }
        // A connection that is dark stays open.
        std::mem::forget((from, to));
    });
}

#[test]
fn the_follower_connects_again_when_a_connection_goes_dark() {
    on_every_server(|program| {
        let port = free_port();
        let world = World::between("synchronous", Database::on_port(port), Server::with(program), USERS, USERS_TABLE);
        // Makes PostgreSQL notice the dark connections soon as well, so that the slot becomes free.
        world.session().run("ALTER SYSTEM SET wal_sender_timeout = '5s'");
        let (database, server) = (Proxy::to(port), Proxy::before_server(&world));
        world.edit(&world.database.url(), &format!("postgres://guard@127.0.0.1:{}/postgres", database.port));
        let mut follower = world.following();
        let mut client = world.server.connect();
        let darkness = [
            (&database, "replication", "the PostgreSQL server does not answer"),
            (&database, "", "the PostgreSQL server does not answer"),
            (&server, "", "no answer for 10 s"),
        ];
        for (id, (proxy, text, reason)) in (1..).zip(darkness) {
            let before = follower.log().matches("trying again").count();
            proxy.darken(text);
            // Its COMMIT returns once a new connection has announced it.
            world.while_running(&format!("INSERT INTO users VALUES ({id}, 1)"), || ());
            assert_ne!(answer(&mut client, id), "absent");
            let log = follower.log();
            assert!(log.matches("trying again").count() > before && log.contains(reason), "{text}: {log}");
        }
        follower.end();
    });
}

#[test]
fn an_unreachable_server_is_reported_once_for_each_reason() {
    followed(&["eventual"], USERS, USERS_TABLE, |world, follower, _, _| {
        let address = format!("127.0.0.1:{}", world.server.port);
        world.server.stop(Stop::Kill);
        let listener = TcpListener::bind(&address).unwrap();
        for _ in 0..4 {
            let (mut stream, _) = listener.accept().unwrap();
            // Unread data would end the connection for another reason.
            assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
        }
        drop(listener);
        let unreachable = format!("cannot reach a Redis server at {address}: ");
        follower.says(&format!("{unreachable}Connection refused"));
        let log = follower.log();
        let failures: Vec<_> = log.lines().filter(|line| line.ends_with("; trying again")).collect();
        assert!(failures.windows(2).all(|pair| pair[0] != pair[1]), "{log}");
        assert!(failures.iter().filter(|line| line.contains(&unreachable)).count() < 4, "{log}");

        world.server.start_again();
        world.session().run("INSERT INTO users VALUES (1, 1)");
        soon(|| has(&mut world.server.connect(), 1));
        // The same loss again.
        world.server.stop(Stop::Kill);
        soon(|| follower.log().matches(&unreachable).count() > log.matches(&unreachable).count());
        world.server.start_again();
        soon(|| beats(&mut world.server.connect()));
    });
}

#[test]
fn an_unreachable_database_is_named_with_its_port() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("follow.toml");
    for (url, address) in [
        ("postgres://guard@127.0.0.1:1/shop", "the PostgreSQL server at 127.0.0.1:1: "),
        ("postgres://guard@/shop?host=/nowhere&port=7", "the PostgreSQL server at /nowhere/.s.PGSQL.7: "),
        ("mysql://guard@127.0.0.1:1/shop", "the database at 127.0.0.1:1: "),
    ] {
        let text =
            format!("database = \"{url}\"\nserver = \"redis://127.0.0.1:2\"\nslot = \"bloomgate\"\n{USERS_TABLE}");
        std::fs::write(&path, text).unwrap();
        run(["follow".as_ref(), path.as_os_str()]).refused(&format!("cannot reach {address}"));
    }
}

#[test]
fn a_silent_stream_is_not_dark_while_postgresql_reads_the_log() {
    on_every_server(|program| {
        let world = World::new(program, USERS, USERS_TABLE);
        let (mut writer, mut other) = (world.session(), world.session());
        writer.run("CREATE TABLE others (id int DEFAULT 1)");
        let mut follower = world.following();
        // From now on, the writer's session has cached the table.
        let insert = writer.prepare("INSERT INTO others VALUES (1)").unwrap();
        writer.run("BEGIN");
        writer.execute(&insert, &[]).unwrap();
        // To read a change of this table, the process that sends the log needs the table's defaults.
        other.run("BEGIN; LOCK TABLE pg_attrdef IN ACCESS EXCLUSIVE MODE");
        writer.run("INSERT INTO users VALUES (1, 1); COMMIT");
        let is_busy =
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walsender' AND wait_event_type = 'Lock'";
        soon(|| writer.one::<i64>(is_busy) == 1);
        // The connection would count as dark after ten seconds.
        thread::sleep(Duration::from_secs(13));
        other.run("ROLLBACK");
        let mut client = world.server.connect();
        soon(|| has(&mut client, 1));
        assert!(!follower.log().contains("trying again"), "{}", follower.log());
        follower.end();
    });
}

// `sslmode=require`: connections to PostgreSQL with TLS.

/// The rows of one transaction. They take more than one read of the stream.
const ROWS: i32 = 20_000;

#[test]
fn postgresql_is_reached_with_tls_and_a_trusted_certificate() {
    on_every_server(|program| {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        certificates(folder.path());
        let port = free_port();
        let database = Database::on_port(port);
        let mut session = database.connect().unwrap();
        session.run(USERS);
        let url = |host: &str| format!("postgres://guard@{host}:{port}/postgres?sslmode=require");
        let refused = |server: &Server, url: &str, authority: &str, part: &str| {
            let port = server.port;
            let line = format!("load -p {port} --postgres {url} --table users --column id --key ids --create 0.1");
            let words = line.split(' ');
            Ended::from(command(words).env("SSL_CERT_FILE", authority).output().unwrap()).refused(part);
        };
        let server = Server::start(program);
        let mut client = server.connect();
        refused(&server, &url("localhost"), &path("ca.crt"), "server does not support TLS");
        database.encrypt(Path::new(&path("server.crt")), Path::new(&path("server.key")));
        refused(&server, &url("localhost"), "/dev/null", "UnknownIssuer");

        let configuration = path("follow.toml");
        let text = format!(
            "database = \"{}\"\nserver = \"redis://127.0.0.1:{}\"\nslot = \"bloomgate\"\nmode = \"eventual\"\n{USERS_TABLE}",
            url("localhost"),
            server.port
        );
        std::fs::write(&configuration, text).unwrap();
        let follow = command(["follow", &configuration]).env("SSL_CERT_FILE", path("ca.crt")).spawn();
        let _follower = Running(follow.unwrap());
        soon(|| beats(&mut client));
        let text = "SELECT count(*), bool_and(ssl) FROM pg_stat_ssl NATURAL JOIN pg_stat_activity WHERE application_name = 'bloomgate'";
        let row = session.query_one(text, &[]).unwrap();
        assert_eq!((row.get(0), row.get(1)), (2_i64, true));
        session.execute("INSERT INTO users SELECT id, 1 FROM generate_series(1, $1) id", &[&ROWS]).unwrap();
        soon(|| client.run("BF.CARD {users}") == integer(ROWS.into()));
    });
}

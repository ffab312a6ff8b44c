//! `sslmode=require`: connections to PostgreSQL with TLS.

use std::path::Path;

use super::{USERS, USERS_TABLE, soon};
use crate::connecting::certificates;
use crate::running::{Ended, Running, command};
use testing::database::Database;
use testing::{Server, free_port, integer, on_every_server};

/// Of one transaction. They take more than one read of the stream.
const ROWS: i32 = 20_000;

#[test]
fn postgresql_is_reached_with_tls_and_a_trusted_certificate() {
    on_every_server(|program| {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        certificates(&path);
        let port = free_port();
        let database = Database::on_port(port);
        let mut session = database.connect().unwrap();
        session.batch_execute(USERS).unwrap();
        let url = |host: &str| format!("postgres://guard@{host}:{port}/postgres?sslmode=require");
        let refused = |server: &Server, url: &str, authority: &str, part: &str| {
            let port = server.port.to_string();
            let words = [
                "load",
                "-p",
                &port,
                "--postgres",
                url,
                "--table",
                "users",
                "--column",
                "id",
                "--key",
                "ids",
                "--create",
                "0.1",
            ];
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
        soon(|| client.run("EXISTS {users}:feed") == integer(1));
        let text = "SELECT count(*), bool_and(ssl) FROM pg_stat_ssl NATURAL JOIN pg_stat_activity WHERE application_name = 'bloomgate'";
        let row = session.query_one(text, &[]).unwrap();
        assert_eq!((row.get(0), row.get(1)), (2_i64, true));
        session.execute("INSERT INTO users SELECT id, 1 FROM generate_series(1, $1) id", &[&ROWS]).unwrap();
        soon(|| client.run("BF.CARD {users}") == integer(ROWS.into()));
    });
}

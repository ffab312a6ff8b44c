//! Tests the harness itself on a server without the module: if it misread replies, or lost the directory at a restart, every other test
//! would be worthless.

use std::path::Path;

use testing::{
    Connection, Reply, Server, Stop, append_only_commands, array, bulk, integer, nil, ok, on_every_server, simple,
};

#[test]
fn every_kind_of_reply_is_read_as_itself() {
    on_every_server(|program| {
        let server = Server::with(program).without_module().start();
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            let mut ask = |kind: &str| client.run(&format!("DEBUG PROTOCOL {kind}"));
            assert_eq!(ask("string"), bulk("Hello World"));
            assert_eq!(ask("integer"), integer(12345));
            assert_eq!(ask("null"), nil(protocol));
            assert_eq!(ask("array"), array([integer(0), integer(1), integer(2)]));
            if protocol == 3 {
                assert_eq!(ask("true"), Reply::Boolean(true));
                assert_eq!(ask("false"), Reply::Boolean(false));
                assert_eq!(ask("double"), Reply::Double("3.141".to_owned()));
                assert_eq!(ask("verbatim"), Reply::Verbatim(b"This is a verbatim\nstring".to_vec()));
                assert_eq!(ask("set"), Reply::Set(vec![integer(0), integer(1), integer(2)]));
                let pairs = (0..3).map(|number| (integer(number), Reply::Boolean(number == 1))).collect();
                assert_eq!(ask("map"), Reply::Map(pairs));
            }
            assert_eq!(client.run("MULTI"), ok());
            assert_eq!(client.run("PING"), simple("QUEUED"));
            assert_eq!(client.run("DISCARD"), ok());
            assert_eq!(client.pipeline(&["SET a 1", "GET a", "NO-SUCH-COMMAND"])[1], bulk("1"));
        }
    });
}

#[test]
fn a_restart_keeps_directory_and_data() {
    on_every_server(|program| {
        let mut server = Server::with(program).without_module().start();
        let read = |server: &Server| server.connect().run("GET k");
        server.connect().run("SET k kept");
        server.restart(Stop::Save);
        assert_eq!(read(&server), bulk("kept"));
        server.connect().run("SET k lost");
        server.restart(Stop::NoSave);
        assert_eq!(read(&server), bulk("kept"));
        server.connect().run("SET k lost");
        server.restart(Stop::Kill);
        assert_eq!(read(&server), bulk("kept"));
    });
}

#[test]
fn the_append_only_file_is_read_as_written() {
    on_every_server(|program| {
        let server = Server::with(program).without_module().line("appendonly yes").start();
        let mut client = server.connect();
        client.run("SET a 1");
        client.call(&[b"SET".as_slice(), b"\0\r\n", b""]);
        let expected: [&[&[u8]]; 2] = [&[b"SET", b"a", b"1"], &[b"SET", b"\0\r\n", b""]];
        assert_eq!(append_only_commands(&server), expected);
    });
}

#[test]
fn a_server_ends_with_its_test_and_its_directory_goes_too() {
    on_every_server(|program| {
        let server = Server::with(program).without_module().start();
        let (port, folder) = (server.port, server.folder().to_owned());
        assert!(folder.is_dir());
        drop(server);
        assert!(Connection::open(port).is_err());
        assert!(!folder.exists());
    });
}

#[test]
fn a_server_that_crashed_fails_its_test_unless_that_ends_it() {
    let crashed = |program: &Path| {
        let server = Server::with(program).without_module().start();
        let _ = server.connect().try_call(&["DEBUG", "SEGFAULT"]);
        server
    };
    on_every_server(|program| {
        crashed(program).end();
        let outcome = std::panic::catch_unwind(|| drop(crashed(program)));
        let message = *outcome.expect_err("the crash is noticed").downcast::<String>().expect("a message");
        assert!(message.contains("log"), "{message}");
    });
}

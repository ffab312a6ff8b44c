//! Connections to a server: by URL, host and port, or Unix socket; as an ACL user; with TLS; to an unreachable server.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::thread;

use crate::running::{Ended, command, run, url, with_servers};
use testing::{Builder, Server, on_every_server, on_servers_with};

#[test]
fn a_server_is_reached_by_url_by_port_and_by_socket() {
    on_every_server(|program| {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let server = Server::with(program).line(&format!("unixsocket {}", socket.display())).start();
        server.connect().run("BF.ADD seen one");
        let (url, port, socket) = (url(&server), server.port.to_string(), socket.display().to_string());
        let ways = [
            vec!["survey", "--url", &url],
            vec!["-u", &url, "survey"],
            vec!["survey", "-h", "127.0.0.1", "-p", &port],
            vec!["survey", "-p", &port, "-n", "0"],
            vec!["survey", "-s", &socket],
        ];
        for way in ways {
            let text = run(&way).success().text();
            assert!(text.contains("bloomgate") && text.contains("filters of bloomgate"), "{way:?}: {text}");
        }
        let other = run(["survey", "-p", &port, "-n", "1"]).success().text();
        assert!(!other.contains("filters of bloomgate"), "{other}");
    });
}

#[test]
fn a_password_comes_from_options_url_or_environment_and_is_never_printed() {
    with_servers(|server| {
        server.connect().run("ACL SETUSER reader on >s3cret-pass ~* +@all");
        let port = server.port.to_string();
        run(["survey", "-p", &port, "--user", "reader", "--pass", "s3cret-pass"]).success();
        run(["survey", "--url", &format!("redis://reader:s3cret-pass@127.0.0.1:{port}")]).success();
        let by_environment =
            command(["survey", "-p", &port, "--user", "reader"]).env("REDISCLI_AUTH", "s3cret-pass").output().unwrap();
        Ended::from(by_environment).success();
        for wrong in [
            format!("-p {port} --user=reader -awrong-pass"),
            format!("--url=redis://reader:wrong-pass@127.0.0.1:{port}"),
        ] {
            let ended = run(["survey"].into_iter().chain(wrong.split(' '))).refused("rejects the user or password");
            assert!(!ended.stderr.contains("wrong-pass"), "{ended:?}");
        }
    });
}

#[test]
fn an_unreachable_server_is_reported_in_one_line() {
    run(["survey", "-p", "1"]).refused("cannot reach a Redis server at 127.0.0.1:1");
    run(["survey", "-s", "/nowhere/socket"]).refused("/nowhere/socket");
}

/// Starts a server with TLS on a port. Its certificate is in the file `name`, in a folder with the files of [`certificates`].
fn with_tls(program: &Path, port: u16, folder: &Path, name: &str) -> Builder {
    let file = |option: &str, name: &str| format!("{option} {}", folder.join(name).display());
    Server::with(program)
        .line(&format!("tls-port {port}"))
        .line(&file("tls-cert-file", &format!("{name}.crt")))
        .line(&file("tls-key-file", &format!("{name}.key")))
        .line(&file("tls-ca-cert-file", "ca.crt"))
}

/// Some builds of servers have no TLS. Redis 8 accepts the other TLS options in such a build and refuses only the port.
fn has_tls(program: &Path) -> bool {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    with_tls(program, testing::free_port(), folder.path(), "server").without_module().try_start().is_ok()
}

#[test]
fn tls_requires_a_trusted_certificate() {
    on_servers_with("TLS", has_tls, |program| {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        certificates(folder.path());
        let tls_port = testing::free_port();
        let server = with_tls(program, tls_port, folder.path(), "server").start();
        server.connect().run("BF.ADD seen one");
        let (url, port, ca) = (format!("rediss://localhost:{tls_port}"), tls_port.to_string(), path("ca.crt"));
        let client = ["--cert", &path("server.crt"), "--tls-key", &path("server.key")].map(str::to_owned);
        let trusted = ["survey", "--url", &url, "--cacert", &ca].map(str::to_owned);
        let text = run(trusted.iter().chain(&client)).success().text();
        assert!(text.contains("filters of bloomgate"), "{text}");
        let insecure = ["survey", "-h", "127.0.0.1", "-p", &port, "--tls", "--insecure"].map(str::to_owned);
        run(insecure.iter().chain(&client)).success();
        let untrusted = ["survey", "--url", &url].map(str::to_owned);
        one_line(
            run(untrusted.iter().chain(&client)),
            "is not signed by a trusted authority: give the authority's certificate with --cacert",
        );
        one_line(run(&trusted), "it requires a client certificate: use --cert and --tls-key");
        std::fs::write(path("garbage"), "garbage\n").unwrap();
        let garbage = ["survey", "--url", &url, "--cacert", &path("garbage")].map(str::to_owned);
        one_line(run(garbage.iter().chain(&client)), "garbage does not contain a PEM certificate");
        // TLS to a server without TLS, and a plain connection to the TLS port.
        one_line(run(["survey", "-p", &server.port.to_string(), "--tls"]), "does the use of TLS match?");
        one_line(run(["survey", "-p", &port]), "127.0.0.1");
    });
}

/// The server uses an authority's certificate, which is what `openssl req -x509` creates.
#[test]
fn an_authoritys_certificate_is_reported_as_such() {
    on_servers_with("TLS", has_tls, |program| {
        let folder = tempfile::tempdir().unwrap();
        certificates(folder.path());
        let tls_port = testing::free_port();
        let _server = with_tls(program, tls_port, folder.path(), "ca").line("tls-auth-clients no").start();
        let url = format!("rediss://localhost:{tls_port}");
        let ended = run(["survey", "--url", &url, "--cacert", folder.path().join("ca.crt").to_str().unwrap()]);
        one_line(ended, "its certificate belongs to an authority (CA:TRUE)");
        run(["survey", "--url", &url, "--insecure"]).success();
    });
}

/// Programs that are not Redis servers: a silent one, an HTTP server, and a program that sends data first.
#[test]
fn a_server_with_another_protocol_is_reported_in_one_line() {
    for (greeting, answer, part) in [
        ("", "", "no answer from 127.0.0.1:"),
        (
            "",
            "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
            "is not a Redis server: it speaks another protocol",
        ),
        ("SSH-2.0-OpenSSH_9.2\r\n", "", "is not a Redis server: it speaks another protocol"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(greeting.as_bytes()).unwrap();
                let read = stream.read(&mut [0; 4096]).unwrap();
                assert!(read > 0);
                stream.write_all(answer.as_bytes()).unwrap();
                // Reads until the tool closes the connection.
                _ = stream.read_to_end(&mut Vec::new());
            });
            let ended = run(["survey", "-p", &port]);
            assert!(!ended.stderr.contains("os error"), "{ended:?}");
            one_line(ended, part);
        });
    }
}

/// A walk over the keys of such a cluster would omit the missing node's keys.
#[test]
fn a_cluster_with_unassigned_slots_is_refused() {
    on_every_server(|program| {
        let server = Server::with(program).line("cluster-enabled yes").start();
        let (url, out) = (url(&server), tempfile::tempdir().unwrap());
        let out = out.path().join("out").display().to_string();
        let all = [&["survey"][..], &["watch", "--once"], &["backup", "--all", "--allow-empty", "-o", &out]];
        for (slots, missing) in [("", "16384"), ("1 16383", "1 of"), ("0 0", "")] {
            if !slots.is_empty() {
                server.connect().run(&format!("CLUSTER ADDSLOTSRANGE {slots}"));
            }
            for words in all {
                let ended = run([words, &["--url", &url]].concat());
                if missing.is_empty() {
                    ended.success();
                } else {
                    ended.refused(&format!("has no node for {missing}"));
                }
            }
        }
    });
}

/// Asserts that a run exited with status 1 and printed a single line.
#[track_caller]
fn one_line(ended: Ended, part: &str) {
    let ended = ended.refused(part);
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
}

/// Creates a certificate authority and a certificate for localhost in a folder.
pub fn certificates(folder: &Path) {
    std::fs::write(folder.join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").unwrap();
    for line in [
        "req -newkey rsa:2048 -nodes -x509 -days 2 -subj /CN=authority -keyout ca.key -out ca.crt",
        "req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr",
        "x509 -req -days 2 -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -extfile names -out server.crt",
    ] {
        let output =
            Command::new("openssl").args(line.split(' ')).current_dir(folder).output().expect("openssl is there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

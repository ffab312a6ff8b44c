//! A server without the module: subcommands that only read report that, instead of a server without filters.

use std::process::Stdio;

use crate::backup::Files;
use crate::running::{Running, collect, command, run, url};
use testing::{Server, eventually, on_every_server};

const MESSAGE: &str = "has not loaded the module: start it with redis-server --loadmodule";

#[test]
fn watch_survey_and_backup_say_that_the_module_is_missing() {
    on_every_server(|program| {
        let (bare, server, files) =
            (Server::with(program).without_module().start(), Server::start(program), Files::new());
        bare.connect().run("SET text 1");
        server.connect().run("BF.ADD seen a");
        let (file, with, without) = (files.path("file").display().to_string(), url(&server), url(&bare));
        for words in [
            vec!["watch"],
            vec!["watch", "--json"],
            vec!["survey"],
            vec!["backup", "--all", "--allow-empty", "-o", &file],
            vec!["backup", "seen", "-o", &file],
        ] {
            run(words.iter().copied().chain(["--url", &without])).refused(MESSAGE);
        }
        assert!(files.names().is_empty());
        let ended = run(["survey", "--url", &with, "--beside", &without]).refused(MESSAGE);
        assert!(ended.stderr.contains(&without.replace("redis://", "")), "{ended:?}");
        // A user without permission for COMMAND can still run these subcommands.
        server.connect().run("ACL SETUSER few on >few ~* +@all -command");
        let few = with.replace("redis://", "redis://few:few@");
        run(["watch", "--url", &few]).success();
        run(["survey", "--url", &few]).success();
    });
}

#[test]
fn web_prints_the_message_to_its_error_output() {
    let bare = Server::with(&testing::servers()[0]).without_module().start();
    let words = ["web", "--url", &url(&bare), "--listen", "0", "--interval", "0.1"];
    let mut web = Running(command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let errors = collect(web.0.stderr.take().unwrap());
    eventually("the message", || errors.lock().unwrap().contains('\n'));
    let errors = errors.lock().unwrap();
    assert!(errors.starts_with("bloomgate: ") && errors.contains(MESSAGE), "{errors}");
}

//! Operators' commands: MEMORY USAGE is the memory of the filter, and the module stays loaded under its name.

use std::fs;
use std::path::Path;

use testing::{Server, array, eventually, integer, module, ok, on_every_server, simple};

/// The tolerance covers other allocations of the server meanwhile: entries of its tables, and buffers of connections.
#[test]
fn memory_usage_equals_the_growth_of_used_memory() {
    on_every_server(|program| {
        let server = Server::start(program);
        let capacities =
            [100, 1, 10, 100, 1000, 5000, 20_000, 54_321, 100_000, 222_222, 500_000, 1_500_000, 40_000_000];
        // Otherwise the server might shrink the buffer of the querying connection meanwhile.
        server.connect().run("DEBUG REPLYBUFFER RESIZING 0");
        let (mut compared, mut usages, mut growths) = (0, 0, 0);
        for (number, capacity) in capacities.into_iter().enumerate() {
            for (rate, layout) in RATES.iter().flat_map(|rate| LAYOUT_WORDS.map(|layout| (rate, layout))) {
                for adds in [1, capacity * 8] {
                    if adds > 200_000 {
                        continue;
                    }
                    let line = format!("BF.INSERT k CAPACITY {capacity} ERROR {rate}{layout} ITEMS 0");
                    let before = used_memory_alone(&server);
                    make(&server, &line, adds);
                    let growth = used_memory_alone(&server) - before;
                    let mut control = server.connect();
                    let usage = control.run("MEMORY USAGE k").number();
                    // The server's own thread frees a large filter, and reports when it is done.
                    control.run("UNLINK k");
                    // The first round makes the server allocate memory that it keeps.
                    if number == 0 {
                        continue;
                    }
                    let near = (usage - growth).abs() <= usage / 100 + (32 << 10);
                    assert!(near, "{line}, {adds} adds: used_memory grew by {growth}, MEMORY USAGE {usage}");
                    compared += 1;
                    usages += usage;
                    growths += growth;
                }
            }
        }
        eprintln!("{compared} filters: MEMORY USAGE {usages} in all, used_memory grew by {growths}");
    });
}

const RATES: [&str; 3] = ["0.25", "0.01", "1e-6"];
const LAYOUT_WORDS: [&str; 3] = ["", " LAYOUT redisbloom", " TIGHTENING 0.5"];

/// Creates a filter and adds to it from a separate connection, so that its buffers are freed afterwards.
fn make(server: &Server, line: &str, adds: i64) {
    let mut client = server.connect();
    assert!(!client.run(line).is_error(), "{line}");
    let items: Vec<String> = (0..adds).map(|number| number.to_string()).collect();
    client.batched(&[b"BF.MADD", b"k"], &items);
}

/// Returns the server's memory when no other client is connected. Uses a new connection each time, because the server shrinks the buffers
/// of a connection that is idle for two seconds.
fn used_memory_alone(server: &Server) -> i64 {
    let mut control = server.connect();
    eventually("the other client to be gone", || control.info_number("connected_clients") == 1);
    eventually("the background to be idle", || control.info_number("lazyfree_pending_objects") == 0);
    control.info_number("used_memory")
}

#[test]
fn the_module_cannot_be_unloaded_nor_loaded_twice() {
    on_every_server(|program| {
        let server = Server::with(program).line("enable-module-command yes").start();
        let mut client = server.connect();
        client.run("BF.ADD k a");
        let refusal = client.run("MODULE UNLOAD bf").error_text().to_owned();
        assert!(refusal.contains("exports one or more module-side data types"), "{refusal}");
        client.run("FLUSHALL");
        assert!(client.run("MODULE UNLOAD bf").is_error(), "without a filter too");

        // The module as another file, like another vendor's module with this name.
        let copy = server.folder().join("another.so");
        fs::copy(module(), &copy).unwrap();
        let reasons = ["another module named 'bf' is already loaded", "this library is already loaded, as: loadmodule"];
        for (path, reason) in [copy.as_path(), Path::new(&module())].into_iter().zip(reasons) {
            let log = server.log().len();
            let reply = client.run(&format!("MODULE LOAD {}", path.display()));
            assert!(reply.error_text().starts_with("ERR Error loading the extension"), "{reply:?}");
            let log = server.log()[log..].to_owned();
            assert!(log.contains(reason), "{log}");
            assert!(!log.contains("panicked"), "{log}");
        }
        // The first server keeps running.
        assert_eq!(client.run("PING"), simple("PONG"));
        assert_eq!(client.run("BF.MADD k a b a"), array([integer(1), integer(1), integer(0)]));
        assert_eq!(client.run("DEBUG RELOAD"), ok());
        assert_eq!(client.run("BF.MEXISTS k a b c"), array([integer(1), integer(1), integer(0)]));
        // Recent servers have built-in modules.
        let modules = client.run("MODULE LIST");
        let ours = modules.elements().iter().filter(|module| module.field("name").text() == "bf");
        assert_eq!(ours.count(), 1, "{modules:?}");
        eprintln!("2 unloads and 2 loads refused");
    });
}

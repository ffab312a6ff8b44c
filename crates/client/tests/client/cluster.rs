//! A cluster of three servers.

use std::path::Path;

use bloomgate_client::{Client, Filter};

use testing::{Server, eventually, servers};

/// Starts three servers, which share the slots.
pub fn of_three(program: &Path) -> Vec<Server> {
    let start = || {
        let server = Server::with(program).line("cluster-enabled yes");
        // On a busy machine a slow node must not be considered dead.
        server.line("cluster-node-timeout 60000").start()
    };
    let nodes: Vec<Server> = (0..3).map(|_| start()).collect();
    for (number, (node, slots)) in nodes.iter().zip([(0, 5460), (5461, 10922), (10923, 16383)]).enumerate() {
        let mut connection = node.library_client(2);
        let mut run = |words: &[&str]| redis::cmd("CLUSTER").arg(words).exec(&mut connection).unwrap();
        let slots: Vec<String> = (slots.0..=slots.1).map(|slot| slot.to_string()).collect();
        run(&[&["ADDSLOTS"], slots.iter().map(String::as_str).collect::<Vec<_>>().as_slice()].concat());
        run(&["SET-CONFIG-EPOCH", &(number + 1).to_string()]);
        run(&["MEET", "127.0.0.1", &nodes[0].port.to_string()]);
    }
    for node in &nodes {
        let mut connection = node.library_client(2);
        eventually("the nodes to know one another", || {
            let info: String = redis::cmd("CLUSTER").arg("INFO").query(&mut connection).unwrap();
            let slots: redis::Value = redis::cmd("CLUSTER").arg("SLOTS").query(&mut connection).unwrap();
            let redis::Value::Array(ranges) = slots else { return false };
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3") && ranges.len() == 3
        });
    }
    nodes
}

/// Moves the slot of a key to another node, as an operator would.
#[test]
fn a_moved_slot_is_followed() {
    let nodes = of_three(&servers()[0]);
    let client = Client::cluster([format!("redis://127.0.0.1:{}", nodes[2].port)]).unwrap();
    // Its slot is 12182, which the third node holds.
    let seen = Filter::new(&client, "foo");
    assert!(seen.add("a").unwrap());
    let mut connections: Vec<_> = nodes.iter().map(|node| node.library_client(2)).collect();
    let mut run = |node: usize, words: &[&str]| -> redis::Value {
        let mut command = redis::cmd(words[0]);
        let result = command.arg(&words[1..]).query(&mut connections[node]);
        result.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    };
    let id = |value: redis::Value| redis::from_redis_value::<String>(value).unwrap();
    let (from, to) = (id(run(2, &["CLUSTER", "MYID"])), id(run(0, &["CLUSTER", "MYID"])));
    run(0, &["CLUSTER", "SETSLOT", "12182", "IMPORTING", &from]);
    run(2, &["CLUSTER", "SETSLOT", "12182", "MIGRATING", &to]);
    run(2, &["MIGRATE", "127.0.0.1", &nodes[0].port.to_string(), "foo", "0", "60000"]);
    // The third node replies ASK now.
    assert!(!seen.add("a").unwrap());
    assert!(seen.add("b").unwrap());
    for node in [0, 2, 1] {
        run(node, &["CLUSTER", "SETSLOT", "12182", "NODE", &to]);
    }
    // The third node now replies MOVED.
    assert_eq!(seen.exists_many(["a", "b", "c"]).unwrap(), [true, true, false]);
    assert_eq!(seen.card().unwrap(), 2);
}

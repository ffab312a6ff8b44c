//! A cluster of three nodes, each with a third of the slots.

use std::path::Path;

use testing::{Builder, Server, eventually, free_port, ok};

/// Starts the nodes, and waits until they know each other.
pub fn three_nodes(program: &Path) -> [Server; 3] {
    let bus = [0; 3].map(|_| free_port());
    let node = |bus: u16| -> Builder {
        Server::with(program).line("cluster-enabled yes").line(&format!("cluster-port {bus}"))
    };
    let nodes = bus.map(|bus| node(bus).start());
    let mut clients = nodes.each_ref().map(Server::connect);
    for (client, slots) in clients.iter_mut().zip(["0 5460", "5461 10922", "10923 16383"]) {
        assert_eq!(client.run(&format!("CLUSTER ADDSLOTSRANGE {slots}")), ok());
    }
    for (node, bus) in nodes.iter().zip(bus).skip(1) {
        assert_eq!(clients[0].run(&format!("CLUSTER MEET 127.0.0.1 {} {bus}", node.port)), ok());
    }
    for client in &mut clients {
        eventually("the nodes to know each other", || {
            let info = client.run("CLUSTER INFO").text();
            info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384")
        });
    }
    nodes
}

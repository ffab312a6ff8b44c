//! A cluster that a test starts, and a client that follows MOVED and ASK and retries after TRYAGAIN.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Builder, Connection, Reply, Server, eventually, free_port, ok, patience};

/// The number of slots in a cluster.
pub const SLOTS: u16 = 16384;
/// The node timeout: long enough that a node on a busy machine is not considered failed.
pub const PATIENT: Duration = Duration::from_secs(60);

/// Configures a server that can be a node. Returns its bus port, too, which is set because the default, 10000 above the port, may be too
/// high.
pub fn node(program: &Path) -> (Builder, u16) {
    let bus = free_port();
    let builder = Server::with(program).line("cluster-enabled yes").line("cluster-replica-validity-factor 0");
    let timeout = format!("cluster-node-timeout {}", PATIENT.as_millis());
    (builder.line(&timeout).line(&format!("cluster-port {bus}")), bus)
}

/// Introduces an isolated node to another node. A node never repeats a lost request, and ignores a second request while one is
/// pending.
pub fn meet(client: &mut Connection, port: u16, bus: u16) {
    if state(client, "cluster_known_nodes") == "1" {
        assert_eq!(client.run(&format!("CLUSTER MEET 127.0.0.1 {port} {bus}")), ok());
    }
}

/// Starts two nodes of one cluster. The first owns all slots; the second is configured further.
pub fn pair(program: &Path, configure: impl FnOnce(Builder) -> Builder) -> [Server; 2] {
    let [(first, bus), (second, _)] = [node(program), node(program)];
    let servers = [first.start(), configure(second).start()];
    let [mut one, mut two] = servers.each_ref().map(Server::connect);
    assert_eq!(one.run(&format!("CLUSTER ADDSLOTSRANGE 0 {}", SLOTS - 1)), ok());
    eventually("the nodes to know each other", || {
        meet(&mut two, servers[0].port, bus);
        let mut equal = |name| {
            let [one, two] = [&mut one, &mut two].map(|client| state(client, name));
            (one == two).then_some(one)
        };
        // Both begin with epoch 0, and one of them soon gets another epoch.
        equal("cluster_state").is_some_and(|state| state == "ok")
            && equal("cluster_known_nodes").is_some_and(|nodes| nodes == "2")
            && equal("cluster_current_epoch").is_some()
            && equal("cluster_my_epoch").is_none()
    });
    servers
}

/// Adds a node that is a replica of an existing one.
pub fn add_replica(program: &Path, primary: &Server) -> Server {
    let replica = node(program).0.start();
    let bus = primary.connect().run("CONFIG GET cluster-port").elements()[1].text();
    let mut client = replica.connect();
    let bus = bus.parse().expect("a port");
    let line = format!("CLUSTER REPLICATE {}", id(primary));
    eventually("the node to know its primary", || {
        meet(&mut client, primary.port, bus);
        client.run(&line) == ok()
    });
    eventually("the replica to be up", || client.info("role") == "slave" && client.info("master_link_status") == "up");
    replica
}

/// Returns the id of a node.
pub fn id(server: &Server) -> String {
    server.connect().run("CLUSTER MYID").text()
}

/// Returns the slot of a key: the CRC-16/XMODEM of the key or of its hash tag.
pub fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    let crc = hashed.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 })
    });
    crc % SLOTS
}

/// Starts three primaries and three replicas.
pub struct Cluster {
    pub servers: Vec<Server>,
    /// How often clients were redirected by ASK.
    pub asked: Arc<AtomicUsize>,
}

impl Cluster {
    /// Starts the cluster with redis-cli, also for Valkey.
    pub fn start(program: &Path) -> Self {
        let (servers, addresses): (Vec<Server>, Vec<String>) = (0..6)
            .map(|_| {
                let (builder, bus) = node(program);
                let server = builder.start();
                let address = format!("127.0.0.1:{}@{bus}", server.port);
                (server, address)
            })
            .unzip();
        let cluster = Self { servers, asked: Arc::default() };
        let mut words = vec!["create"];
        words.extend(addresses.iter().map(String::as_str));
        words.extend(["--cluster-replicas", "1"]);
        cluster.manage(&words);
        for server in &cluster.servers {
            let mut client = server.connect();
            eventually("the cluster to be whole", || {
                client.info("role") == "master" || client.info("master_link_status") == "up"
            });
            eventually("the cluster to be whole", || state(&mut client, "cluster_state") == "ok");
        }
        cluster
    }

    /// Runs `redis-cli --cluster`. Returns its output.
    pub fn manage(&self, words: &[&str]) -> String {
        let output = Command::new("redis-cli")
            .arg("--cluster")
            .args(words)
            .arg("--cluster-yes")
            .output()
            .unwrap_or_else(|fault| panic!("redis-cli: {fault}"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "--cluster {words:?}:\n{text}{}", String::from_utf8_lossy(&output.stderr));
        text
    }

    /// Waits until all nodes serve and agree on the owners of the slots. Until then, slots cannot be migrated.
    pub fn wait_for_agreement(&self) {
        let mut clients: Vec<Connection> = self.servers.iter().map(Server::connect).collect();
        for client in &mut clients {
            eventually("the cluster to be up", || state(client, "cluster_state") == "ok");
        }
        eventually("the nodes to agree", || {
            let mut views = clients.iter_mut().map(|client| {
                let reply = client.run("CLUSTER SLOTS");
                let range = |range: &Reply| {
                    let [from, to, owner, ..] = range.elements() else { panic!("no range: {range:?}") };
                    (from.number(), to.number(), owner.elements()[1].number())
                };
                let mut ranges: Vec<_> = reply.elements().iter().map(range).collect();
                ranges.sort_unstable();
                ranges
            });
            let first = views.next().expect("six nodes");
            views.all(|view| view == first)
        });
    }

    /// Sets the node timeout.
    pub fn set_node_timeout(&self, timeout: Duration) {
        for mut client in self.servers.iter().filter_map(|server| Connection::open(server.port).ok()) {
            assert_eq!(client.run(&format!("CONFIG SET cluster-node-timeout {}", timeout.as_millis())), ok());
        }
    }

    /// Returns the indices of the servers that are currently reachable primaries.
    pub fn primaries(&self) -> Vec<usize> {
        (0..self.servers.len())
            .filter(|&number| {
                Connection::open(self.servers[number].port).is_ok_and(|mut client| client.info("role") == "master")
            })
            .collect()
    }

    /// Returns the index of the replica of a primary.
    pub fn replica_of(&self, primary: usize) -> usize {
        let port = self.servers[primary].port.to_string();
        (0..self.servers.len())
            .find(|&number| {
                Connection::open(self.servers[number].port)
                    .is_ok_and(|mut client| client.info("role") == "slave" && client.info("master_port") == port)
            })
            .unwrap_or_else(|| panic!("no replica of server {primary}"))
    }

    pub fn client(&self) -> Client {
        Client { asked: self.asked.clone(), ..Client::of(&self.servers) }
    }
}

/// Returns a field of CLUSTER INFO.
pub fn state(client: &mut Connection, name: &str) -> String {
    let text = client.run("CLUSTER INFO").text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("CLUSTER INFO has no {name}")).to_owned()
}

/// A client of a cluster, which counts its redirections.
pub struct Client {
    ports: Vec<u16>,
    links: HashMap<u16, Connection>,
    owners: HashMap<u16, u16>,
    pub moved: usize,
    asked: Arc<AtomicUsize>,
    pub again: usize,
}

impl Client {
    /// Creates a client that knows these nodes.
    pub fn of<'a>(servers: impl IntoIterator<Item = &'a Server>) -> Self {
        let ports = servers.into_iter().map(|server| server.port).collect();
        Self { ports, links: HashMap::new(), owners: HashMap::new(), moved: 0, asked: Arc::default(), again: 0 }
    }

    /// Runs a command on `key`. Returns its reply and the port of the server that executed it.
    pub fn call<W: AsRef<[u8]>>(&mut self, key: &str, words: &[W]) -> (Reply, u16) {
        let slot = slot(key);
        let start = Instant::now();
        let mut port = *self.owners.get(&slot).unwrap_or(&self.ports[0]);
        let mut asking = false;
        let mut attempt = 0;
        loop {
            assert!(start.elapsed() < patience(), "{key}: no server answers");
            let reply = match self.try_on(port, asking, words) {
                Ok(reply) => reply,
                Err(_) => {
                    self.links.remove(&port);
                    self.wait(&mut attempt);
                    port = self.ports[attempt % self.ports.len()];
                    asking = false;
                    continue;
                }
            };
            let Reply::Error(text) = &reply else { return (reply, port) };
            match text.split(' ').collect::<Vec<_>>()[..] {
                ["MOVED", _, address] => {
                    self.moved += 1;
                    asking = false;
                    // Two servers may redirect to each other until both have learned of a change.
                    if self.owners.get(&slot).is_some_and(|owner| address.ends_with(&format!(":{owner}"))) {
                        self.wait(&mut attempt);
                    }
                    port = address.rsplit(':').next().unwrap().parse().expect("a port");
                    self.owners.insert(slot, port);
                }
                ["ASK", _, address] => {
                    self.asked.fetch_add(1, Ordering::Relaxed);
                    asking = true;
                    port = address.rsplit(':').next().unwrap().parse().expect("a port");
                }
                ["TRYAGAIN" | "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" | "READONLY", ..] => {
                    self.again += 1;
                    self.wait(&mut attempt);
                    port = self.ports[attempt % self.ports.len()];
                    asking = false;
                }
                _ => return (reply, port),
            }
        }
    }

    /// Sends a command to the server that executed the last one, such as WAIT.
    pub fn try_on<W: AsRef<[u8]>>(&mut self, port: u16, asking: bool, words: &[W]) -> io::Result<Reply> {
        let link = match self.links.entry(port) {
            Entry::Occupied(link) => link.into_mut(),
            Entry::Vacant(place) => place.insert(Connection::open(port)?),
        };
        if asking {
            link.try_call(&["ASKING"])?;
        }
        link.try_call(words)
    }

    fn wait(&mut self, attempt: &mut usize) {
        *attempt += 1;
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn slots_equal_those_of_the_server() {
    // From the cluster specification: CRC16 of "123456789" is 0x31C3.
    assert_eq!(slot("123456789"), 0x31C3 % SLOTS);
    assert_eq!(slot("{user1000}.following"), slot("{user1000}.followers"));
}

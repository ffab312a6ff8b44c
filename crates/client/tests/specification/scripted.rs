//! A server inside the test: it queues the commands of all connections, and replies as a case says.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::words::Reply;

/// A command that has arrived.
pub struct Arrival {
    pub connection: Arc<Connection>,
    pub words: Vec<Vec<u8>>,
    /// The position among the commands of the connection.
    number: usize,
}

impl Arrival {
    /// Returns the command as text.
    pub fn shown(&self) -> String {
        let shown = |word: &Vec<u8>| word[..word.len().min(100)].escape_ascii().to_string();
        self.words.iter().take(40).map(shown).collect::<Vec<_>>().join(" ")
    }

    /// Whether the server holds the reply back until there is a row.
    fn waits(&self) -> bool {
        self.words[0].eq_ignore_ascii_case(b"BF.FETCH") && self.words.iter().skip(4).any(|word| word == b"WAIT")
    }
}

/// The replies of a connection, which are sent in the order of the commands.
#[derive(Default)]
struct Unanswered {
    protocol: u8,
    first: usize,
    replies: VecDeque<(bool, Option<Vec<u8>>)>,
}

/// One connection of the client.
pub struct Connection {
    peer: TcpStream,
    unanswered: Mutex<Unanswered>,
}

impl Connection {
    fn send(&self, number: usize, reply: Vec<u8>) {
        let mut unanswered = self.unanswered.lock().unwrap();
        let position = number - unanswered.first;
        unanswered.replies[position].1 = Some(reply);
        while let Some((_, Some(_))) = unanswered.replies.front() {
            let (_, ready) = unanswered.replies.pop_front().unwrap();
            unanswered.first += 1;
            // The client may have closed the connection.
            _ = (&self.peer).write_all(&ready.unwrap());
        }
    }

    /// Replies to a command.
    pub fn answer(&self, arrival: &Arrival, reply: &Reply) -> Result<(), String> {
        let protocol = self.unanswered.lock().unwrap().protocol;
        match reply.encode(protocol)? {
            Some(reply) => self.send(arrival.number, reply),
            None => _ = self.peer.shutdown(Shutdown::Both),
        }
        Ok(())
    }
}

/// The server, which ends with this value.
pub struct Scripted {
    pub port: u16,
    arrived: Receiver<Arrival>,
    violations: Arc<Mutex<Vec<String>>>,
    connections: Arc<Mutex<Vec<Arc<Connection>>>>,
    is_over: Arc<AtomicBool>,
}

impl Scripted {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, arrived) = channel();
        let server =
            Self { port, arrived, violations: Arc::default(), connections: Arc::default(), is_over: Arc::default() };
        let (violations, connections) = (Arc::clone(&server.violations), Arc::clone(&server.connections));
        let is_over = Arc::clone(&server.is_over);
        thread::spawn(move || {
            for peer in listener.incoming() {
                let Ok(peer) = peer else { break };
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
                peer.set_nodelay(true).unwrap();
                let unanswered = Mutex::new(Unanswered { protocol: 2, ..Unanswered::default() });
                let connection = Arc::new(Connection { peer, unanswered });
                connections.lock().unwrap().push(Arc::clone(&connection));
                let (sender, violations) = (sender.clone(), Arc::clone(&violations));
                thread::spawn(move || serve(&connection, &sender, &violations));
            }
        });
        server
    }

    /// Takes the next command, or returns nothing if none arrives in time.
    pub fn next(&self, timeout: Duration) -> Option<Arrival> {
        self.arrived.recv_timeout(timeout).ok()
    }

    /// Returns the commands that followed an unanswered BF.FETCH with WAIT on its connection.
    pub fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap().clone()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // The listening thread sees that it is over when it accepts this connection.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        for connection in self.connections.lock().unwrap().iter() {
            _ = connection.peer.shutdown(Shutdown::Both);
        }
    }
}

/// Reads the commands of a connection until it is closed.
fn serve(connection: &Arc<Connection>, arrived: &Sender<Arrival>, violations: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(&connection.peer);
    while let Some(words) = read_command(&mut reader) {
        let mut unanswered = connection.unanswered.lock().unwrap();
        let number = unanswered.first + unanswered.replies.len();
        let arrival = Arrival { connection: Arc::clone(connection), words, number };
        if unanswered.replies.iter().any(|(waits, _)| *waits) {
            violations.lock().unwrap().push(format!("`{}` followed an unanswered BF.FETCH with WAIT", arrival.shown()));
        }
        unanswered.replies.push_back((arrival.waits(), None));
        let reply = automatic(&arrival.words, &mut unanswered.protocol);
        drop(unanswered);
        match reply {
            Some(reply) => connection.send(number, reply),
            // The test may have ended.
            None => _ = arrived.send(arrival),
        }
    }
}

fn read_line(reader: &mut impl BufRead) -> Option<usize> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    line.trim_end().get(1..)?.parse().ok()
}

fn read_command(reader: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
    let count = read_line(reader)?;
    (0..count)
        .map(|_| {
            let mut word = vec![0; read_line(reader)? + 2];
            reader.read_exact(&mut word).ok()?;
            word.truncate(word.len() - 2);
            Some(word)
        })
        .collect()
}

/// Returns the reply to a command of client libraries, which no case mentions.
fn automatic(words: &[Vec<u8>], protocol: &mut u8) -> Option<Vec<u8>> {
    let word = |position: usize| words.get(position).map(|word| word.to_ascii_uppercase()).unwrap_or_default();
    let text = match word(0).as_slice() {
        b"HELLO" => {
            *protocol = if word(1) == b"3" { 3 } else { 2 };
            let head = if *protocol == 3 { "%7" } else { "*14" };
            format!(
                "{head}\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n$5\r\nproto\r\n:{protocol}\r\n\
                 $2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n\
                 $7\r\nmodules\r\n*0\r\n"
            )
        }
        b"INFO" => {
            let info = "# Replication\r\nrole:master\r\nconnected_slaves:0\r\n";
            format!("${}\r\n{info}\r\n", info.len())
        }
        b"COMMAND" => "*0\r\n".to_owned(),
        b"PING" => "+PONG\r\n".to_owned(),
        b"CLIENT" if word(1) == b"MAINT_NOTIFICATIONS" => "-ERR unknown subcommand\r\n".to_owned(),
        b"AUTH" | b"CLIENT" | b"SELECT" | b"READONLY" | b"QUIT" => "+OK\r\n".to_owned(),
        _ => return None,
    };
    Some(text.into_bytes())
}

//! A server inside the test: it queues the commands of all connections, and the test replies. It uses RESP2, and itself answers the
//! commands with which redis-rs begins a connection.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A command that has arrived, as text.
pub struct Arrival {
    pub command: String,
    peer: TcpStream,
}

impl Arrival {
    /// Replies to the command.
    pub fn answer(mut self, reply: &str) {
        self.peer.write_all(reply.as_bytes()).unwrap();
    }
}

/// The server, which is stopped when this value is dropped.
pub struct Scripted {
    pub port: u16,
    arrived: Receiver<Arrival>,
    peers: Arc<Mutex<Vec<TcpStream>>>,
    is_over: Arc<AtomicBool>,
}

impl Scripted {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, arrived) = channel();
        let server = Self { port, arrived, peers: Arc::default(), is_over: Arc::default() };
        let (peers, is_over) = (Arc::clone(&server.peers), Arc::clone(&server.is_over));
        thread::spawn(move || {
            for peer in listener.incoming() {
                let Ok(peer) = peer else { break };
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
                peers.lock().unwrap().push(peer.try_clone().unwrap());
                let sender = sender.clone();
                thread::spawn(move || serve(&peer, &sender));
            }
        });
        server
    }

    /// Returns the next command, or `None` if none arrives in time.
    pub fn next(&self, timeout: Duration) -> Option<Arrival> {
        self.arrived.recv_timeout(timeout).ok()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // This connection wakes up the listening thread, which then ends.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        for peer in self.peers.lock().unwrap().iter() {
            _ = peer.shutdown(Shutdown::Both);
        }
    }
}

/// Reads the commands of a connection until it is closed.
fn serve(peer: &TcpStream, arrived: &Sender<Arrival>) {
    let mut reader = BufReader::new(peer);
    while let Some(words) = read_command(&mut reader) {
        let arrival = Arrival { command: words.join(" "), peer: peer.try_clone().unwrap() };
        match words[0].to_ascii_uppercase().as_str() {
            "CLIENT" | "READONLY" | "SELECT" => arrival.answer("+OK\r\n"),
            "PING" => arrival.answer("+PONG\r\n"),
            // The test may have ended.
            _ => _ = arrived.send(arrival),
        }
    }
}

fn read_line(reader: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    Some(line.trim_end().to_owned())
}

/// Reads a command whose words have no line breaks.
fn read_command(reader: &mut impl BufRead) -> Option<Vec<String>> {
    let count: usize = read_line(reader)?.get(1..)?.parse().ok()?;
    (0..count)
        .map(|_| {
            read_line(reader)?;
            read_line(reader)
        })
        .collect()
}

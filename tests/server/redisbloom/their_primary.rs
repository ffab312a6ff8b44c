//! A primary of the tests' own, which says what RedisBloom's would: its snapshot, then its clients' commands, word for word.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// A primary that sends RedisBloom's snapshot and then what it is given, as RedisBloom's would.
pub struct TheirPrimary {
    pub port: u16,
    stream: Sender<Vec<u8>>,
}

impl TheirPrimary {
    /// Waits for a replica.
    pub fn start(snapshot: Vec<u8>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let (stream, commands) = channel();
        // It ends when the test drops the sender or the replica hangs up.
        thread::spawn(move || {
            let (link, _) = listener.accept().expect("a replica");
            let _ = serve(link, &snapshot, &commands);
        });
        Self { port, stream }
    }

    /// Sends commands, told apart into words by single spaces.
    pub fn send(&self, lines: &[&str]) {
        self.send_bytes(encode(lines));
    }

    /// Sends commands as they are stored.
    pub fn send_bytes(&self, commands: Vec<u8>) {
        self.stream.send(commands).expect("the primary runs");
    }
}

fn serve(mut link: TcpStream, snapshot: &[u8], commands: &Receiver<Vec<u8>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(link.try_clone()?);
    loop {
        let words = read_command(&mut reader)?;
        match words[0].to_ascii_uppercase().as_str() {
            "PING" => link.write_all(b"+PONG\r\n")?,
            "PSYNC" => break,
            _ => link.write_all(b"+OK\r\n")?,
        }
    }
    link.write_all(format!("+FULLRESYNC {} 0\r\n${}\r\n", "a".repeat(40), snapshot.len()).as_bytes())?;
    link.write_all(snapshot)?;
    while let Ok(bytes) = commands.recv() {
        link.write_all(&bytes)?;
    }
    Ok(())
}

fn read_command(reader: &mut BufReader<TcpStream>) -> std::io::Result<Vec<String>> {
    let number = |reader: &mut BufReader<TcpStream>| {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        line.trim_start_matches(['*', '$']).trim_end().parse::<usize>().map_err(std::io::Error::other)
    };
    let count = number(reader)?;
    (0..count)
        .map(|_| {
            let mut word = vec![0; number(reader)? + 2];
            reader.read_exact(&mut word)?;
            word.truncate(word.len() - 2);
            Ok(String::from_utf8_lossy(&word).into_owned())
        })
        .collect()
}

/// Commands, told apart into words by single spaces, as they are sent and stored.
pub fn encode(lines: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        bytes.extend(format!("*{}\r\n", words.len()).bytes());
        words.iter().for_each(|word| bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes()));
    }
    bytes
}

/// A BF.LOADCHUNK, as it is sent and stored.
pub fn encode_chunk(key: &str, iterator: i64, data: &[u8]) -> Vec<u8> {
    let iterator = iterator.to_string();
    let mut bytes = b"*4\r\n".to_vec();
    for word in [b"BF.LOADCHUNK", key.as_bytes(), iterator.as_bytes(), data] {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend(word);
        bytes.extend(b"\r\n");
    }
    bytes
}

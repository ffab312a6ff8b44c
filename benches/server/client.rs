//! A client of our own: one that asks and reads a reply, and one that keeps many commands on their way on many
//! connections and counts the answers without keeping them.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::items::{Batch, Set};

/// Connections that are kept busy, as many as redis-benchmark has when it is not told.
const CONNECTIONS: usize = 50;

/// A reply of RESP2.
#[derive(Debug)]
pub enum Reply {
    /// A string of any kind, or a number as text; nothing for null.
    Text(String),
    /// An array.
    Array(Vec<Self>),
}

impl Reply {
    /// All strings in it, arrays opened.
    pub fn flat(self) -> Vec<String> {
        match self {
            Self::Text(text) => vec![text],
            Self::Array(replies) => replies.into_iter().flat_map(Self::flat).collect(),
        }
    }
}

/// A connection.
pub struct Client(BufReader<TcpStream>);

/// How the items of some commands were answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Elements that were 1.
    pub ones: u64,
    /// Elements of any kind.
    pub all: u64,
}

impl Client {
    /// Connects to a server on this machine.
    pub fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::with_capacity(64 * 1024, stream)))
    }

    /// Sends a command and reads its reply; an error reply is an error.
    pub fn call(&mut self, words: &[&str]) -> Result<Reply> {
        let mut bytes = format!("*{}\r\n", words.len());
        for word in words {
            bytes += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.0.get_mut().write_all(bytes.as_bytes())?;
        read_reply(&mut self.0).with_context(|| words.join(" "))
    }

    fn count_reply(&mut self, line: &mut Vec<u8>, answers: &mut Answers) -> Result<()> {
        count_reply(&mut self.0, line, answers)
    }
}

/// Commands on items with the numbers of a range.
pub struct Stream<'a> {
    /// The words in front of the items.
    pub words: &'a [&'a str],
    /// The set that the items are of.
    pub set: Set,
    /// Items of a command.
    pub items: u64,
    /// Commands that go together on a connection.
    pub pipeline: u64,
}

/// What a stream of commands took, and got.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// From the first byte sent to the last reply read.
    pub seconds: f64,
    /// Commands.
    pub commands: u64,
    /// The answers.
    pub answers: Answers,
}

impl Outcome {
    /// Commands a second, as the client saw it.
    pub fn commands_per_second(&self) -> f64 {
        self.commands as f64 / self.seconds
    }
}

impl Stream<'_> {
    /// Sends the items with these numbers. Connections take turns: while one's replies are read, the commands of the
    /// others wait at the server, so the server has always something to do.
    pub fn run(&self, port: u16, numbers: Range<u64>) -> Result<Outcome> {
        let mut clients = (0..CONNECTIONS).map(|_| Client::connect(port)).collect::<Result<Vec<_>>>()?;
        let mut waiting = vec![0; CONNECTIONS];
        let mut batch = Batch::new(self.words, self.set, self.items, self.pipeline);
        let (mut next, mut commands) = (numbers.start, 0);
        let (mut line, mut answers) = (Vec::new(), Answers::default());
        let start = Instant::now();
        loop {
            let mut busy = false;
            for (client, waiting) in clients.iter_mut().zip(&mut waiting) {
                for _ in 0..std::mem::take(waiting) {
                    client.count_reply(&mut line, &mut answers)?;
                }
                if next < numbers.end {
                    let (items, together) = self.next_size(numbers.end - next);
                    if (items, together) != (batch.items, batch.commands) {
                        batch = Batch::new(self.words, self.set, items, together);
                    }
                    client.0.get_mut().write_all(batch.numbered_from(next))?;
                    next += items * together;
                    commands += together;
                    *waiting = together;
                }
                busy |= *waiting > 0;
            }
            if !busy {
                return Ok(Outcome { seconds: start.elapsed().as_secs_f64(), commands, answers });
            }
        }
    }

    /// Items and commands of the next batch, where so many items are left: whole commands first, then one with the
    /// rest.
    fn next_size(&self, left: u64) -> (u64, u64) {
        if left < self.items { (left, 1) } else { (self.items, self.pipeline.min(left / self.items)) }
    }
}

fn read_line<'a>(reader: &mut dyn BufRead, line: &'a mut Vec<u8>) -> Result<(u8, &'a str)> {
    line.clear();
    reader.read_until(b'\n', line)?;
    let Some((kind, rest)) = line.strip_suffix(b"\r\n").and_then(<[u8]>::split_first) else {
        bail!("the server closed the connection")
    };
    Ok((*kind, std::str::from_utf8(rest)?))
}

fn read_reply(reader: &mut dyn BufRead) -> Result<Reply> {
    let mut line = Vec::new();
    let (kind, rest) = read_line(reader, &mut line)?;
    Ok(match kind {
        b'-' => bail!("{rest}"),
        b'$' if rest != "-1" => {
            let mut bytes = vec![0; rest.parse::<usize>()? + 2];
            reader.read_exact(&mut bytes)?;
            bytes.truncate(bytes.len() - 2);
            Reply::Text(String::from_utf8_lossy(&bytes).into_owned())
        }
        b'*' if rest != "-1" => {
            let count: usize = rest.parse()?;
            Reply::Array((0..count).map(|_| read_reply(reader)).collect::<Result<_>>()?)
        }
        b'$' | b'*' => Reply::Text(String::new()),
        _ => Reply::Text(rest.to_owned()),
    })
}

/// Reads a reply of integers, one or an array of them.
fn count_reply(reader: &mut dyn BufRead, line: &mut Vec<u8>, answers: &mut Answers) -> Result<()> {
    let mut left: u64 = 1;
    while left > 0 {
        left -= 1;
        match read_line(reader, line)? {
            (b':', number) => {
                answers.all += 1;
                answers.ones += u64::from(number == "1");
            }
            (b'*', count) => left += count.parse::<u64>()?,
            (b'-', text) => bail!("{text}"),
            (kind, rest) => bail!("a reply that is no number: {}{rest}", char::from(kind)),
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(unused, reason = "cargo bench compiles this too, without the test functions")]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_and_an_error_is_one() {
        let (mut line, mut answers) = (Vec::new(), Answers::default());
        let mut bytes: &[u8] = b"*3\r\n:1\r\n:0\r\n:1\r\n:1\r\n*1\r\n-ERR non scaling filter is full\r\n";
        count_reply(&mut bytes, &mut line, &mut answers).unwrap();
        count_reply(&mut bytes, &mut line, &mut answers).unwrap();
        assert_eq!(answers, Answers { ones: 3, all: 4 });
        let fault = count_reply(&mut bytes, &mut line, &mut answers).unwrap_err();
        assert_eq!(fault.to_string(), "ERR non scaling filter is full");
    }

    #[test]
    fn replies_are_opened() {
        let mut bytes: &[u8] = b"*3\r\n$2\r\nab\r\n*1\r\n:7\r\n$-1\r\n-ERR no\r\n";
        assert_eq!(read_reply(&mut bytes).unwrap().flat(), ["ab", "7", ""]);
        assert_eq!(read_reply(&mut bytes).unwrap_err().to_string(), "ERR no");
        assert!(read_reply(&mut bytes).is_err());
    }

    #[test]
    fn no_item_of_a_range_is_left_out() {
        let stream = Stream { words: &["BF.MADD", "f"], set: Set::Members, items: 100, pipeline: 4 };
        let mut left = 1_250;
        let mut sizes = Vec::new();
        while left > 0 {
            let (items, commands) = stream.next_size(left);
            sizes.push((items, commands));
            left -= items * commands;
        }
        assert_eq!(sizes, [(100, 4), (100, 4), (100, 4), (50, 1)]);
    }
}

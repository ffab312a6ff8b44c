//! Splits batches of any size into commands.

use std::iter::Fuse;

use redis::{Arg, Cmd};

use crate::{BatchItem, Error, Item};

/// The maximum number of items in one command. Larger commands gain nothing (docs/speed.md), and delay other clients of the server.
pub const COMMAND_ITEMS: usize = 500;
/// The maximum size of one command's items in bytes, unless it has one item.
const COMMAND_BYTES: usize = 1 << 20;
/// The commands that are sent together, before their replies are awaited.
const WINDOW_COMMANDS: usize = 16;

/// The items of one command.
pub type Chunk = Vec<Vec<u8>>;

/// Whether this many items or commands of this many bytes may be sent together.
pub const fn fits(count: usize, bytes: usize) -> bool {
    count <= COMMAND_ITEMS && bytes <= COMMAND_BYTES
}

/// Returns the bytes of a command's arguments.
pub fn bytes_of(command: &Cmd) -> usize {
    let length = |argument: Arg<&[u8]>| if let Arg::Simple(bytes) = argument { bytes.len() } else { 0 };
    command.args_iter().map(length).sum()
}

/// Splits commands into parts that are sent together. A command above the limit is a separate part.
pub fn parts(commands: Vec<Cmd>) -> Vec<Vec<Cmd>> {
    let (mut parts, mut bytes): (Vec<Vec<Cmd>>, _) = (Vec::new(), 0);
    for command in commands {
        let more = bytes_of(&command);
        match parts.last_mut().filter(|part| fits(part.len() + 1, bytes + more)) {
            Some(part) => {
                bytes += more;
                part.push(command);
            }
            None => {
                bytes = more;
                parts.push(vec![command]);
            }
        }
    }
    parts
}

/// Groups items into windows of chunks. Reads one item further ahead than the current window.
pub struct Windows<I: Iterator> {
    items: Fuse<I>,
    /// The item that did not fit into the last window.
    next: Option<Vec<u8>>,
}

impl<T: BatchItem, I: Iterator<Item = T>> Windows<I> {
    /// Returns the next item of the source.
    fn read(&mut self) -> Option<Result<Vec<u8>, Error>> {
        let item = self.items.next()?.item();
        Some(item.map(|item| item.item_bytes().into_owned()).map_err(Error::caller))
    }
}

/// Splits items into windows.
pub fn windows<T: BatchItem, I: IntoIterator<Item = T>>(items: I) -> Windows<I::IntoIter> {
    Windows { items: items.into_iter().fuse(), next: None }
}

/// Appends the answers of a window to the earlier answers. On an error, adds the earlier answers to it.
pub fn extend(answers: &mut Vec<bool>, window: Result<Vec<bool>, Error>) -> Result<(), Error> {
    match window {
        Ok(more) => answers.extend(more),
        Err(error) => return Err(error.after(answers)),
    }
    Ok(())
}

impl<T: BatchItem, I: Iterator<Item = T>> Iterator for Windows<I> {
    /// An error of the source replaces the window in which it occurs.
    type Item = Result<Vec<Chunk>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut window: Vec<Chunk> = Vec::new();
        let mut bytes = 0;
        while let Some(item) = self.next.take().map(Ok).or_else(|| self.read()) {
            let item = match item {
                Ok(item) => item,
                Err(error) => return Some(Err(error)),
            };
            let has_room = |chunk: &&mut Chunk| fits(chunk.len() + 1, bytes + item.len());
            if let Some(chunk) = window.last_mut().filter(has_room) {
                bytes += item.len();
                chunk.push(item);
            } else if window.len() < WINDOW_COMMANDS {
                bytes = item.len();
                window.push(vec![item]);
            } else {
                self.next = Some(item);
                break;
            }
        }
        (!window.is_empty()).then_some(Ok(window))
    }
}

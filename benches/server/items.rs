//! The items of all measurements: URLs of 70 bytes that differ in a number of twelve digits, and the commands that contain them.
//! Commands are encoded once and renumbered each time they are sent, so that the client spends most of its time on the socket.

/// The prefix before the number selects the set of an item; the sets are disjoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// Members of the filter.
    Members,
    /// Items that are never added.
    Absent,
    /// Members that single adds or another client have added.
    Drawn,
}

/// The number of digits in an item.
const DIGITS: usize = 12;

impl Set {
    /// The beginning of an item, 58 bytes.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Members => "https://www.example.org/archive/of-the-news/2024/articles/",
            Self::Absent => "https://www.example.org/archive/of-the-news/2024/missings/",
            Self::Drawn => "https://www.example.org/archive/of-the-news/2024/readings/",
        }
    }
}

/// A sequence of equal commands whose items get new numbers each time.
pub struct Batch {
    /// The number of commands.
    pub commands: u64,
    /// Items per command.
    pub items: u64,
    bytes: Vec<u8>,
    numbers: Vec<usize>,
}

impl Batch {
    /// Encodes this many commands that begin with these arguments, with this many items of the set each.
    pub fn new(words: &[&str], set: Set, items: u64, commands: u64) -> Self {
        let mut batch = Self { commands, items, bytes: Vec::new(), numbers: Vec::new() };
        for _ in 0..commands {
            batch.bytes.extend(format!("*{}\r\n", words.len() as u64 + items).bytes());
            for word in words {
                batch.bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
            }
            for _ in 0..items {
                let prefix = set.prefix();
                batch.bytes.extend(format!("${}\r\n{prefix}", prefix.len() + DIGITS).bytes());
                batch.numbers.push(batch.bytes.len());
                batch.bytes.extend([b'0'; DIGITS]);
                batch.bytes.extend(b"\r\n");
            }
        }
        batch
    }

    /// Returns the encoded commands with items numbered from `first` on.
    pub fn numbered_from(&mut self, first: u64) -> &[u8] {
        for (number, at) in (first..).zip(&self.numbers) {
            let mut rest = number;
            for digit in self.bytes[*at..*at + DIGITS].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
        &self.bytes
    }
}

/// Returns the number of items and commands of the next batch when this many items are left: full commands first, then one
/// with the rest.
pub fn next_size(items: u64, pipeline: u64, left: u64) -> (u64, u64) {
    if left < items { (left, 1) } else { (items, pipeline.min(left / items)) }
}

#[cfg(test)]
#[allow(unused, reason = "cargo bench compiles this too, without the test functions")]
mod tests {
    use super::*;

    #[test]
    fn an_item_has_70_bytes() {
        for set in [Set::Members, Set::Absent, Set::Drawn] {
            assert_eq!(set.prefix().len() + DIGITS, 70);
        }
    }

    #[test]
    fn a_batch_is_renumbered_in_place() {
        let mut batch = Batch::new(&["BF.MADD", "f"], Set::Members, 2, 2);
        let text = String::from_utf8(batch.numbered_from(1_099).to_vec()).unwrap();
        assert!(text.starts_with("*4\r\n$7\r\nBF.MADD\r\n$1\r\nf\r\n$70\r\nhttps://"), "{text}");
        let numbers: Vec<u64> =
            text.lines().filter_map(|line| line.strip_prefix(Set::Members.prefix())?.parse().ok()).collect();
        assert_eq!(numbers, [1_099, 1_100, 1_101, 1_102]);
        let length = text.len();
        assert_eq!(batch.numbered_from(999_999_999_990).len(), length);
    }

    #[test]
    fn every_item_of_a_range_is_sent() {
        let mut left = 1_250;
        let mut sizes = Vec::new();
        while left > 0 {
            let (items, commands) = next_size(100, 4, left);
            sizes.push((items, commands));
            left -= items * commands;
        }
        assert_eq!(sizes, [(100, 4), (100, 4), (100, 4), (50, 1)]);
    }
}

//! Parses the replies to commands on items, and counts the answers without keeping them.

use std::io::BufRead;

use anyhow::{Result, bail};

/// The counts of the answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Elements that were 1.
    pub ones: u64,
    /// Elements of any kind.
    pub all: u64,
}

/// Parses a reply of integers: one integer or an array. SET's OK also counts as an answer.
pub fn count_reply(reader: &mut dyn BufRead, line: &mut Vec<u8>, answers: &mut Answers) -> Result<()> {
    let mut left: u64 = 1;
    while left > 0 {
        left -= 1;
        match read_line(reader, line)? {
            (b':', number) => {
                answers.all += 1;
                answers.ones += u64::from(number == "1");
            }
            (b'+', "OK") => answers.all += 1,
            (b'*', count) => left += count.parse::<u64>()?,
            (b'-', text) => bail!("{text}"),
            (kind, rest) => bail!("a reply that is not a number: {}{rest}", char::from(kind)),
        }
    }
    Ok(())
}

fn read_line<'a>(reader: &mut dyn BufRead, line: &'a mut Vec<u8>) -> Result<(u8, &'a str)> {
    line.clear();
    reader.read_until(b'\n', line)?;
    let Some((kind, rest)) = line.strip_suffix(b"\r\n").and_then(<[u8]>::split_first) else {
        bail!("the server closed the connection")
    };
    Ok((*kind, std::str::from_utf8(rest)?))
}

#[cfg(test)]
#[allow(unused, reason = "cargo bench compiles this too, without the test functions")]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_including_errors() {
        let (mut line, mut answers) = (Vec::new(), Answers::default());
        let mut bytes: &[u8] = b"*3\r\n:1\r\n:0\r\n:1\r\n:1\r\n*1\r\n-ERR non scaling filter is full\r\n";
        count_reply(&mut bytes, &mut line, &mut answers).unwrap();
        count_reply(&mut bytes, &mut line, &mut answers).unwrap();
        assert_eq!(answers, Answers { ones: 3, all: 4 });
        let fault = count_reply(&mut bytes, &mut line, &mut answers).unwrap_err();
        assert_eq!(fault.to_string(), "ERR non scaling filter is full");
    }
}

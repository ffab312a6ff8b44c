//! Reads what callgrind_annotate prints: how many instructions there were, and which functions they were spent in.

use std::collections::BTreeMap;

/// Instructions of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Instructions {
    /// All that were counted.
    pub total: u64,
    /// Those of each function itself, the most first.
    pub functions: Vec<Spent>,
}

/// What was spent in one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spent {
    /// Instructions of its own.
    pub count: u64,
    /// The function, and the file that the code comes from: inlined code stands under both.
    pub function: String,
    /// The name of the program or library.
    pub object: String,
}

impl Instructions {
    /// Reads the listing. Lines of one function that came from several files of the standard library become one.
    pub fn read(listing: &str) -> Self {
        let mut total = 0;
        let mut sums = BTreeMap::<(String, String), u64>::new();
        for line in listing.lines() {
            let Some((count, rest)) = count_and_rest(line) else { continue };
            if rest.starts_with("PROGRAM TOTALS") {
                total = count;
            } else if let Some(place) = place(rest)
                && count < total
            {
                // Those with all of it are not where it was spent: they called what was counted.
                *sums.entry(place).or_default() += count;
            }
        }
        let spent = |((function, object), count)| Spent { count, function, object };
        let mut functions: Vec<Spent> = sums.into_iter().map(spent).collect();
        functions.sort_by_key(|spent| std::cmp::Reverse(spent.count));
        Self { total, functions }
    }

    /// The sums of the libraries, the most first.
    pub fn by_object(&self) -> Vec<(String, u64)> {
        let mut sums = BTreeMap::<&str, u64>::new();
        for spent in &self.functions {
            *sums.entry(&spent.object).or_default() += spent.count;
        }
        let mut sums: Vec<_> = sums.into_iter().map(|(object, count)| (object.to_owned(), count)).collect();
        sums.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        sums
    }
}

/// `1,234 (56.7%)  rest`; the percentage is not there in old versions.
fn count_and_rest(line: &str) -> Option<(u64, &str)> {
    let (count, rest) = line.trim_start().split_once(' ')?;
    let count = count.replace(',', "").parse().ok()?;
    let rest = rest.trim_start();
    let rest = if rest.starts_with('(') { rest.split_once(')')?.1.trim_start() } else { rest };
    Some((count, rest))
}

/// Function and library out of `path/file.rs:function [path/library]`. The file says where inlined code comes from.
fn place(rest: &str) -> Option<(String, String)> {
    let (place, object) = match rest.rsplit_once(" [") {
        Some((place, object)) => (place, object.strip_suffix(']')?),
        None => (rest, ""),
    };
    let (path, function) = place.split_once(':')?;
    let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let function = match path {
        "???" => function.to_owned(),
        path if path.contains("/rustc/") || path.contains("/library/") => format!("{function} (std)"),
        path => format!("{function} ({})", last(path)),
    };
    Some((function, last(object)))
}

#[cfg(test)]
#[allow(unused, reason = "cargo bench compiles this too, without the test functions")]
mod tests {
    use super::*;

    const LISTING: &str = "\
--------------------------------------------------------------------------------
Profile data file 'x' (creator: callgrind-3.19.0)
--------------------------------------------------------------------------------
Events shown:     Ir
--------------------------------------------------------------------------------
Ir
--------------------------------------------------------------------------------
1,234,567 (100.0%)  PROGRAM TOTALS

--------------------------------------------------------------------------------
Ir                file:function
--------------------------------------------------------------------------------
1,234,567 (100.0%)  ???:main [/usr/bin/bench-1]
  900,000 (72.9%)  /root/murmur3-0.5.2/src/lib.rs:bench::measured_lookups [/tmp/t/bench-1]
  200,000 (16.2%)  /rustc/abc/library/core/src/num/mod.rs:bench::measured_lookups [/tmp/t/bench-1]
  100,000 ( 8.1%)  /rustc/abc/library/core/src/slice/mod.rs:bench::measured_lookups [/tmp/t/bench-1]
   34,567 ( 2.8%)  ???:memcpy [/lib/libc.so.6]
";

    #[test]
    fn the_listing_is_read_without_the_callers_of_what_was_counted() {
        let found = Instructions::read(LISTING);
        assert_eq!(found.total, 1_234_567);
        let functions: Vec<_> = found.functions.iter().map(|spent| (spent.count, spent.function.as_str())).collect();
        let expected = [
            (900_000, "bench::measured_lookups (lib.rs)"),
            (300_000, "bench::measured_lookups (std)"),
            (34_567, "memcpy"),
        ];
        assert_eq!(functions, expected);
        assert_eq!(found.by_object(), [("bench-1".to_owned(), 1_200_000), ("libc.so.6".to_owned(), 34_567)]);
    }

    #[test]
    fn other_lines_are_nothing() {
        assert_eq!(Instructions::read("Ir\n----\nno numbers here\n"), Instructions::default());
    }
}

//! Parses the output of callgrind_annotate: the number of instructions, and the functions that executed them.

use std::collections::BTreeMap;

/// The instructions of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Instructions {
    /// The total.
    pub total: u64,
    /// The functions with their own instructions, the highest first.
    pub functions: Vec<FunctionCost>,
}

/// The instructions of one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionCost {
    /// Its own instructions, without callees.
    pub count: u64,
    /// The function, and the file of the code; inlined code has both.
    pub function: String,
    /// The name of the program or library.
    pub object: String,
}

impl Instructions {
    /// Parses the listing. Lines of one function from several files of the standard library are added up.
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
                // Functions with the whole total only called the measured code.
                *sums.entry(place).or_default() += count;
            }
        }
        let spent = |((function, object), count)| FunctionCost { count, function, object };
        let mut functions: Vec<FunctionCost> = sums.into_iter().map(spent).collect();
        functions.sort_by_key(|spent| std::cmp::Reverse(spent.count));
        Self { total, functions }
    }

    /// The sums by library, the highest first.
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

/// Parses `1,234 (56.7%)  rest`; old versions print no percentage.
fn count_and_rest(line: &str) -> Option<(u64, &str)> {
    let (count, rest) = line.trim_start().split_once(' ')?;
    let count = count.replace(',', "").parse().ok()?;
    let rest = rest.trim_start();
    let rest = if rest.starts_with('(') { rest.split_once(')')?.1.trim_start() } else { rest };
    Some((count, rest))
}

/// Parses function and library from `path/file.rs:function [path/library]`. The file is that of inlined code.
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
    fn the_listing_is_parsed_without_callers_of_the_measured_function() {
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
    fn other_lines_are_ignored() {
        assert_eq!(Instructions::read("Ir\n----\nno numbers here\n"), Instructions::default());
    }
}

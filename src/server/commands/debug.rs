//! `BF.DEBUG key`

use crate::bloom::{Filter, LayerSummary};
use crate::server::args::Args;
use crate::server::context::Context;
use crate::server::key::Key;
use crate::server::reply::{self, Refusal};

/// Answers a line for the filter and one for each layer, in RedisBloom's words: `hashwidth` is the width of the hash,
/// `ratio` the layer's own rate.
pub fn run(context: Context, args: Args<'_>) -> Result<(), Refusal> {
    let mut key = Key::read(context, args.word(1)?);
    let filter = key.filter()?.ok_or(Refusal::NotFound)?;
    let hash_bits = match filter {
        Filter::Native(_) => 128,
        Filter::RedisBloom(filter) => filter.rules().hash_bits(),
        Filter::ValkeyBloom(_) => 64,
    };
    reply::array(context, filter.layer_count() + 1);
    reply::bytes(context, format!("size:{}", filter.items()).as_bytes());
    for layer in filter.layers_behind(0) {
        let LayerSummary { size_bytes, bits, hashes, capacity, items, rate, .. } = layer;
        let line = format!(
            "bytes:{size_bytes} bits:{bits} hashes:{hashes} hashwidth:{hash_bits} capacity:{capacity} size:{items} ratio:{}",
            general(rate),
        );
        reply::bytes(context, line.as_bytes());
    }
    Ok(())
}

/// A positive number as C's `%g` prints it: six digits, without zeros at the end, with an exponent where it is small.
fn general(number: f64) -> String {
    let scientific = format!("{number:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| text.trim_end_matches('0').trim_end_matches('.').to_owned();
    if (-4..6).contains(&exponent) {
        let decimals = usize::try_from(5 - exponent).unwrap_or(0);
        let plain = format!("{number:.decimals$}");
        if decimals == 0 { plain } else { trimmed(&plain) }
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trimmed(digits), exponent.unsigned_abs())
    }
}

#[cfg(test)]
mod tests {
    use super::general;

    /// As `printf %g` prints them.
    #[test]
    fn numbers_look_as_in_c() {
        let printed = [
            (0.01, "0.01"),
            (0.0003125, "0.0003125"),
            (0.005, "0.005"),
            (0.25, "0.25"),
            (0.123_456_789, "0.123457"),
            (0.000_1, "0.0001"),
            (0.000_099_999_999, "0.0001"),
            (0.000_01, "1e-05"),
            (1.234_567_8e-12, "1.23457e-12"),
            (1e-100, "1e-100"),
            (1.0, "1"),
            (123_456.7, "123457"),
            (1_234_567.0, "1.23457e+06"),
        ];
        for (number, text) in printed {
            assert_eq!(general(number), text);
        }
    }
}

//! `BF.DEBUG key`

use std::fmt::{self, Display, Formatter};

use bloomgate_filter::kinds::info::LayerSummary;

use crate::args::Args;
use crate::context::Context;
use crate::keys::{Keyspace, ReadKey};
use crate::reply::{self, Refusal};
use crate::text::Text;

/// Replies with a line for the filter and one for each layer, in RedisBloom's format: `hashwidth` is the width of the hash, `ratio`
/// the layer's own rate.
pub fn run(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let key = ReadKey::open(keys, args.arg(1)?);
    let filter = key.filter()?.ok_or(Refusal::NotFound)?;
    let hash_bits = filter.hash_bits();
    reply::array(context, filter.layer_count() + 1);
    reply::bytes(context, Text::of(format_args!("size:{}", filter.items())).bytes());
    for layer in filter.layers() {
        let LayerSummary { size_bytes, bits, hashes, capacity, items, rate } = layer;
        let ratio = General(rate);
        let line = Text::of(format_args!(
            "bytes:{size_bytes} bits:{bits} hashes:{hashes} hashwidth:{hash_bits} capacity:{capacity} size:{items} ratio:{ratio}",
        ));
        reply::bytes(context, line.bytes());
    }
    Ok(())
}

/// Formats a positive number as C's `%g` does: six digits, without trailing zeros, with an exponent if it is small.
struct General(f64);

impl Display for General {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let number = self.0;
        let scientific = Text::of(format_args!("{number:.5e}"));
        let (digits, exponent) = scientific.as_str().split_once('e').unwrap_or((scientific.as_str(), "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let trimmed = |text: &str| text.trim_end_matches('0').trim_end_matches('.').len();
        if (-4..6).contains(&exponent) {
            let decimals = usize::try_from(5 - exponent).unwrap_or(0);
            let plain = Text::of(format_args!("{number:.decimals$}"));
            let length = if decimals == 0 { plain.bytes().len() } else { trimmed(plain.as_str()) };
            f.write_str(plain.as_str().get(..length).unwrap_or_default())
        } else {
            let sign = if exponent < 0 { '-' } else { '+' };
            let digits = digits.get(..trimmed(digits)).unwrap_or_default();
            write!(f, "{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::General;

    /// From `printf %g`.
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
            assert_eq!(General(number).to_string(), text);
        }
    }
}

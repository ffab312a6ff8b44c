//! `BF.PLAN error_rate capacity [option ...]`

use super::Refusal;
use super::options::{Command, Creation, rate_and_capacity};
use crate::kinds::{Defaults, Request, Spec};

/// A parsed BF.PLAN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    /// The description of the filter.
    pub spec: Spec,
    /// The number of items that the filter will hold; 0 for an empty filter.
    pub items: Option<u64>,
}

/// Parses the words, always by the rules for clients: the command is never replicated.
pub fn parse<W: AsRef<[u8]>>(words: &[W], defaults: &Defaults) -> Result<Asked, Refusal> {
    let defaults = &Defaults { must_obey: false, ..*defaults };
    let request = rate_and_capacity(Command::Plan, words, defaults)?;
    let (given, _) = Command::Plan.read(words, false)?;
    let request = Request { scaling: given.scaling(defaults)?, ..request };
    let Creation { spec, .. } = Creation::of(&given.apply(request, Refusal::Bad("seed"))?, None, defaults)?;
    if spec.is_beyond_redisbloom() { Err(Refusal::CapacityRange) } else { Ok(Asked { spec, items: given.items }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::sizing::Scaling;
    use crate::kinds::{Forgets, HashName, LayoutName};

    fn parse_line(line: &str) -> Result<Asked, Refusal> {
        let defaults = Defaults {
            rate: 0.5,
            capacity: 1,
            scaling: Scaling::from_expansion(2),
            layout: LayoutName::Native,
            hash: HashName::Murmur3,
            tightening: 0.5,
            entropy: [9; 32],
            has_random_seeds: true,
            must_obey: true,
        };
        parse(&line.split(' ').collect::<Vec<_>>(), &defaults)
    }

    #[test]
    fn options_of_every_kind_are_parsed() {
        let spec = |line: &str| parse_line(line).unwrap().spec;
        assert!(matches!(spec("BF.PLAN 0.01 100"), Spec::Native(spec) if spec.capacity == 100 && spec.rate == 0.01));
        assert!(matches!(spec("BF.PLAN 0.01 100 NONSCALING"), Spec::Native(spec) if spec.scaling == Scaling::Fixed));
        assert!(matches!(spec("BF.PLAN 0.01 100 HASH siphash"), Spec::Native(spec) if spec.hasher.is_keyed()));
        let window = spec("BF.PLAN 0.01 100 WINDOW 60 BUCKETS 5 SLIDING");
        assert!(matches!(window, Spec::Windowed(spec) if spec.buckets == 5));
        assert!(matches!(spec("BF.PLAN 0.01 100 ROLLING"), Spec::Windowed(spec) if spec.forgets == Forgets::Rolling));
        assert!(matches!(spec("BF.PLAN 0.01 100 LAYOUT redisbloom"), Spec::RedisBloom(_)));
        let tightened = spec("BF.PLAN 0.01 100 tightening 0.7 EXPANSION 3");
        assert!(matches!(tightened, Spec::ValkeyBloom(spec) if spec.rules.tightening == 0.7));
        assert_eq!(parse_line("BF.PLAN 0.01 100 EX 5 items 7 EXPANSION 4").unwrap().items, Some(7));
        assert_eq!(parse_line("BF.PLAN 0.01 100 ITEMS 0").unwrap().items, Some(0));
        assert_eq!(parse_line("BF.PLAN 0.01 100").unwrap().items, None);
    }

    #[test]
    fn refusals_are_those_of_bf_reserve() {
        for (line, refusal) in [
            ("BF.PLAN 0.01", Refusal::Arity),
            ("BF.PLAN x 100", Refusal::Bad("error rate")),
            ("BF.PLAN 1 100", Refusal::RateRange),
            ("BF.PLAN 0.01 x", Refusal::Bad("capacity")),
            ("BF.PLAN 0.01 0", Refusal::CapacityRange),
            ("BF.PLAN 0.01 1073741825 LAYOUT redisbloom", Refusal::CapacityRange),
            ("BF.PLAN 0.01 100 ITEMS", Refusal::No("items")),
            ("BF.PLAN 0.01 100 ITEMS -1", Refusal::Bad("items")),
            ("BF.PLAN 0.01 100 ITEMS 5 ITEMS 7", Refusal::Syntax),
            ("BF.PLAN 0.01 100 ITEMS 5 items 5", Refusal::Syntax),
            ("BF.PLAN 0.01 100 TIGHTENING 1", Refusal::Bad("tightening ratio")),
            ("BF.PLAN 0.01 100 SLIDING", Refusal::Needs("SLIDING", "WINDOW")),
            ("BF.PLAN 0.01 100 WINDOW 5 TIGHTENING 0.5", Refusal::Exclude("WINDOW", "TIGHTENING")),
            ("BF.PLAN 0.01 100 EXPANSION 2 NONSCALING", Refusal::FixedExpansion),
            ("BF.PLAN 0.01 100 more", Refusal::Syntax),
        ] {
            assert_eq!(parse_line(line), Err(refusal), "{line}");
        }
    }
}

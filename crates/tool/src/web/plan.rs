//! The sizing calculator: computes what BF.PLAN replies, without a server. The query is converted to the arguments of BF.PLAN, which the
//! filter crate parses, so both refuse the same values.

use bloomgate_filter::arguments::Refusal;
use bloomgate_filter::kinds::plan::Plan;
use serde_json::{Value, json};

use super::query::Query;
use crate::numbers::{self, count_in_digits, rate_in_digits};

const CURVE_POINTS: u32 = 64;
/// A curve over rates has a point for each power of ten from 0.1 to 1e-6, and three points between neighbours.
const RATE_POINTS: u32 = 21;

struct Request {
    rate: String,
    capacity: String,
    items: Option<String>,
    /// The options of creation.
    words: Vec<String>,
    /// Whether only BF.INSERT accepts them.
    needs_insert: bool,
}

/// Answers a query of the calculator.
/// An error says in one line what is wrong with the query.
pub fn answer(query: &Query) -> Result<Value, String> {
    let request = Request::of(query)?;
    let refused = |refusal: Refusal| {
        let text = refusal.to_string();
        text.strip_prefix("ERR ").map_or(text.clone(), str::to_owned)
    };
    let (spec, plan) = request.plan(&request.rate, &request.capacity, request.items.as_deref()).map_err(refused)?;
    let names = spec.names();
    let layers = plan
        .layers
        .iter()
        .map(|layer| json!({ "capacity": layer.capacity, "size": layer.size_bytes, "hashes": layer.hashes }));
    Ok(json!({
        "kind": names.kind.to_string_lossy(),
        "layout": names.layout.to_string_lossy(),
        "hash": names.hash.to_string_lossy(),
        "rate": spec.rate(),
        "capacity": plan.capacity,
        "size": plan.size_bytes,
        "bits_per_item": plan.bits_per_item(),
        "layers": layers.collect::<Vec<_>>(),
        "command": request.command(),
        "expected_items": request.number(),
        "by_items": request.by_items(),
        "by_rate": request.by_rate(),
    }))
}

impl Request {
    fn of(query: &Query) -> Result<Self, String> {
        let mut words = Vec::new();
        let mut add = |name: &str, value: Option<&str>| {
            words.push(name.to_owned());
            words.extend(value.map(str::to_owned));
        };
        let buckets = query.word("buckets");
        match query.word("kind").unwrap_or("scaling") {
            "scaling" => query.word("expansion").into_iter().for_each(|factor| add("EXPANSION", Some(factor))),
            "nonscaling" => add("NONSCALING", None),
            "counting" => add("COUNTING", None),
            "cuckoo" => add("CUCKOO", None),
            "window" => {
                let window = query.word("window").ok_or("the window needs a length in seconds")?;
                add("WINDOW", Some(&count_in_digits(window)));
                buckets.into_iter().for_each(|number| add("BUCKETS", Some(number)));
                query.word("sliding").into_iter().for_each(|_| add("SLIDING", None));
            }
            "rolling" => {
                add("ROLLING", None);
                buckets.into_iter().for_each(|number| add("BUCKETS", Some(number)));
            }
            _ => return Err("unknown kind of filter".to_owned()),
        }
        query.word("hash").into_iter().for_each(|name| add("HASH", Some(name)));
        let mut needs_insert = false;
        match query.word("layout") {
            None | Some("native") => {}
            Some("valkey-bloom") => {
                add("TIGHTENING", Some("0.5"));
                needs_insert = true;
            }
            Some(name) => add("LAYOUT", Some(name)),
        }
        let rate = query.word("rate").map(rate_in_digits).ok_or("the false positive rate is missing")?;
        let capacity = query.word("capacity").map(count_in_digits).ok_or("the capacity is missing")?;
        Ok(Self { rate, capacity, items: query.word("items").map(count_in_digits), words, needs_insert })
    }

    fn plan(&self, rate: &str, capacity: &str, items: Option<&str>) -> Result<(bloomgate_filter::Spec, Plan), Refusal> {
        let mut words = vec!["BF.PLAN", rate, capacity];
        words.extend(self.words.iter().map(String::as_str));
        if let Some(items) = items {
            words.extend(["ITEMS", items]);
        }
        numbers::plan(&words)
    }

    /// Returns the command that creates the filter.
    fn command(&self) -> String {
        let mut words = if self.needs_insert {
            vec!["BF.INSERT key ERROR", &self.rate, "CAPACITY", &self.capacity]
        } else {
            vec!["BF.RESERVE key", &self.rate, &self.capacity]
        };
        words.extend(self.words.iter().map(String::as_str));
        words.join(" ")
    }

    /// Returns the expected number of items, by default the capacity.
    fn number(&self) -> u64 {
        let number = self.items.as_ref().unwrap_or(&self.capacity);
        number.parse().unwrap_or(1)
    }

    /// Returns the size as a function of the items: of the growing filter, and of a filter created for that number.
    fn by_items(&self) -> Value {
        let most = self.number().saturating_mul(10).max(1000);
        let least = (self.number() / 100).max(1);
        let factor = (most as f64 / least as f64).powf(1.0 / f64::from(CURVE_POINTS - 1));
        let (mut items, mut grown, mut reserved) = (Vec::new(), Vec::new(), Vec::new());
        for index in 0..CURVE_POINTS {
            let number = format!("{:.0}", least as f64 * factor.powf(f64::from(index)));
            let size =
                |capacity: &str, items| self.plan(&self.rate, capacity, items).ok().map(|(_, plan)| plan.size_bytes);
            grown.push(size(&self.capacity, Some(&number)));
            reserved.push(size(&number, None));
            items.push(number.parse::<u64>().ok());
        }
        json!({ "items": items, "grown": grown, "reserved": reserved })
    }

    /// Returns the size as a function of the rate.
    fn by_rate(&self) -> Value {
        let rates: Vec<f64> = (0..RATE_POINTS).map(|index| 10f64.powf(-1.0 - f64::from(index) / 4.0)).collect();
        let size = |rate: &f64| {
            let (_, plan) = self.plan(&rate.to_string(), &self.capacity, self.items.as_deref()).ok()?;
            Some(plan.size_bytes)
        };
        json!({ "rates": rates, "sizes": rates.iter().map(size).collect::<Vec<_>>() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Value, String> {
        answer(&Query::of(text))
    }

    #[test]
    fn a_curve_ends_at_the_largest_filter() {
        let plan = of("rate=0.01&capacity=1000&kind=nonscaling").unwrap();
        let grown = plan["by_items"]["grown"].as_array().unwrap();
        assert!(grown[0].is_u64() && grown.last().unwrap().is_null());
        assert!(plan["by_items"]["reserved"].as_array().unwrap().iter().all(Value::is_u64));
    }

    #[test]
    fn refusals_have_the_commands_texts() {
        for (text, refusal) in [
            ("rate=2&capacity=1", "error rate must be in the range (0.000000, 1.000000)"),
            ("rate=0.1&capacity=0", "capacity must be in the range [1, 1073741824]"),
            ("rate=0.1&capacity=x", "bad capacity"),
            ("rate=0.1", "the capacity is missing"),
            ("capacity=1", "the false positive rate is missing"),
            ("rate=0.1&capacity=1&kind=window", "the window needs a length in seconds"),
            ("rate=0.1&capacity=1&kind=other", "unknown kind of filter"),
            (
                "rate=0.1&capacity=1&kind=counting&layout=redisbloom",
                "COUNTING and LAYOUT redisbloom exclude each other",
            ),
        ] {
            assert_eq!(of(text), Err(refusal.to_owned()), "{text}");
        }
    }
}

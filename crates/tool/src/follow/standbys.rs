//! The setting `synchronous_standby_names`: whether every COMMIT waits for this follower.

/// The setting, parsed: how many of the named standbys a COMMIT waits for.
#[derive(Debug, PartialEq)]
struct Demand {
    count: usize,
    names: Vec<String>,
}

/// Whether the setting lists a name.
pub fn lists(setting: &str, name: &str) -> bool {
    parse(setting).is_some_and(|demand| demand.names.iter().any(|listed| listed.eq_ignore_ascii_case(name)))
}

/// Returns why the setting does not make every COMMIT wait for a standby of this name, or `None` if it does. The text contains the SQL
/// that changes it.
pub fn objection(setting: &str, name: &str) -> Option<String> {
    let demand = parse(setting);
    let (count, mut names) = demand.map_or((0, Vec::new()), |demand| (demand.count, demand.names));
    let has_name = names.iter().any(|listed| listed.eq_ignore_ascii_case(name));
    let has_star = names.iter().any(|listed| listed == "*");
    let reason = match (has_name, has_star) {
        (true, false) if count == names.len() => return None,
        (_, true) => "accepts any standby".to_owned(),
        (true, _) => format!("demands {count} of {} standbys", names.len()),
        (false, _) => format!("does not list {name}"),
    };
    names.retain(|listed| listed != "*");
    if !has_name {
        names.push(name.to_owned());
    }
    let list: Vec<_> = names.iter().map(|listed| quoted(listed)).collect();
    Some(format!(
        "synchronous_standby_names = '{setting}' {reason}, so COMMIT does not wait for this follower; as a superuser: ALTER SYSTEM SET \
         synchronous_standby_names = 'FIRST {} ({})'; SELECT pg_reload_conf()",
        list.len(),
        list.join(", ")
    ))
}

/// Quotes a name unless it is an identifier.
fn quoted(name: &str) -> String {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && !["first", "any"].iter().any(|word| name.eq_ignore_ascii_case(word));
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// Parses `FIRST n (names)`, `ANY n (names)`, `n (names)`, or a list of names, of which one is demanded.
fn parse(setting: &str) -> Option<Demand> {
    let text = setting.trim();
    let word = text.split(|character: char| !character.is_ascii_alphabetic()).next().unwrap_or_default();
    let has_word = ["first", "any"].iter().any(|keyword| word.eq_ignore_ascii_case(keyword));
    let rest = if has_word { text.get(word.len()..)?.trim_start() } else { text };
    let digits = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
    let (number, list) = rest.split_at(digits);
    let list = list.trim();
    let inner = list.strip_prefix('(').and_then(|list| list.strip_suffix(')'));
    let (count, list) = match (number.parse(), inner) {
        (Ok(count), Some(inner)) => (count, inner),
        _ => (1, text),
    };
    let names = split(list);
    (!names.is_empty()).then_some(Demand { count, names })
}

/// Splits a list at the commas outside double quotes, and removes the quotes.
fn split(list: &str) -> Vec<String> {
    let (mut names, mut name, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut characters = list.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if is_quoted && characters.next_if_eq(&'"').is_some() => name.push('"'),
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => names.push(std::mem::take(&mut name)),
            _ if !is_quoted && character.is_whitespace() => {}
            _ => name.push(character),
        }
    }
    names.push(name);
    names.retain(|name| !name.is_empty());
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_standby_must_be_demanded() {
        for setting in
            ["gate", " Gate ", "FIRST 1 (gate)", "first 2 (gate, other)", "2(a , \"gate\")", "ANY 2 (gate,\"b,c\")"]
        {
            assert_eq!(objection(setting, "gate"), None, "{setting}");
        }
        for (setting, part) in [
            ("", "does not list gate"),
            ("other", "'FIRST 2 (other, gate)'"),
            ("gate, other", "demands 1 of 2"),
            ("ANY 1 (gate, other)", "demands 1 of 2"),
            ("1 (other, gate)", "demands 1 of 2"),
            ("*", "accepts any standby"),
            ("FIRST 2 (gate, *)", "'FIRST 1 (gate)'"),
            ("\"a \"\"b\"", "'FIRST 2 (\"a \"\"b\", gate)'"),
            ("gates", "does not list gate"),
        ] {
            let objection = objection(setting, "gate").unwrap_or_default();
            assert!(objection.contains(part), "{setting}: {objection}");
        }
        assert!(lists("a, gate", "gate") && !lists("gated", "gate") && !lists("", "gate"));
    }
}

//! Whether every COMMIT waits for this follower: the setting `synchronous_standby_names`, the standbys that are connected, and
//! `synchronous_commit`.

use anyhow::Result;

use super::session::Client;

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

/// Returns why COMMIT may wait for another standby of this name, or `None`. A follower that stands by has a database and no slot;
/// PostgreSQL does not wait for it.
///
/// # Errors
/// A lost connection.
pub fn duplicate(client: &mut Client, name: &str) -> Result<Option<String>> {
    let row = client.query_opt(
        "SELECT r.pid FROM pg_stat_replication r JOIN pg_stat_activity a USING (pid) \
         LEFT JOIN pg_replication_slots s ON s.active_pid = r.pid \
         WHERE lower(r.application_name) = lower($1::text) AND (a.datid IS NULL OR s.slot_name::text <> $1::text) LIMIT 1",
        &[&name],
    )?;
    row.map(|row| {
        let pid: i32 = row.try_get(0)?;
        Ok(format!(
            "COMMIT may wait for another standby with the application_name {name} (pid {pid}): give that one another name"
        ))
    })
    .transpose()
}

/// Returns for whom `synchronous_commit` is `off` or `local` by default: roles, the database, the whole server.
///
/// # Errors
/// A lost connection.
pub fn unsynchronous(client: &mut Client) -> Result<Option<String>> {
    // The setting of this session's role does not concern writers, and hides the server's.
    let row = client.query_one(
        "WITH given AS (
             SELECT s.setrole, s.setdatabase, substr(line, 20) ~* '^(off|local|false|no|0)$' AS is_weak
             FROM pg_db_role_setting s, unnest(s.setconfig) line
             WHERE line ILIKE 'synchronous_commit=%'
               AND s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))),
         own AS (SELECT oid FROM pg_roles WHERE rolname = session_user)
         SELECT string_agg(name, ', ' ORDER BY name) FROM (
             SELECT concat_ws(' in ', CASE WHEN setrole <> 0 THEN 'the role ' || r.rolname WHEN setdatabase = 0 THEN 'all roles' END,
                              CASE WHEN setdatabase <> 0 THEN 'the database ' || current_database() END) AS name
             FROM given LEFT JOIN pg_roles r ON r.oid = setrole
             WHERE is_weak AND setrole NOT IN (SELECT oid FROM own)
             UNION ALL
             SELECT 'the server' FROM pg_settings
             WHERE name = 'synchronous_commit' AND reset_val IN ('off', 'local')
               AND NOT EXISTS (SELECT FROM given WHERE setrole = 0 OR setrole IN (SELECT oid FROM own))) weak",
        &[],
    )?;
    Ok(row.try_get(0)?)
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

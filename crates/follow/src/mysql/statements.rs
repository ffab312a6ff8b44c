//! Statements in the log. With `binlog_format=ROW` only DDL is there as text; a session with another format, or MIXED, leaves the text of its
//! changes instead of their rows, which might be those of any table: a trigger or a procedure may have written them.

/// What a statement means for the followed tables.
#[derive(Debug, PartialEq, Eq)]
pub enum Statement<'a> {
    /// Nothing: accounts, views, indexes, the parts of a transaction.
    Nothing,
    /// The first one of a transaction with several.
    Begin,
    Commit,
    /// What the transaction has done until here may be undone.
    Rollback,
    /// The end of an XA transaction that was prepared, with its name.
    XaCommit(&'a str),
    XaRollback(&'a str),
    /// TRUNCATE of one table: its name in SQL.
    Truncate(&'a str),
    /// DDL. It concerns the tables that it names.
    Definition,
    /// Any row of any table may have changed.
    Unknown,
}

/// Statements that change neither rows nor the columns of a table.
const HARMLESS: [&str; 14] = [
    "SAVEPOINT",
    "RELEASE",
    "GRANT",
    "REVOKE",
    "ANALYZE",
    "OPTIMIZE",
    "REPAIR",
    "CHECK",
    "CHECKSUM",
    "FLUSH",
    "INSTALL",
    "UNINSTALL",
    "SET PASSWORD",
    "SET DEFAULT",
];
/// What DDL creates, alters or drops. The first of these words in its text decides.
const WITH_ROWS: [&str; 3] = ["TABLE", "DATABASE", "SCHEMA"];
const WITHOUT_ROWS: [&str; 14] = [
    "VIEW",
    "TRIGGER",
    "PROCEDURE",
    "FUNCTION",
    "EVENT",
    "USER",
    "ROLE",
    "SERVER",
    "INDEX",
    "SEQUENCE",
    "PACKAGE",
    "UNIQUE",
    "FULLTEXT",
    "SPATIAL",
];

/// Parses a statement as far as it must be.
pub fn parse(text: &str) -> Statement<'_> {
    let text = skip_comments(text);
    let text = executed(text).unwrap_or(text);
    let (verb, rest) = word(text);
    let (object, after) = word(rest);
    let (verb, object) = (verb.to_ascii_uppercase(), object.to_ascii_uppercase());
    let both = format!("{verb} {object}");
    match verb.as_str() {
        "BEGIN" => Statement::Begin,
        "COMMIT" => Statement::Commit,
        "ROLLBACK" => Statement::Rollback,
        "XA" => match object.as_str() {
            "START" => Statement::Begin,
            "COMMIT" => Statement::XaCommit(after),
            "ROLLBACK" => Statement::XaRollback(after),
            _ => Statement::Nothing,
        },
        verb if HARMLESS.contains(&verb) || HARMLESS.contains(&both.as_str()) => Statement::Nothing,
        "TRUNCATE" if object == "TABLE" => Statement::Truncate(after),
        "TRUNCATE" => Statement::Truncate(rest),
        "CREATE" | "ALTER" | "DROP" | "RENAME" => {
            let mut words = rest.split(|character| !is_part(character)).map(str::to_ascii_uppercase);
            match words.find(|word| WITH_ROWS.contains(&word.as_str()) || WITHOUT_ROWS.contains(&word.as_str())) {
                Some(kind) if WITHOUT_ROWS.contains(&kind.as_str()) => Statement::Nothing,
                // In the format STATEMENT, with its rows as text.
                Some(_) if verb == "CREATE" && has_word(text, "SELECT") => Statement::Unknown,
                // There was no table of the name, or it stays.
                Some(_) if verb == "CREATE" && object != "OR" => Statement::Nothing,
                _ => Statement::Definition,
            }
        }
        _ => Statement::Unknown,
    }
}

/// Whether DDL with this text may concern a table. `default`: the database that names without one belong to.
pub fn names(text: &str, default: &str, schema: &str, table: &str) -> bool {
    let is_whole = has_word(text, "DATABASE") || has_word(text, "SCHEMA");
    let has_schema = default.eq_ignore_ascii_case(schema) || has_word(text, schema);
    has_schema && (is_whole || has_word(text, table))
}

/// Whether the name that TRUNCATE has is that of a table, without further words.
pub fn is_name(name: &str, default: &str, schema: &str, table: &str) -> bool {
    let name = name.trim_end_matches([';', ' ']).replace(['`', ' '], "");
    let (database, name) = name.split_once('.').unwrap_or((default, &name));
    database == schema && name == table
}

/// Whether a text contains a word, in letters of any case.
fn has_word(text: &str, wanted: &str) -> bool {
    let (text, wanted) = (text.to_lowercase(), wanted.to_lowercase());
    text.match_indices(&wanted).any(|(at, _)| {
        let (before, after) = (text.get(..at).unwrap_or_default(), text.get(at + wanted.len()..).unwrap_or_default());
        !before.ends_with(is_part) && !after.starts_with(is_part)
    })
}

const fn is_part(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '$')
}

/// Returns the first word, and what follows it.
fn word(text: &str) -> (&str, &str) {
    let end = text.find(|character| !is_part(character)).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    (word, skip_comments(rest))
}

/// Returns the statement that is in a comment for other servers, if that is all of the text.
fn executed(text: &str) -> Option<&str> {
    let text = text.strip_prefix("/*!").or_else(|| text.strip_prefix("/*M!"))?.trim_end().strip_suffix("*/")?;
    let text = text.trim_start_matches(|version: char| version.is_ascii_digit()).trim();
    (!text.contains("*/")).then_some(text)
}

/// Returns what follows comments that no server executes.
pub fn skip_comments(mut text: &str) -> &str {
    loop {
        text = text.trim_start();
        // The servers execute what `/*!` and `/*M!` begin.
        let is_code = text.starts_with("/*!") || text.starts_with("/*M!");
        let end = match text {
            comment if comment.starts_with("/*") && !is_code => comment.find("*/").map(|at| at + 2),
            comment if comment.starts_with('#') || comment.starts_with("-- ") => comment.find('\n'),
            _ => return text,
        };
        text = end.and_then(|end| text.get(end..)).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_known_to_change_no_row_is_harmless() {
        for (text, expected) in [
            ("BEGIN", Statement::Begin),
            ("XA START X'61',X'',1", Statement::Begin),
            ("COMMIT", Statement::Commit),
            ("ROLLBACK TO `s`", Statement::Rollback),
            ("SAVEPOINT `s`", Statement::Nothing),
            ("XA END X'61',X'',1", Statement::Nothing),
            ("XA COMMIT X'61',X'',1", Statement::XaCommit("X'61',X'',1")),
            ("XA ROLLBACK X'61',X'',1", Statement::XaRollback("X'61',X'',1")),
            ("/* app */ truncate /* x */ users", Statement::Truncate("users")),
            ("# one\n-- two\nTRUNCATE TABLE `shop`.`users`", Statement::Truncate("`shop`.`users`")),
            ("ALTER TABLE users ADD x int", Statement::Definition),
            ("CREATE INDEX i ON users (x)", Statement::Nothing),
            ("CREATE TABLE IF NOT EXISTS t (x int)", Statement::Nothing),
            ("CREATE OR REPLACE TABLE t (x int)", Statement::Definition),
            ("CREATE TABLE t SELECT f(1)", Statement::Unknown),
            ("CREATE OR REPLACE TABLE t AS SELECT f(1)", Statement::Unknown),
            (
                "CREATE ALGORITHM=UNDEFINED DEFINER=`root`@`localhost` SQL SECURITY DEFINER VIEW `v` AS select 1",
                Statement::Nothing,
            ),
            ("CREATE OR REPLACE TRIGGER t AFTER INSERT ON users FOR EACH ROW SET @x = 1", Statement::Nothing),
            ("DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `t`", Statement::Definition),
            ("SET STATEMENT max_statement_time = 1 FOR DELETE FROM users", Statement::Unknown),
            ("INSERT INTO other VALUES (1)", Statement::Unknown),
            ("/*!40000 ALTER TABLE users DISABLE KEYS */", Statement::Definition),
            ("/*M!100100 COMMIT */", Statement::Commit),
            ("/*!99999 BEGIN */ DELETE FROM users /* */", Statement::Unknown),
            ("/*!40000 DELETE FROM users */", Statement::Unknown),
            ("WITH x AS (SELECT 1) DELETE FROM users", Statement::Unknown),
            ("", Statement::Unknown),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn ddl_concerns_the_tables_that_it_names() {
        let concerns = |text, default| names(text, default, "shop", "users");
        assert!(concerns("ALTER TABLE `Users` ADD x int", "shop"));
        assert!(concerns("RENAME TABLE shop._users_new TO shop.users", ""));
        assert!(concerns("DROP DATABASE `shop`", "other"));
        assert!(!concerns("ALTER TABLE users ADD x int", "other"));
        assert!(!concerns("ALTER TABLE users_old ADD x int", "shop"));
        assert!(!concerns("DROP DATABASE other", "other"));
        assert!(is_name("`users`", "shop", "shop", "users") && is_name("shop . users;", "", "shop", "users"));
        assert!(!is_name("users", "other", "shop", "users") && !is_name("users WAIT 5", "shop", "shop", "users"));
    }
}

//! Statements in the log. With `binlog_format=ROW` only DDL is logged as text; a session with another format logs the text of its changes
//! instead of their rows. A statement may have changed rows of any table, through a trigger or a procedure.

use crate::sql::{Token, object as object_of};

/// The effect of a statement on the followed tables.
#[derive(Debug, PartialEq, Eq)]
pub enum Statement<'a> {
    /// No effect: accounts, views, indexes, the parts of a transaction.
    Nothing,
    /// The first statement of a transaction with several.
    Begin,
    Commit,
    /// The earlier changes of the transaction may be rolled back.
    Rollback,
    /// The end of an XA transaction that was prepared, with its name.
    XaCommit(&'a str),
    XaRollback(&'a str),
    /// TRUNCATE of one table.
    Truncate,
    /// DDL, which concerns the tables that it names.
    Definition,
    /// DDL of a database, which concerns all its tables.
    Database,
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
/// Kinds of objects that have no rows.
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

/// Parses the relevant part of a statement from its `tokens`.
pub fn parse<'a>(text: &'a str, tokens: &[Token]) -> Statement<'a> {
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
        "TRUNCATE" => Statement::Truncate,
        "CREATE" | "ALTER" | "DROP" | "RENAME" => match object_of(tokens).first() {
            Some(kind) if kind.is_one_of(&WITHOUT_ROWS) => Statement::Nothing,
            // In the format STATEMENT, this inserts rows as text.
            _ if verb == "CREATE" && tokens.iter().any(|token| token.is("SELECT")) => Statement::Unknown,
            // The table did not exist, or it is unchanged.
            _ if verb == "CREATE" && object != "OR" => Statement::Nothing,
            Some(kind) if kind.is_one_of(&["DATABASE", "SCHEMA"]) => Statement::Database,
            _ => Statement::Definition,
        },
        _ => Statement::Unknown,
    }
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

/// Returns the statement in an executable comment, if the text consists only of that comment.
fn executed(text: &str) -> Option<&str> {
    let text = text.strip_prefix("/*!").or_else(|| text.strip_prefix("/*M!"))?.trim_end().strip_suffix("*/")?;
    let text = text.trim_start_matches(|version: char| version.is_ascii_digit()).trim();
    (!text.contains("*/")).then_some(text)
}

/// Returns the text after comments that no server executes.
pub fn skip_comments(mut text: &str) -> &str {
    loop {
        text = text.trim_start();
        // The servers execute comments that begin with `/*!` and `/*M!`.
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
    use crate::sql::tokens;

    #[test]
    fn only_statements_known_to_change_no_rows_are_harmless() {
        for (text, expected) in [
            ("BEGIN", Statement::Begin),
            ("XA START X'61',X'',1", Statement::Begin),
            ("COMMIT", Statement::Commit),
            ("ROLLBACK TO `s`", Statement::Rollback),
            ("SAVEPOINT `s`", Statement::Nothing),
            ("XA END X'61',X'',1", Statement::Nothing),
            ("XA COMMIT X'61',X'',1", Statement::XaCommit("X'61',X'',1")),
            ("XA ROLLBACK X'61',X'',1", Statement::XaRollback("X'61',X'',1")),
            ("/* app */ truncate /* x */ users", Statement::Truncate),
            ("# one\n-- two\nTRUNCATE TABLE `shop`.`users`", Statement::Truncate),
            ("RENAME TABLES user TO `event`, `role` TO server", Statement::Definition),
            ("RENAME /* view */ TABLE index_ TO user", Statement::Definition),
            ("ALTER /* DROP VIEW v */ ONLINE -- user\n TABLE event ADD x int", Statement::Definition),
            ("ALTER TABLE `view` ADD x int", Statement::Definition),
            ("DROP TABLES `user`, role", Statement::Definition),
            ("CREATE OR REPLACE TABLE `server` (x int)", Statement::Definition),
            ("CREATE DEFINER=`table`@'database' PROCEDURE p() TRUNCATE users", Statement::Nothing),
            ("CREATE DEFINER = CURRENT_USER() EVENT `table` ON SCHEDULE EVERY 1 DAY DO SELECT 1", Statement::Nothing),
            ("DROP SCHEMA `user`", Statement::Database),
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
            assert_eq!(parse(text, &tokens(text)), expected, "{text}");
        }
    }
}

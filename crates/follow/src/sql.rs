//! Splits a statement of MariaDB or MySQL into keywords and names. A quoted name is never a keyword, and comments are skipped.

/// A part of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// A keyword, or a name without quotes.
    Word(String),
    /// A name in quotes.
    Name(String),
    Symbol(char),
}

impl Token {
    /// Whether it is a keyword.
    pub fn is(&self, keyword: &str) -> bool {
        matches!(self, Self::Word(word) if word.eq_ignore_ascii_case(keyword))
    }

    /// Whether it is one of these keywords.
    pub fn is_one_of(&self, keywords: &[&str]) -> bool {
        keywords.iter().any(|keyword| self.is(keyword))
    }

    /// Whether it is this name, ignoring case.
    pub fn is_name(&self, name: &str) -> bool {
        matches!(self, Self::Word(text) | Self::Name(text) if text.to_lowercase() == name.to_lowercase())
    }
}

/// Words between CREATE, ALTER or DROP and the kind of the object.
const MODIFIERS: [&str; 9] =
    ["OR", "REPLACE", "TEMPORARY", "ONLINE", "OFFLINE", "IGNORE", "AGGREGATE", "DEFINER", "ALGORITHM"];

/// Reads a statement without the contents of strings, and without comments except executable ones.
pub fn tokens(text: &str) -> Vec<Token> {
    let (mut tokens, mut rest) = (Vec::new(), text);
    while let Some(first) = rest.chars().next() {
        let tail = rest.get(first.len_utf8()..).unwrap_or_default();
        rest = match first {
            _ if rest.starts_with("/*!") || rest.starts_with("/*M!") => {
                let code = rest.trim_start_matches("/*").trim_start_matches('M').trim_start_matches('!');
                code.trim_start_matches(|version: char| version.is_ascii_digit())
            }
            _ if rest.starts_with("/*") => rest.split_once("*/").map_or("", |(_, after)| after),
            _ if rest.starts_with("*/") => tail.get(1..).unwrap_or_default(),
            _ if first == '#'
                || tail
                    .strip_prefix('-')
                    .is_some_and(|tail| first == '-' && !tail.starts_with(|c: char| !c.is_whitespace())) =>
            {
                rest.split_once('\n').map_or("", |(_, after)| after)
            }
            '`' | '"' | '\'' => {
                let (content, after) = quoted(tail, first);
                tokens.push(if first == '\'' { Token::Symbol(first) } else { Token::Name(content) });
                after
            }
            _ if is_part(first) => {
                let (word, after) = rest.split_at(rest.find(|c| !is_part(c)).unwrap_or(rest.len()));
                tokens.push(Token::Word(word.to_owned()));
                after
            }
            _ => {
                if !first.is_whitespace() {
                    tokens.push(Token::Symbol(first));
                }
                tail
            }
        };
    }
    tokens
}

fn is_part(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '$')
}

/// Returns the quoted text and the rest. A quote inside is doubled; in a string, a backslash may precede it.
fn quoted(text: &str, quote: char) -> (String, &str) {
    let (mut content, mut characters) = (String::new(), text.chars());
    while let Some(character) = characters.next() {
        if character == '\\' && quote != '`' {
            content.extend(characters.next());
        } else if character != quote {
            content.push(character);
        } else if characters.as_str().starts_with(quote) {
            content.extend(characters.next());
        } else {
            break;
        }
    }
    (content, characters.as_str())
}

/// Returns the tokens after the verb of CREATE, ALTER, DROP or RENAME, from the kind of the object on.
pub fn object(tokens: &[Token]) -> &[Token] {
    let mut rest = tokens.get(1..).unwrap_or_default();
    loop {
        rest = match rest {
            [Token::Symbol('=' | '@'), _, rest @ ..] | [Token::Symbol('(' | ')'), rest @ ..] => rest,
            [sql, security, _, rest @ ..] if sql.is("SQL") && security.is("SECURITY") => rest,
            [word, rest @ ..] if word.is_one_of(&MODIFIERS) => rest,
            _ => return rest,
        };
    }
}

/// Whether a statement may concern a table. `default`: the database of names without one.
pub fn names(tokens: &[Token], default: &str, schema: &str, table: &str) -> bool {
    (0..tokens.len()).any(|at| {
        let (before, rest) = tokens.split_at(at);
        before.last() != Some(&Token::Symbol('.')) && after_name(rest, default, schema, table).is_some()
    })
}

/// Returns the tokens after a leading table name.
pub fn after_name<'t>(tokens: &'t [Token], default: &str, schema: &str, table: &str) -> Option<&'t [Token]> {
    let is_named = |name: &Token| name.is_name(table);
    match tokens {
        [database, Token::Symbol('.'), name, rest @ ..] => (database.is_name(schema) && is_named(name)).then_some(rest),
        [name, rest @ ..] => (is_named(name) && default.eq_ignore_ascii_case(schema)).then_some(rest),
        [] => None,
    }
}

/// Whether the statement is a TRUNCATE of this table, without further words.
pub fn truncates(tokens: &[Token], default: &str, schema: &str, table: &str) -> bool {
    let mut rest = tokens.get(1..).unwrap_or_default();
    if let [first, tail @ ..] = rest
        && first.is("TABLE")
    {
        rest = tail;
    }
    matches!(after_name(rest, default, schema, table), Some([] | [Token::Symbol(';')]))
}

/// Whether a statement about a database concerns this one.
pub fn names_database(tokens: &[Token], default: &str, schema: &str) -> bool {
    let has_name = tokens.iter().any(|token| token.is_name(schema));
    has_name || (default.eq_ignore_ascii_case(schema) && tokens.first().is_some_and(|verb| verb.is("ALTER")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_names_and_comments_are_not_keywords() {
        let word = |text: &str| Token::Word(text.to_owned());
        let name = |text: &str| Token::Name(text.to_owned());
        assert_eq!(
            tokens("DROP/* a */TABLE`a``b`.\"c\" -- d\n, e_1 'it''s \\' f'#g"),
            [
                word("DROP"),
                word("TABLE"),
                name("a`b"),
                Token::Symbol('.'),
                name("c"),
                Token::Symbol(','),
                word("e_1"),
                Token::Symbol('\'')
            ]
        );
        assert_eq!(tokens("/*!40000 ALTER */ /*M!100100 TABLE */ x"), [word("ALTER"), word("TABLE"), word("x")]);
        assert_eq!(tokens("--x\n--\ny"), [Token::Symbol('-'), Token::Symbol('-'), word("x"), word("y")]);
        assert!(!name("TABLE").is("TABLE") && word("table").is("TABLE"));
    }

    #[test]
    fn a_statement_concerns_the_tables_that_it_names() {
        let concerns = |text, default| names(&tokens(text), default, "shop", "users");
        assert!(concerns("ALTER TABLE `Users` ADD x int", "shop"));
        assert!(concerns("RENAME TABLE shop._users_new TO shop . users", ""));
        assert!(concerns("ALTER TABLE other ADD FOREIGN KEY (a) REFERENCES users (id)", "shop"));
        assert!(!concerns("ALTER TABLE users ADD x int", "other"));
        assert!(!concerns("ALTER TABLE users_old ADD x int", "shop"));
        assert!(!concerns("DROP TABLE users.shop", "shop"));
        assert!(!concerns("DROP TABLE `users-old`, `shop-test`.users, other.users", "shop"));
        let database = |text, default| names_database(&tokens(text), default, "shop");
        assert!(database("DROP DATABASE `shop`", "other") && database("ALTER DATABASE CHARACTER SET utf8mb4", "shop"));
        assert!(!database("DROP DATABASE `shop-test`", "shop") && !database("DROP DATABASE other", "other"));
    }
}

//! A statement without its values: what a database is asked may hold names, mail addresses and card numbers, and is none of an operator's business.
//! Owns what of SQL is a value; understands no grammar. What could be read in two ways ends the statement there: rather too little is told.

use crate::config::DatabaseKind;

/// Characters that are kept.
pub(super) const KEPT_MAX: usize = 240;
/// A name that is longer is none.
const NAME_MAX: usize = 64;

/// A statement on its way: what is told of it so far, and what is left.
struct Reading<'a> {
    told: String,
    rest: &'a str,
    kind: DatabaseKind,
}

/// The statement with `?` in place of each string and number, without comments, and in one line.
pub(super) fn without_values(statement: &str, kind: DatabaseKind) -> String {
    let mut reading = Reading { told: String::new(), rest: statement, kind };
    while let Some(c) = reading.rest.chars().next() {
        if reading.step(c).is_none() || reading.told.chars().count() > KEPT_MAX {
            let kept = reading.told.char_indices().nth(KEPT_MAX).map_or(reading.told.len(), |(at, _)| at);
            reading.told.truncate(kept);
            reading.told.push('…');
            break;
        }
    }
    reading.told.trim_end().trim_end_matches(';').to_owned()
}

impl<'a> Reading<'a> {
    /// Takes what begins with `c`; `None`: what follows cannot be told.
    fn step(&mut self, c: char) -> Option<()> {
        let (rest, mariadb) = (self.rest, self.kind == DatabaseKind::Mariadb);
        let in_word = self.told.chars().next_back().is_some_and(is_of_a_word);
        match c {
            '\'' => {
                // E'…', b'…', x'…', N'…' and the like: a letter before it belongs to the string.
                if in_word && self.told.chars().rev().nth(1).is_none_or(|before| !is_of_a_word(before)) {
                    self.told.pop();
                }
                self.value(after_quoted(rest, c)?);
            }
            // Where it is no name.
            '"' if mariadb => self.value(after_quoted(rest, c)?),
            '"' => self.name(c)?,
            '`' if mariadb => self.name(c)?,
            '$' if !mariadb && !in_word => match dollar_quoted(rest) {
                Some(after) => self.value(after),
                None => self.push(c),
            },
            '-' if rest.starts_with("--") && (!mariadb || ends_a_dash_dash(&rest[2..])) => {
                self.comment_to_end_of_line()
            }
            '#' if mariadb => self.comment_to_end_of_line(),
            // They are no comments for the database itself.
            '/' if mariadb && (rest.starts_with("/*!") || rest.starts_with("/*M!")) => return None,
            '/' if rest.starts_with("/*") => {
                self.rest = after_comment(rest, !mariadb)?;
                self.space();
            }
            '0'..='9' if !in_word => {
                self.value(rest.trim_start_matches(|c: char| is_of_a_word(c) || c == '.'));
            }
            c if c.is_whitespace() || c.is_control() => {
                self.rest = &rest[c.len_utf8()..];
                self.space();
            }
            c => self.push(c),
        }
        Some(())
    }

    fn push(&mut self, c: char) {
        self.told.push(c);
        self.rest = &self.rest[c.len_utf8()..];
    }

    fn space(&mut self) {
        if !self.told.is_empty() && !self.told.ends_with(' ') {
            self.told.push(' ');
        }
    }

    /// A value is over; a list of them is one.
    fn value(&mut self, after: &'a str) {
        self.rest = after;
        if self.told.ends_with("?, ") || self.told.ends_with("?,") {
            let kept = self.told.trim_end_matches([',', ' ']).len();
            self.told.truncate(kept);
        } else {
            self.told.push('?');
        }
    }

    fn name(&mut self, quote: char) -> Option<()> {
        let after = after_quoted(self.rest, quote)?;
        let name = &self.rest[..self.rest.len() - after.len()];
        if name.len() < 2 || name.chars().count() > NAME_MAX + 2 || !name.ends_with(quote) {
            return None;
        }
        self.told.push_str(name);
        self.rest = after;
        Some(())
    }

    fn comment_to_end_of_line(&mut self) {
        self.rest = self.rest.find(['\n', '\r']).map_or("", |end| &self.rest[end..]);
        self.space();
    }
}

/// Databases take what is not ASCII for letters.
fn is_of_a_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$' || (!c.is_ascii() && !c.is_whitespace())
}

/// MariaDB's `--` begins a comment before a space, a control character and the end alone.
fn ends_a_dash_dash(after: &str) -> bool {
    after.chars().next().is_none_or(|c| c.is_ascii_whitespace() || c.is_ascii_control())
}

/// What follows a string or name that begins with `quote`, which is doubled inside of it. `None`: a backslash before a quote ends it in one database, or
/// mode, and does not in another; what follows may be inside of a string.
fn after_quoted(text: &str, quote: char) -> Option<&str> {
    let mut inside = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = inside.next() {
        let next = inside.peek().map(|(_, next)| *next);
        if c == '\\' && quote != '`' {
            if next == Some(quote) {
                return None;
            }
            inside.next_if(|(_, next)| *next == '\\');
        } else if c == quote {
            if next != Some(quote) {
                return Some(&text[at + c.len_utf8()..]);
            }
            inside.next();
        }
    }
    Some("")
}

/// What follows `/* … */`, which may hold others where they are `nested`; `None`: it has no end.
fn after_comment(text: &str, nested: bool) -> Option<&str> {
    let mut depth = 0_usize;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if rest.starts_with("/*") && (depth == 0 || nested) {
            depth += 1;
            rest = &rest[2..];
        } else if rest.starts_with("*/") {
            depth = depth.saturating_sub(1);
            rest = &rest[2..];
            if depth == 0 {
                return Some(rest);
            }
        } else {
            rest = &rest[c.len_utf8()..];
        }
    }
    None
}

/// What follows `$tag$ … $tag$`; `None`: it is none, as of a parameter.
fn dollar_quoted(text: &str) -> Option<&str> {
    let end = text[1..].find('$')? + 2;
    let tag = &text[..end];
    let named = &tag[1..tag.len() - 1];
    if named.starts_with(|c: char| c.is_ascii_digit()) || !named.chars().all(is_of_a_word) {
        return None;
    }
    Some(text[end..].find(tag).map_or("", |at| &text[end + at + tag.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POSTGRESQL: DatabaseKind = DatabaseKind::Postgresql;
    const MARIADB: DatabaseKind = DatabaseKind::Mariadb;

    fn both(text: &str) -> String {
        let of = [POSTGRESQL, MARIADB].map(|kind| without_values(text, kind));
        assert_eq!(of[0], of[1], "{text}");
        of[0].clone()
    }

    #[test]
    fn values_comments_and_lines_go_and_names_stay() {
        assert_eq!(
            both("UPDATE accounts2 SET balance = balance - 12.50,\n  note = 'it''s hers'\tWHERE id=4711;"),
            "UPDATE accounts2 SET balance = balance - ?, note = ? WHERE id=?"
        );
        assert_eq!(
            both("SELECT a FROM t -- of anna@example.org\nWHERE x=1e-9"),
            "SELECT a FROM t WHERE x=?-?"
        );
        assert_eq!(both("/* trace=17 */ SELECT x'ff', N'é' ,-7 FROM t1"), "SELECT ? ,-? FROM t1");
        assert_eq!(both("SELECT * FROM t WHERE id IN (1, 2,3, 'a')"), "SELECT * FROM t WHERE id IN (?)");
        assert_eq!(both("SELECT 'never ends"), "SELECT ?");
        assert_eq!(both("SELECT größe2 FROM t"), "SELECT größe2 FROM t");
        assert_eq!(both(""), "");
    }

    #[test]
    fn each_kind_has_its_own_quotes() {
        let text = "SELECT \"Name\" FROM t WHERE a = $1 AND b = $x$it's$x$ OR c = $$1$$ OR d = $😀$Anna$😀$";
        let told = "SELECT \"Name\" FROM t WHERE a = $1 AND b = ? OR c = ? OR d = ?";
        assert_eq!(without_values(text, POSTGRESQL), told);
        assert_eq!(without_values("SELECT E'a\\n', c", POSTGRESQL), "SELECT ?, c");
        assert_eq!(without_values("SELECT \"secret\" # of x\n FROM `it's`", MARIADB), "SELECT ? FROM `it's`");
    }

    /// Fails where what is inside of a string by one database's rules, or by those of its comments, is taken for what is outside of it, and told.
    #[test]
    fn what_may_be_read_in_two_ways_ends_it() {
        assert_eq!(both(r"SELECT a WHERE b = 'C:\\' AND c = 'Anna'"), "SELECT a WHERE b = ? AND c = ?");
        assert_eq!(both(r"SELECT a WHERE b = 'C:\' AND c = 'Anna'"), "SELECT a WHERE b = …");
        assert_eq!(both("SELECT/**/4711 LIMIT/*x*/10"), "SELECT ? LIMIT ?");
        assert_eq!(without_values("SELECT/**/$$Anna$$", POSTGRESQL), "SELECT ?");
        let nested = "SELECT /* a /* b */ anna@example.org, don't */ 'x' FROM t";
        assert_eq!(without_values(nested, POSTGRESQL), "SELECT ? FROM t");
        assert_eq!(both("SELECT a /* Anna"), "SELECT a …");
        assert_eq!(without_values("SET a=a--1, note='x\nAnna'", MARIADB), "SET a=a--?, note=?");
        assert_eq!(without_values("SELECT /*! '*/ Anna' */ b", MARIADB), "SELECT …");
        assert_eq!(without_values("SELECT \"never ends, Anna", POSTGRESQL), "SELECT …");
        assert_eq!(without_values(&format!("SELECT \"{}\"", "Anna ".repeat(20)), POSTGRESQL), "SELECT …");
        assert_eq!(without_values("SELECT ` Anna' b", POSTGRESQL).matches("b").count(), 0);
    }

    #[test]
    fn a_long_one_is_cut() {
        for text in ["SELECT a, ".repeat(100), "\"äääääääääääääääääääääääääääääääääääää\", ".repeat(60)]
        {
            let long = without_values(&text, POSTGRESQL);
            assert_eq!(long.chars().count(), KEPT_MAX + 1, "{long}");
            assert!(long.ends_with('…'));
        }
    }
}

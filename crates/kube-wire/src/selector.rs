//! Label and field selectors as they stand in a query string, parsed and matched.

use std::fmt;

/// A label selector: `app=web,tier!=db,env in (dev, test),!legacy`.
///
/// All requirements must hold. The empty selector matches everything.
///
/// ```
/// use kube_wire::LabelSelector;
/// let selector: LabelSelector = "app=web,env notin (prod)".parse().unwrap();
/// assert!(selector.matches(|key| match key { "app" => Some("web"), _ => None }));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

/// One condition of a [`LabelSelector`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// What must hold for it.
    pub operator: Operator,
}

/// What a [`Requirement`] asks of a label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Operator {
    /// The label has one of these values (`=`, `==`, `in`).
    In(Vec<String>),
    /// The label has none of these values, or is absent (`!=`, `notin`).
    NotIn(Vec<String>),
    /// The label is there.
    Exists,
    /// The label is not there.
    DoesNotExist,
    /// The label's value is an integer greater than this one.
    GreaterThan(i64),
    /// The label's value is an integer less than this one.
    LessThan(i64),
}

/// A field selector: `status.phase=Running,metadata.name!=a`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

/// One condition of a [`FieldSelector`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FieldRequirement {
    /// The field's path, without a leading dot.
    pub field: String,
    /// The value to compare with.
    pub value: String,
    /// Whether the field must have the value, or must not.
    pub equal: bool,
}

/// A selector that cannot be read, in the words of the real server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SelectorError {
    message: String,
}

impl LabelSelector {
    /// A selector of these requirements.
    pub fn new(requirements: impl IntoIterator<Item = Requirement>) -> Self {
        Self { requirements: requirements.into_iter().collect() }
    }

    /// Whether the selector matches everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The conditions, in the order they were written.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Whether labels, given as a look-up, satisfy all requirements.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(label(&requirement.key)))
    }
}

impl Requirement {
    /// Whether a label's value, `None` if there is no such label, satisfies the requirement.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.operator {
            Operator::In(values) => value.is_some_and(|value| values.iter().any(|v| v == value)),
            Operator::NotIn(values) => value.is_none_or(|value| values.iter().all(|v| v != value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
            Operator::LessThan(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

impl std::str::FromStr for LabelSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        Parser { tokens: tokens(text), position: 0 }.selector()
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Requirement { key, operator }) in self.requirements.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            match operator {
                Operator::In(values) if values.len() == 1 => write!(f, "{key}={}", values[0])?,
                Operator::NotIn(values) if values.len() == 1 => write!(f, "{key}!={}", values[0])?,
                Operator::In(values) => write!(f, "{key} in ({})", values.join(","))?,
                Operator::NotIn(values) => write!(f, "{key} notin ({})", values.join(","))?,
                Operator::Exists => f.write_str(key)?,
                Operator::DoesNotExist => write!(f, "!{key}")?,
                Operator::GreaterThan(bound) => write!(f, "{key}>{bound}")?,
                Operator::LessThan(bound) => write!(f, "{key}<{bound}")?,
            }
        }
        Ok(())
    }
}

impl FieldSelector {
    /// A selector of these requirements.
    pub fn new(requirements: impl IntoIterator<Item = FieldRequirement>) -> Self {
        Self { requirements: requirements.into_iter().collect() }
    }

    /// Whether the selector matches everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The conditions, in the order they were written.
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }

    /// Whether fields, given as a look-up of their text (`""` for a field that is not set), satisfy all requirements.
    pub fn matches<S: AsRef<str>>(&self, field: impl Fn(&str) -> S) -> bool {
        self.requirements.iter().all(|r| (field(&r.field).as_ref() == r.value) == r.equal)
    }
}

impl std::str::FromStr for FieldSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        // A trailing comma is accepted, as the real server does.
        for term in split_unescaped(text).into_iter().filter(|term| !term.is_empty()) {
            let (field, value, equal) = if let Some((field, value)) = term.split_once("!=") {
                (field, value, false)
            } else if let Some((field, value)) = term.split_once("==") {
                (field, value, true)
            } else if let Some((field, value)) = term.split_once('=') {
                (field, value, true)
            } else {
                return Err(SelectorError {
                    message: format!("invalid selector: '{text}'; can't understand '{term}'"),
                });
            };
            requirements.push(FieldRequirement { field: field.to_owned(), value: unescape(value), equal });
        }
        Ok(Self { requirements })
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.requirements.iter().enumerate() {
            let (comma, operator) =
                (if i > 0 { "," } else { "" }, if requirement.equal { "=" } else { "!=" });
            write!(f, "{comma}{}{operator}", requirement.field)?;
            for c in requirement.value.chars() {
                if matches!(c, '\\' | ',' | '=') {
                    f.write_str("\\")?;
                }
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}

/// Splits at commas that are not escaped with a backslash.
fn split_unescaped(text: &str) -> Vec<&str> {
    let (mut terms, mut start, mut escaped) = (Vec::new(), 0, false);
    for (i, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn unescape(value: &str) -> String {
    let mut chars = value.chars();
    let mut plain = String::with_capacity(value.len());
    while let Some(c) = chars.next() {
        plain.push(if c == '\\' { chars.next().unwrap_or('\\') } else { c });
    }
    plain
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Symbol(&'static str),
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    const SYMBOLS: [&str; 9] = ["==", "!=", "!", "=", ">", "<", "(", ")", ","];
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(symbol) = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol)) {
            tokens.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
        } else {
            let end = rest.find(|c: char| c.is_whitespace() || "=!<>(),".contains(c)).unwrap_or(rest.len());
            tokens.push(Token::Word(&rest[..end]));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    tokens
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    position: usize,
}

impl<'a> Parser<'a> {
    fn selector(mut self) -> Result<LabelSelector, SelectorError> {
        let mut requirements = Vec::new();
        if self.peek().is_none() {
            return Ok(LabelSelector::default());
        }
        loop {
            requirements.push(self.requirement()?);
            match self.next() {
                None => return Ok(LabelSelector { requirements }),
                Some(Token::Symbol(",")) => {
                    if self.peek().is_none() {
                        return Err(self.unexpected("identifier after ','"));
                    }
                }
                Some(_) => {
                    self.position -= 1;
                    return Err(self.unexpected("',' or 'end of string'"));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let absent = self.take("!");
        let Some(Token::Word(key)) = self.peek().cloned() else {
            return Err(self.unexpected("!, identifier, or 'end of string'"));
        };
        self.position += 1;
        check_key(key)?;
        let key = key.to_owned();
        if absent {
            return Ok(Requirement { key, operator: Operator::DoesNotExist });
        }
        let operator = match self.peek() {
            None | Some(Token::Symbol(",")) => Operator::Exists,
            Some(Token::Symbol("=" | "==")) => {
                self.position += 1;
                Operator::In(vec![self.value()?])
            }
            Some(Token::Symbol("!=")) => {
                self.position += 1;
                Operator::NotIn(vec![self.value()?])
            }
            Some(Token::Symbol(">")) => {
                self.position += 1;
                Operator::GreaterThan(self.number()?)
            }
            Some(Token::Symbol("<")) => {
                self.position += 1;
                Operator::LessThan(self.number()?)
            }
            Some(Token::Word("in")) => {
                self.position += 1;
                Operator::In(self.values()?)
            }
            Some(Token::Word("notin")) => {
                self.position += 1;
                Operator::NotIn(self.values()?)
            }
            Some(_) => return Err(self.unexpected("in, notin, =, ==, !=, gt, lt")),
        };
        Ok(Requirement { key, operator })
    }

    fn values(&mut self) -> Result<Vec<String>, SelectorError> {
        if !self.take("(") {
            return Err(self.unexpected("'('"));
        }
        let mut values = Vec::new();
        loop {
            values.push(self.value()?);
            if self.take(")") {
                return Ok(values);
            }
            if !self.take(",") {
                return Err(self.unexpected("',' or ')'"));
            }
        }
    }

    /// An empty value is one: `app=` and `app in (,)` ask for the empty text.
    fn value(&mut self) -> Result<String, SelectorError> {
        match self.peek().cloned() {
            Some(Token::Word(value)) => {
                self.position += 1;
                check_value(value)?;
                Ok(value.to_owned())
            }
            None | Some(Token::Symbol("," | ")")) => Ok(String::new()),
            Some(_) => Err(self.unexpected("identifier")),
        }
    }

    fn number(&mut self) -> Result<i64, SelectorError> {
        let value = self.value()?;
        value.parse().map_err(|_| SelectorError {
            message: format!(
                "values: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer"
            ),
        })
    }

    fn peek(&self) -> Option<&Token<'a>> {
        self.tokens.get(self.position)
    }

    fn next(&mut self) -> Option<Token<'a>> {
        let token = self.tokens.get(self.position).cloned();
        self.position += 1;
        token
    }

    fn take(&mut self, symbol: &'static str) -> bool {
        let found = self.peek() == Some(&Token::Symbol(symbol));
        self.position += usize::from(found);
        found
    }

    fn unexpected(&self, expected: &str) -> SelectorError {
        let found = match self.peek() {
            None => "",
            Some(Token::Word(word)) => word,
            Some(Token::Symbol(symbol)) => symbol,
        };
        SelectorError {
            message: format!("unable to parse requirement: found '{found}', expected: {expected}"),
        }
    }
}

/// A qualified name: an optional DNS prefix and a slash, then up to 63 letters, digits, `-`, `_` and `.`.
fn check_key(key: &str) -> Result<(), SelectorError> {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let prefix_is_fine = prefix.is_none_or(|prefix| {
        (1..=253).contains(&prefix.len())
            && prefix
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.'))
    });
    if prefix_is_fine && !name.is_empty() && is_name(name) {
        return Ok(());
    }
    Err(SelectorError {
        message: format!(
            "unable to parse requirement: key: Invalid value: \"{key}\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
        ),
    })
}

fn check_value(value: &str) -> Result<(), SelectorError> {
    if value.is_empty() || is_name(value) {
        return Ok(());
    }
    Err(SelectorError {
        message: format!(
            "unable to parse requirement: values: Invalid value: \"{value}\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
        ),
    })
}

fn is_name(name: &str) -> bool {
    let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    name.len() <= 63
        && edge(name.bytes().next())
        && edge(name.bytes().last())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let selector: LabelSelector = selector.parse().expect(selector);
        selector.matches(|key| labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v))
    }

    #[test]
    fn every_operator_matches_as_the_server_does() {
        let web = [("app", "web"), ("tier", "front"), ("weight", "10")];
        for selector in [
            "",
            " ",
            "app",
            "app=web",
            "app == web",
            "app!=db",
            "none!=x",
            "!none",
            "app in (db, web)",
            "app notin (db)",
            "none notin (x)",
            "weight>9",
            "weight<11",
            "app=web,tier=front",
            "app in(web),!none , tier != back",
        ] {
            assert!(matches(selector, &web), "{selector}");
        }
        for selector in [
            "none",
            "app=db",
            "app!=web",
            "!app",
            "app in (db)",
            "app notin (web,db)",
            "weight>10",
            "app>1",
            "app=",
            "app=web,app=db",
        ] {
            assert!(!matches(selector, &web), "{selector}");
        }
        assert!(matches("app=", &[("app", "")]));
        assert!(matches("app in (,web)", &[("app", "")]));
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for selector in [
            "==", "a b", "a in", "a in (", "a in (b", "a in b", "a=b=c", "a,", ",a", "a>b", "!", "a=b c",
            "a$", "-a", "a=-b", "/a", "a/b/c",
        ] {
            assert!(selector.parse::<LabelSelector>().is_err(), "{selector}");
        }
        let error = "==".parse::<LabelSelector>().unwrap_err().to_string();
        assert!(error.ends_with("found '==', expected: !, identifier, or 'end of string'"), "{error}");
    }

    #[test]
    fn selectors_print_what_they_parse() {
        for selector in ["a=b,c!=d,e in (f,g),h notin (i,j),k,!l,m>1,n<2", "x.io/a=b", "a="] {
            assert_eq!(selector.parse::<LabelSelector>().unwrap().to_string(), selector);
        }
    }

    #[test]
    fn field_selectors_compare_text() {
        let selector: FieldSelector =
            "status.phase=Running,spec.nodeName!=,metadata.name==a,".parse().unwrap();
        let field = |name: &str| match name {
            "status.phase" => "Running",
            "spec.nodeName" => "node-1",
            "metadata.name" => "a",
            _ => "",
        };
        assert!(selector.matches(field));
        assert!(!selector.matches(|name| if name == "spec.nodeName" { "" } else { field(name) }));
        assert!("status.phase".parse::<FieldSelector>().is_err());
        let escaped: FieldSelector = r"a=b\,c\=d,e=f".parse().unwrap();
        assert_eq!(escaped.requirements()[0].value, "b,c=d");
        assert_eq!(escaped.to_string(), r"a=b\,c\=d,e=f");
    }
}

//! What is wrong with an object, without showing the object: the place and the types, never the value.
//!
//! Values can be secrets, and problems end up in logs, in a status and in metrics.

use std::fmt::Write;

/// The longest path that is shown.
const MAX_PATH: usize = 200;

/// Takes values of the data out of a message that serde or a type made.
///
/// The words that serde itself uses are kept. Anything else may hold the value in any form, so nothing of it is kept.
pub(crate) fn without_values(message: &str) -> String {
    let (message, place) = match message.rfind(" at line ") {
        Some(at) if message[at..].contains(" column ") => message.split_at(at),
        _ => (message, ""),
    };
    let fixed = |start: &str| message.starts_with(start);
    let text = if fixed("missing field `") || fixed("duplicate field `") {
        // Names of the type, not of the data.
        message.to_owned()
    } else if fixed("unknown variant `") || fixed("unknown field `") {
        let what = if fixed("unknown variant `") { "unknown variant" } else { "unknown field" };
        let rest = ["`, expected ", "`, there are no "].iter().filter_map(|end| message.rfind(end)).max();
        format!("{what}{}", rest.map_or("", |at| &message[at + 1..]))
    } else if fixed("invalid type: ") || fixed("invalid value: ") || fixed("invalid length ") {
        without_quoted(message)
    } else {
        "a value that the type refuses".to_owned()
    };
    format!("{text}{place}")
}

/// Leaves out what is quoted in front of what was expected. serde writes strings as `"a\"b"` and other values as `` `7` ``.
fn without_quoted(message: &str) -> String {
    let mut kept = String::new();
    let mut rest = message;
    while let Some(at) = rest.find(['"', '`', ',']) {
        kept.push_str(rest[..at].trim_end());
        let quote = rest.as_bytes()[at];
        rest = &rest[at + 1..];
        if quote == b',' {
            // What follows was expected, so it comes from the type.
            kept.push(',');
            break;
        }
        let mut escaped = false;
        let end = rest.bytes().position(|byte| {
            let ends = byte == quote && !escaped;
            escaped = byte == b'\\' && !escaped && quote == b'"';
            ends
        });
        rest = end.map_or("", |end| &rest[end + 1..]);
    }
    kept.push_str(rest);
    kept
}

/// Describes why JSON text does not fit a type: the path to the value, and what was expected of it.
pub(crate) fn in_json(json: &[u8], error: &serde_json::Error) -> String {
    let text = error.to_string();
    if !error.is_data() {
        // Of malformed text serde says what it expected, and nothing of what it found.
        return text;
    }
    let before = json.split_inclusive(|byte| *byte == b'\n').take(error.line().saturating_sub(1));
    let offset = before.map(<[u8]>::len).sum::<usize>() + error.column();
    let (path, problem) = (path_at(json, offset), without_values(&text));
    if path.is_empty() { problem } else { format!("{path}: {problem}") }
}

/// The path to the value that the text is in, or behind, at an offset: `.spec.containers[0].name`.
fn path_at(json: &[u8], offset: usize) -> String {
    enum Level<'a> {
        Object { key: &'a [u8], before_key: bool },
        Array { index: usize },
    }
    let json = &json[..json.len().min(offset)];
    let (mut levels, mut at) = (Vec::new(), 0);
    while let Some(&byte) = json.get(at) {
        at += 1;
        match (byte, levels.last_mut()) {
            (b'{', _) => levels.push(Level::Object { key: b"", before_key: true }),
            (b'[', _) => levels.push(Level::Array { index: 0 }),
            (b'}' | b']', _) => drop(levels.pop()),
            (b',', Some(Level::Array { index })) => *index += 1,
            (b',', Some(Level::Object { before_key, .. })) => *before_key = true,
            (b'"', level) => {
                let start = at;
                while let Some(&byte) = json.get(at).filter(|byte| **byte != b'"') {
                    at += if byte == b'\\' { 2 } else { 1 };
                }
                if let Some(Level::Object { key, before_key }) = level
                    && std::mem::take(before_key)
                {
                    *key = &json[start..at.min(json.len())];
                }
                at += 1;
            }
            _ => {}
        }
    }
    let mut path = String::new();
    for level in levels {
        match level {
            Level::Array { index } => drop(write!(path, "[{index}]")),
            Level::Object { key: b"", .. } => {}
            Level::Object { key, .. } => {
                path.push('.');
                path.extend(String::from_utf8_lossy(key).chars().flat_map(char::escape_debug));
            }
        }
    }
    if path.len() > MAX_PATH {
        path.truncate(path.floor_char_boundary(MAX_PATH));
        path.push('…');
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[derive(Debug, serde::Deserialize)]
    #[allow(dead_code, reason = "only decoded")]
    struct Outer {
        spec: Spec,
        #[serde(default)]
        phase: Phase,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only decoded")]
    struct Spec {
        count: u8,
        #[serde(default)]
        list: Vec<BTreeMap<String, u8>>,
    }

    #[derive(Debug, Default, serde::Deserialize)]
    enum Phase {
        #[default]
        Running,
    }

    fn problem(json: &str) -> String {
        in_json(json.as_bytes(), &serde_json::from_str::<Outer>(json).unwrap_err())
    }

    #[test]
    fn the_path_and_the_type_are_said_and_the_value_is_not() {
        for (json, expected) in [
            (r#"{"spec":{"count":"hunter2"}}"#, ".spec.count: invalid type: string, expected u8"),
            (
                r#"{"spec":{"count":"a\"hunter2, expected"}}"#,
                ".spec.count: invalid type: string, expected u8",
            ),
            (r#"{"spec":{"count":4711}}"#, ".spec.count: invalid value: integer, expected u8"),
            (r#"{"spec":{"count":true}}"#, ".spec.count: invalid type: boolean, expected u8"),
            (
                r#"{"spec":{"count":1,"list":[{},{"a":1,"b c":"hunter2"}]}}"#,
                ".spec.list[1].b c: invalid type: string, expected u8",
            ),
            (r#"{"spec":{}}"#, ".spec: missing field `count`"),
            (r#"{"spec":{"count":1,"hunter2":1}}"#, "unknown field, expected `count` or `list`"),
            (r#"{"spec":{"count":1},"phase":"hunter2"}"#, ".phase: unknown variant, expected `Running`"),
        ] {
            let found = problem(json);
            assert!(found.contains(expected), "{found}\n{expected}");
            let problem = found.split_once(": ").map_or(&*found, |(_, problem)| problem);
            assert!(!problem.contains("hunter2") && !problem.contains("4711"), "{found}");
        }
    }

    #[test]
    fn messages_of_types_are_not_repeated() {
        assert_eq!(without_values("bad password hunter2"), "a value that the type refuses");
        assert_eq!(
            without_values("bad password hunter2 at line 1 column 9"),
            "a value that the type refuses at line 1 column 9"
        );
    }

    #[test]
    fn paths_of_any_text_are_found_without_a_panic() {
        for text in ["", "{", "]]", r#"{"a"#, r#"{"a\"#, "{\"\\", "[[[,,,{,"] {
            for offset in 0..=text.len() + 2 {
                path_at(text.as_bytes(), offset);
            }
        }
        assert!(path_at(format!("{{\"{}\":", "ä".repeat(500)).as_bytes(), 9_999).len() < 220);
    }
}

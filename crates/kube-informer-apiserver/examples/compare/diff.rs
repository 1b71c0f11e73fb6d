//! Where two JSON values differ, and parts of them by path.

use serde_json::Value;

/// How strict a comparison is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Everything must be the same.
    Whole,
    /// The real server may say more: members of maps, and named or typed items of lists.
    Subset,
}

/// Appends a line for each difference.
pub(crate) fn compare(path: &str, real: &Value, ours: &Value, mode: Mode, out: &mut Vec<String>) {
    match (real, ours) {
        (Value::Object(left), Value::Object(right)) => {
            for (name, value) in left {
                match right.get(name) {
                    Some(other) => {
                        // This server fills in few defaults, and the real one many.
                        let inner = if name == "spec" { Mode::Subset } else { mode };
                        compare(&format!("{path}.{name}"), value, other, inner, out);
                    }
                    None if mode == Mode::Whole => {
                        out.push(format!("{path}.{name}: only real: {}", short(value)));
                    }
                    None => {}
                }
            }
            for (name, value) in right.iter().filter(|(name, _)| !left.contains_key(*name)) {
                out.push(format!("{path}.{name}: only ours: {}", short(value)));
            }
        }
        (Value::Array(left), Value::Array(right))
            if mode == Mode::Subset && right.iter().all(|v| v.get("name").is_some()) =>
        {
            for value in right {
                let name = &value["name"];
                match left.iter().find(|other| other["name"] == *name) {
                    Some(other) => compare(&format!("{path}[{name}]"), other, value, mode, out),
                    None => out.push(format!("{path}[{name}]: only ours")),
                }
            }
        }
        (Value::Array(left), Value::Array(right)) => {
            for (i, (value, other)) in left.iter().zip(right).enumerate() {
                compare(&format!("{path}[{i}]"), value, other, mode, out);
            }
            for (i, value) in left.iter().enumerate().skip(right.len()) {
                out.push(format!("{path}[{i}]: only real: {}", short(value)));
            }
            for (i, value) in right.iter().enumerate().skip(left.len()) {
                out.push(format!("{path}[{i}]: only ours: {}", short(value)));
            }
        }
        _ if real == ours => {}
        _ => {
            out.push(format!("{path}: real {}", short(real)));
            out.push(format!("{path}: ours {}", short(ours)));
        }
    }
}

/// The value at a path like `items.0.metadata.name`.
pub(crate) fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, name| match name.parse::<usize>() {
        Ok(index) if value.is_array() => value.get(index),
        _ => value.get(name),
    })
}

/// Removes the value at a path; `*` stands for every item of a list.
pub(crate) fn remove(value: &mut Value, path: &str) {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    if name == "*" {
        for item in value.as_array_mut().into_iter().flatten() {
            if let Some(rest) = rest {
                remove(item, rest);
            }
        }
        return;
    }
    match rest {
        Some(rest) => {
            if let Some(inner) = value.get_mut(name) {
                remove(inner, rest);
            }
        }
        None => {
            value.as_object_mut().map(|map| map.remove(name));
        }
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.len() <= 400 { text } else { format!("{}…", &text[..text.floor_char_boundary(400)]) }
}

//! Paths to fields, read from JSON text and cut out of it, without decoding.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::WireError;
use crate::json::Cursor;

/// A path to fields of an object, in kubectl's JSONPath subset:
/// `.spec.nodeName`, `.spec.containers[*].image`, `.spec.containers[0].name`, `.metadata.annotations['a.b/c']`.
///
/// One grammar serves indexes, selectors and cuts.
///
/// ```
/// use kube_wire::FieldPath;
/// let images: FieldPath = ".spec.containers[*].image".parse().unwrap();
/// let pod = br#"{"spec":{"containers":[{"image":"nginx"},{"image":"envoy"}]}}"#;
/// assert_eq!(images.texts(pod).unwrap(), ["nginx", "envoy"]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldPath {
    steps: Vec<Step>,
}

/// One step of a [`FieldPath`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// The member of an object with this key.
    Field(String),
    /// The element of an array at this position.
    Element(usize),
    /// Every element of an array, or every member of an object.
    All,
}

/// A path that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid field path '{path}' at byte {at}: {problem}; a path looks like .spec.nodeName or .metadata.annotations['a.b/c']"
)]
pub struct PathError {
    path: String,
    at: usize,
    problem: &'static str,
}

impl FieldPath {
    /// A path of object keys alone.
    pub fn of_fields<'a>(fields: impl IntoIterator<Item = &'a str>) -> Self {
        Self { steps: fields.into_iter().map(|field| Step::Field(field.to_owned())).collect() }
    }

    /// The steps from the root.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The JSON text of every value that the path leads to.
    pub fn find<'a>(&self, json: &'a [u8]) -> Result<Vec<&'a [u8]>, WireError> {
        let mut found = Vec::new();
        find(&mut Cursor::new(json), json, &self.steps, &mut found)?;
        Ok(found)
    }

    /// Every string, number and boolean that the path leads to, as text; other values and nulls are passed over.
    pub fn texts<'a>(&self, json: &'a [u8]) -> Result<Vec<Cow<'a, str>>, WireError> {
        let mut texts = Vec::new();
        for value in self.find(json)? {
            match value.first() {
                Some(b'"') => texts.push(Cursor::new(value).string()?),
                Some(b'{' | b'[' | b'n') | None => {}
                Some(_) => {
                    texts.push(Cow::Borrowed(
                        std::str::from_utf8(value)
                            .map_err(|_| WireError::Json { at: 0, expected: "UTF-8" })?,
                    ));
                }
            }
        }
        Ok(texts)
    }
}

/// The JSON text without what the paths lead to, or `None` if they lead nowhere.
///
/// What stays is byte for byte what it was.
///
/// ```
/// use kube_wire::path::cut;
/// let paths = [".metadata.managedFields".parse().unwrap()];
/// let json = br#"{"metadata":{"name":"a","managedFields":[{}]},"data":{}}"#;
/// assert_eq!(cut(json, &paths).unwrap().unwrap(), br#"{"metadata":{"name":"a"},"data":{}}"#);
/// ```
pub fn cut(json: &[u8], paths: &[FieldPath]) -> Result<Option<Vec<u8>>, WireError> {
    let active: Vec<&[Step]> =
        paths.iter().map(|path| path.steps()).filter(|steps| !steps.is_empty()).collect();
    let holes = holes(json, &active)?;
    if holes.is_empty() {
        return Ok(None);
    }
    let mut rest = Vec::with_capacity(json.len());
    let mut from = 0;
    for hole in holes {
        rest.extend_from_slice(&json[from..hole.start]);
        from = hole.end;
    }
    rest.extend_from_slice(&json[from..]);
    Ok(Some(rest))
}

/// Where the parts of the text are that the paths lead to, commas included. No path may be empty.
pub(crate) fn holes(json: &[u8], paths: &[&[Step]]) -> Result<Vec<std::ops::Range<usize>>, WireError> {
    let mut holes = Vec::new();
    cut_value(&mut Cursor::new(json), paths, &mut holes)?;
    Ok(holes)
}

fn find<'a>(
    cursor: &mut Cursor<'a>,
    json: &'a [u8],
    steps: &[Step],
    found: &mut Vec<&'a [u8]>,
) -> Result<(), WireError> {
    let Some((step, rest)) = steps.split_first() else {
        found.push(&json[cursor.skip_value()?]);
        return Ok(());
    };
    let mut first = true;
    match (cursor.peek(), step) {
        (Some(b'{'), Step::Field(_) | Step::All) => {
            cursor.take(b'{');
            while let Some(key) = cursor.next_member(&mut first)? {
                if step.takes_member(&key) {
                    find(cursor, json, rest, found)?;
                } else {
                    cursor.skip_value()?;
                }
            }
        }
        (Some(b'['), Step::Element(_) | Step::All) => {
            cursor.take(b'[');
            let mut position = 0;
            while cursor.next_element(&mut first)? {
                if step.takes_element(position) {
                    find(cursor, json, rest, found)?;
                } else {
                    cursor.skip_value()?;
                }
                position += 1;
            }
        }
        _ => {
            cursor.skip_value()?;
        }
    }
    Ok(())
}

/// Notes where to cut: each hole takes a neighbouring comma along.
fn cut_value(
    cursor: &mut Cursor<'_>,
    paths: &[&[Step]],
    holes: &mut Vec<std::ops::Range<usize>>,
) -> Result<(), WireError> {
    let open = cursor.peek();
    if paths.is_empty() || !matches!(open, Some(b'{' | b'[')) {
        cursor.skip_value()?;
        return Ok(());
    }
    let object = open == Some(b'{');
    cursor.take(if object { b'{' } else { b'[' });
    let (mut first, mut position) = (true, 0);
    // Where the part that stays ended last, and whether any part stays: decides which comma goes with a hole.
    let (mut kept_end, mut kept_any) = (cursor.position(), false);
    loop {
        let key = if object {
            let Some(key) = cursor.next_member(&mut first)? else { break };
            Some(key)
        } else if cursor.next_element(&mut first)? {
            None
        } else {
            break;
        };
        let below: Vec<&[Step]> = paths
            .iter()
            .filter(|steps| match &key {
                Some(key) => steps[0].takes_member(key),
                None => steps[0].takes_element(position),
            })
            .map(|steps| &steps[1..])
            .collect();
        if below.iter().any(|rest| rest.is_empty()) {
            cursor.skip_value()?;
            let mut end = cursor.position();
            if !kept_any {
                // Nothing stays before it, so the comma behind it goes, if there is one.
                let mut ahead = cursor.clone();
                if ahead.take(b',') {
                    end = ahead.position();
                    *cursor = ahead;
                    first = true;
                }
            }
            holes.push(kept_end..end);
            kept_end = end;
        } else {
            cut_value(cursor, &below, holes)?;
            (kept_end, kept_any) = (cursor.position(), true);
        }
        position += 1;
    }
    Ok(())
}

impl Step {
    pub(crate) fn takes_member(&self, key: &str) -> bool {
        match self {
            Self::Field(field) => field == key,
            Self::All => true,
            Self::Element(_) => false,
        }
    }

    pub(crate) fn takes_element(&self, position: usize) -> bool {
        match self {
            Self::Element(wanted) => *wanted == position,
            Self::All => true,
            Self::Field(_) => false,
        }
    }
}

impl FromStr for FieldPath {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        let error = |at, problem| PathError { path: text.to_owned(), at, problem };
        // kubectl accepts the path in braces as well.
        let inner = text.trim();
        let inner = inner.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(inner);
        let mut steps = Vec::new();
        let mut rest = inner;
        while !rest.is_empty() {
            let at = inner.len() - rest.len();
            if let Some(after) = rest.strip_prefix('[') {
                let (step, after) =
                    bracket(after).ok_or_else(|| error(at, "expected ['key'], [n] or [*]"))?;
                steps.push(step);
                rest = after;
                continue;
            }
            let Some(after) = rest.strip_prefix('.') else {
                return Err(error(at, "expected '.' or '['"));
            };
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let name = &after[..end];
            if name.is_empty() {
                return Err(error(at, "expected a field's name after '.'"));
            }
            steps.push(if name == "*" { Step::All } else { Step::Field(name.to_owned()) });
            rest = &after[end..];
        }
        if steps.is_empty() {
            return Err(error(0, "it is empty"));
        }
        Ok(Self { steps })
    }
}

/// Reads what stands behind `[`: the step, and the text behind the `]`.
fn bracket(text: &str) -> Option<(Step, &str)> {
    if let Some(quoted) = text.strip_prefix('\'') {
        let mut key = String::new();
        let mut chars = quoted.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => key.push(chars.next()?.1),
                '\'' => return Some((Step::Field(key), quoted[at + 1..].strip_prefix(']')?)),
                _ => key.push(c),
            }
        }
        return None;
    }
    let (inner, after) = text.split_once(']')?;
    let step = if inner == "*" { Step::All } else { Step::Element(inner.parse().ok()?) };
    Some((step, after))
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            match step {
                Step::Field(field) if field.is_empty() || field.contains(['.', '[', '*', '\'', '\\']) => {
                    write!(f, "['{}']", field.replace('\\', "\\\\").replace('\'', "\\'"))?;
                }
                Step::Field(field) => write!(f, ".{field}")?,
                Step::Element(position) => write!(f, "[{position}]")?,
                Step::All => f.write_str("[*]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    const POD: &str = r#"{"metadata":{"name":"a","annotations":{"a.b/c":"x","d":"y"}},"spec":{"nodeName":"n\"1","n":7,"on":true,"none":null,
        "containers":[{"image":"nginx","ports":[1,2]},{"image":"envoy"}]}}"#;

    fn texts(path: &str) -> Vec<String> {
        let path: FieldPath = path.parse().expect(path);
        path.texts(POD.as_bytes()).unwrap().into_iter().map(Cow::into_owned).collect()
    }

    #[test]
    fn paths_lead_to_fields_elements_and_all_of_them() {
        assert_eq!(texts(".spec.nodeName"), ["n\"1"]);
        assert_eq!(texts("{.spec.containers[*].image}"), ["nginx", "envoy"]);
        assert_eq!(texts(".spec.containers[1].image"), ["envoy"]);
        assert_eq!(texts(".spec.containers[*].ports[*]"), ["1", "2"]);
        assert_eq!(texts(".metadata.annotations['a.b/c']"), ["x"]);
        assert_eq!(texts(".metadata.annotations.*"), ["x", "y"]);
        assert_eq!(texts(".spec.n"), ["7"]);
        assert_eq!(texts(".spec.on"), ["true"]);
        for nowhere in
            [".spec.none", ".spec", ".spec.containers.image", ".nodeName", ".spec.containers[2].image"]
        {
            assert!(texts(nowhere).is_empty(), "{nowhere}");
        }
    }

    #[test]
    fn paths_print_what_they_parse() {
        for path in [".spec.nodeName", ".a[*].b[3]", ".m['a.b/c'].d", r"['it\'s']"] {
            assert_eq!(path.parse::<FieldPath>().unwrap().to_string(), path);
        }
        for wrong in ["", "spec", ".", "..a", ".a[", ".a[]", ".a['b", ".a['b'", ".a[x]", ".a[-1]", ".a b["] {
            assert!(wrong.parse::<FieldPath>().is_err(), "{wrong}");
        }
    }

    fn cut_text(json: &str, paths: &[&str]) -> Option<String> {
        let paths: Vec<FieldPath> = paths.iter().map(|path| path.parse().unwrap()).collect();
        cut(json.as_bytes(), &paths).unwrap().map(|rest| String::from_utf8(rest).unwrap())
    }

    #[test]
    fn cuts_take_their_comma_along() {
        let json = r#"{"a":1,"b":{"x":1,"y":2},"c":[1,2,3]}"#;
        let cases: &[(&[&str], &str)] = &[
            (&[".a"], r#"{"b":{"x":1,"y":2},"c":[1,2,3]}"#),
            (&[".c"], r#"{"a":1,"b":{"x":1,"y":2}}"#),
            (&[".b"], r#"{"a":1,"c":[1,2,3]}"#),
            (&[".a", ".b"], r#"{"c":[1,2,3]}"#),
            (&[".b", ".c"], r#"{"a":1}"#),
            (&[".a", ".b", ".c"], "{}"),
            (&[".b.x"], r#"{"a":1,"b":{"y":2},"c":[1,2,3]}"#),
            (&[".b.y", ".c[0]"], r#"{"a":1,"b":{"x":1},"c":[2,3]}"#),
            (&[".c[*]", ".b.*"], r#"{"a":1,"b":{},"c":[]}"#),
            (&[".c[2]", ".c[1]"], r#"{"a":1,"b":{"x":1,"y":2},"c":[1]}"#),
        ];
        for (paths, expected) in cases {
            assert_eq!(cut_text(json, paths).as_deref(), Some(*expected), "{paths:?}");
        }
        assert_eq!(cut_text(json, &[".none", ".a.x"]), None);
        assert_eq!(cut_text("{ \"a\" : 1 , \"b\" : 2 }", &[".a"]).as_deref(), Some("{ \"b\" : 2 }"));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            ".{0,6}".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-d\"\\\\]{1,2}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn any_path() -> impl Strategy<Value = FieldPath> {
        let step = prop_oneof![
            "[a-d\"\\\\]{1,2}".prop_map(Step::Field),
            (0_usize..3).prop_map(Step::Element),
            Just(Step::All)
        ];
        prop::collection::vec(step, 1..4).prop_map(|steps| FieldPath { steps })
    }

    /// The obvious way to cut: on the tree.
    fn cut_tree(value: &mut Value, paths: &[&[Step]]) {
        match value {
            Value::Object(map) => {
                map.retain(|key, _| !paths.iter().any(|p| p.len() == 1 && p[0].takes_member(key)));
                for (key, below) in map.iter_mut() {
                    let rest: Vec<_> =
                        paths.iter().filter(|p| p[0].takes_member(key)).map(|p| &p[1..]).collect();
                    cut_tree(below, &rest);
                }
            }
            Value::Array(list) => {
                let old = std::mem::take(list);
                for (i, mut element) in old.into_iter().enumerate() {
                    let rest: Vec<_> =
                        paths.iter().filter(|p| p[0].takes_element(i)).map(|p| &p[1..]).collect();
                    if rest.iter().any(|rest| rest.is_empty()) {
                        continue;
                    }
                    cut_tree(&mut element, &rest);
                    list.push(element);
                }
            }
            _ => {}
        }
    }

    proptest! {
        #[test]
        fn cutting_text_equals_cutting_the_tree(mut value in any_json(), paths in prop::collection::vec(any_path(), 0..4)) {
            let text = serde_json::to_vec(&value).unwrap();
            let rest = cut(&text, &paths).unwrap().unwrap_or(text);
            let steps: Vec<&[Step]> = paths.iter().map(|path| path.steps()).collect();
            cut_tree(&mut value, &steps);
            prop_assert_eq!(serde_json::from_slice::<Value>(&rest).unwrap(), value);
        }

        #[test]
        fn any_bytes_give_an_answer_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..64), path in any_path()) {
            let _ = path.texts(&bytes);
            let _ = cut(&bytes, std::slice::from_ref(&path));
        }

        #[test]
        fn any_path_is_printed_and_parsed_again(path in any_path()) {
            prop_assert_eq!(path.to_string().parse::<FieldPath>().unwrap(), path);
        }
    }
}

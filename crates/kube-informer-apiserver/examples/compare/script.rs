//! How cases are written: a text of cases, a case a list of steps.
//!
//! ```text
//! ## a config map is created once
//! POST /api/v1/namespaces/$ns/configmaps
//! {"metadata":{"name":"a"}}
//! save version metadata.resourceVersion
//! GET /api/v1/namespaces/$ns/configmaps/a?resourceVersion=$version
//! Accept: application/json
//! known the reason why this answer differs
//! ```
//!
//! `$ns` is a namespace of the case's own, and a name for what lives in none. After the line of a request come its headers, a body on one line
//! (`text …` for one that is not JSON; one of a protobuf type is JSON here and protobuf on the wire), `save` for parts of the answer that later steps name, `known` for a difference that stays,
//! `subset` where the real server may say more, `ignore` for a path in the answer that is not compared, `wait` for a request that is
//! sent until it succeeds and is not compared.

/// One thing to try.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) steps: Vec<Step>,
}

/// One request.
#[derive(Debug, Default)]
pub(crate) struct Step {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    /// What later steps use: the name, and the path in the answer.
    pub(crate) saves: Vec<(String, String)>,
    pub(crate) ignores: Vec<String>,
    /// Why the answers are known to differ.
    pub(crate) known: Option<String>,
    pub(crate) subset: bool,
    pub(crate) wait: bool,
}

const METHODS: &[&str] = &["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"];

/// Reads a text of cases; an error names the line that cannot be read.
pub(crate) fn parse(text: &str) -> Result<Vec<Case>, String> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines().map(str::trim) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if word == "##" {
            cases.push(Case { name: rest.to_owned(), steps: Vec::new() });
            continue;
        }
        if line.is_empty() || word == "#" {
            continue;
        }
        let steps =
            cases.last_mut().map(|case| &mut case.steps).ok_or_else(|| format!("before any case: {line}"))?;
        if METHODS.contains(&word) {
            steps.push(Step { method: word.to_owned(), path: rest.to_owned(), ..Step::default() });
            continue;
        }
        let step = steps.last_mut().ok_or_else(|| format!("before any request: {line}"))?;
        match word {
            "save" => {
                let (name, path) =
                    rest.split_once(' ').ok_or_else(|| format!("save what as what? {line}"))?;
                step.saves.push((name.to_owned(), path.to_owned()));
            }
            "known" => step.known = Some(rest.to_owned()),
            "ignore" => step.ignores.push(rest.to_owned()),
            "subset" => step.subset = true,
            "wait" => step.wait = true,
            "text" => rest.clone_into(&mut step.body),
            _ if line.starts_with(['{', '[', '"']) => line.clone_into(&mut step.body),
            _ => {
                let (name, value) = line.split_once(": ").ok_or_else(|| format!("what is this? {line}"))?;
                step.headers.push((name.to_owned(), value.to_owned()));
            }
        }
    }
    Ok(cases)
}

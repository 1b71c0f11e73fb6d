//! Builds all mutants at once, without those that do not compile.

use std::process::Command;

use crate::sites::Site;
use crate::tree::Tree;

/// What is run against each mutant, by its name.
pub struct Program {
    pub name: String,
    pub path: String,
    pub arguments: Vec<String>,
}

/// The sites that compile, and the programs built with them. A site's place in the list is its number.
pub fn viable(tree: &Tree, mut sites: Vec<Site>) -> Result<(Vec<Site>, Vec<Program>), String> {
    loop {
        tree.write(&sites)?;
        // With an example, because the library alone has no version of the Kubernetes types.
        let check =
            ["check", "--quiet", "-p", "kube-informer", "--example", "simulate", "--message-format=short"];
        let checked = cargo(tree, &check)?;
        if checked.success {
            break;
        }
        // Lines are those of the source: a change adds none.
        let wrong: Vec<(String, usize)> = checked.said.lines().filter_map(place).collect();
        let before = sites.len();
        tree.restore(&sites)?;
        sites.retain(|site| {
            let lines = site.line..=site.line + site.text.lines().count().saturating_sub(1);
            let file = site.file.to_string_lossy();
            !wrong.iter().any(|(at, line)| at.ends_with(&*file) && lines.contains(line))
        });
        if sites.len() == before {
            return Err(format!("the mutants cannot be built:\n{}", checked.said));
        }
    }
    let simulation = ["build", "--quiet", "--release", "-p", "kube-informer", "--example", "simulate"];
    let built = cargo(tree, &simulation)?;
    if !built.success {
        return Err(built.said);
    }
    let simulate = Program {
        name: "simulate".into(),
        path: tree.target.join("release/examples/simulate").to_string_lossy().into_owned(),
        arguments: ["--seeds", "100", "--first", "1", "--stop-at-first"].map(str::to_owned).into(),
    };
    // Optimized, because a mutant that survives costs a run of every test.
    let tests = ["test", "--release", "--no-run", "-p", "kube-informer", "--lib", "--test", "*"];
    let built = cargo(tree, &tests)?;
    if !built.success {
        return Err(built.said);
    }
    let tests = built.said.lines().filter_map(|line| {
        let path = line.trim().strip_prefix("Executable")?.split_once('(')?.1.strip_suffix(')')?;
        let name = path.rsplit('/').next()?.rsplit_once('-')?.0.to_owned();
        // The same seeds as above, but slower; and one that looks at the project's files.
        let left_out = name == "simulation" || name == "docs";
        (!left_out).then(|| Program { name, path: path.to_owned(), arguments: Vec::new() })
    });
    Ok((sites, std::iter::once(simulate).chain(tests).collect()))
}

/// The file and line that an error is about.
fn place(line: &str) -> Option<(String, usize)> {
    let mut parts = line.splitn(4, ':');
    let (file, number) = (parts.next()?, parts.next()?);
    line.contains(" error").then(|| Some((file.to_owned(), number.parse().ok()?)))?
}

struct Said {
    success: bool,
    said: String,
}

fn cargo(tree: &Tree, arguments: &[&str]) -> Result<Said, String> {
    let output = Command::new("cargo")
        .args(arguments)
        .current_dir(&tree.root)
        .env("CARGO_TARGET_DIR", &tree.target)
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    let said = [output.stdout, output.stderr].concat();
    Ok(Said { success: output.status.success(), said: String::from_utf8_lossy(&said).into_owned() })
}

//! A copy of the project that is changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::sites::Site;

/// The switch, as a module of the library.
const SWITCH: &str = r#"//! Chooses one of the changes.

use std::sync::OnceLock;

pub(crate) fn on(mutant: u32) -> bool {
    static CHOSEN: OnceLock<Option<u32>> = OnceLock::new();
    let chosen = || std::env::var("KUBE_INFORMER_MUTANT").ok().and_then(|text| text.parse().ok());
    *CHOSEN.get_or_init(chosen) == Some(mutant)
}
"#;

pub struct Tree {
    pub root: PathBuf,
    /// Its own, because cargo would take what is built here for what is built of the project itself.
    pub target: PathBuf,
}

impl Tree {
    /// Copies what git knows of.
    pub fn copy() -> Result<Self, String> {
        let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".into());
        let folder = PathBuf::from(target).join("mutants");
        let (root, target) = (folder.join("tree"), folder.join("target"));
        let _ = fs::remove_dir_all(&root);
        let listed = Command::new("git").arg("ls-files").output().map_err(|error| format!("git: {error}"))?;
        for name in String::from_utf8_lossy(&listed.stdout).lines() {
            let copy = root.join(name);
            let folder = copy.parent().unwrap_or(&root);
            fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
            if Path::new(name).is_file() {
                fs::copy(name, &copy).map_err(|error| format!("{name}: {error}"))?;
            }
        }
        let absolute = |path: PathBuf| {
            std::path::absolute(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        Ok(Self { root: absolute(root)?, target: absolute(target)? })
    }

    /// Writes all sites into the copy, each behind its number.
    pub fn write(&self, sites: &[Site]) -> Result<(), String> {
        let mut by_file: BTreeMap<&Path, Vec<(usize, &Site)>> = BTreeMap::new();
        for (number, site) in sites.iter().enumerate() {
            by_file.entry(&site.file).or_default().push((number, site));
        }
        for (file, mut sites) in by_file {
            let mut text = read(file)?;
            sites.sort_by_key(|(_, site)| std::cmp::Reverse(site.bytes.start));
            for (number, site) in sites {
                let switch = format!("crate::mutants::on({number})");
                let changed = site.text.replace("{on}", &switch);
                text.replace_range(site.bytes.clone(), &changed);
            }
            self.put(file, &text)?;
        }
        let library = Path::new("crates/kube-informer/src/lib.rs");
        self.put(library, &format!("{}\nmod mutants;\n", read(library)?))?;
        self.put(&library.with_file_name("mutants.rs"), SWITCH)
    }

    /// Puts a file back as it is in the project.
    pub fn restore(&self, sites: &[Site]) -> Result<(), String> {
        for site in sites {
            self.put(&site.file, &read(&site.file)?)?;
        }
        Ok(())
    }

    fn put(&self, name: &Path, text: &str) -> Result<(), String> {
        let path = self.root.join(name);
        // A file that stays as it is must not be built again.
        if fs::read_to_string(&path).is_ok_and(|before| before == text) {
            return Ok(());
        }
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    }
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

//! The places that can be changed, and how.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ImplItemFn, ItemConst, ItemFn, ItemMod, ItemStatic, Stmt, UnOp};

/// One change of one place.
#[derive(Clone)]
pub struct Site {
    pub module: String,
    pub file: PathBuf,
    pub line: usize,
    pub bytes: Range<usize>,
    /// The text around the switch: `{on}` stands for it.
    pub text: String,
    was: String,
    is: String,
}

impl Site {
    pub fn overlaps(&self, other: &Self) -> bool {
        self.file == other.file && self.bytes.start < other.bytes.end && other.bytes.start < self.bytes.end
    }

    /// The place and the change, on one line.
    pub fn says(&self) -> String {
        let short = |text: &str| {
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            if text.chars().count() > 90 {
                text.chars().take(90).chain("…".chars()).collect()
            } else {
                text
            }
        };
        format!("{}:{}: `{}` → `{}`", self.file.display(), self.line, short(&self.was), short(&self.is))
    }
}

/// All places of a module: its file, and the files in its folder.
pub fn of_module(source: &Path, module: &str) -> Result<Vec<Site>, String> {
    let mut files = vec![source.join(format!("{module}.rs"))];
    let mut folders = vec![source.join(module)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name().into_string().unwrap_or_default();
            let is_test = name == "tests" || name == "tests.rs" || name == "interleavings.rs";
            if path.is_dir() && !is_test {
                folders.push(path);
            } else if path.is_file() && !is_test {
                files.push(path);
            }
        }
    }
    files.sort();
    let mut sites = Vec::new();
    for file in files.into_iter().filter(|file| file.exists()) {
        let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let parsed = syn::parse_file(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut finder = Finder { module, file: &file, text: &text, sites: Vec::new() };
        finder.visit_file(&parsed);
        sites.append(&mut finder.sites);
    }
    Ok(sites)
}

struct Finder<'a> {
    module: &'a str,
    file: &'a Path,
    text: &'a str,
    sites: Vec<Site>,
}

impl Finder<'_> {
    fn of(&self, span: Span) -> &str {
        &self.text[span.byte_range()]
    }

    fn add(&mut self, span: Span, text: String, is: String) {
        let was = self.of(span).to_owned();
        // Deliberate bugs are not part of the library.
        if was.contains("planted(") {
            return;
        }
        self.sites.push(Site {
            module: self.module.to_owned(),
            file: self.file.to_owned(),
            line: span.start().line,
            bytes: span.byte_range(),
            text,
            was,
            is,
        });
    }

    fn negate(&mut self, condition: &Expr) {
        if has_let(condition) {
            return;
        }
        let text = self.of(condition.span()).to_owned();
        self.add(condition.span(), format!("{{on}} != ({text})"), format!("!({text})"));
    }

    fn replace(&mut self, expression: &Expr, changed: String) {
        let text = self.of(expression.span());
        // The lines of the file must stay where they are, because the compiler's errors name them.
        if changed.contains("//") {
            return;
        }
        let changed = changed.replace('\n', " ");
        let both = format!("(if {{on}} {{ {changed} }} else {{ {text} }})");
        self.add(expression.span(), both, changed);
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        let is_test = module.attrs.iter().any(|attribute| self.of(attribute.span()).contains("cfg(test)"));
        if !is_test {
            visit::visit_item_mod(self, module);
        }
    }

    // What is computed when the library is built cannot ask the environment.
    fn visit_item_const(&mut self, _: &'ast ItemConst) {}

    fn visit_item_static(&mut self, _: &'ast ItemStatic) {}

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        if function.sig.constness.is_none() {
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        // How things are shown for debugging is not a promise.
        let shows = function.sig.ident == "fmt";
        if function.sig.constness.is_none() && !shows {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_expr_if(&mut self, node: &'ast syn::ExprIf) {
        self.negate(&node.cond);
        visit::visit_expr_if(self, node);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((_, guard)) = &arm.guard {
            self.negate(guard);
        }
        visit::visit_arm(self, arm);
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if let Stmt::Expr(expression, Some(_)) = statement
            && matches!(
                expression,
                Expr::MethodCall(_) | Expr::Call(_) | Expr::Assign(_) | Expr::Binary(_) | Expr::Await(_)
            )
        {
            let text = self.of(statement.span()).to_owned();
            self.add(statement.span(), format!("if !{{on}} {{ {text} }}"), "(nothing)".to_owned());
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_expr_binary(&mut self, node: &'ast syn::ExprBinary) {
        let other = match node.op {
            BinOp::Lt(_) => Some("<="),
            BinOp::Le(_) => Some("<"),
            BinOp::Gt(_) => Some(">="),
            BinOp::Ge(_) => Some(">"),
            BinOp::Eq(_) => Some("!="),
            BinOp::Ne(_) => Some("=="),
            BinOp::And(_) => Some("||"),
            BinOp::Or(_) => Some("&&"),
            BinOp::Add(_) => Some("-"),
            BinOp::Sub(_) => Some("+"),
            BinOp::Mul(_) => Some("/"),
            _ => None,
        };
        if let Some(other) = other
            && !has_let(&node.left)
            && !has_let(&node.right)
        {
            let (left, right) = (self.of(node.left.span()), self.of(node.right.span()));
            let changed = format!("{left} {other} {right}");
            self.replace(&Expr::Binary(node.clone()), changed);
        }
        visit::visit_expr_binary(self, node);
    }

    fn visit_expr_unary(&mut self, node: &'ast syn::ExprUnary) {
        if let UnOp::Not(_) = node.op {
            let changed = self.of(node.expr.span()).to_owned();
            self.replace(&Expr::Unary(node.clone()), changed);
        }
        visit::visit_expr_unary(self, node);
    }
}

/// Whether a condition binds names, which a changed one would have to bind as well.
fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(node) => has_let(&node.left) || has_let(&node.right),
        Expr::Paren(node) => has_let(&node.expr),
        _ => false,
    }
}

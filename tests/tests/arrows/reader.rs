//! Reads one Rust file as `syn` parses it: the modules that are written in it, what those import, every path in it with its line, and
//! which modules stand in files of their own. Paths are found wherever they stand: in imports, types, expressions, attributes and inside
//! the invocations of macros. What is there for tests only and what comments name is left out. Knows no other file.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeMap;
use syn::ext::IdentExt;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, Ident, ItemMod, ItemUse, Lit, Meta, UseTree};

/// The names of a module, from the outermost.
pub(crate) type ModulePath = Vec<String>;

/// A path as it is written.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) line: usize,
    /// The module that it stands in, from the file's own.
    pub(crate) module: ModulePath,
    pub(crate) path: Vec<String>,
}

/// A module in a file of its own.
#[derive(Debug)]
pub(crate) struct Below {
    /// Its name, behind those of the modules that are written out around it.
    pub(crate) module: ModulePath,
    /// What `#[path]` says.
    pub(crate) told: Option<String>,
}

/// What a file says.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// Its own module (an empty path) and those that are written out in it; for each, what its imports call something, and the path of that.
    pub(crate) modules: BTreeMap<ModulePath, BTreeMap<String, Vec<String>>>,
    pub(crate) named: Vec<Named>,
    pub(crate) below: Vec<Below>,
}

/// Reads a file; none if all of it is there for tests.
pub(crate) fn read(text: &str) -> syn::Result<Option<Said>> {
    let parsed = syn::parse_file(text)?;
    if is_for_tests(&parsed.attrs) {
        return Ok(None);
    }
    let mut reader = Reader::default();
    reader.said.modules.insert(Vec::new(), BTreeMap::new());
    reader.visit_file(&parsed);
    Ok(Some(reader.said))
}

/// `#[cfg(test)]`, `#[cfg(any(test, …))]`, `#[test]`.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.segments.last().is_some_and(|last| last.ident == "test"),
        Meta::List(list) => list.path.is_ident("cfg") && asks_for_test(list.tokens.clone()),
        Meta::NameValue(_) => false,
    })
}

fn asks_for_test(condition: TokenStream) -> bool {
    let mut negated = false;
    for token in condition {
        match token {
            TokenTree::Ident(word) if word == "test" => return true,
            TokenTree::Ident(word) => negated = word == "not",
            TokenTree::Group(group) if !negated && asks_for_test(group.stream()) => return true,
            _ => negated = false,
        }
    }
    false
}

fn line(ident: &Ident) -> usize {
    ident.span().start().line
}

fn word(ident: &Ident) -> String {
    ident.unraw().to_string()
}

/// A string literal with its line.
fn quoted(value: &Expr) -> Option<(usize, String)> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some((text.span().start().line, text.value())),
        _ => None,
    }
}

/// One of the paths of an import: its line, the path, and how it is called here.
type Import = (usize, Vec<String>, Option<String>);

fn flatten(tree: &UseTree, before: &[String], into: &mut Vec<Import>) {
    let with = |ident: &Ident| -> Vec<String> {
        before.iter().cloned().chain((ident != "self" || before.is_empty()).then(|| word(ident))).collect()
    };
    match tree {
        UseTree::Path(path) => flatten(&path.tree, &with(&path.ident), into),
        UseTree::Name(name) => {
            let path = with(&name.ident);
            let called = path.last().cloned();
            into.push((line(&name.ident), path, called));
        }
        UseTree::Rename(name) => into.push((line(&name.ident), with(&name.ident), Some(word(&name.rename)))),
        UseTree::Glob(glob) => into.push((glob.star_token.spans[0].start().line, before.to_vec(), None)),
        UseTree::Group(group) => group.items.iter().for_each(|item| flatten(item, before, into)),
    }
}

#[derive(Default)]
struct Reader {
    said: Said,
    /// Modules that are written out around what is being read.
    module: ModulePath,
    blocks: usize,
}

impl Reader {
    fn note(&mut self, line: usize, path: Vec<String>) {
        if path.len() > 1 {
            self.said.named.push(Named { line, module: self.module.clone(), path });
        }
    }

    /// Paths among tokens that nobody parses; in attributes also those in quotes (`with = "crate::hex"`).
    fn tokens(&mut self, tokens: TokenStream, in_attribute: bool) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token {
                TokenTree::Ident(first) => at = self.path_in(&tokens, at, line(first), vec![word(first)]),
                TokenTree::Group(group) => self.tokens(group.stream(), in_attribute),
                TokenTree::Literal(literal) if in_attribute => {
                    if let Lit::Str(text) = Lit::new(literal.clone()) {
                        self.quoted_path(literal.span().start().line, &text.value());
                    }
                }
                _ => {}
            }
        }
    }

    /// Reads on in a path that has begun, and returns where it ends.
    fn path_in(&mut self, tokens: &[TokenTree], mut at: usize, line: usize, mut path: Vec<String>) -> usize {
        let is_colon = |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Punct(mark)) if mark.as_char() == ':');
        while is_colon(tokens.get(at)) && is_colon(tokens.get(at + 1)) {
            match tokens.get(at + 2) {
                Some(TokenTree::Ident(next)) => path.push(word(next)),
                Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                    self.group_in(group.stream(), line, &path);
                    return at + 3;
                }
                _ => break,
            }
            at += 3;
        }
        self.note(line, path);
        at
    }

    /// An import's braces: each path in them goes on from `before`.
    fn group_in(&mut self, group: TokenStream, line_before: usize, before: &[String]) {
        let tokens: Vec<TokenTree> = group.into_iter().collect();
        for part in tokens.split(|token| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ',')) {
            match part.first() {
                Some(TokenTree::Ident(first)) => {
                    let path = before.iter().cloned().chain([word(first)]).collect();
                    self.path_in(part, 1, line(first), path);
                }
                Some(_) => self.note(line_before, before.to_vec()),
                None => {}
            }
        }
    }

    fn quoted_path(&mut self, line: usize, text: &str) {
        let path: Vec<String> = text.split("::").map(str::to_owned).collect();
        let is_word = |part: &String| part.chars().all(|c| c.is_alphanumeric() || c == '_');
        if path.iter().all(is_word) {
            self.note(line, path);
        }
    }
}

/// Whatever may have attributes is left out with all that is in it where they say that it is for tests.
macro_rules! unless_for_tests {
    ($($visit:ident: $node:ident),* $(,)?) => {
        $(fn $visit(&mut self, node: &'ast syn::$node) {
            if !is_for_tests(&node.attrs) {
                visit::$visit(self, node);
            }
        })*
    };
}

impl<'ast> Visit<'ast> for Reader {
    unless_for_tests! {
        visit_item_const: ItemConst, visit_item_enum: ItemEnum, visit_item_fn: ItemFn, visit_item_foreign_mod: ItemForeignMod,
        visit_item_impl: ItemImpl, visit_item_macro: ItemMacro, visit_item_static: ItemStatic, visit_item_struct: ItemStruct,
        visit_item_trait: ItemTrait, visit_item_type: ItemType, visit_item_union: ItemUnion,
        visit_impl_item_const: ImplItemConst, visit_impl_item_fn: ImplItemFn, visit_impl_item_macro: ImplItemMacro,
        visit_impl_item_type: ImplItemType,
        visit_trait_item_const: TraitItemConst, visit_trait_item_fn: TraitItemFn, visit_trait_item_macro: TraitItemMacro,
        visit_trait_item_type: TraitItemType,
        visit_field: Field, visit_field_value: FieldValue, visit_variant: Variant, visit_arm: Arm,
        visit_local: Local, visit_stmt_macro: StmtMacro, visit_expr_assign: ExprAssign, visit_expr_block: ExprBlock,
        visit_expr_call: ExprCall, visit_expr_if: ExprIf, visit_expr_macro: ExprMacro, visit_expr_method_call: ExprMethodCall,
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if is_for_tests(&item.attrs) {
            return;
        }
        let module: ModulePath = self.module.iter().cloned().chain([word(&item.ident)]).collect();
        let Some((_, items)) = &item.content else {
            let told = item.attrs.iter().find_map(|attribute| match &attribute.meta {
                Meta::NameValue(pair) if pair.path.is_ident("path") => quoted(&pair.value),
                _ => None,
            });
            return self.said.below.push(Below { module, told: told.map(|(_, path)| path) });
        };
        self.said.modules.insert(module.clone(), BTreeMap::new());
        self.module = module;
        items.iter().for_each(|item| self.visit_item(item));
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if is_for_tests(&item.attrs) || item.leading_colon.is_some() {
            return;
        }
        let mut imports = Vec::new();
        flatten(&item.tree, &[], &mut imports);
        for (line, path, called) in imports {
            if let (0, Some(called), Some(module)) =
                (self.blocks, called, self.said.modules.get_mut(&self.module))
            {
                module.insert(called, path.clone());
            }
            self.note(line, path);
        }
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        self.blocks += 1;
        visit::visit_block(self, block);
        self.blocks -= 1;
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if let Some(first) = path.segments.first().filter(|_| path.leading_colon.is_none()) {
            self.note(line(&first.ident), path.segments.iter().map(|segment| word(&segment.ident)).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invoked: &'ast syn::Macro) {
        self.visit_path(&invoked.path);
        self.tokens(invoked.tokens.clone(), false);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        match &attribute.meta {
            Meta::Path(path) => self.visit_path(path),
            Meta::List(list) => {
                self.visit_path(&list.path);
                self.tokens(list.tokens.clone(), true);
            }
            // Comments may name whatever they like.
            Meta::NameValue(pair) if pair.path.is_ident("doc") => {}
            Meta::NameValue(pair) => match quoted(&pair.value) {
                Some((line, text)) => self.quoted_path(line, &text),
                None => self.visit_expr(&pair.value),
            },
        }
    }
}

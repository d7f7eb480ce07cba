//! Where a source can be changed, and into what.

use std::ops::Range;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Attribute, BinOp, Block, Expr, ExprBinary, ExprMatch, ExprStruct, ExprUnary, ImplItemFn, ItemConst,
    ItemFn, ItemImpl, ItemMod, ItemStatic, ItemTrait, Pat, Signature, TraitItemFn, UnOp,
};

/// How a change is written beside what is there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// In place of an expression: `(if on(1) { CHANGE } else { EXPRESSION })`.
    Expression,
    /// At the begin of a function's body: `if on(1) { return CHANGE; }`.
    Body,
    /// After an arm's pattern: `if !on(1)`.
    Arm,
    /// A whole function, without a change of its own.
    Function,
}

/// A place in the source with what may be there instead.
pub(crate) struct Site {
    pub(crate) range: Range<usize>,
    pub(crate) form: Form,
    pub(crate) variants: Vec<(u32, String)>,
}

/// One change, for people.
pub(crate) struct Mutant {
    pub(crate) number: u32,
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) function: String,
    pub(crate) change: String,
    pub(crate) site: usize,
    pub(crate) function_site: usize,
}

/// Goes through a file and gathers its sites, those outside before those inside of them.
pub(crate) struct Finder<'s> {
    source: &'s str,
    pub(crate) next: u32,
    pub(crate) sites: Vec<Site>,
    pub(crate) mutants: Vec<Mutant>,
    /// The type and the functions around this place.
    names: Vec<String>,
    function: Option<usize>,
}

impl<'s> Finder<'s> {
    pub(crate) fn new(source: &'s str, first: u32) -> Finder<'s> {
        Finder {
            source,
            next: first,
            sites: Vec::new(),
            mutants: Vec::new(),
            names: Vec::new(),
            function: None,
        }
    }

    /// The text of something, on one line.
    fn squeezed(&self, range: Range<usize>) -> String {
        self.source[range].split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn slice(&self, what: &impl Spanned) -> &'s str {
        &self.source[what.span().byte_range()]
    }

    /// Adds a site with its changes: what is written, and how it is described.
    fn add(&mut self, range: Range<usize>, place: Span, form: Form, changes: Vec<(String, String)>) {
        if changes.is_empty() {
            return;
        }
        let mut variants = Vec::new();
        for (text, change) in changes {
            let start = place.start();
            let mutant = Mutant {
                number: self.next,
                line: start.line,
                column: start.column + 1,
                function: self.names.join("::"),
                change,
                site: self.sites.len(),
                function_site: self.function.unwrap_or(usize::MAX),
            };
            variants.push((self.next, text));
            self.mutants.push(mutant);
            self.next += 1;
        }
        self.sites.push(Site { range, form, variants });
    }

    /// A function: its body is replaced, then what is in it is changed.
    fn function(&mut self, attributes: &[Attribute], signature: &Signature, body: &Block) {
        if signature.constness.is_some() || attributes.iter().any(is_test) {
            return;
        }
        self.names.push(signature.ident.to_string());
        let outer = self.function.replace(self.sites.len());
        self.sites.push(Site { range: body.span().byte_range(), form: Form::Function, variants: Vec::new() });
        self.body(signature, body);
        visit::visit_block(self, body);
        self.function = outer;
        self.names.pop();
    }

    fn body(&mut self, signature: &Signature, body: &Block) {
        let open = body.brace_token.span.open();
        let inside = open.byte_range().end..body.brace_token.span.close().byte_range().start;
        let there = self.squeezed(inside.clone());
        if body.stmts.is_empty() || there == "Self::default()" {
            return;
        }
        let default = signature.ident == "default";
        let values = crate::values::of_return(&signature.output)
            .into_iter()
            .filter(|value| *value != there && !(default && value == "Default::default()"));
        let changes =
            values.map(|value| (value.clone(), format!("the function's result is {value}"))).collect();
        self.add(inside.start..inside.start, signature.ident.span(), Form::Body, changes);
    }

    /// The changes of an operator's expression.
    fn operator(&mut self, binary: &ExprBinary) {
        let (left, right, before) =
            (self.slice(&binary.left), self.slice(&binary.right), self.slice(&binary.op));
        let assigns = before.ends_with('=')
            && !matches!(binary.op, BinOp::Eq(_) | BinOp::Le(_) | BinOp::Ge(_) | BinOp::Ne(_));
        let change = |after: &&str| {
            let text = if assigns {
                format!("{left} {after} {right}")
            } else {
                format!("({left}) {after} ({right})")
            };
            (text, format!("{before} -> {after}"))
        };
        self.add(
            binary.span().byte_range(),
            binary.op.span(),
            Form::Expression,
            others(&binary.op).iter().map(change).collect(),
        );
    }

    fn guard(&mut self, guard: &Expr) {
        if self.function.is_some() && !has_let(guard) {
            let changes =
                ["true", "false"].map(|value| (value.to_string(), format!("the guard is {value}"))).into();
            self.add(guard.span().byte_range(), guard.span(), Form::Expression, changes);
        }
        self.visit_expr(guard);
    }

    /// An arm without a guard in a match that has one for all others.
    fn arm(&mut self, pattern: &Pat) {
        if self.function.is_some() && !matches!(pattern, Pat::Wild(_)) {
            let range = pattern.span().byte_range();
            let change = format!("the arm {} is deleted", self.squeezed(range.clone()));
            self.add(range.end..range.end, pattern.span(), Form::Arm, vec![(String::new(), change)]);
        }
    }
}

/// The text of something, as its tokens are printed.
pub(crate) fn text(what: &impl Spanned) -> String {
    what.span().source_text().unwrap_or_default()
}

/// What may be there instead of an operator.
fn others(operator: &BinOp) -> &'static [&'static str] {
    match operator {
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::Lt(_) => &["==", ">", "<="],
        BinOp::Gt(_) => &["==", "<", ">="],
        BinOp::Le(_) => &[">", "<"],
        BinOp::Ge(_) => &["<", ">"],
        BinOp::Add(_) => &["-", "*"],
        BinOp::Sub(_) => &["+", "/"],
        BinOp::Mul(_) => &["+", "/"],
        BinOp::Div(_) => &["%", "*"],
        BinOp::Rem(_) => &["/", "+"],
        BinOp::Shl(_) => &[">>"],
        BinOp::Shr(_) => &["<<"],
        BinOp::BitAnd(_) => &["|", "^"],
        BinOp::BitOr(_) => &["&", "^"],
        BinOp::BitXor(_) => &["|", "&"],
        BinOp::AddAssign(_) => &["-=", "*="],
        BinOp::SubAssign(_) => &["+=", "/="],
        BinOp::MulAssign(_) => &["+=", "/="],
        BinOp::DivAssign(_) => &["%=", "*="],
        BinOp::RemAssign(_) => &["/=", "+="],
        BinOp::ShlAssign(_) => &[">>="],
        BinOp::ShrAssign(_) => &["<<="],
        BinOp::BitAndAssign(_) => &["|=", "^="],
        BinOp::BitOrAssign(_) => &["&=", "^="],
        BinOp::BitXorAssign(_) => &["|=", "&="],
        _ => &[],
    }
}

/// Whether it is a `let` or a chain with one, which can't be in parentheses.
fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) if matches!(binary.op, BinOp::And(_)) => {
            has_let(&binary.left) || has_let(&binary.right)
        }
        _ => false,
    }
}

/// `#[test]`, `#[cfg(test)]`.
fn is_test(attribute: &Attribute) -> bool {
    attribute.path().is_ident("test")
        || (attribute.path().is_ident("cfg") && text(&attribute.meta).replace(' ', "").contains("(test"))
}

impl<'a> Visit<'a> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        if !item.attrs.iter().any(is_test) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_const(&mut self, _: &'a ItemConst) {}
    fn visit_impl_item_const(&mut self, _: &'a syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'a syn::TraitItemConst) {}
    fn visit_item_static(&mut self, _: &'a ItemStatic) {}
    fn visit_expr_const(&mut self, _: &'a syn::ExprConst) {}
    fn visit_type(&mut self, _: &'a syn::Type) {}
    fn visit_pat(&mut self, _: &'a Pat) {}
    fn visit_attribute(&mut self, _: &'a Attribute) {}
    fn visit_variant(&mut self, _: &'a syn::Variant) {}
    fn visit_generic_argument(&mut self, _: &'a syn::GenericArgument) {}

    fn visit_expr_repeat(&mut self, repeat: &'a syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_item_fn(&mut self, item: &'a ItemFn) {
        if item.sig.ident != "main" {
            self.function(&item.attrs, &item.sig, &item.block);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'a ImplItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
    }

    fn visit_trait_item_fn(&mut self, item: &'a TraitItemFn) {
        if let Some(body) = &item.default {
            self.function(&item.attrs, &item.sig, body);
        }
    }

    fn visit_item_impl(&mut self, item: &'a ItemImpl) {
        let of_trait = item.trait_.as_ref().map(|(path, _)| self.squeezed(path.span().byte_range()));
        let printed = of_trait
            .as_deref()
            .is_some_and(|name| matches!(name.rsplit("::").next(), Some("Debug" | "Display")));
        if printed || item.attrs.iter().any(is_test) {
            return;
        }
        let kind = self.squeezed(item.self_ty.span().byte_range());
        self.names.push(of_trait.map_or_else(|| kind.clone(), |name| format!("<{kind} as {name}>")));
        visit::visit_item_impl(self, item);
        self.names.pop();
    }

    fn visit_item_trait(&mut self, item: &'a ItemTrait) {
        self.names.push(item.ident.to_string());
        visit::visit_item_trait(self, item);
        self.names.pop();
    }

    fn visit_expr_binary(&mut self, binary: &'a ExprBinary) {
        if self.function.is_some() && !has_let(&binary.left) && !has_let(&binary.right) {
            self.operator(binary);
        }
        self.visit_expr(&binary.left);
        self.visit_expr(&binary.right);
    }

    fn visit_expr_unary(&mut self, unary: &'a ExprUnary) {
        if self.function.is_some()
            && matches!(unary.op, UnOp::Not(_) | UnOp::Neg(_))
            && !matches!(&*unary.expr, Expr::Lit(_))
        {
            let (operator, operand) = (self.slice(&unary.op), self.slice(&unary.expr));
            self.add(
                unary.span().byte_range(),
                unary.op.span(),
                Form::Expression,
                vec![(operand.to_string(), format!("{operator} is deleted"))],
            );
        }
        self.visit_expr(&unary.expr);
    }

    fn visit_expr_match(&mut self, expression: &'a ExprMatch) {
        self.visit_expr(&expression.expr);
        let others = expression.arms.iter().any(|arm| matches!(arm.pat, Pat::Wild(_)));
        for arm in &expression.arms {
            match &arm.pat {
                Pat::Guard(pattern) => self.guard(&pattern.guard),
                pattern if others => self.arm(pattern),
                _ => {}
            }
            self.visit_expr(&arm.body);
        }
    }

    fn visit_expr_struct(&mut self, expression: &'a ExprStruct) {
        if self.function.is_some() && expression.rest.is_some() {
            let whole = expression.span().byte_range();
            let change = |pair: syn::punctuated::Pair<&syn::FieldValue, &syn::Token![,]>| {
                let range = pair.span().byte_range();
                let rest = format!(
                    "{}{}",
                    &self.source[whole.start..range.start],
                    &self.source[range.end..whole.end]
                );
                (rest, format!("the field {} is left to the rest", text(&pair.value().member)))
            };
            let changes = expression.fields.pairs().map(change).collect();
            self.add(whole.clone(), expression.span(), Form::Expression, changes);
        }
        visit::visit_expr_struct(self, expression);
    }
}

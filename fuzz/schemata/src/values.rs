//! Plausible values of a type, by its text: what a function may return instead of what it computes.

use syn::{GenericArgument, PathArguments, ReturnType, Type, TypePath};

/// Values of what a function returns; empty where nothing is plausible.
pub(crate) fn of_return(output: &ReturnType) -> Vec<String> {
    match output {
        ReturnType::Default => vec!["()".into()],
        ReturnType::Type(_, kind) => of(kind),
    }
}

/// Values of a type. What does not compile (a type without a default) is found by the compiler.
fn of(kind: &Type) -> Vec<String> {
    match kind {
        Type::Paren(inner) => of(&inner.elem),
        Type::Group(inner) => of(&inner.elem),
        Type::Never(_)
        | Type::ImplTrait(_)
        | Type::Infer(_)
        | Type::FnPtr(_)
        | Type::Ptr(_)
        | Type::TraitObject(_) => Vec::new(),
        Type::Tuple(tuple) => products(&tuple.elems.iter().map(of).collect::<Vec<_>>()),
        Type::Array(array) => of(&array.elem)
            .into_iter()
            .map(|value| format!("[{value}; {}]", crate::sites::text(&array.len)))
            .collect(),
        Type::Reference(reference) => of_reference(&reference.elem, reference.mutability.is_some()),
        Type::Path(path) => of_path(path),
        _ => vec!["Default::default()".into()],
    }
}

/// All combinations of the parts' values.
fn products(parts: &[Vec<String>]) -> Vec<String> {
    let mut rows = vec![Vec::new()];
    for values in parts {
        rows = rows
            .iter()
            .flat_map(|row| values.iter().map(|value| [&row[..], std::slice::from_ref(value)].concat()))
            .collect();
    }
    let comma = if parts.len() == 1 { "," } else { "" };
    rows.iter().map(|row| format!("({}{comma})", row.join(", "))).collect()
}

fn of_reference(kind: &Type, mutable: bool) -> Vec<String> {
    match kind {
        Type::Slice(slice) => {
            let full = of(&slice.elem).into_iter().map(|value| format!("Vec::leak(vec![{value}])"));
            std::iter::once("Vec::leak(Vec::new())".to_string()).chain(full).collect()
        }
        Type::Path(path) if path.path.is_ident("str") && !mutable => vec!["\"\"".into(), "\"xyzzy\"".into()],
        Type::TraitObject(_) => Vec::new(),
        _ => of(kind).into_iter().map(|value| format!("Box::leak(Box::new({value}))")).collect(),
    }
}

fn of_path(path: &TypePath) -> Vec<String> {
    let Some(last) = path.path.segments.last() else { return Vec::new() };
    let name = last.ident.to_string();
    let arguments = types(&last.arguments);
    let wrapped = |before: &str| {
        arguments.first().map_or_else(Vec::new, |kind| {
            of(kind).into_iter().map(|value| format!("{before}({value})")).collect()
        })
    };
    let words: &[&str] = match name.as_str() {
        "bool" => &["true", "false"],
        "String" => &["String::new()", "\"xyzzy\".into()"],
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => &["0", "1", "-1"],
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => &["0", "1"],
        "f32" | "f64" => &["0.0", "1.0", "-1.0"],
        "char" => &["'x'"],
        "Result" if arguments.is_empty() => &["Ok(Default::default())"],
        "Option" => return ["None".to_string()].into_iter().chain(wrapped("Some")).collect(),
        "Result" => return wrapped("Ok"),
        "Vec" => {
            return ["vec![]".to_string()]
                .into_iter()
                .chain(wrapped("").into_iter().map(|value| format!("vec![{value}]")))
                .collect();
        }
        "Box" | "Rc" | "Arc" | "Cell" | "RefCell" | "Mutex" if !arguments.is_empty() => {
            return wrapped(&format!("{name}::new"));
        }
        "Poll" => return ["Poll::Pending".to_string()].into_iter().chain(wrapped("Poll::Ready")).collect(),
        "NonZeroU32" | "NonZeroU64" | "NonZeroUsize" => &["1.try_into().expect(\"not 0\")"],
        _ => &["Default::default()"],
    };
    words.iter().map(ToString::to_string).collect()
}

/// The types among a path's arguments.
fn types(arguments: &PathArguments) -> Vec<&Type> {
    let PathArguments::AngleBracketed(list) = arguments else { return Vec::new() };
    list.args
        .iter()
        .filter_map(|argument| if let GenericArgument::Type(kind) = argument { Some(kind) } else { None })
        .collect()
}
